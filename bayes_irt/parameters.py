"""Parameters of the item response model, and the functions that need nothing else.

The logit of a correct answer of LLM i to item j is ``ability_i . discrimination_j + easiness_j`` (theta, a, d in
formulas). The paper's intercept is an easiness, the difficulty of textbooks is ``-d / |a|``.
"""

from __future__ import annotations

from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

#: Dims of every named site of the posterior, apart from ``chain`` and ``draw``; the trait dim is dropped where
#: there is one trait. The one table that labels come from.
DIMS: dict[str, tuple[str, ...]] = {
    "ability": ("llm", "trait"),
    "discrimination": ("item", "trait"),
    "easiness": ("item",),
    "discrimination_location": (),
    "discrimination_scale": (),
    "easiness_location": (),
    "easiness_scale": (),
    "ability_share": (),
    "dispersion": ("dispersion_group",),
    "floor": ("item",),
    "testlet": ("llm", "item_group"),
    "testlet_scale": (),
    "trait_correlation": ("trait_pair",),
}


@jax.tree_util.register_dataclass
@dataclass(frozen=True, slots=True)
class Parameters:
    """Hold abilities, discriminations and easinesses, for one fit or for a batch of draws.

    Parameters
    ----------
    ability
        Position of each LLM on each trait, in logits per unit of discrimination.
    discrimination
        Slope of each item on each trait, non-negative.
    easiness
        Logit of a correct answer at ability 0.

    Examples
    --------
    >>> import numpy as np
    >>> p = Parameters(ability=np.array([[-1.0], [1.0]]), discrimination=np.ones((3, 1)), easiness=np.zeros(3))
    >>> p.num_llms, p.num_items, p.num_traits
    (2, 3, 1)
    """

    ability: Float[Array | np.ndarray, "*batch llm trait"]
    discrimination: Float[Array | np.ndarray, "*batch item trait"]
    easiness: Float[Array | np.ndarray, "*batch item"]

    def at(self, index: int) -> Parameters:
        """Return one entry of a batch.

        Parameters
        ----------
        index
            Position in the first batch dim.

        Returns
        -------
        parameters.Parameters
            Without that dim.
        """
        return Parameters(self.ability[index], self.discrimination[index], self.easiness[index])

    @property
    def num_llms(self) -> int:
        """Number of LLMs."""
        return int(self.ability.shape[-2])

    @property
    def num_items(self) -> int:
        """Number of items."""
        return int(self.easiness.shape[-1])

    @property
    def num_traits(self) -> int:
        """Number of traits."""
        return int(self.ability.shape[-1])


def logits(parameters: Parameters) -> Float[Array, "*batch llm item"]:
    """Return the logit of a correct answer for every LLM and item.

    Parameters
    ----------
    parameters
        Any gauge; the answer does not depend on it.

    Returns
    -------
    jax.Array
        One value per cell: for large suites this is large, and the kernel in `likelihood` never forms it.

    Examples
    --------
    >>> import numpy as np
    >>> p = Parameters(ability=np.array([[2.0]]), discrimination=np.array([[0.5]]), easiness=np.array([1.0]))
    >>> float(logits(p)[0, 0])
    2.0
    """
    slope_part = jnp.einsum("...nk,...jk->...nj", parameters.ability, parameters.discrimination)
    return slope_part + jnp.expand_dims(parameters.easiness, -2)


def difficulty(parameters: Parameters) -> Float[np.ndarray, "*batch item"]:
    """Return each item's difficulty, the ability at which half of the answers are right.

    With several traits it is the signed distance of the item's half-right plane from the origin, ``-d / |a|``.

    Parameters
    ----------
    parameters
        Abilities are not used.

    Returns
    -------
    numpy.ndarray
        In units of ability; NaN (undefined) where the discrimination is 0.

    References
    ----------
    Reckase, M. D. (2009). Multidimensional Item Response Theory, chapter 5.

    Examples
    --------
    >>> import numpy as np
    >>> items = Parameters(np.zeros((1, 1)), np.array([[2.0], [0.0]]), np.array([1.0, 1.0]))
    >>> difficulty(items)
    array([-0.5,  nan])
    """
    norm = np.sqrt(np.sum(np.square(np.asarray(parameters.discrimination)), axis=-1))
    easiness = np.asarray(parameters.easiness)
    undefined = np.full(easiness.shape, np.nan)
    np.divide(-easiness, norm, out=undefined, where=norm > 0)
    return undefined
