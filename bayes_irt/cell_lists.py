"""Cells as a list rather than a matrix, and the log probability of each: for single cells, never for whole suites."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Integer
from scipy.special import gammaln

from bayes_irt.parameters import Parameters
from bayes_irt.responses import Responses


@dataclass(frozen=True, slots=True, eq=False)
class CellList:
    """Hold some observed cells, one place each.

    Parameters
    ----------
    llm, item
        Position of the LLM and of the item.
    successes, attempts
        Right answers and attempts; attempts are at least 1.
    """

    llm: Integer[np.ndarray, " cell"]
    item: Integer[np.ndarray, " cell"]
    successes: Integer[np.ndarray, " cell"]
    attempts: Integer[np.ndarray, " cell"]

    def __len__(self) -> int:
        return len(self.llm)


def observed_cells(responses: Responses) -> CellList:
    """Return the cells that have an answer, LLM by LLM.

    Parameters
    ----------
    responses
        The data.

    Returns
    -------
    CellList
        Items in order within each LLM.

    Examples
    --------
    >>> cells = observed_cells(Responses.from_arrays([[1, float("nan")], [0, 1]]))
    >>> cells.llm.tolist(), cells.item.tolist(), cells.successes.tolist()
    ([0, 1, 1], [0, 0, 1], [1, 0, 1])
    """
    llm, item = np.nonzero(responses.attempts)
    return CellList(
        llm.astype(np.int32),
        item.astype(np.int32),
        responses.successes[llm, item],
        responses.attempts[llm, item],
    )


def cell_logits(parameters: Parameters, cells: CellList) -> Float[np.ndarray, " cell"]:
    """Return the logit of a right answer in each cell.

    Parameters
    ----------
    parameters
        One set, sigma being 1.
    cells
        Which cells.

    Returns
    -------
    numpy.ndarray
        In the order of the cells.

    Examples
    --------
    >>> cells = observed_cells(Responses.from_arrays([[1, float("nan")], [0, 1]]))
    >>> p = Parameters(np.array([[-1.0], [1.0]]), np.array([[2.0], [0.5]]), np.zeros(2))
    >>> cell_logits(p, cells)
    array([-2. ,  2. ,  0.5])
    """
    ability, slopes = np.asarray(parameters.ability), np.asarray(parameters.discrimination)
    logits: np.ndarray = np.asarray(parameters.easiness)[cells.item]
    for trait in range(parameters.num_traits):
        logits += ability[cells.llm, trait] * slopes[cells.item, trait]
    return logits


def log_coefficient(cells: CellList) -> Float[np.ndarray, " cell"]:
    """Return the log of each cell's binomial coefficient.

    Parameters
    ----------
    cells
        The cells.

    Returns
    -------
    numpy.ndarray
        0 where there is one attempt.

    Examples
    --------
    >>> log_coefficient(CellList(*np.array([[0, 0], [0, 1], [1, 1], [1, 2]]))).round(4)
    array([0.    , 0.6931])
    """
    successes, attempts = cells.successes.astype(np.float64), cells.attempts.astype(np.float64)
    found = gammaln(attempts + 1) - gammaln(successes + 1) - gammaln(attempts - successes + 1)
    return np.asarray(np.where(attempts > 1, found, 0.0))


def log_probability(logits: Float[np.ndarray, " cell"], cells: CellList) -> Float[np.ndarray, " cell"]:
    """Return each cell's binomial log probability, without its coefficient.

    Parameters
    ----------
    logits
        Logit of a right answer.
    cells
        The cells.

    Returns
    -------
    numpy.ndarray
        Finite for every finite logit.

    Examples
    --------
    >>> cells = CellList(*np.array([[0, 0], [0, 1], [1, 1], [1, 2]]))
    >>> log_probability(np.array([0.0, 800.0]), cells).round(4).tolist()
    [-0.6931, -800.0]
    """
    against = np.maximum(logits, 0.0) + np.log1p(np.exp(-np.abs(logits)))
    return np.asarray(cells.successes * logits - cells.attempts * against)
