"""Fit many suites: every table of a folder, or those of a TOML file, one run directory each.

``uv run python scripts/fit_suites.py FOLDER --output RUNS --method laplace`` fits all tables of responses in a folder.
``uv run python scripts/fit_suites.py SUITES.toml --output RUNS`` fits what a file states, suite by suite::

    [defaults]                 # for all suites that do not say otherwise
    method = "laplace"         # cbmm, laplace, svi or nuts
    seed = 1

    [suites.math500]           # the name of the run directory
    dataset = "math500"        # a public suite by name, or:

    [suites.verified]
    path = "swebench_verified.parquet"      # beside this file
    method = "nuts"
    discrimination = "log-normal"
    warmup = 1000

Options of the fit are those of ``bayes-irt fit``, with _ for -: model, discrimination, floor, observation, seed, draws;
cbmm: penalty, algorithm, starts; svi: guide, batch_size; nuts: group, item_group, chains, warmup, target_accept,
thinning, chain_method. How a file is read: items, llms (tables of metadata), drop_empty, threshold,
parts (of fractional scores), and columns = {llm = "who", score = "right"}.

A suite whose run directory holds a fit of the same data with the same options is skipped. Another fit in its place is
left alone and the suite counts as failed, but with --force is replaced; to fit a suite anew all the same, delete its
directory. A suite that fails does not stop the others.
summary.csv and summary.md in the output folder are rewritten after every suite.

Exit codes: 0 all fine, 2 bad configuration, 3 a suite failed or did not converge.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
import traceback
import warnings
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))
import pandas as pd
from devices import use_all_cores
from suite_plans import SuitePlan, plans_of_file, plans_of_folder
from suite_summary import Row, former_seconds, row_of, write_summary

from bayes_irt.cli_options import Discrimination, Method
from bayes_irt.cli_output import progress_bar, say
from bayes_irt.errors import BayesIRTError, InvalidConfigurationError, RunDirectoryError
from bayes_irt.fitting import FitPlan, fit_run
from bayes_irt.inference.engine import settled_spec, start_penalty
from bayes_irt.priors import Priors, penalty_from_priors
from bayes_irt.provenance import new_directory, plain, require_free
from bayes_irt.responses import Responses
from bayes_irt.runs import Run

BAD_CONFIGURATION = 2
SOME_FAILED = 3
# What data and engines may raise; errors of the program itself (TypeError, KeyError) end it.
FAILURES = (BayesIRTError, ArithmeticError, MemoryError, OSError, RuntimeError, ValueError)


def main(arguments: list[str] | None = None) -> int:
    """Fit all suites; return the exit code."""
    options = _parser().parse_args(arguments)
    try:
        plans = _plans(options)
        options.output.mkdir(parents=True, exist_ok=True)
    except (BayesIRTError, OSError) as error:
        say(f"Error: {error}")
        return BAD_CONFIGURATION
    _set_devices(plans)
    seconds = former_seconds(options.output)
    rows: list[Row] = [
        {"suite": plan.name, "status": "waiting", "seconds": seconds.get(plan.name)} for plan in plans
    ]
    with warnings.catch_warnings():
        warnings.simplefilter("always", UserWarning)
        for place, plan in enumerate(plans):
            write_summary(options.output, rows)
            warnings.showwarning = _shown_for(plan.name)
            rows[place] = _row(
                plan, options.output, seconds.get(plan.name, float("nan")), force=options.force
            )
            say(_in_short(rows[place]))
    print(write_summary(options.output, rows))
    say(f"Wrote {options.output / 'summary.csv'} and {options.output / 'summary.md'}")
    return 0 if all(row.get("converged") for row in rows) else SOME_FAILED


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("suites", type=Path, help="folder of tables, or TOML file")
    parser.add_argument("--output", "-o", type=Path, required=True, help="folder of the run directories")
    parser.add_argument("--force", action="store_true", help="replace runs of other data or options")
    folder = parser.add_argument_group("for all suites of a folder")
    folder.add_argument("--method", choices=[str(method) for method in Method], help="default: laplace")
    folder.add_argument("--discrimination", choices=[str(family) for family in Discrimination])
    folder.add_argument("--seed", type=int)
    return parser


def _plans(options: argparse.Namespace) -> list[SuitePlan]:
    names = ("method", "discrimination", "seed")
    given = {name: value for name in names if (value := getattr(options, name)) is not None}
    if options.suites.is_dir():
        return plans_of_folder(options.suites, given)
    if given:
        raise InvalidConfigurationError(
            f"--{next(iter(given))} is for a folder of tables. State it in {options.suites}."
        )
    return plans_of_file(options.suites)


def _set_devices(plans: list[SuitePlan]) -> None:
    """Give parallel chains devices of their own, before JAX computes anything; other engines want one."""
    samplers = [plan.fit.sampler for plan in plans if plan.fit.sampler is not None]
    chains = [sampler.num_chains for sampler in samplers if sampler.chain_method == "parallel"]
    if chains:
        use_all_cores(max(chains))


def _row(plan: SuitePlan, output: Path, seconds: float, *, force: bool) -> Row:
    """Return the row of a suite, whatever becomes of it."""
    try:
        return _fitted(plan, output / plan.name, seconds, force=force)
    except FAILURES as error:
        if not isinstance(error, BayesIRTError):
            traceback.print_exc()
        text = str(error) if isinstance(error, BayesIRTError) else f"{type(error).__name__}: {error}"
        return {"suite": plan.name, "status": "failed", "method": plan.fit.method, "message": text}


def _fitted(plan: SuitePlan, folder: Path, seconds: float, *, force: bool) -> Row:
    """Fit a suite, or find it done, and write its run directory."""
    responses = plan.read()
    if os.path.lexists(folder):
        done, why = _done(folder, responses, plan.fit)
        if done is not None:
            return row_of(plan.name, "skipped", done, seconds)[0]
        if not force:
            raise RunDirectoryError(f"{why} Replace it with --force, or choose another output folder.")
        say(f"{plan.name}: fitted again. {why}")
    require_free(folder, force=force)
    say(f"{plan.name}: {responses}")
    started = time.perf_counter()
    with progress_bar() as progress:
        run = fit_run(
            responses,
            plan.fit,
            plan.source,
            say=lambda line: say(f"{plan.name}: {line}"),
            progress=progress,
        )
    seconds = time.perf_counter() - started
    row, table = row_of(plan.name, "fitted", run, seconds)
    with new_directory(folder, force=force) as temporary:
        run.write(temporary)
        table.to_csv(temporary / "leaderboard.csv")
    return row


def _done(folder: Path, responses: Responses, fit: FitPlan) -> tuple[Run | None, str]:
    """Return the run in a directory if it is the one planned; else None, and why it is not."""
    try:
        run = Run.load(folder)
    except (BayesIRTError, OSError, ValueError) as error:
        return None, f"{folder} holds no run that can be read: {error}"
    if run.responses.digest != responses.digest:
        return (
            None,
            f"The run in {folder} is about other LLMs, items or outcomes than its source holds now.",
        )
    if run.method != fit.method:
        return None, f"The run in {folder} was fitted by {run.method}, not by {fit.method}."
    other = [name for name, wanted, found in _configurations(run, fit) if wanted != found]
    spec, both = fit.spec, (responses, run.responses)
    columns = [(spec.llm_groups, [one.llm_metadata for one in both])]
    named = (spec.floor, spec.dispersion_groups, spec.item_groups)
    columns += [(name, [one.item_metadata for one in both]) for name in named if isinstance(name, str)]
    other += [
        f"metadata column {name!r}"
        for name, tables in columns
        if name is not None and not _same(name, *tables)
    ]
    return (None, f"The run in {folder} differs in {', '.join(other)}.") if other else (run, "")


def _same(name: str, *tables: pd.DataFrame) -> bool:
    columns = [table.get(name) for table in tables]
    return columns[0] is not None and columns[1] is not None and columns[0].equals(columns[1])


def _configurations(run: Run, fit: FitPlan) -> list[tuple[str, Any, Any]]:
    """Return name, planned and actual value of every option that is recorded in a run."""
    penalty = start_penalty(fit.spec) if fit.penalise else None
    wanted: dict[str, Any] = {
        "penalty": penalty_from_priors(penalty) if isinstance(penalty, Priors) else penalty,
        "solver": fit.solver,
    }
    found = run.estimate.provenance.configuration
    rows = [(name, plain(value), found.get(name)) for name, value in wanted.items()]
    if run.posterior is None:
        return rows
    provenance = run.posterior.provenance
    wanted = {
        "spec": settled_spec(run.responses, fit.spec),
        "num_draws": fit.num_draws,
        "optimizer": fit.optimizer,
        "sampler": fit.sampler,
    }
    known = [name for name in wanted if name in provenance.configuration]
    rows += [(name, plain(wanted[name]), provenance.configuration[name]) for name in known]
    return [*rows, ("seed", fit.seed, provenance.seed)]


def _in_short(row: Row) -> str:
    """Return in a line what became of a suite."""
    name, status = row["suite"], row["status"]
    if status == "failed":
        return f"{name}: failed. {row['message']}"
    first = row.get("first_llm", "nobody")
    return f"{name}: {status}{'' if row['converged'] else ', NOT converged'}; first is {first}"


def _shown_for(name: str) -> Any:
    def show(message: Warning | str, *_: object, **__: object) -> None:
        say(f"{name}: Warning: {message}")

    return show


if __name__ == "__main__":
    sys.exit(main())
