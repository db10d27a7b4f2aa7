"""Where samplers start: the neighbourhood of the mode as a Gaussian in unconstrained space.

Abilities are scaled one by one, items as pairs, both at the mode of `mode`; items follow the learned locations and
scales. `unwhiten` maps independent standard normals to that Gaussian: what a sampler then sees is nearly round, so it
needs little warm-up and short trajectories.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from bayes_irt.inference.ability_coordinates import RawAbilities, apart, tied
from bayes_irt.inference.item_coordinates import (
    count_learned,
    inverse_of_pairs,
    item_terms,
    link_of,
    location_place,
    log_hyper,
    log_item_prior,
    units_at,
)
from bayes_irt.inference.place import Place, parameters_of
from bayes_irt.inference.related import first_share, related_step
from bayes_irt.inference.shared import observed_at, shared_terms
from bayes_irt.likelihood import Cells, cell_sums
from bayes_irt.llm_groups import LLMGroups
from bayes_irt.model_spec import SHARE, ModelSpec, hyperpriors
from bayes_irt.priors import Common, HalfNormal

#: Learned scales of the priors of discrimination and easiness.
SCALES = ("discrimination_scale", "easiness_scale")


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
        The items' units, see `item_coordinates`.
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
        Learned locations, log scales and, where LLMs are related, the log odds of their share, in the order of
        ``spec.hyperparameters``.
    hyper_factor
        Factor of their covariance.
    item_gauge
        How each item moves when the abilities' scale and location do: the derivative of (u, d) by log sd and mean.
    hyper_gauge
        How the hyperparameters follow the items there.
    far_out
        Whether one LLM is so far out that abilities are moved one by one, see `ability_coordinates`; known when the
        program is compiled, since few suites need that half of it.
    groups
        Which LLMs are related; None where the model says nobody is.
    more
        Mean and standard deviation of every unconstrained site that is none of the above, see `further`.
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
    far_out: bool = field(default=False, metadata={"static": True})
    groups: LLMGroups | None = None
    more: dict[str, tuple[Array, Array]] = field(default_factory=dict)


@jax.tree_util.register_dataclass
@dataclass(frozen=True, slots=True)
class White:
    """Hold one point in the space in which the start is standard normal; ``more`` holds what `Start.more` does."""

    ability: Float[Array, "*batch llm"]
    items: Float[Array, "*batch item 2"]
    hyper: Float[Array, "*batch hyper"]
    more: dict[str, Array] = field(default_factory=dict)


def unwhiten(white: White, start: Start, spec: ModelSpec) -> tuple[dict[str, Array], Float[Array, ""]]:
    """Map a point to NumPyro's unconstrained sites.

    Abilities are mapped linearly. An item's place and spread follow the learned prior scales as those of a normal prior
    times a normal likelihood do: fully where data say nothing (the non-centred form), not at all where they say
    everything (the centred one). Raw abilities have two directions the data say nothing about, their mean and their
    radius. What a step of the abilities has along the two is handed to the items, which keeps the logits of all other
    LLMs where they are: without that, one LLM far out could move only if the whole scale did.

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
    link, move = link_of(spec), start.hyper_factor @ white.hyper
    ability, linear, exact, volume = _abilities(white, start, move)
    names = (*hyperpriors(spec), *([SHARE] if start.groups is not None else []))
    items = start.items + start.item_shift @ move + start.item_gauge @ linear
    hyper = start.hyper + start.hyper_gauge @ (linear + exact) + move
    sites = dict(zip(names, hyper, strict=True))
    followed = follow_scales(
        spec, (start.items, start.slope_unit[:, None]), start.item_widening, start.hyper, move
    )
    unit, wider = followed.unit[:, 0], followed.wider
    items = items + followed.step + wider * jnp.einsum("jkl,jl->jk", start.item_factor, white.items)
    log_determinant = jnp.sum(jnp.log(wider)) + volume
    if isinstance(spec.priors.discrimination, Common):
        slope = jnp.exp(sites["discrimination_location"] - exact[0])
        log_determinant = log_determinant - 0.5 * jnp.sum(white.items[:, 0] ** 2)  # which say nothing
    else:
        size = link.value(items[:, 0])
        slope = unit * size
        sites["discrimination"] = jnp.log(slope) + exact[0]
        log_determinant = log_determinant + jnp.sum(jnp.log(link.rise(items[:, 0]) / size))
    sites |= {"easiness": items[:, 1] + slope * exact[1], "ability_raw": ability}
    sites |= {name: mean + sd * white.more[name] for name, (mean, sd) in start.more.items()}
    return sites, log_determinant


class Followed(NamedTuple):
    """How items follow the learned scales of their priors.

    Attributes
    ----------
    step
        By how much they move.
    unit
        Their discriminations' units.
    wider
        By how much else they spread.
    """

    step: Float[Array, "item slot_and_1"]
    unit: Float[Array, "item slot"]
    wider: Float[Array, "item slot_and_1"]


def follow_scales(
    spec: ModelSpec,
    placed: tuple[Float[Array, "item slot_and_1"], Float[Array, "item slot"]],
    widening: Float[Array, "item slot_and_1"],
    hyper: Float[Array, " hyper"],
    move: Float[Array, " hyper"],
) -> Followed:
    """Return how items follow the learned scales, as those of a normal prior times a normal likelihood do.

    Parameters
    ----------
    spec
        The model.
    placed
        u of each discrimination and then the easiness, of every item at the start, and the discriminations' units.
    widening
        Share of the prior in their precision.
    hyper
        Hyperparameters at the start.
    move
        By how much these move.

    Returns
    -------
    Followed
        Fully, where data say nothing (the non-centred form), not at all where they say everything (the centred one).
    """
    (items, unit), link = placed, link_of(spec)
    place = {name: number for number, name in enumerate(hyperpriors(spec))}
    growth = [move[place[name]] if name in place else jnp.zeros(()) for name in SCALES]
    by_column = jnp.stack([*[growth[0]] * unit.shape[1], growth[1]])
    wider = 1.0 / jnp.sqrt(1.0 + widening * jnp.expm1(-2.0 * by_column))
    apart = items[:, -1] - hyper[place["easiness_location"]]
    step = jnp.zeros_like(items).at[:, -1].set((wider[:, -1] ** 2 - 1.0) * apart)
    if isinstance(spec.priors.discrimination, HalfNormal):
        at_start = link.value(items[:, :-1])
        step = step.at[:, :-1].set(link.inverse(wider[:, :-1] * at_start) - items[:, :-1])
        unit, wider = unit * wider[:, :-1], wider.at[:, :-1].set(1.0)
    return Followed(step, unit, wider)


def followed_by_scales(
    spec: ModelSpec,
    items: Float[Array, "item slot_and_1"],
    hyper: Float[Array, " hyper"],
    widening: Float[Array, "item slot_and_1"],
) -> Float[Array, "item slot_and_1 hyper"]:
    """Return how items already follow the log scales in `follow_scales`, to first order.

    Parameters
    ----------
    spec
        The model.
    items
        u of each discrimination and then the easiness, of every item at the start.
    hyper
        Hyperparameters at the start.
    widening
        Share of the prior in the items' precision.

    Returns
    -------
    jax.Array
        Derivative of items by hyperparameters.
    """
    place = {name: number for number, name in enumerate(hyperpriors(spec))}
    moved = jnp.zeros((*items.shape, len(place)))
    apart = items[:, -1] - hyper[place["easiness_location"]]
    moved = moved.at[:, -1, place[SCALES[1]]].set(2.0 * widening[:, -1] * apart)
    if isinstance(spec.priors.discrimination, HalfNormal):
        size = link_of(spec).value(items[:, :-1]) / link_of(spec).rise(items[:, :-1])
        moved = moved.at[:, :-1, place[SCALES[0]]].set(2.0 * widening[:, :-1] * size)
    return moved


def _abilities(white: White, start: Start, move: Float[Array, " hyper"]) -> RawAbilities:
    """Return raw abilities and what the items are handed of their scale and location."""
    centre, sd = jnp.asarray(start.ability), jnp.asarray(start.ability_sd)
    if start.groups is not None:
        log_odds = start.hyper[-1] + move[-1]
        step, free, volume = related_step(white.ability, log_odds, centre, sd, start.groups)
        return tied(step, free, centre)._replace(log_density=volume)

    if start.far_out:
        return apart(white.ability, centre, sd)
    free = jnp.stack([white.ability.sum(), centre @ white.ability]) / math.sqrt(centre.shape[0])
    return tied(sd * white.ability, free, centre)


def find_start(spec: ModelSpec, place: Place, unit: Float[Array, " item"], cells: Cells) -> Start:
    """Place the Gaussian around the mode.

    Parameters
    ----------
    spec
        The model.
    place
        The mode.
    unit
        The items' units.
    cells
        The data.

    Returns
    -------
    Start
        The Gaussian, nobody being far out.
    """
    items, hyper = place.items, place.hyper[: count_learned(spec)]
    shaped = observed_at(spec, cells, place.hyper)
    sums = cell_sums(parameters_of(spec, place, unit), shaped, curvature="fisher")
    assert sums.llm_curvature is not None
    _, precision = item_terms(spec, items, unit, hyper, sums)
    covariance = inverse_of_pairs(precision)
    over_items, prior = (0, 0, None), partial(log_item_prior, spec)
    held = -jax.vmap(jax.hessian(prior), over_items)(items, unit, hyper)
    widening = jnp.clip(jnp.einsum("jkk->jk", held) / jnp.einsum("jkk->jk", precision), 0.0, 1.0)
    cross = jax.vmap(jax.jacfwd(jax.grad(prior), 2), over_items)(items, unit, hyper)
    shift = covariance @ cross
    free_shift = shift - followed_by_scales(spec, items, hyper, widening)
    together = jax.vmap(prior, over_items)
    bend = -jax.hessian(lambda h: together(items, unit, h).sum() + log_hyper(spec, h))(hyper)
    common = isinstance(spec.priors.discrimination, Common)
    if common:
        _, information = shared_terms(spec, place, unit, covariance, cells)
        bend = bend.at[location_place(spec), location_place(spec)].add(information[0, 0])
    size = link_of(spec).value(items[:, 0])
    by_scale = jnp.zeros_like(size) if common else size / link_of(spec).rise(items[:, 0])
    gauge = jax.vmap(jnp.diag)(jnp.stack([by_scale, units_at(spec, unit, hyper) * size], axis=1))
    factor = factor_of_inverse(bend)
    hyper_gauge = factor @ (factor.T @ jnp.einsum("jkh,jkg->hg", cross, gauge))
    if common:  # its location takes the abilities' scale over
        hyper_gauge = hyper_gauge.at[location_place(spec), 0].set(1.0)
    ability_sd = 1.0 / jnp.sqrt(1.0 + sums.llm_curvature[:, 0, 0])
    return Start(
        ability=place.ability,
        ability_sd=ability_sd,
        slope_unit=unit,
        items=items,
        item_factor=jnp.linalg.cholesky(covariance),
        item_widening=widening,
        item_shift=free_shift,
        hyper=hyper,
        hyper_factor=factor_of_inverse(bend - jnp.einsum("jkh,jkl->hl", cross, shift)),
        item_gauge=gauge,
        hyper_gauge=hyper_gauge,
    )


def relate(spec: ModelSpec, start: Start, groups: LLMGroups) -> Start:
    """Add the share of variance between groups to a start without it.

    Parameters
    ----------
    spec
        The model, with groups.
    start
        The Gaussian around the mode of the same model without.
    groups
        Who is related.

    Returns
    -------
    Start
        The share's log odds come last among the hyperparameters.
    """
    mean, sd = first_share(spec, jnp.asarray(start.ability), jnp.asarray(start.ability_sd), groups)
    number = len(start.hyper)
    return replace(
        start,
        item_shift=jnp.pad(start.item_shift, ((0, 0), (0, 0), (0, 1))),
        hyper=jnp.append(start.hyper, mean),
        hyper_factor=jnp.pad(start.hyper_factor, (0, 1)).at[number, number].set(sd),
        hyper_gauge=jnp.pad(start.hyper_gauge, ((0, 1), (0, 0))),
        groups=groups,
    )


def factor_of_inverse(precision: Float[Array, "size size"]) -> Float[Array, "size size"]:
    """Return a factor of a covariance; directions flatter than sd 1 are held to it.

    Parameters
    ----------
    precision
        The inverse of the covariance; need not be positive definite.

    Returns
    -------
    jax.Array
        F with F F' = the covariance.
    """
    values, vectors = jnp.linalg.eigh(precision)
    return jnp.asarray(vectors / jnp.sqrt(jnp.maximum(values, 1.0)))
