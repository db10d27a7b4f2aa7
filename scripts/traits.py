"""Several abilities: recovered from simulated suites, and compared with one ability on real ones.

``uv run python scripts/traits.py recover`` draws suites of known correlation between traits, fits them, and
counts how many true abilities and correlations the intervals hold. ``explore`` does not say which item loads on which
trait, and compares loads with the truth. ``cost`` times several traits against one. ``real`` holds out cells of suites
whose items have a column of traits, and scores one ability, several, and a general one with several; it needs
``BAYES_IRT_DATA``.
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
from held_out import part_of  # noqa: E402
from scipy.stats import spearmanr  # noqa: E402

from bayes_irt import (  # noqa: E402
    ModelSpec,
    Posterior,
    Priors,
    Responses,
    Sampler,
    check_posterior,
    compare_scores,
    fit_cbmm,
    fit_laplace,
    fit_nuts,
    fit_svi,
    held_out_score,
    read_responses,
    sparse_priors,
    split_cells,
    trait_correlations,
    trait_strengths,
    variance_shares,
)
from bayes_irt.formatting import markdown_table  # noqa: E402
from bayes_irt.trait_matching import matched_cosines  # noqa: E402

#: Suites with a column of traits.
SUITES = {
    "math_reasoning": "benchmark",
    "chembench": "topic",
    "livecodebench": "scenario",
    "metabench": "benchmark",
    "mmlu_pro": "category",
}


def simulated(options: argparse.Namespace, seed: int) -> tuple[Responses, np.ndarray, np.ndarray]:
    """Draw a suite: abilities on traits of one correlation, or a general one beside independent ones."""
    rng, number = np.random.default_rng(seed), options.traits
    trait = np.repeat(np.arange(number), options.items)
    if options.general:
        raw = rng.normal(size=(options.llms, number + 1))
        loads = np.column_stack([np.ones(len(trait)), trait[:, None] == np.arange(number)])
        scale = np.array([1.0, *[0.6] * number])
    else:
        among = options.correlation + (1 - options.correlation) * np.eye(number)
        raw = rng.multivariate_normal(np.zeros(number), among, size=options.llms)
        loads, scale = (trait[:, None] == np.arange(number)).astype(float), np.ones(number)
    ability = (raw - raw.mean(axis=0)) / raw.std(axis=0)
    slopes = loads * scale * np.abs(rng.normal(0, 1.5, size=loads.shape))
    logits = ability @ slopes.T + rng.normal(0, 1.5, size=len(trait))
    items = pd.DataFrame(
        {"trait": [f"trait {int(k)}" for k in trait]}, index=[f"q{j}" for j in range(len(trait))]
    )
    answers = (rng.random(logits.shape) < 1 / (1 + np.exp(-logits))).astype(int)
    return Responses.from_arrays(answers, items=list(items.index), item_metadata=items), ability, slopes


def recover(options: argparse.Namespace) -> None:
    """Fit simulated suites and tell how near the truth they come."""
    spec, rows = ModelSpec(traits="trait", general=options.general), []
    for seed in range(options.suites):
        responses, ability, _ = simulated(options, seed)
        began = time.perf_counter()
        posterior = fit(responses, spec, options, seed)
        draws = np.asarray(posterior.parameters.ability)
        lower, upper = np.quantile(draws, (0.05, 0.95), axis=0)
        ranks = [spearmanr(draws[..., k].mean(axis=0), ability[:, k])[0] for k in range(ability.shape[1])]
        row = {
            "suite": seed,
            "seconds": time.perf_counter() - began,
            "held": 100 * float(((lower < ability) & (ability < upper)).mean()),
            "held, general": 100 * float(((lower < ability) & (ability < upper))[:, 0].mean()),
            "least rank correlation": min(ranks),
            "rank correlation, first": ranks[0],
            "failed checks": len(check_posterior(posterior).failures),
        }
        if not options.general:
            found = trait_correlations(posterior)
            inside = (found["lower"] < options.correlation) & (options.correlation < found["upper"])
            row["correlations held"] = f"{inside.sum()} of {len(found)}"
        rows.append(row)
        print(rows[-1], flush=True)
    table = pd.DataFrame(rows)
    print(table.round(3).to_string())
    held = table["held"].to_numpy(dtype=float)
    error = held.std(ddof=1) / np.sqrt(len(held))
    print(f"90 % intervals of abilities hold {held.mean():.1f} ± {error:.1f} %")


def explore(options: argparse.Namespace) -> None:
    """Fit suites of simple structure without saying which item loads on what, and compare loads with the truth."""
    rows = []
    for seed in range(options.suites):
        responses, _, slopes = simulated(options, seed)
        began = time.perf_counter()
        posterior = fit(responses, ModelSpec(sparse_priors(), traits=options.traits), options, seed)
        loads = posterior.draws["discrimination"].mean("draw").to_numpy()
        cosines = np.array([matched_cosines(one, slopes) for one in loads])
        among = np.array([matched_cosines(one, loads[0]) for one in loads])
        row = {
            "suite": seed,
            "seconds": time.perf_counter() - began,
            "least cosine with the truth": cosines.min(),
            "mean cosine": cosines.mean(),
            "least cosine of chains": among.min(),
            "shares": " ".join(f"{share:.2f}" for share in trait_strengths(posterior)["share"]),
            "failed checks": ", ".join(check.name for check in check_posterior(posterior).failures) or "-",
        }
        rows.append(row)
        print(row, flush=True)
    print(pd.DataFrame(rows).round(3).to_string())


def fit(responses: Responses, spec: ModelSpec, options: argparse.Namespace, seed: int) -> Posterior:
    """Fit by the engine that was asked for."""
    if options.engine == "laplace":
        return fit_laplace(responses, spec=spec, seed=seed)
    if options.engine == "svi":
        return fit_svi(responses, spec=spec, seed=seed)
    sampler = Sampler(num_warmup=options.warmup, num_draws=options.draws)
    return fit_nuts(responses, spec=spec, sampler=sampler, seed=seed)


def real(options: argparse.Namespace) -> None:
    """Score one ability, several, and a general one with several on held-out cells of real suites."""
    for name in options.suites:
        column = SUITES[name]
        whole = read_responses(Path(os.environ["BAYES_IRT_DATA"]) / f"{name}.parquet")
        responses = part_of(whole, options.llms, options.items, 0)
        print(f"## {name}, {responses}, traits by {column}\n", flush=True)
        train, held_out = split_cells(responses, share=0.2, seed=0)
        models = {
            "one ability": ModelSpec(),
            "traits": ModelSpec(traits=column),
            "general and traits": ModelSpec(traits=column, general=True),
        }
        scores, rows = {}, []
        for label, spec in models.items():
            began = time.perf_counter()
            posterior = fit(train, spec, options, 0)
            scores[label] = held_out_score(posterior, held_out)
            failures = [check.name for check in check_posterior(posterior).failures]
            rows.append(
                (
                    label,
                    f"{time.perf_counter() - began:.0f}",
                    ", ".join(failures) or "all passed",
                    told(posterior),
                )
            )
        found = compare_scores(scores)
        table = found.table.assign(model=found.table.index)
        print(table.to_string(index=False))
        print(found.sentence)
        print(
            markdown_table(pd.DataFrame(rows, columns=["model", "seconds", "checks", "traits"])), flush=True
        )


def cost(options: argparse.Namespace) -> None:
    """Time fits of one ability and of several to the same data, compiled before, by turns."""
    responses, _, slopes = simulated(options, 0)
    loads = slopes > 0
    times: dict[tuple[str, str], list[float]] = {}
    for _ in range(options.repeats + 1):
        for name, spec, allowed in (
            ("one ability", ModelSpec(), None),
            (f"{options.traits} traits", ModelSpec(traits="trait"), loads),
        ):
            began = time.perf_counter()
            estimate = fit_cbmm(responses, penalty=Priors(), loads=allowed)
            between = time.perf_counter()
            fit_laplace(responses, spec=spec, estimate=estimate, seed=0)
            ended = time.perf_counter()
            times.setdefault(("cbmm", name), []).append(between - began)
            times.setdefault(("laplace", name), []).append(ended - between)
            print({"model": name, "cbmm": between - began, "laplace": ended - between}, flush=True)
    for engine in ("cbmm", "laplace"):
        one, several = (min(seconds[1:]) for (who, _), seconds in times.items() if who == engine)
        print(f"{engine}: {one:.2f} s and {several:.2f} s, {several / one:.1f} times as long")


def told(posterior: Posterior) -> str:
    """Say how traits correlate, or how much the general ability makes up."""
    if not posterior.traits:
        return "-"
    if posterior.spec.general:
        omega = variance_shares(posterior).loc["omega_hierarchical"]
        return f"omega hierarchical {omega['share']:.2f} ({omega['lower']:.2f} to {omega['upper']:.2f})"
    found = trait_correlations(posterior)["correlation"]
    return f"correlations {found.min():.2f} to {found.max():.2f}"


def main() -> None:
    """Run the command that was asked for."""
    parser = argparse.ArgumentParser(description=str(__doc__).split("\n", 1)[0])
    commands = parser.add_subparsers(required=True)
    one = commands.add_parser("recover", help="truth held by intervals, on simulated suites")
    one.add_argument("--suites", type=int, default=10)
    one.add_argument("--llms", type=int, default=150)
    one.add_argument("--traits", type=int, default=4)
    one.add_argument("--items", type=int, default=60, help="items per trait")
    one.add_argument("--correlation", type=float, default=0.6)
    one.add_argument("--general", action="store_true", help="a bifactor model")
    one.set_defaults(run=recover)
    three = commands.add_parser("explore", help="loads compared with the truth, on simulated suites")
    three.add_argument("--suites", type=int, default=5)
    three.add_argument("--llms", type=int, default=150)
    three.add_argument("--traits", type=int, default=3)
    three.add_argument("--items", type=int, default=60, help="items per trait")
    three.add_argument("--correlation", type=float, default=0.0)
    three.set_defaults(run=explore, general=False)
    two = commands.add_parser("real", help="held-out scores on real suites")
    two.add_argument("--suites", nargs="+", choices=list(SUITES), default=["math_reasoning", "chembench"])
    two.add_argument("--llms", type=int, help="number of LLMs, drawn at random")
    two.add_argument("--items", type=int, help="number of items, drawn at random")
    two.set_defaults(run=real)
    four = commands.add_parser("cost", help="time of several traits against one")
    four.add_argument("--llms", type=int, default=2211)
    four.add_argument("--traits", type=int, default=4)
    four.add_argument("--items", type=int, default=331, help="items per trait")
    four.add_argument("--correlation", type=float, default=0.6)
    four.add_argument("--repeats", type=int, default=2)
    four.set_defaults(run=cost, general=False)
    for command in (one, two, three):
        command.add_argument("--engine", choices=["laplace", "svi", "nuts"], default="nuts")
        command.add_argument("--warmup", type=int, default=300, help="of each of four chains")
        command.add_argument("--draws", type=int, default=500, help="of each of four chains")
    options = parser.parse_args()
    warnings.simplefilter("ignore", UserWarning)  # the tables say what comes of it
    options.run(options)


if __name__ == "__main__":
    main()
