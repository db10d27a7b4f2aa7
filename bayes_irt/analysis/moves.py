"""Why an LLM's posterior rank differs from its accuracy rank: which items, which item set, which prior.

Accuracy is put on the ability scale first: ``accuracy_ability`` is the ability at which an LLM is expected to reach the
accuracy observed, had it answered every item once. It rises with accuracy, by the same curve for every LLM, so that it
orders LLMs exactly as accuracy does. What lies between it and the posterior mean ability is told apart in steps that
add up::

    ability = accuracy_ability + item_set + sum over items of contribution + remainder

``item_set`` is the step to the ability at which the LLM is expected to reach its accuracy on the items that it saw, as
often as it tried them (0 where it saw them all equally often): an LLM with easy items only has a negative one. There
the residuals r = successes - expected successes sum to 0, since accuracy weighs every attempt alike. A posterior weighs
them by discrimination a, and the step to it is, to first order, the sum of a r over the Fisher information. Taking any
constant from a changes nothing about the sum; the one taken, ``mean weight``, is the discrimination at which a right
answer moves both abilities alike::

    contribution = (a - mean weight) r / information
    mean weight = sum of a^2 v / sum of a v,   v = attempts p (1 - p)

The information is the secant of the score between the two abilities (mean value theorem), which makes the steps exact,
and ``remainder`` what the prior, the averaging over draws and, for an LLM that is all right or all wrong, the missing
end of the scale do.

References
----------
Birnbaum, A. (1968). Some latent trait models and their use in inferring an examinee's ability. In Lord & Novick,
Statistical Theories of Mental Test Scores, section 19.2 (locally best weights of items).
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from jaxtyping import Float
from scipy.optimize import brentq
from scipy.special import expit

_NEAR = 1e-9


class Answers(NamedTuple):
    """One LLM's answers beside the parameters of the items, one place per item of the suite.

    Parameters
    ----------
    successes, attempts
        Counts; 0 attempts where the LLM did not see the item.
    discrimination, easiness
        Posterior means of the items, on the scale of the abilities.
    floor
        Probabilities of a right guess.
    """

    successes: Float[np.ndarray, " item"]
    attempts: Float[np.ndarray, " item"]
    discrimination: Float[np.ndarray, " item"]
    easiness: Float[np.ndarray, " item"]
    floor: Float[np.ndarray, " item"] | float = 0.0


class Steps(NamedTuple):
    """The way from an LLM's accuracy to its ability, in sds of ability.

    Parameters
    ----------
    accuracy_ability
        Ability that the accuracy alone says, as if all items had been seen.
    item_set
        Step to what it says of the items seen.
    contributions
        Steps by item; 0 where the item was not seen.
    remainder
        The last step.
    expected
        Expected successes by item, at the ability that the accuracy on the items seen says.
    mean_weight
        Discrimination at which a right answer counts as much for ability as for accuracy.
    """

    accuracy_ability: float
    item_set: float
    contributions: Float[np.ndarray, " item"]
    remainder: float
    expected: Float[np.ndarray, " item"]
    mean_weight: float


def steps_to_ability(answers: Answers, ability: float, num_llms: int) -> Steps:
    """Tell apart what lies between an LLM's accuracy and its ability.

    Parameters
    ----------
    answers
        The LLM's answers.
    ability
        Its posterior mean ability.
    num_llms
        Number of LLMs over which ability is standardised: none can lie farther out than sqrt(num_llms - 1), and what
        an accuracy says is cut there.

    Returns
    -------
    Steps
        They add up to the ability.

    Examples
    --------
    >>> import numpy as np
    >>> answers = Answers(np.array([1.0, 0.0]), np.ones(2), np.array([2.0, 1.0]), np.zeros(2))
    >>> steps = steps_to_ability(answers, 0.5, 10)
    >>> abs(steps.accuracy_ability) < 1e-9, steps.item_set, steps.contributions.round(3).tolist()
    (True, 0.0, [0.143, 0.285])
    """
    successes, attempts, slope, easiness, floor = answers
    accuracy, most = successes.sum() / attempts.sum(), math.sqrt(num_llms - 1)
    on_all = _ability_of(accuracy, np.ones_like(attempts), answers, most)
    seen_alike = np.ptp(attempts) == 0
    on_seen = on_all if seen_alike else _ability_of(accuracy, attempts, answers, most)
    known = expit(slope * on_seen + easiness)
    chance = floor + (1 - floor) * known
    expected = attempts * chance
    # a right answer counts by the item's discrimination and by how likely it is known
    weight = slope * np.divide(known, chance, out=np.ones_like(chance), where=chance > 0)
    variance = attempts * (1 - floor) * known * (1 - known)
    linear, square = (slope * variance).sum(), (weight * slope * variance).sum()
    mean_weight = float(square / linear) if linear > 0 else 0.0
    information = float(square)
    if abs(ability - on_seen) > _NEAR:
        rise = attempts * (1 - floor) * (expit(slope * ability + easiness) - known)
        information = float((weight * rise).sum() / (ability - on_seen))
    weighted = (weight - mean_weight) * (successes - expected)
    contributions = weighted / information if information > 0 else np.zeros_like(weighted)
    remainder = ability - on_seen - float(contributions.sum())
    return Steps(on_all, on_seen - on_all, contributions, remainder, expected, mean_weight)


def _ability_of(accuracy: float, weights: Float[np.ndarray, " item"], answers: Answers, most: float) -> float:
    """Return the ability at which this accuracy is expected, cut where no LLM can lie."""
    shares = weights / weights.sum()

    def excess(ability: float) -> float:
        known = expit(answers.discrimination * ability + answers.easiness)
        return float(shares @ (answers.floor + (1 - answers.floor) * known)) - accuracy

    if excess(most) <= 0:
        return most
    if excess(-most) >= 0:
        return -most
    return float(brentq(excess, -most, most, xtol=1e-12))
