"""Several suites as one: a leaderboard of leaderboards, with one scale and the LLMs that they have in common."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pandas as pd

from bayes_irt.errors import InvalidConfigurationError, some
from bayes_irt.responses import Responses


def unite_suites(suites: Mapping[str, Responses], column: str = "suite") -> Responses:
    """Return the responses to several suites as one, each item's suite a column of the items' metadata.

    With ``ModelSpec(traits=column)`` each suite is an ability of its own and all correlate: an LLM that has not
    answered a suite is judged there by the others, with the interval that this deserves. With ``general=True`` all
    suites share a general ability.

    Parameters
    ----------
    suites
        Name of each suite to its responses. LLMs are the same where their labels are; they may answer some suites only.
    column
        Name of the new column.

    Returns
    -------
    Responses
        All LLMs, and all items, whose labels begin with their suite's name, so that ``q1`` of two suites is two items.

    Raises
    ------
    InvalidConfigurationError
        If there are fewer than two suites, or a suite's items have a column of that name already.
    InvalidResponsesError
        If the suites' metadata of an LLM contradict each other.

    Examples
    --------
    >>> one = Responses.from_arrays([[1, 0], [1, 1]], llms=["a", "b"])
    >>> two = Responses.from_arrays([[0, 1], [1, 1]], llms=["b", "c"])
    >>> both = unite_suites({"maths": one, "code": two})
    >>> both.llms, both.items[2], both.item_metadata["suite"].tolist()
    (('a', 'b', 'c'), 'code: item-0001', ['maths', 'maths', 'code', 'code'])
    """
    if len(suites) < 2:
        raise InvalidConfigurationError(f"{len(suites)} suite to unite; at least 2 are needed.")
    taken = [name for name, suite in suites.items() if column in suite.item_metadata]
    if taken:
        raise InvalidConfigurationError(
            f"The items of {some(taken)} have a column {column!r} already. Name another by column."
        )
    parts = [_named(name, suite, column) for name, suite in suites.items()]
    whole = parts[0]
    for part in parts[1:]:
        whole = whole.merge(part)
    return whole


def _named(name: str, suite: Responses, column: str) -> Responses:
    """Return a suite whose items bear its name."""
    items = [f"{name}: {item}" for item in suite.items]
    described = suite.item_metadata.set_axis(pd.Index(items, dtype=object), axis=0)
    return Responses.from_arrays(
        np.asarray(suite.successes),
        np.asarray(suite.attempts),
        llms=list(suite.llms),
        items=items,
        llm_metadata=suite.llm_metadata,
        item_metadata=described.assign(**{column: name}),
    )
