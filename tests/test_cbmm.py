"""cBMM: the paper's iterates, a loss that never rises, optima, gauge, and what it says about itself."""

import json
import warnings
from dataclasses import replace

import jax
import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.special import expit, log_expit

from bayes_irt.cbmm import default_start, fit_cbmm
from bayes_irt.errors import ConvergenceWarning, InvalidConfigurationError
from bayes_irt.estimate import Status
from bayes_irt.identify import canonicalize
from bayes_irt.parameters import Parameters
from bayes_irt.priors import HalfNormal, LearnedScale, LogNormal, Penalty, Priors
from bayes_irt.readers import read_responses
from bayes_irt.responses import Responses
from bayes_irt.solvers import Solver

LLMS, ITEMS = 14, 11
PENALTY = Penalty(ability_scale=0.8, discrimination_scale=1.2, easiness_location=0.4, easiness_scale=1.7)
EXACT = Solver(tolerance=1e-7, precision="float64")
SHORT = Solver(algorithm="paper", tolerance=0.0, max_cycles=60, precision="float64")


def awkward_suite(seed, most_attempts=1):
    """Return random responses with missing cells, a reversed item, and items and LLMs all right and all wrong."""
    rng = np.random.default_rng(seed)
    attempts = rng.integers(1, most_attempts + 1, (LLMS, ITEMS)) * (rng.random((LLMS, ITEMS)) > 0.2)
    attempts[:, 0] = attempts[0] = most_attempts
    slope = 1.5 * rng.exponential(1, ITEMS)
    slope[-1] = -3.0
    logit = rng.normal(size=(LLMS, 1)) * slope + rng.normal(size=ITEMS)
    successes = rng.binomial(attempts, expit(logit))
    successes[:, 1], successes[:, 2] = attempts[:, 1], 0
    successes[3], successes[4] = attempts[3], 0
    return Responses.from_arrays(successes, attempts)


def regular_suite():
    """Return a suite whose unpenalised optimum is finite."""
    rng = np.random.default_rng(1)
    logit = 0.8 * rng.normal(size=(LLMS, 1)) + 0.5 * rng.normal(size=ITEMS)
    return Responses.from_arrays(rng.binomial(6, expit(logit)), np.full((LLMS, ITEMS), 6))


def dense_loss(parameters, responses, sigma=1.0, penalty=None):
    """Return the loss from its formula, term by term."""
    eta = (parameters.ability @ parameters.discrimination.T + parameters.easiness) / sigma
    y, n = responses.successes.astype(float), responses.attempts.astype(float)
    loss = -(y * log_expit(eta) + (n - y) * log_expit(-eta)).sum()
    if penalty is not None:
        loss += (parameters.ability**2).sum() / (2 * penalty.ability_scale**2)
        loss += (parameters.discrimination**2).sum() / (2 * penalty.discrimination_scale**2)
        off = parameters.easiness - penalty.easiness_location
        loss += (off**2).sum() / (2 * penalty.easiness_scale**2)
    return loss


def fit_short(responses, algorithm="paper", **options):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        return fit_cbmm(responses, solver=replace(SHORT, algorithm=algorithm), **options)


def assert_parameters(found, wanted, *, rtol=0.0, atol):
    for name in ("ability", "discrimination", "easiness"):
        np.testing.assert_allclose(getattr(found, name), getattr(wanted, name), rtol=rtol, atol=atol)


# --- the paper's own program -------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def math500(data_dir):
    return read_responses(data_dir / "math500_paper.parquet")


@pytest.mark.parametrize(
    "case",
    [
        "complete_stop_1e-4",
        "complete_200_iterations",
        "sigma_0.5",
        "sigma_2",
        "masked_20pct_stop_1e-4",
        "rank2_stop_1e-4",
    ],
)
def test_golden_iterates(case, math500, golden_dir):
    golden = json.loads((golden_dir / "cbmm_math500.json").read_text())[case]
    responses = math500
    if golden["missing_cells"] is not None:
        i, j = np.indices(responses.attempts.shape)
        attempts = np.where((7 * i + 11 * j) % 5 == 0, 0, 1)
        responses = Responses.from_arrays(responses.successes * attempts, attempts)
    options = {"sigma": golden["sigma"], "num_traits": golden["rank"]}
    if golden["stop"] == "after 200 iterations":
        solver = Solver(
            algorithm="paper", stop="relative loss", tolerance=0.0, max_cycles=200, precision="float64"
        )
        with pytest.warns(ConvergenceWarning, match="cycle limit"):
            estimate = fit_cbmm(responses, solver=solver, **options)
    else:
        solver = Solver(algorithm="paper", stop="relative loss", precision="float64")
        estimate = fit_cbmm(responses, solver=solver, **options)
        assert estimate.status is Status.CONVERGED
    assert estimate.num_cycles == golden["n_iter"]
    np.testing.assert_allclose(estimate.loss_trace, golden["loss"], rtol=1e-9)
    wanted = Parameters(
        *(np.array(golden[name], dtype=float) for name in ("ability", "discrimination", "easiness"))
    )
    wanted = Parameters(
        wanted.ability.reshape(140, -1), wanted.discrimination.reshape(500, -1), wanted.easiness
    )
    assert_parameters(estimate.raw_parameters, wanted, rtol=1e-6, atol=1e-6)
    np.testing.assert_array_equal(estimate.raw_parameters.discrimination == 0, wanted.discrimination == 0)


# --- loss and optimum --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("algorithm", ["newton", "paper"])
@pytest.mark.parametrize("penalty", [None, PENALTY])
@pytest.mark.parametrize("sigma", [0.25, 1.0, 4.0])
@pytest.mark.parametrize(("most_attempts", "num_traits"), [(1, 1), (9, 2), (1, 3)])
def test_loss_never_rises_and_is_the_formula_s(most_attempts, sigma, num_traits, penalty, algorithm):
    responses = awkward_suite(seed=2, most_attempts=most_attempts)
    estimate = fit_short(responses, algorithm, sigma=sigma, num_traits=num_traits, penalty=penalty)
    start = dense_loss(default_start(responses, num_traits), responses, sigma, penalty)
    trace = np.array([start, *estimate.loss_trace])
    assert len(trace) == 61
    assert (np.diff(trace) <= 1e-12 * trace[:-1]).all()
    assert trace[-1] < 0.97 * trace[0]
    final = dense_loss(estimate.raw_parameters, responses, sigma, penalty)
    assert estimate.loss == pytest.approx(final, rel=1e-12)
    if penalty is None:
        assert dense_loss(estimate.parameters, responses, sigma) == pytest.approx(final, rel=1e-11)
    for parameters in (estimate.parameters, estimate.raw_parameters):
        assert (parameters.discrimination >= 0).all()
        assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(parameters))


def first_order_residual(parameters, responses, sigma, penalty):
    """Return the largest violation of the first-order conditions per attempt, in the scale where sigma is 1."""
    theta, slope, easiness = (
        parameters.ability,
        parameters.discrimination / sigma,
        parameters.easiness / sigma,
    )
    n = responses.attempts.astype(float)
    score = responses.successes - n * expit(theta @ slope.T + easiness)
    by_slope = score.T @ theta - slope * (sigma / penalty.discrimination_scale) ** 2
    by_slope = np.where(slope > 0, np.abs(by_slope), np.maximum(by_slope, 0.0))
    centre = penalty.easiness_location / sigma
    by_easiness = score.sum(axis=0) - (easiness - centre) * (sigma / penalty.easiness_scale) ** 2
    by_ability = score @ slope - theta / penalty.ability_scale**2
    return max(
        (by_slope / n.sum(axis=0)[:, None]).max(),
        np.abs(by_easiness / n.sum(axis=0)).max(),
        np.abs(by_ability / n.sum(axis=1)[:, None]).max(),
    )


@pytest.mark.parametrize("algorithm", ["newton", "paper"])
@pytest.mark.parametrize(("most_attempts", "sigma"), [(1, 1.0), (9, 1.0), (1, 2.0)])
def test_penalised_optimum_is_a_general_optimiser_s(most_attempts, sigma, algorithm):
    """Also where items and LLMs are constant, so that the unpenalised optimum is infinite."""
    responses = awkward_suite(seed=3, most_attempts=most_attempts)
    solver = replace(EXACT, algorithm=algorithm, max_cycles=20_000)
    estimate = fit_cbmm(responses, penalty=PENALTY, sigma=sigma, solver=solver)
    start = default_start(responses)

    def unpack(flat):
        theta, slope, easiness = np.split(flat, [LLMS, LLMS + ITEMS])
        return Parameters(theta[:, None], slope[:, None], easiness)

    def loss(flat):
        return dense_loss(unpack(flat), responses, sigma, PENALTY)

    def gradient(flat):
        p = unpack(flat)
        score = responses.successes - responses.attempts * expit(
            (p.ability @ p.discrimination.T + p.easiness) / sigma
        )
        by_theta = -score @ p.discrimination / sigma + p.ability / PENALTY.ability_scale**2
        by_slope = -score.T @ p.ability / sigma + p.discrimination / PENALTY.discrimination_scale**2
        off = p.easiness - PENALTY.easiness_location
        by_easiness = -score.sum(axis=0) / sigma + off / PENALTY.easiness_scale**2
        return np.concatenate([by_theta.ravel(), by_slope.ravel(), by_easiness])

    bounds = [(None, None)] * LLMS + [(0, None)] * ITEMS + [(None, None)] * ITEMS
    first = np.concatenate([start.ability.ravel(), start.discrimination.ravel(), start.easiness])
    other = minimize(
        loss,
        first,
        jac=gradient,
        bounds=bounds,
        method="L-BFGS-B",
        options={"maxiter": 20_000, "maxfun": 100_000, "ftol": 1e-15, "gtol": 1e-8},
    )
    assert estimate.status is Status.CONVERGED
    assert estimate.loss == pytest.approx(other.fun, rel=1e-6)
    assert_parameters(estimate.raw_parameters, unpack(other.x), atol=1e-3)
    residual = first_order_residual(estimate.raw_parameters, responses, sigma, PENALTY)
    assert estimate.kkt_residual == pytest.approx(residual, abs=1e-12)
    assert residual < 1e-7
    largest = max(np.abs(leaf).max() for leaf in jax.tree.leaves(estimate.raw_parameters))
    assert largest < 10
    assert estimate.raw_parameters.discrimination[-1] == 0


def test_kkt_residual_away_from_the_optimum():
    responses = awkward_suite(seed=4, most_attempts=9)
    estimate = fit_short(responses, penalty=PENALTY, sigma=0.5)
    residual = first_order_residual(estimate.raw_parameters, responses, 0.5, PENALTY)
    assert residual > 1e-4
    assert estimate.kkt_residual == pytest.approx(residual, rel=1e-9)


def test_unpenalised_separated_items_grow_where_the_penalised_stay():
    responses = awkward_suite(seed=5)
    early = fit_short(responses).raw_parameters.easiness
    with pytest.warns(ConvergenceWarning, match="separated"):
        late = fit_cbmm(responses, solver=replace(SHORT, max_cycles=600)).raw_parameters.easiness
    assert late[1] > early[1] + 1
    assert late[2] < early[2] - 1
    penalised = fit_cbmm(responses, penalty=PENALTY, solver=EXACT)
    assert penalised.status is Status.CONVERGED
    assert {"item-0002", "item-0003"} <= set(penalised.separated_items)
    assert {"llm-004", "llm-005"} <= set(penalised.separated_llms)


def test_priors_are_the_penalty_they_amount_to():
    responses = awkward_suite(seed=6)
    priors = Priors(discrimination=HalfNormal(LearnedScale(median=2.5)))
    by_priors = fit_short(responses, penalty=priors)
    by_penalty = fit_short(responses, penalty=Penalty(discrimination_scale=2.5))
    assert by_priors == by_penalty
    assert by_priors.provenance.configuration["penalty"]["discrimination_scale"] == 2.5
    assert by_priors != fit_short(responses, penalty=Priors())


# --- invariances -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("num_traits", [1, 2])
def test_estimates_are_in_the_canonical_gauge(num_traits):
    estimate = fit_short(awkward_suite(seed=7), num_traits=num_traits)
    np.testing.assert_allclose(estimate.parameters.ability.mean(axis=0), 0, atol=1e-12)
    np.testing.assert_allclose(estimate.parameters.ability.std(axis=0), 1, rtol=1e-12)
    assert_parameters(estimate.parameters, canonicalize(estimate.raw_parameters), atol=1e-12)
    assert ("trait" in estimate.dataset.dims) == (num_traits > 1)


def test_permuting_rows_and_columns_permutes_the_result():
    responses = awkward_suite(seed=8, most_attempts=9)
    rng = np.random.default_rng(9)
    rows, columns = rng.permutation(LLMS), rng.permutation(ITEMS)
    moved = Responses.from_arrays(
        responses.successes[np.ix_(rows, columns)],
        responses.attempts[np.ix_(rows, columns)],
        llms=np.array(responses.llms)[rows],
        items=np.array(responses.items)[columns],
    )
    one, other = fit_short(responses), fit_short(moved)
    np.testing.assert_allclose(one.loss_trace, other.loss_trace, rtol=1e-12)
    variables = ["ability", "discrimination", "easiness", "raw_ability", "separated_llm", "separated_item"]
    for name in variables:
        mine = one.dataset[name].sel({d: other.dataset[d] for d in one.dataset[name].dims})
        np.testing.assert_allclose(mine.astype(float), other.dataset[name].astype(float), atol=1e-8)


@pytest.mark.parametrize("sigma", [0.25, 4.0])
def test_sigma_scales_discriminations_and_easinesses(sigma):
    responses = awkward_suite(seed=10)
    start = default_start(responses)
    scaled = Parameters(start.ability, sigma * start.discrimination, sigma * start.easiness)
    one = fit_short(responses, start=start)
    other = fit_short(responses, start=scaled, sigma=sigma)
    np.testing.assert_allclose(other.loss_trace, one.loss_trace, rtol=1e-12)
    wanted = one.raw_parameters
    wanted = Parameters(wanted.ability, sigma * wanted.discrimination, sigma * wanted.easiness)
    assert_parameters(other.raw_parameters, wanted, rtol=1e-9, atol=1e-9)


def test_optimum_does_not_depend_on_the_start():
    responses = regular_suite()
    first = default_start(responses)
    rng = np.random.default_rng(11)
    other = Parameters(
        first.ability + 0.3 * rng.normal(size=(LLMS, 1)),
        first.discrimination * rng.uniform(0.5, 2, (ITEMS, 1)),
        np.zeros(ITEMS),
    )
    one, two = (fit_cbmm(responses, penalty=PENALTY, solver=EXACT, start=s) for s in (None, other))
    assert_parameters(one.raw_parameters, two.raw_parameters, atol=1e-4)
    assert one.provenance.configuration["start"] == "default"
    assert two.provenance.configuration["start"] == "given"


def test_mixed_precision_agrees_with_float64():
    responses = awkward_suite(seed=12, most_attempts=9)
    double = fit_cbmm(responses, penalty=PENALTY, solver=EXACT)
    mixed = fit_cbmm(responses, penalty=PENALTY, solver=Solver(tolerance=1e-5))
    assert mixed.status is Status.CONVERGED
    assert mixed.loss == pytest.approx(double.loss, rel=1e-6)
    assert_parameters(mixed.parameters, double.parameters, atol=5e-3)


def test_answers_of_equal_llms_give_equal_abilities():
    """Accuracies that are all the same, with a mean that is not exactly the same number."""
    successes = np.array([[1, 0, 0, 0, 0, 0, 0, 0, 0, 0]] * 3)
    assert np.std(successes.mean(axis=1)) > 0
    start = default_start(Responses.from_arrays(successes))
    assert np.abs(start.ability).max() < 1e-12
    estimate = fit_cbmm(Responses.from_arrays(successes), penalty=Priors())
    np.testing.assert_array_equal(estimate.parameters.ability, 0.0)


# --- what an estimate says about itself --------------------------------------------------------------------------


def test_status_change_and_tolerance():
    responses = awkward_suite(seed=13, most_attempts=9)
    estimate = fit_cbmm(responses, penalty=Priors())
    assert estimate.status is Status.CONVERGED
    assert estimate.change < 1e-4
    assert estimate.kkt_residual < 1e-4
    assert estimate.num_cycles == len(estimate.loss_trace) < 10_000
    assert "converged" in repr(estimate)
    assert estimate.provenance.method == "cbmm"
    assert estimate.provenance.data_digest == responses.digest
    assert estimate.provenance.configuration["solver"]["tolerance"] == 1e-4
    assert (estimate.llms, estimate.items) == (responses.llms, responses.items)


def test_cycle_limit_warns_and_is_recorded():
    with pytest.warns(ConvergenceWarning, match=r"cycle limit after 60 cycles.*max_cycles") as caught:
        estimate = fit_cbmm(awkward_suite(seed=13), solver=SHORT)
    assert caught[0].filename == __file__
    assert estimate.status is Status.CYCLE_LIMIT
    assert estimate.num_cycles == 60
    assert "cycle limit after 60 cycles" in repr(estimate)


def test_no_cycles_return_the_start():
    responses = awkward_suite(seed=13)
    with pytest.warns(ConvergenceWarning):
        estimate = fit_cbmm(responses, solver=Solver(max_cycles=0))
    assert_parameters(estimate.raw_parameters, default_start(responses), atol=1e-12)
    assert estimate.num_cycles == 0
    assert np.isnan(estimate.loss)


@pytest.mark.parametrize("num_traits", [1, 2])
def test_separated_items_and_llms_are_listed(num_traits):
    """An item that all solve, one that only the LLM solves that solves everything, and that LLM."""
    rng = np.random.default_rng(14)
    successes = rng.binomial(6, expit(rng.normal(size=(LLMS, 1)) + rng.normal(size=ITEMS)))
    successes = np.clip(successes, 1, 5)
    successes[:, 2], successes[:, 5] = 6, 0
    successes[7] = 6
    responses = Responses.from_arrays(successes, np.full((LLMS, ITEMS), 6))
    estimate = fit_short(responses, num_traits=num_traits, penalty=PENALTY)
    assert estimate.separated_items == ("item-0003", "item-0006")
    assert estimate.separated_llms == ("llm-008",)
    assert "2 separated items" in repr(estimate)


# --- starts and bad options --------------------------------------------------------------------------------------


def test_default_start_by_hand():
    responses = Responses.from_arrays(
        [[3, 0, 1, 2], [1, 1, 0, 0], [4, 0, 0, 1]], [[4, 2, 1, 2], [1, 1, 4, 0], [4, 4, 4, 4]]
    )
    one = default_start(responses)
    accuracy = np.array([6 / 9, 2 / 6, 5 / 16])
    np.testing.assert_allclose(one.ability[:, 0], (accuracy - accuracy.mean()) / accuracy.std())
    np.testing.assert_array_equal(one.discrimination, 1.0)
    np.testing.assert_allclose(one.easiness, np.log([8.5 / 1.5, 1.5 / 6.5, 1.5 / 8.5, 3.5 / 3.5]))
    two = default_start(responses, num_traits=2)
    odd = np.array([2 / 4, 1 / 1, 1 / 8])
    np.testing.assert_allclose(two.ability[:, 1], (odd - odd.mean()) / odd.std())
    np.testing.assert_array_equal(two.discrimination, [[1, 0.25], [0.25, 1], [1, 0.25], [0.25, 1]])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"sigma": 0.0}, "sigma"),
        ({"sigma": -1.0}, "sigma"),
        ({"sigma": float("nan")}, "sigma"),
        ({"sigma": float("inf")}, "sigma"),
        ({"sigma": "1"}, "sigma"),
        ({"sigma": 1e160}, "sigma"),
        ({"penalty": "strong"}, "penalty"),
        ({"num_traits": 1.5}, "num_traits"),
        ({"num_traits": True}, "num_traits"),
        ({"num_traits": 0}, "num_traits"),
        ({"num_traits": ITEMS + 1}, f"num_traits is {ITEMS + 1}.*1 to {ITEMS}"),
        ({"penalty": Priors(discrimination=LogNormal())}, "LogNormal"),
        ({"start": "short"}, "shapes"),
        ({"start": "flat"}, "shapes"),
        ({"start": "negative"}, "negative"),
        ({"start": "nan"}, "non-finite"),
        ({"start": "infinite"}, "non-finite"),
    ],
)
def test_bad_options_raise_before_anything_is_traced(options, message):
    responses = awkward_suite(seed=15)
    good = default_start(responses)
    starts = {
        "short": Parameters(good.ability[1:], good.discrimination, good.easiness),
        "flat": Parameters(good.ability[:, 0], good.discrimination, good.easiness),
        "negative": Parameters(good.ability, -good.discrimination, good.easiness),
        "nan": Parameters(good.ability * np.nan, good.discrimination, good.easiness),
        "infinite": Parameters(good.ability, good.discrimination, good.easiness + np.inf),
    }
    if "start" in options:
        options = {"start": starts[options["start"]]}
    with pytest.raises(InvalidConfigurationError, match=message):
        fit_cbmm(responses, **options)
