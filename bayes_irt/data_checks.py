"""Check responses for what spoils a fit or its reading: constant, duplicated, unlinked or too few LLMs.

The checks inform; they change and drop nothing.

References
----------
Rasch, G. (1960). Probabilistic models for some intelligence and attainment tests.
Wright, B. D. and Stone, M. H. (1979). Best test design. The PROX approximation.
"""

from __future__ import annotations

from typing import Literal

import numpy as np
from jaxtyping import Bool, Float, Integer, UInt
from scipy.sparse import csr_array
from scipy.sparse.csgraph import connected_components

from bayes_irt.checks import Check, CheckReport, Outcome
from bayes_irt.errors import InvalidConfigurationError, some
from bayes_irt.metadata import WORDS, counted
from bayes_irt.responses import Responses

type Counts = UInt[np.ndarray, "one other"]

FEWEST_FOR_ABILITY = 4
FEWEST_FOR_ITEMS = 20
_GROUPS_NAMED = 5


def check_responses(responses: Responses) -> CheckReport:
    """Check responses before a fit.

    Parameters
    ----------
    responses
        Any responses.

    Returns
    -------
    CheckReport
        The checks "enough LLMs", "constant LLMs", "constant items", "duplicated LLMs", "duplicated items" and
        "linked LLMs", each with the labels concerned.

    Examples
    --------
    >>> report = check_responses(Responses.from_arrays([[1, 0, 1], [1, 1, 0]], llms=["a", "b"]))
    >>> print(report["constant items"])
    fail: constant items. 1 of 3 items is constant: 1 all right, 0 all wrong. ... ('item-0001')
    """
    return CheckReport(
        (
            _check_number(responses),
            _check_constant(responses, "llm"),
            _check_constant(responses, "item"),
            _check_duplicated(responses, "llm"),
            _check_duplicated(responses, "item"),
            _check_linked(responses),
        )
    )


def linked_components(responses: Responses) -> list[tuple[str, ...]]:
    """Return the groups of LLMs that are linked by common items, directly or through other LLMs.

    Abilities can be compared within a group only: between groups, nothing tells hard items from weak LLMs.

    Parameters
    ----------
    responses
        Any responses.

    Returns
    -------
    list of tuple
        Labels of LLMs, the largest group first; one group where all are linked.

    Examples
    --------
    >>> nan = float("nan")
    >>> apart = Responses.from_arrays([[1, 0, nan], [0, 1, nan], [nan, nan, 1]], llms=["a", "b", "c"])
    >>> linked_components(apart)
    [('a', 'b'), ('c',)]
    """
    membership = link_groups(responses.attempts > 0)
    groups: list[list[str]] = [[] for _ in range(membership.max() + 1)]
    for llm, group in zip(responses.llms, membership, strict=True):
        groups[group].append(llm)
    return [tuple(group) for group in sorted(groups, key=len, reverse=True)]


def require_linked(responses: Responses) -> None:
    """Raise where LLMs fall into groups without common items: nothing ranks one group against another.

    Parameters
    ----------
    responses
        The data.

    Raises
    ------
    InvalidConfigurationError
        If there are several groups; the message names their LLMs.

    Examples
    --------
    >>> nan = float("nan")
    >>> require_linked(Responses.from_arrays([[1, 0, nan], [0, 1, nan], [nan, nan, 1]], llms=["a", "b", "c"]))
    Traceback (most recent call last):
    bayes_irt.errors.InvalidConfigurationError: The LLMs fall into 2 groups that share no item: 'a', 'b' / 'c'. ...
    """
    groups = linked_components(responses)
    if len(groups) == 1:
        return
    named = " / ".join(some(group) for group in groups[:_GROUPS_NAMED])
    more = f" / and {len(groups) - _GROUPS_NAMED:,} more groups" if len(groups) > _GROUPS_NAMED else ""
    raise InvalidConfigurationError(
        f"The LLMs fall into {len(groups):,} groups that share no item: {named}{more}. LLMs of different groups cannot "
        "be ranked against each other. Add results that link them, or take one group at a time: "
        "responses.subset(llms=linked_components(responses)[0], drop_empty=True)."
    )


def identical_rows(responses: Responses, dim: Literal["llm", "item"] = "llm") -> list[tuple[str, ...]]:
    """Return groups of LLMs, or of items, whose outcomes are the same throughout, missing ones included.

    Parameters
    ----------
    responses
        The data.
    dim
        "llm" or "item".

    Returns
    -------
    list of tuple
        Labels, the largest group first; what is all right or all wrong is left aside.

    Examples
    --------
    >>> identical_rows(Responses.from_arrays([[1, 0, 1], [1, 1, 0], [1, 0, 1]]))
    [('llm-001', 'llm-003')]
    """
    right, wrong = _constant(responses, dim)
    groups = _identical(responses, dim, np.flatnonzero(~(right | wrong)))
    return [_labels(responses, dim, group) for group in groups]


def link_groups(observed: Bool[np.ndarray, "llm item"]) -> Integer[np.ndarray, " llm"]:
    """Return the group of each LLM; shared items link LLMs to a group, directly or through others.

    Parameters
    ----------
    observed
        Which cells have an answer; every LLM needs one.

    Returns
    -------
    numpy.ndarray
        The group of each LLM, counted from 0.

    Examples
    --------
    >>> link_groups(np.array([[True, False], [False, True], [True, False]]))
    array([0, 1, 0], dtype=int32)
    """
    num_llms, num_items = observed.shape
    # One item that all LLMs tried, or one LLM that tried all items, links everything.
    if observed.all(axis=0).any() or observed.all(axis=1).any():
        return np.zeros(num_llms, dtype=np.int32)
    rows, columns = np.nonzero(observed)
    size = num_llms + num_items
    links = csr_array((np.ones(len(rows), np.int8), (rows, columns + num_llms)), shape=(size, size))
    group: Integer[np.ndarray, " node"] = connected_components(links, directed=False)[1]
    return np.unique(group[:num_llms], return_inverse=True)[1].astype(np.int32)


def _check_number(responses: Responses) -> Check:
    """Say whether there are enough LLMs for abilities and for item parameters."""
    found = counted(responses.num_llms, "LLM")
    if responses.num_llms < FEWEST_FOR_ABILITY:
        return Check(
            "enough LLMs",
            Outcome.FAIL,
            f"{found}: below {FEWEST_FOR_ABILITY}, an ability scale does not apply. Only the odds that one "
            "LLM beats another and differences of expected accuracy can be had; add LLMs for more.",
            responses.llms,
        )
    if responses.num_llms < FEWEST_FOR_ITEMS:
        return Check(
            "enough LLMs",
            Outcome.CANNOT_TELL,
            f"{found}: below about {FEWEST_FOR_ITEMS}, item parameters rest mainly on the prior. "
            "Read item tables with their intervals, or add LLMs.",
        )
    return Check("enough LLMs", Outcome.PASS, f"{found}, at least {FEWEST_FOR_ITEMS}.")


def _check_constant(responses: Responses, dim: str) -> Check:
    """Find the LLMs or items whose answers are all right or all wrong."""
    right, wrong = (_labels(responses, dim, chosen) for chosen in _constant(responses, dim))
    total = responses.attempts.shape[0 if dim == "llm" else 1]
    name, number = f"constant {WORDS[dim]}s", len(right) + len(wrong)
    if not number:
        return Check(name, Outcome.PASS, f"{counted(total, WORDS[dim])}, none constant.")
    consequence = {
        "llm": "Their abilities are held by the prior alone; add harder or easier items, or drop them.",
        "item": "They do not tell which LLM is better, and the prior alone holds their parameters; "
        "they may stay, or be dropped to save time.",
    }
    return Check(
        name,
        Outcome.FAIL,
        f"{number:,} of {counted(total, WORDS[dim])} {'is' if number == 1 else 'are'} constant: "
        f"{len(right):,} all right, {len(wrong):,} all wrong. {consequence[dim]}",
        (*right, *wrong),
    )


def _check_duplicated(responses: Responses, dim: Literal["llm", "item"]) -> Check:
    """Find LLMs or items with identical outcomes, and compare their number with what chance gives."""
    right, wrong = _constant(responses, dim)
    varied = np.flatnonzero(~(right | wrong))
    groups = identical_rows(responses, dim)
    name, total = f"duplicated {WORDS[dim]}s", counted(len(varied), f"{WORDS[dim]}")
    if not groups:
        return Check(name, Outcome.PASS, f"{total} that vary, no two identical.")
    pairs = sum(len(group) * (len(group) - 1) // 2 for group in groups)
    labels = tuple(label for group in groups for label in group)
    message = (
        f"{counted(len(labels), WORDS[dim])} in {counted(len(groups), 'group')} ({counted(pairs, 'pair')}) "
        f"have identical outcomes (the largest group: {some(groups[0], 3)})."
    )
    if not responses.is_binary:
        return Check(name, Outcome.FAIL, f"{message} {_REMEDY[dim]}", labels)
    expected = _expected_pairs(responses, dim, varied)
    chance = f"Chance alone gives about {expected:,.1f} pairs"
    if pairs <= _upper_limit(expected):
        return Check(name, Outcome.CANNOT_TELL, f"{message} {chance}, so they need not be copies.", labels)
    return Check(name, Outcome.FAIL, f"{message} {chance}. {_REMEDY[dim]}", labels)


_REMEDY = {
    "llm": "Copies of one run make rankings look surer than they are: keep one of each (drop).",
    "item": "Copies of one item, or items that hang together, count evidence several times: look at them, "
    "and keep one of each where they are copies (drop).",
}


def _check_linked(responses: Responses) -> Check:
    """Say whether all LLMs can be compared."""
    groups = linked_components(responses)
    if len(groups) == 1:
        return Check("linked LLMs", Outcome.PASS, f"Common items link all {responses.num_llms:,} LLMs.")
    sizes = ", ".join(f"{len(group):,}" for group in groups[:5]) + (", ..." if len(groups) > 5 else "")
    apart = tuple(llm for group in groups[1:] for llm in group)
    return Check(
        "linked LLMs",
        Outcome.FAIL,
        f"The LLMs fall into {len(groups):,} groups without common items (sizes {sizes}), which cannot be "
        "ranked against each other. Add results that link them, or fit each group apart "
        "(linked_components, subset). Outside the largest group:",
        apart,
    )


def _labels(responses: Responses, dim: str, chosen: np.ndarray) -> tuple[str, ...]:
    """Return labels by mask or by position."""
    labels = np.array(responses.llms if dim == "llm" else responses.items, dtype=object)
    return tuple(labels[chosen])


def _constant(responses: Responses, dim: str) -> tuple[Bool[np.ndarray, " one"], Bool[np.ndarray, " one"]]:
    """Return which LLMs or items are all right, and which are all wrong."""
    axis = 1 if dim == "llm" else 0
    successes = responses.successes.sum(axis=axis, dtype=np.int64)
    attempts = responses.attempts.sum(axis=axis, dtype=np.int64)
    return successes == attempts, successes == 0


def _rows(responses: Responses, dim: str) -> tuple[Counts, Counts]:
    """Return counts with the LLMs or the items in rows."""
    if dim == "llm":
        return responses.successes, responses.attempts
    return np.ascontiguousarray(responses.successes.T), np.ascontiguousarray(responses.attempts.T)


def _identical(responses: Responses, dim: str, chosen: Integer[np.ndarray, " one"]) -> list[np.ndarray]:
    """Return groups of at least two positions with the same counts throughout, the largest first."""
    successes, attempts = _rows(responses, dim)
    groups: dict[tuple[bytes, bytes], list[int]] = {}
    for position in chosen.tolist():
        groups.setdefault((successes[position].tobytes(), attempts[position].tobytes()), []).append(position)
    repeated = [np.array(group) for group in groups.values() if len(group) > 1]
    return sorted(repeated, key=len, reverse=True)


def _expected_pairs(responses: Responses, dim: str, chosen: Integer[np.ndarray, " one"]) -> float:
    """Return how many identical pairs a Rasch model gives, its item and LLM totals as observed.

    Given its total k, a row is any pattern with k right answers, with a probability in proportion to the
    product of the odds w of the columns that are right. Two rows with total k agree with probability
    e_k(w^2) / e_k(w)^2, where e_k is the elementary symmetric polynomial: row effects cancel.
    """
    successes, attempts = _rows(responses, dim)
    rows, log_odds = (_log_odds(successes, attempts, axis) for axis in (1, 0))
    log_odds *= _expansion(float(rows[chosen].var()), float(log_odds.var()))
    patterns: dict[bytes, list[int]] = {}
    for position in chosen.tolist():
        patterns.setdefault(attempts[position].tobytes(), []).append(position)
    expected = 0.0
    for positions in patterns.values():
        if len(positions) > 1:
            totals = np.bincount(successes[positions].sum(axis=1, dtype=np.int64))
            expected += _agreeing_pairs(totals, log_odds[attempts[positions[0]] > 0])
    return expected


def _log_odds(successes: Counts, attempts: Counts, axis: int) -> Float[np.ndarray, " label"]:
    """Return the log odds of a right answer, kept finite by half an answer on either side."""
    right, tried = (values.sum(axis=axis, dtype=np.int64) for values in (successes, attempts))
    return np.asarray(np.log((right + 0.5) / (tried - right + 0.5)))


def _expansion(row_variance: float, column_variance: float) -> float:
    """Return by how much Rasch parameters spread wider than log odds (PROX, Wright and Stone)."""
    shrink = max(1 - row_variance * column_variance / 8.35, 0.1)
    return float(np.sqrt((1 + row_variance / 2.89) / shrink))


def _agreeing_pairs(
    rows_by_total: Integer[np.ndarray, " total"], log_odds: Float[np.ndarray, " column"]
) -> float:
    """Return the expected number of agreeing pairs among rows that answered the same columns."""
    last = len(rows_by_total)
    agreement = _log_symmetric(2 * log_odds, last) - 2 * _log_symmetric(log_odds, last)
    return float((rows_by_total * (rows_by_total - 1) / 2 * np.exp(agreement)).sum())


def _log_symmetric(log_weights: Float[np.ndarray, " column"], number: int) -> Float[np.ndarray, " total"]:
    """Return the logarithms of the first elementary symmetric polynomials of weights."""
    logs = np.full(number, -np.inf)
    logs[0] = 0.0
    for log_weight in log_weights:
        logs[1:] = np.logaddexp(logs[1:], logs[:-1] + log_weight)
    return logs


def _upper_limit(expected: float) -> float:
    """Return how many pairs may be chance: twice what is expected, and three standard errors more."""
    # The Rasch model leaves out differences in discrimination, which make chance agreement more frequent.
    return 2 * expected + 3 * float(np.sqrt(2 * expected))
