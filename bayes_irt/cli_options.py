"""The options of the command line: names, types, limits, help texts, and the plan they amount to."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from bayes_irt.fitting import FitPlan
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
    Discrimination, typer.Option("--discrimination", help="Prior of the discriminations (all but cbmm).")
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
Chains = Annotated[int, typer.Option(help="nuts: number of chains.", min=2)]
Warmup = Annotated[int, typer.Option(help="nuts: warm-up draws per chain.", min=20)]
Care = Annotated[
    float,
    typer.Option("--target-accept", help="nuts: raise towards 1 against divergences.", min=0.5, max=0.999),
]
Thinning = Annotated[int, typer.Option("--thinning", help="nuts: draws taken for each one kept.", min=1)]
ChainMethodOption = Annotated[ChainMethod, typer.Option("--chain-method", help="nuts: how chains are run.")]
GuideOption = Annotated[GuideName, typer.Option("--guide", help="svi: what is fitted to the posterior.")]
BatchSize = Annotated[
    int | None, typer.Option("--batch-size", help="svi: LLMs drawn for each step; all without it.", min=4)
]
Draws = Annotated[int, typer.Option(help="Draws kept, of each chain of nuts.", min=4)]
Seed = Annotated[int, typer.Option(help="Seed of all random numbers.", min=0, max=2**32 - 1)]
Prob = Annotated[float, typer.Option(help="Probability of the intervals.", min=0.01, max=0.999)]
Shape = Annotated[Format, typer.Option("--format", help="What to print.")]


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


def plan_of(
    method: Method,
    discrimination: Discrimination,
    draws: int,
    seed: int,
    *,
    solver: Solver | None = None,
    sampler: tuple[int, int, int, float, int, ChainMethod] | None = None,
    guide: tuple[GuideName, int | None] | None = None,
) -> FitPlan:
    """Return what to fit; what only one engine needs is imported for it alone.

    Parameters
    ----------
    method
        The rung of the ladder.
    discrimination
        Family of the discriminations' prior.
    draws
        Draws of Laplace and SVI.
    seed
        Seed of all draws.
    solver
        How cBMM searches.
    sampler
        Chains, warm-up, draws, target acceptance, thinning and chain method of NUTS.
    guide
        Guide and batch size of SVI.

    Returns
    -------
    FitPlan
        The plan.
    """
    from bayes_irt.fitting import FitPlan
    from bayes_irt.model_spec import ModelSpec
    from bayes_irt.priors import Exponential, Gamma, HalfNormal, LogNormal, Priors, TruncatedNormal

    family = {
        Discrimination.HALF_NORMAL: HalfNormal,
        Discrimination.LOG_NORMAL: LogNormal,
        Discrimination.GAMMA: Gamma,
        Discrimination.EXPONENTIAL: Exponential,
        Discrimination.TRUNCATED_NORMAL: TruncatedNormal,
    }[discrimination]
    options: dict[str, Any] = {}
    if method is Method.NUTS and sampler is not None:
        from bayes_irt.inference.nuts import Sampler

        chains, warmup, kept, care, thinning, chain_method = sampler
        options["sampler"] = Sampler(
            num_chains=chains,
            num_warmup=warmup,
            num_draws=kept,
            target_accept=care,
            thinning=thinning,
            chain_method=chain_method.value,
        )
    if method is Method.SVI and guide is not None:
        from bayes_irt.inference.svi import Optimizer

        options["optimizer"] = Optimizer(guide=guide[0].value, batch_size=guide[1])
    penalise = solver is None or solver.stop == "parameters"
    return FitPlan(
        method.value,
        ModelSpec(Priors(discrimination=family())),
        penalise=penalise,
        solver=solver,
        num_draws=draws,
        seed=seed,
        **options,
    )
