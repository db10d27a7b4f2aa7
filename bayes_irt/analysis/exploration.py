"""Traits that were explored: how much each of them accounts for, and whether all chains found the same."""

from __future__ import annotations

import numpy as np
import pandas as pd

from bayes_irt.analysis.traits import summary_of, trait_loadings, traits_of
from bayes_irt.arguments import require_whole
from bayes_irt.errors import some
from bayes_irt.posterior import Posterior
from bayes_irt.trait_matching import chain_cosines, match_to

_NAMED = 3


def trait_strengths(posterior: Posterior, prob: float = 0.9) -> pd.DataFrame:
    """Return how much of what tells LLMs apart is each trait's.

    Parameters
    ----------
    posterior
        Draws of discriminations on several traits.
    prob
        Probability of the equal-tailed intervals.

    Returns
    -------
    pandas.DataFrame
        One row per trait (its index): ``share`` of the sum of all squared discriminations (posterior mean), ``lower``,
        ``upper``, and ``items``, the number of items that load on it more than on any other. A trait that hardly any
        item loads on most is none.

    Raises
    ------
    InvalidConfigurationError
        If the posterior has one trait, or `prob` is out of range.

    Examples
    --------
    >>> from bayes_irt import ModelSpec, fit_laplace, simulate_from_prior
    >>> items = pd.DataFrame({"subject": ["algebra", "logic"] * 10})
    >>> spec = ModelSpec(traits="subject")
    >>> suite = simulate_from_prior(spec, 30, 20, seed=1, item_metadata=items)
    >>> trait_strengths(fit_laplace(suite.responses, spec=spec))["items"].to_dict()
    {'algebra': 10, 'logic': 10}
    """
    traits = traits_of(posterior)
    loads = np.asarray(posterior.parameters.discrimination)
    squares = np.square(loads).sum(axis=-2)
    shares = squares / squares.sum(axis=-1, keepdims=True)
    index = pd.Index(np.array(traits, dtype=object), name="trait")
    table = summary_of(shares.reshape(-1, len(traits)), index, "share", prob)
    most = loads.reshape(-1, *loads.shape[-2:]).mean(axis=0).argmax(axis=-1)
    return table.assign(items=np.bincount(most, minlength=len(traits)))


def strength_sentence(posterior: Posterior) -> str:
    """Say how much each trait accounts for.

    Parameters
    ----------
    posterior
        Draws of discriminations on several traits.

    Returns
    -------
    str
        The shares of `trait_strengths`, and which items load most on each.
    """
    sharpest = trait_loadings(posterior, most=_NAMED).reset_index()
    named = {trait: some(part["item"].tolist()) for trait, part in sharpest.groupby("trait")}
    parts = [
        f"{trait} {share:.0%} (most on {named[trait]})"
        for trait, share in zip(posterior.traits, trait_strengths(posterior)["share"], strict=True)
    ]
    return f"Of what tells LLMs apart: {'; '.join(parts)}."


def trait_solutions(posterior: Posterior, *, most: int = 5) -> pd.DataFrame:
    """Show which traits each chain found.

    Parameters
    ----------
    posterior
        Draws of discriminations on several traits.
    most
        Number of items named for each trait.

    Returns
    -------
    pandas.DataFrame
        One row per chain and trait (its index): ``cosine`` of the chain's mean discriminations with those of the
        chain most like all others, 1 where they are proportional, and ``items``, those that load most on it in that
        chain, the sharpest first.

    Raises
    ------
    InvalidConfigurationError
        If the posterior has one trait, or `most` is not a whole number of at least 1.

    Examples
    --------
    >>> from bayes_irt import ModelSpec, fit_laplace, simulate_from_prior
    >>> items = pd.DataFrame({"subject": ["algebra", "logic"] * 10})
    >>> spec = ModelSpec(traits="subject")
    >>> suite = simulate_from_prior(spec, 30, 20, seed=1, item_metadata=items)
    >>> trait_solutions(fit_laplace(suite.responses, spec=spec))["cosine"].tolist()
    [1.0, 1.0]
    """
    traits = traits_of(posterior)
    require_whole("most", most, 1)
    loads = posterior.draws["discrimination"].mean("draw").transpose("chain", "item", "trait").to_numpy()
    central, found = chain_cosines(loads)
    names = np.array(posterior.items, dtype=object)
    rows = []
    for chain, own, cosines in zip(posterior.draws["chain"].to_numpy(), loads, found, strict=True):
        matched = own[:, match_to(own, loads[central])]
        for trait, column, cosine in zip(traits, matched.T, cosines, strict=True):
            first = names[np.argsort(-column, kind="stable")[:most]]
            rows.append((int(chain), trait, round(float(cosine), 12), ", ".join(map(str, first))))
    return pd.DataFrame(rows, columns=["chain", "trait", "cosine", "items"]).set_index(["chain", "trait"])
