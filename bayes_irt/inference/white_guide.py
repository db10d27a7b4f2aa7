"""SVI's guide where there is no arrow: normal in the coordinates in which NUTS samples.

There the posterior is nearly standard normal, LLM by LLM and item by item. What is left are a few directions along
which all move together, whose lengths the structured guide learns, and what hangs together within one LLM or one item:
a testlet's effect follows the LLM's ability and the effects' scale, an item follows its learned floor.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

import jax
import jax.numpy as jnp
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Float

from bayes_irt.inference.density import Target, origin, potential, sites_at
from bayes_irt.inference.directions import Directions, stretch, unstretched
from bayes_irt.inference.named_sites import named_sites
from bayes_irt.inference.start import White
from bayes_irt.likelihood import Cells
from bayes_irt.model_spec import TESTLET_SCALE, ModelSpec
from bayes_irt.models import FLOOR, TESTLET

GuideName = Literal["structured", "low-rank", "mean-field"]

#: What the structured guide learns of its map.
LENGTHS, PULL, SLOPE, BY_FLOOR = "log_lengths", "testlet_pull", "testlet_slope", "items_by_floor"


@jax.tree_util.register_dataclass
@dataclass(frozen=True, slots=True)
class WhiteCoordinates:
    """Hold the data and the coordinates of NUTS; one argument of the compiled step.

    Parameters
    ----------
    target
        Data and coordinates, nothing stretched.
    directions
        What moves together.
    """

    target: Target
    directions: Directions

    @property
    def size(self) -> int:
        """Number of coordinates."""
        return int(self.directions.vectors.shape[1])

    @property
    def num_llms(self) -> int:
        """Number of LLMs."""
        return int(self.target.start.ability.shape[0])

    @property
    def num_items(self) -> int:
        """Number of items."""
        return int(self.target.start.items.shape[0])

    @property
    def cells(self) -> Cells:
        """The data."""
        return self.target.cells


def white_coordinates(target: Target) -> WhiteCoordinates:
    """Return the coordinates in which a guide is normal.

    Parameters
    ----------
    target
        Those of NUTS.

    Returns
    -------
    WhiteCoordinates
        The same, the directions apart.
    """
    directions = target.directions
    return WhiteCoordinates(replace(target, directions=unstretched(directions.vectors.shape[1])), directions)


def first_white_guide(at: WhiteCoordinates, guide: GuideName, rank: int) -> dict[str, Array]:
    """Return what a guide starts from: the standard normal law, as wide along the directions as they are.

    Parameters
    ----------
    at
        The coordinates.
    guide
        Which guide.
    rank
        Number of common directions of the low-rank guide.

    Returns
    -------
    dict of str to jax.Array
        NumPyro's parameters of the guide.
    """
    first: dict[str, Array] = {"auto_loc": jnp.zeros(at.size), "auto_scale": jnp.ones(at.size)}
    if guide == "low-rank":
        rank = min(rank, at.size)
        excess = jnp.sqrt(at.directions.stretches**2 - 1.0)
        widest = jnp.argsort(-excess)[:rank]
        factor = (excess[:, None] * at.directions.vectors)[widest].T
        first["auto_cov_factor"] = jnp.pad(factor, ((0, 0), (0, rank - factor.shape[1])))
    return first | first_map(at, guide)


def first_map(at: WhiteCoordinates, guide: GuideName) -> dict[str, Array]:
    """Return what a guide's map starts from.

    Parameters
    ----------
    at
        The coordinates.
    guide
        Which guide; only the structured one learns of its map.

    Returns
    -------
    dict of str to jax.Array
        The logarithms of the directions' lengths; where there are testlets, by how many standard deviations answers
        pull an effect and an ability moves it; where floors are learned, by how many a floor moves its item.
    """
    if guide != "structured":
        return {}
    start = at.target.start
    learned: dict[str, Array] = {LENGTHS: jnp.log(at.directions.stretches)}
    if TESTLET in start.more:
        learned |= {name: jnp.zeros_like(start.more[TESTLET][0]) for name in (PULL, SLOPE)}
    if FLOOR in start.more:
        learned[BY_FLOOR] = jnp.zeros_like(start.items)
    return learned


def white_at(
    point: Float[Array, " size"], learned: dict[str, Array], at: WhiteCoordinates
) -> tuple[White, Float[Array, ""]]:
    """Map a point of the guide's space to the coordinates of NUTS.

    Parameters
    ----------
    point
        The point.
    learned
        What the guide has learned of the map; empty for guides without one.
    at
        The coordinates.

    Returns
    -------
    tuple
        The point there, and the map's log determinant.
    """
    _, restore = ravel_pytree(origin(at.target.start))
    if not learned:
        return restore(point), jnp.zeros(())
    directions = Directions(at.directions.vectors, jnp.exp(learned[LENGTHS]))
    white = restore(stretch(point, directions))
    # the directions need not be orthonormal: those that were not found are zero
    overlap = directions.vectors @ directions.vectors.T
    among = jnp.eye(len(overlap)) + (directions.stretches - 1.0)[:, None] * overlap
    volume = jnp.linalg.slogdet(among)[1]
    more = dict(white.more)
    if PULL in learned:
        more[TESTLET], spread = _effects(white, learned, at)
        volume = volume + spread
    if BY_FLOOR in learned:
        items = white.items + learned[BY_FLOOR] * white.more[FLOOR][:, None]
        white = replace(white, items=items)
    return replace(white, more=more), volume


def _effects(
    white: White, learned: dict[str, Array], at: WhiteCoordinates
) -> tuple[Float[Array, "llm group"], Float[Array, ""]]:
    """Let testlets' effects follow their scale and the LLM's ability.

    With scale s and information w of an LLM's answers on a group's logits, an effect in its scale is normal with
    precision ``1 + s^2 w`` and mean ``s p / (1 + s^2 w)``, where the pull p of the answers falls with the ability.
    """
    (_, sd), (first, step) = at.target.start.more[TESTLET], at.target.start.more[TESTLET_SCALE]
    scale = jnp.exp(first + step * white.more[TESTLET_SCALE])
    information = (sd**-2.0 - 1.0) / jnp.exp(2.0 * first)
    precision = 1.0 + scale**2 * information
    pull = (learned[PULL] + learned[SLOPE] * white.ability[:, None]) / (sd * jnp.exp(first))
    effect = scale * pull / precision + white.more[TESTLET] / jnp.sqrt(precision)
    return effect / sd, -0.5 * jnp.sum(jnp.log(precision * sd**2))


def white_log_density(
    spec: ModelSpec, point: Float[Array, " size"], learned: dict[str, Array], at: WhiteCoordinates
) -> Float[Array, ""]:
    """Return the log density of a point of the guide's space.

    Parameters
    ----------
    spec
        The model.
    point
        The point.
    learned
        What the guide has learned of its map.
    at
        The coordinates and the data.

    Returns
    -------
    jax.Array
        In nats, up to a constant that is the same for all guides.
    """
    white, volume = white_at(point, learned, at)
    return volume - potential(white, at.target, spec)


def white_sites(
    spec: ModelSpec, points: Float[Array, "draw size"], learned: dict[str, Array], at: WhiteCoordinates
) -> dict[str, Array]:
    """Return the sites of a posterior at points drawn, in one chain.

    Parameters
    ----------
    spec
        The model.
    points
        Points of the guide's space.
    learned
        What the guide has learned of its map.
    at
        The coordinates.

    Returns
    -------
    dict
        Site name to draws, with a chain axis of length 1.
    """

    def one(point: Float[Array, " size"]) -> dict[str, Array]:
        sites, _ = sites_at(white_at(point, learned, at)[0], at.target, spec)
        return named_sites(spec, sites, at.target.start)

    return {name: values[None] for name, values in jax.lax.map(one, points).items()}
