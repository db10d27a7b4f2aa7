"""The accelerated solver of cBMM: the paper's optima in fewer passes, zero patterns, starts, compilation."""

import warnings
from dataclasses import replace

import jax
import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from scipy.special import expit

from bayes_irt.cbmm import default_start, fit_cbmm
from bayes_irt.compilation import compile_clock
from bayes_irt.errors import ConvergenceWarning, InvalidConfigurationError
from bayes_irt.estimate import PointEstimate, Status
from bayes_irt.parameters import Parameters
from bayes_irt.priors import Penalty, Priors
from bayes_irt.readers import read_responses
from bayes_irt.responses import Responses
from bayes_irt.simulate import SuiteDesign, simulate_suite
from bayes_irt.solvers import Solver

EXACT = Solver(tolerance=1e-8, precision="float64", max_cycles=5000)
LLMS, ITEMS = 24, 30


def quietly(responses, **options):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        return fit_cbmm(responses, **options)


def counts(seed, traits=1, most_attempts=5, size=(LLMS, ITEMS)):
    rng = np.random.default_rng(seed)
    logit = rng.normal(size=(size[0], traits)) @ rng.exponential(0.8, (size[1], traits)).T + rng.normal(
        size=size[1]
    )
    attempts = rng.integers(0 if most_attempts > 1 else 1, most_attempts + 1, size)
    attempts[:, 0] = attempts[0] = most_attempts
    return Responses.from_arrays(rng.binomial(attempts, expit(logit)), attempts)


def assert_same_fit(one, other, atol):
    for name in ("ability", "discrimination", "easiness"):
        mine, theirs = (getattr(fit.parameters, name) for fit in (one, other))
        np.testing.assert_allclose(mine, theirs, atol=atol)


# --- the same answer in fewer passes -----------------------------------------------------------------------------


@pytest.mark.parametrize("sigma", [0.5, 2.0])
@pytest.mark.parametrize("most_attempts", [1, 5])
def test_stationary_points_are_the_paper_s(most_attempts, sigma):
    responses = counts(1, most_attempts=most_attempts)
    one = fit_cbmm(responses, penalty=Priors(), sigma=sigma, solver=EXACT)
    other = fit_cbmm(
        responses, penalty=Priors(), sigma=sigma, solver=replace(EXACT, algorithm="paper", max_cycles=20_000)
    )
    assert one.status is other.status is Status.CONVERGED
    assert max(one.kkt_residual, other.kkt_residual) < 1e-8
    assert one.loss == pytest.approx(other.loss, rel=1e-10)
    assert_same_fit(one, other, atol=1e-4)
    assert one.num_passes < other.num_passes / 3


def passes_to(estimate_with, wanted):
    """Return after how many passes the loss is within 1e-4 of the one wanted, by running so many cycles."""
    for cycles in range(1, 60):
        estimate = estimate_with(cycles)
        if estimate.loss <= wanted * (1 + 1e-4):
            return estimate.num_passes
    raise AssertionError("not in 60 cycles")


@pytest.mark.parametrize(("penalty", "best"), [(None, 24432.614), (Priors(), 25123.8796)])
def test_math500_takes_few_passes(penalty, best, data_dir):
    """The best losses found by any method; the paper's cycle needs over 600 passes without a penalty."""
    responses = read_responses(data_dir / "math500_paper.parquet")
    passes = passes_to(
        lambda cycles: quietly(responses, penalty=penalty, solver=Solver(max_cycles=cycles, tolerance=0.0)),
        best,
    )
    assert passes <= 40


@pytest.mark.parametrize("precision", ["mixed", "float64"])
@pytest.mark.parametrize("traits", [1, 2])
@pytest.mark.parametrize("kind", ["random", "constant", "one cell a row", "identical rows", "collinear"])
def test_any_input_ends_finite_and_monotone(kind, traits, precision):
    responses = awkward(kind)
    for penalty in (None, Priors()):
        estimate = quietly(
            responses, penalty=penalty, num_traits=traits, solver=Solver(precision=precision, max_cycles=300)
        )
        assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(estimate.raw_parameters))
        assert np.isfinite(estimate.kkt_residual)
        begin = quietly(
            responses, penalty=penalty, num_traits=traits, solver=Solver(max_cycles=0, precision=precision)
        )
        assert begin.num_passes == 1
        trace = np.array([start_loss(begin), *estimate.loss_trace])
        slack = 2e-7 if precision == "mixed" else 2e-13
        assert (np.diff(trace) <= slack * np.abs(trace[:-1])).all()
        if penalty is not None:
            assert estimate.status in (Status.CONVERGED, Status.LOSS_SETTLED)
        if estimate.status is Status.CONVERGED:
            assert max(estimate.change, estimate.kkt_residual) < 1e-4


def start_loss(estimate):
    """Return the loss at a start, penalty included."""
    return float(estimate.dataset["start_loss"][0])


def awkward(kind):
    rng = np.random.default_rng(7)
    base = (rng.random((LLMS, ITEMS)) < 0.5).astype(int)
    attempts = np.ones_like(base)
    if kind == "constant":
        base[:, :5], base[:3] = 1, 0
    elif kind == "one cell a row":
        base, attempts = np.tile(base, (3, 1)), np.zeros((3 * LLMS, ITEMS), dtype=int)
        attempts[np.arange(3 * LLMS), np.arange(3 * LLMS) % ITEMS] = 1
        base = base * attempts
    elif kind == "identical rows":
        base[1:] = base[0]
    elif kind == "collinear":
        base[:, 10:20], base[:, 20:] = base[:, :10], base[:, :10]
    return Responses.from_arrays(base, attempts)


@settings(max_examples=15, deadline=None)
@given(st.integers(0, 10_000), st.integers(0, 10_000))
def test_orders_do_not_depend_on_the_order_of_rows_and_columns(seed, shuffle):
    responses = counts(seed, size=(10, 12))
    rng = np.random.default_rng(shuffle)
    rows, columns = rng.permutation(10), rng.permutation(12)
    moved = Responses.from_arrays(
        responses.successes[np.ix_(rows, columns)], responses.attempts[np.ix_(rows, columns)]
    )
    one, other = (fit_cbmm(r, penalty=Penalty(), solver=EXACT) for r in (responses, moved))
    assume(one.loss == pytest.approx(other.loss, rel=1e-9))  # else another local optimum
    np.testing.assert_allclose(one.parameters.ability[rows], other.parameters.ability, atol=1e-4)
    np.testing.assert_allclose(
        one.parameters.discrimination[columns], other.parameters.discrimination, atol=1e-4
    )


@settings(max_examples=15, deadline=None)
@given(st.floats(-3, 3), st.floats(0.3, 3.0))
def test_the_answer_does_not_depend_on_the_gauge_of_the_start(location, scale):
    """Without a penalty all gauges have one loss, and the canonical parameters are the same."""
    responses = counts(3, most_attempts=5)
    start = default_start(responses)
    moved = Parameters(
        location + scale * start.ability,
        start.discrimination / scale,
        start.easiness - location / scale * start.discrimination[:, 0],
    )
    one, other = (fit_cbmm(responses, start=s, solver=replace(EXACT, tolerance=1e-6)) for s in (start, moved))
    assert other.loss == pytest.approx(one.loss, rel=1e-9)
    assert_same_fit(one, other, atol=1e-3)


@pytest.mark.parametrize(("attempts", "base"), [(1000, 3.0), (5000, 6.0)])
def test_many_attempts_do_not_hide_the_gauge_that_the_penalty_wants(attempts, base):
    """The data do not tell location and scale, and a residual per attempt hides the penalty's pull."""
    rng = np.random.default_rng(3)
    logit = rng.normal(size=(30, 1)) * rng.uniform(0.5, 2, 40) + base + rng.normal(size=40)
    responses = Responses.from_arrays(rng.binomial(attempts, expit(logit)), np.full((30, 40), attempts))
    penalty = Penalty(ability_scale=0.7, discrimination_scale=1.2, easiness_location=1.0)
    estimate = fit_cbmm(responses, penalty=penalty, solver=Solver(precision="float64"))
    assert estimate.status is Status.CONVERGED
    assert estimate.num_cycles < 30
    raw = estimate.raw_parameters
    by_ability = np.sum(raw.ability**2) / penalty.ability_scale**2
    by_slope = np.sum(raw.discrimination**2) / penalty.discrimination_scale**2
    off = (raw.easiness - penalty.easiness_location) / penalty.easiness_scale**2
    location = raw.discrimination[:, 0] @ off - raw.ability.sum() / penalty.ability_scale**2
    assert by_ability == pytest.approx(by_slope, rel=1e-6)
    assert location == pytest.approx(0, abs=1e-6 * by_ability)
    again = fit_cbmm(responses, penalty=penalty, start=raw, solver=EXACT)
    assert again.loss == pytest.approx(estimate.loss, rel=1e-9)
    assert_same_fit(estimate, again, atol=1e-3)


@pytest.mark.parametrize("scale", [1.0, 100.0])
@pytest.mark.parametrize("algorithm", ["newton", "paper"])
def test_an_llm_without_information_is_where_the_penalty_puts_it(algorithm, scale):
    rng = np.random.default_rng(2)
    attempts = np.ones((30, 20), dtype=int)
    attempts[5, 1:] = 0
    loads = np.ones((20, 1), dtype=bool)
    loads[0] = False
    responses = Responses.from_arrays(rng.integers(0, 2, (30, 20)) * attempts, attempts)
    solver = replace(EXACT, algorithm=algorithm, tolerance=1e-5)
    estimate = quietly(responses, loads=loads, penalty=Penalty(ability_scale=scale), solver=solver)
    raw = estimate.raw_parameters.ability[:, 0]
    assert abs(raw[5]) < 1e-3 * raw.std()


@pytest.mark.parametrize("far", [100.0, 1e5])
def test_a_start_far_off_in_gauge_alone_is_as_good(far):
    rng = np.random.default_rng(4)
    logit = 0.8 * rng.normal(size=(40, 1)) + 0.5 * rng.normal(size=30)
    responses = Responses.from_arrays(rng.binomial(5, expit(logit)), np.full((40, 30), 5))
    start = default_start(responses)
    moved = Parameters(
        start.ability + far, start.discrimination, start.easiness - far * start.discrimination[:, 0]
    )
    one, other = (fit_cbmm(responses, start=s) for s in (start, moved))
    assert one.status is other.status is Status.CONVERGED
    assert other.loss == pytest.approx(one.loss, rel=1e-6)


def test_a_small_sigma_is_no_harder():
    responses = simulate_suite(40, 60, seed=1).responses
    estimate = fit_cbmm(responses, penalty=Priors(), sigma=0.01)
    assert estimate.status is Status.CONVERGED
    assert estimate.num_cycles < 200


# --- stopping ----------------------------------------------------------------------------------------------------


def test_what_has_no_finite_estimate_ends_with_a_settled_loss():
    responses = counts(9, most_attempts=5)
    successes = responses.successes.copy()
    successes[:, 4] = responses.attempts[:, 4]
    responses = Responses.from_arrays(successes, responses.attempts)
    with pytest.warns(
        ConvergenceWarning, match=r"loss settled after \d+ cycles.*give one.*1 items"
    ) as caught:
        estimate = fit_cbmm(responses)
    assert caught[0].filename == __file__
    assert estimate.status is Status.LOSS_SETTLED
    assert estimate.kkt_residual < 1e-4
    assert estimate.num_cycles < 100
    assert fit_cbmm(responses, penalty=Priors()).status is Status.CONVERGED


def test_the_paper_s_stop_rule_on_request():
    responses = counts(4)
    estimate = fit_cbmm(responses, penalty=Priors(), solver=Solver(stop="relative loss", tolerance=1e-3))
    losses = estimate.loss_trace
    falls = -np.diff(losses) / losses[1:]
    assert estimate.status is Status.CONVERGED
    assert falls[-1] < 1e-3 <= falls[:-1].min()


@pytest.mark.parametrize(
    "options",
    [
        {"algorithm": "magic"},
        {"stop": "never"},
        {"precision": "float16"},
        {"tolerance": -1e-3},
        {"tolerance": float("nan")},
        {"max_cycles": -1},
        {"starts": 0},
        {"seed": -1},
        {"starts": 2.5},
        {"seed": 1.5},
        {"max_cycles": 1.5},
        {"max_cycles": "a"},
        {"tolerance": float("inf")},
        {"tolerance": "a"},
    ],
)
def test_bad_solvers_raise(options):
    with pytest.raises(InvalidConfigurationError, match=next(iter(options))):
        Solver(**options)


# --- starts ------------------------------------------------------------------------------------------------------


def test_several_starts_report_how_far_they_agree(tmp_path):
    responses = counts(5, traits=2)
    estimate = fit_cbmm(responses, penalty=Priors(), num_traits=2, solver=Solver(starts=4, seed=3))
    losses, agreement = (estimate.dataset[name].to_numpy() for name in ("start_loss", "start_agreement"))
    assert losses.shape == agreement.shape == (4,)
    assert losses.min() == estimate.loss
    assert agreement[losses.argmin()] == 1.0
    assert (np.abs(agreement) <= 1).all()
    assert estimate.provenance.seed == 3
    again = fit_cbmm(responses, penalty=Priors(), num_traits=2, solver=Solver(starts=4, seed=3))
    assert again == estimate
    other = fit_cbmm(responses, penalty=Priors(), num_traits=2, solver=Solver(starts=4, seed=4))
    assert not np.array_equal(other.dataset["start_loss"], losses)
    estimate.save(tmp_path / "estimate")
    assert PointEstimate.load(tmp_path / "estimate") == estimate


def test_starts_that_disagree_are_seen():
    """Two blocks of items that contradict each other have two optima: abilities by the one or by the other."""
    rng = np.random.default_rng(6)
    theta = np.linspace(-2, 2, 20)[:, None]
    one = rng.binomial(1, expit(3 * theta * np.ones(15)))
    other = rng.binomial(1, expit(-3 * theta * np.ones(15)))
    responses = Responses.from_arrays(np.hstack([one, other]))
    estimate = fit_cbmm(responses, penalty=Priors(), solver=Solver(starts=12))
    assert estimate.dataset["start_agreement"].min() < -0.5


# --- zero patterns -----------------------------------------------------------------------------------------------


def test_a_zero_pattern_holds_and_keeps_the_order_of_traits():
    loads = np.zeros((ITEMS, 2), dtype=bool)
    loads[: ITEMS // 3, 0], loads[ITEMS // 3 :, 1] = True, True
    responses = counts(8, most_attempts=5)
    estimate = fit_cbmm(responses, penalty=Priors(), loads=loads, solver=EXACT)
    assert (estimate.parameters.discrimination[~loads] == 0).all()
    assert (estimate.parameters.discrimination[loads] > 0).mean() > 0.8
    paper = fit_cbmm(
        responses, penalty=Priors(), loads=loads, solver=replace(EXACT, algorithm="paper", max_cycles=50_000)
    )
    assert estimate.loss == pytest.approx(paper.loss, rel=1e-9)
    # blocks that share no trait are two fits of one trait, but for the easiness, which both penalise alike
    for trait in (0, 1):
        alone = fit_cbmm(
            responses.subset(items=np.array(responses.items)[loads[:, trait]]), penalty=Priors(), solver=EXACT
        )
        np.testing.assert_allclose(
            estimate.parameters.ability[:, trait], alone.parameters.ability[:, 0], atol=1e-4
        )


@pytest.mark.parametrize(
    ("loads", "message"),
    [
        (np.ones((ITEMS, 2, 1)), "shape"),
        (1, "shape"),
        (np.ones(ITEMS), "shape"),
        ([[1], [1, 0]], "different lengths"),
        (np.ones((ITEMS - 1, 2)), "shape"),
        (np.full((ITEMS, 2), 0.5), "true and false"),
        (np.eye(2)[np.zeros(ITEMS, dtype=int)], r"traits \[1\]"),
    ],
)
def test_bad_patterns_raise(loads, message):
    with pytest.raises(InvalidConfigurationError, match=message):
        fit_cbmm(counts(1), loads=loads)


def test_an_item_is_not_separated_by_a_trait_that_it_cannot_load_on():
    rng = np.random.default_rng(0)
    loads = np.zeros((40, 2), dtype=bool)
    loads[:20, 0] = loads[20:, 1] = True
    attempts = np.full((60, 40), 6)
    theta = rng.normal(size=(60, 2))
    successes = rng.binomial(6, expit(0.8 * theta @ loads.T + 0.5 * rng.normal(size=40)))
    for _ in range(4):
        fit = quietly(Responses.from_arrays(successes, attempts), loads=loads)
        successes[:, 0] = 6 * (fit.parameters.ability[:, 1] > 0.3)
    estimate = fit_cbmm(Responses.from_arrays(successes, attempts), loads=loads)
    assert estimate.status is Status.CONVERGED
    assert estimate.separated_items == ()
    free = quietly(Responses.from_arrays(successes, attempts), num_traits=2)
    assert "item-0001" in free.separated_items


def test_a_start_outside_the_pattern_raises():
    responses = counts(1)
    loads = np.tile([True, False], (ITEMS, 1))
    loads[0] = True
    with pytest.raises(InvalidConfigurationError, match="loads allows none"):
        fit_cbmm(responses, loads=loads, start=default_start(responses, 2))


# --- compilation -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("algorithm", ["newton", "paper"])
def test_second_fit_of_a_shape_compiles_nothing(algorithm):
    solver = Solver(algorithm=algorithm, max_cycles=50)
    first = quietly(simulate_suite(LLMS + 1, ITEMS, seed=1).responses, penalty=Priors(), solver=solver)
    assert first.timing.total_seconds > first.timing.compile_seconds > 0
    again = simulate_suite(
        LLMS + 1, ITEMS, design=SuiteDesign(missing="MCAR", missing_share=0.3), seed=2
    ).responses
    for options in ({"sigma": 3.0}, {"penalty": Penalty()}):
        fit = quietly(again, solver=solver, **options)
        assert fit.timing.compile_seconds == 0.0


def test_the_clock_stops_with_its_context():
    with compile_clock() as clock:
        jax.jit(lambda x: x * 17.5)(1.0)
    seconds = clock.seconds
    jax.jit(lambda x: x * 18.5)(1.0)
    assert clock.seconds == seconds > 0
