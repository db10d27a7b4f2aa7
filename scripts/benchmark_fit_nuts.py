"""`fit_nuts` as a program of the benchmark."""

from __future__ import annotations

from benchmark_draws import Draws

from bayes_irt import Responses, Sampler, fit_nuts
from bayes_irt.compilation import compile_clock


def sample(responses: Responses, sampler: Sampler, seed: int) -> Draws:
    """Run `fit_nuts`, the point estimate that starts it included."""
    with compile_clock() as clock:
        posterior = fit_nuts(responses, sampler=sampler, seed=seed)
    slopes = posterior.draws["discrimination"].transpose("chain", "draw", "item", ...)
    shape = (*posterior.ability.shape[:2], responses.num_items)
    return Draws(posterior.ability.to_numpy(), slopes.to_numpy().reshape(shape), clock.seconds)
