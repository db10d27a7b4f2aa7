"""What tests and doctests share: a limit on compiled programs."""

import gc
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

MOST_MAPS = 25_000


@pytest.fixture(scope="module", autouse=True)
def _room_for_programs() -> Iterator[None]:
    """Drop compiled programs where they fill the memory maps that Linux allows a process (65,530 by default).

    One program takes some ten maps, a run of all tests has thousands, and XLA crashes when there is none left.
    """
    yield
    maps = Path("/proc/self/maps")
    if "jax" in sys.modules and maps.exists() and maps.read_bytes().count(b"\n") > MOST_MAPS:
        sys.modules["jax"].clear_caches()
        gc.collect()
