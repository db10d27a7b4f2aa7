"""Two LLMs compared, or every LLM with every other: the odds that one is better, and by how much.

The classical tests see only the items that both LLMs answered; the posterior sees all items and all LLMs.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
import pandas as pd
from jaxtyping import Float, Integer

from bayes_irt.analysis.accuracy import accuracy_with_error, expected_accuracy
from bayes_irt.analysis.pair import Interval, PairComparison, Verdict
from bayes_irt.analysis.paired_test import PairedTest, paired_test
from bayes_irt.analysis.ranks import (
    Trait,
    ability_draws,
    items_of_trait,
    llm_places,
    named_weights,
    win_shares,
)
from bayes_irt.analysis.reliability import ability_reliability, has_common_ability, score_spread_p_value
from bayes_irt.arguments import require_number
from bayes_irt.data_checks import FEWEST_FOR_ABILITY, require_linked
from bayes_irt.errors import InvalidConfigurationError
from bayes_irt.posterior import Posterior
from bayes_irt.provenance import require_same_data
from bayes_irt.responses import Responses


def compare_llms(
    posterior: Posterior,
    responses: Responses,
    a: str,
    b: str,
    *,
    prob: float = 0.9,
    threshold: float = 0.95,
    trait: Trait = None,
) -> PairComparison:
    """Compare two LLMs: which is better, how surely and by how much.

    Parameters
    ----------
    posterior
        Draws of abilities and items.
    responses
        The data that were fitted.
    a, b
        Labels of two LLMs.
    prob
        Probability of the intervals.
    threshold
        Probability that one must be better with to be called so, at least .5.
    trait
        Where there are several traits, the one to compare on, or weights of several. Expected accuracies are those of
        all items.

    Returns
    -------
    PairComparison
        Posterior figures beside the classical paired test.

    Raises
    ------
    InvalidConfigurationError
        If the posterior is about other data, a label is unknown, both are the same, LLMs fall into groups that share no
        item, or a probability is out of range.

    Examples
    --------
    >>> from bayes_irt import Sampler, fit_nuts, simulate_suite
    >>> responses = simulate_suite(6, 20).responses
    >>> sampler = Sampler(num_chains=2, num_warmup=100, num_draws=100)
    >>> pair = compare_llms(fit_nuts(responses, sampler=sampler), responses, "llm-004", "llm-002")
    >>> str(pair.verdict), 0.5 < pair.p_better < 0.95
    ('not separated', True)
    """
    require_same_data(posterior.provenance, responses.digest, "posterior")
    require_linked(responses)
    require_number("prob", prob, 1e-6, 1 - 1e-6)
    require_number("threshold", threshold, 0.5, 1 - 1e-6)
    if a == b:
        raise InvalidConfigurationError(f"{a!r} is compared with itself. Name two LLMs.")
    places = llm_places(posterior, [a, b])
    ability = ability_draws(posterior, trait)[:, places]
    expected = expected_accuracy(posterior, [a, b])
    p_better = float(win_shares(ability[:, :1], ability[:, 1:])[0, 0])
    enough = responses.num_llms >= FEWEST_FOR_ABILITY
    found = not enough or has_common_ability(
        ability_reliability(posterior, trait),
        score_spread_p_value(items_of_trait(posterior, responses, trait)),
    )
    observed = _observed(responses, places)
    return PairComparison(
        a=a,
        b=b,
        p_better=p_better,
        verdict=_verdict(p_better, threshold) if found else Verdict.NOT_SEPARATED,
        ability_difference=_interval(ability[:, 0] - ability[:, 1], prob) if enough else None,
        expected_accuracy=(_interval(expected[:, 0], prob), _interval(expected[:, 1], prob)),
        expected_difference=_interval(expected[:, 0] - expected[:, 1], prob),
        num_items=responses.num_items,
        prob=prob,
        threshold=threshold,
        found_ability=found,
        traits=named_weights(posterior, trait),
        **observed._asdict(),
    )


def pair_matrix(posterior: Posterior, responses: Responses, *, trait: Trait = None) -> pd.DataFrame:
    """Return the probability that one LLM is more able than another, for all pairs.

    Parameters
    ----------
    posterior
        Draws of the abilities.
    responses
        The data that were fitted.
    trait
        Where there are several traits, the one wanted, or weights of several.

    Returns
    -------
    pandas.DataFrame
        P(row beats column); best posterior mean first on both axes, missing on the diagonal.

    Raises
    ------
    InvalidConfigurationError
        If the posterior is about other data, or LLMs fall into groups that share no item.

    Examples
    --------
    >>> from bayes_irt import Sampler, fit_nuts, simulate_suite
    >>> responses = simulate_suite(6, 20).responses
    >>> sampler = Sampler(num_chains=2, num_warmup=100, num_draws=100)
    >>> matrix = pair_matrix(fit_nuts(responses, sampler=sampler), responses)
    >>> bool(np.allclose((matrix + matrix.T).fillna(1), 1))
    True
    """
    require_same_data(posterior.provenance, responses.digest, "posterior")
    require_linked(responses)
    ability = ability_draws(posterior, trait)
    order = np.argsort(-ability.mean(axis=0), kind="stable")
    shares = win_shares(ability[:, order], ability[:, order])
    np.fill_diagonal(shares, np.nan)
    labels = pd.Index([responses.llms[place] for place in order], name="llm", dtype=object)
    return pd.DataFrame(shares, index=labels, columns=labels.rename("other"))


class _Observed(NamedTuple):
    """What was observed of two LLMs, under the names of `PairComparison`."""

    accuracy: tuple[float, float]
    accuracy_se: tuple[float | None, float | None]
    items_seen: tuple[int, int]
    items_shared: int
    shared_accuracy: tuple[float, float] | None
    test: PairedTest | None


def _observed(responses: Responses, places: Integer[np.ndarray, " pair"]) -> _Observed:
    accuracy, error = (values[places].tolist() for values in accuracy_with_error(responses))
    attempts, successes = responses.attempts[places], responses.successes[places]
    shared = (attempts > 0).all(axis=0)
    first, second = successes[:, shared] / attempts[:, shared]
    test = paired_test(first, second, single=bool((attempts[:, shared] == 1).all())) if shared.any() else None
    seen = (attempts > 0).sum(axis=1).tolist()
    return _Observed(
        accuracy=(accuracy[0], accuracy[1]),
        accuracy_se=(_or_none(error[0]), _or_none(error[1])),
        items_seen=(seen[0], seen[1]),
        items_shared=int(shared.sum()),
        shared_accuracy=(float(first.mean()), float(second.mean())) if shared.any() else None,
        test=test,
    )


def _or_none(value: float) -> float | None:
    return None if math.isnan(value) else value


def _interval(draws: Float[np.ndarray, " sample"], prob: float) -> Interval:
    lower, upper = np.quantile(draws, ((1 - prob) / 2, (1 + prob) / 2))
    return Interval(float(draws.mean()), float(lower), float(upper))


def _verdict(p_better: float, threshold: float) -> Verdict:
    if p_better >= threshold:
        return Verdict.A_BETTER
    return Verdict.B_BETTER if 1 - p_better >= threshold else Verdict.NOT_SEPARATED
