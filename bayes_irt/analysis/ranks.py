"""Ranks of LLMs in posterior draws, and their intervals."""

from __future__ import annotations

import numpy as np
from jaxtyping import Float, Integer


def ranks_by_draw(ability: Float[np.ndarray, "sample llm"]) -> Integer[np.ndarray, "sample llm"]:
    """Return each LLM's rank in each draw, 1 for the most able.

    Parameters
    ----------
    ability
        Draws of the abilities.

    Returns
    -------
    numpy.ndarray
        Ranks; every draw holds each rank once.

    Examples
    --------
    >>> ranks_by_draw(np.array([[0.1, 0.9, -1.0]]))
    array([[2, 1, 3]])
    """
    order = np.argsort(-ability, axis=1, kind="stable")
    ranks = np.empty(order.shape, dtype=np.int64)
    np.put_along_axis(ranks, order, np.arange(1, order.shape[1] + 1)[None, :], axis=1)
    return ranks


def rank_intervals(
    ranks: Integer[np.ndarray, "sample llm"], prob: float
) -> tuple[Integer[np.ndarray, " llm"], Integer[np.ndarray, " llm"]]:
    """Return the interval of each LLM's rank that a leaderboard shows.

    Parameters
    ----------
    ranks
        Draws of the ranks.
    prob
        Probability of the intervals.

    Returns
    -------
    tuple of numpy.ndarray
        Lowest and highest rank; together with what is between they hold at least `prob` of the draws.

    Examples
    --------
    >>> rank_intervals(np.array([[1, 2], [1, 2], [1, 2], [2, 1]]), 0.4)
    (array([1, 2]), array([1, 2]))
    """
    tails = ((1 - prob) / 2, (1 + prob) / 2)
    lower, upper = np.quantile(ranks, tails, axis=0, method="inverted_cdf").astype(int)
    return lower, upper
