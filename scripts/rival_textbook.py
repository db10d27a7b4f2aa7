"""The textbook NumPyro program: abilities normal, Bernoulli likelihood, default start and settings."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from benchmark_draws import Draws
from numpyro.infer import MCMC, NUTS

from bayes_irt import Responses, Sampler
from bayes_irt.compilation import compile_clock
from bayes_irt.model_spec import ModelSpec, hyperpriors
from bayes_irt.priors import LearnedLocation


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


def chain_method(num_chains: int) -> str:
    """Return how NumPyro runs chains at once: on a device each where there are enough, else vectorised."""
    return "parallel" if len(jax.devices()) >= num_chains else "vectorized"


def sample(responses: Responses, sampler: Sampler, seed: int) -> Draws:
    """Run the program as its users would."""
    mcmc = MCMC(
        NUTS(textbook_model),
        num_warmup=sampler.num_warmup,
        num_samples=sampler.num_draws,
        num_chains=sampler.num_chains,
        chain_method=chain_method(sampler.num_chains),
        progress_bar=False,
    )
    with compile_clock() as clock:
        mcmc.run(jax.random.key(seed), jnp.asarray(responses.successes, dtype=jnp.float32))
        draws = mcmc.get_samples(group_by_chain=True)
        ability, slope = np.asarray(draws["ability"]), np.asarray(draws["discrimination"])
    return Draws(ability, slope, clock.seconds)
