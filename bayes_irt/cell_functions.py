"""What one cell contributes to the likelihood: loss, score and curvature as functions of its logit.

The kernel of `likelihood` adds them up. Another likelihood is another function here.

References
----------
Jaakkola, T. S. & Jordan, M. I. (2000). Bayesian parameter estimation via variational methods. Statistics and
Computing 10, 25-37 (the tight bound).
"""

from __future__ import annotations

from typing import Literal, NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Float

Curvature = Literal["fisher", "tight", "quarter"]

#: Factors of the loss whose product takes one logarithm: four of at most 1 + exp(20), or 1 + exp(170) in float64.
FACTORS = 4
_LARGEST_EXPONENT = {"float32": 20.0, "float64": 170.0}


class CellTerms(NamedTuple):
    """What one cell contributes: its loss is ``linear + log(factor)``, its score is the derivative of -loss."""

    linear: Float[Array, ...]
    factor: Float[Array, ...] | None
    score: Float[Array, ...]
    weight: Float[Array, ...] | None


def outcome_cell(
    eta: Float[Array, ...], outcome: Float[Array, ...], *, curvature: Curvature | None = None
) -> CellTerms:
    """Return loss, score and weight of cells with one attempt at most.

    Parameters
    ----------
    eta
        Logit of a right answer.
    outcome
        1 right, -1 wrong, 0 missing: contributes nothing.
    curvature
        Weight W, see `binomial_cell`.

    Returns
    -------
    CellTerms
        The factor of the loss is at most ``1 + exp(20)`` (float64: ``1 + exp(170)``), the rest is linear.

    Examples
    --------
    >>> one = jnp.ones(())
    >>> terms = outcome_cell(0 * one, one, curvature="fisher")
    >>> float(terms.factor), float(terms.score), float(terms.weight)
    (2.0, 0.5, 0.25)
    """
    against = -outcome * eta
    held = jnp.minimum(against, _LARGEST_EXPONENT[eta.dtype.name])
    odds = jnp.exp(held)
    surprise = 1.0 / (1.0 + odds)
    tried = jnp.abs(outcome)
    weight: Array | None = None
    if curvature == "fisher":
        weight = tried * (odds * surprise * surprise)
    elif curvature == "tight":
        weight = tried * _tight_weight(eta, (1.0 - odds) * surprise * outcome)
    elif curvature == "quarter":
        weight = 0.25 * tried
    return CellTerms(against - held, 1.0 + tried * odds, outcome * (odds * surprise), weight)


def binomial_cell(
    eta: Float[Array, ...],
    successes: Float[Array, ...],
    attempts: Float[Array, ...],
    *,
    curvature: Curvature | None = None,
) -> CellTerms:
    """Return loss, score and weight of binomial cells with logit eta.

    Parameters
    ----------
    eta
        Logit of a right answer.
    successes
        Right answers.
    attempts
        Attempts; 0 contributes nothing.
    curvature
        Weight W: "fisher" is minus the second derivative, n p (1 - p); "tight" the smallest weight whose
        parabola touches the loss at eta and lies above it everywhere, n tanh(|eta| / 2) / (2 |eta|);
        "quarter" the largest of those, n / 4.

    Returns
    -------
    CellTerms
        Without the binomial coefficient, which no parameter changes.

    References
    ----------
    Jaakkola, T. S. & Jordan, M. I. (2000). Bayesian parameter estimation via variational methods. Statistics and
    Computing 10, 25-37 (the tight bound).

    Examples
    --------
    >>> one = jnp.ones(())
    >>> terms = binomial_cell(0 * one, 2 * one, 3 * one, curvature="fisher")
    >>> float(terms.score), float(terms.weight)
    (0.5, 0.75)
    """
    size = jnp.abs(eta)
    decay = jnp.exp(-size)
    larger = 1.0 / (1.0 + decay)
    probability = jnp.where(eta >= 0, larger, decay * larger)
    score = successes - attempts * probability
    loss = attempts * (jnp.maximum(eta, 0.0) + jnp.log1p(decay)) - successes * eta
    weight: Array | None = None
    if curvature == "fisher":
        weight = attempts * (decay * larger * larger)
    elif curvature == "tight":
        weight = attempts * _tight_weight(size, (1.0 - decay) * larger)
    elif curvature == "quarter":
        weight = 0.25 * attempts
    return CellTerms(loss, None, score, weight)


def _tight_weight(eta: Float[Array, ...], tangent: Float[Array, ...]) -> Float[Array, ...]:
    """Return ``tanh(eta / 2) / (2 eta)`` from the hyperbolic tangent, by its series near 0."""
    square = eta * eta  # the series, cut where the rest is negative, stays a majoriser
    series = 0.25 - square / 48.0 + square * square / 480.0
    near = jnp.abs(eta) < 0.05
    return jnp.where(near, series, tangent / (2.0 * jnp.where(near, 1.0, eta)))
