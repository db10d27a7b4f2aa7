"""Simulation-based calibration of learned floors, of attempts that hang together, and of two traits that correlate.

False-alarm rate 0.01 each; a report fails too if draws 15 % too narrow would have passed. Shape and sampler are those
of the docstrings; most of the time is spent compiling.
"""

import warnings

import pandas as pd
import pytest

from bayes_irt.calibration import CalibrationPlan, check_calibration
from bayes_irt.cbmm import fit_cbmm
from bayes_irt.errors import ConvergenceWarning
from bayes_irt.inference.engine import start_penalty
from bayes_irt.inference.nuts import Sampler, fit_nuts
from bayes_irt.model_spec import ModelSpec
from bayes_irt.priors import HalfNormal, LearnedLocation, LearnedScale, LearnedShare, Normal, Priors

MODELS = {"learned floors": (ModelSpec(floor=LearnedShare(4.0, 12.0)), 1), "beta-binomial": (ModelSpec(), 4)}
LLMS, ITEMS = 12, 20
TRAITS = pd.DataFrame({"trait": [f"trait {item % 2}" for item in range(ITEMS)]})
#: Suites with few items of which nothing is known; two traits are one in some of them, which takes more care.
USUAL = Priors(HalfNormal(LearnedScale(1.5, 0.3)), Normal(LearnedLocation(0.0, 1.0), LearnedScale(1.5, 0.3)))


def careful_nuts(responses, spec, seed):
    """Fit with more care than usual."""
    sampler = Sampler(num_chains=2, num_warmup=100, num_draws=100, target_accept=0.9)
    return fit_nuts(responses, spec=spec, sampler=sampler, seed=seed)


def nuts(responses, spec, seed):
    """Fit by one compiled program per model."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # of starts where all is right or all is wrong
        estimate = fit_cbmm(responses, penalty=start_penalty(spec))
    sampler = Sampler(num_chains=2, num_warmup=100, num_draws=100)
    return fit_nuts(responses, spec=spec, estimate=estimate, sampler=sampler, seed=seed)


@pytest.mark.parametrize("name", MODELS)
def test_models_are_calibrated(name):
    spec, attempts = MODELS[name]
    plan = CalibrationPlan(num_datasets=50, num_draws=31, attempts=attempts)
    report = check_calibration(nuts, 6, 20, spec=spec, plan=plan, seed=1)
    assert report.passed, str(report)
    learned = {"floor"} if name == "learned floors" else set(spec.settled(attempts).hyperparameters)
    assert learned <= set(report.scores["kind"])


def test_correlated_traits_are_calibrated():
    spec = ModelSpec(USUAL, traits="trait")
    plan = CalibrationPlan(num_datasets=50, num_draws=31)
    report = check_calibration(careful_nuts, LLMS, ITEMS, spec=spec, plan=plan, seed=1, item_metadata=TRAITS)
    assert report.passed, str(report)
    assert "trait_correlation" in set(report.scores["kind"])
