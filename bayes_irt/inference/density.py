"""The density that samplers see: the model's posterior in coordinates in which it is nearly round.

Two maps follow each other: `directions.stretch` widens what LLMs and items do together, `start.unwhiten` places and
scales each of them. Everything that depends on the data is one argument, so that programs compiled for one suite serve
all of its shape.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Float
from numpyro.infer.util import potential_energy

from bayes_irt.estimate import PointEstimate
from bayes_irt.inference.ability_coordinates import extra_radius, is_far_out
from bayes_irt.inference.directions import Directions, slow_directions, stretch, unstretched
from bayes_irt.inference.further import further
from bayes_irt.inference.mode import find_mode
from bayes_irt.inference.place import Place
from bayes_irt.inference.start import Start, White, find_start, relate, unwhiten
from bayes_irt.inference.trait_mode import find_trait_mode
from bayes_irt.inference.trait_start import TraitStart, find_trait_start, unwhiten_traits
from bayes_irt.item_law import ItemLaw
from bayes_irt.likelihood import Cells, tile_cells
from bayes_irt.llm_groups import LLMGroups, groups_from_labels
from bayes_irt.model_spec import ModelSpec
from bayes_irt.models import response_model
from bayes_irt.parameters import Parameters
from bayes_irt.responses import Responses
from bayes_irt.trait_loads import TraitLoads, loads_of


@jax.tree_util.register_dataclass
@dataclass(frozen=True, slots=True)
class Target:
    """Hold the data and the coordinates in which their posterior is sampled.

    Parameters
    ----------
    cells
        The data.
    start
        The Gaussian around the mode, LLM by LLM and item by item.
    directions
        Where it is wider than that.
    """

    cells: Cells
    start: Start | TraitStart
    directions: Directions


def target_of(
    spec: ModelSpec, responses: Responses, law: ItemLaw, estimate: PointEstimate, labels: np.ndarray | None
) -> Target:
    """Find the coordinates for some responses, within an x64 context.

    Parameters
    ----------
    spec
        The model.
    responses
        The data.
    law
        What the model says of single items.
    estimate
        A penalised estimate of the same responses.
    labels
        Each LLM's group; None where nobody is related.

    Returns
    -------
    Target
        Data and coordinates.
    """
    cells = jax.device_put(tile_cells(responses.successes, responses.attempts, law=law))
    groups = None if labels is None else jax.tree.map(jnp.asarray, groups_from_labels(labels))
    loads = None if law.traits is None else jax.tree.map(jnp.asarray, loads_of(law.traits))
    return find_target(spec, jax.tree.map(jnp.asarray, estimate.parameters), cells, groups, loads)


def find_target(
    spec: ModelSpec,
    estimate: Parameters,
    cells: Cells,
    groups: LLMGroups | None = None,
    loads: TraitLoads | None = None,
) -> Target:
    """Find the coordinates for some data.

    Parameters
    ----------
    spec
        The model.
    estimate
        A penalised point estimate in the canonical gauge.
    cells
        The data.
    groups
        Which LLMs are related, where the model has groups. The mode is that of unrelated ones.
    loads
        Which items load on which trait, where the model has several.

    Returns
    -------
    Target
        Data and coordinates.
    """
    if loads is not None:
        found = find_trait_mode(spec, estimate, loads, cells)
        around = _trait_start(spec, found.place, found.unit, cells)
        return Target(cells, around, _directions(spec, around, cells))
    mode = find_mode(spec.for_mode(), estimate, cells)
    start = _start(spec, mode.place, mode.unit, cells, groups)
    far_out = groups is None and is_far_out(np.asarray(start.ability), np.asarray(start.ability_sd))
    start = replace(start, far_out=far_out)
    return Target(cells, start, _directions(spec, start, cells))


@partial(jax.jit, static_argnames="spec")
def _start(
    spec: ModelSpec, place: Place, unit: Float[Array, " item"], cells: Cells, groups: LLMGroups | None
) -> Start:
    start = find_start(spec.for_mode(), place, unit, cells)
    if groups is not None:
        start = relate(spec, start, groups)
    return replace(start, more=further(spec, place, unit, cells))


_trait_start = partial(jax.jit, static_argnames="spec")(find_trait_start)


@partial(jax.jit, static_argnames="spec")
def _directions(spec: ModelSpec, start: Start | TraitStart, cells: Cells) -> Directions:
    flat, restore = ravel_pytree(origin(start))
    plain = Target(cells, start, unstretched(flat.size))
    return slow_directions(lambda point: potential(restore(point), plain, spec), flat.size)


def origin(start: Start | TraitStart) -> White:
    """Return the point from which the coordinates are counted.

    Parameters
    ----------
    start
        The Gaussian around the mode.

    Returns
    -------
    White
        Zeros.
    """
    more = {name: jnp.zeros_like(mean) for name, (mean, _) in start.more.items()}
    ability, items, hyper = (jnp.zeros_like(part) for part in (start.ability, start.items, start.hyper))
    return White(ability, items, hyper, more)


def sites_at(white: White, target: Target, spec: ModelSpec) -> tuple[dict[str, Array], Float[Array, ""]]:
    """Map a point to NumPyro's unconstrained sites.

    Parameters
    ----------
    white
        The point; around the mode its law is nearly standard normal.
    target
        The coordinates.
    spec
        The model.

    Returns
    -------
    tuple
        Site name to unconstrained value, and the log determinant of the map, up to a constant.
    """
    flat, restore = ravel_pytree(white)
    moved, start = restore(stretch(flat, target.directions)), target.start
    if isinstance(start, TraitStart):
        return unwhiten_traits(moved, start, spec)
    return unwhiten(moved, start, spec)


def log_densities(
    sites: dict[str, Array], target: Target, spec: ModelSpec
) -> tuple[Float[Array, ""], Float[Array, ""]]:
    """Return the log joint density of the sites and, for two LLMs, of their mirror image.

    Two standardised abilities are 1 and -1 in either order: nothing in between could be sampled, so the order is
    summed over and drawn afterwards.

    Parameters
    ----------
    sites
        Unconstrained values.
    target
        The data.
    spec
        The model.

    Returns
    -------
    tuple
        Both log densities; the second is minus infinity for three or more LLMs.
    """
    num_llms, num_items = sites["ability_raw"].shape[0], sites["easiness"].shape[0]
    start = target.start
    known = (None, start.frame.loads) if isinstance(start, TraitStart) else (start.groups, None)
    arguments = (spec, num_llms, num_items, target.cells, *known)
    density = -jnp.asarray(potential_energy(response_model, arguments, {}, sites))
    if num_llms > 2:
        return density, jnp.array(-jnp.inf)
    mirrored = {**sites, "ability_raw": -sites["ability_raw"]}
    return density, -jnp.asarray(potential_energy(response_model, arguments, {}, mirrored))


def potential(white: White, target: Target, spec: ModelSpec) -> Float[Array, ""]:
    """Return minus the log density of a point.

    Parameters
    ----------
    white
        The point.
    target
        Data and coordinates.
    spec
        The model.

    Returns
    -------
    jax.Array
        The potential energy, up to a constant.
    """
    sites, log_determinant = sites_at(white, target, spec)
    density = jnp.logaddexp(*log_densities(sites, target, spec)) + log_determinant
    if isinstance(target.start, TraitStart):
        return -density  # correlated radii tell of the correlations: their law is the model's
    raw = sites["ability_raw"]
    return -density - extra_radius(raw.shape[0]) * jnp.log(jnp.linalg.norm(raw - raw.mean()))
