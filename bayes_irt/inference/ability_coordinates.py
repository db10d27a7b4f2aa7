"""Abilities as samplers move them: raw values, of which location and spread are free, and what items follow of these.

Data and item priors see standardised abilities alone. Raw ones have two directions more, and any law may be given to
these. Two choices serve:

- *tied*: raw abilities are standard normal, as the NumPyro model has it. What a step has along location and radius is
  taken out, and handed to the items to first order.
- *apart*: where one LLM is so far out that it makes up much of the spread, it can hardly move on the sphere, and its
  distance is what data leave open. Then raw abilities keep the others where they are: the law is that of two weighted
  means in which the LLM far out has next to no part, and items follow location and spread exactly.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

_FEW_LLMS = 25
#: Below this number of LLMs none is called far out: of few, one always makes up much of the spread.
FEWEST_FOR_FAR = _FEW_LLMS
# |z| of N standard normals has sd 1/sqrt(2) around sqrt(N), and their mean times sqrt(N) has sd 1.
_RADIUS_SD = 1 / math.sqrt(2)
#: An LLM that makes up more than this of the abilities' variance is far out.
FAR_SHARE = 0.4
# The spread of the others must be known to this share: the law of `apart` lies on one side of 0.
_KNOWN_SPREAD = 0.1


class RawAbilities(NamedTuple):
    """Raw abilities, and what the items are handed.

    Attributes
    ----------
    ability
        Raw values; the model standardises them.
    linear
        Change of log spread and of location that the items follow to first order.
    exact
        Change of log spread and of location that they follow exactly.
    log_density
        What is added to the log density of the NumPyro model.
    """

    ability: Float[Array, " llm"]
    linear: Float[Array, " pair"]
    exact: Float[Array, " pair"]
    log_density: Float[Array, ""]


def tied(
    step: Float[Array, " llm"], free: Float[Array, " pair"], centre: Float[Array, " llm"]
) -> RawAbilities:
    """Return raw abilities whose location and radius have their prior's law.

    Parameters
    ----------
    step
        Step of the abilities from the centre.
    free
        Two standard normals, for location and radius.
    centre
        Standardised abilities at the start.

    Returns
    -------
    RawAbilities
        The log density counts no volume of the map from free values and step, which is the caller's.
    """
    root = math.sqrt(centre.shape[0])
    shift = jnp.stack([centre @ step, step.sum()]) / root**2
    stretch = math.sqrt(1.0 + extra_radius(centre.shape[0]) / root**2)
    plain = (1.0 - shift[0]) * centre + step - shift[1]
    ability = stretch * plain + _RADIUS_SD * free[1] / root * centre + free[0] / root
    return RawAbilities(ability, shift, jnp.zeros(2), jnp.zeros(()))


def apart(
    white: Float[Array, " llm"], centre: Float[Array, " llm"], sd: Float[Array, " llm"]
) -> RawAbilities:
    """Return raw abilities of which each moves by itself.

    With z the raw abilities, m and s their location and spread, h = (z - m) / s, and two linear functionals of which
    k has k1 = 0: a law q of both gives location and spread, given h, the density q |k h|. Since dz is s^(N-2) ds dm dh,
    the density of z is that of h times ``q |k z| s^-(N-1)``.

    Parameters
    ----------
    white
        Standard normals, one per LLM.
    centre
        Standardised abilities at the start.
    sd
        Their standard deviations, given the items.

    Returns
    -------
    RawAbilities
        The log density takes the place of the standard normal prior, which it cancels.
    """
    raw = centre + sd * white
    location = raw.mean()
    spread = jnp.sqrt(jnp.mean((raw - location) ** 2))
    level, slope = _functionals(centre, sd)
    known = jnp.linalg.qr(jnp.stack([sd * level, sd * slope], axis=1))[0]
    law = jnp.log(jnp.abs(slope @ raw)) - (centre.shape[0] - 1.0) * jnp.log(spread)
    law = law + 0.5 * (jnp.sum(raw**2) - jnp.sum((known.T @ white) ** 2))
    return RawAbilities(raw, jnp.zeros(2), jnp.stack([jnp.log(spread), location]), law)


def is_far_out(centre: Float[np.ndarray, " llm"], sd: Float[np.ndarray, " llm"]) -> bool:
    """Say whether one LLM makes up so much of the spread that `apart` is called for.

    Parameters
    ----------
    centre
        Standardised abilities at the start.
    sd
        Their standard deviations, given the items.

    Returns
    -------
    bool
        False for fewer than 25 LLMs, and where the others' spread is not well known.
    """
    num_llms = centre.shape[0]
    if num_llms < FEWEST_FOR_FAR or (centre**2).max() / num_llms <= FAR_SHARE:
        return False
    return bool(np.linalg.norm(sd * _functionals(centre, sd)[1]) < _KNOWN_SPREAD)


def _functionals[Values: (Array, np.ndarray)](centre: Values, sd: Values) -> tuple[Values, Values]:
    """Return a weighted mean and a contrast that is 1 at the centre; weights are squares of information."""
    level = sd**-4.0 / (sd**-4.0).sum()
    slope = level * (centre - level @ centre)
    return level, slope / (slope @ centre)


def extra_radius(num_llms: int) -> int:
    """Return by which power of the raw abilities' radius their density is raised when they are sampled.

    The data and the item priors see standardised abilities only, so any law of the radius leaves the posterior as it
    is. With few LLMs the normal law comes close to radius 0, where `models.standardise` bends without bound; the raised
    one keeps away.

    Parameters
    ----------
    num_llms
        Number of LLMs.

    Returns
    -------
    int
        0 from 25 LLMs on.

    Examples
    --------
    >>> extra_radius(3), extra_radius(140)
    (22, 0)
    """
    return max(_FEW_LLMS - num_llms, 0)
