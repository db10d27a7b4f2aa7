"""Read scores: numbers from whatever a table holds, then 0, 1 or missing from numbers."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pandas as pd
from jaxtyping import Float, Integer

from bayes_irt.errors import InvalidResponsesError
from bayes_irt.metadata import counted

MISSING = ("", "na", "n/a", "nan", "null", "none", "<na>")
TRUTH = {"true": 1.0, "false": 0.0}
COUNT_COLUMNS = "columns 'successes' and 'attempts'"
NOT_AN_ITEM = (
    "In a wide table, name a column that describes the LLM (--llm-columns) or is to be left out (--ignore)."
)


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
        "Turning it into right or wrong needs a rule that you state: give counts "
        f"({COUNT_COLUMNS}), or replace scores by 0 and 1 with a threshold of your own.",
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
