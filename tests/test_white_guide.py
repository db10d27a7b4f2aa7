"""SVI in the coordinates of NUTS: the map's volume, where guides start, testlets and learned floors against NUTS.

Several traits are held against NUTS in test_traits.py. One model has both testlets and learned floors, so that one
compiled program of NUTS is the reference of both.
"""

import warnings
from dataclasses import replace
from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest
from jax.flatten_util import ravel_pytree

from bayes_irt import ModelSpec, Priors, Sampler, check_posterior, fit_cbmm, fit_nuts, fit_svi
from bayes_irt.checks import Outcome
from bayes_irt.errors import ApproximationWarning, InvalidConfigurationError
from bayes_irt.fitting import FitPlan
from bayes_irt.inference.density import origin, potential, target_of
from bayes_irt.inference.engine import start_penalty
from bayes_irt.inference.svi import Optimizer
from bayes_irt.inference.white_guide import (
    first_map,
    first_white_guide,
    white_at,
    white_coordinates,
    white_log_density,
)
from bayes_irt.item_law import item_law
from bayes_irt.llm_groups import group_labels
from bayes_irt.prior_simulation import simulate_from_prior
from bayes_irt.priors import HalfNormal, LearnedLocation, LearnedScale, LearnedShare, Normal
from bayes_irt.responses import Responses

USUAL = Priors(HalfNormal(LearnedScale(1.5, 0.3)), Normal(LearnedLocation(0.0, 1.0), LearnedScale(1.5, 0.3)))
SPEC = ModelSpec(item_groups="text", floor=LearnedShare(5.0, 17.0), observation="binomial")
RELATED = ModelSpec(llm_groups="family", observation="binomial")


def texts(number):
    return pd.DataFrame({"text": [f"text {item % 4}" for item in range(number)]})


@cache
def suite(llms, items):
    """Draw from the model itself, with effects of about .8."""
    drawn = ModelSpec(USUAL, item_groups="text", floor=SPEC.floor, testlet_scale=LearnedScale(0.8, 0.05))
    found = simulate_from_prior(drawn, llms, items, seed=4, item_metadata=texts(items))
    return found, fit_cbmm(found.responses, penalty=start_penalty(SPEC))


def coordinates(llms=10, items=12):
    found, estimate = suite(llms, items)
    return white_coordinates(
        target_of(SPEC, found.responses, item_law(SPEC, found.responses), estimate, None)
    )


# The map


def test_the_volume_of_the_map_is_that_of_its_derivative():
    rng = np.random.default_rng(1)
    with jax.enable_x64(True):
        at = coordinates()
        first = first_map(at, "structured")
        learned = {name: value + 0.3 * rng.normal(size=value.shape) for name, value in first.items()}
        point = jnp.asarray(rng.normal(size=at.size))
        flat = lambda point: ravel_pytree(white_at(point, learned, at)[0])[0]  # noqa: E731
        _, wanted = jnp.linalg.slogdet(jax.jacfwd(flat)(point))
        _, volume = white_at(point, learned, at)
        plain = white_at(point, {}, at)
        np.testing.assert_array_equal(ravel_pytree(plain[0])[0], point)
    assert float(volume) == pytest.approx(float(wanted), abs=1e-8)
    assert abs(float(volume)) > 0.1  # and it says something
    assert float(plain[1]) == 0


def test_the_structured_guide_starts_from_the_coordinates_of_nuts():
    """Unstretched and with effects at their first scale, which is where white values are zero, nothing moves."""
    rng = np.random.default_rng(2)
    with jax.enable_x64(True):
        at = coordinates()
        learned = {name: jnp.zeros_like(value) for name, value in first_map(at, "structured").items()}
        _, restore = ravel_pytree(origin(at.target.start))
        white = restore(jnp.asarray(rng.normal(size=at.size)))
        white = replace(white, more=white.more | {"testlet_scale": jnp.zeros(())})
        point = ravel_pytree(white)[0]
        found, volume = white_at(point, learned, at)
        density = white_log_density(SPEC, point, learned, at)
        wanted = -potential(white, at.target, SPEC)
        np.testing.assert_allclose(ravel_pytree(found)[0], point, atol=1e-9)
    assert float(volume) == pytest.approx(0, abs=1e-9)
    assert float(density) == pytest.approx(float(wanted), abs=1e-6)


def test_low_rank_guides_start_as_wide_as_the_directions():
    with jax.enable_x64(True):
        at = coordinates()
        widest = np.sort(np.asarray(at.directions.stretches))[::-1]
        for rank in (3, 12):
            first = first_white_guide(at, "low-rank", rank)
            factor = np.asarray(first["auto_cov_factor"])
            assert factor.shape == (at.size, rank)
            found = np.linalg.eigvalsh(np.eye(at.size) + factor @ factor.T)[::-1][: min(rank, 8)]
            np.testing.assert_allclose(np.sqrt(found), widest[:rank], atol=1e-6)


# Against NUTS


LLMS, ITEMS = 60, 60


@cache
def fitted():
    found, estimate = suite(LLMS, ITEMS)
    sampler = Sampler(num_chains=2, num_warmup=150, num_draws=300)
    nuts = fit_nuts(found.responses, spec=SPEC, estimate=estimate, sampler=sampler)
    return nuts, *(
        by_svi(found.responses, estimate, SPEC, Optimizer(guide=guide))
        for guide in ("structured", "mean-field")
    )


def by_svi(responses, estimate, spec, optimizer=None):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ApproximationWarning)  # of few LLMs and answers, and of the guide
        return fit_svi(responses, spec=spec, estimate=estimate, optimizer=optimizer, num_draws=2000)


def sds(posterior, site):
    return posterior.draws[site].std(("chain", "draw")).to_numpy()


def shift(posterior, reference, site):
    means = [fit.draws[site].mean(("chain", "draw")).to_numpy() for fit in (posterior, reference)]
    return np.abs(means[0] - means[1]) / sds(reference, site)


def assert_near_nuts(posterior, reference, sites):
    """Monte Carlo errors of single means are about .05 of a sd, of single sds 4 %."""
    assert np.median(shift(posterior, reference, "ability")) < 0.15
    assert shift(posterior, reference, "ability").max() < 0.5
    for site in sites:
        assert 0.8 < np.median(sds(posterior, site) / sds(reference, site)) < 1.1


def test_testlets_and_learned_floors_are_near_nuts():
    nuts, structured, mean_field = fitted()
    assert_near_nuts(structured, nuts, ("ability", "floor"))
    assert np.median(shift(structured, nuts, "testlet")) < 0.25
    with pytest.raises(AssertionError):  # the control: mean-field is narrower
        assert_near_nuts(mean_field, nuts, ("ability", "floor"))


def test_testlets_are_drawn_to_zero_and_that_is_said():
    nuts, structured, mean_field = fitted()
    ratios = [np.median(sds(fit, "testlet") / sds(nuts, "testlet")) for fit in (structured, mean_field)]
    assert ratios[1] < ratios[0] < 0.95
    assert check_posterior(structured)["testlets"].outcome is Outcome.CANNOT_TELL


def test_posteriors_have_the_shape_of_nuts():
    nuts, structured, _ = fitted()
    assert set(structured.draws) == set(nuts.draws)
    for site in nuts.draws:
        assert structured.draws[site].dims == nuts.draws[site].dims
    np.testing.assert_allclose(structured.draws["ability"].mean("llm"), 0, atol=1e-6)
    np.testing.assert_allclose(structured.draws["ability"].std("llm"), 1, atol=1e-6)
    assert structured.spec == nuts.spec


def test_what_is_recorded_and_checked():
    _, structured, mean_field = fitted()
    stored = structured.tree["approximation"].to_dataset()
    assert {"steps", "elbo", "converged", "pareto_k", "answers_per_llm"} <= set(stored)
    assert not {"sd_ratio_median", "mode_cycles"} & set(stored)
    report = check_posterior(structured)
    assert report["ELBO"].outcome is Outcome.PASS
    assert {report[name].outcome for name in ("testlets", "learned floors")} == {Outcome.CANNOT_TELL}
    assert report["agreement with Laplace"].outcome is Outcome.NOT_APPLICABLE
    assert "coordinates of NUTS" in report["agreement with Laplace"].message
    assert report["Pareto k-hat"].outcome in (Outcome.PASS, Outcome.CANNOT_TELL)
    assert float(mean_field.tree["approximation"]["elbo"]) + 2 < float(stored["elbo"])


# Options


def with_families():
    responses = suite(10, 12)[0].responses
    families = np.array([f"family {number // 2}" for number in range(10)], dtype=object)
    return Responses(responses.dataset.assign_coords(family=("llm", families)))


def test_related_llms_are_fitted_and_other_guides_are_warned_of():
    responses = with_families()
    estimate = fit_cbmm(responses, penalty=Priors())
    with pytest.warns(ApproximationWarning, match=r"low-rank guide is too narrow.*Use guide='structured'"):
        posterior = fit_svi(
            responses,
            spec=RELATED,
            estimate=estimate,
            optimizer=Optimizer(guide="low-rank", rank=2),
            num_draws=50,
        )
    share = posterior.draws["ability_share"]
    assert share.dims == ("chain", "draw")
    assert 0 < float(share.min()) < float(share.max()) < 1
    groups = posterior.tree["constant_data"]["llm_group"].to_numpy()
    assert list(groups) == list(group_labels(responses.llm_metadata, "family"))


def test_minibatches_are_refused_by_name():
    optimizer = Optimizer(batch_size=8)
    for ask in (
        lambda: fit_svi(suite(10, 12)[0].responses, spec=SPEC, optimizer=optimizer),
        lambda: FitPlan("svi", RELATED, optimizer=optimizer),
    ):
        with pytest.raises(InvalidConfigurationError, match=r"batch_size is 8.*Leave batch_size"):
            ask()
    assert FitPlan("svi", ModelSpec(), optimizer=optimizer).optimizer == optimizer
