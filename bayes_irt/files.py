"""Files written whole: a program that is stopped halfway leaves the older file, never half of the newer."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping
from pathlib import Path

import pandas as pd

from bayes_irt.errors import RunDirectoryError


def write_whole(path: Path, text: str) -> None:
    """Write a text file under a temporary name and rename it.

    Parameters
    ----------
    path
        The file, replaced if there is one.
    text
        What it is to hold, written as UTF-8.

    Raises
    ------
    OSError
        If it cannot be written.

    Examples
    --------
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write_whole(Path(folder) / "a.txt", "ä")
    ...     [(file.name, file.read_text("utf-8")) for file in Path(folder).iterdir()]
    [('a.txt', 'ä')]
    """
    descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(text)
        Path(temporary).chmod(0o644)
        Path(temporary).replace(path)
    finally:
        Path(temporary).unlink(missing_ok=True)


def write_tables(folder: Path, tables: Mapping[str, pd.DataFrame]) -> None:
    r"""Write tables as CSV files, index included.

    Parameters
    ----------
    folder
        Where; it is made if need be.
    tables
        By the names of the files, without ``.csv``.

    Raises
    ------
    RunDirectoryError
        If the folder cannot be written to.

    Examples
    --------
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write_tables(Path(folder) / "new", {"ranks": pd.DataFrame({"rank": [1]}, index=["opus"])})
    ...     (Path(folder) / "new/ranks.csv").read_text()
    ',rank\nopus,1\n'
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, table in tables.items():
            write_whole(folder / f"{name}.csv", table.to_csv())
    except OSError as error:
        raise RunDirectoryError(f"The tables cannot be written to {str(folder)!r} ({error}).") from error
