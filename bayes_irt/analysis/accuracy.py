"""Accuracy of LLMs: what was observed, and what the model expects on all items."""

from __future__ import annotations

from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Integer
from scipy.interpolate import PchipInterpolator
from scipy.special import expit

from bayes_irt.analysis.ranks import llm_places
from bayes_irt.arguments import require_whole
from bayes_irt.posterior import Posterior
from bayes_irt.responses import Responses

_MOST_NODES = 256
# From here on, 1 minus the expected accuracy is computed by itself.
_NEARLY_ONE = 1 - 1e-6


def accuracy_with_error(responses: Responses) -> tuple[Float[np.ndarray, " llm"], Float[np.ndarray, " llm"]]:
    """Return each LLM's share of right attempts and its standard error, items being clusters of attempts.

    Parameters
    ----------
    responses
        The data.

    Returns
    -------
    tuple of numpy.ndarray
        Accuracy and standard error; the error of an LLM with one item is NaN (it cannot be estimated).

    References
    ----------
    Cochran, W. G. (1977). Sampling Techniques, 3rd ed., section 2.11 (the ratio estimator).

    Examples
    --------
    >>> one_each = Responses.from_arrays(np.array([[1, 1, 0, 0], [1, 1, 1, 0]]))
    >>> [values.round(3).tolist() for values in accuracy_with_error(one_each)]
    [[0.5, 0.75], [0.289, 0.25]]
    """
    attempts, successes = responses.attempts.astype(np.float64), responses.successes.astype(np.float64)
    tried, seen = attempts.sum(axis=1), (attempts > 0).sum(axis=1)
    accuracy = successes.sum(axis=1) / tried
    squares = np.square(successes - accuracy[:, None] * attempts).sum(axis=1)
    several = seen > 1
    correction = np.divide(seen, seen - 1, out=np.full(seen.shape, np.nan), where=several)
    return accuracy, np.sqrt(squares * correction) / tried


def expected_accuracy(
    posterior: Posterior, llms: Sequence[str] | None = None, *, most_draws: int | None = None
) -> Float[np.ndarray, "sample llm"]:
    """Return the accuracy that the model expects had every LLM answered every item, draw by draw.

    It is the mean over all items of the chance of a right attempt, every item weighing the same; the observed
    accuracy is about the items that an LLM was given.

    Parameters
    ----------
    posterior
        Draws of abilities and items.
    llms
        Labels of the LLMs wanted; None for all.
    most_draws
        Number of draws used, spread evenly over all chains, where there are more; None for all.

    Returns
    -------
    numpy.ndarray
        Shares of right attempts, the draws of all chains one after the other.

    Raises
    ------
    InvalidConfigurationError
        If a label is unknown, or `most_draws` is no whole number of at least 1.

    Examples
    --------
    >>> from bayes_irt import Sampler, fit_nuts, simulate_suite
    >>> sampler = Sampler(num_chains=2, num_warmup=100, num_draws=100)
    >>> expected_accuracy(fit_nuts(simulate_suite(6, 20).responses, sampler=sampler)).shape
    (200, 6)
    """
    return np.asarray(expit(expected_log_odds(posterior, llms, most_draws=most_draws)))


def expected_log_odds(
    posterior: Posterior, llms: Sequence[str] | None = None, *, most_draws: int | None = None
) -> Float[np.ndarray, "sample llm"]:
    """Return the log odds of the expected accuracy, exact where it is close to 0 or 1.

    Where items have floors or testlets these count too. Beyond 256 LLMs, without testlets and on one trait, each draw's
    curve of expected accuracy over ability is computed at 256 abilities and interpolated, which keeps the LLMs' order;
    the error is far below the spread between draws.

    Parameters
    ----------
    posterior
        Draws of abilities and items.
    llms
        Labels of the LLMs wanted; None for all.
    most_draws
        Number of draws used, spread evenly over all chains, where there are more; None for all.

    Returns
    -------
    numpy.ndarray
        log(p / (1 - p)) of each draw's expected accuracy p.

    Raises
    ------
    InvalidConfigurationError
        If a label is unknown, or `most_draws` is no whole number of at least 1.

    Examples
    --------
    >>> from bayes_irt import Sampler, fit_nuts, simulate_suite
    >>> sampler = Sampler(num_chains=2, num_warmup=100, num_draws=100)
    >>> expected_log_odds(fit_nuts(simulate_suite(6, 20).responses, sampler=sampler), ["llm-002"]).shape
    (200, 1)
    """
    kept = _evenly(posterior.num_draws, most_draws)
    laws = posterior.laws
    ability = np.asarray(laws.parameters.ability)[kept][:, llm_places(posterior, llms)]
    nodes, effects = ability, None
    if laws.effects is not None:
        effects = laws.effects[kept][:, llm_places(posterior, llms)]
    elif ability.shape[1] > _MOST_NODES and ability.shape[2] == 1:
        nodes = np.linspace(ability.min(axis=1), ability.max(axis=1), _MOST_NODES, axis=1)
    slopes = np.asarray(laws.parameters.discrimination)[kept]
    easiness = np.asarray(laws.parameters.easiness)[kept]
    floor = np.zeros_like(easiness) if laws.floor is None else laws.floor[kept]
    if effects is None:
        effects = np.zeros((*nodes.shape[:2], 1))
    effects = np.pad(effects, ((0, 0), (0, 0), (0, 1)))  # -1, the last, is the zero
    testlet = np.where(laws.testlet < 0, effects.shape[2] - 1, laws.testlet)
    right, wrong = _mean_chances(nodes, slopes, easiness, floor, effects, testlet)
    wrong = 1 - right if right.max() < _NEARLY_ONE else wrong
    log_odds = np.log(right) - np.log(wrong)
    if nodes is ability:
        return log_odds
    curves = zip(nodes[..., 0], log_odds, ability[..., 0], strict=True)
    return np.stack([PchipInterpolator(known, values)(wanted) for known, values, wanted in curves])


def _evenly(num_draws: int, most: int | None) -> Integer[np.ndarray, " sample"]:
    if most is None or num_draws <= most:
        return np.arange(num_draws)
    require_whole("most_draws", most, 1)
    return ((np.arange(most) + 0.5) * num_draws / most).astype(int)


def _mean_chances(
    *draws: np.ndarray,
) -> tuple[Float[np.ndarray, "sample llm"], Float[np.ndarray, "sample llm"]]:
    """Return the mean over items of the chances of a right and of a wrong attempt; one draw's cells at a time."""
    with jax.enable_x64(True):
        right, wrong = _mean_chances_by_draw(*draws)
        return np.asarray(right), np.asarray(wrong)


@jax.jit
def _mean_chances_by_draw(
    ability: Float[Array, "sample llm trait"],
    slopes: Float[Array, "sample item trait"],
    easiness: Float[Array, "sample item"],
    floor: Float[Array, "sample item"],
    effects: Float[Array, "sample llm group"],
    testlet: Integer[Array, " item"],
) -> tuple[Float[Array, "sample llm"], Float[Array, "sample llm"]]:
    def of_one(draw: tuple[Array, ...]) -> tuple[Array, Array]:
        by_llm, slope, easy, least, effect = draw
        logits = by_llm @ slope.T + easy + effect[:, testlet]
        right = least + (1.0 - least) * jax.nn.sigmoid(logits)
        return jnp.mean(right, axis=1), jnp.mean((1.0 - least) * jax.nn.sigmoid(-logits), axis=1)

    chances: tuple[Array, Array] = jax.lax.map(of_one, (ability, slopes, easiness, floor, effects))
    return chances
