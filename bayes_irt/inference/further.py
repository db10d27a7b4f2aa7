"""Where samplers start with what neither LLM nor item has: dispersion, floors, testlets.

Each is scaled on its own, by what data and prior say about it given all else.
"""

from __future__ import annotations

import math

import jax
import jax.numpy as jnp
from jaxtyping import Array

from bayes_irt.inference.item_coordinates import count_learned, inverse_of_pairs, item_terms
from bayes_irt.inference.place import Place, parameters_of
from bayes_irt.inference.shared import observed_at, shared_terms
from bayes_irt.likelihood import Cells, cell_sums
from bayes_irt.model_spec import DISPERSION, TESTLET_SCALE, ModelSpec
from bayes_irt.models import FLOOR, TESTLET
from bayes_irt.priors import LearnedShare

_FIRST_TESTLET_SCALE = 0.3


def further(spec: ModelSpec, place: Place, unit: Array, cells: Cells) -> dict[str, tuple[Array, Array]]:
    """Return mean and standard deviation of every further unconstrained site.

    Parameters
    ----------
    spec
        The whole model.
    place
        The mode of the model without testlets, floors at their prior means.
    unit
        The items' units.
    cells
        The data.

    Returns
    -------
    dict
        Site name to mean and standard deviation: logits of dispersion and of floors, the log scale of the testlets'
        effects, and the effects in that scale, LLM by group.
    """
    parameters = parameters_of(spec, place, unit)
    num_groups = cells.num_groups[1]
    groups = cells.groups[1]
    member = None
    if groups is not None:
        member = jax.nn.one_hot(jnp.asarray(groups), num_groups, dtype=place.items.dtype)
    sums = cell_sums(
        parameters, observed_at(spec, cells, place.hyper), curvature="fisher", item_weights=member
    )
    found: dict[str, tuple[Array, Array]] = {}
    if spec.dispersed:
        _, precision = item_terms(spec, place.items, unit, place.hyper, sums)
        _, information = shared_terms(spec, place, unit, inverse_of_pairs(precision), cells)
        logits = place.hyper[count_learned(spec) :]
        information = information[-len(logits) :, -len(logits) :]
        share = jax.nn.sigmoid(logits)
        prior = (spec.dispersion.alpha + spec.dispersion.beta) * share * (1.0 - share)
        found[DISPERSION] = (logits, 1.0 / jnp.sqrt(jnp.maximum(jnp.diag(information), 0.0) + prior))
    if isinstance(spec.floor, LearnedShare):
        mean = spec.floor.mean
        held = (spec.floor.alpha + spec.floor.beta) * mean * (1.0 - mean)
        logit = jnp.full(len(unit), math.log(mean / (1.0 - mean)))
        found[FLOOR] = (logit, jnp.full(len(unit), 1.0 / math.sqrt(held)))
    if member is not None and sums.llm_weighted is not None:
        first = min(_FIRST_TESTLET_SCALE, spec.testlet_scale.median)
        found[TESTLET_SCALE] = (jnp.log(jnp.asarray(first)), jnp.asarray(0.3))
        spread = 1.0 / jnp.sqrt(1.0 + first**2 * sums.llm_weighted)
        found[TESTLET] = (jnp.zeros_like(spread), spread)
    return found
