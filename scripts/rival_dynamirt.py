"""dynamirt's static 2PL, as its manual shows it: abilities standard normal, slopes LogNormal(0, 0.5), N(0, 2) easiness.

Its priors are its own, with fixed scales. It samples by NumPyro; only the chain method is not its default, which on
fewer cores than chains runs one chain after the other.
"""

from __future__ import annotations

import jax
import numpy as np
from benchmark_draws import Draws
from dynamirt import dynamirt, fit_mcmc
from rival_textbook import chain_method

from bayes_irt import Responses, Sampler
from bayes_irt.compilation import compile_clock


def sample(responses: Responses, sampler: Sampler, seed: int) -> Draws:
    """Run dynamirt's NUTS."""
    outcomes = np.where(responses.attempts > 0, responses.successes, np.nan).astype(np.float32)
    settings = {
        "num_warmup": sampler.num_warmup,
        "num_samples": sampler.num_draws,
        "num_chains": sampler.num_chains,
        "chain_method": chain_method(sampler.num_chains),
        "progress_bar": False,
    }
    with compile_clock() as clock:
        fit = fit_mcmc(dynamirt("2PL"), outcomes, mcmc_kwargs=settings, rng_key=jax.random.PRNGKey(seed))
        posterior = fit.to_idata()["posterior"]
        ability, slope = posterior["theta"].to_numpy(), posterior["loadings"].to_numpy()
    return Draws(ability[..., 0], slope[..., 0], clock.seconds)
