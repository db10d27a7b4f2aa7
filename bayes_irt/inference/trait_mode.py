"""The mode with several traits: abilities with the items integrated out, correlations with the abilities, too.

As with one trait (`mode`), the search is EM: each item's posterior given abilities is taken as normal around its mode,
and scores are expected over it. Correlations between traits are those that suit the abilities' posteriors, not their
modes, which correlate too well. Abilities are brought back to mean 0 and standard deviation 1, trait by trait, after
every step. Cycles are mixed by Anderson's acceleration.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Float

from bayes_irt.correlations import cholesky_of, free_correlations
from bayes_irt.identify import standardise
from bayes_irt.inference.item_coordinates import hyper_medians, link_of
from bayes_irt.inference.mode import TOLERANCE
from bayes_irt.inference.shared import observed_at
from bayes_irt.inference.trait_items import first_trait_items, trait_item_terms, trait_outer_terms
from bayes_irt.inference.trait_place import (
    TraitFrame,
    TraitPlace,
    hyper_of_traits,
    parameters_of_traits,
)
from bayes_irt.likelihood import Cells, Sums, cell_sums
from bayes_irt.mixing import Mixing
from bayes_irt.model_spec import ModelSpec
from bayes_irt.parameters import Parameters
from bayes_irt.trait_loads import TraitLoads

_MOST_CYCLES = 200
_WORST_GROWTH = 3.0
_LONGEST_MOVE = 1.0
# Share of the identity in correlations: the likeliest may be singular.
_IDENTITY = 0.002
_EM_STEPS = 20


@dataclass(frozen=True, slots=True)
class TraitMode:
    """Hold the mode and how it was reached.

    Parameters
    ----------
    place
        Where it is.
    unit
        Loads and the units of discriminations.
    change
        Largest last step, in posterior standard deviations given all else.
    cycles
        Number of cycles taken.
    """

    place: TraitPlace
    unit: TraitFrame
    change: float
    cycles: int


def find_trait_mode(spec: ModelSpec, estimate: Parameters, loads: TraitLoads, cells: Cells) -> TraitMode:
    """Search the mode from a point estimate.

    Parameters
    ----------
    spec
        The model.
    estimate
        A penalised point estimate in the canonical gauge, with the same loads.
    loads
        Which items load on which trait.
    cells
        The data.

    Returns
    -------
    TraitMode
        The mode; if 200 cycles do not find it, the last place.
    """
    place, frame = _first_place(spec, estimate, loads, cells)
    mode = _search(spec, place, frame, cells, Mixing())
    return mode if mode.change < TOLERANCE else _search(spec, mode.place, frame, cells, None)


@partial(jax.jit, static_argnames="spec")
def _first_place(
    spec: ModelSpec, estimate: Parameters, loads: TraitLoads, cells: Cells
) -> tuple[TraitPlace, TraitFrame]:
    medians = hyper_medians(spec, cells.num_groups[0])
    items, frame = first_trait_items(spec, estimate, loads, observed_at(spec, cells, medians))
    num_llms, num_traits = estimate.num_llms, loads.num_traits
    free = jnp.zeros(0)
    if not spec.general:
        spread = jnp.full(num_traits, 0.5 * np.log1p(-1.0 / num_llms))
        free = jnp.concatenate([jnp.zeros(num_traits * (num_traits - 1) // 2), spread])
    ability = jnp.asarray(estimate.ability)
    # where all are equal any order will do; the sphere has no centre
    order = jnp.arange(num_llms, dtype=ability.dtype)[:, None]
    ability = jnp.where(jnp.ptp(ability, axis=0) > 0, ability, order)
    return TraitPlace(_standardised(ability), items, jnp.concatenate([medians, free])), frame


def _search(
    spec: ModelSpec, place: TraitPlace, frame: TraitFrame, cells: Cells, mixing: Mixing | None
) -> TraitMode:
    """Take cycles until they stand still; without mixing they are slower but cannot overshoot."""
    best, change, cycle = np.inf, np.inf, 0
    while cycle < _MOST_CYCLES and change >= TOLERANCE:
        cycle += 1
        after, scale = _cycle(spec, place, frame, cells)
        before, end, weight = (np.asarray(ravel_pytree(leaf)[0]) for leaf in (place, after, scale))
        change = float(np.max(np.abs(end - before) * weight))
        if not np.isfinite(change):
            break
        mixed = None
        if mixing is not None:
            if change > _WORST_GROWTH * best:
                mixing.forget(all_of_it=True)
            mixed = mixing.mix(before, end, weight)
        best, place = min(best, change), after
        if mixed is not None and change >= TOLERANCE:
            place = _restored(after, before + np.clip(mixed - before, -_LONGEST_MOVE, _LONGEST_MOVE))
    return TraitMode(place, frame, change, cycle)


@partial(jax.jit, static_argnames="spec")
def _cycle(
    spec: ModelSpec, place: TraitPlace, frame: TraitFrame, cells: Cells
) -> tuple[TraitPlace, TraitPlace]:
    """Take items, then hyperparameters, then abilities; return also what a unit step is, one over its sd."""
    num_traits = place.ability.shape[1]
    hyper = hyper_of_traits(spec, place.hyper, num_traits)
    shaped = observed_at(spec, cells, hyper.items)
    placed = TraitPlace(place.ability, place.items, hyper.items)
    sums = cell_sums(parameters_of_traits(spec, placed, frame), shaped, curvature="fisher")
    score, precision = trait_item_terms(spec, placed, frame, sums)
    covariance = jnp.linalg.inv(precision)
    step = jnp.einsum("jml,jl->jm", covariance, score)
    placed = TraitPlace(place.ability, place.items + jnp.clip(step, -1.0, 1.0), hyper.items)
    terms = trait_outer_terms(spec, placed, frame, covariance, cells)
    score, information = terms.score[2 * num_traits :], terms.precision[2 * num_traits :, 2 * num_traits :]
    values, vectors = jnp.linalg.eigh(information)
    values = jnp.maximum(values, 1.0)  # directions flatter than sd 1 are held to it
    learned = hyper.items + jnp.clip(vectors @ ((vectors.T @ score) / values), -0.5, 0.5)
    parameters = parameters_of_traits(spec, placed, frame)
    spread = _slope_covariances(spec, placed.items, frame, covariance)
    sums = cell_sums(parameters, shaped, curvature="fisher", item_weights=spread)
    ability, free, known = _ability_step(spec, place.ability, sums, hyper.correlations)
    scale = TraitPlace(
        jnp.sqrt(known),
        jnp.sqrt(jnp.einsum("jkk->jk", precision)),
        jnp.concatenate(
            [
                jnp.sqrt(jnp.maximum(jnp.diag(information), 1.0)),
                jnp.full(len(place.hyper) - len(learned), np.sqrt(len(place.ability))),
            ]
        ),
    )
    return TraitPlace(ability, placed.items, jnp.concatenate([learned, free, hyper.spreads])), scale


def _slope_covariances(
    spec: ModelSpec, items: Array, frame: TraitFrame, covariance: Float[Array, "item slot_and_1 slot_and_1"]
) -> Float[Array, "item weight"]:
    """Return posterior covariances of an item's discriminations, pair by pair, and of each with its easiness."""
    num_traits = frame.loads.num_traits
    rise = frame.used * frame.unit * link_of(spec).rise(items[:, :-1])
    member = jax.nn.one_hot(frame.trait_of, num_traits, dtype=items.dtype) * rise[:, :, None]
    pairs = jnp.einsum("jmk,jml,jln->jkn", member, covariance[:, :-1, :-1], member)
    mixed = jnp.einsum("jmk,jm->jk", member, covariance[:, :-1, -1])
    first, second = np.triu_indices(num_traits)
    return jnp.concatenate([pairs[:, first, second], mixed], axis=1)


def _ability_step(
    spec: ModelSpec,
    ability: Float[Array, "llm trait"],
    sums: Sums,
    free: Float[Array, " pair"],
) -> tuple[Float[Array, "llm trait"], Float[Array, " pair"], Float[Array, "llm trait"]]:
    """Take abilities and correlations that suit the answers, with each LLM's likelihood as a Gaussian.

    To first order in the items' covariance E[a G] = a G - W (Cov(a) theta + Cov(a, d)). Returned are also the
    precisions of single abilities given all else.
    """
    assert sums.llm_curvature is not None
    assert sums.llm_weighted is not None
    num_traits = ability.shape[1]
    packed = np.zeros((num_traits, num_traits), dtype=int)
    upper = np.triu_indices(num_traits)
    packed[upper] = np.arange(len(upper[0]))
    spread = sums.llm_weighted[:, np.maximum(packed, packed.T)]
    score = sums.llm_score - jnp.einsum("nkl,nl->nk", spread, ability) - sums.llm_weighted[:, -num_traits:]
    information = sums.llm_curvature + spread
    pull = score - score.mean(axis=0) + jnp.einsum("nkl,nl->nk", information, ability)
    identity = jnp.eye(num_traits)

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

    correlation = identity
    if not spec.general:
        factor = cholesky_of(free)
        correlation = lax.fori_loop(0, _EM_STEPS, again, factor @ factor.T)
        free = free_correlations(correlation)
    step = of_llms(correlation)[0] - ability
    known = jnp.diag(jnp.linalg.inv(correlation)) + jnp.einsum("nkk->nk", information)
    return _standardised(ability + jnp.clip(step, -1.0, 1.0)), free, known


def _standardised(ability: Float[Array, "llm trait"]) -> Float[Array, "llm trait"]:
    return standardise(ability.T).T


def _restored(like: TraitPlace, flat: np.ndarray) -> TraitPlace:
    """Restore a place from one vector, its abilities standardised."""
    place: TraitPlace = ravel_pytree(like)[1](jnp.asarray(flat))
    return TraitPlace(_standardised(place.ability), place.items, place.hyper)
