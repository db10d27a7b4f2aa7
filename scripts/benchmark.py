"""Measure speed, always as ratios between programs run side by side in one process.

``uv run python scripts/benchmark.py nuts`` compares the effective draws per second of `fit_nuts` with those of the
textbook NumPyro program: abilities normal, Bernoulli likelihood, default start and settings, the same item priors.
``uv run --group bench python scripts/benchmark.py point`` compares `fit_cbmm` with a textbook cBMM, L-BFGS-B, Pymanopt
and girth at the sizes of the paper's suites.

MATH-500 is read from the folder in ``BAYES_IRT_DATA``; without it, a simulated suite of the same size is used.
"""

from __future__ import annotations

import argparse
import sys
import time
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
from devices import use_all_cores

if "point" not in sys.argv:  # one device uses all cores for one pass
    use_all_cores()

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from numpyro.infer import MCMC, NUTS
from suites import suite_of

from bayes_irt import Responses, Sampler, fit_nuts
from bayes_irt.compilation import compile_clock
from bayes_irt.model_spec import ModelSpec, hyperpriors
from bayes_irt.priors import LearnedLocation

import arviz  # isort: skip - NumPyro must be imported first


@dataclass(frozen=True)
class Speed:
    """Hold what one program achieved."""

    name: str
    ability: np.ndarray
    seconds: float
    compiling: float

    def rates(self) -> np.ndarray:
        """Return the smallest ESS per second: as reported and gauge-fixed, of all time and of running time."""
        sizes = np.array([smallest_ess(self.ability), smallest_ess(gauge_fixed(self.ability))])
        return np.concatenate([sizes / self.seconds, sizes / (self.seconds - self.compiling)])

    def row(self) -> str:
        """Return times, the smallest effective sample sizes and their rates."""
        reported, fixed = smallest_ess(self.ability), smallest_ess(gauge_fixed(self.ability))
        rates = " ".join(f"{rate:9.2f}" for rate in self.rates())
        times = f"{self.seconds:8.1f} {self.compiling:9.1f}"
        return f"{self.name:20s} {times} {reported:10.0f} {fixed:10.0f} {rates}"


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


def run_textbook(responses: Responses, sampler: Sampler, seed: int) -> np.ndarray:
    """Run the textbook program as its users would."""
    mcmc = MCMC(
        NUTS(textbook_model),
        num_warmup=sampler.num_warmup,
        num_samples=sampler.num_draws,
        num_chains=sampler.num_chains,
        chain_method="parallel" if len(jax.devices()) >= sampler.num_chains else "vectorized",
        progress_bar=False,
    )
    mcmc.run(jax.random.key(seed), jnp.asarray(responses.successes, dtype=jnp.float32))
    return np.asarray(mcmc.get_samples(group_by_chain=True)["ability"])


def run_ours(responses: Responses, sampler: Sampler, seed: int) -> np.ndarray:
    """Run `fit_nuts`, the point estimate that starts it included."""
    return np.asarray(fit_nuts(responses, sampler=sampler, seed=seed).ability.to_numpy())


def benchmark_nuts(options: argparse.Namespace) -> None:
    """Print effective draws per second of both programs and their ratios."""
    sampler = Sampler(num_warmup=options.warmup, num_draws=options.draws)
    name, responses = suite_of((140, 500))
    print(
        f"{name}, 140 x 500; 4 chains, {options.warmup} + {options.draws} draws each; "
        "the smallest effective sample size (ESS)"
    )
    print(
        "of an ability, as reported and gauge-fixed, and per second: of all time, then of the time after compilation"
    )
    heads = ("seconds", "compiling", "ESS as is", "ESS gauged", "as is/s", "gauged/s", "as is/s", "gauged/s")
    print(
        f"{'program':20s} "
        + " ".join(f"{h:>{w}s}" for h, w in zip(heads, (8, 9, 10, 10, 9, 9, 9, 9), strict=True))
    )
    results = []
    for label, run in (("bayes_irt fit_nuts", run_ours), ("textbook NumPyro", run_textbook)):
        started = time.perf_counter()
        with compile_clock() as clock:
            ability = run(responses, sampler, options.seed)
        results.append(Speed(label, ability, time.perf_counter() - started, clock.seconds))
        print(results[-1].row(), flush=True)
    ratios = results[0].rates() / results[1].rates()
    print(f"{'ratio':60s} " + " ".join(f"{ratio:9.1f}" for ratio in ratios))


def run_point(options: argparse.Namespace) -> None:
    """Compare point estimates; in a module of its own, since it needs packages that this one does not."""
    from benchmark_point import benchmark_point

    benchmark_point(options)


def main() -> None:
    """Parse the command and run it."""
    parser = argparse.ArgumentParser(description=__doc__)
    commands = parser.add_subparsers(required=True)
    nuts = commands.add_parser("nuts", help="effective draws per second against the textbook program")
    nuts.add_argument("--warmup", type=int, default=500)
    nuts.add_argument("--draws", type=int, default=1000)
    nuts.add_argument("--seed", type=int, default=0)
    nuts.set_defaults(run=benchmark_nuts)
    point = commands.add_parser("point", help="time to a loss against other programs that fit the 2PL")
    point.add_argument("--limit", type=float, default=60.0, help="seconds that each other program may take")
    point.add_argument("--most-cells", type=float, default=1e12, help="leave out larger suites")
    point.add_argument("--figure", help="file to draw time against size to")
    point.set_defaults(run=run_point)
    options = parser.parse_args()
    options.run(options)


if __name__ == "__main__":
    main()
