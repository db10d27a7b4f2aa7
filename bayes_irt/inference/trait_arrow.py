"""The Gaussian around the mode with several traits: an arrow whose core has every trait's abilities.

As with one trait (`arrow`), items are independent given the core: abilities trait by trait, then hyperparameters,
correlations and spreads. An item is coupled to the abilities on its own traits alone, so that where items load on one
trait each, all traits together cost what one does, but for the factor of the core. Abilities on each trait move in a
plane of their own.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.linalg import solve_triangular
from jaxtyping import Array, Float, Integer

from bayes_irt.inference.arrow import MOST_EXACT_CELLS, GaussianFactors, factor_or_repaired
from bayes_irt.inference.item_coordinates import link_of
from bayes_irt.inference.outer_terms import OuterTerms
from bayes_irt.inference.shared import observed_at
from bayes_irt.inference.trait_items import by_slots, trait_item_terms, trait_outer_terms
from bayes_irt.inference.trait_mode import TraitMode
from bayes_irt.inference.trait_place import (
    TraitFrame,
    TraitHyper,
    TraitPlace,
    hyper_of_traits,
    log_free_abilities,
    log_regauged_item,
    parameters_of_traits,
    raw_precision,
    slopes_of,
)
from bayes_irt.likelihood import Cells, Sums, cell_sums
from bayes_irt.model_spec import ModelSpec
from bayes_irt.trait_loads import TraitLoads


@dataclass(frozen=True, slots=True)
class TraitArrow(GaussianFactors):
    """Hold the Gaussian with several traits.

    Parameters
    ----------
    core_factor
        Lower Cholesky factor of the core's precision: of abilities trait by trait, then of all else.
    couplings
        Couplings of the abilities on each trait to the items that load on it, in these items' own scale.
    members
        Which items load on each trait.
    hyper_coupling
        Couplings of all else to the items.
    item_factor
        Lower Cholesky factors of the items' precisions.
    fixed
        Orthonormal directions of the abilities on each trait that cannot move.
    information
        Precision of each ability given all else.
    repaired
        Whether the core's precision had to be made positive.
    """

    core_factor: Float[np.ndarray, "core core"]
    couplings: tuple[Float[np.ndarray, "llm member_places"], ...]
    members: tuple[Integer[np.ndarray, " member"], ...]
    hyper_coupling: Float[np.ndarray, "hyper item_places"]
    item_factor: Float[np.ndarray, "item slot_and_1 slot_and_1"]
    fixed: Float[np.ndarray, "trait llm 2"]
    information: Float[np.ndarray, "llm trait"]
    repaired: bool

    @property
    def item_sd(self) -> Float[np.ndarray, "item slot_and_1"]:
        """Standard deviations of items, given the core and those of their coordinates that come after."""
        return np.asarray(1.0 / np.einsum("jkk->jk", self.item_factor))

    @property
    def _normals(self) -> Float[np.ndarray, "core normal"]:
        normals = np.zeros((len(self.core_factor), 2 * len(self.fixed)))
        for trait, block in enumerate(self._blocks(normals)):
            block[:, 2 * trait : 2 * trait + 2] = self.fixed[trait]
        return normals

    def _blocks(self, core: Float[np.ndarray, "core draw"]) -> list[Float[np.ndarray, "llm draw"]]:
        """Return the abilities on each trait."""
        size = self.fixed.shape[1]
        return [core[size * trait : size * (trait + 1)] for trait in range(len(self.fixed))]

    def _white_items(self, rng: np.random.Generator, number: int) -> Float[np.ndarray, "item place draw"]:
        shape = (*self.item_factor.shape[:2], number)
        return rng.standard_normal(shape, dtype=self.couplings[0].dtype.type)

    def _to_items(self, core: Float[np.ndarray, "core draw"]) -> Float[np.ndarray, "item place draw"]:
        kind, places = self.couplings[0].dtype, self.item_factor.shape[1]
        rest = core[self.fixed.shape[0] * self.fixed.shape[1] :]
        followed = (self.hyper_coupling.T @ rest).astype(kind).reshape(-1, places, core.shape[1])
        for block, coupling, member in zip(self._blocks(core), self.couplings, self.members, strict=True):
            followed[member] += (coupling.T @ block.astype(kind)).reshape(-1, places, core.shape[1])
        return np.asarray(followed)

    def _to_core(self, white: Float[np.ndarray, "item place draw"]) -> Float[np.ndarray, "core draw"]:
        draws, narrow = white.shape[-1], white.astype(self.couplings[0].dtype)
        by_llm = [
            coupling @ narrow[member].reshape(-1, draws)
            for coupling, member in zip(self.couplings, self.members, strict=True)
        ]
        return np.concatenate([*by_llm, self.hyper_coupling @ white.reshape(-1, draws)])

    def _scaled(self, item_score: Float[np.ndarray, "item place"]) -> Float[np.ndarray, "item place"]:
        return np.linalg.solve(self.item_factor, item_score[..., None])[..., 0]

    def _items(self, white: Float[np.ndarray, "item place draw"]) -> Float[np.ndarray, "draw item place"]:
        factor, places = self.item_factor[..., None].astype(white.dtype), white.shape[1]
        items = np.empty((white.shape[2], *white.shape[:2]), dtype=white.dtype)
        for place in reversed(range(places)):
            later = [factor[:, other, place] * items[..., other].T for other in range(place + 1, places)]
            items[..., place] = ((white[:, place] - sum(later)) / factor[:, place, place]).T
        return items


def build_trait_arrow(spec: ModelSpec, mode: TraitMode, cells: Cells) -> TraitArrow:
    """Return the Gaussian around a mode.

    Parameters
    ----------
    spec
        The model.
    mode
        The mode.
    cells
        The data.

    Returns
    -------
    TraitArrow
        Its factors. Items have their exact second derivatives; those by hyperparameters and by scale and location of
        the abilities are expected over the items, those by correlations over the abilities, as in EM.
    """
    place, frame = mode.place, mode.unit
    num_llms, num_traits = place.ability.shape
    exact = num_llms * len(place.items) <= MOST_EXACT_CELLS
    hyper = hyper_of_traits(spec, jnp.asarray(place.hyper), num_traits)
    placed = TraitPlace(place.ability, place.items, hyper.items)
    sums, covariance, factor, outer_coupling = _item_parts(spec, placed, frame, cells)
    terms: OuterTerms = jax.device_get(_outer_terms(spec, placed, frame, covariance, cells))
    information = np.asarray(sums.llm_curvature)
    around, by_core, by_law = jax.device_get(_of_abilities(spec, place.ability, hyper, information))
    number = 2 * num_traits
    known = number + len(hyper.items)
    outer_coupling, unknown = np.array(outer_coupling), np.array(terms.unknown)
    if cells.num_groups[0]:
        by_item, by_llm = jax.device_get(_dispersion_couplings(spec, placed, frame, cells, factor))
        shared = slice(known - cells.num_groups[0], known)
        outer_coupling[shared] += by_item
        by_core = np.array(by_core)
        by_core[:, :, shared] += by_llm
        # of what cells share nothing is lost but what the couplings say
        coupled = outer_coupling @ outer_coupling.T
        unknown[shared], unknown[:, shared] = coupled[shared], coupled[:, shared]
    precision = np.array(by_law)
    precision[:known, :known] += terms.precision - unknown + outer_coupling @ outer_coupling.T
    outer_coupling = np.pad(outer_coupling, ((0, len(precision) - known), (0, 0)))
    members = _members(frame.loads)
    couplings = jax.device_get(
        _couplings(spec, placed, frame, cells, (factor, outer_coupling[:number]), members, exact=exact)
    )
    core, fixed, diagonal = _core(
        np.asarray(place.ability),
        information + np.asarray(around),
        by_core,
        precision,
        np.asarray(terms.score)[:num_traits],
    )
    _subtract_couplings(core, couplings, members, outer_coupling[number:], num_llms)
    for trait in range(num_traits):
        rows = slice(num_llms * trait, num_llms * (trait + 1))
        core[rows] -= fixed[trait] @ (fixed[trait].T @ core[rows])
        core[:, rows] -= (core[:, rows] @ fixed[trait]) @ fixed[trait].T
        core[rows, rows] += np.mean(diagonal[:, trait]) * (fixed[trait] @ fixed[trait].T)
    core_factor, repaired = factor_or_repaired(core)
    item_factor = np.asarray(factor)
    return TraitArrow(
        core_factor, couplings, members, outer_coupling[number:], item_factor, fixed, diagonal, repaired
    )


_outer_terms = partial(jax.jit, static_argnames="spec")(trait_outer_terms)


def _members(loads: TraitLoads) -> tuple[Integer[np.ndarray, " member"], ...]:
    """Return which items load on each trait."""
    item, trait = np.asarray(loads.item), np.asarray(loads.trait)
    return tuple(item[trait == number] for number in range(loads.num_traits))


@partial(jax.jit, static_argnames="spec")
def _item_parts(
    spec: ModelSpec, place: TraitPlace, frame: TraitFrame, cells: Cells
) -> tuple[Sums, Array, Array, Array]:
    """Return sums, covariances and factors of the items, and their couplings to gauge and hyperparameters."""
    shaped = observed_at(spec, cells, place.hyper)
    sums = cell_sums(parameters_of_traits(spec, place, frame), shaped, curvature="fisher")
    _, precise = trait_item_terms(spec, place, frame, sums, exact=True)
    _, safe = trait_item_terms(spec, place, frame, sums)
    # the safe one where a point is no maximum
    sd = jnp.sqrt(jnp.einsum("jkk->jk", safe))
    least = jnp.linalg.eigvalsh(precise / (sd[:, :, None] * sd[:, None, :]))[:, 0]
    held = jnp.linalg.eigvalsh(safe / (sd[:, :, None] * sd[:, None, :]))[:, 0]
    precision = jnp.where((least > 1e-3 * held)[:, None, None], precise, safe)
    factor = jnp.linalg.cholesky(precision)
    number = 2 * place.ability.shape[1]
    outer = jnp.concatenate([jnp.zeros(number), place.hyper])

    def prior(item: Array, unit: Array, used: Array, trait_of: Array, outer: Array) -> Array:
        gauge, hyper = outer[:number].reshape(2, -1), outer[number:]
        return log_regauged_item(spec, item, unit, used, trait_of, gauge, hyper)

    cross = jax.vmap(jax.jacfwd(jax.grad(prior), 4), (0, 0, 0, 0, None))(
        place.items, frame.unit, frame.used, frame.trait_of, outer
    )
    coupling = solve_triangular(factor, -cross, lower=True)
    return sums, jnp.linalg.inv(precision), factor, coupling.reshape(-1, len(outer)).T


@partial(jax.jit, static_argnames="spec")
def _of_abilities(
    spec: ModelSpec,
    ability: Float[Array, "llm trait"],
    hyper: TraitHyper,
    information: Float[Array, "llm trait trait"],
) -> tuple[Array, Array, Array]:
    """Return what the abilities' law says: each LLM's precision, its couplings to all else, and all else's own.

    All else is the abilities' log scales and locations, the hyperparameters of items (of which it says nothing),
    correlations and spreads. What correlations and spreads lose since abilities are not known is half of it quadratic
    in the abilities, which couplings at their mode do not say.
    """
    num_llms, num_traits = ability.shape
    free = jnp.concatenate([jnp.zeros(2 * num_traits), *hyper])
    first = 2 * num_traits + len(hyper.items)

    def split(free: Array) -> TraitHyper:
        pairs = len(hyper.correlations)
        return TraitHyper(hyper.items, free[first : first + pairs], free[first + pairs :])

    def precision_at(free: Array) -> Array:
        if spec.general:
            return (1.0 - 1.0 / num_llms) * jnp.eye(num_traits)
        return raw_precision(split(free))

    def quadratic(ability: Float[Array, " trait"], free: Array) -> Array:
        scale, location = jnp.exp(free[:num_traits]), free[num_traits : 2 * num_traits]
        apart = (ability - location) / scale
        return 0.5 * apart @ precision_at(free) @ apart

    around = precision_at(free)
    by_core = jax.vmap(jax.jacfwd(jax.grad(quadratic), 1), (0, None))(ability, free)
    own = jax.hessian(lambda at: jax.vmap(quadratic, (0, None))(ability, at).sum())(free)
    covariance = jnp.linalg.inv(information + around)
    total = covariance.sum(axis=0)

    def expected(at: Array) -> Array:
        return 0.5 * jnp.sum(precision_at(at) * total) - log_free_abilities(spec, split(at), num_llms)

    moved = jnp.einsum("nkl,lmf->nkmf", covariance, jax.jacfwd(precision_at)(free))
    lost = 0.5 * jnp.einsum("nklf,nlkg->fg", moved, moved)
    return around, by_core, own + jax.hessian(expected)(free) - lost


@partial(jax.jit, static_argnames="spec")
def _dispersion_couplings(
    spec: ModelSpec,
    place: TraitPlace,
    frame: TraitFrame,
    cells: Cells,
    factor: Float[Array, "item slot_and_1 slot_and_1"],
) -> tuple[Array, Array]:
    """Return couplings of the logits of dispersion to items, in their own scale, and to abilities."""
    first = len(place.hyper) - cells.num_groups[0]
    rise = frame.used * frame.unit * link_of(spec).rise(place.items[:, :-1])
    jacobian = jnp.column_stack([rise, jnp.ones(len(rise))])

    def scores(logits: Array) -> tuple[Array, Array]:
        hyper = place.hyper.at[first:].set(logits)
        at = TraitPlace(place.ability, place.items, hyper)
        sums = cell_sums(parameters_of_traits(spec, at, frame), observed_at(spec, cells, hyper))
        return by_slots(sums.item_score, frame.trait_of) * jacobian, sums.llm_score

    by_item, by_llm = jax.jacfwd(scores)(place.hyper[first:])
    return solve_triangular(factor, -by_item, lower=True).reshape(-1, by_item.shape[-1]).T, -by_llm


@partial(jax.jit, static_argnames=("spec", "exact"))
def _couplings(
    spec: ModelSpec,
    place: TraitPlace,
    frame: TraitFrame,
    cells: Cells,
    scaled: tuple[Float[Array, "item slot_and_1 slot_and_1"], Float[Array, "gauge item_places"]],
    members: tuple[Integer[Array, " member"], ...],
    *,
    exact: bool,
) -> tuple[Array, ...]:
    """Return the couplings of the abilities on each trait to its items, in the items' own scale.

    An ability's own part is ``W a_k (theta rise, 1) - G rise_k``; scale and location add theirs, see `arrow`.
    """
    num_llms, num_traits = place.ability.shape
    items, num_places = place.items.shape
    cells = observed_at(spec, cells, place.hyper)
    kind = cells.cell_type
    rise = frame.used * frame.unit * link_of(spec).rise(place.items[:, :-1])
    inverse = solve_triangular(scaled[0], jnp.broadcast_to(jnp.eye(num_places), scaled[0].shape), lower=True)
    by_gauge = scaled[1].reshape(2, num_traits, items, num_places) / num_llms
    slopes = slopes_of(spec, place.items, frame)
    parameters = parameters_of_traits(spec, place, frame)
    dense, easiness = parameters.discrimination.astype(kind).T, parameters.easiness.astype(kind)
    parts = []
    for trait, member in enumerate(members):
        own = frame.trait_of[member] == trait
        own = own & (frame.used[member] > 0)
        slope = jnp.sum(slopes[member] * own, axis=1)
        # by each trait that an item loads on, then by its easiness
        weights = (
            slope[:, None, None]
            * inverse[member]
            * jnp.pad(rise[member], ((0, 0), (0, 1)), constant_values=1.0)[:, None, :]
        )
        scores = jnp.einsum("jqm,jm->jq", inverse[member][:, :, :-1], rise[member] * own)
        parts.append(
            jax.tree.map(
                lambda leaf: leaf.astype(kind),
                (weights, scores, by_gauge[0, trait, member], by_gauge[1, trait, member]),
            )
        )

    def visit(_: None, tile: tuple[Any, ...]) -> tuple[None, tuple[Array, ...]]:
        theta, *counts = tile
        eta = jnp.matmul(theta, dense, precision=jax.lax.Precision.HIGHEST) + easiness
        terms = cells.terms(eta, tuple(counts), "fisher")
        assert terms.weight is not None
        coupled = []
        for trait, (member, (weights, scores, by_scale, by_location)) in enumerate(
            zip(members, parts, strict=True)
        ):
            near = theta[:, frame.trait_of[member]]
            far = weights[None, :, :, -1]
            for slot in range(num_places - 1):
                far = far + near[:, :, slot, None] * weights[None, :, :, slot]
            found = terms.weight[:, member, None] * far - terms.score[:, member, None] * scores
            found = found + theta[:, trait, None, None] * by_scale + by_location
            coupled.append(found.reshape(len(theta), -1).astype(jnp.float64 if exact else jnp.float32))
        return None, tuple(coupled)

    tiles, rows, _ = cells.counts[0].shape
    padded = jnp.pad(place.ability.astype(kind), ((0, tiles * rows - num_llms), (0, 0)))
    _, coupled = jax.lax.scan(visit, None, (padded.reshape(tiles, rows, -1), *cells.counts))
    return tuple(one.reshape(tiles * rows, -1)[:num_llms] for one in coupled)


def _core(
    ability: Float[np.ndarray, "llm trait"],
    by_llm: Float[np.ndarray, "llm trait trait"],
    by_core: Float[np.ndarray, "llm trait outer"],
    precision: Float[np.ndarray, "outer outer"],
    scale_score: Float[np.ndarray, " trait"],
) -> tuple[Float[np.ndarray, "core core"], Float[np.ndarray, "trait llm 2"], Float[np.ndarray, "llm trait"]]:
    """Return the core's precision with items known, the directions that cannot move, and each ability's precision."""
    (size, num_traits), number = ability.shape, 2 * ability.shape[1]
    lift = np.zeros((num_traits, size, 2 * num_traits))  # derivatives of log scales and locations
    for trait in range(num_traits):
        lift[trait, :, trait] = ability[:, trait] / size
        lift[trait, :, num_traits + trait] = 1.0 / size
    flat, outer = lift.reshape(-1, number), by_core.transpose(1, 0, 2).reshape(size * num_traits, -1)
    by_gauge = outer[:, :number] + 0.5 * (flat @ precision[:number, :number])
    core = np.empty((len(flat) + len(precision) - number,) * 2)
    own = core[: len(flat), : len(flat)]
    own[:] = np.concatenate([by_gauge, flat], axis=1) @ np.concatenate([flat, by_gauge], axis=1).T
    places = np.arange(size)
    for first in range(num_traits):
        for second in range(num_traits):
            own[size * first + places, size * second + places] += by_llm[:, first, second]
    diagonal = np.einsum("nkk->nk", by_llm).copy()
    fixed = np.zeros((num_traits, size, 2))
    for trait in range(num_traits):
        rows, pair = slice(size * trait, size * (trait + 1)), lift[trait][:, [trait, num_traits + trait]]
        # by how much item priors pull abilities inwards beside the abilities' own law
        bend = np.eye(size) / size - np.outer(pair[:, 1], pair[:, 1]) - 2.0 * np.outer(pair[:, 0], pair[:, 0])
        own[rows, rows] -= scale_score[trait] * bend
        fixed[trait] = np.linalg.qr(diagonal[:, trait, None] * pair)[0]
    across = outer[:, number:] + flat @ precision[:number, number:]
    core[: len(flat), len(flat) :], core[len(flat) :, : len(flat)] = across, across.T
    core[len(flat) :, len(flat) :] = precision[number:, number:]
    return core, fixed, diagonal


def _subtract_couplings(
    core: Float[np.ndarray, "core core"],
    couplings: tuple[Float[np.ndarray, "llm member_places"], ...],
    members: tuple[Integer[np.ndarray, " member"], ...],
    hyper_coupling: Float[np.ndarray, "hyper item_places"],
    size: int,
) -> None:
    """Take from the core's precision what is lost by not knowing the items: the Schur complement, trait by trait."""
    first = size * len(members)
    num_items = max(int(member.max(initial=0)) for member in members) + 1
    by_item = hyper_coupling.reshape(len(hyper_coupling), -1, couplings[0].shape[1] // len(members[0]))
    core[first:, first:] -= hyper_coupling @ hyper_coupling.T
    for trait, (coupling, member) in enumerate(zip(couplings, members, strict=True)):
        rows = slice(size * trait, size * (trait + 1))
        own = by_item[:, member].reshape(len(hyper_coupling), -1)
        across = coupling @ own.T.astype(coupling.dtype)
        core[rows, first:] -= across
        core[first:, rows] -= across.T
        core[rows, rows] -= coupling @ coupling.T
        at = np.full(num_items, -1)
        at[member] = np.arange(len(member))
        for other in range(trait):
            both = np.flatnonzero(np.isin(members[other], member))
            if not len(both):
                continue
            here = at[members[other][both]]
            one = coupling.reshape(size, len(member), -1)[:, here].reshape(size, -1)
            two = couplings[other].reshape(size, len(members[other]), -1)[:, both].reshape(size, -1)
            shared = one @ two.T
            columns = slice(size * other, size * (other + 1))
            core[rows, columns] -= shared
            core[columns, rows] -= shared.T
