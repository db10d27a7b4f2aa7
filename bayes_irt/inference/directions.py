"""Slow directions: along which a density is much wider than its coordinates say.

In the coordinates of `start` each LLM and each item is scaled by itself. What they do together remains: when the
abilities of the weaker half spread and the items follow, hardly any logit moves, so that the posterior is several times
wider along that direction. A handful of such directions is found from curvature and stretched.

References
----------
Lanczos, C. (1950). An iteration method for the solution of the eigenvalue problem of linear differential and integral
operators. Journal of Research of the National Bureau of Standards 45, 255-282.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float

_STEPS = 40
_KEPT = 8
_LARGEST_STRETCH = 4.0
# Half the distance, in standard deviations, over which curvature is averaged: float32 cells need some, and so does a
# density that bends.
_REACH = 0.5


@jax.tree_util.register_dataclass
@dataclass(frozen=True, slots=True)
class Directions:
    """Hold orthonormal directions and how far to stretch along each.

    Parameters
    ----------
    vectors
        Unit vectors; zero where fewer were found.
    stretches
        Standard deviations along them, at least 1.
    """

    vectors: Float[Array, "direction size"]
    stretches: Float[Array, " direction"]


def stretch(point: Float[Array, " size"], directions: Directions) -> Float[Array, " size"]:
    """Map independent standard normals to a Gaussian that is wider along the directions.

    Parameters
    ----------
    point
        One point.
    directions
        What to stretch.

    Returns
    -------
    jax.Array
        The point with its component along each direction multiplied. The log determinant is constant.

    Examples
    --------
    >>> import jax.numpy as jnp
    >>> one = Directions(jnp.array([[0.0, 1.0]]), jnp.array([3.0]))
    >>> stretch(jnp.array([1.0, 1.0]), one).tolist()
    [1.0, 3.0]
    """
    return point + ((directions.stretches - 1.0) * (directions.vectors @ point)) @ directions.vectors


def unstretched(size: int) -> Directions:
    """Return no directions at all.

    Parameters
    ----------
    size
        Number of coordinates.

    Returns
    -------
    Directions
        One of length zero.
    """
    return Directions(jnp.zeros((1, size)), jnp.ones(1))


def slow_directions(potential: Callable[[Float[Array, " size"]], Float[Array, ""]], size: int) -> Directions:
    """Find the directions of least curvature around the origin.

    Lanczos' iteration on products of the Hessian with vectors, each a difference of two gradients.

    Parameters
    ----------
    potential
        The negative log density.
    size
        Number of coordinates.

    Returns
    -------
    Directions
        Those whose curvature is lowest, at most eight, stretched up to 4 times. A curvature of less, or a negative one,
        as few LLMs leave it, tells nothing about the spread: there the stretch is 1.

    Examples
    --------
    >>> import jax
    >>> curvature = jnp.ones(30).at[7].set(0.25)
    >>> with jax.enable_x64(True):
    ...     found = slow_directions(lambda point: curvature @ point**2 / 2, 30)
    >>> round(max(found.stretches.tolist()), 3)
    2.0
    """
    steps = min(_STEPS, size)
    gradient = jax.grad(potential)

    def step(number: Array, state: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
        basis, image, vector = state
        ahead, behind = lax.map(gradient, _REACH * jnp.stack([vector, -vector]))
        # a vector of 0 means that nothing was left to search; the density may fail at the very origin
        product = jnp.where(vector.any(), (ahead - behind) / (2 * _REACH), 0.0)
        basis, image = basis.at[number].set(vector), image.at[number].set(product)
        rest = product - (basis @ product) @ basis
        rest = rest - (basis @ rest) @ basis
        length = jnp.linalg.norm(rest)
        exhausted = length <= 1e-4 * jnp.linalg.norm(product)
        return basis, image, jnp.where(exhausted, 0.0, rest / jnp.where(exhausted, 1.0, length))

    first = jax.random.normal(jax.random.key(0), (size,), jnp.float64)
    empty = jnp.zeros((steps, size))
    basis, image, _ = lax.fori_loop(0, steps, step, (empty, empty, first / jnp.linalg.norm(first)))
    projected = basis @ image.T + jnp.diag(1.0 - jnp.sum(basis**2, axis=1))
    curvature, mixture = jnp.linalg.eigh((projected + projected.T) / 2)
    vectors = mixture[:, : min(_KEPT, steps)].T @ basis
    told = curvature[: len(vectors)]
    clear = told > _LARGEST_STRETCH**-2
    stretches = jnp.where(clear, 1.0 / jnp.sqrt(jnp.where(clear, jnp.minimum(told, 1.0), 1.0)), 1.0)
    return Directions(vectors, stretches)
