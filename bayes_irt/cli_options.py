"""The options of the command line: names, types, limits and help texts."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer


class Method(StrEnum):
    """The rungs of the ladder."""

    CBMM = "cbmm"
    NUTS = "nuts"


class Format(StrEnum):
    """What is written to standard output."""

    TABLE = "table"
    CSV = "csv"
    JSON = "json"
    MARKDOWN = "markdown"


class Discrimination(StrEnum):
    """Families of the discriminations' prior."""

    HALF_NORMAL = "half-normal"
    LOG_NORMAL = "log-normal"


class Algorithm(StrEnum):
    """How cBMM searches."""

    NEWTON = "newton"
    PAPER = "paper"


Data = Annotated[Path, typer.Argument(help="CSV or Parquet table of responses, long or wide.")]
MethodOption = Annotated[Method, typer.Option("--method", help="cbmm: point estimate. nuts: posterior.")]
LLMColumn = Annotated[str | None, typer.Option("--llm", help="Column of the LLM.")]
ItemColumn = Annotated[str | None, typer.Option("--item", help="Column of the item (long tables).")]
ScoreColumn = Annotated[str | None, typer.Option("--score", help="Column of the score (long tables).")]
AttemptColumn = Annotated[str | None, typer.Option("--attempt", help="Column of the attempt (long tables).")]
SuccessesColumn = Annotated[
    str | None, typer.Option("--successes", help="Column of the number of right attempts.")
]
AttemptsColumn = Annotated[str | None, typer.Option("--attempts", help="Column of the number of attempts.")]
LLMColumns = Annotated[
    list[str] | None,
    typer.Option("--llm-columns", help="Columns of a wide table that describe the LLM; commas separate."),
]
Ignore = Annotated[list[str] | None, typer.Option("--ignore", help="Columns to leave out; commas separate.")]
ItemsTable = Annotated[Path | None, typer.Option("--items", help="Table that describes the items.")]
LLMsTable = Annotated[Path | None, typer.Option("--llms", help="Table that describes the LLMs.")]
DropEmpty = Annotated[bool, typer.Option("--drop-empty", help="Leave out LLMs and items without answer.")]
DiscriminationOption = Annotated[
    Discrimination, typer.Option("--discrimination", help="Prior of the discriminations (nuts).")
]
PenaltyOption = Annotated[
    bool,
    typer.Option(
        "--penalty/--no-penalty",
        help="Penalise cBMM by the default priors; without, it is the paper's objective and stop rule.",
    ),
]
AlgorithmOption = Annotated[
    Algorithm | None,
    typer.Option(
        "--algorithm",
        help="cbmm: the accelerated solver (the default with the penalty) or the paper's cycle (without).",
    ),
]
Starts = Annotated[int, typer.Option("--starts", help="cbmm: starts whose optima are compared.", min=1)]
Output = Annotated[Path, typer.Option("--output", "-o", help="Run directory to make.")]
Force = Annotated[bool, typer.Option("--force", help="Replace an existing run directory.")]
Chains = Annotated[int, typer.Option(help="Number of chains.", min=2)]
Warmup = Annotated[int, typer.Option(help="Warm-up draws per chain.", min=20)]
Care = Annotated[
    float, typer.Option("--target-accept", help="Raise towards 1 against divergences.", min=0.5, max=0.999)
]
Draws = Annotated[int, typer.Option(help="Draws per chain.", min=4)]
Seed = Annotated[int, typer.Option(help="Seed of all random numbers.", min=0, max=2**32 - 1)]
Prob = Annotated[float, typer.Option(help="Probability of the intervals.", min=0.01, max=0.999)]
Shape = Annotated[Format, typer.Option("--format", help="What to print.")]
