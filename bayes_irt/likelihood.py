"""The kernel: log-likelihood, score and curvature of every cell in one pass over the data.

From eta = theta . a + d every cell yields its loss (minus the log-likelihood), its score G = y - n p and a weight W;
the pass returns their sums per item and per LLM and never holds a matrix of cells. It is a scan over tiles of LLM
rows: a tile's cells are computed in float32 while they are in cache and reduced by small matrix products; the sums
over tiles are float64. Where no cell has more than one attempt, a cell is one signed byte and its loss a factor of a
product of four, which takes one logarithm. Everything in the package spends its time here.

Call it inside ``jax.enable_x64(True)``: without it the float64 sums degrade to float32.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.typing import DTypeLike
from jaxtyping import Array, Float, Integer, UInt

from bayes_irt.beta_binomial import beta_binomial_cell
from bayes_irt.cell_functions import FACTORS, CellTerms, Curvature, binomial_cell, floor_cell, outcome_cell
from bayes_irt.errors import InvalidConfigurationError
from bayes_irt.item_law import ItemLaw
from bayes_irt.parameters import Parameters

Precision = Literal["mixed", "float64"]

# A tile of 2^19 cells is 2 MB in float32, about the cache of two cores.
_CELLS_PER_TILE = 2**19


@jax.tree_util.register_dataclass
@dataclass(frozen=True, slots=True)
class Cells:
    """Hold the counts in tiles of LLM rows, ready for the pass.

    Parameters
    ----------
    counts
        Where no cell has more than one attempt: outcomes, 1 right, -1 wrong, 0 missing. Else right answers and
        attempts, 0 attempts being missing. Rows that only fill up the last tile are missing.
    precision
        "mixed": cells in float32, sums in float64. "float64": float64 throughout.
    cell
        What a cell contributes, a function of its logit, its counts and the law's parameters, see `cell_functions`.
    shape
        Parameters of the law other than the logit, each one number per item: none, or the floor, or floor and
        dispersion.
    groups
        Position of each item's group, for what items share: of those with a common dispersion, and of testlets (-1 for
        none); None where the model has no such thing.
    num_groups
        How many groups there are of either.
    """

    counts: tuple[Integer[Array | np.ndarray, "tile row item"], ...]
    precision: Precision = field(metadata={"static": True})
    cell: Callable[..., CellTerms] = field(metadata={"static": True})
    shape: tuple[Float[Array | np.ndarray, " item"], ...] = ()
    groups: tuple[Integer[Array | np.ndarray, " item"] | None, ...] = (None, None)
    num_groups: tuple[int, int] = field(default=(0, 0), metadata={"static": True})

    @property
    def cell_type(self) -> DTypeLike:
        """The precision in which cells are computed."""
        return jnp.float32 if self.precision == "mixed" else jnp.float64

    def terms(
        self,
        eta: Float[Array, "row item"],
        counts: tuple[Integer[Array, "row item"], ...],
        curvature: Curvature | None,
    ) -> CellTerms:
        """Return what the cells of one tile contribute.

        Parameters
        ----------
        eta
            Their logits.
        counts
            The tile's counts.
        curvature
            The weight wanted.

        Returns
        -------
        CellTerms
            Loss, score and weight of each.
        """
        given = (*counts, *map(jnp.asarray, self.shape))
        return self.cell(eta, *(value.astype(eta.dtype) for value in given), curvature=curvature)

    def with_shape(self, *shape: Float[Array | np.ndarray, " item"]) -> Cells:
        """Return the same counts under other parameters of the law.

        Parameters
        ----------
        shape
            In the law's order.

        Returns
        -------
        Cells
            The counts.
        """
        return replace(self, shape=shape)


def tile_cells(
    successes: UInt[np.ndarray, "llm item"],
    attempts: UInt[np.ndarray, "llm item"],
    precision: Precision = "mixed",
    law: ItemLaw | None = None,
) -> Cells:
    """Cut the counts into tiles of rows.

    Parameters
    ----------
    successes
        Right answers.
    attempts
        Attempts; 0 is missing.
    precision
        "mixed" or "float64", see `Cells`.
    law
        What the model says of single items; None for a plain 2PL. Where attempts hang together the law is
        beta-binomial, with dispersion 0 until `Cells.with_shape` says otherwise.

    Returns
    -------
    Cells
        Tiles of equal size; missing rows fill up the last one.

    Examples
    --------
    >>> import numpy as np
    >>> counts = np.ones((130, 10), dtype=np.uint8)
    >>> [tile.shape for tile in tile_cells(counts, counts).counts]
    [(1, 132, 10)]
    """
    num_llms, num_items = successes.shape
    rows = max(FACTORS, _CELLS_PER_TILE // num_items)
    tiles = math.ceil(num_llms / rows)
    rows = math.ceil(num_llms / tiles / FACTORS) * FACTORS
    padding = ((0, tiles * rows - num_llms), (0, 0))
    counts: tuple[np.ndarray, ...] = (successes, attempts)
    cell: Callable[..., CellTerms] = binomial_cell
    shape: tuple[np.ndarray, ...] = ()
    law = ItemLaw(None, None, None) if law is None else law
    if law.dispersion is not None:
        none = np.zeros(num_items)
        cell, shape = beta_binomial_cell, (none if law.floor is None else law.floor, none)
    elif law.floor is not None:
        cell, shape = floor_cell, (law.floor,)
    elif attempts.max(initial=0) <= 1:
        counts, cell = (2 * successes.astype(np.int8) - attempts.astype(np.int8),), outcome_cell
    tiled = tuple(np.pad(count, padding).reshape(tiles, rows, num_items) for count in counts)
    kinds = (law.dispersion, law.testlets)
    groups = tuple(None if kind is None else kind.number for kind in kinds)
    sizes = tuple(0 if kind is None else len(kind.labels) for kind in kinds)
    return Cells(tiled, precision, cell, shape, groups, (sizes[0], sizes[1]))


class Sums(NamedTuple):
    """Sums over cells; the last place of an item's axis is its easiness, the others its discriminations.

    Attributes
    ----------
    loss
        Minus the log-likelihood, without binomial coefficients; None unless asked for.
    item_score
        Derivative of the log-likelihood by each item's (a, d).
    item_curvature
        Sum of W x x' with x = (theta, 1), per item; None unless asked for.
    llm_score
        Derivative of the log-likelihood by each LLM's ability.
    llm_curvature
        Sum of W a a', per LLM; None unless asked for.
    llm_weighted
        Sum of W times each item weight, per LLM; None unless item weights are given.
    shape_score
        Derivative of the log-likelihood by each item's floor and dispersion, where the law has them.
    """

    loss: Float[Array, ""] | None
    item_score: Float[Array, "item trait_and_1"]
    item_curvature: Float[Array, "item trait_and_1 trait_and_1"] | None
    llm_score: Float[Array, "llm trait"]
    llm_curvature: Float[Array, "llm trait trait"] | None
    llm_weighted: Float[Array, "llm weight"] | None
    shape_score: tuple[Float[Array, " item"], ...] = ()


def cell_sums(
    parameters: Parameters,
    cells: Cells,
    *,
    loss: bool = False,
    curvature: Curvature | None = None,
    anchor: Parameters | None = None,
    item_weights: Float[Array, "item weight"] | None = None,
) -> Sums:
    """Run one pass over the data.

    Parameters
    ----------
    parameters
        Where score and curvature are wanted, and what reduces them.
    cells
        The counts.
    loss
        Whether the loss is wanted (with many attempts per cell it is the dear part).
    curvature
        The weight wanted, see `binomial_cell`; None for none.
    anchor
        Where the data are majorised: given it, the score is that of the parabola that touches the loss at the
        anchor, ``G(anchor) - W(anchor) (eta - eta_anchor)``, at the parameters. Needs `curvature`.
    item_weights
        Further weights by which W is summed per LLM. Needs `curvature`.

    Returns
    -------
    Sums
        What is not used costs nothing inside ``jax.jit``.

    Raises
    ------
    InvalidConfigurationError
        If an anchor or item weights are given without a curvature.

    Examples
    --------
    >>> import numpy as np
    >>> y = np.array([[0, 1], [1, 1]], dtype=np.uint8)
    >>> p = Parameters(np.zeros((2, 1)), np.ones((2, 1)), np.zeros(2))
    >>> with jax.enable_x64(True):
    ...     sums = cell_sums(p, tile_cells(y, np.ones_like(y)), loss=True)
    >>> round(float(sums.loss), 4), sums.item_score[:, 1].tolist(), sums.llm_score.ravel().tolist()
    (2.7726, [0.0, 1.0], [0.0, 1.0])
    """
    if curvature is None and (anchor is not None or item_weights is not None):
        raise InvalidConfigurationError("An anchor and item weights need a curvature.")
    tiles, rows, _ = cells.counts[0].shape
    traits = parameters.num_traits
    cell_type = cells.cell_type
    here = _Side.of(parameters, (tiles, rows), cell_type)
    touch = here if anchor is None else _Side.of(anchor, (tiles, rows), cell_type)
    pairs = np.triu_indices(traits + 1)
    slope_pairs = np.triu_indices(traits)
    by_weight = here.discrimination[:, slope_pairs[0]] * here.discrimination[:, slope_pairs[1]]
    if item_weights is not None:
        by_weight = jnp.concatenate([by_weight, jnp.asarray(item_weights, cell_type)], axis=1)

    def visit(total: dict[str, Array], tile: tuple[Any, ...]) -> tuple[dict[str, Array], dict[str, Array]]:
        theta, theta_touch, counts = tile
        eta = touch.logits(theta_touch)
        terms = cells.terms(eta, counts, curvature)
        score, weight = terms.score, terms.weight
        if anchor is not None and weight is not None:
            score = score - weight * (here.logits(theta) - eta)
        features = jnp.concatenate([theta, jnp.ones_like(theta[:, :1])], axis=1)
        sums = {"item_score": features.T @ score}
        rows_out = {"llm_score": here.discrimination.T @ score.T}
        sums |= {f"shape_{place}": by.sum(axis=0) for place, by in enumerate(terms.shape_scores)}
        if loss:
            sums["loss"] = _tile_loss(terms)
        if weight is not None:
            sums["item_curvature"] = (features[:, pairs[0]] * features[:, pairs[1]]).T @ weight
            rows_out["llm_curvature"] = by_weight.T @ weight.T
        return {name: total[name] + sums[name] for name in total}, rows_out

    zero = {"item_score": jnp.zeros((traits + 1, parameters.num_items))}
    shaped = [f"shape_{place}" for place in range(len(cells.shape))]
    zero |= {name: jnp.zeros(parameters.num_items) for name in (*shaped, *(["loss"] if loss else []))}
    zero |= {"item_curvature": jnp.zeros((len(pairs[0]), parameters.num_items))} if curvature else {}
    total, per_row = lax.scan(visit, zero, (here.ability, touch.ability, cells.counts))
    per_llm = {
        name: jnp.moveaxis(value, 1, 2).reshape(tiles * rows, -1)[: parameters.num_llms].astype(jnp.float64)
        for name, value in per_row.items()
    }
    by_llm = per_llm.get("llm_curvature")
    packed = len(slope_pairs[0])
    return Sums(
        loss=total["loss"].sum() if loss else None,
        item_score=total["item_score"].T,
        item_curvature=_symmetric(total["item_curvature"].T, traits + 1) if curvature else None,
        llm_score=per_llm["llm_score"],
        llm_curvature=None if by_llm is None else _symmetric(by_llm[:, :packed], traits),
        llm_weighted=None if by_llm is None or item_weights is None else by_llm[:, packed:],
        shape_score=tuple(total[name] for name in shaped),
    )


class _Side(NamedTuple):
    """Parameters cast to the cells' precision, abilities cut into tiles."""

    ability: Float[Array, "tile row trait"]
    discrimination: Float[Array, "item trait"]
    easiness: Float[Array, " item"]

    @classmethod
    def of(cls, parameters: Parameters, shape: tuple[int, int], cell_type: DTypeLike) -> _Side:
        missing = shape[0] * shape[1] - parameters.num_llms
        ability = jnp.pad(jnp.asarray(parameters.ability, cell_type), ((0, missing), (0, 0)))
        return cls(
            ability.reshape(*shape, -1),
            jnp.asarray(parameters.discrimination, cell_type),
            jnp.asarray(parameters.easiness, cell_type),
        )

    def logits(self, ability: Float[Array, "row trait"]) -> Float[Array, "row item"]:
        if ability.shape[1] == 1:
            return ability * self.discrimination[:, 0] + self.easiness
        return jnp.matmul(ability, self.discrimination.T, precision=lax.Precision.HIGHEST) + self.easiness


def _tile_loss(terms: CellTerms) -> Float[Array, " item"]:
    if terms.factor is None:
        return terms.linear.sum(axis=0)
    shape = (FACTORS, -1, terms.factor.shape[1])
    factors, rests = terms.factor.reshape(shape), terms.linear.reshape(shape)
    # written out and in one expression, so that the compiler goes through the cells once
    product, rest = factors[0], rests[0]
    for part in range(1, FACTORS):
        product, rest = product * factors[part], rest + rests[part]
    return (jnp.log(product) + rest).sum(axis=0)


def _symmetric(packed: Float[Array, "unit pair"], size: int) -> Float[Array, "unit size size"]:
    """Unpack upper triangles into symmetric matrices."""
    upper = np.triu_indices(size)
    place = np.zeros((size, size), dtype=int)
    place[upper] = np.arange(len(upper[0]))
    place = np.maximum(place, place.T)
    return packed[:, place]


@jax.custom_vjp
def log_likelihood(parameters: Parameters, cells: Cells) -> Float[Array, ""]:
    """Return the log-likelihood; its gradient comes from the same pass.

    Parameters
    ----------
    parameters
        One set of parameters (use ``jax.vmap`` for more).
    cells
        The counts.

    Returns
    -------
    jax.Array
        Sum over cells, without binomial coefficients.

    Examples
    --------
    >>> import numpy as np
    >>> y = np.array([[0, 1], [1, 1]], dtype=np.uint8)
    >>> p = Parameters(np.zeros((2, 1)), np.ones((2, 1)), np.zeros(2))
    >>> with jax.enable_x64(True):
    ...     print(jax.grad(log_likelihood)(p, tile_cells(y, np.ones_like(y))).easiness)
    [0. 1.]
    """
    total = cell_sums(parameters, cells, loss=True).loss
    return -jnp.asarray(total)


def _log_likelihood_forward(
    parameters: Parameters, cells: Cells
) -> tuple[Array, tuple[Parameters, tuple[Array, ...], Cells]]:
    sums = cell_sums(parameters, cells, loss=True)
    gradient = Parameters(sums.llm_score, sums.item_score[:, :-1], sums.item_score[:, -1])
    gradient = jax.tree.map(lambda g, p: g.astype(jnp.asarray(p).dtype), gradient, parameters)
    return -jnp.asarray(sums.loss), (gradient, sums.shape_score, cells)


def _log_likelihood_backward(
    kept: tuple[Parameters, tuple[Array, ...], Cells], cotangent: Array
) -> tuple[Parameters, Cells]:
    gradient, shape_score, cells = kept
    by_shape = tuple(
        (cotangent * score).astype(jnp.asarray(value).dtype)
        for score, value in zip(shape_score, cells.shape, strict=True)
    )
    counts: Any = (None,) * len(cells.counts)  # whole numbers have no derivative
    by_cells = replace(cells, counts=counts, shape=by_shape, groups=(None, None))
    return jax.tree.map(lambda g: (cotangent * g).astype(g.dtype), gradient), by_cells


log_likelihood.defvjp(_log_likelihood_forward, _log_likelihood_backward)
