"""Where samplers start with several traits: a Gaussian around the penalised point estimate, LLM by LLM, item by item.

The coordinates are those of `start`, with as many abilities per LLM as there are traits and as many discriminations per
item as the model lets it have. Location and spread of raw abilities, which standardisation takes out trait by trait,
keep their law; what a step of the abilities has along them is handed to the items.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from functools import partial

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float, Integer

from bayes_irt.identify import standardise
from bayes_irt.inference.item_coordinates import (
    LEAST_PRECISION,
    constrained,
    count_learned,
    first_slopes,
    hyper_medians,
    link_of,
    log_hyper,
)
from bayes_irt.inference.shared import observed_at
from bayes_irt.inference.start import White, factor_of_inverse, follow_scales, followed_by_scales
from bayes_irt.likelihood import Cells, Sums, cell_sums
from bayes_irt.model_spec import DISPERSION, ModelSpec, hyperpriors
from bayes_irt.models import TRAIT_CHOLESKY, cholesky_of, unconstrained_correlations
from bayes_irt.parameters import Parameters
from bayes_irt.prior_densities import log_discrimination_prior, log_easiness_prior
from bayes_irt.trait_loads import TraitLoads

# Share of the identity in correlations: the likeliest may be singular.
_IDENTITY = 0.002
_CYCLES, _EM_STEPS = 20, 20
_LONGEST = 1.5


@jax.tree_util.register_dataclass
@dataclass(frozen=True, slots=True)
class TraitStart:
    """Hold the Gaussian around the estimate.

    Parameters
    ----------
    loads
        Which items load on which trait.
    used
        Whether an item uses a slot, 1 or 0.
    ability
        Abilities, standardised trait by trait.
    information
        Fisher's information of each LLM's answers on its abilities.
    pull
        What an LLM's answers pull its abilities to, times that information.
    slope_unit
        The units of discriminations, see `item_coordinates`.
    items
        u of each slot, then the easiness.
    item_factor
        Factor of each item's covariance given everything else.
    item_widening
        Share of the prior in the precision of each coordinate, see `start.follow_scales`.
    item_shift
        How an item moves with the hyperparameters.
    item_gauge
        How an item moves with the log spread and the location of each trait.
    hyper
        Learned locations and log scales.
    hyper_factor
        Factor of their covariance.
    more
        Mean and standard deviation of further unconstrained sites: the correlations, the dispersion.
    """

    loads: TraitLoads
    used: Float[Array, "item slot"]
    ability: Float[Array, "llm trait"]
    information: Float[Array, "llm trait trait"]
    pull: Float[Array, "llm trait"]
    slope_unit: Float[Array, "item slot"]
    items: Float[Array, "item slot_and_1"]
    item_factor: Float[Array, "item slot_and_1 slot_and_1"]
    item_widening: Float[Array, "item slot_and_1"]
    item_shift: Float[Array, "item slot_and_1 hyper"]
    item_gauge: Float[Array, "item slot_and_1 2 trait"]
    hyper: Float[Array, " hyper"]
    hyper_factor: Float[Array, "hyper hyper"]
    more: dict[str, tuple[Array, Array]] = field(default_factory=dict)


def unwhiten_traits(
    white: White, start: TraitStart, spec: ModelSpec
) -> tuple[dict[str, Array], Float[Array, ""]]:
    """Map a point to NumPyro's unconstrained sites.

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
    link = link_of(spec)
    more = {name: mean + sd * white.more[name] for name, (mean, sd) in start.more.items()}
    factor = cholesky_of(more[TRAIT_CHOLESKY]) if TRAIT_CHOLESKY in more else jnp.eye(start.ability.shape[1])
    raw, moved, spread_out = _abilities(white.ability, start, factor)
    move = start.hyper_factor @ white.hyper
    followed = follow_scales(spec, (start.items, start.slope_unit), start.item_widening, start.hyper, move)
    items = start.items + start.item_shift @ move + jnp.einsum("jmgk,gk->jm", start.item_gauge, moved)
    items = items + followed.step + followed.wider * jnp.einsum("jml,jl->jm", start.item_factor, white.items)
    value = link.value(items[:, :-1])
    per_load = start.loads.item, start.loads.slot
    sites = dict(zip(hyperpriors(spec), start.hyper + move, strict=True))
    sites |= {
        "ability_raw": raw,
        "discrimination": jnp.log(followed.unit * value)[per_load],
        "easiness": items[:, -1],
    }
    sites |= more
    volume = jnp.log(link.rise(items[:, :-1]) / value)
    idle = 0.5 * jnp.sum((1.0 - start.used) * white.items[:, :-1] ** 2)  # slots that say nothing
    return sites, spread_out + jnp.sum(start.used * volume) + jnp.sum(jnp.log(followed.wider)) - idle


def _abilities(
    white: Float[Array, "llm trait"], start: TraitStart, factor: Float[Array, "trait trait"]
) -> tuple[Float[Array, "llm trait"], Float[Array, "2 trait"], Float[Array, ""]]:
    """Return raw abilities, what items are handed of their spread and location, and the map's log determinant.

    With correlations L L' an LLM's abilities are those of a normal prior times a normal likelihood: precision
    ``(L L')^-1 + C``, so that they follow the correlations as far as its answers leave them open. Location and spread
    of each trait are then replaced by values of their prior's law: with U their directions and F the factors of all
    LLMs' covariances, the volume is ``det F det(U' F^-1 U)`` times that of the law.
    """
    centre = start.ability
    size, num_traits = centre.shape
    inner = jnp.linalg.cholesky(jnp.eye(num_traits) + factor.T @ start.information @ factor)
    pulled = lax.linalg.triangular_solve(inner, (start.pull @ factor)[..., None], left_side=True, lower=True)
    drawn = lax.linalg.triangular_solve(
        inner, pulled + white[..., None], left_side=True, lower=True, transpose_a=True
    )
    step = drawn[..., 0] @ factor.T - centre
    moved = jnp.stack([jnp.einsum("nk,nk->k", centre, step), step.sum(axis=0)]) / size
    correlation, inverse = factor @ factor.T, _inverse_factor(factor)
    among = jnp.linalg.cholesky(jnp.eye(num_traits) + (inverse.T @ inverse) * correlation)
    free = jnp.stack([white.sum(axis=0), jnp.einsum("nk,nk->k", centre, white)]) / math.sqrt(size)
    location = factor @ free[0] / math.sqrt(size)
    spread = lax.linalg.triangular_solve(
        among, free[1][:, None], left_side=True, lower=True, transpose_a=True
    )[:, 0]
    raw = (1.0 - moved[0] + spread / math.sqrt(size)) * centre + step - moved[1] + location
    back = inner.swapaxes(1, 2) @ inverse
    ways = jnp.stack([jnp.ones_like(centre), centre]) / math.sqrt(size)
    across = jnp.einsum("gnk,nkl,hnl->gkhl", ways, back, ways).reshape(2 * num_traits, -1)
    volume = size * _log_diagonal(factor) - _log_diagonal(inner) + jnp.linalg.slogdet(across)[1]
    return raw, moved, volume + _log_diagonal(factor) - _log_diagonal(among)


def _log_diagonal(factors: Float[Array, "*batch trait trait"]) -> Float[Array, ""]:
    return jnp.log(jnp.diagonal(factors, axis1=-2, axis2=-1)).sum()


def _inverse_factor(factor: Float[Array, "trait trait"]) -> Float[Array, "trait trait"]:
    identity = jnp.eye(len(factor))
    return jnp.asarray(lax.linalg.triangular_solve(factor, identity, left_side=True, lower=True))


def find_trait_start(spec: ModelSpec, estimate: Parameters, loads: TraitLoads, cells: Cells) -> TraitStart:
    """Place the Gaussian around the mode, searched for from a penalised point estimate with the same loads.

    Parameters
    ----------
    spec
        The model.
    estimate
        The estimate, in the canonical gauge.
    loads
        Which items load on which trait.
    cells
        The data.

    Returns
    -------
    TraitStart
        The Gaussian.
    """
    ability, size = jnp.asarray(estimate.ability), estimate.num_llms
    empty = jnp.zeros((estimate.num_items, loads.num_slots))
    trait_of = empty.astype(int).at[loads.item, loads.slot].set(jnp.asarray(loads.trait))
    used = empty.at[loads.item, loads.slot].set(1.0)
    medians, learned = hyper_medians(spec, cells.num_groups[0]), count_learned(spec)
    cells = observed_at(spec, cells, medians)
    items, unit = _first_items(spec, estimate, trait_of, used, cells)

    def sums_at(ability: Array, items: Array) -> Sums:
        slope = used * unit * link_of(spec).value(items[:, :-1])
        dense = loads.dense(slope[loads.item, loads.slot], estimate.num_items)
        return cell_sums(Parameters(ability, dense, items[:, -1]), cells, curvature="fisher")

    def cycle(_: Array, place: tuple[Array, Array, Array, Array]) -> tuple[Array, Array, Array, Array]:
        ability, items, hyper, correlation = place
        sums = sums_at(ability, items)
        score, precision = _item_terms(spec, (items, unit, used, trait_of), hyper, sums)
        covariance = jnp.linalg.inv(precision)
        step = jnp.einsum("jml,jl->jm", covariance, score)
        items = items + step / jnp.maximum(jnp.abs(step).max(axis=1, keepdims=True) / _LONGEST, 1.0)
        hyper = _hyper_step(spec, (items, unit, used), covariance, hyper)
        ability, correlation = _ability_step(spec, ability, sums_at(ability, items), correlation)
        return ability, items, hyper, correlation

    first = medians[:learned], jnp.eye(loads.num_traits)
    ability, items, hyper, correlation = lax.fori_loop(0, _CYCLES, cycle, (ability, items, *first))
    sums, slope = sums_at(ability, items), used * unit * link_of(spec).value(items[:, :-1])
    placed = items, unit, used, trait_of
    covariance = jnp.linalg.inv(_item_terms(spec, placed, hyper, sums)[1])
    widening, cross = _by_prior(spec, placed, hyper, covariance)
    shift = covariance @ cross
    bend = -jax.hessian(partial(_expected, spec, placed[:3], covariance))(hyper)
    assert sums.llm_curvature is not None
    precision = jnp.linalg.inv(correlation) + sums.llm_curvature
    return TraitStart(
        loads=loads,
        used=used,
        ability=ability,
        information=sums.llm_curvature,
        pull=jnp.einsum("nkl,nl->nk", precision, ability),
        slope_unit=unit,
        items=items,
        item_factor=jnp.linalg.cholesky((covariance + covariance.swapaxes(1, 2)) / 2),
        item_widening=widening,
        item_shift=shift - followed_by_scales(spec, items, hyper, widening),
        item_gauge=_gauge(spec, items, slope, trait_of, loads.num_traits),
        hyper=hyper,
        hyper_factor=factor_of_inverse(bend - jnp.einsum("jmh,jml->hl", cross, shift)),
        more=_further(spec, correlation, medians[learned:], size),
    )


def _slots(curvature: Float[Array, "item trait_and_1"], trait_of: Integer[Array, "item slot"]) -> Array:
    """Return an item's entries of its slots and, last, of its easiness."""
    own = jnp.take_along_axis(curvature, trait_of, axis=1)
    return jnp.concatenate([own, curvature[:, -1:]], axis=1)


def _first_items(
    spec: ModelSpec,
    estimate: Parameters,
    trait_of: Integer[Array, "item slot"],
    used: Float[Array, "item slot"],
    cells: Cells,
) -> tuple[Float[Array, "item slot_and_1"], Float[Array, "item slot"]]:
    """Choose units and place items near the estimate, inside the boundary."""
    sums = cell_sums(estimate, cells, curvature="fisher")
    assert sums.item_curvature is not None
    information = _slots(jnp.einsum("jkk->jk", sums.item_curvature), trait_of)[:, :-1]
    score = _slots(sums.item_score, trait_of)[:, :-1]
    slopes = jnp.take_along_axis(jnp.asarray(estimate.discrimination), trait_of, axis=1)
    place, unit = first_slopes(spec, slopes, information, score)
    return jnp.column_stack([used * place, jnp.asarray(estimate.easiness)]), unit


def _log_prior(
    spec: ModelSpec,
    item: Float[Array, " slot_and_1"],
    unit: Float[Array, " slot"],
    used: Float[Array, " slot"],
    hyper: Float[Array, " hyper"],
) -> Float[Array, ""]:
    """Return the log prior of one item, by u and easiness; standard normal in slots it does not use."""
    values, link = constrained(spec, hyper), link_of(spec)
    own = log_discrimination_prior(spec, unit * link.value(item[:-1]), values) + jnp.log(link.rise(item[:-1]))
    by_slot = jnp.where(used > 0, own, -0.5 * item[:-1] ** 2)
    return by_slot.sum() + log_easiness_prior(item[-1], values)


def _expected(
    spec: ModelSpec, placed: tuple[Array, Array, Array], covariance: Array, hyper: Float[Array, " hyper"]
) -> Float[Array, ""]:
    """Return the log density of items and hyperparameters, expected over each item's Gaussian to second order."""

    def one(item: Array, unit: Array, used: Array, covariance: Array) -> Array:
        prior = partial(_log_prior, spec)
        bend = jax.hessian(prior)(item, unit, used, hyper)
        return prior(item, unit, used, hyper) + 0.5 * jnp.sum(bend * covariance)

    return jax.vmap(one)(*placed, covariance).sum() + log_hyper(spec, hyper)


def _hyper_step(
    spec: ModelSpec, placed: tuple[Array, Array, Array], covariance: Array, hyper: Float[Array, " hyper"]
) -> Float[Array, " hyper"]:
    """Take a damped Newton step of the hyperparameters, items integrated out."""
    expected = partial(_expected, spec, placed, covariance)
    factor = factor_of_inverse(-jax.hessian(expected)(hyper))
    return hyper + jnp.clip(factor @ (factor.T @ jax.grad(expected)(hyper)), -0.5, 0.5)


def _item_terms(
    spec: ModelSpec, placed: tuple[Array, Array, Array, Array], hyper: Array, sums: Sums
) -> tuple[Float[Array, "item slot_and_1"], Float[Array, "item slot_and_1 slot_and_1"]]:
    """Return each item's score and precision given all else, prior included."""
    items, unit, used, trait_of = placed
    assert sums.item_curvature is not None
    link, over, prior = link_of(spec), (0, 0, 0, None), partial(_log_prior, spec)
    jacobian = jnp.column_stack([used * unit * link.rise(items[:, :-1]), jnp.ones(len(items))])
    rows = jnp.concatenate([trait_of, jnp.full((len(items), 1), sums.item_curvature.shape[1] - 1)], axis=1)
    curvature = jnp.take_along_axis(sums.item_curvature, rows[:, :, None], axis=1)
    curvature = jnp.take_along_axis(curvature, rows[:, None, :], axis=2)
    score = _slots(sums.item_score, trait_of)
    bend = jnp.maximum(-score[:, :-1] * used * unit * link.bend(items[:, :-1]), 0.0) + LEAST_PRECISION
    own = _held(spec, items, unit, used, hyper).at[:, :-1].add(bend)
    precision = curvature * jacobian[:, :, None] * jacobian[:, None, :] + jax.vmap(jnp.diag)(own)
    return score * jacobian + jax.vmap(jax.grad(prior), over)(items, unit, used, hyper), precision


def _held(
    spec: ModelSpec, items: Array, unit: Array, used: Array, hyper: Array
) -> Float[Array, "item slot_and_1"]:
    """Return the precision of each coordinate by its prior, where that adds."""
    hessian = jax.vmap(jax.hessian(partial(_log_prior, spec)), (0, 0, 0, None))
    return jnp.maximum(-jnp.einsum("jmm->jm", hessian(items, unit, used, hyper)), 0.0)


def _by_prior(
    spec: ModelSpec, placed: tuple[Array, Array, Array, Array], hyper: Array, covariance: Array
) -> tuple[Float[Array, "item slot_and_1"], Float[Array, "item slot_and_1 hyper"]]:
    """Return the prior's share in each coordinate's precision, and how its score moves with the hyperparameters."""
    items, unit, used, _ = placed
    precision = jnp.einsum("jmm->jm", jnp.linalg.inv(covariance))
    share = jnp.clip(_held(spec, items, unit, used, hyper) / precision, 0.0, 1.0)
    idle = jnp.column_stack([used, jnp.ones(len(items))]) == 0
    mixed = jax.jacfwd(jax.grad(partial(_log_prior, spec)), 3)
    return jnp.where(idle, 0.0, share), jax.vmap(mixed, (0, 0, 0, None))(items, unit, used, hyper)


def _gauge(
    spec: ModelSpec, items: Array, slope: Array, trait_of: Array, num_traits: int
) -> Float[Array, "item slot_and_1 2 trait"]:
    """Return how items move so that logits stay where they are."""
    link = link_of(spec)
    member = jax.nn.one_hot(trait_of, num_traits, dtype=items.dtype)
    used = (slope > 0).astype(items.dtype)
    by_spread = used * link.value(items[:, :-1]) / link.rise(items[:, :-1])
    spread = jnp.concatenate([by_spread[:, :, None] * member, jnp.zeros((len(items), 1, num_traits))], axis=1)
    easiness = jnp.einsum("jm,jmk->jk", slope, member)
    located = jnp.zeros_like(spread).at[:, -1].set(easiness)
    return jnp.stack([spread, located], axis=2)


def _ability_step(
    spec: ModelSpec,
    ability: Float[Array, "llm trait"],
    sums: Sums,
    correlation: Float[Array, "trait trait"],
) -> tuple[Float[Array, "llm trait"], Float[Array, "trait trait"]]:
    """Take abilities and correlations that suit the answers, by EM with each LLM's likelihood as a Gaussian."""
    information = sums.llm_curvature
    assert information is not None
    pull = sums.llm_score + jnp.einsum("nkl,nl->nk", information, ability)
    identity = jnp.eye(ability.shape[1])

    def of_llms(correlation: Array) -> tuple[Array, Array]:
        factor = jnp.linalg.cholesky(correlation)
        inner = identity + factor.T @ information @ factor
        covariance = factor @ jnp.linalg.inv(inner) @ factor.T
        return jnp.einsum("nkl,nl->nk", covariance, pull), covariance

    def again(_: Array, correlation: Array) -> Array:
        mean, covariance = of_llms(correlation)
        second = (mean.T @ mean + covariance.sum(axis=0)) / len(mean)
        sd = jnp.sqrt(jnp.diag(second))
        return (1.0 - _IDENTITY) * second / jnp.outer(sd, sd) + _IDENTITY * identity

    if not spec.general:
        correlation = lax.fori_loop(0, _EM_STEPS, again, correlation)
    mean = of_llms(correlation)[0]
    moved = ability + jnp.clip(standardise(mean.T).T - ability, -_LONGEST, _LONGEST)
    return standardise(moved.T).T, correlation


def _further(spec: ModelSpec, correlation: Array, logits: Array, size: int) -> dict[str, tuple[Array, Array]]:
    """Return mean and standard deviation of the further sites."""
    found: dict[str, tuple[Array, Array]] = {}
    if not spec.general:
        place = unconstrained_correlations(correlation)
        found[TRAIT_CHOLESKY] = (place, jnp.full_like(place, 1.0 / math.sqrt(size)))
    if spec.dispersed:
        found[DISPERSION] = (logits, jnp.full_like(logits, 0.1))
    return found
