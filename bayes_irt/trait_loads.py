"""Which discriminations there are, where items load on some of several traits."""

from __future__ import annotations

from dataclasses import dataclass, field

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Integer

from bayes_irt.item_law import ItemTraits


@jax.tree_util.register_dataclass
@dataclass(frozen=True, slots=True)
class TraitLoads:
    """List the discriminations that are not zero by the model, item by item.

    Parameters
    ----------
    item, trait
        The item and the trait of each.
    slot
        Its number among those of its item.
    num_traits
        Number of traits.
    num_slots
        Most traits that one item loads on.

    Examples
    --------
    >>> loads = loads_of(ItemTraits(("a", "b"), np.array([[True, False], [True, True]])))
    >>> loads.item.tolist(), loads.trait.tolist(), loads.slot.tolist(), loads.num_slots
    ([0, 1, 1], [0, 0, 1], [0, 0, 1], 2)
    """

    item: Integer[Array | np.ndarray, " load"]
    trait: Integer[Array | np.ndarray, " load"]
    slot: Integer[Array | np.ndarray, " load"]
    num_traits: int = field(metadata={"static": True})
    num_slots: int = field(metadata={"static": True})

    def dense(self, values: Float[Array, " load"], num_items: int) -> Float[Array, "item trait"]:
        """Return discriminations as a matrix, 0 where an item does not load.

        Parameters
        ----------
        values
            One per load.
        num_items
            Number of items.

        Returns
        -------
        jax.Array
            Item by trait.
        """
        return jnp.zeros((num_items, self.num_traits), values.dtype).at[self.item, self.trait].set(values)


def loads_of(traits: ItemTraits) -> TraitLoads:
    """List the loads of a model.

    Parameters
    ----------
    traits
        Which items load on which trait.

    Returns
    -------
    TraitLoads
        By item, then by trait.

    Examples
    --------
    >>> loads = loads_of(ItemTraits(("a", "b"), np.eye(2, dtype=bool)))
    >>> loads.dense(jnp.array([0.5, 2.0]), 2).tolist()
    [[0.5, 0.0], [0.0, 2.0]]
    """
    item, trait = np.nonzero(traits.loads)
    slot = (np.cumsum(traits.loads, axis=1) - 1)[item, trait]
    return TraitLoads(item, trait, slot, traits.num_traits, int(slot.max()) + 1)
