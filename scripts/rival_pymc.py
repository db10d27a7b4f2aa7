"""PyMC with nutpie: the textbook 2PL of `rival_textbook` in PyMC, compiled by Numba and sampled by nutpie."""

from __future__ import annotations

import time

import numpy as np
import nutpie
import pymc
from benchmark_draws import Draws

from bayes_irt import Responses, Sampler
from bayes_irt.model_spec import ModelSpec, hyperpriors
from bayes_irt.priors import LearnedLocation


def textbook_model(outcomes: np.ndarray) -> pymc.Model:
    """Declare the 2PL as textbooks write it, with the item priors of `ModelSpec`."""
    num_llms, num_items = outcomes.shape
    with pymc.Model() as model:
        hyper = {}
        for name, prior in hyperpriors(ModelSpec()).items():
            if isinstance(prior, LearnedLocation):
                hyper[name] = pymc.Normal(name, prior.mean, prior.sd)
            else:
                hyper[name] = pymc.LogNormal(name, np.log(prior.median), prior.log_sd)
        slope = pymc.HalfNormal("discrimination", hyper["discrimination_scale"], shape=num_items)
        easiness = pymc.Normal(
            "easiness", hyper["easiness_location"], hyper["easiness_scale"], shape=num_items
        )
        ability = pymc.Normal("ability", 0.0, 1.0, shape=num_llms)
        pymc.Bernoulli("outcome", logit_p=ability[:, None] * slope + easiness, observed=outcomes)
    return model


def sample(responses: Responses, sampler: Sampler, seed: int) -> Draws:
    """Compile and sample; nutpie runs as many chains at once as there are cores."""
    began = time.perf_counter()
    compiled = nutpie.compile_pymc_model(textbook_model(responses.successes), backend="numba")
    compiling = time.perf_counter() - began
    trace = nutpie.sample(
        compiled,
        tune=sampler.num_warmup,
        draws=sampler.num_draws,
        chains=sampler.num_chains,
        seed=seed,
        progress_bar=False,
    )
    posterior = trace["posterior"]
    return Draws(posterior["ability"].to_numpy(), posterior["discrimination"].to_numpy(), compiling)
