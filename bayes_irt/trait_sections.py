"""What a report says of several traits: profiles, how far the traits are one, and the items that make them up."""

from __future__ import annotations

from typing import NamedTuple

import pandas as pd

from bayes_irt.analysis.leaderboard import Leaderboard
from bayes_irt.analysis.traits import (
    describe_traits,
    trait_correlations,
    trait_loadings,
    trait_profile,
    trait_sentences,
    variance_shares,
)
from bayes_irt.formatting import percent_text
from bayes_irt.posterior import Posterior
from bayes_irt.report_sections import Figure, Section
from bayes_irt.responses import Responses
from bayes_irt.trait_plots import plot_trait_correlations, plot_trait_loadings, plot_trait_profile

#: LLMs whose profile a page shows; a file holds all.
MOST_PROFILES = 60
#: Items named for each trait.
MOST_OF_TRAIT = 5
_FOR_ONE = (
    "The board of one trait is what bayes-irt rank RUN --trait NAME prints; compare takes the option, too."
)
_ON_GENERAL = "The general ability is what all items share; a trait is what its own items share beyond that."
_SHARES = {
    "omega_hierarchical": "omega hierarchical: share of the total score's variance due to the general ability",
    "omega_total": "omega total: share due to any ability",
    "explained_common_variance": "explained common variance: share of the general ability in what items owe to any",
}


class TraitTables(NamedTuple):
    """Hold what is known of several traits.

    Parameters
    ----------
    overview
        As `describe_traits` returns it.
    profile
        As `trait_profile` returns it.
    loadings
        As `trait_loadings` returns it.
    correlations
        As `trait_correlations` returns it; None for a bifactor model.
    shares
        As `variance_shares` returns it; None for any other model.
    sentences
        What they say.
    prob
        Probability of the intervals.
    """

    overview: pd.DataFrame
    profile: pd.DataFrame
    loadings: pd.DataFrame
    correlations: pd.DataFrame | None
    shares: pd.DataFrame | None
    sentences: tuple[str, ...]
    prob: float

    @property
    def tables(self) -> dict[str, pd.DataFrame]:
        """All tables, by the names of their files."""
        named = {
            "trait_overview": self.overview,
            "traits": self.profile,
            "trait_loadings": self.loadings,
            "trait_correlations": self.correlations,
            "variance_shares": self.shares,
        }
        return {name: table for name, table in named.items() if table is not None}


def tables_of_traits(posterior: Posterior, responses: Responses, prob: float) -> TraitTables:
    """Ask a posterior of several traits all that a report says of them.

    Parameters
    ----------
    posterior
        Draws.
    responses
        The data that were fitted.
    prob
        Probability of the intervals.

    Returns
    -------
    TraitTables
        The tables.

    Raises
    ------
    InvalidConfigurationError
        If the posterior has one trait or is about other data, or `prob` is out of range.
    """
    general = posterior.spec.general
    return TraitTables(
        overview=describe_traits(posterior, responses),
        profile=trait_profile(posterior, prob),
        loadings=trait_loadings(posterior, prob),
        correlations=None if general else trait_correlations(posterior, prob),
        shares=variance_shares(posterior, prob) if general else None,
        sentences=trait_sentences(posterior, prob),
        prob=prob,
    )


def traits(board: Leaderboard, found: TraitTables) -> Section:
    """Return each LLM's abilities, and how far the traits are one.

    Parameters
    ----------
    board
        The leaderboard, for the order of the LLMs.
    found
        The tables of the traits.

    Returns
    -------
    Section
        The overview, variance shares of a bifactor model, the profiles of the first 60 LLMs, and correlations.
    """
    percent, tables = percent_text(found.prob), [_overview(board, found.overview)]
    text, figures = [_FOR_ONE, *found.sentences], []
    if found.shares is not None:
        tables.append(_formatted_shares(found.shares, percent))
        text.append(_ON_GENERAL)
    if board.has_ability:
        shown = [str(llm) for llm in board.table.index[:MOST_PROFILES]]
        caption = (
            f"Ability on each trait: posterior mean and {percent} interval; the best of the board on top."
        )
        if len(board.table) > MOST_PROFILES:
            caption += f" The first {MOST_PROFILES} of {len(board.table):,} LLMs; traits.csv holds all."
        figures.append(Figure(lambda: plot_trait_profile(found.profile, llms=shown)[0], caption))
    else:
        text.append(f"{len(board.table)} LLMs have no abilities to show on the traits.")
    if (correlations := found.correlations) is not None:
        caption = f"How abilities correlate over LLMs like these: posterior mean and {percent} interval."
        figures.append(Figure(lambda: plot_trait_correlations(correlations), caption))
    return Section("Traits", text, tables, figures=figures)


def items_of_traits(found: TraitTables) -> Section:
    """Return the items that make up each trait.

    Parameters
    ----------
    found
        The tables of the traits.

    Returns
    -------
    Section
        The items that load most on each trait, and the map of all.
    """
    top = found.loadings.groupby("trait", sort=False).head(MOST_OF_TRAIT).reset_index()
    percent = percent_text(found.prob)
    columns = {
        "trait": top["trait"].astype(str),
        "item": top["item"].astype(str),
        "discrimination": top["discrimination"].map("{:.2f}".format),
        f"discrimination {percent}": _spans(top),
    }
    text = [
        f"The {MOST_OF_TRAIT} items that load most on each trait say what it is. Discriminations are in logits per sd "
        "of the LLMs on that trait.",
        "Informations and reversed items are about one ability, and are left out.",
    ]
    caption = "Which items load on which trait, and how much; empty where an item does not load by the model."
    figure = Figure(lambda: plot_trait_loadings(found.loadings), caption)
    note = f"trait_loadings.csv holds all {len(found.loadings):,} loadings."
    return Section("Items", text, [pd.DataFrame(columns)], figures=[figure], notes=[note])


def rankings_left_out() -> Section:
    """Return what stands where rankings are compared.

    Returns
    -------
    Section
        One sentence.
    """
    text = (
        "Rankings by accuracy, cBMM and posterior are compared on one ability, so that they are left out here; the "
        "leaderboard has all three."
    )
    return Section("Accuracy, cBMM and posterior", [text])


def _overview(board: Leaderboard, overview: pd.DataFrame) -> pd.DataFrame:
    weights = dict(board.traits)
    columns = {
        "trait": overview.index.to_series().astype(str),
        "weight in the board": [f"{weights.get(str(trait), 0.0):.0%}" for trait in overview.index],
        "items": overview["items"].map("{:,}".format),
        "LLMs seen": overview["llms_seen"].map("{:,}".format),
        "accuracy": overview["accuracy"].map("{:.3f}".format),
        "reliability": overview["reliability"].map("{:.2f}".format),
    }
    return pd.DataFrame(columns).reset_index(drop=True)


def _formatted_shares(shares: pd.DataFrame, percent: str) -> pd.DataFrame:
    columns = {
        "measure": shares.index.to_series().map(_SHARES),
        "share": shares["share"].map("{:.2f}".format),
        f"share {percent}": _spans(shares),
    }
    return pd.DataFrame(columns).reset_index(drop=True)


def _spans(table: pd.DataFrame) -> list[str]:
    return [f"[{low:.2f}, {high:.2f}]" for low, high in zip(table["lower"], table["upper"], strict=True)]
