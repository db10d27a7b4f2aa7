"""The suites that benchmarks run on."""

from __future__ import annotations

import os
from pathlib import Path

from bayes_irt import Responses, read_responses, simulate_suite


def suite_of(size: tuple[int, int]) -> tuple[str, Responses]:
    """Return MATH-500 where it is at hand (``BAYES_IRT_DATA``), else a simulated suite of the size."""
    folder = os.environ.get("BAYES_IRT_DATA")
    if size == (140, 500) and folder:
        return "MATH-500", read_responses(Path(folder) / "math500_paper.parquet")
    return "simulated", simulate_suite(*size, seed=1).responses
