"""Read long and wide tables of results, with their companions of metadata."""

from __future__ import annotations

import re
import warnings
from pathlib import Path

import pandas as pd

from bayes_irt.errors import InvalidResponsesError, some
from bayes_irt.metadata import WORDS
from bayes_irt.readers.table_files import ENDINGS, file_ending, read_frame
from bayes_irt.responses import Responses
from bayes_irt.table_columns import ROLE_NAMES, UNNAMED, TableColumns, find_layout, find_roles

COMPANIONS = {"item": ("items",), "llm": ("models", "llms")}
OPTIONS = {"item": "--items", "llm": "--llms"}
# Text such as 01 or 1_000 is a name, not a number.
NUMBER = re.compile(r"[+-]?(0|[1-9]\d*)(\.\d+)?([eE][+-]?\d+)?")
SCORE_AS_NAME = re.compile(r"-?[01](\.0)?(\.\d+)?")


def read_table(
    path: Path,
    columns: TableColumns,
    items_path: Path | None = None,
    llms_path: Path | None = None,
    *,
    drop_empty: bool = False,
) -> Responses:
    r"""Read one CSV, TSV or Parquet file, long or wide.

    Parameters
    ----------
    path
        The file.
    columns
        Which column holds what.
    items_path, llms_path
        Tables of metadata; without them, companions beside the file are used.
    drop_empty
        Leave out LLMs and items without an answer, with a warning that names them.

    Returns
    -------
    Responses
        With the metadata of the companions.

    Raises
    ------
    InvalidResponsesError
        If a file cannot be read or breaks a rule; the message starts with its name.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder) / "t.csv"
    ...     _ = path.write_text("llm,item,score\na,x,1\na,y,0\nb,x,1\nb,y,1\n")
    ...     _ = path.with_name("t_items.csv").write_text("item,level\nx,1\ny,2\n")
    ...     read_table(path, TableColumns()).item_metadata["level"].tolist()
    [1, 2]
    """
    frame = read_frame(path)
    llms, items = (_companion(path, dim, named) for dim, named in (("llm", llms_path), ("item", items_path)))
    try:
        layout = find_layout(frame, columns)
        if file_ending(path) != ".parquet":
            frame = _with_typed_metadata(frame, columns, layout)
        if layout == "wide":
            _warn_of_lost_header(frame, path)
        build = Responses.from_long if layout == "long" else Responses.from_wide
        return build(frame, columns, llm_metadata=llms, item_metadata=items, drop_empty=drop_empty)
    except InvalidResponsesError as error:
        raise InvalidResponsesError(f"{path}: {error}") from error


def typed(column: pd.Series) -> pd.Series:
    """Return a column of text as numbers or truth values where all of it reads as such.

    Parameters
    ----------
    column
        Text, empty where missing.

    Returns
    -------
    pandas.Series
        Text with a leading zero stays text, since it is a name.

    Examples
    --------
    >>> typed(pd.Series(["1", "", "2.5"])).tolist(), typed(pd.Series(["01", "2"])).tolist()
    ([1.0, nan, 2.5], ['01', '2'])
    """
    if not pd.api.types.is_string_dtype(column.dtype):
        return column
    filled = column.mask(column.isin(["", "NA", "NaN", "nan"]))
    values = filled.dropna()
    truth = values.str.lower().isin(["true", "false"])
    if len(values) and truth.all():
        return filled.str.lower().map({"true": True, "false": False})
    if len(values) and values.str.fullmatch(NUMBER.pattern).all():
        return pd.to_numeric(filled)
    return filled


def _companion(path: Path, dim: str, named: Path | None) -> pd.DataFrame | None:
    """Return the metadata table of LLMs or items, indexed by label."""
    found = named or _beside(path, dim)
    if found is None:
        return None
    frame = read_frame(found)
    keys = [name for name in frame.columns if str(name).strip().lower() in ROLE_NAMES[dim]]
    keys += [name for name in frame.columns[:1] if str(name).strip().lower().replace(" ", "_") in UNNAMED]
    if not keys:
        raise InvalidResponsesError(
            f"{found} has no column with {WORDS[dim]} labels. Its columns are "
            f"{some(list(frame.columns), 8)}; call one of them {dim!r}."
        )
    key = min(keys, key=lambda name: _rank(str(name), dim))
    labels = frame[key].map(str)
    described = frame.drop(columns=key)
    if file_ending(found) != ".parquet":
        described = described.apply(typed)
    repeated = labels[labels.duplicated()].unique().tolist()
    if repeated:
        raise InvalidResponsesError(
            f"{found} has several rows for {some(repeated)} in column {key!r}. One row each is required."
        )
    return described.set_axis(labels.tolist(), axis="index")


def _rank(name: str, dim: str) -> int:
    """Return how usual a name is for a label column: 0 is the most usual."""
    names = (*ROLE_NAMES[dim], *UNNAMED)
    return names.index(name.strip().lower().replace(" ", "_"))


def _beside(path: Path, dim: str) -> Path | None:
    """Return the companion beside a file of responses, if there is one."""
    stem = path.name[: -len(file_ending(path))]
    names = [f"{stem}_{word}{ending}" for word in COMPANIONS[dim] for ending in ENDINGS]
    found = [path.with_name(name) for name in names if path.with_name(name).is_file()]
    if len(found) > 1:
        raise InvalidResponsesError(
            f"Several files could describe the {WORDS[dim]}s of {path}: {some([f.name for f in found])}. "
            f"Name one ({OPTIONS[dim]} FILE) or remove the others."
        )
    return found[0] if found else None


def _with_typed_metadata(frame: pd.DataFrame, columns: TableColumns, layout: str) -> pd.DataFrame:
    """Return the table with numbers in place of text in the columns that describe LLMs or items."""
    roles = find_roles(frame, columns)
    if layout == "wide":
        described = list(columns.llm_columns)
    else:
        described = [name for name in frame.columns if name not in {*roles.values(), *columns.ignore}]
    return frame.assign(**{name: typed(frame[name]) for name in described})


def _warn_of_lost_header(frame: pd.DataFrame, path: Path) -> None:
    """Warn where the header looks like a row of results: the file then has none."""
    names = [str(name) for name in frame.columns]
    if all(SCORE_AS_NAME.fullmatch(name) for name in names):
        warnings.warn(
            f"The header of {path} looks like a row of results ({some(names, 3)}); it was taken as "
            "item labels. If the file has no header row, add one.",
            stacklevel=2,
        )
