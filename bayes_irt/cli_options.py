"""The options of the command line: names, types, limits and help texts."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer


class Method(StrEnum):
    """The rungs of the ladder."""

    CBMM = "cbmm"
    LAPLACE = "laplace"
    SVI = "svi"
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
    GAMMA = "gamma"
    EXPONENTIAL = "exponential"
    TRUNCATED_NORMAL = "truncated-normal"
    SPARSE = "sparse"


class Model(StrEnum):
    """Models of the chance of a right answer."""

    ONE = "1pl"
    TWO = "2pl"
    GUESS = "guess"


class ObservationName(StrEnum):
    """How attempts at one item hang together."""

    AUTO = "auto"
    BINOMIAL = "binomial"
    BETA_BINOMIAL = "beta-binomial"


class GuideName(StrEnum):
    """Guides of SVI."""

    STRUCTURED = "structured"
    LOW_RANK = "low-rank"
    MEAN_FIELD = "mean-field"


class ChainMethod(StrEnum):
    """How NUTS runs its chains."""

    PARALLEL = "parallel"
    VECTORIZED = "vectorized"
    SEQUENTIAL = "sequential"


class Algorithm(StrEnum):
    """How cBMM searches."""

    NEWTON = "newton"
    PAPER = "paper"


Also = Annotated[
    list[Path] | None,
    typer.Option(
        "--also",
        help="Another table of responses, as a suite beside the first; the items' new column 'suite' holds the files' "
        "names, for --traits. May be given again; --items and --llms are for a single table.",
    ),
]
Data = Annotated[Path, typer.Argument(help="CSV or Parquet table of responses, long or wide.")]
MethodOption = Annotated[
    Method,
    typer.Option(
        "--method",
        help="cbmm: point estimate. laplace: error bars in seconds. svi: a fitted Gaussian. nuts: the reference.",
    ),
]
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
Threshold = Annotated[
    float | None, typer.Option("--threshold", help="Scores from here on are right, all others wrong.")
]
Parts = Annotated[
    int | None,
    typer.Option("--parts", min=2, help="Scores are shares of so many parts, such as tests that passed."),
]
DiscriminationOption = Annotated[
    Discrimination | None,
    typer.Option(
        "--discrimination",
        help="Prior of the discriminations (all but cbmm) [default: half-normal; sparse where traits are explored].",
    ),
]
ModelOption = Annotated[
    Model | None,
    typer.Option(
        "--model",
        help="1pl: one discrimination for all items. 2pl: each its own. guess: 2pl above a floor [default: 2pl].",
    ),
]
FloorOption = Annotated[
    str | None,
    typer.Option(
        "--floor",
        help="guess: the chance of a right guess: a number, a column of the items' table (such chances, or numbers of "
        "options), or 'learned' (svi, nuts).",
    ),
]
ObservationOption = Annotated[
    ObservationName | None,
    typer.Option(
        "--observation",
        help="How attempts at one item hang together [default: auto, beta-binomial where there are several].",
    ),
]
TraitColumns = Annotated[
    list[str] | None,
    typer.Option(
        "--traits",
        help="Several abilities: the items' column that names the trait of each, or columns of 0 and 1, one per "
        "trait; commas separate. A number explores so many traits.",
    ),
]
GeneralOption = Annotated[
    bool, typer.Option("--general", help="With --traits: all items load on a general ability as well.")
]
TraitNames = Annotated[
    list[str] | None,
    typer.Option(
        "--trait",
        help="Where there are several: the one to rank on, or several with weights (NAME=2), the option given again "
        "[default: all alike, or the general one].",
    ),
]
ItemGroupColumn = Annotated[
    str | None,
    typer.Option(
        "--item-group", help="svi, nuts: column of the items' table whose groups have effects of their own."
    ),
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
Starts = Annotated[
    int | None, typer.Option("--starts", help="cbmm: starts whose optima are compared [default: 1].", min=1)
]
Output = Annotated[Path, typer.Option("--output", "-o", help="Run directory to make.")]
Force = Annotated[bool, typer.Option("--force", help="Replace an existing run directory.")]
Chains = Annotated[int | None, typer.Option(help="nuts: number of chains [default: 4].", min=2)]
Warmup = Annotated[int | None, typer.Option(help="nuts: warm-up draws per chain [default: 500].", min=20)]
Care = Annotated[
    float | None,
    typer.Option(
        "--target-accept",
        help="nuts: raise towards 1 against divergences [default: 0.8].",
        min=0.5,
        max=0.999,
    ),
]
Thinning = Annotated[
    int | None, typer.Option("--thinning", help="nuts: draws taken for each one kept [default: 1].", min=1)
]
ChainMethodOption = Annotated[
    ChainMethod | None, typer.Option("--chain-method", help="nuts: how chains are run [default: parallel].")
]
GuideOption = Annotated[
    GuideName | None,
    typer.Option("--guide", help="svi: what is fitted to the posterior [default: structured]."),
]
BatchSize = Annotated[
    int | None, typer.Option("--batch-size", help="svi: LLMs drawn for each step; all without it.", min=4)
]
Draws = Annotated[
    int | None, typer.Option(help="Draws kept, of each chain of nuts (all but cbmm) [default: 1000].", min=4)
]
Seed = Annotated[int, typer.Option(help="Seed of all random numbers.", min=0, max=2**32 - 1)]
GroupColumn = Annotated[
    str | None,
    typer.Option("--group", help="LLM metadata column that says who is related (family, base LLM)."),
]
RelatedColumn = Annotated[
    str | None,
    typer.Option(
        "--group", help="svi, nuts: LLM metadata column of groups whose LLMs have related abilities."
    ),
]
Prob = Annotated[float, typer.Option(help="Probability of the intervals.", min=0.01, max=0.999)]
Shape = Annotated[Format, typer.Option("--format", help="What to print.")]
