"""What a program that samples the posterior hands over, and how much its draws are worth."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpyro  # noqa: F401 - must be imported before ArviZ

import arviz  # isort: skip


@dataclass(frozen=True)
class Draws:
    """Hold draws with dims chain, draw, and llm or item, and the seconds that went into compiling."""

    ability: np.ndarray
    discrimination: np.ndarray
    compiling: float

    def gauge_fixed(self) -> np.ndarray:
        """Return abilities with mean 0 and sd 1 in every draw, and turned round where slopes are negative on average.

        Programs whose slopes may be negative find every posterior twice, the second time in a mirror.
        """
        turned = self.ability * np.where(self.discrimination.mean(axis=-1, keepdims=True) < 0, -1.0, 1.0)
        centred = turned - turned.mean(axis=-1, keepdims=True)
        return np.asarray(centred / centred.std(axis=-1, keepdims=True))

    def worth(self, seconds: float) -> dict[str, float]:
        """Return the smallest ESS of an ability as is and gauge-fixed, both per second, and the largest R-hat."""
        fixed = self.gauge_fixed()
        sizes = {"ess": smallest_ess(self.ability), "ess_gauged": smallest_ess(fixed)}
        rates = {f"{name}_per_s": size / seconds for name, size in sizes.items()}
        running = seconds - self.compiling
        compiled = {f"{name}_per_s_compiled": size / running for name, size in sizes.items()}
        return sizes | rates | compiled | {"rhat_gauged": float(np.max(np.asarray(arviz.rhat(fixed))))}


def smallest_ess(ability: np.ndarray) -> float:
    """Return the smallest bulk effective sample size over LLMs."""
    return float(np.min(np.asarray(arviz.ess(ability))))
