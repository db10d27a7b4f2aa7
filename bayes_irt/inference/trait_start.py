"""Where samplers start with several traits: the mode's neighbourhood as a Gaussian, LLM by LLM and item by item.

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
from jaxtyping import Array, Float

from bayes_irt.correlations import cholesky_of
from bayes_irt.inference.item_coordinates import count_learned, link_of
from bayes_irt.inference.shared import observed_at
from bayes_irt.inference.start import White, factor_of_inverse, follow_scales, followed_by_scales
from bayes_irt.inference.trait_items import trait_item_terms, trait_outer_terms
from bayes_irt.inference.trait_place import (
    TraitFrame,
    TraitPlace,
    hyper_of_traits,
    log_regauged_item,
    parameters_of_traits,
    slopes_of,
)
from bayes_irt.likelihood import Cells, cell_sums
from bayes_irt.model_spec import DISPERSION, ModelSpec, hyperpriors
from bayes_irt.models import TRAIT_CHOLESKY


@jax.tree_util.register_dataclass
@dataclass(frozen=True, slots=True)
class TraitStart:
    """Hold the Gaussian around the mode.

    Parameters
    ----------
    frame
        Which items load on which trait, and the units of discriminations.
    ability
        Abilities, standardised trait by trait.
    information
        Fisher's information of each LLM's answers on its abilities.
    pull
        What an LLM's answers pull its abilities to, times that information.
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

    frame: TraitFrame
    ability: Float[Array, "llm trait"]
    information: Float[Array, "llm trait trait"]
    pull: Float[Array, "llm trait"]
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
    followed = follow_scales(spec, (start.items, start.frame.unit), start.item_widening, start.hyper, move)
    items = start.items + start.item_shift @ move + jnp.einsum("jmgk,gk->jm", start.item_gauge, moved)
    items = items + followed.step + followed.wider * jnp.einsum("jml,jl->jm", start.item_factor, white.items)
    value = link.value(items[:, :-1])
    loads, used = start.frame.loads, start.frame.used
    sites = dict(zip(hyperpriors(spec), start.hyper + move, strict=True))
    sites |= {
        "ability_raw": raw,
        "discrimination": jnp.log(followed.unit * value)[loads.item, loads.slot],
        "easiness": items[:, -1],
    }
    sites |= more
    volume = jnp.log(link.rise(items[:, :-1]) / value)
    idle = 0.5 * jnp.sum((1.0 - used) * white.items[:, :-1] ** 2)  # slots that say nothing
    return sites, spread_out + jnp.sum(used * volume) + jnp.sum(jnp.log(followed.wider)) - idle


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


def find_trait_start(spec: ModelSpec, place: TraitPlace, frame: TraitFrame, cells: Cells) -> TraitStart:
    """Place the Gaussian around the mode.

    Parameters
    ----------
    spec
        The model.
    place
        The mode.
    frame
        Loads and the units of discriminations.
    cells
        The data.

    Returns
    -------
    TraitStart
        The Gaussian.
    """
    (size, num_traits), items = place.ability.shape, place.items
    of_kind = hyper_of_traits(spec, place.hyper, num_traits)
    placed = TraitPlace(place.ability, items, of_kind.items)
    shaped = observed_at(spec, cells, of_kind.items)
    sums = cell_sums(parameters_of_traits(spec, placed, frame), shaped, curvature="fisher")
    assert sums.llm_curvature is not None
    _, precision = trait_item_terms(spec, placed, frame, sums)
    covariance = jnp.linalg.inv(precision)
    hyper, logits = jnp.split(of_kind.items, [count_learned(spec)])
    gauge, over = jnp.zeros((2, num_traits)), (0, 0, 0, 0, None, None)
    prior, slots = partial(log_regauged_item, spec), (items, frame.unit, frame.used, frame.trait_of, gauge)
    held = -jnp.einsum("jmm->jm", jax.vmap(jax.hessian(prior), over)(*slots, hyper))
    share = jnp.clip(held / jnp.einsum("jmm->jm", precision), 0.0, 1.0)
    used = jnp.pad(frame.used, ((0, 0), (0, 1)), constant_values=1.0)
    widening = used * share
    cross = jax.vmap(jax.jacfwd(jax.grad(prior), 5), over)(*slots, hyper)
    shift = covariance @ cross
    among = slice(2 * num_traits, 2 * num_traits + len(hyper))
    bend = trait_outer_terms(spec, placed, frame, covariance, cells).precision[among, among]
    around = jnp.eye(num_traits)
    more: dict[str, tuple[Array, Array]] = {}
    if not spec.general:
        free = of_kind.correlations
        factor = cholesky_of(free)
        around = jnp.linalg.inv(factor @ factor.T)
        more[TRAIT_CHOLESKY] = (free, jnp.full_like(free, 1.0 / math.sqrt(size)))
    if spec.dispersed:
        more[DISPERSION] = (logits, jnp.full_like(logits, 0.1))
    return TraitStart(
        frame=frame,
        ability=place.ability,
        information=sums.llm_curvature,
        pull=jnp.einsum("nkl,nl->nk", around + sums.llm_curvature, place.ability),
        items=items,
        item_factor=jnp.linalg.cholesky((covariance + covariance.swapaxes(1, 2)) / 2),
        item_widening=widening,
        item_shift=shift - followed_by_scales(spec, items, hyper, widening),
        item_gauge=_gauge(spec, items, frame),
        hyper=hyper,
        hyper_factor=factor_of_inverse(bend - jnp.einsum("jmh,jml->hl", cross, shift)),
        more=more,
    )


def _gauge(
    spec: ModelSpec, items: Float[Array, "item slot_and_1"], frame: TraitFrame
) -> Float[Array, "item slot_and_1 2 trait"]:
    """Return how items move so that logits stay where they are."""
    link, slope, num_traits = link_of(spec), slopes_of(spec, items, frame), frame.loads.num_traits
    member = jax.nn.one_hot(frame.trait_of, num_traits, dtype=items.dtype)
    by_spread = frame.used * link.value(items[:, :-1]) / link.rise(items[:, :-1])
    spread = jnp.concatenate([by_spread[:, :, None] * member, jnp.zeros((len(items), 1, num_traits))], axis=1)
    easiness = jnp.einsum("jm,jmk->jk", slope, member)
    located = jnp.zeros_like(spread).at[:, -1].set(easiness)
    return jnp.stack([spread, located], axis=2)
