"""How long JAX compiles, apart from how long it runs."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import jax


class CompileClock:
    """Hold the seconds that JAX spent on tracing and compiling.

    Attributes
    ----------
    seconds
        So far.
    """

    seconds: float = 0.0


@contextmanager
def compile_clock() -> Iterator[CompileClock]:
    """Add up what JAX spends on tracing and compiling while the context lasts.

    Yields
    ------
    CompileClock
        Its `seconds` grow.

    Examples
    --------
    >>> with compile_clock() as clock:
    ...     _ = jax.jit(lambda x: 3 * x)(1.0)
    >>> clock.seconds > 0
    True
    """
    clock = CompileClock()

    def add(event: str, duration_secs: float, **_: str | int) -> None:
        if event.startswith("/jax/core/compile/"):
            clock.seconds += duration_secs

    jax.monitoring.register_event_duration_secs_listener(add)
    try:
        yield clock
    finally:
        jax.monitoring.unregister_event_duration_listener(add)
