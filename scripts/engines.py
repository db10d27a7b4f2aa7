"""Compare the engines with each other, on real suites and on the largest simulated ones.

``uv run python scripts/engines.py ladder`` holds Laplace and SVI against NUTS on MATH-500; ``real`` fits real suites by
NUTS and checks them; ``large`` times all engines on 2,211 simulated LLMs, against passes over the data and matrix
products. Real suites need ``BAYES_IRT_DATA``.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
from devices import use_all_cores

if "large" not in sys.argv:  # one device uses all cores for one pass
    use_all_cores()

import jax
import jax.numpy as jnp
import numpy as np
from held_out import SUITES

from bayes_irt import (
    Optimizer,
    Posterior,
    Responses,
    Sampler,
    SimulatedSuite,
    check_posterior,
    fit_cbmm,
    fit_laplace,
    fit_nuts,
    fit_svi,
    read_responses,
    simulate_suite,
)
from bayes_irt.compilation import compile_clock
from bayes_irt.inference.density import find_target, potential
from bayes_irt.inference.engine import start_penalty
from bayes_irt.inference.start import White
from bayes_irt.likelihood import cell_sums, tile_cells
from bayes_irt.model_spec import ModelSpec

import arviz  # isort: skip - NumPyro must be imported first

SITES = ("ability", "discrimination", "easiness")


def timed(fit: Callable[[], Posterior]) -> tuple[Posterior, float, float]:
    """Return a fit, the seconds it took, and how many of them compiling."""
    started = time.perf_counter()
    with compile_clock() as clock:
        posterior = fit()
    return posterior, time.perf_counter() - started, clock.seconds


def draws_of(posterior: Posterior, site: str) -> np.ndarray:
    """Return all draws of a site, one row per draw."""
    return np.asarray(posterior.draws[site].stack(sample=("chain", "draw")).to_numpy().T)


def smallest_ess(posterior: Posterior) -> float:
    """Return the smallest bulk effective sample size of an ability."""
    return float(np.min(np.asarray(arviz.ess(posterior.ability))))


def ladder(options: argparse.Namespace) -> None:
    """Hold every engine against a long run of NUTS."""
    responses = SUITES[options.suite](data_folder())
    sampler = Sampler(num_draws=options.draws)
    reference, seconds, compiling = timed(lambda: fit_nuts(responses, sampler=sampler, seed=options.seed))
    failures = [check.name for check in check_posterior(reference).failures]
    print(
        f"{options.suite}: {responses}\nNUTS: {seconds:.1f} s, {compiling:.1f} of it compiling; failed: {failures}"
    )
    engines: dict[str, Callable[[], Posterior]] = {
        "laplace": lambda: fit_laplace(responses, num_draws=options.draws),
        "svi, structured": lambda: fit_svi(responses, num_draws=options.draws),
        "svi, low-rank": lambda: fit_svi(
            responses, optimizer=Optimizer(guide="low-rank"), num_draws=options.draws
        ),
        "svi, mean-field": lambda: fit_svi(
            responses, optimizer=Optimizer(guide="mean-field"), num_draws=options.draws
        ),
    }
    heads = (
        "engine",
        "seconds",
        "compiling",
        "parameters",
        "sd ratio",
        "range",
        "mean off by, median",
        "most",
    )
    print(f"| {' | '.join(heads)} |")
    print("|---|--:|--:|---|--:|--:|--:|--:|")
    for name, fit in engines.items():
        posterior, seconds, compiling = timed(fit)
        for site in SITES:
            ours, theirs = draws_of(posterior, site), draws_of(reference, site)
            ratio = ours.std(axis=0) / theirs.std(axis=0)
            apart = np.abs(ours.mean(axis=0) - theirs.mean(axis=0)) / theirs.std(axis=0)
            figures = f"{np.median(ratio):.3f} | {ratio.min():.2f} to {ratio.max():.2f}"
            figures += f" | {np.median(apart):.3f} | {apart.max():.2f} |"
            print(f"| {name} | {seconds:.1f} | {compiling:.1f} | {site} | {figures}", flush=True)


def real(options: argparse.Namespace) -> None:
    """Fit real suites by NUTS and check them."""
    suites = {**SUITES, "mmlu_pro": lambda folder: read_responses(folder / "mmlu_pro.parquet")}
    print("| suite | LLMs x items | s | compiling | smallest ability ESS | per second | steps | checks |")
    print("|---|---|--:|--:|--:|--:|--:|---|")
    for name in options.suites:
        responses = suites[name](data_folder())
        sampler = Sampler(num_warmup=options.warmup, num_draws=options.draws)
        posterior, seconds, compiling = timed(lambda r=responses, s=sampler: fit_nuts(r, sampler=s))  # type: ignore[misc]
        report = check_posterior(posterior)
        said = "passed" if report.passed else "; ".join(str(check) for check in report.failures)
        ess = smallest_ess(posterior)
        steps = float(posterior.tree["sample_stats"]["n_steps"].mean())
        size = f"{responses.num_llms} x {responses.num_items}"
        print(
            f"| {name} | {size} | {seconds:.0f} | {compiling:.0f} | {ess:.0f} | {ess / seconds:.1f} | {steps:.0f} "
            f"| {said} |",
            flush=True,
        )


def large(options: argparse.Namespace) -> None:
    """Time the engines on 2,211 simulated LLMs."""
    suite = simulate_suite(2211, options.items, seed=1)
    responses, spec = suite.responses, ModelSpec()
    estimate = fit_cbmm(responses, penalty=start_penalty(spec))
    unit = pass_seconds(responses), product_seconds(2211, options.items)
    print(
        f"2,211 x {options.items:,}: one pass {unit[0]:.3f} s, one N^2 J product in float32 {unit[1]:.2f} s"
    )
    if "laplace" in options.engines:
        fit_laplace(responses, spec=spec, estimate=estimate)  # compiles
        posterior, seconds, _ = timed(lambda: fit_laplace(responses, spec=spec, estimate=estimate))
        limit = 40 * unit[0] + 2 * unit[1]
        print(
            f"Laplace: {seconds:.2f} s; 40 passes and two products are {limit:.2f} s; {held(posterior, suite)}"
        )
    if "svi" in options.engines:
        posterior, seconds, compiling = timed(lambda: fit_svi(responses, spec=spec, estimate=estimate))
        checks = [
            str(check)
            for check in check_posterior(posterior)
            if check.name in ("ELBO", "agreement with Laplace")
        ]
        print(
            f"SVI: {seconds:.0f} s ({compiling:.0f} compiling); {held(posterior, suite)}; {checks}",
            flush=True,
        )
    if "trajectory" in options.engines:
        trajectory(responses, spec)
    if "nuts" in options.engines:
        sampler = Sampler(num_chains=2, num_warmup=options.warmup, num_draws=options.draws)
        posterior, seconds, compiling = timed(lambda: fit_nuts(responses, estimate=estimate, sampler=sampler))
        print(f"NUTS: {seconds:.0f} s ({compiling:.0f} compiling); {held(posterior, suite)}")
        print(check_posterior(posterior), flush=True)


def trajectory(responses: Responses, spec: ModelSpec) -> None:
    """Time one trajectory of 15 steps and project a run of four chains."""
    estimate = fit_cbmm(responses, penalty=start_penalty(spec)).parameters
    with jax.enable_x64(True):
        cells = jax.device_put(tile_cells(responses.successes, responses.attempts))
        target = find_target(spec, jax.tree.map(jnp.asarray, estimate), cells)
        slope = jax.jit(jax.grad(lambda white, target: potential(white, target, spec)))
        start = target.start
        white = jax.tree.map(jnp.zeros_like, White(jnp.asarray(start.ability), start.items, start.hyper))
        jax.block_until_ready(slope(white, target))
        began = time.perf_counter()
        for _ in range(15):
            jax.block_until_ready(slope(white, target))
        seconds = time.perf_counter() - began
    print(
        f"NUTS: 15 gradients, one trajectory, {seconds:.2f} s; 4 x (300 + 500) draws {3200 * seconds / 3600:.1f} h"
    )


def pass_seconds(responses: Responses) -> float:
    """Return the seconds of one pass with score and curvature."""
    with jax.enable_x64(True):
        cells = jax.device_put(tile_cells(responses.successes, responses.attempts))
        parameters = jax.tree.map(
            jnp.asarray, fit_cbmm(responses, penalty=start_penalty(ModelSpec())).parameters
        )
        run = jax.jit(lambda p, c: cell_sums(p, c, curvature="fisher"))
        jax.block_until_ready(run(parameters, cells))
        began = time.perf_counter()
        for _ in range(10):
            jax.block_until_ready(run(parameters, cells))
    return (time.perf_counter() - began) / 10


def product_seconds(num_llms: int, num_items: int) -> float:
    """Return the seconds of N^2 J multiply-adds in float32."""
    left = np.ones((num_llms, num_items), dtype=np.float32)
    right = left.T.copy()
    began = time.perf_counter()
    for _ in range(3):
        left @ right
    return (time.perf_counter() - began) / 3


def held(posterior: Posterior, suite: SimulatedSuite) -> str:
    """Return how many true values the 95 % intervals hold."""
    truth = (suite.truth.ability[:, 0], suite.truth.discrimination[:, 0], suite.truth.easiness)
    shares = []
    for site, true in zip(SITES, truth, strict=True):
        low, high = np.quantile(draws_of(posterior, site), [0.025, 0.975], axis=0)
        shares.append(f"{site} {np.mean((low <= true) & (true <= high)):.3f}")
    return "95 % intervals hold " + ", ".join(shares)


def data_folder() -> Path:
    """Return the folder of the real suites."""
    if "BAYES_IRT_DATA" not in os.environ:
        raise SystemExit("Set BAYES_IRT_DATA to the folder of the real suites.")
    return Path(os.environ["BAYES_IRT_DATA"])


def main() -> None:
    """Parse the command and run it."""
    parser = argparse.ArgumentParser(description=__doc__)
    commands = parser.add_subparsers(required=True)
    one = commands.add_parser("ladder", help="Laplace and SVI against NUTS")
    one.add_argument("--suite", default="math500_paper", choices=list(SUITES))
    one.add_argument("--draws", type=int, default=4000)
    one.add_argument("--seed", type=int, default=0)
    one.set_defaults(run=ladder)
    two = commands.add_parser("real", help="NUTS on real suites")
    two.add_argument("--suites", nargs="*", default=[*SUITES, "mmlu_pro"])
    two.add_argument("--warmup", type=int, default=500)
    two.add_argument("--draws", type=int, default=1000)
    two.set_defaults(run=real)
    three = commands.add_parser("large", help="2,211 simulated LLMs")
    three.add_argument("--items", type=int, default=12032)
    three.add_argument("--engines", nargs="*", default=["laplace", "svi", "trajectory"])
    three.add_argument("--warmup", type=int, default=300)
    three.add_argument("--draws", type=int, default=500)
    three.set_defaults(run=large)
    options = parser.parse_args()
    warnings.simplefilter("ignore", UserWarning)  # the tables say what comes of it
    options.run(options)


if __name__ == "__main__":
    main()
