"""Counting what intervals hold: against brute force and normal theory, and the cases that suites are drawn from."""

import numpy as np
import pandas as pd
import pytest

from bayes_irt import coverage
from bayes_irt.analysis.ranks import rank_intervals, ranks_by_draw
from bayes_irt.checks import Outcome
from bayes_irt.coverage import (
    COVERAGE_CASES,
    CoverageCase,
    block_pattern,
    check_coverage,
    count_intervals,
    measure_coverage,
    simulate_case,
)
from bayes_irt.data_checks import linked_components
from bayes_irt.errors import InvalidConfigurationError
from bayes_irt.posterior import posterior_from_draws
from bayes_irt.provenance import Provenance

PROBS = (0.5, 0.8, 0.9)
CASE = CoverageCase("toy", 40, 60, few_answers=10)


def test_intervals_hold_what_normal_theory_says():
    """Exact posteriors of 20,000 parameters: each share lies within 4 standard errors of its probability."""
    rng = np.random.default_rng(0)
    truth = rng.normal(size=20_000)
    centre = truth + rng.normal(size=truth.size)
    draws = centre + rng.normal(size=(1000, truth.size))
    held, width = count_intervals(truth, draws, PROBS)
    error = np.sqrt(np.multiply(PROBS, np.subtract(1, PROBS)) / truth.size)
    # quantiles of 1,000 draws hold a little less than asked for
    assert (abs(held.mean(axis=1) - PROBS) < 4 * error + 0.002).all()
    np.testing.assert_allclose(width.mean(axis=1), [1.349, 2.563, 3.290], rtol=0.01)
    narrow, _ = count_intervals(truth, centre + 0.85 * (draws - centre), PROBS)
    assert (abs(narrow.mean(axis=1) - PROBS) > 10 * error).all()


def test_rank_intervals_are_those_of_the_board():
    rng = np.random.default_rng(1)
    ranks = ranks_by_draw(np.linspace(-1, 1, 9) + 0.5 * rng.normal(size=(500, 9)))
    lower, upper = rank_intervals(ranks, 0.8)
    for llm in range(9):
        own = ranks[:, llm]
        assert np.mean((own >= lower[llm]) & (own <= upper[llm])) >= 0.8
        assert np.mean(own < lower[llm]) <= 0.1 >= np.mean(own > upper[llm])


def toy_engine(monkeypatch, width, offset=0.0):
    """An engine that knows the truth: draws around it, off by a normal error of their own spread times `width`."""
    suites = []

    def remembered(case, *, seed=0):
        suites.append(simulate_case(case, seed=seed))
        return suites[-1]

    monkeypatch.setattr(coverage, "simulate_case", remembered)

    def engine(responses, spec, seed):
        rng, truth = np.random.default_rng(seed), suites[-1].truth
        draws = {}
        for name in ("ability", "discrimination", "easiness"):
            true = np.asarray(getattr(truth, name))
            centre = true + 0.05 * rng.normal(size=true.shape)
            draws[name] = centre + offset + 0.05 * width * rng.normal(size=(2, 200, *true.shape))
        labels = (responses.llms, responses.items)
        return posterior_from_draws(draws, {}, labels, Provenance("toy", {}, responses.digest, seed))

    return engine


@pytest.fixture
def exact(monkeypatch):
    return measure_coverage(toy_engine(monkeypatch, 1.0), [CASE], num_suites=30)


def test_exact_intervals_hold_their_probability(exact):
    """18 shares, each within 4.5 standard errors; those of ranks may be larger."""
    kinds = ["ability", "ability difference", "discrimination", "easiness", "ability, few answers", "rank"]
    assert exact["kind"].unique().tolist() == kinds
    assert exact["num_parameters"].unique().tolist() == [40, 200, 60, 1]
    wanted = exact["prob"].to_numpy()
    independent = np.sqrt(wanted * (1 - wanted) / (30 * exact["num_parameters"]))
    off = (exact["covered"] - wanted) / np.maximum(exact["error"], independent)
    ranks = exact["kind"] == "rank"
    assert (off[~ranks].abs() < 4.5).all()
    assert (off[ranks] > -4.5).all()
    assert check_coverage(exact).passed
    assert (exact["num_suites"] == 30).all()
    assert (exact["engine"] == "toy").all()


def test_narrow_and_biased_intervals_fall_short(monkeypatch, exact):
    for width, offset in ((0.7, 0.0), (1.0, 0.06)):
        wrong = measure_coverage(toy_engine(monkeypatch, width, offset), [CASE], num_suites=30)
        items = wrong["kind"].isin(["discrimination", "easiness"])
        assert (wrong["covered"] < exact["covered"] - 0.05)[items].all()
        failed = {check.name for check in check_coverage(wrong).failures}
        assert {f"toy, toy, {kind}, 90%" for kind in ("discrimination", "easiness")} <= failed


def test_results_do_not_depend_on_the_other_cases(monkeypatch, exact):
    other = CoverageCase("other", 10, 20)
    both = measure_coverage(toy_engine(monkeypatch, 1.0), [other, CASE], num_suites=30)
    pd.testing.assert_frame_equal(both[both["case"] == "toy"].reset_index(drop=True), exact)


def row(covered, error, num_suites=20, num_parameters=30, prob=0.9):
    values = {"case": "a", "engine": "x", "kind": "rank", "prob": prob, "covered": covered, "error": error}
    return values | {"width": 1.0, "num_suites": num_suites, "num_parameters": num_parameters}


@pytest.mark.parametrize(
    ("found", "outcome"),
    [
        (row(0.93, 0.01), Outcome.PASS),
        (row(0.88, 0.01), Outcome.PASS),
        (row(0.87, 0.01), Outcome.CANNOT_TELL),
        (row(0.80, 0.01), Outcome.FAIL),
        # two suites that agree by chance prove nothing
        (row(0.0, 0.0, num_suites=2, num_parameters=1), Outcome.CANNOT_TELL),
        (row(0.0, 0.0, num_suites=20, num_parameters=1), Outcome.FAIL),
    ],
)
def test_shortfalls_are_judged_by_their_error(found, outcome):
    (check,) = check_coverage(pd.DataFrame([found]))
    assert check.outcome is outcome


@pytest.mark.parametrize("case", COVERAGE_CASES, ids=lambda case: case.name)
def test_cases_are_what_they_are_called(case):
    suite = simulate_case(case, seed=3)
    attempts, successes = suite.responses.attempts, suite.responses.successes
    assert attempts.shape == (case.num_llms, case.num_items)
    assert f"{case.num_llms} x {case.num_items:,}" in case.name
    assert (case.design.discrimination == "log-normal") == ("log-normal" in case.name)
    assert not successes[attempts == 0].any()
    assert attempts.any(axis=0).all()
    share = 0.5 if "blocks" in case.name else 1.0
    full = slice(1, None) if case.few_answers else slice(None)
    assert attempts[full].mean() == pytest.approx(share)
    if case.few_answers:
        assert attempts[0].sum() == 10
    assert len(linked_components(suite.responses)) == 1
    complete = simulate_case(CoverageCase("", case.num_llms, case.num_items, case.design), seed=3)
    np.testing.assert_array_equal(complete.truth.ability, suite.truth.ability)


def test_the_grid_has_what_was_asked_for():
    sizes = {(case.num_llms, case.num_items) for case in COVERAGE_CASES}
    assert sizes >= {(8, 40), (30, 200), (29, 2000), (140, 500)}
    assert len({case.name for case in COVERAGE_CASES}) == len(COVERAGE_CASES)


@pytest.mark.parametrize("size", [(4, 4), (8, 40), (29, 2000), (30, 203)])
def test_blocks_leave_half_of_the_cells(size):
    pattern = block_pattern(*size)
    assert pattern.mean() == pytest.approx(0.5, abs=0.03)
    assert pattern.any(axis=0).all()


def no_engine(responses, spec, seed):
    raise NotImplementedError


@pytest.mark.parametrize(
    "call",
    [
        lambda: CoverageCase("", 3, 40),
        lambda: CoverageCase("", 8, 3),
        lambda: CoverageCase("", 8, 40, few_answers=40),
        lambda: CoverageCase("", 8, 40, few_answers=20, missing_blocks=True),
        lambda: CoverageCase("", 8, 40, few_answers=0),
        lambda: measure_coverage(no_engine, [CASE], num_suites=1),
        lambda: measure_coverage(no_engine, [CASE], probs=(1.0,)),
        lambda: measure_coverage(no_engine, [CASE], seed=-1),
    ],
)
def test_nonsense_is_refused(call):
    with pytest.raises(InvalidConfigurationError):
        call()
