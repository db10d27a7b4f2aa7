"""The command line: parse, call, write. The only file that prints or sets JAX flags.

Results go to standard output, everything said about them to standard error. Exit codes: 0 fine, 2 bad input, 3 ran
but did not converge.
"""

from __future__ import annotations

import os
import sys
import warnings
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from bayes_irt.cli_options import (
    Algorithm,
    AlgorithmOption,
    AttemptColumn,
    AttemptsColumn,
    BatchSize,
    Care,
    ChainMethod,
    ChainMethodOption,
    Chains,
    Data,
    Discrimination,
    DiscriminationOption,
    Draws,
    DropEmpty,
    Force,
    Format,
    GuideName,
    GuideOption,
    Ignore,
    ItemColumn,
    ItemsTable,
    LLMColumn,
    LLMColumns,
    LLMsTable,
    Method,
    MethodOption,
    Output,
    PenaltyOption,
    Prob,
    ScoreColumn,
    Seed,
    Shape,
    Starts,
    SuccessesColumn,
    Thinning,
    Warmup,
    plan_of,
    solver_of,
)
from bayes_irt.errors import BayesIRTError

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pandas as pd

    from bayes_irt.analysis.leaderboard import Leaderboard
    from bayes_irt.fitting import FitPlan, Progress
    from bayes_irt.responses import Responses
    from bayes_irt.runs import Run

BAD_INPUT = 2
NOT_CONVERGED = 3

app = typer.Typer(
    help="Leaderboards of language models with credible intervals, by Bayesian item response theory.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)


@app.command()
def fit(
    data: Data,
    output: Output,
    method: MethodOption = Method.NUTS,
    llm: LLMColumn = None,
    item: ItemColumn = None,
    score: ScoreColumn = None,
    attempt: AttemptColumn = None,
    successes: SuccessesColumn = None,
    attempts: AttemptsColumn = None,
    llm_columns: LLMColumns = None,
    ignore: Ignore = None,
    items: ItemsTable = None,
    llms: LLMsTable = None,
    drop_empty: DropEmpty = False,
    discrimination: DiscriminationOption = Discrimination.HALF_NORMAL,
    penalty: PenaltyOption = True,
    algorithm: AlgorithmOption = None,
    starts: Starts = 1,
    chains: Chains = 4,
    warmup: Warmup = 500,
    draws: Draws = 1000,
    target_accept: Care = 0.8,
    thinning: Thinning = 1,
    chain_method: ChainMethodOption = ChainMethod.PARALLEL,
    guide: GuideOption = GuideName.STRUCTURED,
    batch_size: BatchSize = None,
    seed: Seed = 0,
    prob: Prob = 0.9,
    shape: Shape = Format.TABLE,
    force: Force = False,
) -> None:
    """Fit a table of responses, print the leaderboard and write a run directory."""
    if method is Method.NUTS and chain_method is ChainMethod.PARALLEL:
        _set_devices(chains)
    from bayes_irt.provenance import require_free
    from bayes_irt.readers import TableColumns, read_responses

    _check_options(method, discrimination, penalty=penalty, algorithm=algorithm, starts=starts)
    solver = solver_of(penalise=penalty, algorithm=algorithm, starts=starts, seed=seed)
    sampler = (chains, warmup, draws, target_accept, thinning, chain_method)
    plan = plan_of(
        method, discrimination, draws, seed, solver=solver, sampler=sampler, guide=(guide, batch_size)
    )
    require_free(output, force=force)
    columns = TableColumns(
        llm=llm,
        item=item,
        score=score,
        attempt=attempt,
        successes=successes,
        attempts=attempts,
        llm_columns=_split(llm_columns),
        ignore=_split(ignore),
    )
    responses = read_responses(data, columns=columns, items_path=items, llms_path=llms, drop_empty=drop_empty)
    _say(str(responses))
    _report_data(responses)
    run = _fit(responses, plan, str(data))
    _finish(run, output, prob, shape, force=force)


@app.command()
def rank(
    run: Annotated[Path, typer.Argument(help="Run directory made by fit or demo.")],
    prob: Prob = 0.9,
    shape: Shape = Format.TABLE,
) -> None:
    """Print the leaderboard of a run directory."""
    from bayes_irt.runs import Run

    loaded = Run.load(run)
    _print_board(loaded, prob, shape)
    _exit_by(loaded)


@app.command()
def demo(
    output: Output = Path("demo-run"),
    chains: Chains = 4,
    warmup: Warmup = 300,
    draws: Draws = 1000,
    seed: Seed = 0,
    shape: Shape = Format.TABLE,
    force: Force = False,
) -> None:
    """Fit a simulated suite of 30 LLMs x 200 items whose true abilities are known."""
    _set_devices(chains)
    from bayes_irt.provenance import require_free
    from bayes_irt.simulate import simulate_suite

    require_free(output, force=force)
    suite = simulate_suite(30, 200, seed=seed)
    _say(str(suite.responses))
    source = f"simulated suite, seed {seed}"
    sampler = (chains, warmup, draws, 0.8, 1, ChainMethod.PARALLEL)
    run = _fit(
        suite.responses,
        plan_of(Method.NUTS, Discrimination.HALF_NORMAL, draws, seed, sampler=sampler),
        source,
    )
    board = _board(run, 0.9)
    truth = dict(zip(suite.responses.llms, suite.truth.ability[:, 0], strict=True))
    inside = sum(
        row.ability_lower <= truth[str(row.Index)] <= row.ability_upper for row in board.table.itertuples()
    )
    _finish(
        run, output, 0.9, shape, force=force, last=f"The 90% intervals hold {inside} of 30 true abilities."
    )


def main() -> None:
    """Run the command line and turn the package's exceptions into exit codes."""
    warnings.showwarning = _show_warning
    os.environ["MPLBACKEND"] = "Agg"  # plots go to files, whatever the caller's notebook asks for
    try:
        app()
    except BayesIRTError as error:
        _say(f"Error: {error}")
        sys.exit(BAD_INPUT)


def _check_options(
    method: Method, discrimination: Discrimination, *, penalty: bool, algorithm: Algorithm | None, starts: int
) -> None:
    """Refuse options of one method with the other, before anything is read."""
    if method is not Method.CBMM and (not penalty or starts > 1 or algorithm is not None):
        raise typer.BadParameter(
            "--no-penalty, --starts and --algorithm are for --method cbmm: the others start at the penalised estimate."
        )
    if method is Method.CBMM and discrimination is not Discrimination.HALF_NORMAL:
        raise typer.BadParameter("--discrimination is not for --method cbmm, whose penalty is half-normal.")


def _set_devices(chains: int) -> None:
    """Give each chain a device of its own, as far as there are cores; only possible before JAX starts."""
    flag = f"--xla_force_host_platform_device_count={min(chains, os.cpu_count() or 1)}"
    given = os.environ.get("XLA_FLAGS", "")
    if "host_platform_device_count" not in given and "jax" not in sys.modules:
        os.environ["XLA_FLAGS"] = f"{given} {flag}".strip()


def _split(names: list[str] | None) -> tuple[str, ...]:
    return tuple(part for name in names or () for part in name.split(",") if part)


def _fit(responses: Responses, plan: FitPlan, source: str) -> Run:
    from bayes_irt.fitting import fit_run

    with _progress() as progress:
        return fit_run(responses, plan, source, say=_say, progress=progress)


def _board(run: Run, prob: float) -> Leaderboard:
    from bayes_irt.analysis.ranking import rank_llms

    assert run.posterior is not None
    return rank_llms(run.posterior, run.estimate, run.responses, prob)


def _finish(run: Run, output: Path, prob: float, shape: Format, *, force: bool, last: str = "") -> None:
    """Write the run directory with board and plot, print the board, exit by convergence."""
    from bayes_irt.analysis.ranking import rank_estimate
    from bayes_irt.plots import plot_leaderboard
    from bayes_irt.provenance import new_directory

    with new_directory(output, force=force) as folder:
        run.write(folder)
        if run.posterior is None:
            rank_estimate(run.estimate, run.responses).to_csv(folder / "leaderboard.csv")
        else:
            board = _board(run, prob)
            board.table.to_csv(folder / "leaderboard.csv")
            if board.has_ability:
                figure = plot_leaderboard(board)[0].get_figure(root=True)
                if figure is not None:
                    figure.savefig(folder / "leaderboard.png", dpi=150)
    _print_board(run, prob, shape)
    if last:
        _say(last)
    _say(f"Wrote {output}")
    _exit_by(run)


def _print_board(run: Run, prob: float, shape: Format) -> None:
    from bayes_irt.analysis.ranking import rank_estimate

    if run.posterior is None:
        _print_table(rank_estimate(run.estimate, run.responses), shape)
        _say("A point estimate has no error bars: fit with --method laplace or nuts for intervals.")
        return
    board = _board(run, prob)
    if shape is Format.MARKDOWN:
        sys.stdout.write(board.to_markdown())
    elif shape is Format.JSON:
        sys.stdout.write(board.to_json() + "\n")
    elif shape is Format.CSV:
        sys.stdout.write(board.table.to_csv())
        _say(*board.notes)
    else:
        _print_rich(board.formatted())
        _say(*board.notes)


def _print_table(table: pd.DataFrame, shape: Format) -> None:
    from bayes_irt.formatting import markdown_table

    if shape is Format.CSV:
        sys.stdout.write(table.to_csv())
    elif shape is Format.JSON:
        sys.stdout.write(table.reset_index().to_json(orient="records", indent=2) + "\n")
    else:
        rounded = table.round(3).reset_index().astype(object).fillna("n/a").astype(str)
        _print_rich(rounded) if shape is Format.TABLE else sys.stdout.write(markdown_table(rounded))


def _print_rich(board: pd.DataFrame) -> None:
    """Print a table of text; where output is no terminal, as wide as it needs to be."""
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for name in board.columns:
        table.add_column(name, justify="left" if name.lower() == "llm" else "right", no_wrap=name != "LLM")
    for row in board.itertuples(index=False):
        table.add_row(*(Text(str(cell)) for cell in row))
    console = Console()
    if not console.is_terminal:
        console = Console(width=max(80, Console(width=10_000).measure(table).maximum))
    console.print(table)


def _report_data(responses: Responses) -> None:
    from bayes_irt.checks import Outcome
    from bayes_irt.data_checks import check_responses

    for check in check_responses(responses):
        if check.outcome is not Outcome.PASS:
            _say(f"Data, {check}")


def _exit_by(run: Run) -> None:
    if not run.converged:
        _say("The fit did not converge: see the checks above; the numbers may not be trusted.")
        raise typer.Exit(NOT_CONVERGED)


@contextmanager
def _progress() -> Iterator[Progress]:
    """Show a progress bar on standard error."""
    from rich.console import Console
    from rich.progress import Progress

    console = Console(stderr=True)
    with Progress(console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task("cBMM", total=None)

        def update(doing: str, done: int | None = None, total: int | None = None) -> None:
            bar.update(task, completed=done or 0, total=total, description=doing)

        yield update


def _say(*lines: str) -> None:
    for line in lines:
        print(line, file=sys.stderr)


def _show_warning(message: Warning | str, *_: object, **__: object) -> None:
    _say(f"Warning: {message}")
