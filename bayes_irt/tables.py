"""Turn a long or wide table of results into labelled counts.

Columns are found by common names unless they are named; scores are coded 0/1, -1/1 or true/false, or read by a rule
that the user states; whatever else stands in a score cell is refused by name, never rounded or dropped.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd
import xarray as xr
from jaxtyping import Float, Integer

from bayes_irt.counts import drop_empty_labels, label_counts
from bayes_irt.errors import InvalidResponsesError, some
from bayes_irt.metadata import counted, preferred
from bayes_irt.scores import counted_scores, factorized, holds_only_text, numbers, whole_counts
from bayes_irt.table_columns import UNNAMED, TableColumns, check_roles, find_roles, plain_name


@dataclass(frozen=True, slots=True)
class LabelledCounts:
    """Hold what a table says, before it is checked as a whole.

    Parameters
    ----------
    successes, attempts
        LLMs in rows, items in columns.
    llms, items
        Labels; None where the table has none.
    llm_metadata, item_metadata
        Indexed by label; without columns where the table has none.

    Examples
    --------
    >>> counts_from_wide(pd.DataFrame({"q1": [0, 1], "q2": [1, 1]}), TableColumns()).llms is None
    True
    """

    successes: Integer[np.ndarray, "llm item"]
    attempts: Integer[np.ndarray, "llm item"]
    llms: tuple[str, ...] | None
    items: tuple[str, ...]
    llm_metadata: pd.DataFrame
    item_metadata: pd.DataFrame


def counts_from_long(frame: pd.DataFrame, columns: TableColumns) -> LabelledCounts:
    """Return the counts of a table with one row per LLM, item and attempt.

    Parameters
    ----------
    frame
        The table.
    columns
        Columns named by the user.

    Returns
    -------
    LabelledCounts
        LLMs and items in order of first appearance.

    Raises
    ------
    InvalidResponsesError
        If a column is lacking, a row is repeated, or a score lies outside the coding.

    Examples
    --------
    >>> frame = pd.DataFrame({"llm": ["a", "a"], "item": ["x", "y"], "successes": [1, 0], "attempts": [2, 2]})
    >>> counts_from_long(frame, TableColumns()).attempts.tolist()
    [[2, 2]]
    """
    frame = _with_text_names(frame)
    roles = find_roles(frame, columns)
    check_roles(roles, list(frame.columns), len(frame))
    _refuse_row_numbers(frame, roles, columns)
    (llm_codes, llms), (item_codes, items) = (_labels(frame[roles[role]], role) for role in ("llm", "item"))
    rows = _LongRows(llm_codes, item_codes, llms, items)
    _check_repeats(frame, roles, rows)
    if "successes" in roles and "attempts" in roles:
        if columns.scores is not None:
            raise InvalidResponsesError(
                f"A rule for scores ({columns.scores}) would do nothing: the table holds counts, in "
                f"{roles['successes']!r} and {roles['attempts']!r}. Leave the rule out, or name the "
                "column of scores (--score)."
            )
        pair = whole_counts(frame[roles["successes"]], frame[roles["attempts"]], rows.name)
    else:
        column = frame[roles["score"]]
        name = lambda row: f"{column.iloc[row]!r} for {rows.name(row)}"  # noqa: E731
        pair = counted_scores(numbers(column), name, columns.scores)
    successes, attempts = (rows.summed(values) for values in pair)
    described = _described(frame, roles, columns, rows)
    return LabelledCounts(successes, attempts, llms, items, *described)


def counts_from_wide(frame: pd.DataFrame, columns: TableColumns) -> LabelledCounts:
    """Return the counts of a table with one row per LLM and one column per item, or the reverse.

    Parameters
    ----------
    frame
        The table.
    columns
        Columns named by the user.

    Returns
    -------
    LabelledCounts
        In the order of the table.

    Raises
    ------
    InvalidResponsesError
        If a column holds text, or a score lies outside the coding.

    Examples
    --------
    >>> turned = pd.DataFrame({"item": ["x", "y"], "a": [0, 1], "b": [1, 1]})
    >>> counts_from_wide(turned, TableColumns()).llms
    ('a', 'b')
    """
    frame = _with_text_names(frame)
    roles = find_roles(frame, columns)
    frame = _without_index(frame.drop(columns=list(columns.ignore)), roles)
    turned = _has_items_in_rows(frame, columns, roles)
    role = "item" if turned else "llm"
    label = roles["item"] if turned else _label_column(frame, columns, roles)
    rows = _row_labels(frame, label, role)
    scored = frame.drop(columns=[name for name in (label, *columns.llm_columns) if name is not None])
    other = tuple(scored.columns)
    values = _matrix(scored)
    _refuse_text(values, other)

    def cell(position: int) -> str:
        row, column = divmod(position, len(other))
        name = rows[row] if rows else f"in row {row + 1}"
        llm, item = (other[column], name) if turned else (name, other[column])
        return f"{scored.iloc[row, column]!r} for LLM {llm!r}, item {item!r}"

    pair = counted_scores(values, cell, columns.scores)
    kind = np.min_scalar_type(int(pair[1].max(initial=0)))
    successes, attempts = ((counts.T if turned else counts).astype(kind) for counts in pair)
    llms, items = (other, rows or ()) if turned else (rows, other)
    described = frame[list(columns.llm_columns)].set_axis(rows or range(len(frame)), axis="index")
    return LabelledCounts(
        successes,
        attempts,
        llms,
        items,
        described,
        pd.DataFrame(index=list(items)),
    )


def labelled_dataset(
    counts: LabelledCounts,
    llm_metadata: pd.DataFrame | None,
    item_metadata: pd.DataFrame | None,
    *,
    drop_empty: bool,
) -> xr.Dataset:
    """Return the counts of a table as a dataset, with metadata from elsewhere added.

    Parameters
    ----------
    counts
        What the table says.
    llm_metadata, item_metadata
        One row per label in the index; preferred to a column of the same name in the table.
    drop_empty
        Leave out LLMs and items without an answer, with a warning.

    Returns
    -------
    xarray.Dataset
        Not yet checked.

    Examples
    --------
    >>> counts = counts_from_wide(pd.DataFrame({"q1": [0, 1], "q2": [1, 1]}), TableColumns())
    >>> labelled_dataset(counts, None, None, drop_empty=False)["successes"].values.tolist()
    [[0, 1], [1, 1]]
    """
    dataset = label_counts(
        counts.successes,
        counts.attempts,
        counts.llms,
        counts.items,
        preferred(llm_metadata, counts.llm_metadata),
        preferred(item_metadata, counts.item_metadata),
    )
    return drop_empty_labels(dataset) if drop_empty else dataset


@dataclass(frozen=True, slots=True)
class _LongRows:
    """Say to which cell each row of a long table belongs."""

    llm_codes: Integer[np.ndarray, " row"]
    item_codes: Integer[np.ndarray, " row"]
    llms: tuple[str, ...]
    items: tuple[str, ...]

    @property
    def cells(self) -> Integer[np.ndarray, " row"]:
        return np.asarray(self.llm_codes.astype(np.int64) * len(self.items) + self.item_codes)

    def name(self, row: int) -> str:
        return f"LLM {self.llms[self.llm_codes[row]]!r}, item {self.items[self.item_codes[row]]!r}"

    def summed(self, values: Float[np.ndarray, " row"]) -> Integer[np.ndarray, "llm item"]:
        shape = (len(self.llms), len(self.items))
        sums = np.bincount(self.cells, values, shape[0] * shape[1])
        return np.asarray(sums.reshape(shape).astype(np.int64))


def _with_text_names(frame: pd.DataFrame) -> pd.DataFrame:
    """Return the table with column names as text, refusing names that occur twice."""
    names = pd.Index([str(name) for name in frame.columns], dtype=object)
    if names.has_duplicates:
        twice = names[names.duplicated()].unique().tolist()
        raise InvalidResponsesError(
            f"Columns share the names {some(twice)}. Each column needs a name of its own; "
            "a file without a header row needs one."
        )
    if not len(frame):
        raise InvalidResponsesError("The table has no rows. At least two LLMs with answers are required.")
    return frame.set_axis(names, axis="columns")


def _labels(column: pd.Series, role: str) -> tuple[Integer[np.ndarray, " row"], tuple[str, ...]]:
    """Return labels exactly as written, and which row has which."""
    codes, values = factorized(column)
    again, labels = pd.factorize(np.array([str(value) for value in values], dtype=object))
    codes = np.append(again, -1)[codes]
    word = {"llm": "LLM", "item": "item"}[role]
    blank = (codes < 0) | np.isin(codes, [i for i, label in enumerate(labels) if not label.strip()])
    if blank.any():
        raise InvalidResponsesError(
            f"{counted(int(blank.sum()), 'row')} (first: row {int(blank.argmax()) + 1}) without a label in "
            f"the {word} column {column.name!r}. Every row needs one."
        )
    return codes, tuple(labels.tolist())


def _check_repeats(frame: pd.DataFrame, roles: dict[str, str], rows: _LongRows) -> None:
    """Refuse two rows for one LLM, item and attempt."""
    keys = pd.DataFrame({"cell": rows.cells})
    if "attempt" in roles:
        keys["attempt"] = factorized(frame[roles["attempt"]])[0]
    repeated = keys.duplicated().to_numpy()
    if not repeated.any():
        return
    row = int(repeated.argmax())
    found = f"{counted(int(repeated.sum()), 'repeated row')} (first: {rows.name(row)}"
    if "attempt" in roles:
        attempt = roles["attempt"]
        raise InvalidResponsesError(
            f"{found}, {attempt} {frame[attempt].iloc[row]}). "
            "Number the attempts within each cell, or remove the repeated rows."
        )
    raise InvalidResponsesError(
        f"{found}). If these are repeated attempts, add a column 'attempt' that numbers them (or name it: "
        "--attempt); else remove the repeats."
    )


def _described(
    frame: pd.DataFrame, roles: dict[str, str], columns: TableColumns, rows: _LongRows
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return the metadata of LLMs and items that further columns of a long table hold."""
    of_llms: dict[str, pd.Series] = {}
    of_items: dict[str, pd.Series] = {}
    for name in frame.columns:
        if name in roles.values() or name in columns.ignore or plain_name(name) in UNNAMED:
            continue
        codes, values = factorized(frame[name])
        by_item = _constant(codes, values, rows.item_codes, rows.items)
        by_llm = _constant(codes, values, rows.llm_codes, rows.llms)
        if name in columns.llm_columns and by_llm is None:
            raise InvalidResponsesError(
                f"Column {name!r} was named as describing the LLM, but takes several values within one LLM. "
                f"Leave it out (--ignore {name})."
            )
        if by_item is not None and name not in columns.llm_columns:
            of_items[name] = by_item
        elif by_llm is not None:
            of_llms[name] = by_llm
    return pd.DataFrame(of_llms, index=list(rows.llms)), pd.DataFrame(of_items, index=list(rows.items))


def _constant(
    codes: Integer[np.ndarray, " row"],
    values: pd.Series,
    groups: Integer[np.ndarray, " row"],
    labels: tuple[str, ...],
) -> pd.Series | None:
    """Return a column's value per group, or None where it varies within one or no group has two rows."""
    seen = codes >= 0
    value_of = np.full(len(labels), -1)
    value_of[groups[seen]] = codes[seen]
    if (value_of >= 0).sum() == seen.sum() or (value_of[groups[seen]] != codes[seen]).any():
        return None
    return values.reindex(value_of).set_axis(list(labels))


def _has_items_in_rows(frame: pd.DataFrame, columns: TableColumns, roles: dict[str, str]) -> bool:
    """Say whether a wide table has one row per item: its label column is called `item`."""
    if columns.item is not None:
        return True
    return "llm" not in roles and roles.get("item") == frame.columns[0]


def _without_index(frame: pd.DataFrame, roles: dict[str, str]) -> pd.DataFrame:
    """Return the table without an unnamed row index that stands beside a column of labels."""
    first = frame.columns[0] if len(frame.columns) else "x"
    if plain_name(first) not in UNNAMED or not {"llm", "item"} & roles.keys():
        return frame
    order = numbers(frame[first])
    rises = np.isfinite(order).all() and (np.diff(order) > 0).all()
    return frame.drop(columns=first) if rises else frame


def _label_column(frame: pd.DataFrame, columns: TableColumns, roles: dict[str, str]) -> str | None:
    """Return the column of a wide table that holds the LLM labels."""
    if "llm" in roles:
        return roles["llm"]
    rest = [name for name in frame.columns if name not in columns.llm_columns]
    if rest and (plain_name(rest[0]) in UNNAMED or holds_only_text(frame[rest[0]])):
        return str(rest[0])
    return None


def _row_labels(frame: pd.DataFrame, label: str | None, role: str) -> tuple[str, ...] | None:
    """Return the label of each row as written, from a column or from an index of text."""
    if label is None:
        has_text = pd.api.types.infer_dtype(frame.index, skipna=False) == "string"
        return tuple(str(name) for name in frame.index) if has_text else None
    codes, labels = _labels(frame[label], role)
    return tuple(labels[code] for code in codes)


def _refuse_row_numbers(frame: pd.DataFrame, roles: dict[str, str], columns: TableColumns) -> None:
    """Refuse a column guessed to name the LLMs in which no value comes twice: it numbers the rows."""
    names = frame[roles["llm"]]
    if columns.llm is None and len(names) > 2 and names.is_unique:
        raise InvalidResponsesError(
            f"Column {roles['llm']!r} has a different value in each of {len(names):,} rows, so it does not seem to "
            f"name the LLM. Name the column that does (--llm), or this one if it is meant (--llm {roles['llm']})."
        )


def _refuse_text(scores: Float[np.ndarray, "row column"], names: tuple[str, ...]) -> None:
    """Refuse a table without item columns, and columns that hold text throughout."""
    if not names:
        raise InvalidResponsesError("The wide table has no item column. One column per item is required.")
    only_text = np.isinf(scores).any(axis=0) & ~np.isfinite(scores).any(axis=0)
    text = [names[column] for column in np.flatnonzero(only_text)]
    if text:
        raise InvalidResponsesError(
            f"{counted(len(text), 'column')} of the wide table with text where scores are required: "
            f"{some(text)}. Name those that describe the LLM (--llm-columns), leave out others (--ignore). "
            "A long table needs an LLM and an item column with common names (llm, item), or named ones."
        )


def _matrix(scored: pd.DataFrame) -> Float[np.ndarray, "row column"]:
    """Return all scores as `numbers` does."""
    if all(pd.api.types.is_numeric_dtype(dtype) for dtype in scored.dtypes):
        return scored.to_numpy(dtype=np.float64, na_value=np.nan)
    cells = pd.Series(scored.to_numpy(dtype=object).ravel(), dtype=object)
    return numbers(cells).reshape(scored.shape)
