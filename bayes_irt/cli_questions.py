"""The commands that ask something of a run: rank, compare, agree, report, plan, models."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from bayes_irt.cli_options import Format, GroupColumn, Prob, Seed, Shape, TraitNames
from bayes_irt.cli_output import print_result, print_table, say
from bayes_irt.cli_plans import trait_of
from bayes_irt.errors import InvalidConfigurationError

if TYPE_CHECKING:
    from bayes_irt.analysis.leaderboard import Leaderboard
    from bayes_irt.analysis.ranks import Trait
    from bayes_irt.posterior import Posterior
    from bayes_irt.runs import Run

NOT_CONVERGED = 3
NOT_SEPARATED = 10
B_BETTER = 11

RunFolder = Annotated[Path, typer.Argument(metavar="RUN", help="Run directory made by fit or demo.")]
Top = Annotated[int, typer.Option("--top", help="Ranks that P(top) counts.", min=1)]
TieProb = Annotated[
    float, typer.Option("--tie-prob", help="Probability that separates two LLMs.", min=0.5, max=0.9999)
]
Movers = Annotated[int, typer.Option("--movers", help="Number of LLMs whose move is explained.", min=0)]
TablesFolder = Annotated[
    Path | None, typer.Option("--output", "-o", help="Folder in which every table is also written as CSV.")
]
ReportFolder = Annotated[
    Path | None, typer.Option("--output", "-o", help="Folder of the report; default: the run directory.")
]


def rank(
    run: RunFolder,
    prob: Prob = 0.9,
    top: Top = 5,
    tie_prob: TieProb = 0.95,
    trait: TraitNames = None,
    shape: Shape = Format.TABLE,
) -> None:
    """Print the leaderboard of a run directory."""
    loaded = _load(run)
    print_board(loaded, prob, shape, top=top, tie_prob=tie_prob, trait=_named(loaded, trait))
    exit_by(loaded)


def compare(
    run: RunFolder,
    a: Annotated[str, typer.Argument(metavar="A", help="Name of an LLM.")],
    b: Annotated[str, typer.Argument(metavar="B", help="Name of another.")],
    prob: Prob = 0.9,
    tie_prob: TieProb = 0.95,
    trait: TraitNames = None,
    shape: Shape = Format.TABLE,
) -> None:
    """Compare two LLMs; exit 0: A is better, 10: not separated, 11: B is better, 3: the fit did not converge."""
    from bayes_irt.analysis.pair import Verdict
    from bayes_irt.analysis.pairs import compare_llms
    from bayes_irt.analysis.ranks import board_trait

    loaded = _load(run)
    posterior = _posterior(loaded)
    asked = board_trait(posterior, _named(loaded, trait))
    found = compare_llms(posterior, loaded.responses, a, b, prob=prob, threshold=tie_prob, trait=asked)
    print_result(found, shape, found.table, [found.sentence], index=False)
    exit_by(loaded)
    code = {Verdict.A_BETTER: 0, Verdict.NOT_SEPARATED: NOT_SEPARATED, Verdict.B_BETTER: B_BETTER}[
        found.verdict
    ]
    if code:
        raise typer.Exit(code)


def agree(
    run: RunFolder,
    prob: Prob = 0.9,
    movers: Movers = 5,
    output: TablesFolder = None,
    shape: Shape = Format.TABLE,
) -> None:
    """Print how far accuracy, cBMM and posterior rank alike, and which LLMs move and why."""
    from bayes_irt.analysis.comparison import compare_rankings
    from bayes_irt.analysis.explained import ExplainedComparison
    from bayes_irt.files import write_tables
    from bayes_irt.formatting import coverage_text

    loaded = _load(run)
    compared = compare_rankings(_posterior(loaded), loaded.estimate, loaded.responses, prob=prob)
    found = ExplainedComparison.of(compared, movers)
    board = board_of(loaded, prob)
    notes = [*([] if board.found_ability else [board.notes[0]]), *found.sentences, coverage_text(prob)]
    print_result(found, shape, compared.table, notes)
    if shape in (Format.MARKDOWN, Format.JSON):
        say(*notes)
    if output is not None:
        write_tables(output, found.tables)
        say(f"Wrote {', '.join(f'{name}.csv' for name in found.tables)} to {output}")
    exit_by(loaded)


def report(
    run: RunFolder,
    output: ReportFolder = None,
    prob: Prob = 0.9,
    group: GroupColumn = None,
    trait: TraitNames = None,
) -> None:
    """Write report.html, report.md and all tables as CSV."""
    from bayes_irt.report import build_report

    loaded = _load(run)
    _posterior(loaded)
    folder = run if output is None else output
    build_report(loaded, prob=prob, group=group, trait=_named(loaded, trait)).write(folder)
    say(f"Wrote {folder / 'report.html'}, {folder / 'report.md'} and {folder / 'tables'}")
    exit_by(loaded)


def plan(
    run: RunFolder,
    gap: Annotated[
        float, typer.Option("--gap", help="Distance of two LLMs, in sds of ability.", min=0.001)
    ] = 0.2,
    attempts: Annotated[
        list[int] | None,
        typer.Option("--attempts", help="Attempts per item to try; may be given again.", min=1),
    ] = None,
    at: Annotated[
        str | None, typer.Option("--at", help="LLM around which the two lie; default: the best.")
    ] = None,
    prob: Annotated[
        float, typer.Option(help="Probability that separates two LLMs.", min=0.5, max=0.9999)
    ] = 0.95,
    power: Annotated[
        float, typer.Option("--power", help="Share of suites that should separate them.", min=0.01, max=0.999)
    ] = 0.8,
    shape: Shape = Format.TABLE,
) -> None:
    """Say how many items like these, or attempts at each, it takes to tell two LLMs apart."""
    from bayes_irt.planning import Separation, plan_suite

    loaded = _load(run)
    separation = Separation(prob=prob, power=power)
    found = plan_suite(_posterior(loaded), gap, attempts=tuple(attempts or [1]), at=at, separation=separation)
    print_result(found, shape, found.table, found.sentences, index=False)
    exit_by(loaded)


def models(
    run: RunFolder,
    floor: Annotated[
        str | None,
        typer.Option(
            "--floor", help="Also try a floor: a chance, or a column of chances or numbers of options."
        ),
    ] = None,
    traits: Annotated[
        list[str] | None,
        typer.Option(
            "--traits",
            help="Compare one ability with several instead: traits by a column of the items, alone and beside a "
            "general ability; a number explores 2 to so many. May be given again.",
        ),
    ] = None,
    seed: Seed = 0,
    shape: Shape = Format.TABLE,
) -> None:
    """Compare models of a run's data by how well they predict: 1PL, 2PL, with a floor, binomial; or several traits."""
    from bayes_irt.model_comparison import (
        CRITERIA,
        ComparisonPlan,
        compare_models,
        trait_models,
        usual_models,
    )

    loaded = _load(run)
    if traits:
        if floor is not None:
            raise InvalidConfigurationError("--floor and --traits ask two questions; give one of them.")
        numbers = [int(value) for value in traits if value.isdecimal()]
        columns = [value for value in traits if not value.isdecimal()]
        asked = trait_models(columns, max(numbers, default=1))
    else:
        asked = usual_models(loaded.responses, floor)
        if loaded.posterior is not None and loaded.posterior.traits:
            say(
                "The run's model has several traits, and is not among those compared, which have one; see --traits."
            )
    folds = min(ComparisonPlan().folds, loaded.responses.num_llms // 2)
    criteria = tuple(name for name in CRITERIA if name != "LLMs" or (folds > 1 and not traits))
    found = compare_models(
        loaded.responses,
        asked,
        criteria=criteria,
        plan=ComparisonPlan(folds=max(folds, 2)),
        seed=seed,
        progress=say,
    )
    print_result(found, shape, found.table, found.sentences, index=False)


def _named(run: Run, names: list[str] | None) -> Trait:
    """Return the trait that options name."""
    return trait_of(names, () if run.posterior is None else run.posterior.traits)


def board_of(
    run: Run, prob: float, *, top: int = 5, tie_prob: float = 0.95, trait: Trait = None
) -> Leaderboard:
    """Rank the LLMs of a run.

    Parameters
    ----------
    run
        A run with a posterior.
    prob
        Probability of the intervals.
    top
        Ranks that ``p_top`` counts.
    tie_prob
        Probability that separates two LLMs.
    trait
        Where there are several, the one to rank on, or weights; None for all alike, or the general one.

    Returns
    -------
    Leaderboard
        The board.
    """
    from bayes_irt.analysis.ranking import rank_llms
    from bayes_irt.analysis.ranks import board_trait

    posterior = _posterior(run)
    return rank_llms(
        posterior,
        run.estimate,
        run.responses,
        prob,
        top=min(top, run.responses.num_llms),
        tie_prob=tie_prob,
        trait=board_trait(posterior, trait),
    )


def print_board(
    run: Run, prob: float, shape: Format, *, top: int = 5, tie_prob: float = 0.95, trait: Trait = None
) -> None:
    """Print the leaderboard of a run, or the ranking of a point estimate.

    Parameters
    ----------
    run
        The run.
    prob
        Probability of the intervals.
    shape
        The form.
    top
        Ranks that ``p_top`` counts.
    tie_prob
        Probability that separates two LLMs.
    trait
        Where there are several, the one to rank on, or weights.
    """
    from bayes_irt.analysis.ranking import rank_estimate

    if run.posterior is None:
        if trait is not None:
            raise InvalidConfigurationError(
                "A point estimate is ranked on its one ability: leave out --trait, or use fit --method laplace."
            )
        print_table(rank_estimate(run.estimate, run.responses), shape)
        say("A point estimate has no error bars: fit with --method laplace or nuts for intervals.")
        return
    board = board_of(run, prob, top=top, tie_prob=tie_prob, trait=trait)
    print_result(board, shape, board.table, board.notes)


def exit_by(run: Run) -> None:
    """Exit with 3 where a fit did not converge.

    Parameters
    ----------
    run
        The run.

    Raises
    ------
    typer.Exit
        If it did not.
    """
    if not run.converged:
        say("The fit did not converge, as it said when it was made; the numbers may not be trusted.")
        raise typer.Exit(NOT_CONVERGED)


def _load(path: Path) -> Run:
    from bayes_irt.runs import Run

    return Run.load(path)


def _posterior(run: Run) -> Posterior:
    if run.posterior is None:
        raise InvalidConfigurationError(
            "The run has a point estimate alone, which has no error bars. Fit with --method laplace or nuts."
        )
    return run.posterior
