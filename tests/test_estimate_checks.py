"""What can be read from a point estimate, and what cannot."""

import numpy as np
import pytest

from bayes_irt import Priors, Responses, Solver, Status, check_estimate, fit_cbmm, simulate_suite
from bayes_irt.checks import Outcome
from bayes_irt.errors import ConvergenceWarning

NAMES = (
    "abilities vary",
    "items discriminate",
    "convergence",
    "separated items",
    "separated LLMs",
    "agreement of starts",
)


def fitted(successes, **options):
    return fit_cbmm(Responses.from_arrays(np.asarray(successes)), penalty=Priors(), **options)


def test_a_sound_estimate_passes():
    suite = simulate_suite(40, 60, seed=2)
    report = check_estimate(fit_cbmm(suite.responses, penalty=Priors(), solver=Solver(starts=3)))
    assert tuple(check.name for check in report) == NAMES
    assert report.passed
    assert report["agreement of starts"].outcome is Outcome.PASS


def test_one_start_agrees_with_nothing():
    report = check_estimate(fit_cbmm(simulate_suite(10, 20).responses, penalty=Priors()))
    assert report["agreement of starts"].outcome is Outcome.NOT_APPLICABLE


def test_equal_rows_identify_no_ability():
    report = check_estimate(fitted([[1, 0, 1, 0]] * 5))
    assert report["abilities vary"].outcome is Outcome.FAIL
    assert "same ability" in report["abilities vary"].message


def test_items_that_share_nothing_identify_no_order():
    """Each item is solved by LLMs that the others would call weak: a Latin square."""
    size = 6
    shifts = (np.arange(size)[:, None] + np.arange(size)) % size < size // 2
    report = check_estimate(fitted(shifts.astype(int)))
    assert (
        report["items discriminate"].outcome is Outcome.FAIL
        or report["abilities vary"].outcome is Outcome.FAIL
    )


def test_what_is_separated_is_named():
    suite = simulate_suite(20, 30, seed=3)
    successes = suite.responses.successes.copy()
    successes[:, 4], successes[7] = 1, 1
    responses = Responses.from_arrays(successes)
    with pytest.warns(ConvergenceWarning):
        free = fit_cbmm(responses)
    reports = {
        Outcome.PASS: check_estimate(fit_cbmm(responses, penalty=Priors())),
        Outcome.FAIL: check_estimate(free),
    }
    for outcome, report in reports.items():
        for name, label in (("separated items", "item-0005"), ("separated LLMs", "llm-008")):
            assert label in report[name].labels
            assert report[name].outcome is outcome


def test_a_limit_that_comes_first_is_no_convergence():
    suite = simulate_suite(20, 30, seed=3)
    with pytest.warns(ConvergenceWarning):
        estimate = fit_cbmm(suite.responses, penalty=Priors(), solver=Solver(max_cycles=2))
    assert estimate.status is Status.CYCLE_LIMIT
    check = check_estimate(estimate)["convergence"]
    assert check.outcome is Outcome.FAIL
    assert "Raise max_cycles" in check.message


def test_starts_that_differ_fail():
    theta = np.linspace(-2, 2, 20)[:, None]
    rng = np.random.default_rng(6)
    blocks = [rng.random((20, 15)) < 1 / (1 + np.exp(-sign * 3 * theta)) for sign in (1, -1)]
    estimate = fitted(np.hstack(blocks).astype(int), solver=Solver(starts=12))
    check = check_estimate(estimate)["agreement of starts"]
    assert check.outcome is Outcome.FAIL
    assert "12 starts" in check.message
