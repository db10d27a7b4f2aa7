"""Fixtures that name the folders of real data, example logs and golden results."""

import os
from pathlib import Path

import pytest


def _folder(variable: str) -> Path:
    """Return the folder that an environment variable names; skip without it, but fail in CI."""
    value = os.environ.get(variable)
    if value and Path(value).is_dir():
        return Path(value)
    reason = f"{variable} names no folder" if value else f"{variable} is not set"
    if os.environ.get("CI"):
        pytest.fail(f"{reason}; CI runs every test on real data")
    pytest.skip(reason)


@pytest.fixture(scope="session")
def data_dir() -> Path:
    return _folder("BAYES_IRT_DATA")


@pytest.fixture(scope="session")
def formats_dir() -> Path:
    return _folder("BAYES_IRT_FORMATS")


@pytest.fixture(scope="session")
def golden_dir() -> Path:
    return _folder("BAYES_IRT_GOLDEN")


@pytest.fixture(scope="session")
def small_fit():
    """Return responses of 6 LLMs x 20 items, their estimate and posterior.

    Shape and sampler are those of the docstrings, so that one compiled program serves them all.
    """
    from bayes_irt import Priors, Sampler, fit_cbmm, fit_nuts, simulate_suite

    responses = simulate_suite(6, 20).responses
    estimate = fit_cbmm(responses, penalty=Priors())
    sampler = Sampler(num_chains=2, num_warmup=100, num_draws=100)
    return responses, estimate, fit_nuts(responses, estimate=estimate, sampler=sampler)
