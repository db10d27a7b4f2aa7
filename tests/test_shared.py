"""What all cells share, against a dense likelihood of another form; Laplace of a 1PL and with dispersion near NUTS.

The dense likelihood is written with beta functions where the package multiplies factors; derivatives are differences.
"""

from functools import cache
from typing import NamedTuple

import arviz
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.special import betaln, expit

from bayes_irt.approximation_checks import check_approximation
from bayes_irt.cbmm import fit_cbmm
from bayes_irt.checks import Outcome
from bayes_irt.diagnostics import check_posterior
from bayes_irt.inference.laplace import fit_laplace
from bayes_irt.inference.nuts import Sampler, fit_nuts
from bayes_irt.inference.outer_terms import item_points
from bayes_irt.inference.place import Place, parameters_of, sites_of
from bayes_irt.inference.shared import observed_at, shared_couplings, shared_places, shared_terms
from bayes_irt.item_law import ItemGroups, ItemLaw
from bayes_irt.likelihood import tile_cells
from bayes_irt.model_spec import ModelSpec
from bayes_irt.posterior import Posterior
from bayes_irt.priors import Common, Priors
from bayes_irt.simulate import SuiteDesign, simulate_suite

LLMS, ITEMS = 8, 10
GROUPS = ItemGroups(("a", "b"), np.array([0, 1, 1, 0, 0, 1, 0, 1, 1, 0], dtype=np.int32))
FLOOR = np.linspace(0.0, 0.4, ITEMS)
SPECS = {
    "1PL": ModelSpec(Priors(Common()), observation="binomial"),
    "dispersion": ModelSpec(observation="beta-binomial", dispersion_groups="kind"),
    "both": ModelSpec(Priors(Common()), floor="guess", observation="beta-binomial", dispersion_groups="kind"),
}
PLACES = {"1PL": [0], "dispersion": [3, 4], "both": [0, 3, 4]}
every_spec = pytest.mark.parametrize("name", SPECS)


@pytest.fixture(autouse=True)
def _x64():
    with jax.enable_x64(True):
        yield


class Case(NamedTuple):
    """A place away from any mode, and data that have nothing to do with it."""

    spec: ModelSpec
    place: Place
    unit: np.ndarray
    covariance: np.ndarray
    counts: tuple
    cells: object


def case_of(name):
    spec, rng = SPECS[name], np.random.default_rng(0)
    attempts = rng.integers(0, 7, (LLMS, ITEMS)).astype(np.uint8)
    counts = rng.binomial(attempts, 0.6).astype(np.uint8), attempts
    law = ItemLaw(FLOOR if spec.floor is not None else None, GROUPS if spec.dispersed else None, None)
    hyper = [0.3, -0.2, 0.4, *([-1.5, 0.2] if spec.dispersed else [])]
    place = Place(
        jnp.asarray(rng.normal(size=LLMS)), jnp.asarray(rng.normal(size=(ITEMS, 2))), jnp.asarray(hyper)
    )
    root = 0.3 * rng.normal(size=(ITEMS, 2, 2))
    covariance = root @ np.swapaxes(root, 1, 2) + 0.05 * np.eye(2)
    return Case(spec, place, 0.5 + rng.random(ITEMS), covariance, counts, tile_cells(*counts, "float64", law))


def dense(case, hyper, items, ability):
    """Return the log-likelihood from beta functions; items may be a batch."""
    successes, attempts = (count.astype(float) for count in case.counts)
    common = isinstance(case.spec.priors.discrimination, Common)
    slope = np.exp(hyper[0]) if common else case.unit * np.logaddexp(0, items[..., 0])
    eta = ability[:, None] * np.expand_dims(slope, -2 if np.ndim(slope) else 0) + items[..., None, :, 1]
    floor = FLOOR if case.spec.floor is not None else np.zeros(ITEMS)
    right, wrong = floor + (1 - floor) * expit(eta), (1 - floor) * expit(-eta)
    if case.spec.dispersed:
        rho = expit(hyper[3:])[GROUPS.number]
        alpha, beta = right * (1 - rho) / rho, wrong * (1 - rho) / rho
        cells = betaln(alpha + successes, beta + attempts - successes) - betaln(alpha, beta)
    else:
        cells = successes * np.log(right) + (attempts - successes) * np.log(wrong)
    return cells.sum(axis=(-2, -1))


def slope_of(function, at, entry, step=1e-2):
    """Return a derivative by one entry, from five points: off by a thirtieth of step^4 times the fifth derivative."""

    def moved(share):
        other = np.array(at)
        other[entry] += share * step
        return function(other)

    return (moved(-2) - 8 * moved(-1) + 8 * moved(1) - moved(2)) / (12 * step)


def quadrature(case):
    """Return the points and weights of three by three nodes of a Gauss-Hermite rule, from NumPy's."""
    nodes, weights = np.polynomial.hermite_e.hermegauss(3)
    weights = weights / weights.sum()
    root = np.linalg.cholesky(case.covariance)
    points = [np.asarray(case.place.items) + root @ np.array([u, v]) for u in nodes for v in nodes]
    return np.array(points), np.outer(weights, weights).ravel()


@every_spec
def test_what_is_shared_is_where_it_should_be(name):
    case = case_of(name)
    assert shared_places(case.spec, case.cells).tolist() == PLACES[name]
    assert len(shared_places(ModelSpec(observation="binomial"), tile_cells(*case.counts))) == 0


def test_points_are_those_of_the_rule():
    case = case_of("1PL")
    found, wanted = item_points(case.place.items, jnp.asarray(case.covariance)), quadrature(case)
    np.testing.assert_allclose(found[0], wanted[0], rtol=1e-12)
    np.testing.assert_allclose(found[1], wanted[1], rtol=1e-12)


@every_spec
def test_cells_are_those_of_the_hyperparameters(name):
    case = case_of(name)
    shaped = observed_at(case.spec, case.cells, case.place.hyper)
    if not case.spec.dispersed:
        assert shaped is case.cells
        return
    rho = 1 / (1 + np.exp(-np.asarray(case.place.hyper)[3:]))
    np.testing.assert_allclose(shaped.shape[1], rho[GROUPS.number])
    np.testing.assert_array_equal(shaped.shape[0], case.cells.shape[0])


@every_spec
def test_expected_scores_and_information_are_derivatives_of_the_expected_likelihood(name):
    case = case_of(name)
    points, weights = quadrature(case)
    places, ability = PLACES[name], np.asarray(case.place.ability)

    def expected(hyper):
        return weights @ dense(case, hyper, points, ability)

    def scores(hyper):
        return np.array([slope_of(expected, hyper, place) for place in places])

    run = jax.jit(shared_terms, static_argnames="spec")
    score, information = run(case.spec, case.place, case.unit, case.covariance, case.cells)
    hyper = np.asarray(case.place.hyper)
    wanted = scores(hyper)
    np.testing.assert_allclose(score, wanted, rtol=1e-7, atol=1e-6)
    bend = -np.array([slope_of(scores, hyper, place) for place in places])
    np.testing.assert_allclose(information, bend, rtol=1e-6, atol=1e-5)
    # control: at the items' modes, as if they were known
    known = run(case.spec, case.place, case.unit, 1e-9 * case.covariance, case.cells)[0]
    assert np.abs(known - wanted).max() > 0.01


@every_spec
def test_couplings_are_mixed_second_derivatives(name):
    case = case_of(name)
    hyper, items, ability = (
        np.asarray(leaf) for leaf in (case.place.hyper, case.place.items, case.place.ability)
    )
    by_item, by_llm = jax.jit(shared_couplings, static_argnames="spec")(
        case.spec, case.place, case.unit, case.cells
    )
    for number, place in enumerate(PLACES[name]):

        def score(items, ability, place=place):
            return slope_of(lambda hyper: dense(case, hyper, items, ability), hyper, place)

        wanted = [-slope_of(lambda at: score(at, ability), items, entry) for entry in np.ndindex(items.shape)]
        np.testing.assert_allclose(by_item[number].ravel(), wanted, rtol=1e-6, atol=1e-6)
        wanted = [-slope_of(lambda at: score(items, at), ability, entry) for entry in range(LLMS)]
        np.testing.assert_allclose(by_llm[:, number], wanted, rtol=1e-6, atol=1e-6)


@every_spec
def test_sites_are_the_parameters_of_places(name):
    """A common discrimination takes over the scale of abilities that are not in the gauge."""
    case, rng = case_of(name), np.random.default_rng(1)
    places = jax.tree.map(lambda leaf: leaf + 0.1 * rng.normal(size=(5, *leaf.shape)), case.place)
    sites = sites_of(case.spec, places, jnp.asarray(case.unit))
    for draw in range(5):
        one = jax.tree.map(lambda leaf, draw=draw: leaf[draw], places)
        parameters = parameters_of(case.spec, one, jnp.asarray(case.unit))
        np.testing.assert_allclose(sites["discrimination"][0, draw], parameters.discrimination)
        np.testing.assert_allclose(sites["ability"][0, draw, :, 0], one.ability)
        if case.spec.dispersed:
            rho = 1 / (1 + np.exp(-np.asarray(one.hyper)[3:]))
            np.testing.assert_allclose(sites["dispersion"][0, draw], rho)
        if isinstance(case.spec.priors.discrimination, Common):
            in_gauge = np.asarray(parameters.discrimination) * np.std(one.ability)
            np.testing.assert_allclose(np.exp(sites["discrimination_location"][0, draw]), in_gauge.ravel())


# Laplace near NUTS

SUITE = (30, 50)
SAMPLER = Sampler(num_chains=2, num_warmup=200, num_draws=1000)
FITS = {
    "1PL": (ModelSpec(Priors(Common()), observation="binomial"), SuiteDesign(attempts=8)),
    "dispersion": (ModelSpec(), SuiteDesign(attempts=8, cell_sd=1.2)),
}


@cache
def fits(name):
    """Return Laplace's and NUTS's posteriors of one suite."""
    spec, design = FITS[name]
    responses = simulate_suite(*SUITE, design=design, seed=1).responses
    with jax.enable_x64(False):
        estimate = fit_cbmm(responses, penalty=Priors())
        laplace = fit_laplace(responses, spec=spec, estimate=estimate, num_draws=4000)
        return laplace, fit_nuts(responses, spec=spec, estimate=estimate, sampler=SAMPLER, seed=1)


def moments(draws):
    values = draws.stack(sample=("chain", "draw")).to_numpy()
    return values.mean(axis=-1), values.std(axis=-1)


def assert_near_nuts(laplace, nuts):
    """Monte Carlo errors are .04 of a mean's sd and .03 of an sd at most."""
    for site in nuts.draws:
        assert float(arviz.ess(nuts.draws[site]).min()) > 400, site
        (mean, sd), (wanted, wanted_sd) = moments(laplace.draws[site]), moments(nuts.draws[site])
        ratio = np.log(sd / wanted_sd)
        assert abs(np.median(ratio)) < np.log(1.1), site
        assert np.abs(ratio).max() < np.log(1.3), site
        assert np.abs((mean - wanted) / wanted_sd).max() < 0.2, site


@pytest.mark.parametrize("name", FITS)
def test_laplace_is_near_nuts(name):
    laplace, nuts = fits(name)
    assert set(laplace.draws) == set(nuts.draws)
    report = check_posterior(nuts)
    assert {report[check].outcome for check in ("R-hat", "divergences", "E-BFMI")} == {Outcome.PASS}
    settled = {check.name: check.outcome for check in check_approximation(laplace)}
    assert settled["mode"] is settled["mean"] is Outcome.PASS
    assert_near_nuts(laplace, nuts)
    shared = {"1PL": "discrimination_location", "dispersion": "dispersion"}[name]
    draws, over = laplace.draws[shared], ("chain", "draw")
    for wrong in (draws.mean(over) + 0.8 * (draws - draws.mean(over)), draws + 0.35 * draws.std(over)):
        tree = laplace.tree.assign({})
        tree["posterior"] = laplace.draws.assign({shared: wrong})
        with pytest.raises(AssertionError):
            assert_near_nuts(Posterior(tree, laplace.provenance), nuts)


def test_all_items_of_a_1pl_discriminate_alike():
    for posterior in fits("1PL"):
        draws = posterior.draws
        assert "discrimination_scale" not in draws
        common = np.exp(draws["discrimination_location"])
        np.testing.assert_allclose(
            draws["discrimination"], common.expand_dims(item=draws["item"], axis=-1), rtol=1e-5
        )


def test_dispersion_is_found_where_attempts_hang_together():
    """The same suite's independent attempts have next to none."""
    (_, nuts), (spec, _) = fits("dispersion"), FITS["dispersion"]
    assert nuts.spec == spec.settled(8)
    assert (
        0.1 < float(nuts.draws["dispersion"].quantile(0.001)) < float(nuts.draws["dispersion"].mean()) < 0.35
    )
    independent = simulate_suite(*SUITE, design=SuiteDesign(attempts=8), seed=1).responses
    with jax.enable_x64(False):
        laplace = fit_laplace(independent, num_draws=400)
    assert float(laplace.draws["dispersion"].quantile(0.99)) < 0.05
