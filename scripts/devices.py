"""Let JAX use every core for chains; must run before JAX is imported."""

from __future__ import annotations

import os


def use_all_cores(most: int = 4) -> None:
    """Make JAX see one CPU device per core, up to the number of chains."""
    count = min(os.cpu_count() or 1, most)
    given = os.environ.get("XLA_FLAGS", "")
    if "host_platform_device_count" not in given:
        os.environ["XLA_FLAGS"] = f"{given} --xla_force_host_platform_device_count={count}".strip()
