"""Readers: one file per source format, each returning `Responses`."""

from __future__ import annotations

import os
from pathlib import Path

from bayes_irt.readers.table import read_table
from bayes_irt.responses import Responses
from bayes_irt.table_columns import TableColumns

__all__ = ["TableColumns", "read_responses"]


def read_responses(
    path: str | os.PathLike[str],
    *,
    columns: TableColumns | None = None,
    items_path: str | os.PathLike[str] | None = None,
    llms_path: str | os.PathLike[str] | None = None,
    drop_empty: bool = False,
) -> Responses:
    r"""Read responses from a file.

    CSV, TSV (both also compressed by gzip) and Parquet tables are read, long or wide; see
    `Responses.from_long` and `Responses.from_wide`. Metadata are picked up from companions beside the file:
    for ``NAME.csv``, ``NAME_items.*`` and ``NAME_models.*`` or ``NAME_llms.*``.

    Parameters
    ----------
    path
        The file.
    columns
        Which column holds what; what is not named is found by common names.
    items_path, llms_path
        Tables of metadata to use in place of the companions.
    drop_empty
        Leave out LLMs and items without an answer, with a warning that names them.

    Returns
    -------
    Responses
        Labels exactly as written in the file, in its order.

    Raises
    ------
    InvalidResponsesError
        If the file cannot be read, is not what its name says, or holds anything but valid responses.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder) / "results.csv"
    ...     _ = path.write_text("model,q1,q2\nopus,1,0\nflash,1,1\n")
    ...     read_responses(path)
    Responses: 2 LLMs x 2 items, 4 attempts (1 per cell), 0.0 % missing, accuracy .50 to 1.00
    """
    companions = tuple(None if name is None else Path(name) for name in (items_path, llms_path))
    return read_table(
        Path(path), columns or TableColumns(), companions[0], companions[1], drop_empty=drop_empty
    )
