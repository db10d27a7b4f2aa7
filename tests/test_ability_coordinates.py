"""Raw abilities of samplers: any law of their location and spread leaves the posterior as it is."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bayes_irt import Responses, Sampler, fit_nuts, simulate_suite
from bayes_irt.inference import ability_coordinates as coordinates
from bayes_irt.inference import density

LLMS, ITEMS = 26, 80


def standardised(values):
    return (values - values.mean()) / values.std()


@pytest.fixture(scope="module")
def place():
    """A start with one LLM far out, of which little is known."""
    rng = np.random.default_rng(0)
    centre = standardised(np.append(rng.normal(size=LLMS - 1), -9.0))
    return centre, np.append(np.full(LLMS - 1, 0.05), 0.5)


def mass(direction, place, *, power=LLMS - 2):
    """Integrate the density of raw abilities over their location and spread, for one standardised direction."""
    centre, sd = place
    spreads, locations = np.linspace(0.6, 2.4, 721), np.linspace(-0.6, 0.6, 241)

    def log_density(spread, location):
        raw = spread * direction + location
        found = coordinates.apart((raw - centre) / sd, centre, sd)
        # the model's own normal prior is added, as it is where the log density is used
        return found.log_density - 0.5 * jnp.sum(raw**2) + power * jnp.log(spread)

    grid = jax.vmap(jax.vmap(log_density, (None, 0)), (0, None))
    values = np.exp(np.asarray(grid(jnp.asarray(spreads), jnp.asarray(locations))))
    return np.trapezoid(np.trapezoid(values, locations, axis=1), spreads)


def test_location_and_spread_integrate_to_one_whatever_the_abilities_are(place):
    """So that nothing is said about standardised abilities; with a wrong power of the spread something would be."""
    rng = np.random.default_rng(1)
    centre, sd = place
    directions = [standardised(centre + scale * sd * rng.normal(size=LLMS)) for scale in (0, 1, 1, 2, 2)]
    directions.append(standardised(centre + np.append(np.zeros(LLMS - 1), -4.0)))
    with jax.enable_x64(True):
        found = [mass(direction, place) for direction in directions]
        control = [mass(direction, place, power=LLMS - 1) for direction in directions]
    np.testing.assert_allclose(found, found[0], rtol=1e-4)
    assert np.ptp(control) > 0.05 * np.mean(control)


def test_an_llm_far_out_moves_without_the_others(place):
    """Its own step changes no other LLM's raw value, and the weighted means hardly."""
    centre, sd = place
    with jax.enable_x64(True):
        step = coordinates.apart(jnp.zeros(LLMS).at[-1].set(-8.0), centre, sd)
        still = coordinates.apart(jnp.zeros(LLMS), centre, sd)
        step, still, (level, slope) = jax.device_get((step, still, coordinates._functionals(centre, sd)))
    np.testing.assert_array_equal(step.ability[:-1], still.ability[:-1])
    np.testing.assert_allclose(
        standardised(step.ability) * np.exp(step.exact[0]) + step.exact[1], step.ability
    )
    assert abs(float(level[-1])) < 1e-4
    assert abs(float(slope @ step.ability) - 1) < 0.01


def test_who_is_far_out(place):
    centre, sd = place
    usual = standardised(np.random.default_rng(2).normal(size=LLMS))
    assert coordinates.is_far_out(centre, sd)
    assert not coordinates.is_far_out(usual, sd)
    assert not coordinates.is_far_out(centre, np.full(LLMS, 3.0))  # where nothing is known
    assert not coordinates.is_far_out(standardised(np.append(usual[:20], -9.0)), sd[-21:])  # few LLMs


@pytest.fixture(scope="module")
def outlier():
    """A suite on which one LLM got next to nothing right."""
    cells = simulate_suite(LLMS, ITEMS, seed=3).responses.successes.astype(float)
    cells[-1] = 0.0
    cells[-1, :3] = 1.0
    return Responses.from_arrays(cells)


def test_both_laws_give_one_posterior(outlier, monkeypatch):
    """Means differ by Monte Carlo error (some .05 sd; 5 sd of it), sds likewise."""
    sampler, asked, found = Sampler(num_chains=2, num_warmup=400, num_draws=800), [], []
    for far_out in (True, False):
        monkeypatch.setattr(density, "is_far_out", lambda *_, far_out=far_out: asked.append(1) or far_out)
        found.append(fit_nuts(outlier, sampler=sampler).ability.stack(draw_=("chain", "draw")))
    assert len(asked) == 2
    first, second = found
    assert float(abs(first - second).max()) > 0.1  # two programs, two chains
    pooled = np.sqrt((first.var("draw_") + second.var("draw_")) / 2)
    assert float((abs(first.mean("draw_") - second.mean("draw_")) / pooled).max()) < 0.3
    ratio = first.std("draw_") / second.std("draw_")
    assert 0.75 < float(ratio.min()) < float(ratio.max()) < 1.33
