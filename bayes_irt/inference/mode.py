"""The mode of abilities and item scales with the items integrated out, and the items there.

A joint mode would not do: with few LLMs and many items it takes shrunken discriminations at their word, and the scales
of the item priors collapse. So abilities and hyperparameters are found by EM: each item's posterior given abilities is
taken as normal around its mode, and scores are expected over it.

Abilities move freely under the prior that the volume of the sphere gives them (close to a standard normal one) and are
brought back to mean 0 and standard deviation 1 after every step. On the sphere itself there is no such prior: its
densest point may have one LLM with nothing to hold it far out and all others in a heap. Cycles are mixed by Anderson's
acceleration.

References
----------
Dempster, A. P., Laird, N. M. & Rubin, D. B. (1977). Maximum likelihood from incomplete data via the EM algorithm.
Journal of the Royal Statistical Society B 39, 1-38.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from bayes_irt.identify import standardise
from bayes_irt.inference.item_coordinates import (
    first_items,
    hyper_medians,
    inverse_of_pairs,
    item_terms,
    link_of,
)
from bayes_irt.inference.outer_terms import OuterTerms, outer_terms
from bayes_irt.inference.place import Place, parameters_of
from bayes_irt.inference.shared import observed_at, shared_places, shared_terms
from bayes_irt.likelihood import Cells, Sums, cell_sums
from bayes_irt.mixing import Mixing
from bayes_irt.model_spec import ModelSpec
from bayes_irt.parameters import Parameters

_MOST_CYCLES = 200
_WORST_GROWTH = 3.0
# Of a mixture, in logits or their logarithms.
_LONGEST_MOVE = 1.0
TOLERANCE = 1e-3


@dataclass(frozen=True, slots=True)
class Mode:
    """Hold the mode and how it was reached.

    Parameters
    ----------
    place
        Where it is.
    unit
        The items' units.
    change
        Largest last step, in posterior standard deviations given all else.
    cycles
        Number of cycles taken.
    """

    place: Place
    unit: Float[Array, " item"]
    change: float
    cycles: int

    @property
    def converged(self) -> bool:
        """Say whether the search ended by its own rule."""
        return self.converged_to(TOLERANCE)

    def converged_to(self, tolerance: float) -> bool:
        """Say whether the last step was below a tolerance.

        Parameters
        ----------
        tolerance
            Share of a posterior standard deviation.

        Returns
        -------
        bool
            False where it was not, or was no number.
        """
        return self.change < tolerance


def find_mode(spec: ModelSpec, estimate: Parameters, cells: Cells, *, tolerance: float = TOLERANCE) -> Mode:
    """Search the mode from a point estimate.

    Parameters
    ----------
    spec
        The model.
    estimate
        A penalised point estimate in the canonical gauge, with one trait.
    cells
        The data.
    tolerance
        Steps below this share of a posterior standard deviation end the search.

    Returns
    -------
    Mode
        The mode; if 200 cycles do not find it, the last place, not converged.
    """
    medians = hyper_medians(spec, cells.num_groups[0])
    first, unit = _first_place(
        spec, estimate, fisher_sums(estimate, observed_at(spec, cells, medians)), medians
    )
    mode = _search(spec, first, unit, cells, tolerance, Mixing())
    return mode if mode.converged_to(tolerance) else _search(spec, first, unit, cells, tolerance, None)


def _search(
    spec: ModelSpec,
    place: Place,
    unit: Float[Array, " item"],
    cells: Cells,
    tolerance: float,
    mixing: Mixing | None,
) -> Mode:
    """Take cycles until they stand still; without mixing they are slower but cannot overshoot."""
    best, change, cycle = np.inf, np.inf, 0
    while cycle < _MOST_CYCLES and change >= tolerance:
        cycle += 1
        after, scale = jax.device_get(_cycle(spec, place, unit, cells))
        before, end, weight = _flat(place), _flat(after), _flat(scale)
        change = float(np.max(np.abs(end - before) * weight))
        if not np.isfinite(change):
            break
        mixed = None
        if mixing is not None:
            if change > _WORST_GROWTH * best:
                mixing.forget(all_of_it=True)
            mixed = mixing.mix(before, end, weight)
        best = min(best, change)
        if mixed is None or change < tolerance:
            place = after
        else:
            place = _restored(after, before + np.clip(mixed - before, -_LONGEST_MOVE, _LONGEST_MOVE))
    return Mode(place, unit, change, cycle)


@jax.jit
def fisher_sums(parameters: Parameters, cells: Cells) -> Sums:
    """Return score and Fisher's curvature, by one program wherever they are wanted.

    Parameters
    ----------
    parameters
        Where.
    cells
        The data.

    Returns
    -------
    Sums
        Those of `cell_sums`.
    """
    return cell_sums(parameters, cells, curvature="fisher")


@partial(jax.jit, static_argnames="spec")
def _first_place(
    spec: ModelSpec, estimate: Parameters, sums: Sums, hyper: Float[Array, " hyper"]
) -> tuple[Place, Array]:
    items, unit = first_items(spec, estimate, sums)
    ability = estimate.ability[:, 0]
    # where all are equal any order will do; the sphere has no centre
    ability = jnp.where(jnp.ptp(ability) > 0, ability, jnp.arange(len(ability), dtype=ability.dtype))
    # of a strong type, as later places have: else all would be compiled twice
    return Place(standardise(ability), items, hyper.astype(ability.dtype)), unit


def _cycle(spec: ModelSpec, place: Place, unit: Float[Array, " item"], cells: Cells) -> tuple[Place, Place]:
    """Take items, then hyperparameters, then abilities; return also what a unit step is, one over its sd."""
    shaped = observed_at(spec, cells, place.hyper)
    sums = fisher_sums(parameters_at(spec, place, unit), shaped)
    items, precision, covariance = _item_step(spec, place, unit, sums)
    moved = Place(place.ability, items, place.hyper)
    terms = all_outer_terms(spec, moved, unit, covariance, cells)
    after: tuple[Place, Place] = _outer_step(spec, moved, unit, (precision, covariance), terms, shaped)
    return after


def all_outer_terms(
    spec: ModelSpec,
    place: Place,
    unit: Float[Array, " item"],
    covariance: Float[Array, "item 2 2"],
    cells: Cells,
) -> OuterTerms:
    """Return what items and, where attempts hang together, the data say of all that is not LLM or item.

    Parameters
    ----------
    spec
        The model.
    place
        Where.
    unit
        The items' units.
    covariance
        Covariance of each item's (u, d).
    cells
        The data.

    Returns
    -------
    OuterTerms
        Those of `outer_terms`, with the likelihood's own.
    """
    terms: OuterTerms = outer_terms(spec, place.items, unit, covariance, place.hyper)
    places = 2 + shared_places(spec, cells)
    if not len(places):
        return terms
    score, information = _shared_terms(spec, place, unit, covariance, cells)
    return terms._replace(
        score=terms.score.at[places].add(score),
        precision=terms.precision.at[np.ix_(places, places)].add(information),
    )


_shared_terms = jax.jit(shared_terms, static_argnames="spec")


@partial(jax.jit, static_argnames="spec")
def parameters_at(spec: ModelSpec, place: Place, unit: Float[Array, " item"]) -> Parameters:
    """Return the parameters of a place.

    Parameters
    ----------
    spec
        The model.
    place
        The place.
    unit
        The items' units.

    Returns
    -------
    parameters.Parameters
        With one trait.
    """
    return parameters_of(spec, place, unit)


@partial(jax.jit, static_argnames="spec")
def _item_step(
    spec: ModelSpec, place: Place, unit: Float[Array, " item"], sums: Sums
) -> tuple[Array, Array, Array]:
    score, precision = item_terms(spec, place.items, unit, place.hyper, sums)
    covariance = inverse_of_pairs(precision)
    items = place.items + jnp.clip(jnp.einsum("jkl,jl->jk", covariance, score), -1.0, 1.0)
    return items, precision, covariance


@partial(jax.jit, static_argnames="spec")
def _outer_step(
    spec: ModelSpec,
    place: Place,
    unit: Float[Array, " item"],
    pairs: tuple[Float[Array, "item 2 2"], Float[Array, "item 2 2"]],
    terms: OuterTerms,
    cells: Cells,
) -> tuple[Place, Place]:
    """Take hyperparameters and abilities, given the items, their precision and covariance."""
    precision, covariance = pairs
    hyper_score, hyper_precision = terms.score[2:], terms.precision[2:, 2:]
    values, vectors = jnp.linalg.eigh(hyper_precision)
    values = jnp.maximum(values, 1.0)  # directions flatter than sd 1 are held to it
    hyper = place.hyper + jnp.clip(vectors @ ((vectors.T @ hyper_score) / values), -0.5, 0.5)
    step, information = ability_step(spec, place, unit, covariance, cells)
    scale = Place(
        jnp.sqrt(information),
        jnp.sqrt(jnp.einsum("jkk->jk", precision)),
        jnp.sqrt(jnp.maximum(jnp.diag(hyper_precision), 1.0)),
    )
    # items stay: at the end nothing is left of the step but location and scale, which go
    return Place(standardise(place.ability + jnp.clip(step, -1.0, 1.0)), place.items, hyper), scale


def ability_step(
    spec: ModelSpec,
    place: Place,
    unit: Float[Array, " item"],
    covariance: Float[Array, "item 2 2"],
    cells: Cells,
) -> tuple[Float[Array, " llm"], Float[Array, " llm"]]:
    """Return a Newton step of the abilities on the log-likelihood expected over the items, plus the sphere's volume.

    To first order in the items' covariance E[a G] = a G - W (theta Var a + Cov(a, d)). What the scores of all abilities
    have in common in location and scale is the item priors' concern.

    Parameters
    ----------
    spec
        The model.
    place
        Where.
    unit
        The items' units.
    covariance
        Covariance of each item's (u, d).
    cells
        The data.

    Returns
    -------
    tuple of jax.Array
        The step, which may move location and scale; and the information about each ability.
    """
    rise = unit * link_of(spec).rise(place.items[:, 0])
    spread = jnp.stack([rise**2 * covariance[:, 0, 0], rise * covariance[:, 0, 1]], axis=1)
    parameters = parameters_of(spec, place, unit)
    sums = cell_sums(parameters, cells, curvature="fisher", item_weights=spread)
    assert sums.llm_curvature is not None
    assert sums.llm_weighted is not None
    score = sums.llm_score[:, 0] - place.ability * sums.llm_weighted[:, 0] - sums.llm_weighted[:, 1]
    score = score - score.mean() - place.ability
    information = 1.0 + sums.llm_curvature[:, 0, 0] + sums.llm_weighted[:, 0]
    return score / information, information


def _flat(place: Place) -> np.ndarray:
    return np.concatenate([np.ravel(leaf) for leaf in jax.tree.leaves(jax.device_get(place))])


def _restored(like: Place, flat: np.ndarray) -> Place:
    """Restore a place from one vector, its abilities on the sphere."""
    ability, items, hyper = np.split(flat, np.cumsum([np.size(like.ability), np.size(like.items)]))
    centred = ability - ability.mean()
    return Place(jnp.asarray(centred / centred.std()), jnp.asarray(items.reshape(-1, 2)), jnp.asarray(hyper))
