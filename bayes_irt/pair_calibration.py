"""Calibration of P(A > B): how many of the pairs that are said to be ordered with some probability are so ordered.

Suites are simulated with known abilities, and fitted. Every pair of a suite is turned so that A is the LLM that is
probably better; pairs are binned by what is stated. The pairs of one suite depend on each other, so errors are over
suites.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd
from jaxtyping import Float
from scipy.stats import t as student

from bayes_irt.analysis.ranks import ability_draws, win_shares
from bayes_irt.arguments import require_whole
from bayes_irt.calibration import Engine, dataset_seeds
from bayes_irt.checks import Check, CheckReport, Outcome
from bayes_irt.coverage import CoverageCase, simulate_case
from bayes_irt.simulate import SuiteDesign

#: Edges of the bins of stated probability.
EDGES = (0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 1.0)

#: Usual suites, one LLM with few answers, and saturated boards: about 230 of 500 items are passed by all 12 LLMs, and
#: about 40 by none.
PAIR_CASES = (
    CoverageCase("8 x 40", 8, 40),
    CoverageCase("30 x 200", 30, 200),
    CoverageCase("30 x 200, one LLM with 10 answers", 30, 200, few_answers=10),
    CoverageCase(
        "12 x 500, saturated",
        12,
        500,
        SuiteDesign(discrimination_scale=0.5, easiness_location=3.5, easiness_scale=5.0),
    ),
)


def measure_pairs(
    engine: Engine,
    cases: Sequence[CoverageCase] = PAIR_CASES,
    *,
    num_suites: int = 200,
    seed: int = 0,
) -> pd.DataFrame:
    """Measure how often the LLM that is probably better is better, by the probability stated.

    Parameters
    ----------
    engine
        Function of responses, model and seed that returns a `Posterior`.
    cases
        Kinds of suites.
    num_suites
        Number of suites of each kind, at least 2.
    seed
        Seed of all suites and fits.

    Returns
    -------
    pandas.DataFrame
        One row per case and bin of stated probability: ``case``, ``engine``, ``lower`` and ``upper`` (edges of the
        bin), ``stated`` (mean P(A > B)), ``right`` (share of pairs whose A is better), ``error`` (standard error of
        right less stated, over suites, at least that of independent pairs), ``num_pairs``, ``num_suites`` (those with
        pairs in the bin) and ``seed``.

    Raises
    ------
    InvalidConfigurationError
        If `num_suites` is below 2, or the seed out of range.

    Examples
    --------
    >>> from bayes_irt import Sampler, fit_nuts
    >>> sampler = Sampler(num_chains=2, num_warmup=100, num_draws=100)
    >>> def nuts(responses, spec, seed):
    ...     return fit_nuts(responses, spec=spec, sampler=sampler, seed=seed)
    >>> table = measure_pairs(nuts, [CoverageCase("6 x 20", 6, 20)], num_suites=2)
    >>> int(table["num_pairs"].sum())
    30
    """
    require_whole("num_suites", num_suites, 2)
    require_whole("seed", seed, 0)
    return pd.concat([_measure_case(engine, case, num_suites, seed) for case in cases], ignore_index=True)


def _measure_case(engine: Engine, case: CoverageCase, num_suites: int, seed: int) -> pd.DataFrame:
    pairs, name = [], ""
    for number in range(num_suites):
        suite_seed, fit_seed, _ = dataset_seeds(seed, number)
        suite = simulate_case(case, seed=suite_seed)
        posterior = engine(suite.responses, case.spec, fit_seed)
        name = posterior.provenance.method
        stated, right = turned_pairs(ability_draws(posterior), np.asarray(suite.truth.ability[:, 0]))
        pairs.append(pd.DataFrame({"suite": number, "stated": stated, "right": right}))
    bins = _binned(pd.concat(pairs, ignore_index=True))
    bins.insert(0, "case", case.name)
    bins.insert(1, "engine", name)
    return bins.assign(seed=seed)


def turned_pairs(
    draws: Float[np.ndarray, "sample llm"], truth: Float[np.ndarray, " llm"]
) -> tuple[Float[np.ndarray, " pair"], Float[np.ndarray, " pair"]]:
    """Return the stated probability of each pair's likelier order, and whether that is the true one.

    Parameters
    ----------
    draws
        Draws of the abilities.
    truth
        True abilities.

    Returns
    -------
    tuple of numpy.ndarray
        Probabilities of at least .5; 1 where the likelier order is true, 0 where not, a half where none is likelier.

    Examples
    --------
    >>> stated, right = turned_pairs(np.array([[0.0, 1.0], [0.0, 2.0], [1.0, 0.0], [0.0, 1.0]]), np.array([1.0, 2.0]))
    >>> stated, right
    (array([0.75]), array([1.]))
    """
    first, second = np.triu_indices(len(truth), 1)
    share = win_shares(draws, draws)[first, second]
    better = (truth[first] > truth[second]).astype(float)
    right = np.where(share > 0.5, better, np.where(share < 0.5, 1 - better, 0.5))
    return np.maximum(share, 1 - share), right


def _binned(pairs: pd.DataFrame) -> pd.DataFrame:
    place = np.clip(np.searchsorted(EDGES, pairs["stated"], side="right") - 1, 0, len(EDGES) - 2)
    rows = []
    for number, inside in pairs.groupby(place):
        gap = inside["right"] - inside["stated"]
        sums = gap.groupby(inside["suite"]).sum()
        stated, count = inside["stated"].mean(), len(inside)
        spread = np.sqrt(np.sum(np.square(sums - sums.mean()))) / count
        independent = np.sqrt((inside["stated"] * (1 - inside["stated"])).sum()) / count
        rows.append(
            {
                "lower": EDGES[int(str(number))],
                "upper": EDGES[int(str(number)) + 1],
                "stated": stated,
                "right": inside["right"].mean(),
                "error": max(spread, independent),
                "num_pairs": count,
                "num_suites": len(sums),
            }
        )
    return pd.DataFrame(rows)


def check_pairs(table: pd.DataFrame, *, slack: float = 0.05, false_alarm_rate: float = 0.01) -> CheckReport:
    """Check that stated probabilities are met within a slack.

    Parameters
    ----------
    table
        What `measure_pairs` returns.
    slack
        How far the share of right orders may lie from what is stated.
    false_alarm_rate
        Probability of any failure where all shares are just within the slack, over the whole table.

    Returns
    -------
    CheckReport
        One check per row: it fails where the share lies farther off than slack and chance allow, and cannot tell where
        it lies farther off than the slack but chance allows it.

    Examples
    --------
    >>> row = {"case": "a", "engine": "x", "lower": 0.9, "upper": 0.95, "stated": 0.93, "right": 0.7, "error": 0.01,
    ...        "num_pairs": 900, "num_suites": 200}
    >>> print(check_pairs(pd.DataFrame([row])))
    fail: a, x, P(A > B) from .90 to .95. Stated 93.0%, right 70.0% ± 1.0% of 900 pairs; at most 5 points off wanted.
    """
    checks = []
    for row in table.to_dict("records"):
        off = abs(row["right"] - row["stated"]) - slack
        limit = student.ppf(1 - false_alarm_rate / len(table), max(row["num_suites"] - 1, 1))
        outcome = Outcome.PASS if off <= 0 else Outcome.CANNOT_TELL
        if off > limit * row["error"]:
            outcome = Outcome.FAIL
        edges = " to ".join(f"{row[edge]:.2f}".removeprefix("0") for edge in ("lower", "upper"))
        message = (
            f"Stated {row['stated']:.1%}, right {row['right']:.1%} ± {row['error']:.1%} of {row['num_pairs']:,} pairs; "
            f"at most {100 * slack:g} points off wanted."
        )
        checks.append(Check(f"{row['case']}, {row['engine']}, P(A > B) from {edges}", outcome, message))
    return CheckReport(tuple(checks))
