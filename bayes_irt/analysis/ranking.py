"""The leaderboard: accuracy, cBMM estimate and posterior of every LLM, with intervals for ability and rank."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pandas as pd
from scipy.stats import rankdata

from bayes_irt.analysis.accuracy import accuracy_with_error
from bayes_irt.analysis.leaderboard import Leaderboard
from bayes_irt.analysis.ranks import rank_intervals, ranks_by_draw
from bayes_irt.analysis.reliability import ability_reliability, score_spread_p_value
from bayes_irt.data_checks import FEWEST_FOR_ABILITY, linked_components
from bayes_irt.errors import InvalidConfigurationError
from bayes_irt.estimate import PointEstimate
from bayes_irt.posterior import Posterior
from bayes_irt.provenance import require_same_data
from bayes_irt.responses import Responses

_ABILITY_COLUMNS = ("cbmm_ability", "ability", "ability_lower", "ability_upper")


def rank_llms(
    posterior: Posterior, estimate: PointEstimate, responses: Responses, prob: float = 0.9
) -> Leaderboard:
    """Rank LLMs by their posterior ability, beside their accuracy and cBMM estimate.

    Parameters
    ----------
    posterior
        Draws of the abilities.
    estimate
        The cBMM estimate of the same responses.
    responses
        The data.
    prob
        Probability of the equal-tailed intervals of ability and rank.

    Returns
    -------
    Leaderboard
        Best posterior mean ability first. The standard error of an accuracy treats an item's attempts as one
        cluster. A rank interval holds at least `prob` of the posterior of the rank.

    Raises
    ------
    InvalidConfigurationError
        If posterior, estimate and responses are about different LLMs or items, or `prob` is not in (0, 1).

    Examples
    --------
    >>> from bayes_irt import Priors, Sampler, fit_cbmm, fit_nuts, simulate_suite
    >>> responses = simulate_suite(6, 20).responses
    >>> estimate = fit_cbmm(responses, penalty=Priors())
    >>> sampler = Sampler(num_chains=2, num_warmup=100, num_draws=100)
    >>> board = rank_llms(fit_nuts(responses, sampler=sampler), estimate, responses)
    >>> board.table.columns.tolist()[:3]
    ['position', 'accuracy', 'accuracy_se']
    """
    _check_same({"posterior": posterior, "estimate": estimate}, responses)
    if not 0 < prob < 1:
        raise InvalidConfigurationError(f"prob is {prob}; it must lie between 0 and 1, such as 0.9.")
    draws = posterior.ability.stack(sample=("chain", "draw")).transpose("sample", "llm").to_numpy()
    ranks = ranks_by_draw(draws)
    tails = ((1 - prob) / 2, (1 + prob) / 2)
    lower, upper = np.quantile(draws, tails, axis=0)
    rank_lower, rank_upper = rank_intervals(ranks, prob)
    accuracy, error = accuracy_with_error(responses)
    cbmm = estimate.parameters.ability[:, 0]
    table = pd.DataFrame(
        {
            "accuracy": accuracy,
            "accuracy_se": error,
            "cbmm_ability": cbmm,
            "cbmm_rank": rankdata(-cbmm, method="min").astype(int),
            "ability": draws.mean(axis=0),
            "ability_lower": lower,
            "ability_upper": upper,
            "rank_lower": rank_lower,
            "rank_upper": rank_upper,
            "p_best": (ranks == 1).mean(axis=0),
            "items_seen": (responses.attempts > 0).sum(axis=1),
        },
        index=pd.Index(responses.llms, name="llm", dtype=object),
    ).sort_values(["ability", "accuracy"], ascending=False, kind="stable")
    table.insert(0, "position", np.arange(1, len(table) + 1))
    if len(table) < FEWEST_FOR_ABILITY:
        table.loc[:, list(_ABILITY_COLUMNS)] = np.nan
    return Leaderboard(
        table=table,
        prob=prob,
        reliability=ability_reliability(posterior),
        p_value=score_spread_p_value(responses),
        components=tuple(linked_components(responses)),
    )


def rank_estimate(estimate: PointEstimate, responses: Responses) -> pd.DataFrame:
    """Rank LLMs by their cBMM estimate alone, without error bars.

    Parameters
    ----------
    estimate
        The cBMM estimate of the responses.
    responses
        The data.

    Returns
    -------
    pandas.DataFrame
        One row per LLM, most able first: ``position``, ``accuracy``, ``accuracy_se``, ``cbmm_ability`` (missing with
        fewer than 4 LLMs), ``items_seen``.

    Raises
    ------
    InvalidConfigurationError
        If the estimate is about other LLMs or items.

    Examples
    --------
    >>> from bayes_irt import Priors, fit_cbmm, simulate_suite
    >>> responses = simulate_suite(6, 20).responses
    >>> rank_estimate(fit_cbmm(responses, penalty=Priors()), responses).shape
    (6, 5)
    """
    _check_same({"estimate": estimate}, responses)
    accuracy, error = accuracy_with_error(responses)
    columns = {"accuracy": accuracy, "accuracy_se": error, "cbmm_ability": estimate.parameters.ability[:, 0]}
    table = pd.DataFrame(columns, index=pd.Index(responses.llms, name="llm", dtype=object))
    table["items_seen"] = (responses.attempts > 0).sum(axis=1)
    table = table.sort_values(["cbmm_ability", "accuracy"], ascending=False, kind="stable")
    table.insert(0, "position", np.arange(1, len(table) + 1))
    if len(table) < FEWEST_FOR_ABILITY:
        table["cbmm_ability"] = np.nan
    return table


def _check_same(fits: Mapping[str, Posterior | PointEstimate], responses: Responses) -> None:
    for name, fitted in fits.items():
        require_same_data(fitted.provenance, responses.digest, name)
        if isinstance(fitted, PointEstimate) and fitted.parameters.num_traits != 1:
            raise InvalidConfigurationError(
                f"The {name} has {fitted.parameters.num_traits} traits, and LLMs are ranked on one. Fit it with one."
            )
