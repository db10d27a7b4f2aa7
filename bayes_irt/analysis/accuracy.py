"""Accuracy of LLMs: what was observed, and what the model expects on all items."""

from __future__ import annotations

import numpy as np
from jaxtyping import Float

from bayes_irt.responses import Responses


def accuracy_with_error(responses: Responses) -> tuple[Float[np.ndarray, " llm"], Float[np.ndarray, " llm"]]:
    """Return each LLM's share of right attempts and its standard error, items being clusters of attempts.

    Parameters
    ----------
    responses
        The data.

    Returns
    -------
    tuple of numpy.ndarray
        Accuracy and standard error; the error of an LLM with one item is NaN (it cannot be estimated).

    References
    ----------
    Cochran, W. G. (1977). Sampling Techniques, 3rd ed., section 2.11 (the ratio estimator).

    Examples
    --------
    >>> one_each = Responses.from_arrays(np.array([[1, 1, 0, 0], [1, 1, 1, 0]]))
    >>> [values.round(3).tolist() for values in accuracy_with_error(one_each)]
    [[0.5, 0.75], [0.289, 0.25]]
    """
    attempts, successes = responses.attempts.astype(np.float64), responses.successes.astype(np.float64)
    tried, seen = attempts.sum(axis=1), (attempts > 0).sum(axis=1)
    accuracy = successes.sum(axis=1) / tried
    squares = np.square(successes - accuracy[:, None] * attempts).sum(axis=1)
    several = seen > 1
    correction = np.divide(seen, seen - 1, out=np.full(seen.shape, np.nan), where=several)
    return accuracy, np.sqrt(squares * correction) / tried
