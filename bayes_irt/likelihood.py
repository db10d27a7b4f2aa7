"""The kernel: log-likelihood, score and curvature of every cell in one pass over the data.

From eta = theta . a + d every cell yields its loss (minus the log-likelihood), its score G = y - n p and a weight W;
the pass returns their sums per item and per LLM and never holds a matrix of cells. It is a scan over tiles of LLM
rows: a tile's cells are computed in float32 while they are in cache and reduced by small matrix products; the sums
over tiles are float64. Everything in the package spends its time here.

Call it inside ``jax.enable_x64(True)``: without it the float64 sums degrade to float32.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.typing import DTypeLike
from jaxtyping import Array, Float, UInt

from bayes_irt.errors import InvalidConfigurationError
from bayes_irt.parameters import Parameters

Curvature = Literal["fisher", "tight", "quarter"]
Precision = Literal["mixed", "float64"]

# A tile of 2^18 cells is 1 MB in float32, about one core's cache; 64 factors of at most 2 cannot overflow float32.
_CELLS_PER_TILE = 2**18
_MAX_ROWS_PER_TILE = 64


@jax.tree_util.register_dataclass
@dataclass(frozen=True, slots=True)
class Cells:
    """Hold the counts in tiles of LLM rows, ready for the pass.

    Parameters
    ----------
    successes
        Right answers; rows that only fill up the last tile have no attempts.
    attempts
        Attempts; 0 is missing.
    binary
        Whether no cell has more than one attempt (its loss is cheaper).
    precision
        "mixed": cells in float32, sums in float64. "float64": float64 throughout.
    """

    successes: UInt[Array | np.ndarray, "tile row item"]
    attempts: UInt[Array | np.ndarray, "tile row item"]
    binary: bool = field(metadata={"static": True})
    precision: Precision = field(metadata={"static": True})


def tile_cells(
    successes: UInt[np.ndarray, "llm item"],
    attempts: UInt[np.ndarray, "llm item"],
    precision: Precision = "mixed",
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

    Returns
    -------
    Cells
        Tiles of equal size; at most 63 empty rows are added.

    Examples
    --------
    >>> import numpy as np
    >>> counts = np.ones((130, 10), dtype=np.uint8)
    >>> tile_cells(counts, counts).successes.shape
    (3, 44, 10)
    """
    num_llms, num_items = successes.shape
    rows = min(_MAX_ROWS_PER_TILE, max(1, _CELLS_PER_TILE // num_items))
    tiles = math.ceil(num_llms / rows)
    rows = math.ceil(num_llms / tiles)
    padding = ((0, tiles * rows - num_llms), (0, 0))
    shape = (tiles, rows, num_items)
    return Cells(
        successes=np.pad(successes, padding).reshape(shape),
        attempts=np.pad(attempts, padding).reshape(shape),
        binary=bool(attempts.max(initial=0) <= 1),
        precision=precision,
    )


class CellTerms(NamedTuple):
    """What one cell contributes: its loss is ``linear + log(factor)``, its score is the derivative of -loss."""

    linear: Float[Array, ...]
    factor: Float[Array, ...] | None
    score: Float[Array, ...]
    weight: Float[Array, ...] | None


def binomial_cell(
    eta: Float[Array, ...],
    successes: Float[Array, ...],
    attempts: Float[Array, ...],
    *,
    binary: bool,
    curvature: Curvature | None = None,
) -> CellTerms:
    """Return loss, score and weight of binomial cells with logit eta.

    Parameters
    ----------
    eta
        Logit of a right answer.
    successes
        Right answers.
    attempts
        Attempts; 0 contributes nothing.
    binary
        Whether attempts are 0 or 1: the logarithm is then left to the caller, who takes one for many cells.
    curvature
        Weight W: "fisher" is minus the second derivative, n p (1 - p); "tight" the smallest weight whose
        parabola touches the loss at eta and lies above it everywhere, n tanh(|eta| / 2) / (2 |eta|);
        "quarter" the largest of those, n / 4.

    Returns
    -------
    CellTerms
        Without the binomial coefficient, which no parameter changes.

    References
    ----------
    Jaakkola, T. S. & Jordan, M. I. (2000). Bayesian parameter estimation via variational methods. Statistics and
    Computing 10, 25-37 (the tight bound).

    Examples
    --------
    >>> one = jax.numpy.ones(())
    >>> terms = binomial_cell(0 * one, one, one, binary=True, curvature="fisher")
    >>> float(terms.score), float(terms.weight)
    (0.5, 0.25)
    """
    size = jnp.abs(eta)
    decay = jnp.exp(-size)
    larger = 1.0 / (1.0 + decay)
    probability = jnp.where(eta >= 0, larger, decay * larger)
    score = successes - attempts * probability
    linear = attempts * jnp.maximum(eta, 0.0) - successes * eta
    factor = None
    if binary:
        factor = 1.0 + attempts * decay
    else:
        linear = linear + attempts * jnp.log1p(decay)
    weight: Array | None = None
    if curvature == "fisher":
        weight = attempts * (decay * larger * larger)
    elif curvature == "tight":
        square = eta * eta  # the series, cut where the rest is negative, stays a majoriser
        near = 0.25 - square / 48.0 + square * square / 480.0
        far = (1.0 - decay) * larger / (2.0 * jnp.maximum(size, 0.05))
        weight = attempts * jnp.where(size < 0.05, near, far)
    elif curvature == "quarter":
        weight = 0.25 * attempts
    return CellTerms(linear, factor, score, weight)


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
    """

    loss: Float[Array, ""] | None
    item_score: Float[Array, "item trait_and_1"]
    item_curvature: Float[Array, "item trait_and_1 trait_and_1"] | None
    llm_score: Float[Array, "llm trait"]
    llm_curvature: Float[Array, "llm trait trait"] | None


def cell_sums(
    parameters: Parameters,
    cells: Cells,
    *,
    loss: bool = False,
    curvature: Curvature | None = None,
    anchor: Parameters | None = None,
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

    Returns
    -------
    Sums
        What is not used costs nothing inside ``jax.jit``.

    Raises
    ------
    InvalidConfigurationError
        If an anchor is given without a curvature.

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
    if anchor is not None and curvature is None:
        raise InvalidConfigurationError("An anchor needs a curvature: the parabola's.")
    tiles, rows, _ = cells.successes.shape
    traits = parameters.num_traits
    cell_type = jnp.float32 if cells.precision == "mixed" else jnp.float64
    here = _Side.of(parameters, (tiles, rows), cell_type)
    touch = here if anchor is None else _Side.of(anchor, (tiles, rows), cell_type)
    pairs = np.triu_indices(traits + 1)
    slope_pairs = np.triu_indices(traits)
    slopes_by_pair = (here.discrimination[:, slope_pairs[0]] * here.discrimination[:, slope_pairs[1]]).T

    def visit(total: dict[str, Array], tile: tuple[Any, ...]) -> tuple[dict[str, Array], dict[str, Array]]:
        theta, theta_touch, successes, attempts = tile
        eta = touch.logits(theta_touch)
        terms = binomial_cell(
            eta,
            successes.astype(cell_type),
            attempts.astype(cell_type),
            binary=cells.binary,
            curvature=curvature,
        )
        score, weight = terms.score, terms.weight
        if anchor is not None and weight is not None:
            score = score - weight * (here.logits(theta) - eta)
        features = jnp.concatenate([theta, jnp.ones_like(theta[:, :1])], axis=1)
        sums = {"item_score": features.T @ score}
        rows_out = {"llm_score": here.discrimination.T @ score.T}
        if loss:
            sums["loss"] = _tile_loss(terms)
        if weight is not None:
            sums["item_curvature"] = (features[:, pairs[0]] * features[:, pairs[1]]).T @ weight
            rows_out["llm_curvature"] = slopes_by_pair @ weight.T
        return {name: total[name] + sums[name] for name in total}, rows_out

    zero = {"item_score": jnp.zeros((traits + 1, parameters.num_items))}
    zero |= {"loss": jnp.zeros(parameters.num_items)} if loss else {}
    zero |= {"item_curvature": jnp.zeros((len(pairs[0]), parameters.num_items))} if curvature else {}
    total, per_row = lax.scan(visit, zero, (here.ability, touch.ability, cells.successes, cells.attempts))
    per_llm = {
        name: jnp.moveaxis(value, 1, 2).reshape(tiles * rows, -1)[: parameters.num_llms].astype(jnp.float64)
        for name, value in per_row.items()
    }
    return Sums(
        loss=total["loss"].sum() if loss else None,
        item_score=total["item_score"].T,
        item_curvature=_symmetric(total["item_curvature"].T, traits + 1) if curvature else None,
        llm_score=per_llm["llm_score"],
        llm_curvature=_symmetric(per_llm["llm_curvature"], traits) if curvature else None,
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
    loss = terms.linear.sum(axis=0)
    if terms.factor is not None:
        loss = loss + jnp.log(terms.factor.prod(axis=0))
    return loss


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


def _log_likelihood_forward(parameters: Parameters, cells: Cells) -> tuple[Array, Parameters]:
    sums = cell_sums(parameters, cells, loss=True)
    gradient = Parameters(sums.llm_score, sums.item_score[:, :-1], sums.item_score[:, -1])
    gradient = jax.tree.map(lambda g, p: g.astype(jnp.asarray(p).dtype), gradient, parameters)
    return -jnp.asarray(sums.loss), gradient


def _log_likelihood_backward(gradient: Parameters, cotangent: Array) -> tuple[Parameters, None]:
    return jax.tree.map(lambda g: (cotangent * g).astype(g.dtype), gradient), None


log_likelihood.defvjp(_log_likelihood_forward, _log_likelihood_backward)
