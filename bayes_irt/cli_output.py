"""What the command line writes: tables to standard output, everything said about them to standard error."""

from __future__ import annotations

import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING, Protocol

from bayes_irt.cli_options import Format

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    import pandas as pd

    from bayes_irt.fitting import Progress
    from bayes_irt.responses import Responses


def print_table(table: pd.DataFrame, shape: Format) -> None:
    """Print a table of figures in the asked form, rounded where people read it.

    Parameters
    ----------
    table
        The table; its index is printed too.
    shape
        The form.
    """
    from bayes_irt.formatting import markdown_table

    if shape is Format.CSV:
        sys.stdout.write(table.to_csv())
    elif shape is Format.JSON:
        sys.stdout.write(table.reset_index().to_json(orient="records", indent=2) + "\n")
    else:
        rounded = table.round(3).reset_index().astype(object).fillna("n/a").astype(str)
        print_rich(rounded) if shape is Format.TABLE else sys.stdout.write(markdown_table(rounded))


class Printable(Protocol):
    """What can be printed in every form."""

    def formatted(self) -> pd.DataFrame:
        """Return a table of text."""

    def to_markdown(self) -> str:
        """Return Markdown."""

    def to_json(self) -> str:
        """Return one JSON object."""


def print_result(
    result: Printable, shape: Format, table: pd.DataFrame, notes: Iterable[str], *, index: bool = True
) -> None:
    """Print a result in the asked form.

    Parameters
    ----------
    result
        The result.
    shape
        The form; Markdown and JSON hold the notes themselves.
    table
        Its figures, for CSV.
    notes
        What there is to say beside a table or CSV.
    index
        Whether the index of the figures is a column of the CSV.
    """
    if shape is Format.MARKDOWN:
        sys.stdout.write(result.to_markdown())
    elif shape is Format.JSON:
        sys.stdout.write(result.to_json() + "\n")
    elif shape is Format.CSV:
        sys.stdout.write(table.to_csv(index=index))
        say(*notes)
    else:
        print_rich(result.formatted())
        say(*notes)


def print_rich(board: pd.DataFrame) -> None:
    """Print a table of text; where output is no terminal, as wide as it needs to be.

    Parameters
    ----------
    board
        The table; its index is left out.
    """
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for name in board.columns:
        table.add_column(
            Text(str(name)), justify="left" if name.lower() == "llm" else "right", no_wrap=name != "LLM"
        )
    for row in board.itertuples(index=False):
        table.add_row(*(Text(str(cell)) for cell in row))
    console = Console()
    if not console.is_terminal:
        console = Console(width=max(80, Console(width=10_000).measure(table).maximum))
    console.print(table)


def report_data(responses: Responses) -> None:
    """Say which data checks did not pass.

    Parameters
    ----------
    responses
        The data.
    """
    from bayes_irt.checks import Outcome
    from bayes_irt.data_checks import check_responses

    for check in check_responses(responses):
        if check.outcome is not Outcome.PASS:
            say(f"Data, {check}")


@contextmanager
def progress_bar() -> Iterator[Progress]:
    """Show a progress bar on standard error.

    Yields
    ------
    fitting.Progress
        What is told how far things are.
    """
    from rich.console import Console
    from rich.progress import Progress

    console = Console(stderr=True)
    with Progress(console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task("cBMM", total=None)

        def update(doing: str, done: int | None = None, total: int | None = None) -> None:
            bar.update(task, completed=done or 0, total=total, description=doing)

        yield update


def say(*lines: str) -> None:
    """Write lines to standard error.

    Parameters
    ----------
    lines
        The lines.
    """
    for line in lines:
        print(line, file=sys.stderr)
