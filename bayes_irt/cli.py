"""The command line: parse, call, write. The only file that prints or sets JAX flags.

Results go to standard output, everything said about them to standard error. Exit codes: 0 fine, 2 bad input, 3 ran
but did not converge.
"""

from __future__ import annotations

import os
import shlex
import sys
import warnings
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from bayes_irt.cli_options import (
    AlgorithmOption,
    Also,
    AttemptColumn,
    AttemptsColumn,
    BatchSize,
    Care,
    ChainMethod,
    ChainMethodOption,
    Chains,
    Data,
    DiscriminationOption,
    Draws,
    DropEmpty,
    FloorOption,
    Force,
    Format,
    GeneralOption,
    GuideOption,
    Ignore,
    ItemColumn,
    ItemGroupColumn,
    ItemsTable,
    LLMColumn,
    LLMColumns,
    LLMsTable,
    Method,
    MethodOption,
    ModelOption,
    ObservationOption,
    Output,
    Parts,
    PenaltyOption,
    Prob,
    RelatedColumn,
    ScoreColumn,
    Seed,
    Shape,
    Starts,
    SuccessesColumn,
    Thinning,
    Threshold,
    TraitColumns,
    Warmup,
)
from bayes_irt.cli_output import progress_bar, report_data, say
from bayes_irt.cli_plans import plan_of, refuse_idle, score_rule, solver_of, spec_of, suites_as_one
from bayes_irt.cli_questions import agree, board_of, compare, exit_by, models, plan, print_board, rank, report
from bayes_irt.errors import BayesIRTError, InvalidConfigurationError

if TYPE_CHECKING:
    from bayes_irt.fitting import FitPlan
    from bayes_irt.responses import Responses
    from bayes_irt.runs import Run

BAD_INPUT = 2

app = typer.Typer(
    help="Leaderboards of language models with credible intervals, by Bayesian item response theory.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)

for _question in (rank, compare, agree, report, plan, models):
    app.command()(_question)


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
    also: Also = None,
    drop_empty: DropEmpty = False,
    threshold: Threshold = None,
    parts: Parts = None,
    model: ModelOption = None,
    discrimination: DiscriminationOption = None,
    floor: FloorOption = None,
    observation: ObservationOption = None,
    group: RelatedColumn = None,
    item_group: ItemGroupColumn = None,
    traits: TraitColumns = None,
    general: GeneralOption = False,
    penalty: PenaltyOption = True,
    algorithm: AlgorithmOption = None,
    starts: Starts = None,
    chains: Chains = None,
    warmup: Warmup = None,
    draws: Draws = None,
    target_accept: Care = None,
    thinning: Thinning = None,
    chain_method: ChainMethodOption = None,
    guide: GuideOption = None,
    batch_size: BatchSize = None,
    seed: Seed = 0,
    prob: Prob = 0.9,
    shape: Shape = Format.TABLE,
    force: Force = False,
) -> None:
    """Fit a table of responses, print the leaderboard and write a run directory."""
    sampler = {
        "num_chains": chains,
        "num_warmup": warmup,
        "target_accept": target_accept,
        "thinning": thinning,
        "chain_method": chain_method and chain_method.value,
    }
    optimizer = {"guide": guide and guide.value, "batch_size": batch_size}
    flags = ("--chains", "--warmup", "--target-accept", "--thinning", "--chain-method")
    given = {**dict(zip(flags, sampler.values(), strict=True)), "--guide": guide, "--batch-size": batch_size}
    given |= {"--no-penalty": None if penalty else True, "--algorithm": algorithm, "--starts": starts}
    given |= {"--model": model, "--floor": floor, "--observation": observation, "--item-group": item_group}
    given |= {"--traits": True if traits else None, "--general": general or None}
    refuse_idle(method, given | {"--discrimination": discrimination, "--draws": draws, "--group": group})
    if method is Method.NUTS and chain_method in (None, ChainMethod.PARALLEL):
        _set_devices(chains or 4)
    from bayes_irt.provenance import require_free
    from bayes_irt.readers import TableColumns, read_responses

    plan = plan_of(
        method,
        seed,
        spec=spec_of(
            model=model,
            discrimination=discrimination,
            floor=floor,
            observation=observation,
            llm_groups=group,
            item_groups=item_group,
            traits=_split(traits),
            general=general,
        ),
        draws=draws,
        solver=solver_of(penalise=penalty, algorithm=algorithm, starts=starts or 1, seed=seed),
        engine=sampler if method is Method.NUTS else optimizer,
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
        scores=score_rule(threshold, parts),
    )
    responses = read_responses(data, columns=columns, items_path=items, llms_path=llms, drop_empty=drop_empty)
    if also:
        if items or llms:
            raise InvalidConfigurationError(
                "--items and --llms belong to one table. With --also, put NAME_items and NAME_models beside each."
            )
        others = [read_responses(path, columns=columns, drop_empty=drop_empty) for path in also]
        responses = suites_as_one([data, *also], [responses, *others])
    say(str(responses))
    report_data(responses)
    run = _fit(responses, plan, ", ".join(map(str, [data, *(also or [])])))
    _finish(run, output, prob, shape, force=force)


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
    _set_devices(chains or 4)
    from bayes_irt.provenance import require_free
    from bayes_irt.simulate import simulate_suite

    require_free(output, force=force)
    suite = simulate_suite(30, 200, seed=seed)
    say(str(suite.responses))
    source = f"simulated suite, seed {seed}"
    engine = {"num_chains": chains, "num_warmup": warmup}
    run = _fit(suite.responses, plan_of(Method.NUTS, seed, draws=draws, engine=engine), source)
    board = board_of(run, 0.9)
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
        say(f"Error: {error}")
        sys.exit(BAD_INPUT)


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

    with progress_bar() as progress:
        return fit_run(responses, plan, source, say=say, progress=progress)


def _finish(run: Run, output: Path, prob: float, shape: Format, *, force: bool, last: str = "") -> None:
    """Write the run directory with board and plot, print the board, exit by convergence."""
    from bayes_irt.analysis.ranking import rank_estimate
    from bayes_irt.analysis.traits import trait_profile
    from bayes_irt.plots import plot_leaderboard
    from bayes_irt.provenance import new_directory

    run = replace(run, command=shlex.join(["bayes-irt", *sys.argv[1:]]))
    with new_directory(output, force=force) as folder:
        run.write(folder)
        if run.posterior is None:
            rank_estimate(run.estimate, run.responses).to_csv(folder / "leaderboard.csv")
        else:
            board = board_of(run, prob)
            board.table.to_csv(folder / "leaderboard.csv")
            if run.posterior.traits:
                trait_profile(run.posterior, prob).to_csv(folder / "traits.csv")
            if board.has_ability:
                figure = plot_leaderboard(board)[0].get_figure(root=True)
                if figure is not None:
                    figure.savefig(folder / "leaderboard.png", dpi=150)
    print_board(run, prob, shape)
    if last:
        say(last)
    say(f"Wrote {output}")
    exit_by(run)


def _show_warning(message: Warning | str, *_: object, **__: object) -> None:
    say(f"Warning: {message}")
