"""Correlations between traits: coordinates in which they are free, and their prior's density there.

Row by row of the Cholesky factor, a coordinate's hyperbolic tangent is a partial correlation: that of a trait and an
earlier one, given all before these two. Any numbers then make a positive definite matrix.

References
----------
Lewandowski, D., Kurowicka, D. & Joe, H. (2009). Generating random correlation matrices based on vines and extended
onion method. Journal of Multivariate Analysis 100, 1989-2001.
"""

from __future__ import annotations

import math

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float


def cholesky_of(free: Float[Array, " pair"]) -> Float[Array, "trait trait"]:
    """Return the Cholesky factor of the correlations.

    Parameters
    ----------
    free
        Coordinates of each pair of traits: second and first, third and first, third and second ...

    Returns
    -------
    jax.Array
        Lower triangular, its rows of length 1.

    Examples
    --------
    >>> cholesky_of(jnp.zeros(3)).tolist()
    [[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]]
    """
    partial, left = _partial(free)
    return (partial + jnp.eye(len(partial))) * jnp.exp(0.5 * left)


def free_correlations(correlation: Float[Array, "trait trait"]) -> Float[Array, " pair"]:
    """Return the coordinates of some correlations, the inverse of `cholesky_of`.

    Parameters
    ----------
    correlation
        Positive definite.

    Returns
    -------
    jax.Array
        The coordinates of each pair of traits.

    Examples
    --------
    >>> round(float(jnp.tanh(free_correlations(jnp.array([[1.0, 0.6], [0.6, 1.0]])))[0]), 4)
    0.6
    """
    factor = jnp.linalg.cholesky(correlation)
    spent = jnp.cumsum(factor**2, axis=1) - factor**2
    return jnp.asarray(jnp.arctanh((factor / jnp.sqrt(1.0 - spent))[np.tril_indices(len(factor), -1)]))


def log_correlation_prior(free: Float[Array, " pair"], concentration: float) -> Float[Array, ""]:
    """Return the log density of the coordinates when correlations follow an LKJ prior, up to a constant.

    Parameters
    ----------
    free
        The coordinates of each pair of traits.
    concentration
        1 is uniform over correlation matrices; larger values favour small correlations.

    Returns
    -------
    jax.Array
        The volume of the map to correlations included.

    Examples
    --------
    >>> round(float(log_correlation_prior(jnp.array([0.5]), 1.0)), 4)  # uniform: that of the tangent alone
    -0.2402
    """
    partial, left = _partial(free)
    size = len(partial)
    order = np.arange(size)
    # each diagonal entry of the factor is what its row has left; its power is that of the density by the factor
    density = jnp.sum((size - order + 2.0 * concentration - 3.0) * 0.5 * jnp.diag(left))
    below = np.tril_indices(size, -1)
    return density + 0.5 * left[below].sum() + jnp.log1p(-(partial[below] ** 2)).sum()


def _partial(free: Float[Array, " pair"]) -> tuple[Float[Array, "trait trait"], Float[Array, "trait trait"]]:
    """Return partial correlations below the diagonal, and what of a row's length they leave, as logarithms."""
    size = count_traits(len(free))
    below = np.tril_indices(size, -1)
    partial = jnp.zeros((size, size), jnp.result_type(free, float)).at[below].set(jnp.tanh(free))
    logs = jnp.zeros_like(partial).at[below].set(-2.0 * jnp.log(jnp.cosh(free)))
    return partial, jnp.cumsum(logs, axis=1) - logs


def count_traits(num_pairs: int) -> int:
    """Return the number of traits that have so many pairs.

    Parameters
    ----------
    num_pairs
        Number of pairs.

    Returns
    -------
    int
        Number of traits.

    Examples
    --------
    >>> [count_traits(pairs) for pairs in (1, 3, 6)]
    [2, 3, 4]
    """
    return (1 + math.isqrt(1 + 8 * num_pairs)) // 2
