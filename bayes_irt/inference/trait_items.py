"""Items that load on several traits: where they start, their score and precision, what they say of all else."""

from __future__ import annotations

from functools import partial

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from bayes_irt.inference.item_coordinates import LEAST_PRECISION, first_slopes, link_of, log_hyper
from bayes_irt.inference.outer_terms import OuterTerms, item_points, terms_over
from bayes_irt.inference.shared import dispersion_score, observed_at
from bayes_irt.inference.trait_place import (
    TraitFrame,
    TraitPlace,
    log_prior_of_items,
    log_regauged_item,
    parameters_of_traits,
)
from bayes_irt.likelihood import Cells, Sums, cell_sums
from bayes_irt.model_spec import ModelSpec
from bayes_irt.parameters import Parameters
from bayes_irt.trait_loads import TraitLoads


def first_trait_items(
    spec: ModelSpec, estimate: Parameters, loads: TraitLoads, cells: Cells
) -> tuple[Float[Array, "item slot_and_1"], TraitFrame]:
    """Choose units of discriminations and place items near a point estimate, inside the boundary.

    Parameters
    ----------
    spec
        The model.
    estimate
        A penalised point estimate with the same loads.
    loads
        Which items load on which trait.
    cells
        The data.

    Returns
    -------
    tuple
        u of each slot and the easiness; loads and units.
    """
    empty = jnp.zeros((estimate.num_items, loads.num_slots))
    trait_of = empty.astype(int).at[loads.item, loads.slot].set(jnp.asarray(loads.trait))
    used = empty.at[loads.item, loads.slot].set(1.0)
    sums = cell_sums(estimate, cells, curvature="fisher")
    assert sums.item_curvature is not None
    information = by_slots(jnp.einsum("jkk->jk", sums.item_curvature), trait_of)[:, :-1]
    score = by_slots(sums.item_score, trait_of)[:, :-1]
    slopes = jnp.take_along_axis(jnp.asarray(estimate.discrimination), trait_of, axis=1)
    place, unit = first_slopes(spec, slopes, information, score)
    items = jnp.column_stack([used * place, jnp.asarray(estimate.easiness)])
    return items, TraitFrame(loads, used, trait_of, unit)


def by_slots(values: Float[Array, "item trait_and_1"], trait_of: Array) -> Float[Array, "item slot_and_1"]:
    """Return an item's entries of its slots and, last, of its easiness.

    Parameters
    ----------
    values
        By trait, the easiness last.
    trait_of
        The trait of each slot.

    Returns
    -------
    jax.Array
        By slot, the easiness last.
    """
    return jnp.concatenate([jnp.take_along_axis(values, trait_of, axis=1), values[:, -1:]], axis=1)


def trait_item_terms(
    spec: ModelSpec,
    place: TraitPlace,
    frame: TraitFrame,
    sums: Sums,
    *,
    exact: bool = False,
) -> tuple[Float[Array, "item slot_and_1"], Float[Array, "item slot_and_1 slot_and_1"]]:
    """Return score and precision of each item at fixed abilities, prior included.

    Parameters
    ----------
    spec
        The model.
    place
        Where.
    frame
        Loads and units.
    sums
        Score and Fisher's curvature of the likelihood there.
    exact
        Whether the precision is minus the second derivative; else the bends of map and prior count only where they add,
        which is safely positive.

    Returns
    -------
    tuple of jax.Array
        Score and precision; 1 in slots that are not used.
    """
    assert sums.item_curvature is not None
    items, link, over = place.items, link_of(spec), (0, 0, 0, 0, None, None)
    gauge = jnp.zeros((2, place.ability.shape[1]))
    slots = items, frame.unit, frame.used, frame.trait_of, gauge, place.hyper
    prior = partial(log_regauged_item, spec)
    jacobian = jnp.column_stack([frame.used * frame.unit * link.rise(items[:, :-1]), jnp.ones(len(items))])
    rows = jnp.pad(frame.trait_of, ((0, 0), (0, 1)), constant_values=sums.item_curvature.shape[1] - 1)
    curvature = jnp.take_along_axis(sums.item_curvature, rows[:, :, None], axis=1)
    curvature = jnp.take_along_axis(curvature, rows[:, None, :], axis=2)
    by_slot = by_slots(sums.item_score, frame.trait_of)
    bend = -by_slot[:, :-1] * frame.used * frame.unit * link.bend(items[:, :-1])
    own = -jax.vmap(jax.hessian(prior), over)(*slots)
    if not exact:
        bend = jnp.maximum(bend, 0.0) + LEAST_PRECISION
        own = jax.vmap(jnp.diag)(jnp.maximum(jnp.einsum("jmm->jm", own), 0.0))
    precision = curvature * jacobian[:, :, None] * jacobian[:, None, :] + own
    precision = precision + jax.vmap(jnp.diag)(jnp.pad(bend, ((0, 0), (0, 1))))
    return by_slot * jacobian + jax.vmap(jax.grad(prior), over)(*slots), precision


def trait_outer_terms(
    spec: ModelSpec,
    place: TraitPlace,
    frame: TraitFrame,
    covariance: Float[Array, "item slot_and_1 slot_and_1"],
    cells: Cells,
) -> OuterTerms:
    """Return what items and, where attempts hang together, the data say of the abilities' gauge and hyperparameters.

    Parameters
    ----------
    spec
        The model.
    place
        Modes of the items; of hyperparameters those of items and the dispersion.
    frame
        Loads and units.
    covariance
        Posterior covariances of the items.
    cells
        The data.

    Returns
    -------
    OuterTerms
        By the log scale and then the location of each trait's abilities, then the hyperparameters, expected over the
        items' posterior as in `outer_terms`.
    """
    points, weights = item_points(place.items, covariance)
    number = 2 * place.ability.shape[1]

    def log_priors(at: Float[Array, " outer"]) -> Float[Array, "point item"]:
        gauge = at[:number].reshape(2, -1)
        return jax.vmap(lambda items: log_prior_of_items(spec, items, frame, gauge, at[number:]))(points)

    outer = jnp.concatenate([jnp.zeros(number), place.hyper])
    terms: OuterTerms = terms_over(log_priors, lambda at: log_hyper(spec, at[number:]), weights, outer)
    if not cells.num_groups[0]:
        return terms
    dispersions = len(outer) - cells.num_groups[0]

    def score(logits: Float[Array, " dispersion"]) -> Float[Array, " dispersion"]:
        hyper = place.hyper.at[dispersions - number :].set(logits)

        def of_point(items: Float[Array, "item slot_and_1"]) -> Float[Array, " dispersion"]:
            at = TraitPlace(place.ability, items, hyper)
            sums = cell_sums(parameters_of_traits(spec, at, frame), observed_at(spec, cells, hyper))
            return dispersion_score(spec, sums, hyper, cells)

        return jnp.asarray(weights @ jax.lax.map(of_point, points))

    logits = place.hyper[dispersions - number :]
    return terms._replace(
        score=terms.score.at[dispersions:].add(score(logits)),
        precision=terms.precision.at[dispersions:, dispersions:].add(-jax.jacfwd(score)(logits)),
    )
