"""`Place`: where abilities, items and hyperparameters are, in the coordinates of `item_coordinates`."""

from __future__ import annotations

from dataclasses import dataclass

import jax
from jaxtyping import Array, Float


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
