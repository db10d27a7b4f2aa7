"""The probability of an LLM's whole row, its ability integrated out: what a model says of LLMs it has not seen.

The integral is a trapezoid sum over a grid of abilities, which for functions as smooth as these is as good as exact
once the grid is about as fine as the posterior is wide.
"""

from __future__ import annotations

import math

import numpy as np
from jaxtyping import Float, UInt
from scipy.special import expit, logsumexp

from bayes_irt.cell_laws import CellLaw, log_chances
from bayes_irt.posterior import Posterior

_STEP = 0.7
_MARGIN = 7.0
# What a new LLM's ability is looked for in, at least.
_REACH = 6.0
_MOST_NODES = 2000
_INNER_NODES = 15


def ability_grid(posterior: Posterior) -> Float[np.ndarray, " node"]:
    """Return abilities at which rows of any LLM fitted can be integrated.

    Parameters
    ----------
    posterior
        Draws; the narrowest ability sets the distance.

    Returns
    -------
    numpy.ndarray
        Equidistant, at most 2,000.
    """
    mean, sd = (
        values.to_numpy()
        for values in (posterior.ability.mean(("chain", "draw")), posterior.ability.std(("chain", "draw")))
    )
    low, high = min((mean - _MARGIN * sd).min(), -_REACH), max((mean + _MARGIN * sd).max(), _REACH)
    number = math.ceil((high - low) / (_STEP * sd.min())) + 1
    return np.linspace(low, high, min(number, _MOST_NODES))


def row_log_likelihoods(
    law: CellLaw,
    successes: UInt[np.ndarray, "llm item"],
    attempts: UInt[np.ndarray, "llm item"],
    grid: Float[np.ndarray, " node"],
    testlet_scale: float | None = None,
) -> Float[np.ndarray, " llm"]:
    """Return the log probability of rows, their abilities standard normal.

    Parameters
    ----------
    law
        One draw; its abilities and testlet effects are not used.
    successes, attempts
        The rows.
    grid
        Equidistant abilities that cover all that is likely.
    testlet_scale
        Standard deviation of the testlets' effects, which are integrated out too; None without testlets.

    Returns
    -------
    numpy.ndarray
        Without binomial coefficients.

    References
    ----------
    Bock, R. D. & Aitkin, M. (1981). Marginal maximum likelihood estimation of item parameters. Psychometrika 46,
    443-459.

    Examples
    --------
    >>> from bayes_irt.parameters import Parameters
    >>> law = CellLaw(Parameters(np.zeros((1, 1)), np.ones((1, 1)), np.zeros(1)))
    >>> one = np.ones((1, 1), dtype=np.uint8)
    >>> row_log_likelihoods(law, one, one, np.linspace(-8, 8, 101)).round(6).tolist()
    [-0.693147]
    """
    prior = -0.5 * grid**2 - 0.5 * math.log(2 * math.pi) + math.log(grid[1] - grid[0])
    if testlet_scale is None or law.testlet is None:
        total = _at_nodes(law, successes, attempts, grid, slice(None))
    else:
        free = np.flatnonzero(law.testlet < 0)
        total = _at_nodes(law, successes, attempts, grid, free)
        nodes, weights = np.polynomial.hermite_e.hermegauss(_INNER_NODES)
        log_weights = np.log(weights / weights.sum())
        for group in np.unique(law.testlet[law.testlet >= 0]):
            members = np.flatnonzero(law.testlet == group)
            inner = [
                _at_nodes(law, successes, attempts, grid, members, shift) for shift in testlet_scale * nodes
            ]
            total = total + logsumexp(np.stack(inner) + log_weights[:, None, None], axis=0)
    return np.asarray(logsumexp(total + prior[:, None], axis=0))


def _at_nodes(
    law: CellLaw,
    successes: UInt[np.ndarray, "llm item"],
    attempts: UInt[np.ndarray, "llm item"],
    grid: Float[np.ndarray, " node"],
    items: slice | np.ndarray,
    shift: float = 0.0,
) -> Float[np.ndarray, "node llm"]:
    """Return the log-likelihood of each row's cells on some items, at each ability."""
    slope = np.asarray(law.parameters.discrimination)[items, 0]
    logits = grid[:, None] * slope + np.asarray(law.parameters.easiness)[items] + shift
    right_counts, tried = (counts[:, items].astype(np.float64) for counts in (successes, attempts))
    wrong_counts = tried - right_counts
    floor = np.zeros(len(slope)) if law.floor is None else np.asarray(law.floor)[items]
    known = expit(logits)
    right, wrong = floor + (1.0 - floor) * known, (1.0 - floor) * expit(-logits)
    log_right, log_wrong = log_chances(logits, floor)
    if law.dispersion is None:
        return np.asarray(log_right @ right_counts.T + log_wrong @ wrong_counts.T)
    rho = np.asarray(law.dispersion)[items]
    rest = np.log1p(-rho)
    total = (log_right + rest) @ (right_counts > 0).T + (log_wrong + rest) @ (wrong_counts > 0).T
    total = total - rest @ (tried > 0).T
    for k in range(1, int(tried.max(initial=0))):
        total += np.log(right * (1.0 - rho) + k * rho) @ (right_counts > k).T
        total += np.log(wrong * (1.0 - rho) + k * rho) @ (wrong_counts > k).T
        total -= np.log(1.0 - rho + k * rho) @ (tried > k).T
    return np.asarray(total)
