"""The leaderboard: accuracy, cBMM estimate and posterior of every LLM, with intervals for ability and rank."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np
import pandas as pd
from jaxtyping import Float
from scipy.special import expit
from scipy.stats import rankdata

from bayes_irt.analysis.accuracy import accuracy_with_error, expected_log_odds
from bayes_irt.analysis.leaderboard import Leaderboard
from bayes_irt.analysis.ranks import (
    Trait,
    ability_draws,
    items_of_trait,
    named_weights,
    rank_intervals,
    ranks_by_draw,
    tie_groups,
    trait_loads,
    trait_weights,
)
from bayes_irt.analysis.reliability import ability_reliability, has_common_ability, score_spread_p_value
from bayes_irt.arguments import require_number, require_whole
from bayes_irt.data_checks import FEWEST_FOR_ABILITY, require_linked
from bayes_irt.errors import InvalidConfigurationError
from bayes_irt.estimate import PointEstimate
from bayes_irt.posterior import Posterior
from bayes_irt.provenance import require_same_data
from bayes_irt.responses import Responses
from bayes_irt.trait_matching import match_to

_DRAWS_OF_ACCURACY = 1000
_ABILITY_COLUMNS = ("cbmm_ability", "ability", "ability_lower", "ability_upper")


def rank_llms(  # noqa: PLR0913  the board's own options, and which of several traits
    posterior: Posterior,
    estimate: PointEstimate,
    responses: Responses,
    prob: float = 0.9,
    *,
    top: int = 5,
    tie_prob: float = 0.95,
    tripling: float = 10.0,
    trait: Trait = None,
) -> Leaderboard:
    """Rank LLMs by their posterior ability, beside their accuracy and cBMM estimate.

    Points are on a scale of odds, as those of ratings are: the log odds of the expected accuracy, less their mean over
    the LLMs. An LLM that is `tripling` points ahead of another has three times its odds of a right answer to an item
    of this suite. They are made from the expected accuracy and not from ability times a mean discrimination, because
    the data leave the discrimination of dead items open, but not how often such items are solved.

    Parameters
    ----------
    posterior
        Draws of the abilities.
    estimate
        The cBMM estimate of the same responses.
    responses
        The data.
    prob
        Probability of the equal-tailed intervals.
    top
        Best ranks counted by ``p_top``.
    tie_prob
        Probability at which an LLM counts as separated from the leader of a tie group.
    tripling
        Points that triple the odds; 191 gives the scale of chess ratings.
    trait
        Where there are several traits, the name of the one to rank on, or weights of several: abilities are then their
        weighted mean, standardised. Expected accuracies and points are those of all items.

    Returns
    -------
    Leaderboard
        Best posterior mean ability first. The standard error of an accuracy treats an item's attempts as one
        cluster. A rank interval holds at least `prob` of the posterior of the rank. Expected accuracies are those of
        1,000 draws, spread evenly, where there are more.

    Raises
    ------
    InvalidConfigurationError
        If posterior, estimate and responses are about different LLMs or items, if LLMs fall into groups that share no
        item, or if an option is out of range.

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
    _check_same({"posterior": posterior, "estimate": estimate}, responses, max(len(posterior.traits), 1))
    _require_same_loads(posterior, estimate)
    _check_options(prob, top, tie_prob, tripling)
    weights = trait_weights(posterior, trait)
    reliability = ability_reliability(posterior, trait)
    p_value = score_spread_p_value(items_of_trait(posterior, responses, trait))
    enough = responses.num_llms >= FEWEST_FOR_ABILITY
    ability = ability_draws(posterior, trait)
    columns = {
        **_observed_columns(estimate, responses, _weights_of_estimate(posterior, estimate, weights)),
        **_interval_columns("ability", ability, prob),
        **_rank_columns(ability, prob, top),
        "tie_group": tie_groups(ability, tie_prob),
        **_expected_columns(posterior, prob, tripling),
        **_coverage_columns(responses),
    }
    if enough and not has_common_ability(reliability, p_value):
        columns["tie_group"] = np.ones(responses.num_llms, dtype=np.int64)
    table = _in_order(pd.DataFrame(columns, index=_index(responses)), "ability")
    if not enough:
        table.loc[:, list(_ABILITY_COLUMNS)] = np.nan
    named = named_weights(posterior, trait)
    return Leaderboard(table, prob, reliability, p_value, int(top), tie_prob, tripling, named)


def _weights_of_estimate(
    posterior: Posterior, estimate: PointEstimate, weights: Float[np.ndarray, " trait"]
) -> Float[np.ndarray, " trait"]:
    """Return the weights by the estimate's traits, which have an order of their own where traits are explored."""
    if not (posterior.traits and posterior.spec.exploratory):
        return weights
    loads = posterior.draws["discrimination"].mean(("chain", "draw")).transpose("item", "trait").to_numpy()
    order = match_to(np.asarray(estimate.parameters.discrimination), loads)
    return weights[np.argsort(order)]


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
        If the estimate is about other LLMs or items, or LLMs fall into groups that share no item.

    Examples
    --------
    >>> from bayes_irt import Priors, fit_cbmm, simulate_suite
    >>> responses = simulate_suite(6, 20).responses
    >>> rank_estimate(fit_cbmm(responses, penalty=Priors()), responses).shape
    (6, 5)
    """
    _check_same({"estimate": estimate}, responses)
    observed = _observed_columns(estimate, responses, np.ones(1))
    del observed["cbmm_rank"]
    items_seen = {"items_seen": _coverage_columns(responses)["items_seen"]}
    table = _in_order(pd.DataFrame(observed | items_seen, index=_index(responses)), "cbmm_ability")
    if len(table) < FEWEST_FOR_ABILITY:
        table["cbmm_ability"] = np.nan
    return table


def _observed_columns(
    estimate: PointEstimate, responses: Responses, weights: Float[np.ndarray, " trait"]
) -> dict[str, np.ndarray]:
    accuracy, error = accuracy_with_error(responses)
    cbmm = np.asarray(estimate.parameters.ability) @ weights
    if np.count_nonzero(weights) > 1:
        cbmm = cbmm / cbmm.std()
    rank = rankdata(-cbmm, method="min").astype(int)
    return {"accuracy": accuracy, "accuracy_se": error, "cbmm_ability": cbmm, "cbmm_rank": rank}


def _interval_columns(
    name: str, draws: Float[np.ndarray, "sample llm"], prob: float
) -> dict[str, np.ndarray]:
    lower, upper = np.quantile(draws, ((1 - prob) / 2, (1 + prob) / 2), axis=0)
    return {name: draws.mean(axis=0), f"{name}_lower": lower, f"{name}_upper": upper}


def _rank_columns(ability: Float[np.ndarray, "sample llm"], prob: float, top: int) -> dict[str, np.ndarray]:
    ranks = ranks_by_draw(ability)
    lower, upper = rank_intervals(ranks, prob)
    return {
        "rank_lower": lower,
        "rank_upper": upper,
        "expected_rank": ranks.mean(axis=0),
        "p_best": (ranks == 1).mean(axis=0),
        "p_top": (ranks <= top).mean(axis=0),
    }


def _expected_columns(posterior: Posterior, prob: float, tripling: float) -> dict[str, np.ndarray]:
    log_odds = expected_log_odds(posterior, most_draws=_DRAWS_OF_ACCURACY)
    points = (log_odds - log_odds.mean(axis=1, keepdims=True)) * (tripling / math.log(3))
    return {
        **_interval_columns("expected_accuracy", expit(log_odds), prob),
        **_interval_columns("points", points, prob),
    }


def _coverage_columns(responses: Responses) -> dict[str, np.ndarray]:
    seen = (responses.attempts > 0).sum(axis=1)
    return {"items_seen": seen, "item_share": seen / responses.num_items}


def _index(responses: Responses) -> pd.Index:
    return pd.Index(responses.llms, name="llm", dtype=object)


def _in_order(table: pd.DataFrame, by: str) -> pd.DataFrame:
    ordered = table.sort_values([by, "accuracy"], ascending=False, kind="stable")
    ordered.insert(0, "position", np.arange(1, len(ordered) + 1))
    return ordered


def _check_options(prob: float, top: int, tie_prob: float, tripling: float) -> None:
    for name, value, example in (("prob", prob, 0.9), ("tie_prob", tie_prob, 0.95)):
        if not 0 < value < 1:
            raise InvalidConfigurationError(
                f"{name} is {value}; it must lie between 0 and 1, such as {example}."
            )
    require_whole("top", top, 1)
    require_number("tripling", tripling, 1e-6, 1e6)


def _require_same_loads(posterior: Posterior, estimate: PointEstimate) -> None:
    """Refuse estimates whose items load where the posterior's cannot: their traits are others."""
    if not posterior.traits or posterior.spec.exploratory:
        return
    if (np.asarray(estimate.parameters.discrimination) > 0)[~trait_loads(posterior)].any():
        raise InvalidConfigurationError(
            "In the estimate items load on other traits than in the posterior. Fit it with loads=posterior.spec."
        )


def _check_same(
    fits: Mapping[str, Posterior | PointEstimate], responses: Responses, num_traits: int = 1
) -> None:
    require_linked(responses)
    for name, fitted in fits.items():
        require_same_data(fitted.provenance, responses.digest, name)
        if isinstance(fitted, PointEstimate) and fitted.parameters.num_traits != num_traits:
            raise InvalidConfigurationError(
                f"The {name} has {fitted.parameters.num_traits} traits, the posterior {num_traits}. Fit both alike."
            )
