"""Ranks of LLMs in posterior draws, their intervals, and groups of LLMs that cannot be told apart."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence

import numpy as np
from jaxtyping import Bool, Float, Integer

from bayes_irt.errors import InvalidConfigurationError, some
from bayes_irt.posterior import Posterior
from bayes_irt.responses import Responses

#: A trait by name, or weights of several; None where there is one, and for the first (general) of a bifactor model.
Trait = str | Mapping[str, float] | None


def trait_weights(posterior: Posterior, trait: Trait) -> Float[np.ndarray, " trait"]:
    """Return the weights of a posterior's traits in the ability that LLMs are ranked on.

    Parameters
    ----------
    posterior
        Draws of abilities.
    trait
        A trait's name, or a mapping from names to weights; None where there is one trait, and for the general one.

    Returns
    -------
    numpy.ndarray
        One weight per trait; they sum to 1.

    Raises
    ------
    InvalidConfigurationError
        If a name is unknown, all weights are 0 or one is negative or not finite, or none is named where there are
        several traits.
    """
    labels = posterior.traits
    if trait is None:
        if len(labels) > 1 and not posterior.spec.general:
            raise InvalidConfigurationError(
                f"The posterior has {len(labels)} traits: {some(labels, 8)}. Name one, or weights of several."
            )
        return np.asarray(np.eye(max(len(labels), 1))[0])
    if not isinstance(trait, str | Mapping):
        raise InvalidConfigurationError(
            f"trait is {trait!r}; it must be a name, or a mapping from names to weights."
        )
    named = {trait: 1.0} if isinstance(trait, str) else dict(trait)
    unknown = [name for name in named if name not in labels]
    if unknown:
        known = f"there are {some(labels, 8)}" if labels else "the posterior has one trait, without a name"
        raise InvalidConfigurationError(f"No trait is called {some(unknown)}; {known}.")
    numbers = [named.get(label, 0.0) for label in labels]
    if not all(
        isinstance(number, int | float | np.number) and 0 <= number < np.inf for number in numbers
    ) or not any(numbers):
        raise InvalidConfigurationError(
            f"The weights {named} must be non-negative numbers, and one positive."
        )
    weights = np.array(numbers, dtype=float) / max(numbers)
    return np.asarray(weights / weights.sum())


def named_weights(posterior: Posterior, trait: Trait) -> tuple[tuple[str, float], ...]:
    """Return the traits that count, by name.

    Parameters
    ----------
    posterior
        Draws of abilities.
    trait
        The trait, or weights of several.

    Returns
    -------
    tuple
        Names and weights; empty where there is one trait.
    """
    weights = trait_weights(posterior, trait)
    return tuple((name, float(w)) for name, w in zip(posterior.traits, weights, strict=False) if w > 0)


def ability_draws(posterior: Posterior, trait: Trait = None) -> Float[np.ndarray, "sample llm"]:
    """Return the draws of the abilities, all chains in a row.

    Parameters
    ----------
    posterior
        Draws of abilities.
    trait
        Where there are several traits, the one wanted, or weights of several; see `trait_weights`.

    Returns
    -------
    numpy.ndarray
        One row per draw, LLMs in the posterior's order; a weighted mean of traits is standardised in each draw.

    Raises
    ------
    InvalidConfigurationError
        If there are several traits and none is named, or the name is unknown.

    Examples
    --------
    >>> from bayes_irt import Sampler, fit_nuts, simulate_suite
    >>> sampler = Sampler(num_chains=2, num_warmup=100, num_draws=100)
    >>> ability_draws(fit_nuts(simulate_suite(6, 20).responses, sampler=sampler)).shape
    (200, 6)
    """
    weights = trait_weights(posterior, trait)
    draws = posterior.ability.transpose(
        "chain", "draw", "llm", ...
    ).to_numpy()  # the items' draws are left alone
    ability = draws.reshape(-1, draws.shape[2], len(weights))
    if np.count_nonzero(weights) == 1:
        return np.asarray(ability[..., weights.argmax()])
    mixed = ability @ weights
    return np.asarray(mixed / mixed.std(axis=1, keepdims=True))


def board_trait(posterior: Posterior, trait: Trait = None) -> Trait:
    """Return what a board of all traits ranks on.

    Parameters
    ----------
    posterior
        Draws of abilities.
    trait
        What was asked for.

    Returns
    -------
    str, mapping or None
        What was asked for; where nothing was, all of several correlated traits weigh the same, and a general one counts
        alone.
    """
    if trait is None and posterior.traits and not posterior.spec.general:
        return dict.fromkeys(posterior.traits, 1.0)
    return trait


def trait_loads(posterior: Posterior) -> Bool[np.ndarray, "item trait"]:
    """Say which items load on which trait by the model: all others have no discrimination there.

    Parameters
    ----------
    posterior
        Draws of discriminations on several traits.

    Returns
    -------
    numpy.ndarray
        Items and traits in the posterior's order.
    """
    first = posterior.draws["discrimination"].isel(chain=0, draw=0)
    return np.asarray(first.transpose("item", "trait").to_numpy() > 0)


def items_of_trait(posterior: Posterior, responses: Responses, trait: Trait) -> Responses:
    """Return the part of the data that bears on a trait: items that load on it, and LLMs that answered any.

    Parameters
    ----------
    posterior
        Draws of discriminations.
    responses
        The data that were fitted.
    trait
        The trait, or weights of several.

    Returns
    -------
    Responses
        All of them where there is one trait.
    """
    weights = trait_weights(posterior, trait)
    if len(weights) == 1:
        return responses
    chosen = trait_loads(posterior)[:, weights > 0].any(axis=1)
    if chosen.all():
        return responses
    items = [item for item, there in zip(responses.items, chosen, strict=True) if there]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # of LLMs without an answer to these items
        return responses.subset(items=items, drop_empty=True)


def llm_places(posterior: Posterior, llms: Sequence[str] | None) -> Integer[np.ndarray, " chosen"]:
    """Return the positions of LLMs in a posterior.

    Parameters
    ----------
    posterior
        The posterior.
    llms
        Their labels; None for all.

    Returns
    -------
    numpy.ndarray
        In the order of the labels.

    Raises
    ------
    InvalidConfigurationError
        If a label is unknown.

    Examples
    --------
    >>> from bayes_irt import Sampler, fit_nuts, simulate_suite
    >>> sampler = Sampler(num_chains=2, num_warmup=100, num_draws=100)
    >>> llm_places(fit_nuts(simulate_suite(6, 20).responses, sampler=sampler), ["llm-003", "llm-001"])
    array([2, 0])
    """
    if llms is None:
        return np.arange(len(posterior.llms))
    place = {llm: position for position, llm in enumerate(posterior.llms)}
    unknown = [llm for llm in llms if llm not in place]
    if unknown:
        raise InvalidConfigurationError(
            f"No LLM is called {some(unknown)}. There are {len(place):,}: {some(posterior.llms)}."
        )
    return np.array([place[llm] for llm in llms], dtype=int)


def ranks_by_draw(ability: Float[np.ndarray, "sample llm"]) -> Integer[np.ndarray, "sample llm"]:
    """Return each LLM's rank in each draw, 1 for the most able.

    Parameters
    ----------
    ability
        Draws of the abilities.

    Returns
    -------
    numpy.ndarray
        Ranks; every draw holds each rank once.

    Examples
    --------
    >>> ranks_by_draw(np.array([[0.1, 0.9, -1.0]]))
    array([[2, 1, 3]])
    """
    order = np.argsort(-ability, axis=1, kind="stable")
    ranks = np.empty(order.shape, dtype=np.int64)
    np.put_along_axis(ranks, order, np.arange(1, order.shape[1] + 1)[None, :], axis=1)
    return ranks


def rank_intervals(
    ranks: Integer[np.ndarray, "sample llm"], prob: float
) -> tuple[Integer[np.ndarray, " llm"], Integer[np.ndarray, " llm"]]:
    """Return the interval of each LLM's rank that a leaderboard shows.

    Parameters
    ----------
    ranks
        Draws of the ranks.
    prob
        Probability of the intervals.

    Returns
    -------
    tuple of numpy.ndarray
        Lowest and highest rank; together with what is between they hold at least `prob` of the draws.

    Examples
    --------
    >>> rank_intervals(np.array([[1, 2], [1, 2], [1, 2], [2, 1]]), 0.4)
    (array([1, 2]), array([1, 2]))
    """
    tails = ((1 - prob) / 2, (1 + prob) / 2)
    lower, upper = np.quantile(ranks, tails, axis=0, method="inverted_cdf").astype(int)
    return lower, upper


def win_shares(
    ability: Float[np.ndarray, "sample llm"], others: Float[np.ndarray, "sample other"]
) -> Float[np.ndarray, "llm other"]:
    """Return the share of draws in which each LLM is more able than each of the others.

    Parameters
    ----------
    ability
        Draws of the abilities.
    others
        Draws of the others' abilities.

    Returns
    -------
    numpy.ndarray
        P(row beats column); equal draws count half.

    Examples
    --------
    >>> draws = np.array([[1.0, 0.0], [1.0, 2.0], [1.0, 0.5], [1.0, 1.0]])
    >>> win_shares(draws, draws)
    array([[0.5  , 0.625],
           [0.375, 0.5  ]])
    """
    rows = [(own > others).mean(axis=0) + (own == others).mean(axis=0) / 2 for own in ability.T[:, :, None]]
    return np.array(rows).reshape(ability.shape[1], others.shape[1])


def tie_groups(ability: Float[np.ndarray, "sample llm"], prob: float) -> Integer[np.ndarray, " llm"]:
    """Group LLMs that are not separated from the best of their group.

    The LLMs are taken in order, best posterior mean first. Each joins the first leader that does not beat it with
    at least the given probability; where every leader does, it leads a new group. Groups need not be contiguous, and
    overlaps do not chain: every member is compared with its leader alone.

    Parameters
    ----------
    ability
        Draws of the abilities.
    prob
        Probability at which an LLM is separated from a leader.

    Returns
    -------
    numpy.ndarray
        Group of each LLM, 1 for that of the best posterior mean.

    Examples
    --------
    >>> draws = np.array([[3.0, 1.9, 1.0], [3.0, 2.1, 2.2], [3.0, 2.0, 1.1], [3.0, 2.0, 1.2]])
    >>> tie_groups(draws, 0.7), tie_groups(draws, 0.9)
    (array([1, 2, 3]), array([1, 2, 2]))
    """
    groups = np.zeros(ability.shape[1], dtype=np.int64)
    leaders: list[int] = []
    for llm in np.argsort(-ability.mean(axis=0), kind="stable").tolist():
        beaten = win_shares(ability[:, leaders], ability[:, [llm]])[:, 0] >= prob
        groups[llm] = 1 + (len(leaders) if beaten.all() else int(np.argmin(beaten)))
        if beaten.all():
            leaders.append(llm)
    return groups
