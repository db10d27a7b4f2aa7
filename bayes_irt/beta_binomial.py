"""The beta-binomial cell: repeated attempts at one item that hang together.

The chance of a right answer differs from cell to cell around its mean, by a beta law; rho is the correlation of two
attempts in one cell. With p the mean, ``A_k = p (1 - rho) + k rho``, ``B_k = (1 - p)(1 - rho) + k rho`` and
``C_k = 1 - rho + k rho``, the probability of y of n right is, but for the binomial coefficient,
``prod_(k<y) A_k prod_(k<n-y) B_k / prod_(k<n) C_k``: with rho = 0 the binomial one, with no gamma function to lose
digits. The products are loops up to the largest number of attempts, so that costs grow with it.

References
----------
Prentice, R. L. (1986). Binary regression using an extended beta-binomial distribution. Journal of the American
Statistical Association 81, 321-327.
"""

from __future__ import annotations

from typing import NamedTuple

import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float

from bayes_irt.cell_functions import CellTerms, Curvature, Mean, fisher_alone, mean_above


class _Totals(NamedTuple):
    """Sums over the factors: of logarithms, of ratios ``p (1 - rho) / A_k`` and the like, of derivatives by rho."""

    log: Float[Array, ...]
    right: Float[Array, ...]
    wrong: Float[Array, ...]
    by_dispersion: Float[Array, ...]


class _Factor(NamedTuple):
    """One factor A_k or B_k: its logarithm, its ratio, and the derivative of its logarithm by rho."""

    log: Float[Array, ...]
    ratio: Float[Array, ...]
    by_dispersion: Float[Array, ...]


def beta_binomial_cell(
    eta: Float[Array, ...],
    successes: Float[Array, ...],
    attempts: Float[Array, ...],
    floor: Float[Array, ...],
    dispersion: Float[Array, ...],
    *,
    curvature: Curvature | None = None,
) -> CellTerms:
    """Return loss, score and weight of beta-binomial cells, whose mean chance may have a floor.

    Parameters
    ----------
    eta
        Logit of the mean chance (of knowing the answer, above a floor).
    successes
        Right answers.
    attempts
        Attempts; 0 contributes nothing.
    floor
        Probability of a right guess, from 0 to below 1; broadcasts.
    dispersion
        Correlation rho of two attempts in one cell, from 0 to below 1; broadcasts.
    curvature
        "fisher" for the expected information about the logit, summed over all outcomes; the loss is not convex, so
        there is no other.

    Returns
    -------
    CellTerms
        Without the binomial coefficient; two shape scores, by floor and by dispersion.

    Raises
    ------
    InvalidConfigurationError
        If another curvature is asked for.

    Examples
    --------
    >>> one = jnp.ones(())
    >>> terms = beta_binomial_cell(0 * one, 2 * one, 2 * one, 0 * one, 0.5 * one, curvature="fisher")
    >>> [round(float(value), 3) for value in (terms.linear, terms.score, terms.weight)]
    [0.981, 0.667, 0.333]
    """
    eta, successes, attempts, floor, dispersion = jnp.broadcast_arrays(
        eta, successes, attempts, floor, dispersion
    )
    mean, most = mean_above(eta, floor), jnp.max(attempts, initial=0.0).astype(jnp.int32)
    weighted = fisher_alone(curvature)
    wrong = attempts - successes
    zero = jnp.zeros_like(eta)

    def add(k: Array, carry: tuple[_Totals, _Totals]) -> tuple[_Totals, _Totals]:
        seen, none_right = carry
        step = k.astype(eta.dtype)
        for_right = _factor(mean.right, mean.log_right, step, dispersion)
        for_wrong = _factor(mean.wrong, mean.log_wrong, step, dispersion)
        whole = _factor(jnp.ones_like(eta), zero, step, dispersion)
        among = [
            jnp.where(step < count, 1.0, 0.0).astype(eta.dtype) for count in (successes, wrong, attempts)
        ]
        seen = _Totals(
            seen.log + among[0] * for_right.log + among[1] * for_wrong.log - among[2] * whole.log,
            seen.right + among[0] * for_right.ratio,
            seen.wrong + among[1] * for_wrong.ratio,
            seen.by_dispersion
            + among[0] * for_right.by_dispersion
            + among[1] * for_wrong.by_dispersion
            - among[2] * whole.by_dispersion,
        )
        if weighted:
            none_right = none_right._replace(
                log=none_right.log + among[2] * (for_wrong.log - whole.log),
                wrong=none_right.wrong + among[2] * for_wrong.ratio,
            )
        return seen, none_right

    totals = _Totals(zero, zero, zero, zero)
    seen, none_right = lax.fori_loop(0, most, add, (totals, totals))
    score = mean.rise * seen.right - mean.known * seen.wrong
    by_floor = mean.by_floor * seen.right - seen.wrong / (1.0 - floor)
    weight = _information(mean, attempts, dispersion, none_right, most) if weighted else None
    return CellTerms(-seen.log, None, score, weight, (by_floor, seen.by_dispersion))


def _factor(
    chance: Float[Array, ...],
    log_chance: Float[Array, ...],
    k: Float[Array, ...],
    dispersion: Float[Array, ...],
) -> _Factor:
    """Return ``chance (1 - rho) + k rho``; where k is 0 the ratio is 1 however small the chance."""
    rest = 1.0 - dispersion
    value = chance * rest + k * dispersion
    plain = (k == 0) | (value <= 0)
    safe = jnp.where(plain, 1.0, value)
    return _Factor(
        jnp.where(plain, log_chance + jnp.log1p(-dispersion), jnp.log(safe)),
        jnp.where(plain, 1.0, chance * rest / safe),
        jnp.where(plain, -1.0 / rest, (k - chance) / safe),
    )


def _information(
    mean: Mean,
    attempts: Float[Array, ...],
    dispersion: Float[Array, ...],
    none_right: _Totals,
    most: Array,
) -> Float[Array, ...]:
    """Return the expected square of the score, outcome by outcome: each follows from the one before.

    Their chances are divided by their sum, which is 1 but for the rounding of the first one's many factors.
    """

    def add(y: Array, carry: tuple[Array, Array, Array, Array]) -> tuple[Array, Array, Array, Array]:
        log_chance, score, total, mass = carry
        step = y.astype(log_chance.dtype)
        left = attempts - step
        chance = jnp.where(left >= 0, jnp.exp(log_chance), 0.0)
        total, mass = total + chance * score**2, mass + chance
        more = left > 0
        left = jnp.where(more, left, 1.0)
        gained = _factor(mean.right, mean.log_right, step, dispersion)
        lost = _factor(mean.wrong, mean.log_wrong, left - 1.0, dispersion)
        log_chance = log_chance + jnp.where(more, jnp.log(left / (step + 1.0)) + gained.log - lost.log, 0.0)
        score = score + jnp.where(more, mean.rise * gained.ratio + mean.known * lost.ratio, 0.0)
        return log_chance, score, total, mass

    zero = jnp.zeros_like(attempts)
    start = (none_right.log, -mean.known * none_right.wrong, zero, zero)
    _, _, total, mass = lax.fori_loop(0, most + 1, add, start)
    return jnp.asarray(total / mass)
