"""`Place`: where abilities, items and hyperparameters are, in the coordinates of `item_coordinates`."""

from __future__ import annotations

from dataclasses import dataclass

import jax
import numpy as np
from jaxtyping import Array, Float

from bayes_irt.inference.item_coordinates import as_parameters, constrained_draws, units_at
from bayes_irt.model_spec import ModelSpec
from bayes_irt.parameters import Parameters
from bayes_irt.priors import Common


@jax.tree_util.register_dataclass
@dataclass(frozen=True, slots=True)
class Place:
    """Hold abilities, items and hyperparameters in the coordinates of `item_coordinates`.

    Parameters
    ----------
    ability
        Standardised abilities.
    items
        u and easiness of each item.
    hyper
        Locations and log scales of the item priors, then the logits of dispersion where attempts hang together.
    """

    ability: Float[Array, " llm"]
    items: Float[Array, "item 2"]
    hyper: Float[Array, " hyper"]


def parameters_of(spec: ModelSpec, place: Place, unit: Float[Array, " item"]) -> Parameters:
    """Return the parameters of a place, or of a batch of places.

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
    return as_parameters(spec, place.ability, place.items, units_at(spec, unit, place.hyper))


def sites_of(spec: ModelSpec, places: Place, unit: Float[Array, " item"]) -> dict[str, np.ndarray]:
    """Return the sites of a posterior at places drawn, in one chain.

    Parameters
    ----------
    spec
        The model.
    places
        A batch of places; abilities may have any location and scale.
    unit
        The items' units.

    Returns
    -------
    dict
        Site name to draws, with a chain axis of length 1; abilities are not in the gauge yet.
    """
    with jax.enable_x64(True):
        drawn = jax.device_get(parameters_of(spec, places, unit))
    learned = constrained_draws(spec, np.asarray(places.hyper))
    if isinstance(spec.priors.discrimination, Common):
        learned["discrimination_location"] = learned["discrimination_location"] + np.log(
            np.asarray(places.ability).std(axis=-1)
        )
    sites = {
        "ability": drawn.ability,
        "discrimination": drawn.discrimination,
        "easiness": drawn.easiness,
        **learned,
    }
    return {name: np.asarray(value, dtype=np.float64)[None] for name, value in sites.items()}
