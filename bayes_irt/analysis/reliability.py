"""Is there a common ability at all? Reliability of the abilities, and a test of the scores' spread."""

from __future__ import annotations

import numpy as np
from scipy import linalg, stats

from bayes_irt.analysis.ranks import Trait, ability_draws
from bayes_irt.data_checks import link_groups
from bayes_irt.posterior import Posterior
from bayes_irt.responses import Responses

#: Below this reliability, or above this p-value of the scores' spread, no common ability was found.
LEAST_RELIABILITY = 0.3
LARGEST_P_VALUE = 0.05


def has_common_ability(reliability: float, p_value: float) -> bool:
    """Say whether data show a common ability, by its reliability and the test of the scores' spread.

    Parameters
    ----------
    reliability
        What `ability_reliability` returns.
    p_value
        What `score_spread_p_value` returns.

    Returns
    -------
    bool
        False below reliability .3 or above p .05.

    Examples
    --------
    >>> has_common_ability(0.8, 0.001), has_common_ability(0.8, 0.2)
    (True, False)
    """
    return reliability >= LEAST_RELIABILITY and p_value <= LARGEST_P_VALUE


def ability_reliability(posterior: Posterior, trait: Trait = None) -> float:
    """Return the share of the abilities' variance that is not posterior uncertainty.

    Parameters
    ----------
    posterior
        Abilities have variance 1 over the LLMs in every draw.
    trait
        Where there are several traits, the one wanted, or weights of several.

    Returns
    -------
    float
        1 minus the mean posterior variance of ability: near 1 where the data fix the order, near 0 (it can fall
        below) where they say nothing about it.

    References
    ----------
    Bechger, T. M. et al. (2003). Using classical test theory in combination with item response theory. Applied
    Psychological Measurement 27, 319-334 (empirical reliability).

    Examples
    --------
    >>> from bayes_irt.inference.nuts import Sampler, fit_nuts
    >>> from bayes_irt.simulate import simulate_suite
    >>> sampler = Sampler(num_chains=2, num_warmup=100, num_draws=100)
    >>> posterior = fit_nuts(simulate_suite(6, 20).responses, sampler=sampler)
    >>> 0 < ability_reliability(posterior) < 1
    True
    """
    return float(1.0 - ability_draws(posterior, trait).var(axis=0).mean())


def score_spread_p_value(responses: Responses) -> float:
    """Test whether the LLMs' scores differ more than they would if outcomes were shuffled within items.

    Cochran's Q, generalised to missing cells and to counts: within an item every assignment of its outcomes to the
    LLMs that answered it, equally often, is equally likely, so the residuals' covariance is known; the
    quadratic form of the score residuals in its inverse is compared with chi-squared.

    Parameters
    ----------
    responses
        The data.

    Returns
    -------
    float
        The p-value; 1.0 where no item distinguishes between LLMs.

    References
    ----------
    Cochran, W. G. (1950). The comparison of percentages in matched samples. Biometrika 37, 256-266.

    Examples
    --------
    >>> import numpy as np
    >>> ladder = np.tril(np.ones((12, 12), dtype=int))
    >>> score_spread_p_value(Responses.from_arrays(ladder)) < 0.001
    True
    """
    observed, attempts, successes = _by_number_of_attempts(responses)
    residual = successes - attempts * (successes.sum(axis=0) / np.maximum(attempts.sum(axis=0), 1.0))
    seen = observed.sum(axis=0)
    variance = np.square(residual).sum(axis=0) / np.maximum(seen - 1, 1)
    telling = variance > 1e-12
    llms = observed[:, telling].any(axis=1)
    if not telling.any():
        return 1.0
    links = observed[np.ix_(llms, telling)].astype(np.float64)
    score = residual[np.ix_(llms, telling)].sum(axis=1)
    variance, seen = variance[telling], seen[telling]
    covariance = np.diag(links @ variance) - (links * (variance / seen)) @ links.T
    group = link_groups(links > 0)
    # Scores sum to 0 within linked LLMs; filling that direction leaves the quadratic form as it is.
    covariance += (group[:, None] == group) * (np.trace(covariance) / len(score))
    statistic = score @ linalg.solve(covariance, score, assume_a="pos")
    return float(stats.chi2.sf(statistic, df=len(score) - len(np.unique(group))))


def _by_number_of_attempts(responses: Responses) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Split every item by the number of attempts at it: only cells with equally many can be exchanged."""
    parts = []
    for number in np.unique(responses.attempts[responses.attempts > 0]):
        columns = (responses.attempts == number).any(axis=0)
        here = responses.attempts[:, columns] == number
        parts.append((here, here * float(number), here * responses.successes[:, columns].astype(np.float64)))
    observed, attempts, successes = (np.concatenate(blocks, axis=1) for blocks in zip(*parts, strict=True))
    return observed, attempts, successes
