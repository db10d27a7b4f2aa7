"""Ranks of true values among posterior draws, and the test that they are uniform. Plain arrays in, tables out.

Ranks become normal scores, whose squares are pooled: their mean exceeds the expected one where posteriors are too
narrow. A Kolmogorov-Smirnov test of each parameter does not notice posteriors that are 15 % too narrow; pooled squares
do. The ranks of one data set depend on each other, so the data set is the unit of every test.

References
----------
Cook, S. R., Gelman, A. & Rubin, D. B. (2006). Validation of software for Bayesian models using posterior quantiles.
Journal of Computational and Graphical Statistics 15, 675-692.
Hall, P. (1992). On the removal of skewness by transformation. Journal of the Royal Statistical Society B 54, 221-228.
"""

from __future__ import annotations

import math

import numpy as np
import pandas as pd
from jaxtyping import Float
from scipy.special import ndtri
from scipy.stats import skew
from scipy.stats import t as student

from bayes_irt.errors import InvalidConfigurationError

#: All parameters of a data set together; and what depends on its data, which is no parameter.
POOLED, LIKELIHOOD = "all parameters", "log likelihood"
# The mean score of abilities says nothing: they have mean 0 in truth and draws alike.
_ONLY_SQUARES = ("ability", POOLED)


def score_draws(
    truth: dict[str, Float[np.ndarray, " parameter"]],
    draws: dict[str, Float[np.ndarray, "draw parameter"]],
    rng: np.random.Generator,
) -> pd.DataFrame:
    """Score one data set: normal scores of the truth's ranks among the draws, pooled by kind of parameter.

    Parameters
    ----------
    truth
        Kind of parameter to true values.
    draws
        Kind to independent draws; kinds without truth are left aside.
    rng
        Breaks ties between truth and draws.

    Returns
    -------
    pandas.DataFrame
        One row per kind, and one for all parameters together: ``mean_square`` and ``mean`` of the scores,
        ``autocorrelation`` of neighbouring draws.

    Raises
    ------
    InvalidConfigurationError
        If a kind has no draws.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> score_draws({"x": np.zeros(5)}, {"x": rng.normal(size=(63, 5))}, rng).index.tolist()
    ['x', 'all parameters']
    """
    if lacking := sorted(set(truth) - set(draws)):
        raise InvalidConfigurationError(f"The posterior has no draws of {lacking}. Fit the model drawn from.")
    scores = {kind: normal_scores(values, draws[kind], rng) for kind, values in truth.items()}
    lag = {kind: _autocorrelation(draws[kind]) for kind in truth}
    scores[POOLED] = np.concatenate([value for kind, value in scores.items() if kind != LIKELIHOOD])
    lag[POOLED] = float(np.mean([value for kind, value in lag.items() if kind != LIKELIHOOD]))
    table = {
        "mean_square": {kind: float(np.mean(value**2)) for kind, value in scores.items()},
        "mean": {kind: float(np.mean(value)) for kind, value in scores.items()},
        "autocorrelation": lag,
    }
    return pd.DataFrame(table).rename_axis("kind")


def normal_scores(
    truth: Float[np.ndarray, " parameter"],
    draws: Float[np.ndarray, "draw parameter"],
    rng: np.random.Generator,
) -> Float[np.ndarray, " parameter"]:
    """Return the normal score of each true value's rank among its draws.

    Parameters
    ----------
    truth
        True values.
    draws
        L independent draws of each.
    rng
        Breaks ties.

    Returns
    -------
    numpy.ndarray
        The normal quantile of (rank + 1/2) / (L + 1).

    Examples
    --------
    >>> normal_scores(np.array([0.0]), np.array([[-1.0], [1.0]]), np.random.default_rng(0)).tolist()
    [0.0]
    """
    ties = (draws == truth).sum(axis=0)
    ranks = (draws < truth).sum(axis=0) + rng.integers(0, ties + 1)
    return np.asarray(ndtri((ranks + 0.5) / (len(draws) + 1)))


def judge_scores(scores: pd.DataFrame, num_draws: int, false_alarm_rate: float) -> pd.DataFrame:
    """Test, over data sets, whether the scores are those of uniform ranks.

    Every kind's mean squared score is tested, and the mean score of those that have a direction, each at the
    false-alarm rate divided by the number of tests. Squares are skewed, and a t test of their mean would give too many
    alarms: Hall's transformation takes the skewness out.

    Parameters
    ----------
    scores
        Columns ``kind``, ``mean_square`` and ``mean``, one row per data set and kind.
    num_draws
        Number of draws among which the truth was ranked.
    false_alarm_rate
        Probability of any alarm where all ranks are uniform.

    Returns
    -------
    pandas.DataFrame
        Indexed by ``kind`` and ``statistic``: ``value``, ``expected``, ``error`` (standard error over data sets),
        ``t`` (skewness taken out), ``p_value``, ``limit`` (least p-value that passes), ``passed``, ``datasets``.

    References
    ----------
    Hall, P. (1992). On the removal of skewness by transformation. Journal of the Royal Statistical Society B 54,
    221-228.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> scores = pd.DataFrame({"kind": "x", "mean_square": rng.chisquare(1, 80), "mean": rng.normal(size=80)})
    >>> judge_scores(scores, 10_000, 0.01)["passed"].tolist()
    [True, True]
    """
    uniform = ndtri((np.arange(num_draws + 1) + 0.5) / (num_draws + 1))
    expected = {"mean_square": float(np.mean(uniform**2)), "mean": 0.0}
    rows = {}
    for kind, own in scores.groupby("kind", sort=False):
        for statistic, wanted in expected.items():
            if statistic == "mean_square" or kind not in _ONLY_SQUARES:
                rows[kind, statistic] = _skew_free_test(own[statistic].to_numpy(), wanted)
    table = pd.DataFrame.from_dict(rows, orient="index")
    table.index = pd.MultiIndex.from_tuples(list(rows), names=["kind", "statistic"])
    table["limit"] = false_alarm_rate / len(table)
    table["passed"] = table["p_value"] >= table["limit"]
    table["datasets"] = scores.groupby("kind").size().max()
    return table


def _skew_free_test(values: Float[np.ndarray, " dataset"], expected: float) -> dict[str, float]:
    """Test the mean of independent, skewed values."""
    number, mean, sd = len(values), float(values.mean()), float(values.std(ddof=1))
    found = {"value": mean, "expected": expected, "error": sd / math.sqrt(number)}
    if sd <= 1e-12:  # all data sets alike: a point mass, say
        far = abs(mean - expected) > 1e-12
        return found | {
            "t": math.copysign(math.inf, mean - expected) if far else 0.0,
            "p_value": float(not far),
        }
    shift, skewness = (mean - expected) / sd, float(skew(values))
    cubic = shift + skewness * shift**2 / 3 + skewness**2 * shift**3 / 27 + skewness / (6 * number)
    statistic = math.sqrt(number) * cubic
    return found | {"t": statistic, "p_value": float(2 * student.sf(abs(statistic), number - 1))}


def _autocorrelation(draws: Float[np.ndarray, "draw parameter"]) -> float:
    """Return the mean correlation of neighbouring draws over parameters that vary."""
    centred = draws - draws.mean(axis=0)
    variance = np.mean(centred**2, axis=0)
    varies = variance > 0
    if not varies.any():
        return 0.0
    return float(np.mean(np.mean(centred[1:] * centred[:-1], axis=0)[varies] / variance[varies]))
