"""Item coordinates against automatic differentiation, dense likelihoods and dense quadrature.

One tiny suite (6 LLMs x 5 items, one answer missing) serves all tests.
"""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from bayes_irt.inference.item_coordinates import (
    EXPONENTIAL,
    as_parameters,
    constrained,
    constrained_draws,
    first_items,
    hyper_medians,
    inverse_of_pairs,
    item_terms,
    link_of,
    log_hyper,
    log_item_prior,
    log_regauged_prior,
)
from bayes_irt.inference.outer_terms import outer_terms
from bayes_irt.likelihood import cell_sums, tile_cells
from bayes_irt.model_spec import ModelSpec, hyperpriors
from bayes_irt.parameters import Parameters
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

FAMILIES = (HalfNormal(), LogNormal(), Gamma(shape=2.5), Exponential(), TruncatedNormal())
EASINESS = Normal(LearnedLocation(0.2, 3.0), LearnedScale(1.4))
SPECS = [ModelSpec(Priors(family, EASINESS)) for family in FAMILIES]
NAMES = [type(family).__name__ for family in FAMILIES]
every_family = pytest.mark.parametrize("spec", SPECS, ids=NAMES)
main_families = pytest.mark.parametrize("spec", SPECS[:2], ids=NAMES[:2])
LLMS, ITEMS = 6, 5
RNG = np.random.default_rng(0)
ABILITY = RNG.normal(size=LLMS)
ATTEMPTS = np.ones((LLMS, ITEMS), dtype=np.uint8)
ATTEMPTS[2, 3] = 0
SUCCESSES = (RNG.random((LLMS, ITEMS)) < 0.6).astype(np.uint8) * ATTEMPTS
UNIT = np.array([0.4, 1.0, 0.7, 1.3, 0.2])
PLACES = np.stack([np.array([-1.5, 0.3, 2.0, 0.8, 4.0]), np.array([0.5, -2.0, 1.0, 0.1, -0.7])], axis=1)


@pytest.fixture(autouse=True)
def _x64():
    with jax.enable_x64(True):
        yield


def hyper_of(spec):
    """Return locations and log scales a little off their medians."""
    return hyper_medians(spec) + jnp.linspace(-0.2, 0.3, len(spec.hyperparameters))


def sums_at(spec, items):
    cells = tile_cells(SUCCESSES, ATTEMPTS, "float64")
    return cell_sums(as_parameters(spec, jnp.asarray(ABILITY), items, UNIT), cells, curvature="fisher")


def dense_log_likelihood(spec, items):
    """Return the log-likelihood, written out cell by cell."""
    slope = UNIT * link_of(spec).value(items[:, 0])
    eta = ABILITY[:, None] * slope + items[:, 1]
    failures = ATTEMPTS - SUCCESSES
    return jnp.sum(SUCCESSES * jax.nn.log_sigmoid(eta) + failures * jax.nn.log_sigmoid(-eta))


def log_posterior(spec, items, hyper):
    priors = jax.vmap(partial(log_item_prior, spec), (0, 0, None))(items, UNIT, hyper)
    return dense_log_likelihood(spec, items) + priors.sum()


@main_families
def test_links_have_the_derivatives_they_state(spec):
    link = link_of(spec)
    u = jnp.array([-30.0, -8.0, -1.0, -1e-6, 0.0, 0.3, 2.0, 9.0, 30.0])
    np.testing.assert_allclose(link.rise(u), jax.vmap(jax.grad(link.value))(u), rtol=1e-12)
    np.testing.assert_allclose(link.bend(u), jax.vmap(jax.grad(link.rise))(u), rtol=1e-9, atol=1e-15)
    np.testing.assert_allclose(link.inverse(link.value(u)), u, rtol=1e-12, atol=1e-12)
    assert (link.value(u) > 0).all()
    assert (jnp.diff(link.value(u)) > 0).all()


@every_family
def test_only_log_normal_discriminations_are_exponentials(spec):
    assert (link_of(spec) is EXPONENTIAL) == isinstance(spec.priors.discrimination, LogNormal)
    items = jnp.stack([jnp.asarray(PLACES), jnp.asarray(PLACES) + 1.0])
    parameters = as_parameters(spec, jnp.zeros((2, LLMS)), items, UNIT)
    assert parameters.ability.shape == (2, LLMS, 1)
    np.testing.assert_allclose(parameters.discrimination[..., 0], UNIT * link_of(spec).value(items[..., 0]))
    np.testing.assert_array_equal(parameters.easiness, items[..., 1])


@main_families
def test_score_and_precision_are_derivatives_of_the_log_posterior(spec):
    @jax.jit
    def both(items, hyper):
        density, sums = partial(log_posterior, spec, hyper=hyper), sums_at(spec, items)
        exact, safe = (item_terms(spec, items, UNIT, hyper, sums, exact=way) for way in (True, False))
        return exact, jax.grad(density)(items), -jax.hessian(density)(items), safe

    (score, precision), slope, dense, safe = both(jnp.asarray(PLACES), hyper_of(spec))
    np.testing.assert_allclose(score, slope, rtol=1e-9, atol=1e-10)
    np.testing.assert_array_equal(safe[0], score)
    own = np.einsum("jkjl->jkl", dense)
    np.testing.assert_allclose(precision, own, rtol=1e-9, atol=1e-10)
    np.testing.assert_allclose(np.abs(dense).sum(), np.abs(own).sum())  # items say nothing of each other
    # control: the safe precision is another one
    assert np.abs(safe[1] - own).max() > 0.04


def outer_density(spec, points, at):
    """Return the log prior of items at several points in another gauge and under other hyperparameters."""
    of_one = partial(log_regauged_prior, spec)
    return jax.vmap(jax.vmap(of_one, (0, 0, None)), (0, None, None))(points, UNIT, at)


@partial(jax.jit, static_argnums=0)
def by_quadrature(spec, items, covariance, hyper):
    """Return score, precision and unknown information from a grid of 25 x 25 Gauss-Hermite nodes."""
    place, weight = np.polynomial.hermite_e.hermegauss(25)
    weights = np.outer(weight, weight).ravel() / weight.sum() ** 2
    grid = np.stack(np.meshgrid(place, place, indexing="ij"), axis=-1).reshape(-1, 2)
    points = items + jnp.einsum("jkl,pl->pjk", jnp.linalg.cholesky(covariance), grid)

    def expected(at):
        return weights @ outer_density(spec, points, at).sum(axis=1) + log_hyper(spec, at[2:])

    outer = jnp.concatenate([jnp.zeros(2), hyper])
    by_item = jax.jacfwd(lambda at: outer_density(spec, points, at))(outer)
    apart = by_item - jnp.einsum("p,pjh->jh", weights, by_item)
    unknown = jnp.einsum("p,pjh,pjg->hg", weights, apart, apart)
    return jax.grad(expected)(outer), -jax.hessian(expected)(outer), unknown


def distance(found, wanted):
    """Return the largest difference of two matrices on the scale of the second's diagonal."""
    scale = np.sqrt(np.diag(wanted))
    return np.max(np.abs(found - wanted) / np.outer(scale, scale))


@main_families
def test_quadrature_over_nine_points_is_that_over_many(spec):
    """Items known to a posterior sd of up to .5 in u and .4 in easiness, correlated."""
    hyper = hyper_of(spec)
    terms_at = jax.jit(lambda covariance: outer_terms(spec, jnp.asarray(PLACES), UNIT, covariance, hyper))
    covariance = np.array([[0.25, 0.08], [0.08, 0.16]]) * np.linspace(0.3, 1.0, ITEMS)[:, None, None]
    score, precision, unknown = by_quadrature(spec, PLACES, covariance, hyper)
    sd = np.sqrt(np.diag(precision))

    def errors(terms):
        off = np.abs(terms.score - score) / sd
        return off.max(), distance(terms.precision, precision), distance(terms.unknown, unknown)

    np.testing.assert_array_less(errors(terms_at(covariance)), [0.005, 0.01, 0.1])
    # control: taking the modes for the items
    known = 1e-14 * covariance
    sharp = terms_at(known)
    np.testing.assert_array_less([0.05, 0.05, 0.9], errors(sharp))
    wanted = by_quadrature(spec, PLACES, known, hyper)
    for found, value in zip(sharp, wanted, strict=True):
        np.testing.assert_allclose(found, value, atol=1e-8)


@every_family
def test_items_of_another_gauge_have_the_prior_of_the_canonical_ones(spec):
    """Abilities of scale s and location m: the canonical item has slope a s and easiness d + a m."""
    link, hyper = link_of(spec), hyper_of(spec)

    def canonical(item, unit, gauge):
        slope = unit * link.value(item[0])
        return jnp.stack([link.inverse(slope * jnp.exp(gauge[0]) / unit), item[1] + slope * gauge[1]])

    @jax.jit
    @jax.vmap
    def both(item, unit, gauge):
        wanted = log_item_prior(spec, canonical(item, unit, gauge), unit, hyper)
        volume = jnp.linalg.slogdet(jax.jacfwd(canonical)(item, unit, gauge))[1]
        return log_regauged_prior(spec, item, unit, jnp.concatenate([gauge, hyper])), wanted + volume

    gauges = np.array([[0.3, 0.4], [-0.5, -1.0], [0.0, 0.7], [1.1, 0.0], [-0.2, 2.0]])
    found, wanted = both(PLACES, UNIT, gauges)
    np.testing.assert_allclose(found, wanted, rtol=1e-10)


def test_hyperparameters_are_normal_in_these_coordinates():
    spec = ModelSpec(Priors(TruncatedNormal(), EASINESS))
    point = hyper_of(spec)
    pairs = zip(np.asarray(point), hyperpriors(spec).values(), strict=True)
    wanted = sum(
        stats.norm.logpdf(value, prior.mean, prior.sd)
        if isinstance(prior, LearnedLocation)
        else stats.norm.logpdf(value, np.log(prior.median), prior.log_sd)
        for value, prior in pairs
    )
    assert float(log_hyper(spec, point)) == pytest.approx(wanted, rel=1e-10)
    assert float(log_hyper(spec, hyper_medians(spec))) > wanted
    values = constrained(spec, point)
    assert tuple(values) == spec.hyperparameters
    assert float(values["discrimination_location"]) == float(point[0])
    assert float(values["easiness_scale"]) == pytest.approx(np.exp(point[3]))
    drawn = constrained_draws(spec, np.stack([np.asarray(point), np.asarray(point) + 1.0]))
    for name, value in drawn.items():
        assert value.shape == (2,)
        assert value[0] == pytest.approx(float(values[name]))


def test_pairs_are_inverted():
    root = np.random.default_rng(2).normal(size=(50, 2, 4))
    matrices = root @ root.swapaxes(1, 2)
    np.testing.assert_allclose(inverse_of_pairs(matrices), np.linalg.inv(matrices), rtol=1e-8)


@main_families
def test_first_items_are_inside_the_boundary_and_near_the_estimate(spec):
    slope = np.array([0.0, 1e-9, 0.8, 5.0, 2.0])
    estimate = Parameters(ABILITY[:, None], slope[:, None], PLACES[:, 1])
    cells = tile_cells(SUCCESSES, ATTEMPTS, "float64")
    sums = jax.jit(cell_sums, static_argnames="curvature")(estimate, cells, curvature="fisher")
    items, unit = jax.jit(first_items, static_argnums=0)(spec, estimate, sums)
    found = unit * link_of(spec).value(items[:, 0])
    assert np.isfinite(items).all()
    assert (unit > 0).all()
    assert (found > 0).all()
    np.testing.assert_allclose(found[3:], slope[3:], rtol=1e-9)
    assert (found[:2] <= unit[:2]).all()
    np.testing.assert_array_equal(items[:, 1], PLACES[:, 1])


@every_family
def test_the_safe_precision_is_positive_far_from_the_mode_too(spec):
    """At random places up to 20 from 0 in u and easiness, hyperparameters as far off as their priors allow."""
    terms = jax.jit(lambda items, hyper: item_terms(spec, items, UNIT, hyper, sums_at(spec, items))[1])
    rng, lowest = np.random.default_rng(1), []
    for _ in range(100):
        items = jnp.asarray(rng.normal(size=(ITEMS, 2)) * [6.0, 8.0])
        hyper = hyper_medians(spec) + jnp.asarray(rng.normal(size=len(spec.hyperparameters)))
        precision = np.asarray(terms(items, hyper))
        scale = np.sqrt(np.abs(np.einsum("jkk->jk", precision)))
        lowest.append(np.linalg.eigvalsh(precision / (scale[:, :, None] * scale[:, None, :])).min())
    assert min(lowest) > 0
