"""Does the model reproduce the data? Posterior predictive checks.

Data are replicated from draws of the posterior and compared with the data observed, draw by draw: scores of LLMs
(which items that hang together spread: copies, groups with an ability of their own), scores of items, item-rest
correlations (which wrong keys turn round), and the spread of repeated attempts within cells (which is no binomial's
where attempts are correlated). A second ability that all kinds of items share alike can leave them all as they are.

References
----------
Gelman, A., Meng, X.-L. & Stern, H. (1996). Posterior predictive assessment of model fitness via realized
discrepancies. Statistica Sinica 6, 733-760.
Sinharay, S., Johnson, M. S. & Stern, H. S. (2006). Posterior predictive assessment of item response theory models.
Applied Psychological Measurement 30, 298-321 (which statistics find which misfit).
Bayarri, M. J. & Berger, J. O. (2000). P values for composite null models. Journal of the American Statistical
Association 95, 1127-1142 (why these p-values are conservative).
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pandas as pd
from jaxtyping import Float
from scipy.stats import norm

from bayes_irt.arguments import require_number, require_whole
from bayes_irt.checks import Check, CheckReport, Outcome
from bayes_irt.errors import ModelMisfitWarning, NumericalError
from bayes_irt.posterior import Posterior
from bayes_irt.provenance import Provenance, require_same_data
from bayes_irt.replication import Statistics, observed_statistics, replicate
from bayes_irt.responses import Responses

#: A check fails where its p-value is at most this.
LEVEL = 0.01
#: Fewer replicated data sets cannot reach this level where a check takes the smaller of two p-values.
FEWEST_REPLICATES = 200

_HALF_AN_ANSWER = 0.5
_SCORES = {"llm_score": "scores of LLMs", "item_score": "scores of items"}
_ADVICE = {
    "llm_score": ": look for copied items, groups of items with their own ability, or a fit that did not converge.",
    "item_score": ": look for priors too narrow for these items, or a fit that did not converge.",
}


@dataclass(frozen=True, slots=True, eq=False)
class PredictiveChecks:
    """Hold posterior predictive checks and what their plots show.

    Parameters
    ----------
    report
        The checks "scores of LLMs", "scores of items", "item-rest correlations" and "repeated attempts".
    discrepancies
        One row per statistic: ``observed``, ``replicated`` (means over draws) and ``p_value``. Dispersions are squared
        deviations from what a draw expects, divided by the variance it expects: 1 if the model is true. For the
        flattest item it is by how many standard errors its answers rise less with the other answers than expected.
    llm_scores, item_scores
        Shares of right attempts, one row per LLM or item: ``observed``, ``predicted`` (mean over replicated data),
        ``lower`` and ``upper`` (predictive interval), and ``outside``, true where the observed share is not in it.
    item_rest
        The same for the correlation between an item and the LLMs' shares on all other items; missing where it is not
        defined.
    cell_counts
        The same for the number of cells with 0, 1, 2 ... right answers, among the cells with the commonest number of
        attempts above one; no rows where no cell has several attempts.
    prob
        Probability of the intervals.
    provenance
        What made the checks.

    Examples
    --------
    >>> from bayes_irt import Sampler, fit_nuts, simulate_suite
    >>> responses = simulate_suite(6, 20).responses
    >>> posterior = fit_nuts(responses, sampler=Sampler(num_chains=2, num_warmup=100, num_draws=100))
    >>> checks = check_predictive(posterior, responses)
    >>> checks.llm_scores.columns.tolist()
    ['observed', 'predicted', 'lower', 'upper', 'outside']
    """

    report: CheckReport
    discrepancies: pd.DataFrame
    llm_scores: pd.DataFrame
    item_scores: pd.DataFrame
    item_rest: pd.DataFrame
    cell_counts: pd.DataFrame
    prob: float
    provenance: Provenance


def check_predictive(
    posterior: Posterior, responses: Responses, *, num_draws: int = 200, seed: int = 0, prob: float = 0.9
) -> PredictiveChecks:
    """Check whether a fit reproduces its data: scores, item-rest correlations, repeated attempts.

    Each check compares the data with data replicated from draws of the posterior and fails where its p-value is at
    most .01. Posterior predictive p-values are conservative, since the data have been fitted: if the model is true, a
    check fails in less than 1 of 100 data sets, and a misfit that the parameters can absorb goes unseen.

    Parameters
    ----------
    posterior
        Draws of any engine.
    responses
        The data that were fitted.
    num_draws
        Number of replicated data sets, each from a draw, spread evenly; where the posterior has fewer draws, they
        serve again. At least 200: with fewer no p-value could be small enough.
    seed
        Seed of the replicated data.
    prob
        Probability of the equal-tailed predictive intervals.

    Returns
    -------
    PredictiveChecks
        Report and tables. A draw's cells are visited in tiles and forgotten.

    Raises
    ------
    InvalidConfigurationError
        If the responses are not those fitted, or an option is out of range.
    NumericalError
        If the draws hold non-finite values.

    Warns
    -----
    ModelMisfitWarning
        If repeated attempts vary more between cells than a binomial allows: they are correlated, and error bars are
        too narrow.

    Examples
    --------
    >>> from bayes_irt import Sampler, fit_nuts, simulate_suite
    >>> responses = simulate_suite(6, 20).responses
    >>> posterior = fit_nuts(responses, sampler=Sampler(num_chains=2, num_warmup=100, num_draws=100))
    >>> [str(check.outcome) for check in check_predictive(posterior, responses).report]
    ['pass', 'pass', 'pass', 'not applicable']
    """
    require_same_data(posterior.provenance, responses.digest, "posterior")
    require_whole("num_draws", num_draws, FEWEST_REPLICATES)
    require_whole("seed", seed, 0)
    require_number("prob", prob, 0.01, 0.99)
    found = _replicates(posterior, responses, num_draws, seed)
    tables = _tables(found, responses, prob)
    judged = [
        _judge_scores(found, "llm_score", tables["llm_score"]),
        _judge_scores(found, "item_score", tables["item_score"]),
        _judge_item_rest(found, tables["item_rest"]),
        _judge_repeats(found, dispersed=posterior.laws.dispersion is not None),
    ]
    configuration = {"num_draws": int(num_draws), "prob": float(prob), "fit": posterior.provenance.method}
    checks = PredictiveChecks(
        CheckReport(tuple(check for check, _ in judged)),
        _discrepancy_table([row for _, rows in judged for row in rows]),
        tables["llm_score"],
        tables["item_score"],
        tables["item_rest"],
        tables["cells"],
        float(prob),
        Provenance("predictive checks", configuration, responses.digest, int(seed)),
    )
    repeats = checks.report["repeated attempts"]
    if repeats.outcome is Outcome.FAIL:
        warnings.warn(repeats.message, ModelMisfitWarning, stacklevel=2)
    return checks


class _Found(NamedTuple):
    """Statistics of the data and, stacked by draw, of replicated data; what is compared draw by draw."""

    observed: Statistics
    replicated: Statistics
    dispersions: dict[str, Float[np.ndarray, "draw 2"]]
    associations: Float[np.ndarray, "draw 2 item"]


class _Discrepancy(NamedTuple):
    """One row of the table of discrepancies."""

    statistic: str
    observed: float
    replicated: float
    p_value: float


def _replicates(posterior: Posterior, responses: Responses, num_draws: int, seed: int) -> _Found:
    """Replicate the data from draws that are spread evenly over all chains."""
    laws = posterior.laws
    parameters = laws.parameters
    leaves = (parameters.ability, parameters.discrimination, parameters.easiness)
    if not all(np.isfinite(leaf).all() for leaf in leaves):
        raise NumericalError("The draws hold non-finite values; see check_posterior, and fit again.")
    rng = np.random.default_rng(seed)
    observed = observed_statistics(responses)
    places = np.linspace(0, posterior.num_draws - 1, num_draws).round().astype(int)
    replicates = [replicate(laws.at(place), responses, observed, rng) for place in places.tolist()]
    stacked = Statistics(
        *(np.stack(values) for values in zip(*(r.statistics for r in replicates), strict=True))
    )
    names = replicates[0].dispersions
    dispersions = {name: np.array([r.dispersions[name] for r in replicates]) for name in names}
    return _Found(observed, stacked, dispersions, np.stack([r.associations for r in replicates]))


def _tables(found: _Found, responses: Responses, prob: float) -> dict[str, pd.DataFrame]:
    """Return, for every statistic, what was observed beside its predictive interval."""
    attempts = responses.attempts
    cells = np.arange(len(found.observed.cells))
    parts = {
        "llm_score": (
            pd.Index(responses.llms, name="llm", dtype=object),
            attempts.sum(axis=1, dtype=np.int64),
        ),
        "item_score": (
            pd.Index(responses.items, name="item", dtype=object),
            attempts.sum(axis=0, dtype=np.int64),
        ),
        "item_rest": (pd.Index(responses.items, name="item", dtype=object), 1),
        "cells": (pd.Index(cells, name="successes"), 1),
    }
    return {
        name: _table(
            getattr(found.observed, name) / unit, getattr(found.replicated, name) / unit, index, prob
        )
        for name, (index, unit) in parts.items()
    }


def _table(
    observed: Float[np.ndarray, " one"],
    replicated: Float[np.ndarray, "draw one"],
    index: pd.Index,
    prob: float,
) -> pd.DataFrame:
    predicted, lower, upper = (np.full(len(observed), np.nan) for _ in range(3))
    known = np.isfinite(replicated).any(axis=0)
    if known.any():
        values, tails = replicated[:, known], ((1 - prob) / 2, (1 + prob) / 2)
        predicted[known] = np.nanmean(values, axis=0)
        lower[known], upper[known] = np.nanquantile(values, tails, axis=0, method="inverted_cdf")
    columns = {"observed": observed, "predicted": predicted, "lower": lower, "upper": upper}
    outside = (observed < lower) | (observed > upper)
    return pd.DataFrame({**columns, "outside": outside}, index=index)


def _discrepancy_table(rows: Sequence[_Discrepancy]) -> pd.DataFrame:
    return pd.DataFrame(rows).set_index("statistic")


def _judge_scores(found: _Found, name: str, table: pd.DataFrame) -> tuple[Check, list[_Discrepancy]]:
    """Judge scores by their squared deviations from expectation."""
    row = _discrepancy(_SCORES[name], found.dispersions[name])
    message = f"p = {row.p_value:.3f}; {_coverage(table)}."
    if row.p_value > LEVEL:
        return Check(row.statistic, Outcome.PASS, message), [row]
    scores = getattr(found.replicated, name)
    spread = np.maximum(scores.std(axis=0), _HALF_AN_ANSWER)
    odd = _named(table.index, (getattr(found.observed, name) - scores.mean(axis=0)) / spread)
    message += f" The fit does not reproduce them{_ADVICE[name]}"
    return Check(row.statistic, Outcome.FAIL, message, odd), [row]


def _judge_item_rest(found: _Found, table: pd.DataFrame) -> tuple[Check, list[_Discrepancy]]:
    """Judge how answers rise with the share right on all other items: over all items, and for the flattest.

    The correlation itself is fitted by the item's discrimination. What is judged is how much steeper answers rise
    than the draw expects.
    """
    name = "item-rest correlations"
    if not found.associations.any():
        return Check(name, Outcome.NOT_APPLICABLE, "No item is expected to vary between LLMs."), []
    lowest = -found.associations.min(axis=2)
    rows = [
        _discrepancy(f"{name}: dispersion", found.dispersions["item_rest"]),
        _discrepancy(f"{name}: flattest item", lowest),
    ]
    p_value = min(1.0, 2 * min(row.p_value for row in rows))
    message = f"p = {p_value:.3f}; {_coverage(table)}."
    if p_value > LEVEL:
        return Check(name, Outcome.PASS, message), rows
    message += (
        " Answers do not rise with the share right on all other items as the model says: look for wrong keys "
        "(observed below predicted)."
    )
    return Check(
        name, Outcome.FAIL, message, _named(table.index, found.associations[:, 0].mean(axis=0))
    ), rows


def _judge_repeats(found: _Found, *, dispersed: bool) -> tuple[Check, list[_Discrepancy]]:
    """Judge whether attempts in one cell vary as the model expects, which may be as independent ones do."""
    name = "repeated attempts"
    if not len(found.observed.cells):
        return Check(name, Outcome.NOT_APPLICABLE, "No cell has several attempts."), []
    row = _discrepancy(name, found.dispersions["cells"])
    expected = "the model expects" if dispersed else "independent attempts with one chance per LLM and item"
    message = f"p = {row.p_value:.3f}; cells vary {row.observed:.2f} times as much as {expected}."
    if row.p_value > LEVEL:
        return Check(name, Outcome.PASS, message), [row]
    message += (
        f" A cell's attempts are correlated{' more than that' if dispersed else ''}: error bars are too narrow, by "
        f"a factor of about {math.sqrt(row.observed):.1f}. "
    )
    message += (
        "Give groups of items a dispersion each (dispersion_groups)."
        if dispersed
        else "Fit beta-binomial attempts, the default (observation='auto')."
    )
    return Check(name, Outcome.FAIL, message), [row]


def _discrepancy(name: str, values: Float[np.ndarray, "draw 2"]) -> _Discrepancy:
    """Compare the data with replicated data draw by draw: the p-value is the share of replicated values as large.

    The data count as one of the replicated sets, so that the p-value is never 0.
    """
    observed, replicated = values.T
    p_value = (1 + np.count_nonzero(replicated >= observed)) / (1 + len(values))
    return _Discrepancy(name, float(observed.mean()), float(replicated.mean()), p_value)


def _coverage(table: pd.DataFrame) -> str:
    known = table.dropna()
    return f"{(~known['outside']).mean():.1%} of {len(known):,} lie in their predictive intervals"


def _named(labels: pd.Index, scores: Float[np.ndarray, " one"]) -> tuple[str, ...]:
    """Return what lies farther off than chance allows for one of that many in 20 data sets, or else the farthest."""
    size = np.nan_to_num(np.abs(scores))
    order = np.argsort(-size, kind="stable")
    number = max(1, int(np.count_nonzero(size > norm.isf(0.025 / np.isfinite(scores).sum()))))
    return tuple(labels[order[:number]])
