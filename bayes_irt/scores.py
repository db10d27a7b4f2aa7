"""Read scores: numbers from whatever a table holds, then 0, 1 or missing from numbers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pandas as pd
from jaxtyping import Float, Integer

from bayes_irt.arguments import require_number, require_whole
from bayes_irt.errors import InvalidConfigurationError, InvalidResponsesError
from bayes_irt.metadata import counted

MISSING = ("", "na", "n/a", "nan", "null", "none", "<na>")
TRUTH = {"true": 1.0, "false": 0.0}
COUNT_COLUMNS = "columns 'successes' and 'attempts'"
NOT_AN_ITEM = (
    "In a wide table, name a column that describes the LLM (--llm-columns) or is to be left out (--ignore)."
)

# Two printed decimals leave as much of a share; of many parts, a tenth of one.
_ROUNDED = 0.005
_PART = 0.1


@dataclass(frozen=True, slots=True)
class ScoreThreshold:
    """Count scores as right from a threshold on: a rule for fractional scores.

    Parameters
    ----------
    least
        The smallest score that is right; whatever is lower is wrong.

    Raises
    ------
    InvalidConfigurationError
        If it is no finite number.

    Examples
    --------
    >>> ScoreThreshold(0.5)
    ScoreThreshold(least=0.5)
    """

    least: float

    def __post_init__(self) -> None:
        require_number("threshold of scores", self.least, -1e300, 1e300)


@dataclass(frozen=True, slots=True)
class ScoreParts:
    """Count scores as shares of so many parts, such as tests that passed: a rule for partial credit.

    A cell then holds several attempts; those at one item hang together, which beta-binomial attempts allow for.

    Parameters
    ----------
    number
        Parts of each item.

    Raises
    ------
    InvalidConfigurationError
        If it is not a whole number, or below 2.

    Examples
    --------
    >>> ScoreParts(4)
    ScoreParts(number=4)
    """

    number: int

    def __post_init__(self) -> None:
        require_whole("number of parts", self.number, 2)


ScoreRule = ScoreThreshold | ScoreParts


def factorized(column: pd.Series) -> tuple[Integer[np.ndarray, " row"], pd.Series]:
    """Return which of its distinct values each row of a column holds, -1 where it is missing.

    Parameters
    ----------
    column
        Any column; lists and other values that cannot be compared stand as their printed form.

    Returns
    -------
    codes : numpy.ndarray
        Positions in the values.
    values : pandas.Series
        Distinct values in order of appearance.

    Examples
    --------
    >>> codes, values = factorized(pd.Series(["b", None, "a", "b"]))
    >>> codes.tolist(), values.tolist()
    ([0, -1, 1, 0], ['b', 'a'])
    """
    try:
        codes, values = pd.factorize(column)
    except TypeError:
        codes, values = pd.factorize(column.map(repr, na_action="ignore"))
    return np.asarray(codes), pd.Series(values)


def numbers(column: pd.Series) -> Float[np.ndarray, " row"]:
    """Return a column as numbers: NaN where missing, infinite where it holds no number.

    Infinite stands for both an infinity and text, because both are refused alike.

    Parameters
    ----------
    column
        Numbers, truth values, or text that spells either.

    Returns
    -------
    numpy.ndarray
        One number per row.

    Examples
    --------
    >>> numbers(pd.Series(["1", "-1", "true", "", "n/a", "x"])).tolist()
    [1.0, -1.0, 1.0, nan, nan, inf]
    """
    if pd.api.types.is_numeric_dtype(column.dtype):
        return column.to_numpy(dtype=np.float64, na_value=np.nan)
    codes, values = factorized(column)
    parsed = np.array([*(_number(value) for value in values), np.nan])
    return np.asarray(parsed[codes])


def holds_only_text(column: pd.Series) -> bool:
    """Say whether a column has values, and none of them is a number or a truth value.

    Parameters
    ----------
    column
        Any column.

    Returns
    -------
    bool
        False where it is empty throughout.

    Examples
    --------
    >>> holds_only_text(pd.Series(["M", "F"])), holds_only_text(pd.Series(["1", "F"]))
    (True, False)
    """
    if pd.api.types.is_numeric_dtype(column.dtype):
        return False
    kinds = {_kind(value) for value in factorized(column)[1]} - {"missing"}
    return kinds == {"text"}


def coded_scores(values: Float[np.ndarray, ...], name: Callable[[int], str]) -> Float[np.ndarray, ...]:
    """Return scores as 0, 1 or NaN, refusing all that lie outside 0/1, -1/1 and true/false.

    Parameters
    ----------
    values
        As `numbers` returns them, in any shape.
    name
        Returns the text that names a cell and its content, given its position in row-major order.

    Returns
    -------
    numpy.ndarray
        The same shape.

    Raises
    ------
    InvalidResponsesError
        If a score is text, infinite, fractional or another number, or if 0 and -1 both occur.

    Examples
    --------
    >>> coded_scores(np.array([-1.0, 1.0, np.nan]), str).tolist()
    [0.0, 1.0, nan]
    """
    observed = ~np.isnan(values)
    _refuse(
        np.isinf(values),
        name,
        "is text or infinite",
        f"Scores must be 0/1, -1/1 or true/false; NaN, null and empty mean missing. {NOT_AN_ITEM}",
    )
    _refuse(
        observed & (values != np.rint(values)),
        name,
        "is fractional",
        "Turning it into right or wrong needs a rule that you state: a threshold from which on scores are right "
        "(--threshold 0.5, or TableColumns(scores=ScoreThreshold(0.5))), the number of parts that it is a share of "
        f"(--parts 4, ScoreParts(4)), or counts ({COUNT_COLUMNS}).",
    )
    _refuse(
        observed & ~np.isin(values, (-1.0, 0.0, 1.0)),
        name,
        "lies outside the coding",
        f"Scores must be 0/1, -1/1 or true/false; several attempts at once are given as {COUNT_COLUMNS}. "
        f"{NOT_AN_ITEM}",
    )
    negative, zero = values == -1, values == 0
    if negative.any() and zero.any():
        raise InvalidResponsesError(
            f"{counted(int(zero.sum()), 'score')} of 0 (first: {name(int(zero.argmax()))}) and "
            f"{counted(int(negative.sum()), 'score')} of -1 (first: {name(int(negative.argmax()))}) in "
            "one table. Use either 0/1 or -1/1; leave a missing cell empty."
        )
    return np.where(negative, 0.0, values)


def counted_scores(
    values: Float[np.ndarray, "*cells"], name: Callable[[int], str], rule: ScoreRule | None = None
) -> tuple[Float[np.ndarray, "*cells"], Float[np.ndarray, "*cells"]]:
    """Return scores as right attempts out of attempts, by a rule where the user named one.

    Parameters
    ----------
    values
        As `numbers` returns them, in any shape.
    name
        Returns the text that names a cell and its content, given its position in row-major order.
    rule
        How to read fractional scores; None to refuse them.

    Returns
    -------
    successes, attempts : numpy.ndarray
        Whole numbers in the same shape, 0 out of 0 where a score is missing.

    Raises
    ------
    InvalidResponsesError
        If a score breaks the coding, or is no share of so many parts.

    Examples
    --------
    >>> counted_scores(np.array([0.4, 0.6, np.nan]), str, ScoreThreshold(0.5))
    (array([0., 1., 0.]), array([1., 1., 0.]))
    >>> counted_scores(np.array([0.33, 1.0, np.nan]), str, ScoreParts(3))
    (array([1., 3., 0.]), array([3., 3., 0.]))
    """
    if rule is None:
        values = coded_scores(values, name)
    else:
        _refuse(np.isinf(values), name, "is text or infinite", f"Scores must be numbers. {NOT_AN_ITEM}")
    observed = (~np.isnan(values)).astype(np.float64)
    if rule is None:
        return np.nan_to_num(values), observed
    if not isinstance(rule, ScoreRule):
        raise InvalidConfigurationError(
            f"scores is {rule!r}; it must be a ScoreThreshold, ScoreParts or None."
        )
    if isinstance(rule, ScoreThreshold):
        return (values >= rule.least).astype(np.float64), observed
    parts = np.rint(values * rule.number)
    outside = (values < 0) | (values > 1)
    _refuse(outside, name, "lies outside 0 to 1", f"Scores are read as shares of {rule.number} parts.")
    broken = np.abs(values - parts / rule.number) > min(_ROUNDED, _PART / rule.number) + 1e-9
    _refuse(
        broken, name, f"is no share of {rule.number} parts", "State another number of parts, or a threshold."
    )
    return np.nan_to_num(parts), observed * rule.number


def whole_counts(
    successes: pd.Series, attempts: pd.Series, name: Callable[[int], str]
) -> tuple[Float[np.ndarray, " row"], Float[np.ndarray, " row"]]:
    """Return counts as numbers, 0 out of 0 where both are missing.

    Parameters
    ----------
    successes, attempts
        Columns of a table.
    name
        Returns the text that names a row.

    Returns
    -------
    successes, attempts : numpy.ndarray
        Whole numbers.

    Raises
    ------
    InvalidResponsesError
        If a count is no whole number, is negative, lacks its partner, or if successes exceed attempts.

    Examples
    --------
    >>> whole_counts(pd.Series(["3", ""]), pd.Series(["4", ""]), str)
    (array([3., 0.]), array([4., 0.]))
    """
    right, tried = numbers(successes), numbers(attempts)
    remedy = (
        "Successes and attempts must be whole numbers from 0 up, or both empty where the cell is missing."
    )
    _refuse(np.isinf(right) | np.isinf(tried), name, "has a count that is text or infinite", remedy)
    lone = np.isnan(right) != np.isnan(tried)
    _refuse(lone & ~(tried == 0), name, "has only one of successes and attempts", remedy)
    right, tried = np.nan_to_num(right), np.nan_to_num(tried)
    broken = (right != np.rint(right)) | (tried != np.rint(tried)) | (right < 0) | (tried < 0)
    _refuse(broken, name, "has a count that is negative or not whole", remedy)
    _refuse(right > tried, name, "has more successes than attempts", "Correct the counts.")
    return right, tried


def _refuse(wrong: np.ndarray, name: Callable[[int], str], what: str, remedy: str) -> None:
    """Raise where any cell is wrong, naming the first."""
    if wrong.any():
        others = int(wrong.sum()) - 1
        more = f" (and {counted(others, 'other')})" if others else ""
        raise InvalidResponsesError(f"{name(int(wrong.argmax()))} {what}{more}. {remedy}")


def _number(value: object) -> float:
    """Return a value as a number, NaN if it means missing, infinite if it is anything else."""
    if isinstance(value, str):
        text = value.strip().lower()
        if text in MISSING:
            return np.nan
        if text in TRUTH:
            return TRUTH[text]
        try:
            return float(text)
        except ValueError:
            return np.inf
    return float(value) if isinstance(value, (bool, int, float, np.number, np.bool_)) else np.inf


def _kind(value: object) -> str:
    """Say whether a value is missing, a number or text."""
    number = _number(value)
    if np.isnan(number):
        return "missing"
    return "text" if np.isinf(number) else "number"
