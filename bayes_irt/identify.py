"""The gauge: what the data leave free, and how it is fixed.

``theta -> (theta - m) / s, a -> a s, d -> d + a m`` leaves every logit as it is. The canonical gauge has abilities
of mean 0 and (population) standard deviation 1 over the LLMs, per trait, and orders traits by the strength of their
discriminations. The same functions serve point estimates and every single draw.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Integer
from scipy.optimize import linprog

from bayes_irt.parameters import Parameters

_CELLS_AT_ONCE = 2**20
_FEW_LEVELS = 250


def canonicalize(parameters: Parameters, *, sort_traits: bool = True) -> Parameters:
    """Move parameters to the canonical gauge.

    Parameters
    ----------
    parameters
        Any gauge; leading batch dims (chains, draws) are handled one by one. NumPy arrays stay NumPy arrays,
        JAX arrays stay JAX arrays.
    sort_traits
        Whether traits are put in order; not where each has a meaning of its own.

    Returns
    -------
    parameters.Parameters
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
    # the mean of equal numbers need not be that number: their computed sd is then not 0
    gap = ability.max(axis=-2, keepdims=True) - ability.min(axis=-2, keepdims=True)
    equal = gap <= 4 * xp.finfo(ability.dtype).eps * xp.abs(ability).max(axis=-2, keepdims=True)
    spread = xp.where(equal, xp.ones_like(location), ability.std(axis=-2, keepdims=True))
    easiness = easiness + (discrimination * location).sum(axis=-1)
    ability = xp.where(equal, xp.zeros_like(location), (ability - location) / spread)
    discrimination = discrimination * spread
    if sort_traits and ability.shape[-1] > 1:
        order = xp.argsort(-xp.square(discrimination).sum(axis=-2), axis=-1, stable=True)[..., None, :]
        ability = xp.take_along_axis(ability, order, axis=-1)
        discrimination = xp.take_along_axis(discrimination, order, axis=-1)
    return Parameters(ability, discrimination, easiness)


def standardise(raw: Float[Array, "*batch llm"]) -> Float[Array, "*batch llm"]:
    """Return values with mean 0 and population sd 1.

    Parameters
    ----------
    raw
        At least two values that are not all equal.

    Returns
    -------
    jax.Array
        The same values, moved and scaled.

    Examples
    --------
    >>> standardise(jnp.array([1.0, 3.0]))
    Array([-1.,  1.], dtype=float32)
    """
    centred = raw - raw.mean(axis=-1, keepdims=True)
    return centred / jnp.sqrt(jnp.mean(centred**2, axis=-1, keepdims=True))


def separated_items(
    ability: Float[np.ndarray, "llm trait"],
    successes: Integer[np.ndarray, "llm item"],
    attempts: Integer[np.ndarray, "llm item"],
    loads: Bool[np.ndarray, "item trait"] | None = None,
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
    loads
        Which items may load on which trait; None for all.

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
    if ability.shape[1] == 1:
        split = _split_by_ability(ability[:, 0], successes, attempts)
        return split if loads is None else np.where(loads[:, 0], split, _constant(successes, attempts))
    right, wrong = successes > 0, attempts > successes
    constant = _constant(successes, attempts)
    allowed = np.ones((len(constant), ability.shape[1]), dtype=bool) if loads is None else loads
    features = np.column_stack([ability, np.ones(len(ability))])
    found, several = constant.copy(), allowed.sum(axis=1) > 1
    for trait, values in enumerate(ability.T):
        own = np.flatnonzero(allowed[:, trait] & ~several)
        found[own] = _split_by_ability(values, successes[:, own], attempts[:, own])
    for j in np.flatnonzero(several & ~constant):
        bounds: list[tuple[float | None, float | None]] = [(0.0, float(may)) for may in allowed[j]]
        found[j] = _is_separable(features[right[:, j]], features[wrong[:, j]], [*bounds, (None, None)])
    return found


def _constant(
    successes: Integer[np.ndarray, "llm item"], attempts: Integer[np.ndarray, "llm item"]
) -> Bool[np.ndarray, " item"]:
    """Say which items are all right or all wrong."""
    return np.asarray(~(successes > 0).any(axis=0) | ~(attempts > successes).any(axis=0))


def _split_by_ability(
    ability: Float[np.ndarray, " llm"],
    successes: Integer[np.ndarray, "llm item"],
    attempts: Integer[np.ndarray, "llm item"],
) -> Bool[np.ndarray, " item"]:
    """Say which items a threshold on ability predicts without error.

    A right answer among the weakest and a wrong one among the strongest settle most items.
    """
    levels, ranks = np.unique(ability, return_inverse=True)
    separated = np.ones(successes.shape[1], dtype=bool)
    if len(levels) > 2 * _FEW_LEVELS:
        weak, strong = ranks < _FEW_LEVELS, ranks >= len(levels) - _FEW_LEVELS
        crossed = (successes[weak] > 0).any(axis=0) & (attempts[strong] > successes[strong]).any(axis=0)
        separated &= ~crossed
    open_items = np.flatnonzero(separated)
    blocks = np.array_split(open_items, 1 + len(open_items) * len(ranks) // _CELLS_AT_ONCE)
    columns = ranks.astype(np.int32)[:, None]
    for block in blocks:
        separated[block] = _split_by_rank(columns, successes[:, block], attempts[:, block])
    return separated


def _split_by_rank(
    ranks: Integer[np.ndarray, "llm 1"],
    successes: Integer[np.ndarray, "llm item"],
    attempts: Integer[np.ndarray, "llm item"],
) -> Bool[np.ndarray, " item"]:
    """Say for which items no wrong answer is above a right one, unless all of both are level."""
    right, wrong = successes > 0, attempts > successes
    none, below_all = len(ranks), -1
    lowest_right = np.where(right, ranks, none).min(axis=0)
    highest_right = np.where(right, ranks, below_all).max(axis=0)
    lowest_wrong = np.where(wrong, ranks, none).min(axis=0)
    highest_wrong = np.where(wrong, ranks, below_all).max(axis=0)
    constant = (lowest_right == none) | (lowest_wrong == none)
    return np.asarray(constant | ((lowest_right >= highest_wrong) & (highest_right > lowest_wrong)))


def _is_separable(
    right: Float[np.ndarray, "row feature"],
    wrong: Float[np.ndarray, "row feature"],
    bounds: list[tuple[float | None, float | None]],
) -> bool:
    """Look for a direction along which no answer gets less likely and some get likelier, by linear programming."""
    rows = np.concatenate([right, -wrong])
    solution = linprog(-rows.sum(axis=0), A_ub=-rows, b_ub=np.zeros(len(rows)), bounds=bounds, method="highs")
    return bool(solution.status == 0 and solution.fun is not None and -solution.fun > 1e-9)


def separated_llms(
    discrimination: Float[np.ndarray, "item trait"],
    successes: Integer[np.ndarray, "llm item"],
    attempts: Integer[np.ndarray, "llm item"],
) -> Bool[np.ndarray, " llm"]:
    """Say which LLMs have no finite unpenalised ability, given the items.

    With one trait: those with all right or all wrong on the items that discriminate. With several: those for which
    some direction of ability makes no answer less likely and some likelier.

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
    right, wrong = (successes > 0) & telling, (attempts > successes) & telling
    constant = ~right.any(axis=1) | ~wrong.any(axis=1)
    if discrimination.shape[1] == 1:
        return np.asarray(constant)
    if ((discrimination > 0).sum(axis=1) <= 1).all():  # each trait is a question of its own
        alone = [discrimination[:, trait] > 0 for trait in range(discrimination.shape[1])]
        told = [(right[:, own].any(axis=1), wrong[:, own].any(axis=1)) for own in alone]
        return constant | np.any([rights ^ wrongs for rights, wrongs in told], axis=0)
    bounds: list[tuple[float | None, float | None]] = [(-1.0, 1.0)] * discrimination.shape[1]
    checked = [
        constant[i] or _is_separable(discrimination[right[i]], discrimination[wrong[i]], bounds)
        for i in range(len(constant))
    ]
    return np.array(checked, dtype=bool)
