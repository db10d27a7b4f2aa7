"""Simulation-based calibration of learned floors, and of attempts that hang together.

False-alarm rate 0.01 each; a report fails too if draws 15 % too narrow would have passed. Shape and sampler are those
of the docstrings; most of the time is spent compiling.
"""

import warnings

import pytest

from bayes_irt.calibration import CalibrationPlan, check_calibration
from bayes_irt.cbmm import fit_cbmm
from bayes_irt.errors import ConvergenceWarning
from bayes_irt.inference.engine import start_penalty
from bayes_irt.inference.nuts import Sampler, fit_nuts
from bayes_irt.model_spec import ModelSpec
from bayes_irt.priors import LearnedShare

MODELS = {"learned floors": (ModelSpec(floor=LearnedShare(4.0, 12.0)), 1), "beta-binomial": (ModelSpec(), 4)}


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
