"""Replicated data and their statistics: one draw at a time, tile by tile of LLM rows, never a matrix of all cells.

References
----------
Gelman, A., Meng, X.-L. & Stern, H. (1996). Posterior predictive assessment of model fitness via realized
discrepancies. Statistica Sinica 6, 733-760.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Integer, UInt

from bayes_irt.cell_laws import CellLaw
from bayes_irt.responses import Responses

_CELLS_PER_TILE = 2**18
_NO_SPREAD = 1e-12
_LEAST_VARIANCE = 1.0
_FEWEST_LLMS = 3


class Statistics(NamedTuple):
    """What is compared between the data and replicated data.

    Attributes
    ----------
    llm_score, item_score
        Right answers of each LLM and to each item.
    item_rest
        Correlation, over the LLMs that answered an item, between their share of right answers to it and to all other
        items; NaN where either does not vary or fewer than 3 LLMs answered.
    cells
        Number of cells with 0, 1, 2 ... right answers among those with the commonest number of attempts above one;
        empty where there are none.
    """

    llm_score: Float[np.ndarray, " llm"]
    item_score: Float[np.ndarray, " item"]
    item_rest: Float[np.ndarray, " item"]
    cells: Integer[np.ndarray, " right"]


class Dispersion(NamedTuple):
    """Squared deviations from what a draw expects, divided by the variance that it expects: 1 on average.

    Attributes
    ----------
    observed, replicated
        Of the data, and of data replicated from the same draw.
    """

    observed: float
    replicated: float


class Replicate(NamedTuple):
    """Data replicated from one draw, boiled down.

    Attributes
    ----------
    statistics
        Of the replicated data.
    dispersions
        Of "llm_score", "item_score" and "item_rest" (deviations along the rest scores) and, where cells have several
        attempts, of "cells".
    associations
        Of the data and of the replicated data, by item: how much steeper answers rise with the LLM's share right on
        all other items than the draw expects, in standard errors; 0 where the draw expects next to no variation.
    """

    statistics: Statistics
    dispersions: dict[str, Dispersion]
    associations: Float[np.ndarray, "2 item"]


def commonest_repeats(attempts: UInt[np.ndarray, "llm item"]) -> int:
    """Return the commonest number of attempts above one.

    Parameters
    ----------
    attempts
        Attempts per cell.

    Returns
    -------
    int
        0 where no cell has several.

    Examples
    --------
    >>> commonest_repeats(np.array([[1, 4, 4], [1, 1, 8]], dtype=np.uint8))
    4
    """
    numbers, cells = np.unique(attempts[attempts > 1], return_counts=True)
    return int(numbers[cells.argmax()]) if len(numbers) else 0


def observed_statistics(responses: Responses) -> Statistics:
    """Return the statistics of the data, computed as those of replicated data are.

    Parameters
    ----------
    responses
        The data.

    Returns
    -------
    Statistics
        Of the data.

    Examples
    --------
    >>> observed_statistics(Responses.from_arrays([[0, 1], [1, 1], [1, 0]])).llm_score
    array([1., 2., 1.])
    """
    sums = _Sums(responses, commonest_repeats(responses.attempts))
    for rows, attempts in _tiles(responses):
        right = responses.successes[rows].astype(np.float64)
        sums.add(rows, right, attempts, _rest_shares(right, attempts))
    return sums.statistics()


def replicate(
    law: CellLaw, responses: Responses, observed: Statistics, rng: np.random.Generator
) -> Replicate:
    """Replicate the data from one draw, as many attempts in the same cells.

    Parameters
    ----------
    law
        One draw.
    responses
        The data.
    observed
        Their statistics.
    rng
        Where randomness comes from.

    Returns
    -------
    Replicate
        Statistics and dispersions; the cells are forgotten.

    Examples
    --------
    >>> from bayes_irt.simulate import simulate_suite
    >>> truth, responses = (suite := simulate_suite(30, 40)).truth, suite.responses
    >>> found = replicate(CellLaw(truth), responses, observed_statistics(responses), np.random.default_rng(0))
    >>> found.statistics.item_score.shape, sorted(found.dispersions)
    ((40,), ['item_rest', 'item_score', 'llm_score'])
    """
    sums = _Sums(responses, len(observed.cells) - 1)
    expected, variance = _Margins(responses), _Margins(responses)
    along = np.zeros((2, 5, responses.num_items))
    repeats = np.zeros(3)
    for rows, attempts in _tiles(responses):
        chance = law.chances(rows)
        drawn = law.draw(attempts, chance, rng)
        mean = attempts * chance
        spread = mean * (1.0 - chance) * law.inflation(attempts)
        expected.add(rows, mean)
        variance.add(rows, spread)
        both = (responses.successes[rows].astype(np.float64), drawn)
        rests = [_rest_shares(right, attempts) for right in both]
        sums.add(rows, drawn, attempts, rests[1])
        along += [_along_rest(right - mean, spread, rest) for right, rest in zip(both, rests, strict=True)]
        repeats += _repeats(both, attempts, mean, spread)
    statistics = sums.statistics()
    scores = {"llm_score": (expected.llm, variance.llm), "item_score": (expected.item, variance.item)}
    dispersions = {
        name: Dispersion(
            *(_dispersion(getattr(data, name) - mean, spread) for data in (observed, statistics))
        )
        for name, (mean, spread) in scores.items()
    }
    steeper, squared_error = _associations(along)
    dispersions["item_rest"] = Dispersion(*map(_dispersion, steeper, squared_error))
    if len(observed.cells):
        dispersions["cells"] = Dispersion(*(repeats[:2] / repeats[2]).tolist())
    error = np.sqrt(np.where(squared_error > 0, squared_error, 1.0))
    return Replicate(statistics, dispersions, steeper / error)


def _tiles(responses: Responses) -> Iterator[tuple[slice, Float[np.ndarray, "row item"]]]:
    """Yield slices of LLMs, and their attempts."""
    rows = max(1, _CELLS_PER_TILE // responses.num_items)
    for start in range(0, responses.num_llms, rows):
        place = slice(start, start + rows)
        yield place, responses.attempts[place].astype(np.float32)


def _rest_shares(
    right: Float[np.ndarray, "row item"], attempts: Float[np.ndarray, "row item"]
) -> Float[np.ndarray, "row item"]:
    """Return each LLM's share of right attempts on all items but one, per item; NaN where cell or rest is missing."""
    others = attempts.sum(axis=1, keepdims=True) - attempts
    share = np.full(right.shape, np.nan)
    known = (attempts > 0) & (others > 0)
    np.divide(right.sum(axis=1, keepdims=True) - right, others, out=share, where=known)
    return share


def _along_rest(
    residual: Float[np.ndarray, "row item"],
    spread: Float[np.ndarray, "row item"],
    rest: Float[np.ndarray, "row item"],
) -> Float[np.ndarray, "5 item"]:
    """Return the sums from which `_associations` follow."""
    known = np.isfinite(rest)
    rest, spread = np.where(known, rest, 0.0), np.where(known, spread, 0.0)
    weighted = spread * rest
    return np.stack(
        [
            np.einsum("ij,ij->j", residual, rest),
            np.einsum("ij,ij->j", residual, known.astype(np.float64)),
            np.einsum("ij,ij->j", weighted, rest),
            weighted.sum(axis=0),
            spread.sum(axis=0),
        ]
    )


def _associations(
    along: Float[np.ndarray, "2 5 item"],
) -> tuple[Float[np.ndarray, "2 item"], Float[np.ndarray, "2 item"]]:
    """Return sums of residuals times rest shares, and their variance.

    Given the parameters, an item's answers are independent of all others, and so of the rest shares r: the sum of
    (y - n p)(r - m) has mean 0 and variance sum n p (1 - p) (r - m)^2. The mean m weighs by n p (1 - p), so that the
    item's easiness has no part in it. Items of which next to no variation is expected are left out as 0.
    """
    product, residual, square, linear, spread = np.moveaxis(along, 1, 0)
    mean = linear / np.maximum(spread, _LEAST_VARIANCE)
    variance = square - mean * linear
    kept = (spread >= _LEAST_VARIANCE) & (variance > _NO_SPREAD * spread)
    return np.where(kept, product - mean * residual, 0.0), np.where(kept, variance, 0.0)


def _repeats(
    both: tuple[Float[np.ndarray, "row item"], Float[np.ndarray, "row item"]],
    attempts: Float[np.ndarray, "row item"],
    mean: Float[np.ndarray, "row item"],
    spread: Float[np.ndarray, "row item"],
) -> Float[np.ndarray, " 3"]:
    """Return, over cells with several attempts, squared deviations of both data sets and the variance."""
    several = attempts > 1
    if not several.any():
        return np.zeros(3)
    deviations = [(right - mean)[several] for right in both]
    return np.array([*(values @ values for values in deviations), spread[several].sum()])


def _dispersion(deviation: Float[np.ndarray, " one"], variance: Float[np.ndarray, " one"]) -> float:
    total = variance.sum()
    return float(np.square(deviation).sum() / total) if total > 0 else 0.0


class _Margins:
    """Sums by LLM and by item."""

    def __init__(self, responses: Responses) -> None:
        self.llm = np.zeros(responses.num_llms)
        self.item = np.zeros(responses.num_items)

    def add(self, rows: slice, values: Float[np.ndarray, "row item"]) -> None:
        self.llm[rows] += values.sum(axis=1)
        self.item += values.sum(axis=0)


class _Sums:
    """The sums from which statistics follow."""

    def __init__(self, responses: Responses, repeats: int) -> None:
        self.scores = _Margins(responses)
        self.moments = np.zeros((6, responses.num_items))
        self.repeats = repeats
        self.cells = np.zeros(repeats + 1 if repeats > 0 else 0, dtype=np.int64)

    def add(
        self,
        rows: slice,
        right: Float[np.ndarray, "row item"],
        attempts: Float[np.ndarray, "row item"],
        rest: Float[np.ndarray, "row item"],
    ) -> None:
        self.scores.add(rows, right)
        self.moments += _moments(right, attempts, rest)
        if self.repeats > 0:
            counts = right[attempts == self.repeats].astype(np.int64)
            self.cells += np.bincount(counts, minlength=len(self.cells))

    def statistics(self) -> Statistics:
        return Statistics(self.scores.llm, self.scores.item, _correlation(self.moments), self.cells)


def _moments(
    right: Float[np.ndarray, "row item"],
    attempts: Float[np.ndarray, "row item"],
    rest: Float[np.ndarray, "row item"],
) -> Float[np.ndarray, "6 item"]:
    """Return the number of LLMs, and the moments of their shares right on an item (x) and on the rest (r)."""
    known = np.isfinite(rest)
    share = np.divide(right, attempts, out=np.zeros(right.shape), where=known)
    rest = np.where(known, rest, 0.0)
    products = ((share, share), (rest, rest), (share, rest))
    sums = [known.sum(axis=0), share.sum(axis=0), rest.sum(axis=0)]
    return np.stack([*sums, *(np.einsum("ij,ij->j", one, other) for one, other in products)])


def _correlation(moments: Float[np.ndarray, "moment item"]) -> Float[np.ndarray, " item"]:
    number, share, rest, share_square, rest_square, product = moments
    number = np.maximum(number, 1.0)
    pairs = ((share_square, share), (rest_square, rest))
    spreads = [square / number - (total / number) ** 2 for square, total in pairs]
    varies = (np.minimum(*spreads) > _NO_SPREAD) & (number >= _FEWEST_LLMS)
    covariance = product / number - (share / number) * (rest / number)
    scale = np.sqrt(np.where(varies, spreads[0] * spreads[1], 1.0))
    return np.where(varies, covariance / scale, np.nan)
