"""Simulated suites: reproducible, with a canonical truth, and missing, repeated and spread out as asked for.

Random comparisons are z-tests at 5 standard errors (a false alarm in 2 million runs); the seeds are fixed.
"""

import numpy as np
import pytest
from scipy.special import expit

from bayes_irt.errors import InvalidConfigurationError
from bayes_irt.identify import canonicalize
from bayes_irt.simulate import SuiteDesign, simulate_suite

MISSING = ("MCAR", "MAR", "MNAR")


def probabilities(suite):
    return expit(suite.truth.ability @ suite.truth.discrimination.T + suite.truth.easiness)


def assert_share(hits, share, sd_of_one=None):
    """Compare a share of hits with its expectation, at 5 standard errors."""
    hits = np.asarray(hits, dtype=float)
    sd = np.sqrt(share * (1 - share)) if sd_of_one is None else sd_of_one
    assert abs(hits.mean() - share) < 5 * sd / np.sqrt(hits.size)


def test_seeds_reproduce():
    design = SuiteDesign(missing="MNAR", missing_share=0.3, attempts=3, cell_sd=1.0)
    one, two = (simulate_suite(12, 20, design=design, seed=4) for _ in range(2))
    assert one.responses == two.responses
    np.testing.assert_array_equal(one.truth.ability, two.truth.ability)
    np.testing.assert_array_equal(one.truth.easiness, two.truth.easiness)
    other = simulate_suite(12, 20, design=design, seed=5)
    assert other.responses != one.responses
    assert not np.array_equal(other.truth.discrimination, one.truth.discrimination)


@pytest.mark.parametrize("heavy_tails", [False, True])
@pytest.mark.parametrize("discrimination", ["half-normal", "log-normal"])
def test_truth_is_in_the_canonical_gauge(discrimination, heavy_tails):
    design = SuiteDesign(discrimination=discrimination, heavy_tails=heavy_tails)
    truth = simulate_suite(40, 30, design=design, seed=1).truth
    assert abs(truth.ability.mean()) < 1e-12
    assert truth.ability.std() == pytest.approx(1)
    assert (truth.discrimination >= 0).all()
    np.testing.assert_allclose(canonicalize(truth).discrimination, truth.discrimination)
    np.testing.assert_allclose(canonicalize(truth).easiness, truth.easiness, atol=1e-12)


def test_heavy_tails_are_heavier():
    def extreme(heavy_tails):
        design = SuiteDesign(heavy_tails=heavy_tails)
        return np.abs(simulate_suite(200, 2, design=design, seed=1).truth.ability).max()

    assert extreme(heavy_tails=True) > 2 * extreme(heavy_tails=False)


def test_items_follow_the_design():
    design = SuiteDesign("log-normal", 0.7, zero_share=0.25, easiness_location=1.0, easiness_scale=2.0)
    truth = simulate_suite(2, 4000, design=design, seed=1).truth
    slopes = truth.discrimination[:, 0]
    assert (slopes == 0).sum() == 1000
    logs = np.log(slopes[slopes > 0])
    assert abs(logs.mean()) < 5 * 0.7 / np.sqrt(3000)
    assert abs(logs.std() - 0.7) < 5 * 0.7 / np.sqrt(6000)
    assert abs(truth.easiness.mean() - 1.0) < 5 * 2.0 / np.sqrt(4000)
    assert abs(truth.easiness.std() - 2.0) < 5 * 2.0 / np.sqrt(8000)
    design = SuiteDesign("half-normal", 3.0)
    slopes = simulate_suite(2, 4000, design=design, seed=1).truth.discrimination
    assert abs(slopes.mean() - 3 * np.sqrt(2 / np.pi)) < 5 * 3 * np.sqrt(1 - 2 / np.pi) / np.sqrt(4000)


def standardised_residuals(suite):
    p, n = probabilities(suite), suite.responses.attempts
    residual = (suite.responses.successes - n * p) / np.sqrt(np.maximum(n, 1) * p * (1 - p))
    return residual[n > 0]


@pytest.mark.parametrize("attempts", [1, 8])
def test_answers_follow_the_truth(attempts):
    suite = simulate_suite(60, 200, design=SuiteDesign(attempts=attempts), seed=2)
    assert (suite.responses.attempts == attempts).all()
    residual = standardised_residuals(suite)
    assert abs(residual.mean()) < 5 / np.sqrt(residual.size)
    squares = residual**2
    assert abs(squares.mean() - 1) < 5 * squares.std() / np.sqrt(residual.size)
    # control: against another suite's truth the same residuals are far too large
    other = simulate_suite(60, 200, design=SuiteDesign(attempts=attempts), seed=3)
    wrong = standardised_residuals(type(suite)(suite.responses, other.truth))
    assert (wrong**2).mean() > 1.5


def test_cell_sd_correlates_attempts():
    """Counts spread more than binomial ones, though single attempts would not show it."""
    design = SuiteDesign(attempts=8, cell_sd=1.5)
    squares = standardised_residuals(simulate_suite(60, 200, design=design, seed=2)) ** 2
    assert squares.mean() > 1.8
    tried = simulate_suite(60, 200, design=design, seed=2).responses
    extreme = np.isin(tried.successes, [0, 8]).mean()
    plain = simulate_suite(60, 200, design=SuiteDesign(attempts=8), seed=2).responses
    assert extreme > np.isin(plain.successes, [0, 8]).mean() + 0.05


@pytest.mark.parametrize("share", [0.2, 0.7])
@pytest.mark.parametrize("missing", MISSING)
def test_missing_shares_are_as_asked(missing, share):
    design = SuiteDesign(missing=missing, missing_share=share)
    responses = simulate_suite(60, 200, design=design, seed=3).responses
    assert_share(responses.attempts == 0, share)
    assert not responses.successes[responses.attempts == 0].any()


@pytest.mark.parametrize("missing", MISSING)
def test_missing_cells_depend_on_what_they_should(missing):
    design = SuiteDesign(missing=missing, missing_share=0.4)
    # seed and draws of the answers are those of the complete suite
    complete = simulate_suite(80, 200, seed=6).responses.successes
    absent = simulate_suite(80, 200, design=design, seed=6).responses.attempts == 0
    by_place = absent[40:].mean() - absent[:40].mean()
    by_answer = absent[complete == 0].mean() - absent[complete == 1].mean()
    error = 5 * np.sqrt(0.24 * 4 / absent.size)
    assert (by_place > 0.2) if missing == "MAR" else (abs(by_place) < max(error, 0.1))
    assert (by_answer > 0.2) if missing == "MNAR" else (abs(by_answer) < 0.1)
    if missing == "MCAR":
        assert abs(by_place) < error
        assert abs(by_answer) < error


@pytest.mark.parametrize("missing", MISSING)
def test_every_llm_and_item_keeps_an_answer(missing):
    design = SuiteDesign(missing=missing, missing_share=0.97)
    for seed in range(20):
        attempts = simulate_suite(6, 8, design=design, seed=seed).responses.attempts
        assert attempts.any(axis=0).all()
        assert attempts.any(axis=1).all()
        assert (attempts == 0).any()


@pytest.mark.parametrize(
    "options",
    [
        {"discrimination": "gamma"},
        {"missing": "NMAR", "missing_share": 0.1},
        {"missing": "MCAR"},
        {"missing_share": 0.1},
        {"missing": "MCAR", "missing_share": 1.0},
        {"missing": "MCAR", "missing_share": -0.1},
        {"zero_share": 1.0},
        {"zero_share": -0.1},
        {"attempts": 0},
        {"discrimination_scale": 0.0},
        {"easiness_scale": -1.0},
        {"cell_sd": -1.0},
        {"easiness_location": float("nan")},
        {"discrimination_scale": float("nan")},
        {"easiness_scale": float("inf")},
        {"cell_sd": float("nan")},
        {"zero_share": float("nan")},
    ],
)
def test_bad_designs_raise(options):
    with pytest.raises(InvalidConfigurationError):
        SuiteDesign(**options)


@pytest.mark.parametrize("size", [(1, 10), (10, 1), (0, 0)])
def test_small_suites_raise(size):
    with pytest.raises(InvalidConfigurationError, match="2 LLMs and 2 items"):
        simulate_suite(*size)
