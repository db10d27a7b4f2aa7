"""Measure how many true parameters the posterior's intervals cover, over simulated suites.

Run it as ``uv run python scripts/coverage.py --llms 60 --items 200 --suites 20``. Suites of one shape share one
compiled program. The error given is over suites: the abilities of one suite depend on each other.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parent))
from devices import use_all_cores

use_all_cores()

from bayes_irt import Sampler, SuiteDesign, fit_nuts, simulate_suite  # noqa: E402
from bayes_irt.posterior import Posterior  # noqa: E402
from bayes_irt.simulate import SimulatedSuite  # noqa: E402


def covered(suite: SimulatedSuite, posterior: Posterior, prob: float) -> dict[str, float]:
    """Return the share of true values inside the equal-tailed intervals, by parameter."""
    truth = {
        "ability": suite.truth.ability[:, 0],
        "discrimination": suite.truth.discrimination[:, 0],
        "easiness": suite.truth.easiness,
    }
    shares = {}
    for name, values in truth.items():
        tails = ((1 - prob) / 2, (1 + prob) / 2)
        low, high = np.quantile(posterior.draws[name].to_numpy(), tails, axis=(0, 1))
        shares[name] = float(np.mean((low <= values) & (values <= high)))
    return shares


def main() -> None:
    """Simulate, fit, and print the coverage."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--llms", type=int, default=60)
    parser.add_argument("--items", type=int, default=200)
    parser.add_argument("--suites", type=int, default=20)
    parser.add_argument("--first-seed", type=int, default=100)
    parser.add_argument("--prob", type=float, default=0.9)
    parser.add_argument("--discrimination", choices=["log-normal", "half-normal"], default="log-normal")
    parser.add_argument("--warmup", type=int, default=300)
    parser.add_argument("--draws", type=int, default=500)
    options = parser.parse_args()
    scale = {"log-normal": 0.5, "half-normal": 1.25}[options.discrimination]
    design = SuiteDesign(discrimination=options.discrimination, discrimination_scale=scale)
    sampler = Sampler(num_warmup=options.warmup, num_draws=options.draws)
    rows = []
    for seed in range(options.first_seed, options.first_seed + options.suites):
        started = time.perf_counter()
        suite = simulate_suite(options.llms, options.items, design=design, seed=seed)
        posterior = fit_nuts(suite.responses, sampler=sampler, seed=seed)
        shares = covered(suite, posterior, options.prob)
        rows.append(list(shares.values()))
        text = ", ".join(f"{name} {share:.3f}" for name, share in shares.items())
        print(f"seed {seed}: {text} ({time.perf_counter() - started:.1f} s)", flush=True)
    table = np.array(rows)
    error = table.std(axis=0, ddof=1) / np.sqrt(len(table))
    print(f"{options.prob:.0%} intervals over {options.suites} suites of {options.llms} x {options.items}:")
    for name, mean, se in zip(shares, table.mean(axis=0), error, strict=True):
        print(f"  {name:15s} {mean:.3f} +- {se:.3f}")


if __name__ == "__main__":
    main()
