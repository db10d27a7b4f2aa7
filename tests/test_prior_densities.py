"""Priors written twice, as densities and as NumPyro distributions: equal to 1e-9; draws, refusals, the way to disk.

SciPy's densities stand against them in test_log_likelihood.py.
"""

import json
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import integrate, stats

from bayes_irt.errors import InvalidConfigurationError
from bayes_irt.model_spec import ModelSpec, hyperpriors, restored_spec
from bayes_irt.models import discrimination_prior, easiness_prior, hyperprior_distribution
from bayes_irt.prior_densities import (
    draw_hyperparameters,
    draw_items,
    log_discrimination_prior,
    log_easiness_prior,
    log_hyperprior,
)
from bayes_irt.priors import (
    Exponential,
    Gamma,
    HalfNormal,
    LearnedLocation,
    LearnedScale,
    LogNormal,
    Normal,
    Priors,
    TruncatedNormal,
)
from bayes_irt.provenance import plain

FAMILIES = (
    HalfNormal(LearnedScale(2.0, 0.5)),
    LogNormal(LearnedLocation(-0.3, 1.2), LearnedScale(0.4, 0.6)),
    Gamma(LearnedScale(0.9, 0.7), shape=2.5),
    Exponential(LearnedScale(1.1, 0.8)),
    TruncatedNormal(LearnedLocation(0.8, 1.1), LearnedScale(1.7, 0.9)),
)
EASINESS = Normal(LearnedLocation(-0.5, 2.0), LearnedScale(1.6, 0.4))
SPECS = [ModelSpec(Priors(family, EASINESS)) for family in FAMILIES]
every_family = pytest.mark.parametrize("spec", SPECS, ids=lambda s: type(s.priors.discrimination).__name__)
FALSE_ALARM = 1e-4  # of each comparison of draws with a distribution
HYPER = {
    "discrimination_location": -0.4,
    "discrimination_scale": 0.9,
    "easiness_location": 0.7,
    "easiness_scale": 1.8,
}


def hyper_of(spec, values=HYPER):
    return {name: values[name] for name in spec.hyperparameters}


@every_family
def test_log_densities_are_numpyro_s(spec):
    location, scale = (grid.reshape(-1, 1) for grid in np.meshgrid([-0.4, 1.5, -25.0], [0.02, 0.9, 60.0]))
    if isinstance(spec.priors.discrimination, TruncatedNormal):
        location = np.maximum(location, -10 * scale)  # farther out NumPyro loses digits
    hyper = hyper_of(spec, HYPER | {"discrimination_location": location, "discrimination_scale": scale})
    slopes = np.array([1e-8, 0.003, 0.5, 1.0, 3.0, 40.0])
    easiness = np.array([-30.0, -1.0, 0.0, 0.4, 25.0])
    with jax.enable_x64(True):
        ours = log_discrimination_prior(spec, slopes, hyper), log_easiness_prior(easiness, hyper)
        given = {name: jnp.asarray(value) for name, value in hyper.items()}
        theirs = discrimination_prior(spec, given).log_prob(slopes), easiness_prior(given).log_prob(easiness)
    assert ours[0].shape == (9, 6)
    np.testing.assert_allclose(ours[0], theirs[0], rtol=1e-9)
    np.testing.assert_allclose(ours[1], theirs[1], rtol=1e-9)


@every_family
def test_hyperpriors_are_numpyro_s(spec):
    hyper = hyper_of(spec)
    with jax.enable_x64(True):
        theirs = sum(
            float(hyperprior_distribution(prior).log_prob(hyper[name]))
            for name, prior in hyperpriors(spec).items()
        )
        assert float(log_hyperprior(spec, hyper)) == pytest.approx(theirs, rel=1e-9)


def test_a_normal_cut_off_in_its_far_tail_still_has_mass_one():
    """At location / scale = -25, where 1e-138 of the uncut mass is left: the density falls like 25 exp(-25 a)."""
    hyper = HYPER | {"discrimination_location": -25.0, "discrimination_scale": 1.0}
    with jax.enable_x64(True):
        grid = np.linspace(0.0, 2.0, 20_001)
        density = np.exp(np.asarray(log_discrimination_prior(SPECS[-1], grid, hyper)))
        slope = jax.grad(lambda a: log_discrimination_prior(SPECS[-1], a, hyper))(0.1)
    assert integrate.simpson(density, x=grid) == pytest.approx(1.0, abs=1e-8)
    assert float(slope) == pytest.approx(-25.1)


@every_family
def test_gradients_are_finite_at_small_discriminations(spec):
    with jax.enable_x64(True):
        gradient = jax.vmap(jax.grad(lambda a: log_discrimination_prior(spec, a, hyper_of(spec))))
        assert np.isfinite(gradient(np.array([1e-300, 1e-12, 1e-3]))).all()


# Draws


def distribution(spec):
    """Return SciPy's distribution of discriminations at HYPER."""
    location, scale = HYPER["discrimination_location"], HYPER["discrimination_scale"]
    return {
        HalfNormal: stats.halfnorm(scale=scale),
        LogNormal: stats.lognorm(scale, scale=np.exp(location)),
        Gamma: stats.gamma(2.5, scale=scale),
        Exponential: stats.expon(scale=scale),
        TruncatedNormal: stats.truncnorm(-location / scale, np.inf, location, scale),
    }[type(spec.priors.discrimination)]


def drawn_items(spec, num_draws=100, num_items=50):
    hyper = {name: np.full(num_draws, value) for name, value in hyper_of(spec).items()}
    return draw_items(spec, hyper, np.random.default_rng(1), num_items)


def assert_drawn_from(draws, law):
    assert stats.kstest(np.ravel(draws), law.cdf).pvalue > FALSE_ALARM


@every_family
def test_items_are_drawn_from_their_priors(spec):
    slopes, easiness = drawn_items(spec)
    assert slopes.shape == easiness.shape == (100, 50)
    law, centred = distribution(spec), stats.norm(HYPER["easiness_location"], HYPER["easiness_scale"])
    assert_drawn_from(slopes, law)
    assert_drawn_from(easiness, centred)
    assert abs(np.corrcoef(slopes.ravel(), easiness.ravel())[0, 1]) < 0.07  # 5 standard errors
    # controls: draws a little too large
    with pytest.raises(AssertionError):
        assert_drawn_from(1.1 * slopes, law)
    with pytest.raises(AssertionError):
        assert_drawn_from(easiness + 0.25, centred)


@every_family
def test_hyperparameters_are_drawn_from_their_hyperpriors(spec):
    draws = draw_hyperparameters(spec, np.random.default_rng(2), 5000)
    assert tuple(draws) == spec.hyperparameters
    for name, prior in hyperpriors(spec).items():
        if isinstance(prior, LearnedLocation):
            law = stats.norm(prior.mean, prior.sd)
        else:
            law = stats.lognorm(prior.log_sd, scale=prior.median)
        assert_drawn_from(draws[name], law)
        with pytest.raises(AssertionError):
            assert_drawn_from(1.2 * draws[name] + 0.1, law)


def test_each_draw_of_items_follows_its_own_hyperparameters():
    """In draw 0 all scales are tiny, in draw 1 they are large."""
    for spec in SPECS:
        hyper = {name: np.array([1e-3, 5.0]) for name in spec.hyperparameters}
        slopes, easiness = draw_items(spec, hyper, np.random.default_rng(3), 400)
        assert easiness[0].std() < 0.01 < 1 < easiness[1].std()
        assert slopes[0].std() < 0.01 < 1 < slopes[1].std()


# Refusals, and the way through JSON


LEARNED = [
    (family, part)
    for family in (HalfNormal, LogNormal, Gamma, Exponential, TruncatedNormal, Normal)
    for part in ("location", "scale")
    if part in family.__dataclass_fields__
]


@pytest.mark.parametrize(("family", "part"), LEARNED)
def test_a_number_is_no_learned_quantity(family, part):
    prior = family(**{part: 1.0})
    kind, name = f"Learned{part.title()}", "easiness" if family is Normal else "discrimination"
    with pytest.raises(
        InvalidConfigurationError, match=rf"{part} of the {name} .*1\.0.*must be a {kind}.*sd"
    ):
        Priors(**{name: prior})


@pytest.mark.parametrize("value", [1.0, "half-normal", HalfNormal, None, Normal()])
def test_a_discrimination_s_prior_is_one_of_six(value):
    families = "HalfNormal, LogNormal, Gamma, Exponential, TruncatedNormal or Common"
    with pytest.raises(InvalidConfigurationError, match=families):
        Priors(discrimination=value)


@pytest.mark.parametrize("value", [2.0, HalfNormal(), LogNormal()])
def test_an_easiness_s_prior_is_normal(value):
    with pytest.raises(InvalidConfigurationError, match="must be Normal"):
        Priors(easiness=value)


@pytest.mark.parametrize("shape", [0, 0.0, -1.0, math.nan, math.inf, "2", None])
def test_a_gamma_s_shape_is_a_positive_number(shape):
    with pytest.raises(InvalidConfigurationError, match=r"Gamma\.shape .*must be a number between 1e-06"):
        Gamma(shape=shape)


@every_family
def test_a_model_comes_back_from_json(spec):
    again = restored_spec(json.loads(json.dumps(plain(spec))))
    assert again == spec
    assert hash(again) == hash(spec)
    assert all(again != other for other in SPECS if other is not spec)
