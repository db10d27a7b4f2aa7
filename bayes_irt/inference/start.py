"""Where samplers start: the neighbourhood of the mode as a Gaussian in unconstrained space.

A discrimination is ``s softplus(u)`` with s near its standard deviation: u is close to normal both for items far from
the boundary, where the map is linear, and for those at it, where the logarithm would bend too much for long steps.
Items (u, d) are placed at their conditional mode given abilities, under item priors whose locations and scales are
learned by EM with the items' posterior variances. `unwhiten` maps independent standard normals to that Gaussian: what
a sampler then sees is nearly round, so it needs little warm-up and short trajectories.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Float

from bayes_irt.likelihood import Cells, cell_sums
from bayes_irt.model_spec import ModelSpec, hyperpriors
from bayes_irt.parameters import Parameters
from bayes_irt.prior_densities import log_discrimination_prior, log_easiness_prior, log_hyperprior
from bayes_irt.priors import HalfNormal, LearnedLocation, LearnedScale

_EM_ROUNDS = 25
_LEAST_PRECISION = 0.05
_FEW_LLMS = 25
#: Learned scales of the priors of discrimination and easiness.
SCALES = ("discrimination_scale", "easiness_scale")
# |z| of N standard normals has sd 1/sqrt(2) around sqrt(N), and their mean times sqrt(N) has sd 1.
_RADIUS_SD = 1 / math.sqrt(2)


@jax.tree_util.register_dataclass
@dataclass(frozen=True, slots=True)
class Start:
    """Hold the Gaussian around the mode.

    Parameters
    ----------
    ability
        Standardised abilities.
    ability_sd
        Their standard deviations, given the items.
    slope_unit
        The s of ``discrimination = s softplus(u)``, per item.
    items
        u and easiness of each item, at their conditional mode.
    item_factor
        Lower Cholesky factor of each item's covariance given everything else.
    item_widening
        Share of the prior in the precision of (u, d): by this power an item's spread follows the prior's scale. A
        half-normal discrimination follows as a whole, by its unit s.
    item_shift
        How an item's mode moves with the hyperparameters.
    hyper
        Learned locations and log scales, in the order of ``spec.hyperparameters``.
    hyper_factor
        Factor of their covariance.
    item_gauge
        How each item moves when the abilities' scale and location do: the derivative of (u, d) by log sd and mean.
    hyper_gauge
        How the hyperparameters follow the items there.
    """

    ability: Float[Array | np.ndarray, " llm"]
    ability_sd: Float[Array | np.ndarray, " llm"]
    slope_unit: Float[Array, " item"]
    items: Float[Array, "item 2"]
    item_factor: Float[Array, "item 2 2"]
    item_widening: Float[Array, "item 2"]
    item_shift: Float[Array, "item 2 hyper"]
    hyper: Float[Array, " hyper"]
    hyper_factor: Float[Array, "hyper hyper"]
    item_gauge: Float[Array, "item 2 2"]
    hyper_gauge: Float[Array, "hyper 2"]


@jax.tree_util.register_dataclass
@dataclass(frozen=True, slots=True)
class White:
    """Hold one point in the space in which the start is standard normal."""

    ability: Float[Array, "*batch llm"]
    items: Float[Array, "*batch item 2"]
    hyper: Float[Array, "*batch hyper"]


def unwhiten(white: White, start: Start, spec: ModelSpec) -> tuple[dict[str, Array], Float[Array, ""]]:
    """Map a point to NumPyro's unconstrained sites.

    Abilities are mapped linearly. An item's place and spread follow the learned prior scales as those of a normal prior
    times a normal likelihood do: fully where data say nothing (the non-centred form), not at all where they say
    everything (the centred one). Raw abilities have two directions the data say nothing about, their mean and their
    radius: those get their prior's spread, all others the spread the data leave. What a step of the abilities has along
    the two is handed to the items, which keeps the logits of all other LLMs where they are: without that, one LLM far
    out could move only if the whole scale did.

    Parameters
    ----------
    white
        One point.
    start
        The Gaussian.
    spec
        The model.

    Returns
    -------
    tuple
        Site name to unconstrained value, and the log determinant of the map, up to a constant.
    """
    centre = jnp.asarray(start.ability)
    root = math.sqrt(centre.shape[0])
    step = start.ability_sd * white.ability
    shift = jnp.stack([centre @ step, step.sum()]) / root**2
    level, radius = white.ability.sum() / root, _RADIUS_SD * (centre @ white.ability) / root
    stretch = math.sqrt(1.0 + extra_radius(centre.shape[0]) / root**2)
    ability = stretch * ((1.0 - shift[0]) * centre + step - shift[1]) + radius / root * centre + level / root
    move = start.hyper_factor @ white.hyper
    place = {name: number for number, name in enumerate(spec.hyperparameters)}
    items = start.items + start.item_shift @ move + start.item_gauge @ shift
    hyper = start.hyper + start.hyper_gauge @ shift + move
    sites = dict(zip(spec.hyperparameters, hyper, strict=True))
    growth = jnp.stack([move[place[name]] for name in SCALES])
    unit, wider = start.slope_unit, 1.0 / jnp.sqrt(1.0 + start.item_widening * jnp.expm1(-2.0 * growth))
    apart = start.items[:, 1] - start.hyper[place["easiness_location"]]
    items = items.at[:, 1].add((wider[:, 1] ** 2 - 1.0) * apart)
    if isinstance(spec.priors.discrimination, HalfNormal):
        at_start = jax.nn.softplus(start.items[:, 0])
        items = items.at[:, 0].add(_inverse_softplus(wider[:, 0] * at_start) - start.items[:, 0])
        unit, wider = unit * wider[:, 0], wider.at[:, 0].set(1.0)
    items = items + wider * jnp.einsum("jkl,jl->jk", start.item_factor, white.items)
    size = jax.nn.softplus(items[:, 0])
    log_determinant = jnp.sum(jax.nn.log_sigmoid(items[:, 0]) - jnp.log(size)) + jnp.sum(jnp.log(wider))
    sites |= {
        "discrimination": jnp.log(unit * size),
        "easiness": items[:, 1],
        "ability_raw": ability,
    }
    return sites, log_determinant


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


def find_start(spec: ModelSpec, estimate: Parameters, cells: Cells) -> Start:
    """Place the Gaussian around a point estimate.

    Parameters
    ----------
    spec
        The model.
    estimate
        A penalised point estimate in the canonical gauge. Discriminations of 0 move inside.
    cells
        The data.

    Returns
    -------
    Start
        The Gaussian.
    """
    hyper = jnp.stack([_unconstrained_median(prior) for prior in hyperpriors(spec).values()])
    sums = cell_sums(estimate, cells, curvature="fisher")
    assert sums.item_curvature is not None
    unit = 1.0 / jnp.maximum(jnp.sqrt(sums.item_curvature[:, 0, 0] + 0.1), -sums.item_score[:, 0])
    ratio = jnp.maximum(estimate.discrimination[:, 0] / unit, 0.5)
    items = jnp.stack([_inverse_softplus(ratio), estimate.easiness], axis=1)
    log_prior = jax.vmap(partial(_log_prior, spec), (0, 0, None))

    def round_of_em(_: Array, state: tuple[Array, Array]) -> tuple[Array, Array]:
        items, hyper = state
        score, precision, _ = _item_terms(spec, items, unit, hyper, estimate, cells)
        step = jnp.linalg.solve(precision, score[..., None])[..., 0]
        items = items + jnp.clip(step, -1.0, 1.0)
        return items, hyper + _hyper_step(spec, items, unit, jnp.linalg.inv(precision), hyper)

    items, hyper = lax.fori_loop(0, _EM_ROUNDS, round_of_em, (items, hyper))
    _, precision, information = _item_terms(spec, items, unit, hyper, estimate, cells)
    covariance = jnp.linalg.inv(precision)
    held = -jax.vmap(jax.hessian(partial(_log_prior, spec)), (0, 0, None))(items, unit, hyper)
    widening = jnp.clip(jnp.einsum("jkk->jk", held) / jnp.einsum("jkk->jk", precision), 0.0, 1.0)
    cross = jax.vmap(jax.jacfwd(jax.grad(partial(_log_prior, spec)), 2), (0, 0, None))(items, unit, hyper)
    shift = covariance @ cross
    free_shift = shift - _followed(spec, items, hyper, widening)
    bend = -jax.hessian(lambda h: log_prior(items, unit, h).sum() + _log_hyperprior(spec, h))(hyper)
    size = jax.nn.softplus(items[:, 0])
    gauge = jax.vmap(jnp.diag)(jnp.stack([size / jax.nn.sigmoid(items[:, 0]), unit * size], axis=1))
    factor = _factor_of_inverse(bend)
    return Start(
        ability=estimate.ability[:, 0],
        ability_sd=1.0 / jnp.sqrt(1.0 + information),
        slope_unit=unit,
        items=items,
        item_factor=jnp.linalg.cholesky(covariance),
        item_widening=widening,
        item_shift=free_shift,
        hyper=hyper,
        hyper_factor=_factor_of_inverse(bend - jnp.einsum("jkh,jkl->hl", cross, shift)),
        item_gauge=gauge,
        hyper_gauge=factor @ (factor.T @ jnp.einsum("jkh,jkg->hg", cross, gauge)),
    )


def _inverse_softplus(value: Float[Array, " item"]) -> Float[Array, " item"]:
    return value + jnp.log(-jnp.expm1(-value))


def _followed(
    spec: ModelSpec,
    items: Float[Array, "item 2"],
    hyper: Float[Array, " hyper"],
    widening: Float[Array, "item 2"],
) -> Float[Array, "item 2 hyper"]:
    """Return how items already follow the log scales in `unwhiten`, to first order."""
    place = {name: number for number, name in enumerate(spec.hyperparameters)}
    slopes, easinesses = (place[name] for name in SCALES)
    moved = jnp.zeros((*items.shape, len(place)))
    apart = items[:, 1] - hyper[place["easiness_location"]]
    moved = moved.at[:, 1, easinesses].set(2.0 * widening[:, 1] * apart)
    if isinstance(spec.priors.discrimination, HalfNormal):
        size = jax.nn.softplus(items[:, 0]) / jax.nn.sigmoid(items[:, 0])
        moved = moved.at[:, 0, slopes].set(2.0 * widening[:, 0] * size)
    return moved


def _log_prior(
    spec: ModelSpec, item: Float[Array, 2], unit: Float[Array, ""], hyper: Float[Array, " hyper"]
) -> Float[Array, ""]:
    """Return the log prior of (u, d), the Jacobian of the softplus included, up to a constant."""
    values = _constrained(spec, hyper)
    density = log_discrimination_prior(spec, unit * jax.nn.softplus(item[0]), values)
    return density + jax.nn.log_sigmoid(item[0]) + log_easiness_prior(item[1], values)


def _log_hyperprior(spec: ModelSpec, hyper: Float[Array, " hyper"]) -> Float[Array, ""]:
    """Return the log hyperprior in unconstrained space, Jacobians included."""
    values = _constrained(spec, hyper)
    scales = [values[name] for name, prior in hyperpriors(spec).items() if isinstance(prior, LearnedScale)]
    return log_hyperprior(spec, values) + jnp.log(jnp.stack(scales)).sum()


def _constrained(spec: ModelSpec, hyper: Float[Array, " hyper"]) -> dict[str, Array]:
    pairs = zip(hyper, hyperpriors(spec).items(), strict=True)
    return {
        name: value if isinstance(prior, LearnedLocation) else jnp.exp(value)
        for value, (name, prior) in pairs
    }


def _unconstrained_median(prior: LearnedLocation | LearnedScale) -> Float[Array, ""]:
    return jnp.asarray(prior.mean if isinstance(prior, LearnedLocation) else math.log(prior.median))


def _item_terms(
    spec: ModelSpec,
    items: Float[Array, "item 2"],
    unit: Float[Array, " item"],
    hyper: Float[Array, " hyper"],
    estimate: Parameters,
    cells: Cells,
) -> tuple[Float[Array, "item 2"], Float[Array, "item 2 2"], Float[Array, " llm"]]:
    """Return score and precision of each (u, d) at fixed abilities, and the abilities' information.

    The precision is minus the second derivative where that is safely positive, else Fisher's information: the bend
    of the softplus counts only where it adds.
    """
    slope = unit * jax.nn.softplus(items[:, 0])
    sums = cell_sums(Parameters(estimate.ability, slope[:, None], items[:, 1]), cells, curvature="fisher")
    assert sums.item_curvature is not None
    assert sums.llm_curvature is not None
    rise = unit * jax.nn.sigmoid(items[:, 0])
    jacobian = jnp.stack([rise, jnp.ones_like(rise)], axis=1)
    bend = rise * jax.nn.sigmoid(-items[:, 0])
    precision = sums.item_curvature * jacobian[:, :, None] * jacobian[:, None, :]
    precision = precision.at[:, 0, 0].add(jnp.maximum(-sums.item_score[:, 0] * bend, 0.0) + _LEAST_PRECISION)
    over_items = (0, 0, None)
    prior = partial(_log_prior, spec)
    score = sums.item_score * jacobian + jax.vmap(jax.grad(prior), over_items)(items, unit, hyper)
    precision = precision - jax.vmap(jax.hessian(prior), over_items)(items, unit, hyper)
    return score, precision, sums.llm_curvature[:, 0, 0]


def _hyper_step(
    spec: ModelSpec,
    items: Float[Array, "item 2"],
    unit: Float[Array, " item"],
    covariance: Float[Array, "item 2 2"],
    hyper: Float[Array, " hyper"],
) -> Float[Array, " hyper"]:
    """Take one Newton step on the expected log prior of the items.

    The expectation over an item's posterior, its variance included, is the mean over four sigma points.
    """
    spread = math.sqrt(2) * jnp.moveaxis(jnp.linalg.cholesky(covariance), 2, 0)
    points = jnp.concatenate([items + spread, items - spread]).reshape(-1, 2)
    over = jax.vmap(partial(_log_prior, spec), (0, 0, None))

    def expected(h: Float[Array, " hyper"]) -> Float[Array, ""]:
        return over(points, jnp.tile(unit, 4), h).sum() / 4 + _log_hyperprior(spec, h)

    factor = _factor_of_inverse(-jax.hessian(expected)(hyper))
    return jnp.clip(factor @ (factor.T @ jax.grad(expected)(hyper)), -0.5, 0.5)


def _factor_of_inverse(precision: Float[Array, "size size"]) -> Float[Array, "size size"]:
    """Return F with F F' = the inverse of a precision; directions flatter than sd 1 are held to it."""
    values, vectors = jnp.linalg.eigh(precision)
    return jnp.asarray(vectors / jnp.sqrt(jnp.maximum(values, 1.0)))
