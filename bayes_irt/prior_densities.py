"""Densities of the priors, and draws from them.

The NumPyro model of `models` states the same priors as NumPyro's distributions; engines that do without NumPyro read
them here. Tests hold the two, and SciPy's, against each other.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np
import xarray as xr
from jax.scipy import special, stats
from jaxtyping import Array, Float

from bayes_irt.llm_groups import LLMGroups, ability_precision, groups_from_labels
from bayes_irt.model_spec import DISPERSION, SHARE, TESTLET_SCALE, ModelSpec, hyperpriors
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

_LOG_2 = math.log(2.0)


def log_discrimination_prior(
    spec: ModelSpec, discrimination: Float[Array, "*dims"], hyper: dict[str, Float[Array, "*dims"]]
) -> Float[Array, "*dims"]:
    """Return the log density of discriminations.

    Parameters
    ----------
    spec
        The model.
    discrimination
        Positive values.
    hyper
        Value of each hyperparameter, of a shape that broadcasts.

    Returns
    -------
    jax.Array
        Log densities, normalised; 0 for a common discrimination, which its location is.

    Examples
    --------
    >>> round(float(log_discrimination_prior(ModelSpec(), 0.0, {"discrimination_scale": 1.0})), 4)
    -0.2258
    """
    prior = spec.priors.discrimination
    if isinstance(prior, Common):
        return jnp.zeros_like(discrimination)
    scale = hyper["discrimination_scale"]
    if isinstance(prior, HalfNormal):
        return jnp.asarray(_LOG_2 + stats.norm.logpdf(discrimination, 0.0, scale))
    if isinstance(prior, Gamma | Exponential):
        shape = prior.shape if isinstance(prior, Gamma) else 1.0
        return jnp.asarray(stats.gamma.logpdf(discrimination, shape, scale=scale))
    location = hyper["discrimination_location"]
    if isinstance(prior, LogNormal):
        logarithm = jnp.log(discrimination)
        return jnp.asarray(stats.norm.logpdf(logarithm, location, scale) - logarithm)
    return jnp.asarray(
        stats.norm.logpdf(discrimination, location, scale) - special.log_ndtr(location / scale)
    )


def log_easiness_prior(
    easiness: Float[Array, "*dims"], hyper: dict[str, Float[Array, "*dims"]]
) -> Float[Array, "*dims"]:
    """Return the log density of easinesses.

    Parameters
    ----------
    easiness
        Any values.
    hyper
        Value of each hyperparameter, of a shape that broadcasts.

    Returns
    -------
    jax.Array
        Log densities, normalised.

    Examples
    --------
    >>> round(float(log_easiness_prior(0.0, {"easiness_location": 0.0, "easiness_scale": 1.0})), 4)
    -0.9189
    """
    return jnp.asarray(stats.norm.logpdf(easiness, hyper["easiness_location"], hyper["easiness_scale"]))


def log_hyperprior(spec: ModelSpec, hyper: dict[str, Float[Array, "*dims"]]) -> Float[Array, "*dims"]:
    """Return the log density of all hyperparameters together.

    Parameters
    ----------
    spec
        The model.
    hyper
        Value of each hyperparameter, scales as they are (not their logarithms).

    Returns
    -------
    jax.Array
        Log density, normalised.

    Examples
    --------
    >>> hyper = {"discrimination_scale": 1.5, "easiness_location": 0.0, "easiness_scale": 2.0}
    >>> round(float(log_hyperprior(ModelSpec(), hyper)), 4)
    -5.4649
    """
    total = jnp.zeros(())
    for name, prior in hyperpriors(spec).items():
        total = total + _log_learned_prior(prior, jnp.asarray(hyper[name]))
    return jnp.asarray(total)


def _log_learned_prior(
    prior: LearnedLocation | LearnedScale, value: Float[Array, "*dims"]
) -> Float[Array, "*dims"]:
    if isinstance(prior, LearnedLocation):
        return stats.norm.logpdf(value, prior.mean, prior.sd)
    logarithm = jnp.log(value)
    return stats.norm.logpdf(logarithm, math.log(prior.median), prior.log_sd) - logarithm


def log_share_prior(spec: ModelSpec, share: Float[Array, "*dims"]) -> Float[Array, "*dims"]:
    """Return the log density of the abilities' share between groups.

    Parameters
    ----------
    spec
        The model.
    share
        Values between 0 and 1.

    Returns
    -------
    jax.Array
        Log densities, normalised.

    Examples
    --------
    >>> float(log_share_prior(ModelSpec(llm_groups="family"), 0.3))
    0.0
    """
    prior = spec.ability_share
    return jnp.asarray(stats.beta.logpdf(share, prior.alpha, prior.beta))


def log_ability_prior(
    ability: Float[Array, "*dims llm"], share: Float[Array, "*dims"], groups: LLMGroups
) -> Float[Array, "*dims"]:
    """Return the log density of the standardised abilities of related LLMs.

    Normal values whose location and scale are taken away have the angular central Gaussian density: with P the
    precision of the values, and Q the least of ``(z + m)' P (z + m)`` over m,
    ``(log|P| - log(1'P1 / N) - (N - 1) log(Q / N)) / 2``.

    Parameters
    ----------
    ability
        Values with mean 0 and sd 1 over the LLMs.
    share
        Share of the variance that lies between groups.
    groups
        Who is related.

    Returns
    -------
    jax.Array
        Log density of all abilities together, relative to that of unrelated LLMs.

    References
    ----------
    Tyler, D. E. (1987). Statistical analysis for the angular central Gaussian distribution on the sphere. Biometrika
    74, 579-589.

    Examples
    --------
    >>> groups = groups_from_labels(["a", "a", "b", "b"])
    >>> together, apart = jnp.array([1.0, 1.0, -1.0, -1.0]), jnp.array([1.0, -1.0, 1.0, -1.0])
    >>> [round(float(log_ability_prior(values, 0.5, groups)), 3) for values in (together, apart)]
    [1.099, -0.549]
    """
    number, precision = ability.shape[-1], ability_precision(share, groups)
    row = precision.times(jnp.ones_like(ability))
    total = row.sum(axis=-1)
    square = (
        jnp.sum(ability * precision.times(ability), axis=-1) - jnp.sum(row * ability, axis=-1) ** 2 / total
    )
    log_determinant = precision.log_determinant() - jnp.log(total / number)
    return 0.5 * (log_determinant - (number - 1.0) * jnp.log(square / number))


def draw_hyperparameters(spec: ModelSpec, rng: np.random.Generator, size: int) -> dict[str, np.ndarray]:
    """Draw locations and scales from their hyperpriors, and the abilities' share where the model has groups.

    Parameters
    ----------
    spec
        The model.
    rng
        Where randomness comes from.
    size
        Number of draws.

    Returns
    -------
    dict
        Name to draws.

    Examples
    --------
    >>> sorted(draw_hyperparameters(ModelSpec(), np.random.default_rng(0), 3))
    ['discrimination_scale', 'easiness_location', 'easiness_scale']
    """
    drawn = {name: _draw_learned(prior, rng, size) for name, prior in hyperpriors(spec).items()}
    if spec.llm_groups is not None:
        drawn[SHARE] = rng.beta(spec.ability_share.alpha, spec.ability_share.beta, size)
    return drawn


def _draw_learned(
    prior: LearnedLocation | LearnedScale, rng: np.random.Generator, size: int
) -> Float[np.ndarray, " draw"]:
    if isinstance(prior, LearnedLocation):
        return rng.normal(prior.mean, prior.sd, size)
    return np.asarray(prior.median * np.exp(rng.normal(0.0, prior.log_sd, size)))


def draw_items(
    spec: ModelSpec, hyper: dict[str, Float[np.ndarray, " draw"]], rng: np.random.Generator, num_items: int
) -> tuple[Float[np.ndarray, "draw item"], Float[np.ndarray, "draw item"]]:
    """Draw discriminations and easinesses from their priors, given locations and scales.

    Parameters
    ----------
    spec
        The model.
    hyper
        Draws of every hyperparameter.
    rng
        Where randomness comes from.
    num_items
        Number of items.

    Returns
    -------
    tuple of numpy.ndarray
        Discriminations and easinesses.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> a, d = draw_items(ModelSpec(), draw_hyperparameters(ModelSpec(), rng, 4), rng, 7)
    >>> a.shape, bool((a >= 0).all()), d.shape
    ((4, 7), True, (4, 7))
    """
    from scipy.stats import truncnorm

    prior = spec.priors.discrimination
    easiness_scale = hyper["easiness_scale"][:, None]
    size = (len(easiness_scale), num_items)
    scale = hyper.get("discrimination_scale", np.zeros(size[0]))[:, None]
    if isinstance(prior, HalfNormal):
        slopes = np.abs(scale * rng.normal(size=size))
    elif isinstance(prior, Gamma | Exponential):
        slopes = scale * rng.gamma(prior.shape if isinstance(prior, Gamma) else 1.0, size=size)
    elif isinstance(prior, LogNormal | Common):  # of which the latter has no spread
        slopes = np.exp(hyper["discrimination_location"][:, None] + scale * rng.normal(size=size))
    else:
        location = hyper["discrimination_location"][:, None]
        slopes = truncnorm.rvs(
            -location / scale, np.inf, loc=location, scale=scale, size=size, random_state=rng
        )
    easiness = hyper["easiness_location"][:, None] + easiness_scale * rng.normal(size=size)
    return np.asarray(slopes), easiness


def labelled_log_prior(
    spec: ModelSpec, draws: xr.Dataset, llm_groups: Sequence[str] | None = None
) -> xr.Dataset:
    """Return the log prior densities of a posterior's draws.

    Parameters
    ----------
    spec
        The model.
    draws
        All sites by ``chain, draw, llm, item``.
    llm_groups
        Label of each LLM's group, where LLMs are related.

    Returns
    -------
    xarray.Dataset
        Of ``discrimination`` and ``easiness`` by item, of the ``hyperparameters`` together (dispersions and the
        testlets' scale included) and, where the model has them, of learned ``floor`` by item, of ``testlet`` effects by
        LLM and group, given their scale, and of all abilities together, given the share.
    """
    with jax.enable_x64(True):
        sites = {name: jnp.asarray(draws[name].to_numpy()) for name in draws}
        hyper = {name: sites[name] for name in spec.hyperparameters}
        by_item = {name: value[..., None] for name, value in hyper.items()}
        densities = {
            "discrimination": log_discrimination_prior(spec, sites["discrimination"], by_item),
            "easiness": log_easiness_prior(sites["easiness"], by_item),
            "hyperparameters": log_hyperprior(spec, hyper),
        }
        densities["hyperparameters"] += _log_shared_prior(spec, hyper)
        if "testlet" in sites:
            densities["testlet"] = stats.norm.logpdf(
                sites["testlet"], 0.0, hyper[TESTLET_SCALE][..., None, None]
            )
        if isinstance(spec.floor, LearnedShare):
            densities["floor"] = stats.beta.logpdf(sites["floor"], spec.floor.alpha, spec.floor.beta)
        if llm_groups is not None:
            groups = groups_from_labels(llm_groups)
            densities["hyperparameters"] += log_share_prior(spec, hyper[SHARE])
            densities["ability"] = log_ability_prior(sites["ability"], hyper[SHARE], groups)
    variables = {
        name: (draws[name].dims if np.ndim(value) > 2 else ("chain", "draw"), np.asarray(value))
        for name, value in densities.items()
    }
    return xr.Dataset(variables, coords={dim: draws[dim] for dims, _ in variables.values() for dim in dims})


def _log_shared_prior(spec: ModelSpec, hyper: dict[str, Float[Array, "*dims"]]) -> Float[Array, "chain draw"]:
    """Return the log density of dispersions and of the testlets' scale together; 0 where the model has neither."""
    total = jnp.zeros(())
    if spec.dispersed:
        densities = stats.beta.logpdf(hyper[DISPERSION], spec.dispersion.alpha, spec.dispersion.beta)
        total = total + densities.reshape(*densities.shape[:2], -1).sum(axis=-1)
    if spec.item_groups is not None:
        total = total + _log_learned_prior(spec.testlet_scale, hyper[TESTLET_SCALE])
    return total
