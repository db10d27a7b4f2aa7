"""Non-negative least squares for many small problems at once, inside ``jax.jit``."""

from __future__ import annotations

import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Float, Int

_FULL_EXCHANGES = 3
_MAX_EXCHANGES = 200


def nonnegative_least_squares(
    gram: Float[Array, "unit trait trait"], moment: Float[Array, "unit trait"]
) -> Float[Array, "unit trait"]:
    """Minimise ``x' G x / 2 - m' x`` over x >= 0, for every unit.

    Block principal pivoting: all variables on the wrong side change sides at once; where that stops helping, one at
    a time, which is finite. One trait needs no iteration.

    Parameters
    ----------
    gram
        Positive semidefinite matrices; a relative ridge of 1e-12 keeps singular ones solvable.
    moment
        Right-hand sides.

    Returns
    -------
    jax.Array
        The minimisers; exact zeros on the boundary.

    References
    ----------
    Kim, J. & Park, H. (2011). Fast nonnegative matrix factorization: an active-set-like method and comparisons.
    SIAM Journal on Scientific Computing 33, 3261-3281.

    Examples
    --------
    >>> gram = jnp.array([[[2.0, 1.0], [1.0, 2.0]]])
    >>> nonnegative_least_squares(gram, jnp.array([[2.0, -1.0]]))
    Array([[1., 0.]], dtype=float32)
    """
    traits = gram.shape[-1]
    scale = jnp.trace(gram, axis1=-2, axis2=-1)
    if traits == 1:
        usable = gram[:, 0] > 0
        return jnp.where(usable, jnp.maximum(moment / jnp.where(usable, gram[:, 0], 1.0), 0.0), 0.0)
    ridge = jnp.where(scale > 0, 1e-12 * scale, 1.0)
    gram = gram + ridge[:, None, None] * jnp.eye(traits, dtype=gram.dtype)
    units = gram.shape[0]
    passive = jnp.ones((units, traits), dtype=bool)
    start = (passive, jnp.full(units, traits + 1), jnp.full(units, _FULL_EXCHANGES), jnp.array(0))
    passive, *_ = lax.while_loop(
        lambda state: (state[3] < _MAX_EXCHANGES) & _misplaced(gram, moment, state[0]).any(),
        lambda state: _exchange(gram, moment, state),
        start,
    )
    return jnp.maximum(_solve_on(gram, moment, passive), 0.0)


def _solve_on(
    gram: Float[Array, "unit trait trait"],
    moment: Float[Array, "unit trait"],
    passive: Bool[Array, "unit trait"],
) -> Float[Array, "unit trait"]:
    """Solve for the passive variables, the others being 0."""
    both = passive[:, :, None] & passive[:, None, :]
    matrix = jnp.where(both, gram, jnp.eye(gram.shape[-1], dtype=gram.dtype))
    solution = jnp.linalg.solve(matrix, jnp.where(passive, moment, 0.0)[..., None])[..., 0]
    return jnp.where(passive, solution, 0.0)


def _misplaced(
    gram: Float[Array, "unit trait trait"],
    moment: Float[Array, "unit trait"],
    passive: Bool[Array, "unit trait"],
) -> Bool[Array, "unit trait"]:
    """Say which variables are negative though passive, or held at 0 though the loss falls to the inside."""
    solution = _solve_on(gram, moment, passive)
    slope = jnp.einsum("ukl,ul->uk", gram, solution) - moment
    rounding = 1e-12 * (jnp.abs(moment).max(axis=1, keepdims=True) + 1e-300)
    size = jnp.abs(solution).max(axis=1, keepdims=True)
    return jnp.where(passive, solution < -1e-12 * size, slope < -rounding)


def _exchange(
    gram: Float[Array, "unit trait trait"],
    moment: Float[Array, "unit trait"],
    state: tuple[Bool[Array, "unit trait"], Int[Array, " unit"], Int[Array, " unit"], Int[Array, ""]],
) -> tuple[Bool[Array, "unit trait"], Int[Array, " unit"], Int[Array, " unit"], Int[Array, ""]]:
    """Move misplaced variables: all while that helps, else only the last one."""
    passive, fewest, credit, count = state
    wrong = _misplaced(gram, moment, passive)
    number = wrong.sum(axis=1)
    better = number < fewest
    credit = jnp.where(better, _FULL_EXCHANGES, credit - 1)
    last = jnp.arange(wrong.shape[1]) == (wrong.shape[1] - 1 - jnp.argmax(wrong[:, ::-1], axis=1))[:, None]
    moved = jnp.where((better | (credit >= 0))[:, None], wrong, wrong & last)
    return passive ^ moved, jnp.where(better, number, fewest), credit, count + 1
