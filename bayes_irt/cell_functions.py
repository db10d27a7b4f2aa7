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

from bayes_irt.errors import InvalidConfigurationError

Curvature = Literal["fisher", "tight", "quarter"]

#: Factors of the loss whose product takes one logarithm: four of at most 1 + exp(20), or 1 + exp(170) in float64.
FACTORS = 4
_LARGEST_EXPONENT = {"float32": 20.0, "float64": 170.0}


class CellTerms(NamedTuple):
    """What one cell contributes: its loss is ``linear + log(factor)``, its score is the derivative of -loss.

    The scores of the law's further parameters, floor and dispersion, are those by the item's own.
    """

    linear: Float[Array, ...]
    factor: Float[Array, ...] | None
    score: Float[Array, ...]
    weight: Float[Array, ...] | None
    shape_scores: tuple[Float[Array, ...], ...] = ()


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


class Mean(NamedTuple):
    """The chance of a right answer above a floor, exact at both ends.

    Attributes
    ----------
    right, wrong
        Its probability p and 1 - p.
    log_right, log_wrong
        Their logarithms.
    rise
        Derivative of log p by the logit; that of -log(1 - p) is `known`.
    known
        Probability that the answer is known, the logistic function of the logit.
    by_floor
        Derivative of log p by the floor; that of log(1 - p) is -1 / (1 - floor).
    """

    right: Float[Array, ...]
    wrong: Float[Array, ...]
    log_right: Float[Array, ...]
    log_wrong: Float[Array, ...]
    rise: Float[Array, ...]
    known: Float[Array, ...]
    by_floor: Float[Array, ...]


def mean_above(eta: Float[Array, ...], floor: Float[Array, ...]) -> Mean:
    """Return the chance of a right answer where guessing alone is right with some probability.

    Parameters
    ----------
    eta
        Logit of knowing the answer.
    floor
        Probability of a right guess, from 0 to below 1.

    Returns
    -------
    Mean
        ``p = floor + (1 - floor) logistic(eta)``, and what goes with it.

    References
    ----------
    Birnbaum, A. (1968). Some latent trait models and their use in inferring an examinee's ability. In Lord, F. M. &
    Novick, M. R., Statistical Theories of Mental Test Scores (the three-parameter model).

    Examples
    --------
    >>> found = mean_above(jnp.zeros(()), jnp.array(0.2))
    >>> round(float(found.right), 3), round(float(found.rise), 3)
    (0.6, 0.333)
    """
    decay = jnp.exp(-jnp.abs(eta))
    larger = 1.0 / (1.0 + decay)
    known, unknown = (
        jnp.where(eta >= 0, one, other) for one, other in ((larger, decay * larger), (decay * larger, larger))
    )
    right = floor + (1.0 - floor) * known
    # the share of right answers that are known: where both are as good as 0 it is known to be all or nothing
    share = jnp.where(floor > 0, (1.0 - floor) * known / jnp.where(floor > 0, right, 1.0), 1.0)
    log_known = jnp.minimum(eta, 0.0) - jnp.log1p(decay)
    log_right = jnp.where(floor > 0, jnp.log(jnp.where(floor > 0, right, 1.0)), log_known)
    log_wrong = jnp.log1p(-floor) - jnp.maximum(eta, 0.0) - jnp.log1p(decay)
    by_floor = jnp.where(right > 0, unknown / jnp.where(right > 0, right, 1.0), 0.0)
    return Mean(right, (1.0 - floor) * unknown, log_right, log_wrong, share * unknown, known, by_floor)


def floor_cell(
    eta: Float[Array, ...],
    successes: Float[Array, ...],
    attempts: Float[Array, ...],
    floor: Float[Array, ...],
    *,
    curvature: Curvature | None = None,
) -> CellTerms:
    """Return loss, score and weight of binomial cells whose chance has a floor.

    Parameters
    ----------
    eta
        Logit of knowing the answer.
    successes
        Right answers.
    attempts
        Attempts; 0 contributes nothing.
    floor
        Probability of a right guess, from 0 to below 1; broadcasts.
    curvature
        "fisher" for the expected information about the logit; the loss is not convex, so there is no other.

    Returns
    -------
    CellTerms
        Without the binomial coefficient; one shape score, by the floor.

    Raises
    ------
    InvalidConfigurationError
        If another curvature is asked for.

    Examples
    --------
    >>> one = jnp.ones(())
    >>> terms = floor_cell(0 * one, one, one, 0.2 * one, curvature="fisher")
    >>> [round(float(value), 3) for value in (terms.linear, terms.score, terms.weight)]
    [0.511, 0.333, 0.167]
    """
    mean = mean_above(eta, floor)
    wrong = attempts - successes
    score = successes * mean.rise - wrong * mean.known
    loss = -successes * mean.log_right - wrong * mean.log_wrong
    weight = attempts * mean.rise * mean.known if fisher_alone(curvature) else None
    return CellTerms(loss, None, score, weight, (successes * mean.by_floor - wrong / (1.0 - floor),))


def fisher_alone(curvature: Curvature | None) -> bool:
    """Say whether a weight is wanted, of a cell that has Fisher's alone.

    Parameters
    ----------
    curvature
        What is asked for.

    Returns
    -------
    bool
        False for none.

    Raises
    ------
    InvalidConfigurationError
        If it is a bound.
    """
    if curvature not in (None, "fisher"):
        raise InvalidConfigurationError(
            f"curvature is {curvature!r}, but the loss of a cell with a floor or with dispersion is not convex: it has "
            "Fisher's alone."
        )
    return curvature is not None


def _tight_weight(eta: Float[Array, ...], tangent: Float[Array, ...]) -> Float[Array, ...]:
    """Return ``tanh(eta / 2) / (2 eta)`` from the hyperbolic tangent, by its series near 0."""
    square = eta * eta  # the series, cut where the rest is negative, stays a majoriser
    series = 0.25 - square / 48.0 + square * square / 480.0
    near = jnp.abs(eta) < 0.05
    return jnp.where(near, series, tangent / (2.0 * jnp.where(near, 1.0, eta)))
