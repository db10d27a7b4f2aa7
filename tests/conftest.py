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
