"""Build, check and freeze the labelled counts behind `Responses`.

A cell of the matrix holds `successes` out of `attempts`; 0 attempts mean that the outcome is missing. The
functions here work on a plain `xarray.Dataset`; `bayes_irt.responses` wraps it.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable

import numpy as np
import pandas as pd
import xarray as xr
from jaxtyping import Bool, Integer

from bayes_irt.errors import InvalidResponsesError, some
from bayes_irt.metadata import DIMS, WORDS, aligned_columns, counted, metadata_table, metadata_values

COUNTS = ("successes", "attempts")
LEAVE_OUT = (
    "Leave them out: drop_empty=True where a table is read or a subset is taken, "
    "--drop-empty on the command line."
)


def label_counts(
    successes: np.ndarray,
    attempts: np.ndarray | None,
    llms: Iterable[str] | None,
    items: Iterable[str] | None,
    llm_metadata: pd.DataFrame | None = None,
    item_metadata: pd.DataFrame | None = None,
) -> xr.Dataset:
    """Return a dataset of labelled counts, not yet checked.

    Parameters
    ----------
    successes
        LLMs in rows, items in columns. Without attempts, NaN marks a missing cell.
    attempts
        The same shape; without it every cell that is not missing has one attempt.
    llms, items
        Labels; numbered where they are not given.
    llm_metadata, item_metadata
        One row per label in the index, one column per property. A label without a row gets missing values.

    Returns
    -------
    xarray.Dataset
        Variables `successes` and `attempts`, with the metadata as coordinates.

    Raises
    ------
    InvalidResponsesError
        If shapes disagree, or metadata cannot be matched to the labels.

    Examples
    --------
    >>> label_counts(np.array([[0, 1], [1, 1]]), None, None, None)["llm"].values.tolist()
    ['llm-001', 'llm-002']
    """
    if successes.ndim != 2:
        raise InvalidResponsesError(
            f"The successes have {successes.ndim} dimensions. Two are required: LLMs in rows, items in "
            "columns."
        )
    if attempts is None:
        successes, attempts = _single_attempts(successes)
    if attempts.shape != successes.shape:
        raise InvalidResponsesError(
            f"Successes have shape {successes.shape}, attempts {attempts.shape}. Give both the same."
        )
    labels = {
        "llm": _labels(llms, "llm", 3, successes.shape[0]),
        "item": _labels(items, "item", 4, successes.shape[1]),
    }
    frames = {"llm": llm_metadata, "item": item_metadata}
    columns = {dim: aligned_columns(frame, labels[dim], dim) for dim, frame in frames.items()}
    coordinates: dict[str, object] = {dim: (dim, labels[dim]) for dim in DIMS}
    for dim, name, values in _named_apart(columns):
        coordinates[name] = (dim, values)
    counts = {"successes": (DIMS, successes), "attempts": (DIMS, attempts)}
    return xr.Dataset(counts, coords=coordinates)


def canonical_dataset(dataset: xr.Dataset) -> xr.Dataset:
    """Check a dataset of counts and return a read-only copy in the one form that the package uses.

    Parameters
    ----------
    dataset
        Variables `successes` and `attempts` with dims llm and item, string coordinates, metadata as further
        coordinates on one of the two dims.

    Returns
    -------
    xarray.Dataset
        Counts in the smallest unsigned type that holds the largest of them; every array refuses writing.

    Raises
    ------
    InvalidResponsesError
        If the counts, the labels or the shape break a rule; the message names the labels.

    Examples
    --------
    >>> dataset = canonical_dataset(label_counts(np.array([[0, 1], [1, 0]]), None, None, None))
    >>> str(dataset["successes"].dtype), dataset["successes"].values.flags.writeable
    ('uint8', False)
    """
    _check_structure(dataset)
    labels = {dim: [str(label) for label in dataset[dim].values] for dim in DIMS}
    for dim in DIMS:
        _check_labels(labels[dim], dim)
    whole = [_whole(dataset[name].transpose(*DIMS).values, name, labels) for name in COUNTS]
    _check_counts(whole[0], whole[1], labels)
    smallest = np.dtype(np.min_scalar_type(int(whole[1].max())).name)
    coordinates: dict[str, object] = {dim: (dim, np.array(labels[dim], dtype=object)) for dim in DIMS}
    for name, variable in dataset.coords.items():
        if name not in DIMS:
            values = metadata_values(pd.Series(variable.values))
            coordinates[str(name)] = (variable.dims, values)
    counts = {
        name: (DIMS, _unwritable(np.asarray(values, dtype=smallest)))
        for name, values in zip(COUNTS, whole, strict=True)
    }
    result = xr.Dataset(counts, coords=coordinates)
    for name, variable in result.variables.items():
        if name not in DIMS:
            variable.values.flags.writeable = False
    return result


def _unwritable(values: np.ndarray) -> np.ndarray:
    """Return a copy that lies on immutable bytes, so that no flag can make it writeable."""
    return np.frombuffer(values.tobytes(), dtype=values.dtype).reshape(values.shape)


def drop_empty_labels(dataset: xr.Dataset) -> xr.Dataset:
    """Return the dataset without the LLMs and items that have no answer, and warn with their names.

    Parameters
    ----------
    dataset
        Counts that may hold empty rows and columns.

    Returns
    -------
    xarray.Dataset
        The same dataset where nothing was empty.

    Examples
    --------
    >>> dataset = label_counts(np.array([[0.0, 1.0], [1.0, 0.0]]), None, None, None)
    >>> drop_empty_labels(dataset).sizes["item"]
    2
    """
    observed = dataset["attempts"] > 0
    keep = {"llm": observed.any("item").values, "item": observed.any("llm").values}
    for dim in DIMS:
        empty = dataset[dim].values[~keep[dim]].tolist()
        if empty:
            warnings.warn(
                f"Left out {counted(len(empty), WORDS[dim])} without an answer: {some(empty)}.", stacklevel=3
            )
    return dataset.isel(llm=keep["llm"], item=keep["item"])


def _single_attempts(successes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Split scores into successes and one attempt per observed cell; NaN means missing."""
    if not np.issubdtype(successes.dtype, np.floating):
        return successes, np.ones(successes.shape, dtype=np.uint8)
    missing = np.isnan(successes)
    return np.where(missing, 0.0, successes), (~missing).astype(np.uint8)


def _labels(labels: Iterable[str] | None, stem: str, digits: int, number: int) -> np.ndarray:
    """Return labels as an object array: those given, or numbered ones."""
    if labels is None:
        labels = [f"{stem}-{index:0{digits}d}" for index in range(1, number + 1)]
    labels = [str(label) for label in labels]
    if len(labels) != number:
        raise InvalidResponsesError(
            f"There are {counted(len(labels), f'{WORDS[stem]} label')} "
            f"for {counted(number, 'row' if stem == 'llm' else 'column')}. Give one label each."
        )
    return np.array(labels, dtype=object)


def _named_apart(columns: dict[str, dict[str, np.ndarray]]) -> list[tuple[str, str, np.ndarray]]:
    """Return (dim, name, values) with a prefix where a name is taken by the counts or by both dims."""
    taken = {*DIMS, *COUNTS, *(columns["llm"].keys() & columns["item"].keys())}
    named = [
        (dim, f"{dim}_{name}" if name in taken else name, values)
        for dim in DIMS
        for name, values in columns[dim].items()
    ]
    names = pd.Index([name for _, name, _ in named], dtype=object)
    if names.has_duplicates:
        raise InvalidResponsesError(
            f"Metadata columns share the names {some(names[names.duplicated()].tolist())}. "
            "Rename one of each."
        )
    return named


def _check_structure(dataset: xr.Dataset) -> None:
    """Refuse a dataset that lacks a variable, a dim or its labels."""
    lacking = [name for name in COUNTS if name not in dataset.data_vars]
    lacking += [dim for dim in DIMS if dim not in dataset.coords]
    if lacking or any(set(dataset[name].dims) != set(DIMS) for name in COUNTS):
        raise InvalidResponsesError(
            "The dataset needs variables 'successes' and 'attempts' with the labelled dims 'llm' and 'item'"
            + (f"; it lacks {some(lacking)}." if lacking else ".")
        )
    further = [str(name) for name, coord in dataset.coords.items() if len(coord.dims) != 1]
    if further:
        raise InvalidResponsesError(
            f"The coordinates {some(further)} describe neither LLMs nor items alone. "
            "Metadata have one value per LLM or per item."
        )


def _check_labels(labels: list[str], dim: str) -> None:
    """Refuse labels that are too few, blank or repeated."""
    if len(labels) < 2:
        found = f"only one {WORDS[dim]}: {some(labels)}" if labels else f"no {WORDS[dim]}"
        raise InvalidResponsesError(f"There is {found}. At least two {WORDS[dim]}s are required.")
    index = pd.Index(labels, dtype=object)
    if index.has_duplicates:
        twice = index[index.duplicated()].unique().tolist()
        raise InvalidResponsesError(
            f"{counted(len(twice), f'{WORDS[dim]} label')} used more than once: {some(twice)}. "
            "Labels must differ: rename or remove the repeats."
        )
    if "" in labels:
        raise InvalidResponsesError(f"An {WORDS[dim]} has an empty label. Each needs a label of its own.")


def _whole(values: np.ndarray, name: str, labels: dict[str, list[str]]) -> Integer[np.ndarray, "llm item"]:
    """Return counts as integers, refusing whatever is not a whole number from 0 up."""
    if values.dtype == np.bool_:
        return values.astype(np.uint8)
    if values.dtype.kind not in "iuf":
        raise InvalidResponsesError(f"The {name} are of type {values.dtype}. Whole numbers are required.")
    if values.dtype.kind == "f":
        not_finite = ~np.isfinite(values)
        refuse_cells(
            not_finite, labels, f"{name} that are NaN or infinite", "Mark a missing cell by 0 attempts."
        )
        fractional = values != np.floor(values)
        refuse_cells(
            fractional,
            labels,
            f"{name} that are not whole numbers",
            "Give counts: successes out of attempts.",
        )
    refuse_cells(values < 0, labels, f"negative {name}", "Counts start at 0; recode -1/1 as 0/1.")
    return values if values.dtype.kind in "iu" else values.astype(np.int64)


def _check_counts(
    successes: Integer[np.ndarray, "llm item"],
    attempts: Integer[np.ndarray, "llm item"],
    labels: dict[str, list[str]],
) -> None:
    """Refuse more successes than attempts, and LLMs or items without any answer."""
    refuse_cells(
        successes > attempts,
        labels,
        "more successes than attempts",
        "Each cell has at most as many successes as attempts; a missing one has 0 of both.",
    )
    observed = attempts > 0
    for axis, dim in ((1, "llm"), (0, "item")):
        empty = [labels[dim][index] for index in np.flatnonzero(~observed.any(axis=axis))]
        if empty:
            raise InvalidResponsesError(
                f"{counted(len(empty), WORDS[dim])} without an answer ({some(empty)}). "
                f"Each {WORDS[dim]} needs one. {LEAVE_OUT}"
            )


def refuse_cells(
    wrong: Bool[np.ndarray, "llm item"], labels: dict[str, list[str]], what: str, remedy: str
) -> None:
    """Raise where any cell is wrong, naming the first.

    Parameters
    ----------
    wrong
        True where the cell breaks a rule.
    labels
        Labels by dim.
    what
        What such a cell has, for "3 cells with ...".
    remedy
        The way out, in a sentence.

    Raises
    ------
    InvalidResponsesError
        If any cell is wrong.

    Examples
    --------
    >>> refuse_cells(np.zeros((1, 1), bool), {"llm": ["a"], "item": ["x"]}, "nonsense", "Mend it.")
    """
    if not wrong.any():
        return
    row, column = np.unravel_index(int(wrong.argmax()), wrong.shape)
    raise InvalidResponsesError(
        f"{counted(int(wrong.sum()), 'cell')} with {what} (first: LLM {labels['llm'][row]!r}, "
        f"item {labels['item'][column]!r}). {remedy}"
    )


def label_positions(dataset: xr.Dataset, dim: str, labels: Iterable[str]) -> np.ndarray:
    """Return where labels stand.

    Parameters
    ----------
    dataset
        Labelled counts.
    dim
        "llm" or "item".
    labels
        The labels to find; a lone string is one label.

    Returns
    -------
    numpy.ndarray
        Positions in the order of the labels given.

    Raises
    ------
    InvalidResponsesError
        If a label is unknown.

    Examples
    --------
    >>> dataset = label_counts(np.array([[0, 1], [1, 0]]), None, ["a", "b"], None)
    >>> label_positions(dataset, "llm", ["b"])
    array([1])
    """
    wanted = [labels] if isinstance(labels, str) else [str(label) for label in labels]
    known = dataset[dim].values.tolist()
    positions = pd.Index(known, dtype=object).get_indexer(pd.Index(wanted, dtype=object))
    unknown = [label for label, position in zip(wanted, positions, strict=True) if position < 0]
    if unknown:
        raise InvalidResponsesError(
            f"{counted(len(unknown), f'unknown {WORDS[dim]} label')}: {some(unknown)}. "
            f"The {WORDS[dim]}s are {some(known, 3)}."
        )
    return np.asarray(positions)


def described(dataset: xr.Dataset) -> str:
    """Return one line with the size, the share missing, the accuracies and the metadata of a dataset.

    Parameters
    ----------
    dataset
        As returned by `canonical_dataset`.

    Returns
    -------
    str
        Without a line break.

    Examples
    --------
    >>> described(canonical_dataset(label_counts(np.array([[0, 1], [1, 1]]), None, None, None)))
    '2 LLMs x 2 items, 4 attempts (1 per cell), 0.0 % missing, accuracy .50 to 1.00'
    """
    successes, attempts = (dataset[name].values for name in COUNTS)
    accuracy = successes.sum(axis=1, dtype=np.int64) / attempts.sum(axis=1, dtype=np.int64)
    low, high = (f"{value:.2f}".removeprefix("0") for value in (accuracy.min(), accuracy.max()))
    fewest, most = int(attempts[attempts > 0].min()), int(attempts.max())
    missing = 1 - np.count_nonzero(attempts) / attempts.size
    parts = [
        f"{counted(attempts.shape[0], 'LLM')} x {counted(attempts.shape[1], 'item')}",
        f"{counted(int(attempts.sum(dtype=np.int64)), 'attempt')} "
        f"({most if fewest == most else f'{fewest} to {most}'} per cell)",
        f"{'under 0.1' if 0 < missing < 0.001 else f'{100 * missing:.1f}'} % missing",
        f"accuracy {low} to {high}",
    ]
    names = {dim: ", ".join(str(name) for name in metadata_table(dataset, dim).columns) for dim in DIMS}
    known = [f"{WORDS[dim]} metadata: {names[dim]}" for dim in DIMS if names[dim]]
    return "; ".join([", ".join(parts), *known])
