"""The classical paired test of two LLMs on the items that both answered.

References
----------
McNemar, Q. (1947). Note on the sampling error of the difference between correlated proportions or percentages.
Psychometrika 12, 153-157.
Miller, E. (2024). Adding error bars to evals. arXiv 2411.00640 (the paired standard error).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float
from scipy import stats

from bayes_irt.formatting import p_value_text

# Equal differences of shares have a standard error of this size at most.
_ROUNDING = 1e-12


@dataclass(frozen=True, slots=True)
class PairedTest:
    """Hold the classical test of two LLMs on the items that both answered.

    Parameters
    ----------
    name
        "exact McNemar" where both have one attempt at every shared item, else "paired standard error".
    difference
        Mean over the shared items of A's share of right attempts less B's.
    standard_error
        Of the difference, items being drawn at random; None with one item.
    z
        Difference over standard error; None where the latter is 0, up to rounding, or None.
    p_value
        Two-sided: McNemar's exact one, or that of `z` by Student's t with one degree of freedom less than items; None
        where there is no `z` to take it from.
    only_a, only_b
        Number of items on which A did better than B, and B better than A.

    Examples
    --------
    >>> paired_test(np.array([1.0, 1.0, 1.0, 0.0]), np.array([0.0, 0.0, 1.0, 0.0]), single=True).p_value
    0.5
    """

    name: str
    difference: float
    standard_error: float | None
    z: float | None
    p_value: float | None
    only_a: int
    only_b: int

    def __str__(self) -> str:
        found = "no p-value" if self.p_value is None else f"p {p_value_text(self.p_value)}"
        return f"{self.name} {found} ({self.only_a} items for A, {self.only_b} for B)"


def paired_test(a: Float[np.ndarray, " item"], b: Float[np.ndarray, " item"], *, single: bool) -> PairedTest:
    """Test whether two LLMs differ on the items that both answered.

    Parameters
    ----------
    a, b
        Share of right attempts of each at every shared item; one item at least.
    single
        Whether both have one attempt at each item: then McNemar's exact test, a sign test of the items on which they
        differ; else the standard error of the mean difference.

    Returns
    -------
    PairedTest
        Without a p-value where none can be computed: one item with several attempts, or the same difference at all.

    Examples
    --------
    >>> print(paired_test(np.array([1.0, 1.0, 1.0, 0.0]), np.array([0.0, 0.0, 1.0, 0.0]), single=True))
    exact McNemar p = 0.500 (2 items for A, 0 for B)
    """
    gains = a - b
    only_a, only_b = int((gains > 0).sum()), int((gains < 0).sum())
    mean = float(gains.mean())
    error = float(gains.std(ddof=1) / math.sqrt(len(gains))) if len(gains) > 1 else None
    z = mean / error if error is not None and error > _ROUNDING else None
    if single:
        exact = float(stats.binomtest(only_a, only_a + only_b).pvalue) if only_a + only_b else 1.0
        return PairedTest("exact McNemar", mean, error, z, exact, only_a, only_b)
    p_value = None if z is None else float(2 * stats.t.sf(abs(z), len(gains) - 1))
    return PairedTest("paired standard error", mean, error, z, p_value, only_a, only_b)
