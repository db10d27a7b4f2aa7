"""Calibration of P(A > B): engines that know the truth pass, engines that are too sure do not."""

import numpy as np
import pandas as pd
import pytest

from bayes_irt import pair_calibration
from bayes_irt.checks import Outcome
from bayes_irt.coverage import CoverageCase, simulate_case
from bayes_irt.errors import InvalidConfigurationError
from bayes_irt.inference.laplace import fit_laplace
from bayes_irt.pair_calibration import PAIR_CASES, check_pairs, measure_pairs, turned_pairs
from bayes_irt.posterior import posterior_from_draws
from bayes_irt.provenance import Provenance

CASE = CoverageCase("toy", 30, 10)


def toy_engine(monkeypatch, width=1.0):
    """An engine that knows the true abilities but for a normal error; its draws spread `width` times that error.

    Abilities are nearly normal with mean 0 and sd 1, so that the exact posterior is normal, shrunken by their variance.
    """
    suites = []

    def remembered(case, *, seed=0):
        suites.append(simulate_case(case, seed=seed))
        return suites[-1]

    monkeypatch.setattr(pair_calibration, "simulate_case", remembered)

    def engine(responses, spec, seed):
        rng, truth = np.random.default_rng(seed), suites[-1].truth
        ability = np.asarray(truth.ability)
        seen = ability + 0.5 * rng.normal(size=ability.shape)
        mean, sd = seen / 1.25, np.sqrt(0.25 / 1.25)
        shape = (1, 800, *ability.shape)
        draws = {"ability": mean + width * sd * rng.normal(size=shape)}
        for name in ("discrimination", "easiness"):
            draws[name] = np.broadcast_to(
                np.asarray(getattr(truth, name)), (1, 800, *getattr(truth, name).shape)
            )
        labels = (responses.llms, responses.items)
        return posterior_from_draws(draws, {}, labels, Provenance("toy", {}, responses.digest, seed))

    return engine


def test_an_exact_engine_is_calibrated(monkeypatch):
    """Six shares within 4.5 standard errors and 1 point of what is stated; the check's false-alarm rate is .01."""
    table = measure_pairs(toy_engine(monkeypatch), [CASE], num_suites=60)
    assert table["num_pairs"].sum() == 60 * 30 * 29 / 2
    assert ((table["right"] - table["stated"]).abs() < 4.5 * table["error"] + 0.01).all()
    assert table["stated"].is_monotonic_increasing
    assert ((table["lower"] <= table["stated"]) & (table["stated"] <= table["upper"])).all()
    assert check_pairs(table).passed


def test_an_engine_that_is_too_sure_fails(monkeypatch):
    table = measure_pairs(toy_engine(monkeypatch, width=0.4), [CASE], num_suites=60)
    assert (table["right"] < table["stated"])[1:].all()
    assert len(check_pairs(table).failures) >= 2


def test_pairs_are_turned_to_the_likelier_order():
    draws = np.array([[0.0, 1.0, 0.5], [0.0, 2.0, 0.0], [1.0, 0.0, 0.0], [0.0, 1.0, -1.0]])
    stated, right = turned_pairs(draws, np.array([3.0, 2.0, 1.0]))
    # 0 beats 1 in one draw of four, 2 in two and an equal one, 1 beats 2 in three and an equal one
    assert stated.tolist() == [0.75, 0.625, 0.875]
    assert right.tolist() == [0.0, 1.0, 1.0]
    assert turned_pairs(np.zeros((4, 2)), np.array([1.0, 0.0]))[1].tolist() == [0.5]


def test_errors_are_over_suites():
    """Pairs that all agree within a suite: 40 suites of 45 pairs tell no more than 40 pairs."""
    rng = np.random.default_rng(0)
    pairs = pd.DataFrame({"suite": np.repeat(np.arange(40), 45), "stated": 0.75})
    pairs["right"] = np.repeat((rng.random(40) < 0.75).astype(float), 45)
    row = pair_calibration._binned(pairs).iloc[0]
    assert row["error"] == pytest.approx(np.sqrt(0.75 * 0.25 / 40), rel=0.2)
    assert (row["lower"], row["upper"], row["num_pairs"]) == (0.7, 0.8, 1800)


def row(right, error, num_suites=100):
    values = {"case": "a", "engine": "x", "lower": 0.8, "upper": 0.9, "stated": 0.85, "right": right}
    return values | {"error": error, "num_pairs": 500, "num_suites": num_suites}


@pytest.mark.parametrize(
    ("found", "outcome"),
    [
        (row(0.88, 0.01), Outcome.PASS),
        (row(0.80, 0.01), Outcome.PASS),
        (row(0.79, 0.01), Outcome.CANNOT_TELL),
        (row(0.91, 0.01), Outcome.CANNOT_TELL),
        (row(0.70, 0.01), Outcome.FAIL),
        (row(0.99, 0.01), Outcome.FAIL),
        (row(0.70, 0.01, num_suites=2), Outcome.CANNOT_TELL),
    ],
)
def test_what_is_off_is_judged_by_its_error(found, outcome):
    (check,) = check_pairs(pd.DataFrame([found]))
    assert check.outcome is outcome


def test_laplace_is_calibrated_on_usual_suites():
    """10 suites of 30 LLMs x 200 items, the smallest for which Laplace warns of no ability; false-alarm rate .01."""
    case = next(case for case in PAIR_CASES if case.name == "30 x 200")

    def engine(responses, spec, seed):
        return fit_laplace(responses, spec=spec, num_draws=400, seed=seed)

    table = measure_pairs(engine, [case], num_suites=10)
    assert check_pairs(table).passed
    assert table["right"].iloc[-1] > 0.97


def test_saturated_boards_are_saturated():
    saturated = next(case for case in PAIR_CASES if "saturated" in case.name)
    right, wrong = zip(
        *(
            (s.all(axis=0).sum(), (~s.any(axis=0)).sum())
            for s in (simulate_case(saturated, seed=seed).responses.successes for seed in range(10))
        ),
        strict=True,
    )
    assert 200 < np.mean(right) < 300
    assert 20 < np.mean(wrong) < 80


def test_nonsense_is_refused():
    for options in ({"num_suites": 1}, {"seed": -1}):
        with pytest.raises(InvalidConfigurationError):
            measure_pairs(lambda *_: None, [CASE], **options)
