"""Abilities of related LLMs in the coordinates of `start`: what data and groups together say about them.

Given the share of variance between groups, abilities are normal values with one precise datum each, as far as the mode
tells. That law places and scales them: an LLM with few answers follows its group, and the spread of a group whose LLMs
hardly differ narrows as the share grows, so that samplers see neither.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from bayes_irt.llm_groups import GroupPrecision, LLMGroups, ability_precision
from bayes_irt.model_spec import ModelSpec
from bayes_irt.prior_densities import log_share_prior

# Log odds of the share among which the start is found.
_FURTHEST, _NODES = 8.0, 129


class RelatedStep(NamedTuple):
    """One step of the abilities from the centre.

    Attributes
    ----------
    step
        The step.
    free
        Independent standard normals, for location and radius of the abilities.
    log_determinant
        Of the map from the white values to the step without location and scale, and to these two.
    """

    step: Float[Array, " llm"]
    free: Float[Array, " pair"]
    log_determinant: Float[Array, ""]


def related_step(
    white: Float[Array, " llm"],
    log_odds: Float[Array, ""],
    centre: Float[Array, " llm"],
    sd: Float[Array, " llm"],
    groups: LLMGroups,
) -> RelatedStep:
    """Map independent standard normals to a step of the abilities, given the share between groups.

    With A the precision of the abilities, F a factor of its inverse and V unit vectors along location and scale, the
    step less its part along V is independent of V'A F w, which is brought to variance 1.

    Parameters
    ----------
    white
        The standard normals w.
    log_odds
        Log odds of the share.
    centre
        Standardised abilities at the mode of unrelated LLMs.
    sd
        Their standard deviations there.
    groups
        Who is related.

    Returns
    -------
    RelatedStep
        The step, what is left for location and radius, and the map's volume.
    """
    precision, pull = _given(jax.nn.sigmoid(log_odds), centre, sd, groups)
    moved = precision.spread(white)
    step = precision.solve(pull) - centre + moved
    along = jnp.stack([jnp.ones_like(centre), centre]) / math.sqrt(centre.shape[0])
    held = precision.times(along)
    lower = jnp.linalg.cholesky(held @ along.T)
    free = jax.scipy.linalg.solve_triangular(lower, held @ moved, lower=True)
    volume = jnp.sum(jnp.log(jnp.diag(lower))) - 0.5 * precision.log_determinant()
    return RelatedStep(step, free, volume)


def _given(
    share: Float[Array, "*batch"],
    centre: Float[Array, " llm"],
    sd: Float[Array, " llm"],
    groups: LLMGroups,
) -> tuple[GroupPrecision, Float[Array, " llm"]]:
    """Return the precision of the abilities given the share, and what it is multiplied with to give it: its pull."""
    prior = ability_precision(share, groups)
    return GroupPrecision(prior.own + sd**-2.0 - 1.0, prior.shared, groups), centre / sd**2


def first_share(
    spec: ModelSpec, centre: Float[Array, " llm"], sd: Float[Array, " llm"], groups: LLMGroups
) -> tuple[Float[Array, ""], Float[Array, ""]]:
    """Return mean and standard deviation of the share's log odds, as far as the mode tells.

    Parameters
    ----------
    spec
        The model.
    centre
        Standardised abilities at the mode of unrelated LLMs.
    sd
        Their standard deviations there.
    groups
        Who is related.

    Returns
    -------
    tuple of jax.Array
        Of the normal law by which the sampler starts.
    """
    log_odds = jnp.linspace(-_FURTHEST, _FURTHEST, _NODES)
    share = jax.nn.sigmoid(log_odds)
    precision, pull = _given(share, centre, sd, groups)
    fit = jnp.sum(pull * precision.solve(jnp.broadcast_to(pull, precision.own.shape)), axis=-1)
    fit = fit + ability_precision(share, groups).log_determinant() - precision.log_determinant()
    slope = jnp.log(share) + jnp.log1p(-share)
    weight = jax.nn.softmax(0.5 * fit + log_share_prior(spec, share) + slope)
    mean = weight @ log_odds
    return mean, jnp.sqrt(weight @ (log_odds - mean) ** 2)
