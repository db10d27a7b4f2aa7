"""The steps of cBMM: each minimises a parabola over one block of parameters, in closed form.

A parabola has the sums of one pass: score and curvature at the point where it touches the loss. Whether it lies above
the loss everywhere (the majorising curvatures) or only fits it best there (Fisher's) is the caller's choice.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Bool, Float

from bayes_irt.likelihood import Sums
from bayes_irt.nnls import nonnegative_least_squares
from bayes_irt.parameters import Parameters
from bayes_irt.priors import Penalty
from bayes_irt.responses import Responses

_GAUGE_TURNS = 30


class Problem(NamedTuple):
    """What a fit minimises, apart from the cells, in the scale in which sigma is 1.

    Attributes
    ----------
    ability_precision, discrimination_precision, easiness_precision
        The penalty's; all 0 for none.
    easiness_location
        Where the penalty draws easinesses to.
    llm_attempts, item_attempts
        Attempts by LLM and by item, the scale of the first-order residual.
    loads
        Which items may load on which trait.
    """

    ability_precision: float
    discrimination_precision: float
    easiness_precision: float
    easiness_location: float
    llm_attempts: Float[Array | np.ndarray, " llm"]
    item_attempts: Float[Array | np.ndarray, " item"]
    loads: Bool[Array | np.ndarray, "item trait"]


def pose(
    responses: Responses, penalty: Penalty | None, sigma: float, loads: Bool[np.ndarray, "item trait"]
) -> Problem:
    """Return the problem of a fit.

    Parameters
    ----------
    responses
        The data.
    penalty
        The penalty; None for none.
    sigma
        The paper's scale.
    loads
        Which items may load on which trait.

    Returns
    -------
    Problem
        In the scale in which sigma is 1.
    """
    attempts = responses.attempts
    totals = attempts.sum(axis=1, dtype=np.float64), attempts.sum(axis=0, dtype=np.float64)
    if penalty is None:
        return Problem(0.0, 0.0, 0.0, 0.0, *totals, loads)
    return Problem(
        penalty.ability_scale**-2,
        (penalty.discrimination_scale / sigma) ** -2,
        (penalty.easiness_scale / sigma) ** -2,
        penalty.easiness_location / sigma,
        *totals,
        loads,
    )


def penalty_value(problem: Problem, at: Parameters) -> Float[Array, ""]:
    """Return the penalty.

    Parameters
    ----------
    problem
        The problem.
    at
        The parameters.

    Returns
    -------
    jax.Array
        To be added to the loss.
    """
    return 0.5 * (
        problem.ability_precision * jnp.sum(at.ability**2)
        + problem.discrimination_precision * jnp.sum(at.discrimination**2)
        + problem.easiness_precision * jnp.sum((at.easiness - problem.easiness_location) ** 2)
    )


def penalty_score(problem: Problem, at: Parameters) -> Parameters:
    """Return the derivative of minus the penalty.

    Parameters
    ----------
    problem
        The problem.
    at
        The parameters.

    Returns
    -------
    parameters.Parameters
        To be added to the score.
    """
    return Parameters(
        -problem.ability_precision * at.ability,
        -problem.discrimination_precision * at.discrimination,
        -problem.easiness_precision * (at.easiness - problem.easiness_location),
    )


def sequential_item_step(old: Parameters, sums: Sums, problem: Problem) -> Parameters:
    """Minimise over discriminations at fixed easinesses, then over easinesses: the paper's order.

    Parameters
    ----------
    old
        Where the parabola touches.
    sums
        Its score and curvature.
    problem
        Penalty and zero pattern.

    Returns
    -------
    parameters.Parameters
        With new items.
    """
    score, gram = _item_parabola(old, sums, problem)
    moment = jnp.einsum("jkl,jl->jk", gram[:, :-1, :-1], old.discrimination) + score[:, :-1]
    discrimination = _loadings(gram[:, :-1, :-1], moment, problem.loads)
    moved = jnp.einsum("jk,jk->j", gram[:, -1, :-1], discrimination - old.discrimination)
    easiness = old.easiness + (score[:, -1] - moved) / gram[:, -1, -1]
    return Parameters(old.ability, discrimination, easiness)


def joint_item_step(
    old: Parameters, sums: Sums, problem: Problem, *, longest: float | None = None
) -> Parameters:
    """Minimise over discriminations and easinesses together.

    Parameters
    ----------
    old
        Where the parabola touches.
    sums
        Its score and curvature.
    problem
        Penalty and zero pattern.
    longest
        By how much an item's step may move the logits of the LLMs, in the root mean square; longer steps are cut. None
        for no limit.

    Returns
    -------
    parameters.Parameters
        With new items.
    """
    score, gram = _item_parabola(old, sums, problem)
    easiness_gram = gram[:, -1, -1]
    share = gram[:, -1, :-1] / easiness_gram[:, None]
    reduced = gram[:, :-1, :-1] - share[:, :, None] * gram[:, -1, None, :-1]
    moment = jnp.einsum("jkl,jl->jk", reduced, old.discrimination) + score[:, :-1] - share * score[:, -1:]
    slope_step = _loadings(reduced, moment, problem.loads) - old.discrimination
    easiness_step = score[:, -1] / easiness_gram - jnp.einsum("jk,jk->j", share, slope_step)
    features = jnp.concatenate([old.ability, jnp.ones((old.num_llms, 1))], axis=1)
    cut = _cut(jnp.concatenate([slope_step, easiness_step[:, None]], axis=1), features, longest)
    return Parameters(old.ability, old.discrimination + cut[:, :-1], old.easiness + cut[:, -1])


def ability_step(
    old: Parameters, sums: Sums, problem: Problem, *, longest: float | None = None
) -> Parameters:
    """Minimise over abilities.

    Parameters
    ----------
    old
        Where the parabola touches.
    sums
        Its score and curvature.
    problem
        The penalty.
    longest
        By how much an LLM's step may move its logits, in the root mean square over items; longer steps are cut. None
        for no limit.

    Returns
    -------
    parameters.Parameters
        With new abilities.
    """
    assert sums.llm_curvature is not None
    size = jnp.trace(sums.llm_curvature, axis1=1, axis2=2)
    ridge = problem.ability_precision + _floor(size, problem.ability_precision)
    gram = sums.llm_curvature + ridge[:, None, None] * jnp.eye(old.num_traits)
    score = sums.llm_score + penalty_score(problem, old).ability
    step = score / gram[:, 0] if old.num_traits == 1 else jnp.linalg.solve(gram, score[..., None])[..., 0]
    return Parameters(old.ability + _cut(step, old.discrimination, longest), old.discrimination, old.easiness)


def rebalance(at: Parameters, problem: Problem) -> Parameters:
    """Move to the gauge in which the penalty is least; no logit changes.

    Location and scale of the abilities are told by the penalty alone, so that steps by blocks would find them slowly
    where data are many.

    Parameters
    ----------
    at
        The parameters.
    problem
        The penalty; without one nothing moves.

    Returns
    -------
    parameters.Parameters
        The same logits, trait by trait in the best gauge.
    """
    ability, discrimination, easiness = jax.tree.map(
        jnp.asarray, (at.ability, at.discrimination, at.easiness)
    )
    for trait in range(at.num_traits):
        theta, slope = ability[:, trait], discrimination[:, trait]
        location, scale = _best_gauge(theta, slope, easiness, problem)
        ability = ability.at[:, trait].set((theta - location) / scale)
        discrimination = discrimination.at[:, trait].set(slope * scale)
        easiness = easiness + slope * location
    return Parameters(ability, discrimination, easiness)


def _best_gauge(
    theta: Float[Array, " llm"],
    slope: Float[Array, " item"],
    easiness: Float[Array, " item"],
    problem: Problem,
) -> tuple[Float[Array, ""], Float[Array, ""]]:
    """Return location and scale that minimise the penalty, one in turn after the other."""
    slopes = jnp.sum(slope**2)
    apart = jnp.sum(slope * (easiness - problem.easiness_location))

    def turn(_: Array, scale: Float[Array, ""]) -> Float[Array, ""]:
        spread = jnp.sum((theta - location_at(scale)) ** 2)
        wanted = problem.ability_precision * spread / (problem.discrimination_precision * slopes)
        return jnp.where((wanted > 0) & jnp.isfinite(wanted), wanted**0.25, 1.0)

    def location_at(scale: Float[Array, ""]) -> Float[Array, ""]:
        pull = problem.ability_precision / scale**2
        weight = pull * theta.shape[0] + problem.easiness_precision * slopes
        best = (pull * jnp.sum(theta) - problem.easiness_precision * apart) / weight
        return jnp.where(weight > 0, best, 0.0)

    scale = lax.fori_loop(0, _GAUGE_TURNS, turn, jnp.ones(()))
    return location_at(scale), scale


def kkt_residual(at: Parameters, sums: Sums, problem: Problem) -> Float[Array, ""]:
    """Return the largest first-order residual per attempt.

    Parameters
    ----------
    at
        The parameters.
    sums
        The pass at them.
    problem
        The problem.

    Returns
    -------
    jax.Array
        Largest absolute derivative; where a discrimination is 0, only its pull to the inside counts.
    """
    prior = penalty_score(problem, at)
    slope = jnp.where(problem.loads, sums.item_score[:, :-1] + prior.discrimination, 0.0)
    inside = jnp.where(at.discrimination > 0, jnp.abs(slope), jnp.maximum(slope, 0.0))
    largest = jnp.stack(
        [
            (inside / problem.item_attempts[:, None]).max(),
            (jnp.abs(sums.item_score[:, -1] + prior.easiness) / problem.item_attempts).max(),
            (jnp.abs(sums.llm_score + prior.ability) / problem.llm_attempts[:, None]).max(),
        ]
    )
    return largest.max()


def _item_parabola(
    old: Parameters, sums: Sums, problem: Problem
) -> tuple[Float[Array, "item trait_and_1"], Float[Array, "item trait_and_1 trait_and_1"]]:
    """Return score and curvature of each item's (a, d), the penalty included; no curvature is 0."""
    assert sums.item_curvature is not None
    prior = penalty_score(problem, old)
    score = sums.item_score + jnp.concatenate([prior.discrimination, prior.easiness[:, None]], axis=1)
    traits = old.num_traits
    precision = [problem.discrimination_precision] * traits + [problem.easiness_precision]
    size = jnp.trace(sums.item_curvature, axis1=1, axis2=2)
    floor = jnp.stack([_floor(size, each) for each in precision], axis=1)
    return score, sums.item_curvature + (jnp.array(precision) + floor)[:, :, None] * jnp.eye(traits + 1)


def _floor(size: Float[Array, " unit"], precision: float) -> Float[Array, " unit"]:
    """Return what keeps a curvature invertible; where neither data nor penalty have any, nothing moves."""
    return jnp.where(size + precision > 1e-100, 1e-12 * size, 1.0)


def _loadings(
    gram: Float[Array, "item trait trait"],
    moment: Float[Array, "item trait"],
    loads: Bool[Array | np.ndarray, "item trait"],
) -> Float[Array, "item trait"]:
    """Solve the non-negative least squares of the traits that an item may load on."""
    both = loads[:, :, None] & loads[:, None, :]
    within = jnp.where(both, gram, jnp.eye(gram.shape[-1]))
    return nonnegative_least_squares(within, jnp.where(loads, moment, -1.0))


def _cut(
    step: Float[Array, "unit coordinate"],
    features: Float[Array | np.ndarray, "cell coordinate"],
    longest: float | None,
) -> Float[Array, "unit coordinate"]:
    if longest is None:
        return step
    metric = features.T @ features / features.shape[0]
    length = jnp.sqrt(jnp.einsum("uk,kl,ul->u", step, metric, step))[:, None]
    return jnp.asarray(step * jnp.minimum(1.0, longest / jnp.maximum(length, longest)))
