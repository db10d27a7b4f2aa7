"""How much LLMs agree item by item, beside what conditional independence gives.

If the model is true, the outcomes of two LLMs are independent given abilities and items: they disagree on about as many
items as their chances say. Copies of one run, and runs of one LLM under two names, disagree on far fewer.

References
----------
Yen, W. M. (1984). Effects of local item dependence on the fit and equating performance of the three-parameter logistic
model. Applied Psychological Measurement 8, 125-145 (the same idea for pairs of items).
Hoeffding, W. (1963). Probability inequalities for sums of bounded random variables. Journal of the American Statistical
Association 58, 13-30.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from bayes_irt.posterior import Posterior
from bayes_irt.provenance import require_same_data
from bayes_irt.responses import Responses

_ITEMS_AT_ONCE = 1024
_DRAWS = 32


@dataclass(frozen=True, slots=True, eq=False)
class RowAgreement:
    """Hold how much each pair of LLMs disagrees.

    Parameters
    ----------
    observed
        Disagreements on the items that both answered: sums of squared differences between their shares of right
        attempts, which is the number of items on which they differ where there is one attempt each.
    expected
        What conditional independence gives.
    shared
        Number of items that both answered.

    Examples
    --------
    >>> agreement = RowAgreement(np.array([[0.0, 5.0]]), np.array([[20.0, 20.0]]), np.array([[50, 50]]))
    >>> agreement.excess, agreement.log_tail.round(1)
    (array([[1.  , 0.75]]), array([[-20. ,  -8.1]]))
    """

    observed: Float[np.ndarray, "llm llm"]
    expected: Float[np.ndarray, "llm llm"]
    shared: Float[np.ndarray, "llm llm"]

    @property
    def excess(self) -> Float[np.ndarray, "llm llm"]:
        """Excess agreement: 1 minus observed over expected disagreements; 1 for copies, near 0 for strangers."""
        nothing = np.full(self.observed.shape, np.nan)
        return np.asarray(1 - np.divide(self.observed, self.expected, out=nothing, where=self.expected > 0))

    @property
    def log_tail(self) -> Float[np.ndarray, "llm llm"]:
        """Log of a bound of the probability of so few disagreements under conditional independence (Chernoff's)."""
        fewer = np.minimum(self.observed, self.expected)
        ratio = np.divide(fewer, self.expected, out=np.ones(fewer.shape), where=self.expected > 0)
        logs = np.log(ratio, out=np.zeros(ratio.shape), where=ratio > 0)
        return np.asarray(fewer * (1 - logs) - self.expected)


def row_agreement(posterior: Posterior, responses: Responses) -> RowAgreement:
    """Compare all LLMs with each other, a block of items at a time.

    Parameters
    ----------
    posterior
        Draws of abilities and items; the chances are means over 32 draws spread evenly.
    responses
        The data that were fitted.

    Returns
    -------
    RowAgreement
        Three matrices. Their cost grows with the square of the number of LLMs.

    Raises
    ------
    InvalidConfigurationError
        If the responses are not those fitted.

    Examples
    --------
    >>> from bayes_irt import Sampler, fit_nuts, simulate_suite
    >>> responses = simulate_suite(6, 20).responses
    >>> sampler = Sampler(num_chains=2, num_warmup=100, num_draws=100)
    >>> agreement = row_agreement(fit_nuts(responses, sampler=sampler), responses)
    >>> int(agreement.observed[0, 1]) == int((responses.successes[0] != responses.successes[1]).sum())
    True
    """
    require_same_data(posterior.provenance, responses.digest, "posterior")
    size = (responses.num_llms, responses.num_llms)
    observed, expected, shared = np.zeros(size), np.zeros(size), np.zeros(size)
    laws = posterior.laws
    kept = np.linspace(0, posterior.num_draws - 1, min(_DRAWS, posterior.num_draws)).astype(int)
    draws = [laws.at(place) for place in kept.tolist()]
    for start in range(0, responses.num_items, _ITEMS_AT_ONCE):
        block = slice(start, start + _ITEMS_AT_ONCE)
        attempts = responses.attempts[:, block].astype(np.float32)
        there, tried = (attempts > 0).astype(np.float32), np.maximum(attempts, 1)
        share = responses.successes[:, block] / tried
        chance = sum(law.chances(slice(None), block) for law in draws) * (there / len(draws))
        inflation = sum(law.inflation(attempts, block) for law in draws) / len(draws)
        observed += _squared_distance(share**2, share, there)
        expected += _squared_distance(chance**2 + chance * (1 - chance) * inflation / tried, chance, there)
        shared += there @ there.T
    return RowAgreement(observed, expected, shared)


def _squared_distance(
    square: Float[np.ndarray, "llm item"],
    value: Float[np.ndarray, "llm item"],
    there: Float[np.ndarray, "llm item"],
) -> Float[np.ndarray, "llm llm"]:
    """Return the mean squared distance between rows, from their mean squares and means; both are 0 where missing."""
    one_way = square @ there.T
    return np.asarray(np.maximum(one_way + one_way.T - 2 * (value @ value.T), 0))
