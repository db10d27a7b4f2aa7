"""Which trait is which? Traits that are explored have no order: draws, chains and starts are matched by their loads.

References
----------
Kuhn, H. W. (1955). The Hungarian method for the assignment problem. Naval Research Logistics Quarterly 2, 83-97.
"""

from __future__ import annotations

import numpy as np
from jaxtyping import Float, Integer
from scipy.optimize import linear_sum_assignment

from bayes_irt.identify import canonicalize
from bayes_irt.parameters import Parameters

#: Cosine from which loads of two solutions are called those of one trait.
SAME_TRAIT = 0.9
_ROUNDS = 3


def load_cosines(
    one: Float[np.ndarray, "*batch item trait"], other: Float[np.ndarray, "item trait"]
) -> Float[np.ndarray, "*batch trait trait"]:
    """Return the cosines between the loads on each trait and those on each of others.

    Parameters
    ----------
    one
        Discriminations, with abilities standardised.
    other
        Those that they are compared with.

    Returns
    -------
    numpy.ndarray
        By trait of the first and of the second; 0 where no item loads.

    Examples
    --------
    >>> load_cosines(np.array([[3.0, 0.0], [4.0, 1.0]]), np.eye(2)).tolist()
    [[0.6, 0.8], [0.0, 1.0]]
    """
    lengths = np.linalg.norm(one, axis=-2)[..., :, None] * np.linalg.norm(other, axis=-2)
    products = np.einsum("...jk,jl->...kl", one, other)
    return np.asarray(np.divide(products, lengths, out=np.zeros_like(products), where=lengths > 0))


def match_to(
    one: Float[np.ndarray, "item trait"], other: Float[np.ndarray, "item trait"]
) -> Integer[np.ndarray, " trait"]:
    """Return which trait of some loads stands for each trait of others.

    Parameters
    ----------
    one, other
        Discriminations, with abilities standardised.

    Returns
    -------
    numpy.ndarray
        The order of the first's traits in which all cosines together are largest.

    Examples
    --------
    >>> match_to(np.array([[0.1, 2.0], [1.0, 0.2]]), np.eye(2)).tolist()
    [1, 0]
    """
    return np.asarray(linear_sum_assignment(-load_cosines(one, other).T)[1])


def same_traits(one: Float[np.ndarray, "item trait"], other: Float[np.ndarray, "item trait"]) -> bool:
    """Say whether two solutions have the same traits, in whatever order.

    Parameters
    ----------
    one, other
        Discriminations, with abilities standardised.

    Returns
    -------
    bool
        Whether the loads on each trait have a cosine of at least `SAME_TRAIT`.

    Examples
    --------
    >>> same_traits(np.eye(2)[::-1], np.eye(2)), same_traits(np.ones((2, 2)), np.eye(2))
    (True, False)
    """
    return bool(matched_cosines(one, other).min() >= SAME_TRAIT)


def matched_cosines(
    one: Float[np.ndarray, "item trait"], other: Float[np.ndarray, "item trait"]
) -> Float[np.ndarray, " trait"]:
    """Return the cosines of the loads on matched traits, in the order of the second.

    Parameters
    ----------
    one, other
        Discriminations, with abilities standardised.

    Returns
    -------
    numpy.ndarray
        One per trait.

    Examples
    --------
    >>> matched_cosines(np.eye(2)[::-1], np.eye(2)).tolist()
    [1.0, 1.0]
    """
    return np.asarray(np.diag(load_cosines(one[:, match_to(one, other)], other)))


def chain_cosines(
    loads: Float[np.ndarray, "chain item trait"],
) -> tuple[int, Float[np.ndarray, "chain trait"]]:
    """Return how far chains found the same traits.

    Parameters
    ----------
    loads
        Each chain's mean discriminations, with abilities standardised.

    Returns
    -------
    tuple
        The chain most like the others, and the cosine of every chain's loads with that one's, trait by trait of it.

    Examples
    --------
    >>> central, cosines = chain_cosines(np.stack([np.eye(2), np.eye(2)[::-1], np.ones((2, 2))]))
    >>> central, cosines.round(2).tolist()
    (0, [[1.0, 1.0], [1.0, 1.0], [0.71, 0.71]])
    """
    among = np.array([[matched_cosines(one, other) for one in loads] for other in loads])
    central = int(among.min(axis=-1).sum(axis=1).argmax())
    return central, among[central]


def match_traits(
    draws: Parameters, correlation: Float[np.ndarray, "chain draw pair"] | None
) -> tuple[Parameters, Float[np.ndarray, "chain draw pair"] | None]:
    """Put the traits of every draw in one order, the strongest first.

    Parameters
    ----------
    draws
        Draws, by chain and draw.
    correlation
        Correlations between traits, of the first and second, first and third ...; None where they have none.

    Returns
    -------
    tuple
        Draws with standardised abilities, and correlations, each draw's traits matched to the mean loads of all. Signs
        need no matching: discriminations are positive.
    """
    canonical = canonicalize(draws, sort_traits=False)
    loads = np.asarray(canonical.discrimination)
    num_traits = loads.shape[-1]
    flat = loads.reshape(-1, *loads.shape[2:])
    reference = loads[0].mean(axis=0)
    for _ in range(_ROUNDS):
        cosines = load_cosines(flat, reference)
        order = np.array([linear_sum_assignment(-one.T)[1] for one in cosines])
        reference = np.take_along_axis(flat, order[:, None, :], axis=2).mean(axis=0)
    order = order[:, np.argsort(-np.square(reference).sum(axis=0), kind="stable")]
    order = order.reshape(*loads.shape[:2], num_traits)
    ability, slopes = (
        np.take_along_axis(np.asarray(values), order[:, :, None, :], axis=3)
        for values in (canonical.ability, loads)
    )
    matched = Parameters(ability, slopes, canonical.easiness)
    if correlation is None:
        return matched, None
    upper = np.triu_indices(num_traits, 1)
    among = np.zeros((*order.shape, num_traits))
    among[..., upper[0], upper[1]] = among[..., upper[1], upper[0]] = correlation
    rows = np.take_along_axis(among, order[..., :, None], axis=-2)
    return matched, np.take_along_axis(rows, order[..., None, :], axis=-1)[..., upper[0], upper[1]]
