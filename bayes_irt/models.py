"""The NumPyro model: a 2PL with standardised abilities, non-negative discriminations and learned item scales.

Abilities are ``standardise(z)`` with ``z ~ Normal(0, 1)``, so that no direction of the posterior is free; the item
priors' locations and scales are learned. The likelihood is the kernel of `likelihood`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import jax.numpy as jnp
import numpyro
import numpyro.distributions as dist
from jaxtyping import Array, Float

from bayes_irt.likelihood import Cells, log_likelihood
from bayes_irt.parameters import Parameters
from bayes_irt.priors import HalfNormal, LearnedLocation, LearnedScale, Priors


@dataclass(frozen=True, slots=True)
class ModelSpec:
    """State the statistical model: a 2PL for binomial cells under the given priors.

    Parameters
    ----------
    priors
        Priors of the items.

    Examples
    --------
    >>> ModelSpec().hyperparameters
    ('discrimination_scale', 'easiness_location', 'easiness_scale')
    """

    priors: Priors = field(default_factory=Priors)

    @property
    def hyperparameters(self) -> tuple[str, ...]:
        """Names of the learned locations and scales of the item priors."""
        return tuple(hyperpriors(self))


def hyperpriors(spec: ModelSpec) -> dict[str, LearnedLocation | LearnedScale]:
    """Return the prior of every learned location and scale.

    Parameters
    ----------
    spec
        The model.

    Returns
    -------
    dict
        Site name to hyperprior, in the order in which the sites are sampled.

    Examples
    --------
    >>> hyperpriors(ModelSpec())["easiness_location"]
    LearnedLocation(mean=0.0, sd=5.0)
    """
    discrimination, easiness = spec.priors.discrimination, spec.priors.easiness
    learned: dict[str, LearnedLocation | LearnedScale] = {}
    if not isinstance(discrimination, HalfNormal):
        learned["discrimination_location"] = discrimination.location
    learned["discrimination_scale"] = discrimination.scale
    learned["easiness_location"] = easiness.location
    learned["easiness_scale"] = easiness.scale
    return learned


def item_priors(
    spec: ModelSpec, hyper: dict[str, Float[Array, ""]]
) -> tuple[dist.Distribution, dist.Distribution]:
    """Return the priors of one item's discrimination and easiness, given the learned locations and scales.

    Parameters
    ----------
    spec
        The model.
    hyper
        Value of each hyperparameter.

    Returns
    -------
    tuple of numpyro.distributions.Distribution
        Of discrimination and easiness.
    """
    scale = hyper["discrimination_scale"]
    if isinstance(spec.priors.discrimination, HalfNormal):
        discrimination = dist.HalfNormal(scale)
    else:
        discrimination = dist.LogNormal(hyper["discrimination_location"], scale)
    return discrimination, dist.Normal(hyper["easiness_location"], hyper["easiness_scale"])


def hyperprior_distribution(learned: LearnedLocation | LearnedScale) -> dist.Distribution:
    """Return a hyperprior as a NumPyro distribution.

    Parameters
    ----------
    learned
        The hyperprior as data.

    Returns
    -------
    numpyro.distributions.Distribution
        Normal for a location, log-normal for a scale.
    """
    if isinstance(learned, LearnedLocation):
        return dist.Normal(learned.mean, learned.sd)
    return dist.LogNormal(math.log(learned.median), learned.log_sd)


def standardise(raw: Float[Array, "*batch llm"]) -> Float[Array, "*batch llm"]:
    """Return values with mean 0 and population sd 1.

    Parameters
    ----------
    raw
        At least two values that are not all equal.

    Returns
    -------
    jax.Array
        The same values, moved and scaled.

    Examples
    --------
    >>> standardise(jnp.array([1.0, 3.0]))
    Array([-1.,  1.], dtype=float32)
    """
    centred = raw - raw.mean(axis=-1, keepdims=True)
    return centred / jnp.sqrt(jnp.mean(centred**2, axis=-1, keepdims=True))


def response_model(spec: ModelSpec, num_llms: int, num_items: int, cells: Cells | None = None) -> None:
    """Declare the model's sites to NumPyro.

    Parameters
    ----------
    spec
        The model.
    num_llms, num_items
        Size of the suite.
    cells
        The data; None leaves the prior.
    """
    hyper = {
        name: numpyro.sample(name, hyperprior_distribution(prior))
        for name, prior in hyperpriors(spec).items()
    }
    discrimination_prior, easiness_prior = item_priors(spec, hyper)
    discrimination = numpyro.sample("discrimination", discrimination_prior.expand([num_items]).to_event(1))
    easiness = numpyro.sample("easiness", easiness_prior.expand([num_items]).to_event(1))
    raw = numpyro.sample("ability_raw", dist.Normal(0.0, 1.0).expand([num_llms]).to_event(1))
    ability = numpyro.deterministic("ability", standardise(raw))
    if cells is not None:
        parameters = Parameters(ability[:, None], discrimination[:, None], easiness)
        numpyro.factor("log_likelihood", log_likelihood(parameters, cells))
