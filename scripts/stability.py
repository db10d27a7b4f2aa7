"""Fit cBMM where other programs fail: a grid of sizes, scales, missingness and degenerate data.

``uv run python scripts/stability.py`` fits every case with the default penalty and without one, prints the metrics of
the paper where the truth is known, and ends with the number of runs that were not finite, not monotone or not honest
about their status; with any, it exits with 1. ``--most-cells 1e5`` leaves out the large cases.
"""

from __future__ import annotations

import argparse
import sys
import time
import warnings
from collections.abc import Iterator
from dataclasses import dataclass

import jax
import numpy as np
from scipy.special import expit
from scipy.stats import spearmanr

from bayes_irt import (
    Parameters,
    PointEstimate,
    Priors,
    Responses,
    Solver,
    Status,
    SuiteDesign,
    fit_cbmm,
    simulate_suite,
)
from bayes_irt.errors import ConvergenceWarning
from bayes_irt.identify import canonicalize

SIZES = ((5, 5), (5, 400), (400, 5), (20, 50), (140, 500), (2211, 541), (541, 2211), (2211, 12032))
HELD_OUT_SHARE = 0.1
LARGEST_RISE = 2e-7
METRICS = "rmse and rank correlation of ability, discrimination, easiness; error of logits, Hellinger, held-out error"


@dataclass(frozen=True)
class Case:
    """Hold one data set; the truth is None where there is none."""

    name: str
    responses: Responses
    sigma: float = 1.0
    truth: Parameters | None = None
    held_out: tuple[np.ndarray, np.ndarray] | None = None


def simulated(name: str, size: tuple[int, int], seed: int, design: SuiteDesign, sigma: float = 1.0) -> Case:
    """Return a case with known truth, a tenth of the observed cells held out of the fit."""
    suite = simulate_suite(*size, design=design, seed=seed)
    rng = np.random.default_rng([seed, 1])
    attempts, successes = suite.responses.attempts.copy(), suite.responses.successes.copy()
    hide = (rng.random(attempts.shape) < HELD_OUT_SHARE) & (attempts > 0)
    left = attempts * ~hide
    hide &= (left.sum(axis=1, keepdims=True) > 0) & (left.sum(axis=0, keepdims=True) > 0)
    outcomes = successes[hide]
    attempts[hide] = successes[hide] = 0
    return Case(
        f"{size[0]} x {size[1]}, {name}",
        Responses.from_arrays(successes, attempts),
        sigma,
        _scaled(suite.truth, sigma),
        (np.argwhere(hide), outcomes),
    )


def cases(least_cells: float, most_cells: float) -> Iterator[Case]:
    """Draw the grid."""
    for size in SIZES:
        if not least_cells <= size[0] * size[1] <= most_cells:
            continue
        yield simulated("complete", size, 1, SuiteDesign())
        if size[0] * size[1] > 2e6:
            yield simulated("MNAR 50 %", size, 2, SuiteDesign(missing="MNAR", missing_share=0.5))
            continue
        for sigma in (0.25, 4.0):
            yield simulated(f"sigma {sigma}", size, 3, SuiteDesign(), sigma)
        for missing in ("MCAR", "MAR", "MNAR"):
            for share in (0.2, 0.5, 0.8):
                design = SuiteDesign(missing=missing, missing_share=share)
                yield simulated(f"{missing} {share:.0%}", size, 4, design)
        for share in (0.3, 0.6, 0.9):
            yield simulated(f"{share:.0%} of slopes 0", size, 5, SuiteDesign(zero_share=share))
        yield simulated("abilities t1", size, 6, SuiteDesign(heavy_tails=True))
        yield simulated("20 attempts", size, 7, SuiteDesign(attempts=20))
        yield from degenerate(size)


def degenerate(size: tuple[int, int]) -> Iterator[Case]:
    """Draw data that carry no or contradictory information."""
    base = np.asarray(simulate_suite(*size, seed=8).responses.successes).astype(int)
    name = f"{size[0]} x {size[1]}"
    half = max(1, size[1] // 2)
    yield Case(f"{name}, duplicated items", Responses.from_arrays(np.hstack([base, base[:, :half]])))
    yield Case(f"{name}, identical rows", Responses.from_arrays(np.tile(base[:1], (size[0], 1))))
    yield Case(f"{name}, collinear columns", Responses.from_arrays(np.tile(base[:, :1], (1, size[1]))))
    opposed = np.hstack([base, 1 - base])
    yield Case(f"{name}, each item and its opposite", Responses.from_arrays(opposed))
    constant = base.copy()
    constant[:, : half // 2 + 1], constant[0], constant[-1] = 1, 1, 0
    yield Case(f"{name}, constant rows and columns", Responses.from_arrays(constant))
    for value in (0, 1):
        yield Case(f"{name}, all {value}", Responses.from_arrays(np.full(size, value)))
    rows = np.arange(max(size))
    one = np.zeros((max(size), size[1]), dtype=int)
    one[rows, rows % size[1]] = 1
    outcomes = np.random.default_rng(9).integers(0, 2, one.shape) * one
    yield Case(f"{name}, one cell observed per row", Responses.from_arrays(outcomes, one))


def errors(case: Case, estimate: PointEstimate) -> tuple[float, ...]:
    """Return the paper's metrics, in the order of `METRICS`: canonical gauge, the scale where sigma is 1."""
    assert case.truth is not None
    assert case.held_out is not None
    truth, found = (_scaled(canonicalize(p), 1 / case.sigma) for p in (case.truth, estimate.parameters))
    true_logits, logits = (p.ability @ p.discrimination.T + p.easiness for p in (truth, found))
    chance, wanted = expit(logits), expit(true_logits)
    affinity = np.sqrt(chance * wanted) + np.sqrt((1 - chance) * (1 - wanted))
    places, outcomes = case.held_out
    attempts = max(1, int(case.responses.attempts.max()))
    guessed = chance[tuple(places.T)] > 0.5
    pairs = [
        (np.ravel(getattr(found, n)), np.ravel(getattr(truth, n)))
        for n in ("ability", "discrimination", "easiness")
    ]
    compared = [value for pair in pairs for value in (_rmse(*pair), _rank(*pair))]
    return (
        *compared,
        float(np.linalg.norm(logits - true_logits) / np.linalg.norm(true_logits)),
        float(np.sqrt(np.maximum(1 - affinity, 0)).mean()),
        float(np.mean(guessed != (outcomes > attempts / 2))) if len(places) else float("nan"),
    )


def _scaled(parameters: Parameters, factor: float) -> Parameters:
    return Parameters(parameters.ability, parameters.discrimination * factor, parameters.easiness * factor)


def _rmse(one: np.ndarray, other: np.ndarray) -> float:
    return float(np.sqrt(np.mean((one - other) ** 2)))


def _rank(one: np.ndarray, other: np.ndarray) -> float:
    if min(np.ptp(one), np.ptp(other)) == 0:
        return float("nan")
    return float(spearmanr(one, other).statistic)


def faults(estimate: PointEstimate, *, penalised: bool) -> list[str]:
    """Say what is wrong with a run: numbers, course of the loss, or status."""
    found = []
    if not all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(estimate.parameters)):
        found.append("not finite")
    trace = estimate.loss_trace
    if (np.diff(trace) > LARGEST_RISE * np.abs(trace[:-1])).any():
        found.append("loss rises")
    if estimate.status is Status.CONVERGED and max(estimate.change, estimate.kkt_residual) > 1e-4:
        found.append("says converged but is not")
    separated = bool(estimate.separated_items or estimate.separated_llms)
    if estimate.status is Status.CONVERGED and separated and not penalised:
        found.append("says converged although items or LLMs are separated")
    if penalised and estimate.status is Status.CYCLE_LIMIT:
        found.append("cycle limit with a penalty")
    return found


def main() -> int:
    """Run the grid; return 1 after any fault."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--least-cells", type=float, default=0, help="leave out smaller suites")
    parser.add_argument("--most-cells", type=float, default=1e12, help="leave out larger suites")
    options = parser.parse_args()
    warnings.simplefilter("ignore", ConvergenceWarning)
    total, wrong = 0, 0
    print(f"case; penalty; status, cycles, seconds; {METRICS}")
    for case in cases(options.least_cells, options.most_cells):
        for penalty in (Priors(), None):
            began = time.perf_counter()
            estimate = fit_cbmm(
                case.responses, penalty=penalty, sigma=case.sigma, solver=Solver(max_cycles=500)
            )
            found = faults(estimate, penalised=penalty is not None)
            total, wrong = total + 1, wrong + bool(found)
            row = [
                case.name,
                "penalised" if penalty else "free",
                f"{estimate.status}, {estimate.num_cycles}, {time.perf_counter() - began:.2f}",
            ]
            if case.truth is not None:
                row.append(" ".join(f"{value:.3f}" for value in errors(case, estimate)))
            print("; ".join(row + [f"FAULT: {fault}" for fault in found]), flush=True)
    print(f"{total} runs, {wrong} with a fault")
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main())
