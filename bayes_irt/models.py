"""The NumPyro model: a 2PL with standardised abilities, non-negative discriminations and learned item scales.

Abilities are ``standardise(z)`` with ``z ~ Normal(0, 1)``, so that no direction of the posterior is free; the item
priors' locations and scales are learned. Where LLMs are related, their abilities' density relative to that is a factor:
location and scale of z, which nothing else depends on, keep their law. With several traits the rows of z are
multivariate normal with a learned correlation, and abilities are standardised trait by trait. The likelihood is the
kernel of `likelihood`.
"""

from __future__ import annotations

import math

import jax
import jax.numpy as jnp
import numpyro
import numpyro.distributions as dist
from jaxtyping import Array, Float

from bayes_irt.identify import standardise
from bayes_irt.likelihood import Cells, log_likelihood
from bayes_irt.llm_groups import LLMGroups
from bayes_irt.model_spec import DISPERSION, SHARE, TESTLET_SCALE, ModelSpec, hyperpriors
from bayes_irt.parameters import Parameters
from bayes_irt.prior_densities import log_ability_prior
from bayes_irt.priors import (
    Common,
    Exponential,
    Gamma,
    HalfNormal,
    LearnedLocation,
    LearnedScale,
    LearnedShare,
    LogNormal,
)
from bayes_irt.trait_loads import TraitLoads

#: Sites of floors that are learned, and of the testlets' effects on each LLM, in their scale.
FLOOR, TESTLET = "floor", "testlet"
#: Site of the Cholesky factor of the correlations between traits.
TRAIT_CHOLESKY = "trait_cholesky"


def easiness_prior(hyper: dict[str, Float[Array, ""]]) -> dist.Distribution:
    """Return the prior of one item's easiness, given the learned location and scale.

    Parameters
    ----------
    hyper
        Value of each hyperparameter.

    Returns
    -------
    numpyro.distributions.Distribution
        Normal.
    """
    return dist.Normal(hyper["easiness_location"], hyper["easiness_scale"])


def discrimination_prior(spec: ModelSpec, hyper: dict[str, Float[Array, ""]]) -> dist.Distribution:
    """Return the prior of one item's discrimination, given the learned location and scale.

    Parameters
    ----------
    spec
        The model; its discriminations are not common ones.
    hyper
        Value of each hyperparameter.

    Returns
    -------
    numpyro.distributions.Distribution
        Of the family that the model names.
    """
    prior, scale = spec.priors.discrimination, hyper["discrimination_scale"]
    if isinstance(prior, HalfNormal):
        return dist.HalfNormal(scale)
    if isinstance(prior, Gamma):
        return dist.Gamma(prior.shape, 1.0 / scale)
    if isinstance(prior, Exponential):
        return dist.Exponential(1.0 / scale)
    if isinstance(prior, LogNormal):
        return dist.LogNormal(hyper["discrimination_location"], scale)
    return dist.TruncatedNormal(hyper["discrimination_location"], scale, low=0.0)


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


def response_model(
    spec: ModelSpec,
    num_llms: int,
    num_items: int,
    cells: Cells | None = None,
    groups: LLMGroups | None = None,
    loads: TraitLoads | None = None,
) -> None:
    """Declare the model's sites to NumPyro.

    Parameters
    ----------
    spec
        The model.
    num_llms, num_items
        Size of the suite.
    cells
        The data; None leaves the prior.
    groups
        Who is related, where the model has groups.
    loads
        Which items load on which trait, where the model has several.
    """
    hyper = {
        name: numpyro.sample(name, hyperprior_distribution(prior))
        for name, prior in hyperpriors(spec).items()
    }
    if isinstance(spec.priors.discrimination, Common):
        discrimination = jnp.exp(hyper["discrimination_location"]) * jnp.ones(num_items)
    else:
        number = num_items if loads is None else jnp.shape(loads.item)[0]
        law = discrimination_prior(spec, hyper).expand([number]).to_event(1)
        discrimination = numpyro.sample("discrimination", law)
    easiness = numpyro.sample("easiness", easiness_prior(hyper).expand([num_items]).to_event(1))
    if loads is not None:
        ability = _several_abilities(spec, num_llms, loads.num_traits)
        if cells is not None:
            parameters = Parameters(ability, loads.dense(discrimination, num_items), easiness)
            numpyro.factor("log_likelihood", log_likelihood(parameters, _with_law(spec, cells)))
        return
    raw = numpyro.sample("ability_raw", dist.Normal(0.0, 1.0).expand([num_llms]).to_event(1))
    ability = numpyro.deterministic("ability", standardise(raw))
    if groups is not None:
        prior = spec.ability_share
        share = numpyro.sample(SHARE, dist.Beta(prior.alpha, prior.beta))
        numpyro.factor("ability_groups", log_ability_prior(ability, share, groups))
    if cells is None:
        return
    slopes, traits = discrimination[:, None], ability[:, None]
    if cells.groups[1] is not None:
        # a testlet's effect is one more trait of the LLM, on which the group's items load alike
        scale = numpyro.sample(TESTLET_SCALE, hyperprior_distribution(spec.testlet_scale))
        size = (num_llms, cells.num_groups[1])
        effects = numpyro.sample(TESTLET, dist.Normal(0.0, 1.0).expand(size).to_event(2))
        member = jax.nn.one_hot(jnp.asarray(cells.groups[1]), size[1], dtype=slopes.dtype)
        slopes, traits = (
            jnp.concatenate([slopes, scale * member], axis=1),
            jnp.concatenate([traits, effects], axis=1),
        )
    shaped = _with_law(spec, cells)
    numpyro.factor("log_likelihood", log_likelihood(Parameters(traits, slopes, easiness), shaped))


def _several_abilities(spec: ModelSpec, num_llms: int, num_traits: int) -> Float[Array, "llm trait"]:
    """Sample abilities on several traits, correlated but for those of a bifactor model."""
    if spec.general:
        law: dist.Distribution = dist.Normal(0.0, 1.0).expand([num_traits]).to_event(1)
    else:
        factor = numpyro.sample(TRAIT_CHOLESKY, dist.LKJCholesky(num_traits, spec.trait_concentration))
        law = dist.MultivariateNormal(jnp.zeros(num_traits), scale_tril=factor)
    raw = numpyro.sample("ability_raw", law.expand([num_llms]).to_event(1))
    ability: Float[Array, "llm trait"] = numpyro.deterministic("ability", standardise(raw.T).T)
    return ability


def _with_law(spec: ModelSpec, cells: Cells) -> Cells:
    """Return the data under sampled floors and dispersions, where the model learns them."""
    shape = list(cells.shape)
    if isinstance(spec.floor, LearnedShare):
        prior = dist.Beta(spec.floor.alpha, spec.floor.beta)
        shape[0] = numpyro.sample(FLOOR, prior.expand(jnp.shape(cells.shape[0])).to_event(1))
    if cells.groups[0] is not None:
        prior = dist.Beta(spec.dispersion.alpha, spec.dispersion.beta)
        by_group = numpyro.sample(DISPERSION, prior.expand([cells.num_groups[0]]).to_event(1))
        shape[1] = by_group[jnp.asarray(cells.groups[0])]
    return cells.with_shape(*shape)
