"""The options of the command line: names, types, limits, help texts, and the plan they amount to."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from collections.abc import Mapping

    from bayes_irt.fitting import FitPlan
    from bayes_irt.model_spec import ModelSpec
    from bayes_irt.solvers import Solver


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
DiscriminationOption = Annotated[
    Discrimination | None,
    typer.Option(
        "--discrimination", help="Prior of the discriminations (all but cbmm) [default: half-normal]."
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
        "options), or 'learned' (nuts).",
    ),
]
ObservationOption = Annotated[
    ObservationName | None,
    typer.Option(
        "--observation",
        help="How attempts at one item hang together [default: auto, beta-binomial where there are several].",
    ),
]
ItemGroupColumn = Annotated[
    str | None,
    typer.Option(
        "--item-group", help="nuts: column of the items' table whose groups have effects of their own."
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
    typer.Option("--group", help="nuts: LLM metadata column of groups whose LLMs have related abilities."),
]
Prob = Annotated[float, typer.Option(help="Probability of the intervals.", min=0.01, max=0.999)]
Shape = Annotated[Format, typer.Option("--format", help="What to print.")]


_ENGINES = (Method.LAPLACE, Method.SVI, Method.NUTS)
#: Options that only some methods have.
METHODS_OF = {
    "--no-penalty": (Method.CBMM,),
    "--algorithm": (Method.CBMM,),
    "--starts": (Method.CBMM,),
    "--discrimination": _ENGINES,
    "--model": _ENGINES,
    "--floor": _ENGINES,
    "--observation": _ENGINES,
    "--item-group": (Method.NUTS,),
    "--draws": _ENGINES,
    "--guide": (Method.SVI,),
    "--batch-size": (Method.SVI,),
    "--chains": (Method.NUTS,),
    "--warmup": (Method.NUTS,),
    "--target-accept": (Method.NUTS,),
    "--thinning": (Method.NUTS,),
    "--chain-method": (Method.NUTS,),
    "--group": (Method.NUTS,),
}


def refuse_idle(method: Method, given: Mapping[str, object]) -> None:
    """Refuse options that the method does not have, before anything is read.

    Parameters
    ----------
    method
        The rung of the ladder.
    given
        Option to its value; None where it was not given.

    Raises
    ------
    typer.BadParameter
        If an option would do nothing.
    """
    for option, value in given.items():
        methods = METHODS_OF[option]
        if value is not None and method not in methods:
            named = " or ".join(methods)
            raise typer.BadParameter(f"{option} is for --method {named}; with {method} it would do nothing.")


def solver_of(*, penalise: bool, algorithm: Algorithm | None, starts: int, seed: int) -> Solver:
    """Return how cBMM searches.

    Parameters
    ----------
    penalise
        Whether the estimate is penalised; without a penalty the paper's stop rule is in force.
    algorithm
        The algorithm; None for the accelerated one, or the paper's cycle without a penalty.
    starts
        Number of starts.
    seed
        Their seed.

    Returns
    -------
    Solver
        The options of `fit_cbmm`.
    """
    from bayes_irt.solvers import Solver

    if algorithm is None:
        algorithm = Algorithm.NEWTON if penalise else Algorithm.PAPER
    stop: Any = "parameters" if penalise else "relative loss"
    return Solver(algorithm=algorithm.value, stop=stop, starts=starts, seed=seed)


#: Prior of floors that are learned: about .2, such as of five options, with a weight of 22 answers.
LEARNED_FLOOR = (5.0, 17.0)


def spec_of(
    *,
    model: Model | None = None,
    discrimination: Discrimination | None = None,
    floor: str | None = None,
    observation: ObservationName | None = None,
    llm_groups: str | None = None,
    item_groups: str | None = None,
) -> ModelSpec:
    """Return the model that options name.

    Parameters
    ----------
    model
        The chance of a right answer; None for the 2PL.
    discrimination
        Family of the discriminations' prior; None for the default.
    floor
        A number, a column, or "learned".
    observation
        How attempts hang together; None for "auto".
    llm_groups, item_groups
        Metadata columns of related LLMs and of items that belong together.

    Returns
    -------
    ModelSpec
        The model.

    Raises
    ------
    InvalidConfigurationError
        If options contradict each other.
    """
    from bayes_irt.errors import InvalidConfigurationError
    from bayes_irt.model_spec import ModelSpec
    from bayes_irt.priors import (
        Common,
        Exponential,
        Gamma,
        HalfNormal,
        LearnedShare,
        LogNormal,
        Priors,
        TruncatedNormal,
    )

    if (floor is None) == (model is Model.GUESS):
        raise InvalidConfigurationError(
            "--model guess takes a --floor: a number, a column of the items' table, or 'learned'."
            if floor is None
            else f"--floor is for --model guess; with {model or Model.TWO} it would do nothing."
        )
    if model is Model.ONE and discrimination is not None:
        raise InvalidConfigurationError(
            "--discrimination is a prior of many; --model 1pl has one discrimination."
        )
    family: Any = {
        Discrimination.HALF_NORMAL: HalfNormal,
        Discrimination.LOG_NORMAL: LogNormal,
        Discrimination.GAMMA: Gamma,
        Discrimination.EXPONENTIAL: Exponential,
        Discrimination.TRUNCATED_NORMAL: TruncatedNormal,
    }[discrimination or Discrimination.HALF_NORMAL]
    least: float | str | LearnedShare | None = floor
    if floor == "learned":
        least = LearnedShare(*LEARNED_FLOOR)
    elif floor is not None:
        try:
            least = float(floor)
        except ValueError:
            least = floor
    return ModelSpec(
        Priors(discrimination=Common() if model is Model.ONE else family()),
        floor=least,
        observation=(observation or ObservationName.AUTO).value,
        llm_groups=llm_groups,
        item_groups=item_groups,
    )


def plan_of(
    method: Method,
    seed: int,
    *,
    spec: ModelSpec | None = None,
    draws: int | None = None,
    solver: Solver | None = None,
    engine: dict[str, Any] | None = None,
) -> FitPlan:
    """Return what to fit; what only one engine needs is imported for it alone.

    Parameters
    ----------
    method
        The rung of the ladder.
    seed
        Seed of all draws.
    spec
        The model; None for the default.
    draws
        Number of draws, of each chain of NUTS; None for the default.
    solver
        How cBMM searches.
    engine
        Options of `Sampler` or `Optimizer`; those that are None keep their defaults.

    Returns
    -------
    FitPlan
        The plan.
    """
    from bayes_irt.fitting import FitPlan
    from bayes_irt.model_spec import ModelSpec

    given = {name: value for name, value in (engine or {}).items() if value is not None}
    options: dict[str, Any] = {}
    if method is Method.NUTS:
        from bayes_irt.inference.nuts import Sampler

        options["sampler"] = Sampler(**given if draws is None else {**given, "num_draws": draws})
    elif draws is not None:
        options["num_draws"] = draws
    if method is Method.SVI:
        from bayes_irt.inference.svi import Optimizer

        options["optimizer"] = Optimizer(**given)
    penalise = solver is None or solver.stop == "parameters"
    return FitPlan(method.value, spec or ModelSpec(), penalise=penalise, solver=solver, seed=seed, **options)
