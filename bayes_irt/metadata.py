"""Metadata of LLMs and items: the forms they take, their match with labels, and their union."""

from __future__ import annotations

import numpy as np
import pandas as pd
import xarray as xr
from jaxtyping import Bool

from bayes_irt.errors import InvalidResponsesError, some

DIMS = ("llm", "item")
WORDS = {"llm": "LLM", "item": "item"}


def counted(number: int, word: str) -> str:
    """Return a number with its noun, in the plural where it must be.

    Parameters
    ----------
    number
        How many there are.
    word
        The noun in the singular.

    Returns
    -------
    str
        The two, separated by a space.

    Examples
    --------
    >>> counted(1, "item"), counted(1200, "LLM")
    ('1 item', '1,200 LLMs')
    """
    return f"{number:,} {word}" if number == 1 else f"{number:,} {word}s"


def metadata_values(series: pd.Series) -> np.ndarray:
    """Return a metadata column in one of five forms, each of which can be saved and loaded unchanged.

    Parameters
    ----------
    series
        Any column of a table.

    Returns
    -------
    numpy.ndarray
        Truth values, integers, floats (NaN missing) or dates (NaT missing) where all values are of that kind;
        otherwise an object array of strings. Where truth values or strings are missing, the array is an
        object array with NaN there.

    Examples
    --------
    >>> metadata_values(pd.Series([1, 2])).dtype, metadata_values(pd.Series(["a", None])).tolist()
    (dtype('int64'), ['a', nan])
    """
    missing = series.isna().to_numpy(dtype=bool)
    kind = pd.api.types.infer_dtype(series, skipna=True)
    if kind == "boolean":
        return series.to_numpy(dtype=bool) if not missing.any() else _objects(series, missing, bool)
    if kind == "integer" and not missing.any():
        return series.to_numpy(dtype=np.int64)
    if kind in ("integer", "integer-na", "floating", "mixed-integer-float", "decimal"):
        return series.to_numpy(dtype=np.float64, na_value=np.nan)
    if kind in ("datetime64", "datetime", "date"):
        return pd.to_datetime(series, utc=True).dt.tz_localize(None).to_numpy(dtype="datetime64[ns]")
    if missing.all():
        return np.full(len(series), np.nan)
    return _objects(series, missing, str)


def _objects(
    series: pd.Series, missing: Bool[np.ndarray, " row"], kind: type[bool] | type[str]
) -> np.ndarray:
    """Return values of one Python type in an object array, NaN where they are missing."""
    values = np.empty(len(series), dtype=object)
    values[:] = [np.nan if gap else kind(value) for value, gap in zip(series, missing, strict=True)]
    return values


def aligned_columns(frame: pd.DataFrame | None, labels: np.ndarray, dim: str) -> dict[str, np.ndarray]:
    """Return metadata columns in the order of the labels.

    Parameters
    ----------
    frame
        One row per label in the index; None for no metadata.
    labels
        The labels that are wanted; one without a row gets missing values.
    dim
        "llm" or "item", for messages.

    Returns
    -------
    dict
        From column name to values, in the forms of `metadata_values`.

    Raises
    ------
    InvalidResponsesError
        If a label has several rows, or no label has one.

    Examples
    --------
    >>> aligned_columns(pd.DataFrame({"size": [7, 9]}, index=["b", "a"]), np.array(["a", "b"]), "llm")
    {'size': array([9, 7])}
    """
    if frame is None or not len(frame.columns):
        return {}
    index = pd.Index([str(label) for label in frame.index])
    if index.has_duplicates:
        twice = index[index.duplicated()].unique().tolist()
        raise InvalidResponsesError(
            f"The {WORDS[dim]} metadata have several rows for {counted(len(twice), WORDS[dim])} "
            f"({some(twice)}). One row each is required."
        )
    if not index.isin(labels).any():
        raise InvalidResponsesError(
            f"The {WORDS[dim]} metadata (index: {some(index.tolist(), 3)}) name none of the {WORDS[dim]}s "
            f"({some(labels.tolist(), 3)}). The index of the metadata must hold {WORDS[dim]} labels."
        )
    matched = frame.set_axis(index, axis="index").reindex(labels)
    return {str(name): metadata_values(column) for name, column in matched.items()}


def metadata_table(dataset: xr.Dataset, dim: str) -> pd.DataFrame:
    """Return the coordinates on one dim as a table indexed by label.

    Parameters
    ----------
    dataset
        Counts with metadata as coordinates.
    dim
        "llm" or "item".

    Returns
    -------
    pandas.DataFrame
        A copy: one row per label, one column per property.

    Examples
    --------
    >>> dataset = xr.Dataset(coords={"llm": ["a", "b"], "size": ("llm", [7, 9])})
    >>> metadata_table(dataset, "llm")["size"]["b"].item()
    9
    """
    columns = {
        str(name): coordinate.values.copy()
        for name, coordinate in dataset.coords.items()
        if coordinate.dims == (dim,) and name != dim
    }
    return pd.DataFrame(columns, index=pd.Index(dataset[dim].values.tolist(), name=dim))


def preferred(given: pd.DataFrame | None, found: pd.DataFrame) -> pd.DataFrame:
    """Return the metadata found in a table, overruled by those given apart.

    Parameters
    ----------
    given
        One row per label in the index, or None.
    found
        The same for what the table itself says.

    Returns
    -------
    pandas.DataFrame
        All columns, each from the source that is preferred.

    Examples
    --------
    >>> given, found = pd.DataFrame({"x": [1]}, ["a"]), pd.DataFrame({"x": [0], "y": [2]}, ["a"])
    >>> preferred(given, found).to_dict("index")
    {'a': {'x': 1, 'y': 2}}
    """
    if given is None:
        return found
    others = found[[name for name in found.columns if name not in given.columns]]
    if not len(others.columns):
        return given
    return given.set_axis([str(label) for label in given.index], axis="index").join(others, how="outer")
