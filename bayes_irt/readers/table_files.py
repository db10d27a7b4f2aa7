"""Read one CSV, TSV or Parquet file into a table, text as written, with errors that a person understands."""

from __future__ import annotations

import csv
import gzip
import io
import zlib
from pathlib import Path

import pandas as pd

from bayes_irt.errors import InvalidResponsesError, some

PARQUET_MARK = b"PAR1"
GZIP_MARK = b"\x1f\x8b"
DELIMITERS = {".csv": ",", ".tsv": "\t"}
ENDINGS = (".parquet", ".csv", ".csv.gz", ".tsv", ".tsv.gz")


def read_frame(path: Path) -> pd.DataFrame:
    r"""Return the table that a file holds; every value of a CSV or TSV file is text.

    Parameters
    ----------
    path
        A file whose name ends in .parquet, .csv, .csv.gz, .tsv or .tsv.gz.

    Returns
    -------
    pandas.DataFrame
        Columns in the order of the file.

    Raises
    ------
    InvalidResponsesError
        If the file cannot be read, is empty, or is not what its ending says.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder) / "t.csv"
    ...     _ = path.write_text("id,score\n01,1\n")
    ...     read_frame(path)["id"].tolist()
    ['01']
    """
    if _is_directory(path):
        raise InvalidResponsesError(f"{path} is a directory. Name the file with the table inside it.")
    ending = file_ending(path)
    content = _content(path)
    if ending == ".parquet":
        return _read_parquet(content, path)
    if ending.endswith(".gz"):
        content = _unzipped(content, path)
    return _read_text(content, path, DELIMITERS[ending.removesuffix(".gz")])


def file_ending(path: Path) -> str:
    """Return which of the known endings a name has.

    Parameters
    ----------
    path
        A file, which need not exist.

    Returns
    -------
    str
        One of .parquet, .csv, .csv.gz, .tsv and .tsv.gz.

    Raises
    ------
    InvalidResponsesError
        If the name has another ending.

    Examples
    --------
    >>> file_ending(Path("results.v2.CSV.gz"))
    '.csv.gz'
    """
    name = path.name.lower()
    found = [ending for ending in ENDINGS if name.endswith(ending)]
    if not found:
        raise InvalidResponsesError(
            f"{path} has the unknown ending {path.suffix!r}. Tables are read from files that end in "
            f"{', '.join(ENDINGS)}."
        )
    return found[0]


def _is_directory(path: Path) -> bool:
    try:
        return path.is_dir()
    except (OSError, ValueError) as error:
        raise InvalidResponsesError(f"No file can be named {str(path)[:80]!r} ({error}).") from error


def _content(path: Path) -> bytes:
    """Return all bytes of a file."""
    try:
        content = path.read_bytes()
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", error)
        raise InvalidResponsesError(
            f"{str(path)[:200]} cannot be read: {reason}. Check the name and the permissions."
        ) from error
    if not content:
        raise InvalidResponsesError(f"{path} is empty. A table with a header row and results is required.")
    return content


def _read_parquet(content: bytes, path: Path) -> pd.DataFrame:
    """Return the table in a Parquet file."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    if not (content.startswith(PARQUET_MARK) and content.endswith(PARQUET_MARK)):
        raise InvalidResponsesError(
            f"{path} ends in .parquet but is {_guess(content)}. Rename the file after what it holds, "
            "or write it as Parquet."
        )
    try:
        table = pq.read_table(pa.BufferReader(content))
    except (pa.ArrowException, OSError) as error:
        raise InvalidResponsesError(
            f"{path} is a damaged Parquet file: {_first_line(error)}. Write or download it again."
        ) from error
    _check_names(table.column_names, path)
    # An index of pandas is stored behind the columns; in front, it is where labels are looked for.
    index = [
        name
        for name in (table.schema.pandas_metadata or {}).get("index_columns", [])
        if isinstance(name, str)
    ]
    frame: pd.DataFrame = table.to_pandas(ignore_metadata=True)
    return frame[[*index, *(name for name in frame.columns if name not in index)]]


def _read_text(content: bytes, path: Path, delimiter: str) -> pd.DataFrame:
    """Return the table in a CSV or TSV file, every value as text."""
    import pyarrow as pa
    import pyarrow.csv as pc

    if content.startswith((PARQUET_MARK, GZIP_MARK)) or b"\0" in content:
        raise InvalidResponsesError(
            f"{path} ends in {path.suffix} but is {_guess(content)}. Rename the file after what it holds, "
            "or write it as text in UTF-8."
        )
    names, lines = _header(content, path, delimiter)
    if not content.split(b"\n", lines)[-1].strip():
        raise InvalidResponsesError(
            f"{path} has a header but no rows. At least two LLMs with answers are required."
        )
    try:
        table = pc.read_csv(
            pa.BufferReader(content),
            pc.ReadOptions(column_names=names, skip_rows=lines, block_size=min(len(content) + 1, 2**28)),
            pc.ParseOptions(delimiter=delimiter, newlines_in_values=True),
            pc.ConvertOptions(column_types=dict.fromkeys(names, pa.string()), strings_can_be_null=False),
        )
    except (pa.ArrowException, OSError) as error:
        raise InvalidResponsesError(
            f"{path} is no proper table: {_first_line(error)}. "
            "Every row must have as many fields as the header."
        ) from error
    frame: pd.DataFrame = table.to_pandas()
    return frame


def _header(content: bytes, path: Path, delimiter: str) -> tuple[list[str], int]:
    """Return the column names and how many lines they take, blank lines before them included."""
    text = io.TextIOWrapper(io.BytesIO(content), encoding="utf-8-sig", newline="")
    reader = csv.reader(text, delimiter=delimiter)
    try:
        names = next((row for row in reader if row), None)
    except (UnicodeDecodeError, csv.Error) as error:
        raise InvalidResponsesError(
            f"{path} is {_guess(content)}: {error}. Tables of text must be in UTF-8."
        ) from error
    if names is None:
        raise InvalidResponsesError(f"{path} is empty. A table with a header row and results is required.")
    other = next((mark for mark in (";", "\t", ",", "|") if len(names) == 1 and mark in names[0]), None)
    if other is not None:
        raise InvalidResponsesError(
            f"The header of {path} is one field that contains {other!r}. Fields must be separated "
            f"by {delimiter!r} in a file that ends in {path.suffix}."
        )
    _check_names(names, path)
    return names, reader.line_num


def _check_names(names: list[str], path: Path) -> None:
    """Refuse a header with repeated names."""
    twice = (
        [name for name in dict.fromkeys(names) if names.count(name) > 1]
        if len(set(names)) < len(names)
        else []
    )
    if twice:
        raise InvalidResponsesError(
            f"The header of {path} repeats {some(twice)}. Each column needs a name of its own; "
            "if the file has no header row, add one."
        )


def _unzipped(content: bytes, path: Path) -> bytes:
    """Return the content of a gzip file."""
    try:
        return gzip.decompress(content)
    except (OSError, EOFError, zlib.error) as error:
        raise InvalidResponsesError(
            f"{path} ends in .gz but cannot be decompressed: {error}. Write it again, or drop the ending."
        ) from error


def _guess(content: bytes) -> str:
    """Say in words what a file seems to hold."""
    known = {
        PARQUET_MARK: "a Parquet file",
        GZIP_MARK: "compressed by gzip",
        b"PK\x03\x04": "a zip file (or a spreadsheet)",
        b"\x89PNG": "a PNG image",
        b"%PDF": "a PDF document",
        b"\x89HDF": "an HDF5 file",
    }
    for mark, words in known.items():
        if content.startswith(mark):
            return words
    try:
        content[:4096].decode("utf-8")
    except UnicodeDecodeError as error:
        if error.start < 4000:
            return "not text in UTF-8"
    return "binary data" if b"\0" in content[:4096] else "text"


def _first_line(error: BaseException) -> str:
    return str(error).splitlines()[0].rstrip(".") if str(error) else type(error).__name__
