"""Measure speed, always as ratios between programs run side by side in one process.

``uv run python scripts/benchmark.py nuts`` compares the effective draws per second of `fit_nuts` with those of the
textbook NumPyro program: abilities normal, Bernoulli likelihood, default start and settings, the same item priors.
MATH-500 is read from the folder in ``BAYES_IRT_DATA``; without it, a simulated suite of the same size is used.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
from devices import use_all_cores

use_all_cores()

import jax  # noqa: E402
import jax.numpy as jnp  # noqa: E402
import numpy as np  # noqa: E402
import numpyro  # noqa: E402
import numpyro.distributions as dist  # noqa: E402
from numpyro.infer import MCMC, NUTS  # noqa: E402

from bayes_irt import Responses, Sampler, fit_nuts, read_responses, simulate_suite  # noqa: E402
from bayes_irt.models import ModelSpec, hyperpriors  # noqa: E402
from bayes_irt.priors import LearnedLocation  # noqa: E402

import arviz  # noqa: E402  isort: skip - NumPyro must be imported first


@dataclass(frozen=True)
class Speed:
    """Hold what one program achieved."""

    name: str
    ability: np.ndarray
    seconds: float

    def row(self) -> str:
        """Return the smallest effective sample size and its rate, as reported and gauge-fixed."""
        reported = smallest_ess(self.ability)
        fixed = smallest_ess(gauge_fixed(self.ability))
        rates = f"{reported / self.seconds:9.2f} {fixed / self.seconds:9.2f}"
        return f"{self.name:22s} {self.seconds:8.1f} {reported:10.0f} {fixed:10.0f} {rates}"


def smallest_ess(ability: np.ndarray) -> float:
    """Return the smallest bulk effective sample size over LLMs."""
    return float(np.min(np.asarray(arviz.ess(ability))))


def gauge_fixed(ability: np.ndarray) -> np.ndarray:
    """Return abilities with mean 0 and sd 1 in every draw."""
    centred = ability - ability.mean(axis=-1, keepdims=True)
    return np.asarray(centred / centred.std(axis=-1, keepdims=True))


def textbook_model(outcomes: jax.Array) -> None:
    """Declare the 2PL as textbooks write it, with the item priors of `ModelSpec`."""
    num_llms, num_items = outcomes.shape
    hyper = {}
    for name, prior in hyperpriors(ModelSpec()).items():
        if isinstance(prior, LearnedLocation):
            hyper[name] = numpyro.sample(name, dist.Normal(prior.mean, prior.sd))
        else:
            hyper[name] = numpyro.sample(name, dist.LogNormal(jnp.log(prior.median), prior.log_sd))
    with numpyro.plate("item", num_items):
        slope = numpyro.sample("discrimination", dist.HalfNormal(hyper["discrimination_scale"]))
        easiness = numpyro.sample(
            "easiness", dist.Normal(hyper["easiness_location"], hyper["easiness_scale"])
        )
    with numpyro.plate("llm", num_llms):
        ability = numpyro.sample("ability", dist.Normal(0.0, 1.0))
    logits = ability[:, None] * slope + easiness
    numpyro.sample("outcome", dist.Bernoulli(logits=logits).to_event(2), obs=outcomes)


def run_textbook(responses: Responses, sampler: Sampler, seed: int) -> Speed:
    """Run the textbook program as its users would."""
    started = time.perf_counter()
    mcmc = MCMC(
        NUTS(textbook_model),
        num_warmup=sampler.num_warmup,
        num_samples=sampler.num_draws,
        num_chains=sampler.num_chains,
        chain_method="parallel" if len(jax.devices()) >= sampler.num_chains else "vectorized",
        progress_bar=False,
    )
    mcmc.run(jax.random.key(seed), jnp.asarray(responses.successes, dtype=jnp.float32))
    ability = np.asarray(mcmc.get_samples(group_by_chain=True)["ability"])
    return Speed("textbook NumPyro", ability, time.perf_counter() - started)


def run_ours(responses: Responses, sampler: Sampler, seed: int) -> Speed:
    """Run `fit_nuts`, the point estimate that starts it included."""
    started = time.perf_counter()
    posterior = fit_nuts(responses, sampler=sampler, seed=seed)
    return Speed("bayes_irt fit_nuts", posterior.ability.to_numpy(), time.perf_counter() - started)


def math500() -> tuple[str, Responses]:
    """Return MATH-500, or a simulated suite of its size where the data are absent."""
    folder = os.environ.get("BAYES_IRT_DATA")
    if folder:
        return "MATH-500, 140 x 500", read_responses(Path(folder) / "math500_paper.parquet")
    return "simulated, 140 x 500", simulate_suite(140, 500).responses


def benchmark_nuts(options: argparse.Namespace) -> None:
    """Print effective draws per second of both programs and their ratios."""
    sampler = Sampler(num_warmup=options.warmup, num_draws=options.draws)
    name, responses = math500()
    print(
        f"{name}; 4 chains, {options.warmup} + {options.draws} draws each; times include compilation and start"
    )
    print(
        f"{'program':22s} {'seconds':>8s} {'ESS as is':>10s} {'ESS gauged':>10s} {'as is/s':>9s} {'gauged/s':>9s}"
    )
    results = []
    for run in (run_ours, run_textbook):
        results.append(run(responses, sampler, options.seed))
        print(results[-1].row(), flush=True)
    ours, textbook = results
    as_is = smallest_ess(ours.ability) / smallest_ess(textbook.ability)
    fixed = smallest_ess(gauge_fixed(ours.ability)) / smallest_ess(gauge_fixed(textbook.ability))
    time_ratio = textbook.seconds / ours.seconds
    print(
        f"ratio of smallest ability ESS per second: as reported {as_is * time_ratio:.1f}, "
        f"both gauge-fixed {fixed * time_ratio:.1f}"
    )


def main() -> None:
    """Parse the command and run it."""
    parser = argparse.ArgumentParser(description=__doc__)
    commands = parser.add_subparsers(required=True)
    nuts = commands.add_parser("nuts", help="effective draws per second against the textbook program")
    nuts.add_argument("--warmup", type=int, default=500)
    nuts.add_argument("--draws", type=int, default=1000)
    nuts.add_argument("--seed", type=int, default=0)
    nuts.set_defaults(run=benchmark_nuts)
    options = parser.parse_args()
    options.run(options)


if __name__ == "__main__":
    main()
