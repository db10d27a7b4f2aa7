"""How far two rankings agree: rank correlations of estimates, and of an estimate with posterior draws."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pandas as pd
from jaxtyping import Float, Integer
from scipy import stats

from bayes_irt.analysis.ranks import ranks_by_draw

#: At most this many draws, spread evenly, enter the posterior of a rank correlation.
MOST_DRAWS = 1000


def rank_agreement(
    estimates: Mapping[str, Float[np.ndarray, " llm"]], draws: Float[np.ndarray, "sample llm"], prob: float
) -> pd.DataFrame:
    """Correlate rankings of the same LLMs with each other and with the posterior.

    Parameters
    ----------
    estimates
        Name of a ranking to the values it orders, the higher the better; ties share their mean rank.
    draws
        Draws of the abilities.
    prob
        Probability of the equal-tailed intervals.

    Returns
    -------
    pandas.DataFrame
        One row per pair, ``first`` and ``second``; the posterior is the last of the rankings. ``kendall_tau`` (tau-b)
        and ``spearman`` correlate the two rankings as they stand, the posterior's being that of its means. Beside the
        posterior stand ``kendall_mean``, ``kendall_lower`` and ``kendall_upper`` (``spearman_`` likewise): mean and
        interval of the correlation of the first ranking with the true order, which the draws stand for. They mostly
        lie below the correlation with the posterior means: means average away what draws leave open.
        Two estimates are functions of the data that are at hand, so that nothing about their agreement is uncertain:
        no interval (NaN). A correlation with a ranking in which all are tied is NaN too.

    Examples
    --------
    >>> import numpy as np
    >>> draws = np.array([[3.0, 2.0, 1.0, 0.0], [3.0, 2.0, 0.0, 0.5]])
    >>> table = rank_agreement({"accuracy": np.array([0.9, 0.8, 0.5, 0.1])}, draws, 0.9)
    >>> table[["first", "second", "kendall_tau", "kendall_mean"]].round(3).values.tolist()
    [['accuracy', 'posterior', 1.0, 0.833]]
    """
    ranks = ranks_by_draw(_spread_evenly(draws, MOST_DRAWS))
    values = {**estimates, "posterior": draws.mean(axis=0)}
    names = list(values)
    rows = []
    for place, first in enumerate(names):
        for second in names[place + 1 :]:
            row: dict[str, object] = {"first": first, "second": second}
            against = ranks if second == "posterior" else None
            kendall, spearman = rank_correlations(values[first], values[second])
            row |= _with_interval("kendall", "kendall_tau", kendall, values[first], against, prob)
            row |= _with_interval("spearman", "spearman", spearman, values[first], against, prob)
            rows.append(row)
    return pd.DataFrame(rows)


def rank_correlations(
    first: Float[np.ndarray, " llm"], second: Float[np.ndarray, " llm"]
) -> tuple[float, float]:
    """Return Kendall's tau-b and Spearman's correlation of two rankings.

    Parameters
    ----------
    first, second
        Values that order the same LLMs.

    Returns
    -------
    tuple of float
        Both NaN where all are tied in one of the rankings.

    References
    ----------
    Kendall, M. G. (1945). The treatment of ties in ranking problems. Biometrika 33, 239-251.

    Examples
    --------
    >>> import numpy as np
    >>> rank_correlations(np.array([1.0, 2.0, 3.0]), np.array([3.0, 2.0, 1.0]))
    (-1.0, -1.0)
    """
    if np.ptp(first) == 0 or np.ptp(second) == 0:
        return np.nan, np.nan
    return float(stats.kendalltau(first, second).statistic), float(stats.spearmanr(first, second).statistic)


def kendall_by_draw(
    values: Float[np.ndarray, " llm"], ranks: Integer[np.ndarray, "sample llm"]
) -> Float[np.ndarray, " sample"]:
    """Return Kendall's tau-b of one ranking with that of every draw.

    Concordant pairs are counted for all draws at once, LLM by LLM: 3 seconds for 2,211 LLMs and 1,000 draws.

    Parameters
    ----------
    values
        What the one ranking orders; ties count for neither side.
    ranks
        Ranks by draw, 1 for the most able, no ties.

    Returns
    -------
    numpy.ndarray
        NaN where all values are tied.

    Examples
    --------
    >>> import numpy as np
    >>> kendall_by_draw(np.array([0.9, 0.5, 0.5]), np.array([[1, 2, 3], [3, 1, 2]])).round(3).tolist()
    [0.816, -0.816]
    """
    number = len(values)
    order = np.argsort(-values, kind="stable")
    after_ties = np.searchsorted(-values[order], -values[order], side="right")
    by_llm = np.ascontiguousarray(ranks[:, order].T.astype(np.int32))
    balance, pairs = np.zeros(len(ranks)), int((number - after_ties).sum())
    for own, worse in zip(by_llm, after_ties.tolist(), strict=True):
        concordant = (by_llm[worse:] > own).view(np.uint8).sum(axis=0, dtype=np.uint32)
        balance += 2.0 * concordant - (number - worse)
    if not pairs:
        return np.full(len(ranks), np.nan)
    return np.asarray(balance / np.sqrt(pairs * (number * (number - 1) / 2)))


def spearman_by_draw(
    values: Float[np.ndarray, " llm"], ranks: Integer[np.ndarray, "sample llm"]
) -> Float[np.ndarray, " sample"]:
    """Return Spearman's correlation of one ranking with that of every draw.

    Parameters
    ----------
    values
        What the one ranking orders; ties share their mean rank.
    ranks
        Ranks by draw, 1 for the most able, no ties.

    Returns
    -------
    numpy.ndarray
        NaN where all values are tied.

    Examples
    --------
    >>> import numpy as np
    >>> spearman_by_draw(np.array([0.9, 0.5, 0.1]), np.array([[1, 2, 3], [3, 1, 2]])).round(9).tolist()
    [1.0, -0.5]
    """
    centred = stats.rankdata(-values) - (len(values) + 1) / 2
    length = np.linalg.norm(centred)
    if length == 0:
        return np.full(len(ranks), np.nan)
    own = ranks - (len(values) + 1) / 2
    return np.asarray(own @ centred / (length * np.linalg.norm(own, axis=1)))


def _spread_evenly(draws: Float[np.ndarray, "sample llm"], most: int) -> Float[np.ndarray, "some llm"]:
    """Return all draws, or so many that lie evenly among them."""
    if len(draws) <= most:
        return draws
    return np.asarray(draws[np.linspace(0, len(draws) - 1, most).round().astype(int)])


_BY_DRAW = {"kendall": kendall_by_draw, "spearman": spearman_by_draw}


def _with_interval(
    kind: str,
    column: str,
    found: float,
    values: Float[np.ndarray, " llm"],
    ranks: Integer[np.ndarray, "sample llm"] | None,
    prob: float,
) -> dict[str, float]:
    """Return the columns of one correlation."""
    mean = lower = upper = np.nan
    if ranks is not None:
        posterior = _BY_DRAW[kind](values, ranks)
        mean = float(posterior.mean())
        lower, upper = np.quantile(posterior, ((1 - prob) / 2, (1 + prob) / 2)).tolist()
    return {column: found, f"{kind}_mean": mean, f"{kind}_lower": lower, f"{kind}_upper": upper}
