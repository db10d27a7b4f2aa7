"""Calibrate an engine by simulation, by the coverage of its intervals, or by its P(A > B).

``--what sbc`` ranks true parameters among draws, ``--what coverage`` counts how many true values intervals hold, and
``--what pairs`` how often the LLM that is probably better is better.

``uv run python scripts/calibration.py --engine nuts --what coverage --suites 20 --cases "8 x 40" "30 x 200"`` adds to
``calibration/coverage.csv``, and writes all that stands there as a Markdown table beside it. It writes after every
case, so that it may be stopped at any time; a case that is run again replaces what was there.
"""

from __future__ import annotations

import argparse
import sys
import time
import warnings
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import NamedTuple

sys.path.insert(0, str(Path(__file__).parent))
from devices import use_all_cores

use_all_cores()

import pandas as pd  # noqa: E402

from bayes_irt import ModelSpec, Posterior, Priors, Responses  # noqa: E402
from bayes_irt.calibration import CalibrationPlan, Engine, check_calibration  # noqa: E402
from bayes_irt.checks import Outcome  # noqa: E402
from bayes_irt.coverage import COVERAGE_CASES, HARD_CASES, check_coverage, measure_coverage  # noqa: E402
from bayes_irt.files import write_whole  # noqa: E402
from bayes_irt.formatting import markdown_table  # noqa: E402
from bayes_irt.pair_calibration import PAIR_CASES, check_pairs, measure_pairs  # noqa: E402
from bayes_irt.priors import (  # noqa: E402
    Common,
    HalfNormal,
    LearnedLocation,
    LearnedScale,
    LearnedShare,
    LogNormal,
    Normal,
)

LOG_NORMAL = ModelSpec(Priors(discrimination=LogNormal()))
# The default hyperpriors are wide: in two of five suites more than half of the items are constant. These are not.
USUAL = ModelSpec(
    Priors(HalfNormal(LearnedScale(1.5, 0.3)), Normal(LearnedLocation(0.0, 1.0), LearnedScale(1.5, 0.3)))
)
#: Of every five LLMs three belong to a family, the others to none.
FAMILIES = tuple("" if number % 5 > 2 else f"family {number // 5}" for number in range(12))
#: Items in groups of four.
GROUPS_OF_ITEMS = pd.DataFrame({"group": [f"group {number // 4}" for number in range(24)]})
TRAITS = pd.DataFrame({"trait": [f"trait {number % 3}" for number in range(24)]})


class SBCCase(NamedTuple):
    """State size and model of simulated data sets, and what the model asks of LLMs and items."""

    num_llms: int
    num_items: int
    spec: ModelSpec = ModelSpec()
    attempts: int = 1
    families: tuple[str, ...] | None = None
    item_metadata: pd.DataFrame | None = None

    @property
    def by_nuts_alone(self) -> bool:
        """Say whether other engines refuse the model."""
        spec = self.spec
        learned_floor = isinstance(spec.floor, LearnedShare)
        named = (spec.llm_groups, spec.item_groups, spec.traits)
        return learned_floor or any(column is not None for column in named)


SBC_CASES = {
    "8 x 10": SBCCase(8, 10),
    "8 x 10, log-normal": SBCCase(8, 10, LOG_NORMAL),
    "8 x 40": SBCCase(8, 40),
    "30 x 60": SBCCase(30, 60),
    "30 x 60, log-normal": SBCCase(30, 60, LOG_NORMAL),
    "30 x 60, usual suites": SBCCase(30, 60, USUAL),
    "12 x 20, families": SBCCase(12, 20, ModelSpec(llm_groups="family"), families=FAMILIES),
    "16 x 20, 1PL": SBCCase(16, 20, ModelSpec(Priors(Common()))),
    "16 x 20, 4 attempts": SBCCase(16, 20, attempts=4),
    "16 x 20, floor .2": SBCCase(16, 20, ModelSpec(floor=0.2)),
    "16 x 20, learned floors": SBCCase(16, 20, ModelSpec(floor=LearnedShare(4.0, 12.0))),
    "20 x 24, three traits": SBCCase(20, 24, ModelSpec(USUAL.priors, traits="trait"), item_metadata=TRAITS),
    "20 x 24, bifactor": SBCCase(
        20, 24, ModelSpec(USUAL.priors, traits="trait", general=True), item_metadata=TRAITS
    ),
    "16 x 24, testlets": SBCCase(16, 24, ModelSpec(item_groups="group"), item_metadata=GROUPS_OF_ITEMS),
}


def nuts(options: argparse.Namespace) -> Engine:
    """Return NUTS as an engine."""
    from bayes_irt import Sampler, fit_nuts

    sampler = Sampler(num_warmup=options.warmup, num_draws=options.draws)

    def fit(responses: Responses, spec: ModelSpec, seed: int) -> Posterior:
        return fit_nuts(responses, spec=spec, sampler=sampler, seed=seed)

    return fit


def approximation(options: argparse.Namespace) -> Engine:
    """Return Laplace or SVI as an engine; they take no options of their own."""
    name = options.engine
    fit_approximately = getattr(import_module(f"bayes_irt.inference.{name}"), f"fit_{name}")

    def fit(responses: Responses, spec: ModelSpec, seed: int) -> Posterior:
        posterior: Posterior = fit_approximately(responses, spec=spec, seed=seed)
        return posterior

    return fit


ENGINES = {"nuts": nuts, "laplace": approximation, "svi": approximation}


def sbc(engine: Engine, case: str, options: argparse.Namespace) -> pd.DataFrame:
    """Run one case of simulation-based calibration, print its report, and return its tests."""
    drawn = SBC_CASES[case]
    report = check_calibration(
        engine,
        drawn.num_llms,
        drawn.num_items,
        spec=drawn.spec,
        plan=CalibrationPlan(num_datasets=options.suites, attempts=drawn.attempts, groups=drawn.families),
        item_metadata=drawn.item_metadata,
        seed=options.seed,
    )
    print(report, flush=True)
    tables = {"no": report.table, "yes": report.control_table}
    table = pd.concat(tables, names=["control"]).reset_index()
    return table.assign(case=case, engine=report.engine)


def coverage(engine: Engine, case: str, options: argparse.Namespace) -> pd.DataFrame:
    """Measure the coverage in one case, print what falls short, and return the table."""
    chosen = [known for known in (*COVERAGE_CASES, *HARD_CASES) if known.name == case]
    probs = tuple(options.probs)
    table = measure_coverage(engine, chosen, num_suites=options.suites, probs=probs, seed=options.seed)
    for check in check_coverage(table):
        if check.outcome is not Outcome.PASS:
            print(check, flush=True)
    return table


def pairs(engine: Engine, case: str, options: argparse.Namespace) -> pd.DataFrame:
    """Measure how often stated orders are true in one case, print what is off, and return the table."""
    chosen = [known for known in PAIR_CASES if known.name == case]
    table = measure_pairs(engine, chosen, num_suites=options.suites, seed=options.seed)
    for check in check_pairs(table):
        if check.outcome is not Outcome.PASS:
            print(check, flush=True)
    return table


KINDS = (
    *("ability", "discrimination", "easiness", "discrimination_location", "discrimination_scale"),
    *(
        "easiness_location",
        "easiness_scale",
        "ability_share",
        "dispersion",
        "floor",
        "testlet",
        "testlet_scale",
        "trait_correlation",
        "log likelihood",
        "all parameters",
    ),
)


def sbc_markdown(table: pd.DataFrame) -> str:
    """Return mean squared scores by case, engine and kind; failed ones bold, the control's last."""
    squares = table[table["statistic"] == "mean_square"]
    own = squares[squares["control"] == "no"].copy()
    own["cell"] = [f"{v:.2f} ± {e:.2f}" for v, e in zip(own["value"], own["error"], strict=True)]
    failed = ~table[table["control"] == "no"].groupby(["case", "engine", "kind"])["passed"].all()
    own["cell"] = [
        f"**{cell}**" if failed[key] else cell
        for key, cell in zip(
            own[["case", "engine", "kind"]].itertuples(index=False), own["cell"], strict=True
        )
    ]
    wide = own.pivot_table(
        index=["case", "engine"], columns="kind", values="cell", aggfunc="first", sort=False
    )
    by_case = table.groupby(["control", "case", "engine"])["passed"]
    missed = (~by_case.all()).xs("yes")
    wide = wide[[kind for kind in KINDS if kind in wide]]
    wide.insert(0, "expected", own.groupby(["case", "engine"])["expected"].first().map("{:.2f}".format))
    wide.insert(0, "data sets", own.groupby(["case", "engine"])["datasets"].first())
    wide["control"] = ["fails" if missed[key] else "PASSES" for key in wide.index]
    wide.columns = [str(name).replace("_", " ") for name in wide.columns]
    return markdown_table(wide.reset_index().fillna("-"), marked=True)


def coverage_markdown(table: pd.DataFrame) -> str:
    """Return percentages covered by case, engine and kind; bold where any falls short by more than chance."""
    outcomes = [check.outcome is Outcome.FAIL for check in check_coverage(table)]
    groups = table.assign(short=outcomes).groupby(["case", "engine", "kind"], sort=False)
    cells = {}
    for key, rows in groups:
        text = " ".join(f"{100 * share:.0f}" for share in rows.sort_values("prob")["covered"])
        cells[key] = f"**{text}**" if rows["short"].any() else text
    series = pd.Series(cells).rename_axis(["case", "engine", "kind"])
    wide = series.unstack("kind", sort=False)
    wide.insert(0, "suites", table.groupby(["case", "engine"])["num_suites"].first())
    return markdown_table(wide.reset_index().fillna("-"), marked=True)


def pairs_markdown(table: pd.DataFrame) -> str:
    """Return stated and true percentages by case, engine and bin; bold where farther off than 5 points and chance."""
    failed = [check.outcome is Outcome.FAIL for check in check_pairs(table)]
    cells = {}
    for row, off in zip(table.to_dict("records"), failed, strict=True):
        text = f"{100 * row['right']:.1f} ± {100 * row['error']:.1f} ({100 * row['stated']:.1f})"
        key = (row["case"], row["engine"], f"{row['lower']:g} to {row['upper']:g}")
        cells[key] = f"**{text}**" if off else text
    series = pd.Series(cells).rename_axis(["case", "engine", "bin"])
    return markdown_table(series.unstack("bin", sort=False).reset_index().fillna("-"), marked=True)


def stored(path: Path, table: pd.DataFrame) -> pd.DataFrame:
    """Put a case's rows into the file, in place of those it had, and return all."""
    if path.exists():
        old = pd.read_csv(path)
        same = (old["case"] == table["case"].iloc[0]) & (old["engine"] == table["engine"].iloc[0])
        table = pd.concat([old[~same], table], ignore_index=True)
    write_whole(path, table.to_csv(index=False))
    return table


WHAT: dict[str, tuple[Callable[..., pd.DataFrame], Callable[[pd.DataFrame], str], list[str]]] = {
    "sbc": (sbc, sbc_markdown, list(SBC_CASES)),
    "coverage": (coverage, coverage_markdown, [case.name for case in (*COVERAGE_CASES, *HARD_CASES)]),
    "pairs": (pairs, pairs_markdown, [case.name for case in PAIR_CASES]),
}


def parsed() -> argparse.Namespace:
    """Read the options."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--engine", choices=list(ENGINES), default="nuts")
    parser.add_argument("--what", choices=list(WHAT), default="coverage")
    parser.add_argument("--suites", type=int, default=100, help="data sets per case (sbc: 50 or more)")
    parser.add_argument("--cases", nargs="*", help="names of cases; default all")
    parser.add_argument("--probs", nargs="*", type=float, default=[0.5, 0.8, 0.9], help="of the intervals")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--warmup", type=int, default=300, help="of each of NUTS's four chains")
    parser.add_argument("--draws", type=int, default=500, help="of each of NUTS's four chains")
    parser.add_argument("--out", type=Path, default=Path("calibration"), help="folder of the tables")
    options = parser.parse_args()
    known = WHAT[options.what][2]
    if unknown := [name for name in options.cases or [] if name not in known]:
        parser.error(f"no case is called {unknown}; there are {known}")
    if options.engine != "nuts" and options.what == "sbc":
        known = [name for name in known if not SBC_CASES[name].by_nuts_alone]
    options.cases = options.cases or known
    return options


def main() -> None:
    """Run the cases one after the other."""
    options = parsed()
    warnings.simplefilter("ignore", UserWarning)  # of single suites; the tables say what comes of it
    measure, described, _ = WHAT[options.what]
    engine = ENGINES[options.engine](options)
    options.out.mkdir(parents=True, exist_ok=True)
    path = options.out / f"{options.what}.csv"
    for case in options.cases:
        began = time.perf_counter()
        table = stored(path, measure(engine, case, options))
        path.with_suffix(".md").write_text(described(table), encoding="utf-8")
        print(f"{case}: {options.suites} suites in {time.perf_counter() - began:.0f} s", flush=True)
    print(path.with_suffix(".md").read_text(encoding="utf-8"))


if __name__ == "__main__":
    main()
