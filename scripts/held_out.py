"""Predict held-out cells of real suites: a posterior against the cBMM estimate and two baselines.

``uv run python scripts/held_out.py --method nuts`` reads five suites from the folder in ``BAYES_IRT_DATA``, holds a
fifth of the cells out of each, and prints, per suite, the mean log score of a cell, differences from the best with
standard errors paired by LLM, and the result in words, ties being called ties. ``--llms`` and ``--items`` take a random
part of each suite, for a trial.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Callable
from importlib import import_module
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parent))
from devices import use_all_cores

use_all_cores()

from bayes_irt import (  # noqa: E402
    Posterior,
    Priors,
    Responses,
    Sampler,
    ScoreComparison,
    baseline_scores,
    compare_scores,
    fit_cbmm,
    fit_nuts,
    held_out_score,
    read_responses,
    split_cells,
)


def whole(name: str) -> Callable[[Path], Responses]:
    """Return a reader of a whole file."""
    return lambda folder: read_responses(folder / f"{name}.parquet")


def plain_chembench(folder: Path) -> Responses:
    """Return ChemBench without the row of random guesses."""
    return read_responses(folder / "chembench.parquet").drop(llms=["random_baseline"], drop_empty=True)


def gsm8k(folder: Path, num_llms: int = 800) -> Responses:
    """Return form A of GSM8K for a random part of the LLMs that took it."""
    everything = read_responses(folder / "metabench.parquet")
    items = everything.item_metadata.query("benchmark == 'gsm8k' and form == 'A'").index
    llms = everything.llm_metadata.dropna(subset=["gsm8k_A_theta"]).sample(num_llms, random_state=0).index
    return everything.subset(llms=list(llms), items=list(items))


SUITES: dict[str, Callable[[Path], Responses]] = {
    "math500_paper": whole("math500_paper"),
    "swebench_verified": whole("swebench_verified"),
    "livecodebench": whole("livecodebench"),
    "chembench": plain_chembench,
    "gsm8k": gsm8k,
}


def part_of(responses: Responses, num_llms: int | None, num_items: int | None, seed: int) -> Responses:
    """Return a random part of a suite, each label with an answer."""
    rng = np.random.default_rng(seed)
    llms, items = (
        labels if number is None else list(rng.permutation(np.array(labels, dtype=object))[:number])
        for labels, number in ((responses.llms, num_llms), (responses.items, num_items))
    )
    return responses.subset(llms=llms, items=items, drop_empty=True)


def fit(train: Responses, options: argparse.Namespace) -> Posterior:
    """Fit by the engine that was asked for."""
    if options.method == "nuts":
        sampler = Sampler(num_warmup=options.warmup, num_draws=options.draws)
        return fit_nuts(train, sampler=sampler, seed=options.seed)
    engine = getattr(import_module(f"bayes_irt.inference.{options.method}"), f"fit_{options.method}")
    posterior: Posterior = engine(train, num_draws=options.draws, seed=options.seed)
    return posterior


def compared(responses: Responses, options: argparse.Namespace) -> ScoreComparison:
    """Hold cells out, fit, and compare."""
    train, held_out = split_cells(responses, share=options.share, seed=options.seed)
    scores = {
        options.method: held_out_score(fit(train, options), held_out),
        "cbmm": held_out_score(fit_cbmm(train, penalty=Priors()), held_out),
        **baseline_scores(train, held_out),
    }
    return compare_scores(scores)


def report(name: str, responses: Responses, options: argparse.Namespace) -> None:
    """Print one suite's table and sentence."""
    began = time.perf_counter()
    found = compared(responses, options)
    print(f"{name}, {responses.num_llms:,} x {responses.num_items:,}, {time.perf_counter() - began:.0f} s")
    print("\n| predictor | log score per cell | difference from the best | tied |\n|---|--:|--:|---|")
    for row in found.table.itertuples():
        tied = "yes" if row.tied else "no"
        print(f"| {row.Index} | {row.mean:.4f} | {row.difference:.4f} ± {row.se:.4f} | {tied} |")
    print(f"\n{found.sentence}\n", flush=True)


def main() -> None:
    """Print a table for each suite."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--method", choices=["nuts", "laplace", "svi"], default="nuts")
    parser.add_argument("--suites", nargs="+", choices=list(SUITES), default=list(SUITES))
    parser.add_argument("--share", type=float, default=0.2)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--draws", type=int, default=1000, help="draws, per chain where there are chains")
    parser.add_argument("--warmup", type=int, default=500, help="warm-up of NUTS, per chain")
    parser.add_argument("--llms", type=int, help="number of LLMs, drawn at random")
    parser.add_argument("--items", type=int, help="number of items, drawn at random")
    options = parser.parse_args()
    folder = Path(os.environ["BAYES_IRT_DATA"])
    for name in options.suites:
        responses = part_of(SUITES[name](folder), options.llms, options.items, options.seed)
        report(name, responses, options)


if __name__ == "__main__":
    main()
