"""The gauge: what the data leave free, and how it is fixed.

``theta -> (theta - m) / s, a -> a s, d -> d + a m`` leaves every logit as it is. The canonical gauge has abilities
of mean 0 and (population) standard deviation 1 over the LLMs, per trait, and orders traits by the strength of their
discriminations. The same functions serve point estimates and every single draw.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Bool, Float, Integer
from scipy.optimize import linprog

from bayes_irt.parameters import Parameters


def canonicalize(parameters: Parameters) -> Parameters:
    """Move parameters to the canonical gauge.

    Parameters
    ----------
    parameters
        Any gauge; leading batch dims (chains, draws) are handled one by one. NumPy arrays stay NumPy arrays,
        JAX arrays stay JAX arrays.

    Returns
    -------
    Parameters
        The same logits; abilities with mean 0 and sd 1 per trait, traits by falling sum of squared
        discriminations. Where all abilities of a trait are equal they cannot have sd 1 and become 0.

    Examples
    --------
    >>> p = Parameters(np.array([[1.0], [5.0]]), np.array([[0.5]]), np.array([0.0]))
    >>> c = canonicalize(p)
    >>> c.ability.ravel(), c.discrimination.ravel(), c.easiness
    (array([-1.,  1.]), array([1.]), array([1.5]))
    """
    ability, discrimination, easiness = parameters.ability, parameters.discrimination, parameters.easiness
    xp = jnp if isinstance(ability, jax.Array) else np
    location = ability.mean(axis=-2, keepdims=True)
    spread = ability.std(axis=-2, keepdims=True)
    spread = xp.where(spread > 0, spread, 1.0)
    easiness = easiness + (discrimination * location).sum(axis=-1)
    ability, discrimination = (ability - location) / spread, discrimination * spread
    if ability.shape[-1] > 1:
        order = xp.argsort(-xp.square(discrimination).sum(axis=-2), axis=-1, stable=True)[..., None, :]
        ability = xp.take_along_axis(ability, order, axis=-1)
        discrimination = xp.take_along_axis(discrimination, order, axis=-1)
    return Parameters(ability, discrimination, easiness)


def separated_items(
    ability: Float[np.ndarray, "llm trait"],
    successes: Integer[np.ndarray, "llm item"],
    attempts: Integer[np.ndarray, "llm item"],
) -> Bool[np.ndarray, " item"]:
    """Say which items have no finite unpenalised estimate, given the abilities.

    An item is separated where some line with slopes a >= 0 has all right answers on one side and all wrong ones on
    the other (both touching it at most): constant items, and those that a threshold on ability predicts without
    error. Its likelihood then grows without end as the line steepens.

    Parameters
    ----------
    ability
        Abilities in any gauge.
    successes
        Right answers per cell.
    attempts
        Attempts per cell; 0 is missing.

    Returns
    -------
    numpy.ndarray
        True for separated items.

    References
    ----------
    Albert, A. & Anderson, J. A. (1984). On the existence of maximum likelihood estimates in logistic regression
    models. Biometrika 71, 1-10.

    Examples
    --------
    >>> ability = np.array([[-1.0], [0.0], [1.0]])
    >>> separated_items(ability, np.array([[0, 1], [1, 0], [1, 1]]), np.ones((3, 2), dtype=int))
    array([ True, False])
    """
    right, wrong = successes > 0, attempts > successes
    if ability.shape[1] == 1:
        theta = ability[:, :1]
        lowest_right = np.where(right, theta, np.inf).min(axis=0)
        highest_wrong = np.where(wrong, theta, -np.inf).max(axis=0)
        return np.asarray(lowest_right >= highest_wrong)
    constant = ~right.any(axis=0) | ~wrong.any(axis=0)
    checked = [constant[j] or _is_separable(ability, right[:, j], wrong[:, j]) for j in range(len(constant))]
    return np.array(checked, dtype=bool)


def _is_separable(
    ability: Float[np.ndarray, "llm trait"], right: Bool[np.ndarray, " llm"], wrong: Bool[np.ndarray, " llm"]
) -> bool:
    """Look for slopes >= 0 and an intercept that separate right from wrong, by linear programming."""
    signed = np.concatenate([ability[right], -ability[wrong]])
    sign = np.concatenate([np.ones(right.sum()), -np.ones(wrong.sum())])
    rows = np.column_stack([signed, sign])
    bounds = [(0.0, 1.0)] * ability.shape[1] + [(None, None)]
    solution = linprog(-rows.sum(axis=0), A_ub=-rows, b_ub=np.zeros(len(rows)), bounds=bounds, method="highs")
    return bool(solution.status == 0 and -solution.fun > 1e-9)


def separated_llms(
    discrimination: Float[np.ndarray, "item trait"],
    successes: Integer[np.ndarray, "llm item"],
    attempts: Integer[np.ndarray, "llm item"],
) -> Bool[np.ndarray, " llm"]:
    """Say which LLMs have no finite unpenalised ability: all right, or all wrong, on the items that discriminate.

    Parameters
    ----------
    discrimination
        Slopes; an item with all slopes 0 says nothing about ability.
    successes
        Right answers per cell.
    attempts
        Attempts per cell; 0 is missing.

    Returns
    -------
    numpy.ndarray
        True for separated LLMs.

    Examples
    --------
    >>> separated_llms(np.ones((2, 1)), np.array([[1, 1], [0, 1]]), np.ones((2, 2), dtype=int))
    array([ True, False])
    """
    telling = (discrimination > 0).any(axis=1)
    right = (successes[:, telling] > 0).any(axis=1)
    wrong = (attempts[:, telling] > successes[:, telling]).any(axis=1)
    return np.asarray(~(right & wrong))
