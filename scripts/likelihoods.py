"""Which likelihood do the data want, and what happens under another? Simulations and real suites.

``uv run python scripts/likelihoods.py repeats`` draws suites whose repeated attempts hang together and counts how many
true differences of ability the intervals hold, beta-binomial and binomial. ``floor`` draws answers above a guessing
floor and measures by how much weak LLMs are misjudged without one. ``recover`` counts how many true abilities the
intervals hold in suites with testlets or learned floors. ``cruxeval`` fits CRUXEval's ten attempts at two temperatures.
``real`` compares models on five real suites. The last two need ``BAYES_IRT_DATA``.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
import warnings
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
from devices import use_all_cores

use_all_cores()

import numpy as np  # noqa: E402
import pandas as pd  # noqa: E402
from held_out import SUITES, part_of  # noqa: E402

from bayes_irt import (  # noqa: E402
    Common,
    ComparisonPlan,
    HalfNormal,
    LearnedLocation,
    LearnedScale,
    LearnedShare,
    ModelSpec,
    Normal,
    Posterior,
    Priors,
    Responses,
    Sampler,
    SuiteDesign,
    check_predictive,
    compare_models,
    fit_laplace,
    fit_nuts,
    fit_svi,
    read_responses,
    simulate_from_prior,
    simulate_suite,
)
from bayes_irt.formatting import markdown_table  # noqa: E402

BINOMIAL = ModelSpec(observation="binomial")
USUAL = Priors(HalfNormal(LearnedScale(1.5, 0.3)), Normal(LearnedLocation(0.0, 1.0), LearnedScale(1.5, 0.3)))


def fit(engine: str, responses: Responses, spec: ModelSpec, seed: int) -> Posterior:
    """Fit by Laplace, SVI or short NUTS."""
    if engine == "laplace":
        return fit_laplace(responses, spec=spec, seed=seed)
    if engine == "svi":
        return fit_svi(responses, spec=spec, seed=seed)
    sampler = Sampler(num_chains=2, num_warmup=300, num_draws=500)
    return fit_nuts(responses, spec=spec, sampler=sampler, seed=seed)


def held_differences(posterior: Posterior, truth: np.ndarray, prob: float = 0.9) -> float:
    """Return the share of true ability differences between LLMs that intervals hold."""
    draws = posterior.ability.transpose("chain", "draw", "llm").to_numpy().reshape(-1, len(truth))
    first, second = np.triu_indices(len(truth), 1)
    lower, upper = np.quantile(draws[:, first] - draws[:, second], ((1 - prob) / 2, (1 + prob) / 2), axis=0)
    wanted = truth[first] - truth[second]
    return float(np.mean((lower <= wanted) & (wanted <= upper)))


def repeats(options: argparse.Namespace) -> None:
    """Cover ability differences where attempts hang together: cell-level logit sd 1.5, 8 attempts."""
    rows = []
    for num_llms in options.llms:
        held: dict[str, list[float]] = {"beta-binomial": [], "binomial": []}
        warned = 0
        for seed in range(options.suites):
            suite = simulate_suite(num_llms, 50, design=SuiteDesign(cell_sd=1.5, attempts=8), seed=seed)
            truth = np.asarray(suite.truth.ability[:, 0])
            for name, spec in (("beta-binomial", ModelSpec()), ("binomial", BINOMIAL)):
                posterior = fit(options.engine, suite.responses, spec, seed)
                held[name].append(held_differences(posterior, truth))
                if name == "binomial":
                    report = check_predictive(posterior, suite.responses).report
                    warned += any(check.name == "repeated attempts" for check in report.failures)
        for name, shares in held.items():
            error = np.std(shares, ddof=1) / np.sqrt(len(shares))
            text = f"{100 * np.mean(shares):.1f} ± {100 * error:.1f}"
            note = f"{warned} of {options.suites}" if name == "binomial" else "-"
            rows.append((num_llms, options.engine, name, len(shares), text, note))
        print(pd.DataFrame(rows).tail(2).to_string(), flush=True)
    heads = ["LLMs", "engine", "attempts", "suites", "held by 90 % intervals, %", "warned of"]
    print(markdown_table(pd.DataFrame(rows, columns=heads)))


def floor(options: argparse.Namespace) -> None:
    """Measure the bias of weak LLMs' abilities with and without the true floor of .1."""
    bias: dict[str, list[float]] = {"with the floor": [], "without": []}
    for seed in range(options.suites):
        suite = simulate_from_prior(ModelSpec(USUAL, floor=0.1), 40, 300, seed=seed)
        truth = np.asarray(suite.truth.ability[:, 0])
        # chosen by the data: of LLMs chosen by their truth a posterior's means are always nearer to the others
        weak = np.argsort(suite.responses.successes.sum(axis=1), kind="stable")[:8]
        for name, least in (("with the floor", 0.1), ("without", None)):
            posterior = fit(options.engine, suite.responses, ModelSpec(floor=least), seed)
            found = posterior.ability.mean(("chain", "draw")).to_numpy()
            bias[name].append(float(np.mean(found[weak] - truth[weak])))
    rows = [
        (name, len(found), f"{np.mean(found):+.3f} ± {np.std(found, ddof=1) / np.sqrt(len(found)):.3f}")
        for name, found in bias.items()
    ]
    heads = ["model", "suites", "mean error of the 8 of 40 LLMs with the lowest accuracy, sd of ability"]
    print(markdown_table(pd.DataFrame(rows, columns=heads)))


def recover(options: argparse.Namespace) -> None:
    """Cover all that is learned in suites with testlets or learned floors, drawn from the model that is fitted."""
    number = options.items
    subjects = pd.DataFrame({"text": [f"text {item % options.groups}" for item in range(number)]})
    wanted, fitted = (
        ModelSpec(priors, item_groups="text")
        if options.what == "testlets"
        else ModelSpec(priors, floor=LearnedShare(5.0, 17.0))
        for priors in (USUAL, Priors())
    )
    held: dict[str, list[float]] = {}
    for seed in range(options.suites):
        suite = simulate_from_prior(wanted, options.llms, number, seed=seed, item_metadata=subjects)
        began = time.perf_counter()
        posterior = fit(options.engine, suite.responses, fitted, seed)
        seconds, parameters, found = time.perf_counter() - began, posterior.parameters, {}
        for site in ("ability", "discrimination", "easiness"):
            lower, upper = np.quantile(np.asarray(getattr(parameters, site)), (0.05, 0.95), axis=0)
            truth = np.asarray(getattr(suite.truth, site))
            found[site] = 100 * float(np.mean((lower <= truth) & (truth <= upper)))
        inside = [
            lower <= value <= upper
            for site, value in suite.hyperparameters.items()
            for lower, upper in [np.quantile(posterior.draws[site], (0.05, 0.95))]
        ]
        found["hyperparameters"] = 100 * float(np.mean(inside))
        for site, share in found.items():
            held.setdefault(site, []).append(share)
        print({"suite": seed, "seconds": round(seconds), **found}, flush=True)
    rows = [
        (options.what, options.engine, site, len(shares), f"{np.mean(shares):.1f} ± {spread:.1f}")
        for site, shares in held.items()
        for spread in [np.std(shares, ddof=1) / np.sqrt(len(shares))]
    ]
    heads = ["model", "engine", "parameters", "suites", "held by 90 % intervals, %"]
    print(markdown_table(pd.DataFrame(rows, columns=heads)))


def cruxeval(options: argparse.Namespace) -> None:
    """Fit CRUXEval at either temperature, with and without dispersion."""
    everything = read_responses(Path(os.environ["BAYES_IRT_DATA"]) / "cruxeval.parquet")
    temperature = everything.llm_metadata["temperature"].astype(float)
    for value in (0.2, 0.8):
        llms = list(everything.llm_metadata.index[temperature == value])
        responses = part_of(everything.subset(llms=llms, drop_empty=True), None, options.items, 0)
        for spec in (ModelSpec(), BINOMIAL):
            started = time.perf_counter()
            posterior = fit(options.engine, responses, spec, 0)
            check = check_predictive(posterior, responses).report["repeated attempts"]
            text = f"T = {value}: {responses}, {posterior.spec.title}, {time.perf_counter() - started:.0f} s. {check}"
            if "dispersion" in posterior.draws:
                draws = posterior.draws["dispersion"].to_numpy()
                lower, upper = np.quantile(draws, (0.05, 0.95))
                text += f" Dispersion {draws.mean():.3f} (90 % {lower:.3f} to {upper:.3f})."
            print(text, flush=True)


def real(options: argparse.Namespace) -> None:
    """Compare models on real suites, by held-out cells and by whole LLMs."""
    folder = Path(os.environ["BAYES_IRT_DATA"])
    models = {"1PL": ModelSpec(Priors(Common())), "2PL": ModelSpec()}
    for name in options.suites_named or [*SUITES, "mmlu_pro"]:
        own = dict(models)
        if name == "mmlu_pro":
            responses = read_responses(folder / "mmlu_pro.parquet")
            options_of = responses.item_metadata["n_options"]
            known = options_of.where(options_of > 1).to_numpy()  # items with one option left are no guesses
            responses = Responses(responses.dataset.assign_coords(choices=("item", known)))
            own["2PL, floor 1 / options"] = ModelSpec(floor="choices")
        else:
            responses = SUITES[name](folder)
            own["2PL, floor .1"] = ModelSpec(floor=0.1)
        if not responses.is_binary:
            own["2PL, binomial"] = BINOMIAL
        started = time.perf_counter()
        criteria = tuple(options.criteria)
        found = compare_models(responses, own, criteria=criteria, plan=ComparisonPlan(folds=options.folds))
        print(
            f"## {name}, {responses} ({time.perf_counter() - started:.0f} s)\n\n{found.to_markdown()}",
            flush=True,
        )


def main() -> None:
    """Run the command that was asked for."""
    parser = argparse.ArgumentParser(description=str(__doc__).split("\n", 1)[0])
    commands = parser.add_subparsers(required=True)
    one = commands.add_parser("repeats", help="coverage where attempts hang together")
    one.add_argument("--llms", nargs="*", type=int, default=[6, 30])
    two = commands.add_parser("floor", help="bias of weak LLMs without a floor")
    for command, run, suites in ((one, repeats, 100), (two, floor, 40)):
        command.add_argument("--suites", type=int, default=suites)
        command.set_defaults(run=run)
    three = commands.add_parser("cruxeval", help="dispersion at two temperatures")
    three.add_argument("--items", type=int, help="a random part of the items")
    three.set_defaults(run=cruxeval)
    for command in (one, two, three):
        command.add_argument("--engine", choices=["laplace", "svi", "nuts"], default="laplace")
    five = commands.add_parser("recover", help="coverage with testlets or learned floors")
    five.add_argument("--what", choices=["testlets", "floors"], default="testlets")
    for option, count in (("--suites", 10), ("--llms", 150), ("--items", 240), ("--groups", 12)):
        five.add_argument(option, type=int, default=count)
    five.add_argument("--engine", choices=["svi", "nuts"], default="svi")
    five.set_defaults(run=recover)
    four = commands.add_parser("real", help="models compared on real suites")
    four.add_argument("--suites-named", nargs="*", help="names of suites; default five and mmlu_pro")
    four.add_argument("--criteria", nargs="*", default=["held-out cells", "LLMs"])
    four.add_argument("--folds", type=int, default=5)
    four.set_defaults(run=real)
    options = parser.parse_args()
    warnings.simplefilter("ignore", UserWarning)  # the tables say what comes of it
    options.run(options)


if __name__ == "__main__":
    main()
