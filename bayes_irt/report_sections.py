"""What a report says, section by section, before it takes a form: sentences, tables of text, figures."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pandas as pd

from bayes_irt.analysis.comparison import RankingComparison
from bayes_irt.analysis.items import ItemOverview
from bayes_irt.analysis.leaderboard import Leaderboard
from bayes_irt.analysis.pair import traits_text
from bayes_irt.checks import Check, CheckReport
from bayes_irt.errors import some
from bayes_irt.formatting import percent_text, probability_relation
from bayes_irt.predictive import PredictiveChecks
from bayes_irt.responses import Responses
from bayes_irt.sensitivity import PriorSensitivity

if TYPE_CHECKING:
    from matplotlib.axes import Axes

#: Rows of a table that a page shows; files hold the rest.
MOST_LLMS = 200
MOST_ITEMS = 20
_MOST_MOVERS = 5


@dataclass(frozen=True, slots=True, eq=False)
class Figure:
    """State how a figure is drawn.

    Parameters
    ----------
    draw
        Draws it into a new figure and returns an axes of it.
    caption
        What it shows; also read to those who cannot see it.
    """

    draw: Callable[[], Axes]
    caption: str


@dataclass(frozen=True, slots=True, eq=False)
class Section:
    """Hold one section of a report.

    Parameters
    ----------
    title
        Its heading.
    text
        Paragraphs above the tables.
    tables
        Tables of text, one after the other.
    bars
        Intervals drawn beside the rows of the first table: ``lower``, ``middle``, ``upper``; None for none.
    figures
        Figures below.
    notes
        Small print at the end.
    """

    title: str
    text: Sequence[str] = ()
    tables: Sequence[pd.DataFrame] = ()
    bars: pd.DataFrame | None = None
    figures: Sequence[Figure] = ()
    notes: Sequence[str] = field(default=())


def headline(board: Leaderboard, checks: CheckReport, predictive: PredictiveChecks) -> Section:
    """Return the answer in a few sentences.

    Parameters
    ----------
    board
        The leaderboard.
    checks
        Convergence checks of the posterior.
    predictive
        Posterior predictive checks.

    Returns
    -------
    Section
        Who is first, how surely, who is tied with it, and whether the fit can be trusted.
    """
    text = [_on_first(board)]
    if board.traits:
        text.append(f"LLMs are ranked{traits_text(board.traits)}.")
    if not checks.passed:
        failed = "; ".join(str(check) for check in checks.failures)
        text.append(f"Checks of the fit failed, so none of the figures below may be trusted: {failed}")
    if not predictive.report.passed:
        names = ", ".join(check.name for check in predictive.report.failures)
        text.append(f"The model does not describe the data in every respect ({names}): see Checks.")
    return Section("In short", text)


def _on_first(board: Leaderboard) -> str:
    if board.has_ability and not board.found_ability:
        return board.notes[0]
    table = board.table
    first, tied = str(table.index[0]), int((table["tie_group"] == 1).sum())
    chance = f"P(best) {probability_relation(float(table['p_best'].iloc[0]))}"
    if tied == 1:
        return (
            f"{first} comes first of {len(table)} LLMs ({chance}), separated from each other one at "
            f"{percent_text(board.tie_prob)}."
        )
    others = [str(llm) for llm in table.index[table["tie_group"] == 1][1:]]
    named = ", ".join(others[:5]) + (f" and {len(others) - 5} more" if len(others) > 5 else "")
    return (
        f"{first} comes first of {len(table)} LLMs ({chance}), but is not separated (at "
        f"{percent_text(board.tie_prob)}) from {named}."
    )


def ranking(board: Leaderboard) -> Section:
    """Return the leaderboard with its intervals.

    Parameters
    ----------
    board
        The leaderboard.

    Returns
    -------
    Section
        The first 200 LLMs.
    """
    shown = board.table.iloc[:MOST_LLMS]
    site = "ability" if board.has_ability else "expected_accuracy"
    bars = shown[[f"{site}_lower", site, f"{site}_upper"]].set_axis(["lower", "middle", "upper"], axis=1)
    notes = [
        *board.notes,
        f"Bars: {site.replace('_', ' ')}, {percent_text(board.prob)} interval and posterior mean.",
    ]
    if len(board.table) > MOST_LLMS:
        notes.append(f"The first {MOST_LLMS} of {len(board.table):,} LLMs; leaderboard.csv holds all.")
    return Section("Leaderboard", tables=[board.formatted().iloc[:MOST_LLMS]], bars=bars, notes=notes)


def ties(board: Leaderboard, matrix: pd.DataFrame, draw: Callable[[pd.DataFrame], Axes]) -> Section:
    """Return tie groups and P(A > B).

    Parameters
    ----------
    board
        The leaderboard.
    matrix
        P(row beats column), best first.
    draw
        Draws the heat map.

    Returns
    -------
    Section
        Groups with more than one LLM, and the heat map of the first 150 LLMs.
    """
    groups = []
    for number, members in board.table.groupby("tie_group").groups.items():
        names = [str(llm) for llm in members]
        shown = ", ".join(names[:8]) + (f" and {len(names) - 8} more" if len(names) > 8 else "")
        groups.append({"tie": str(number), "LLMs": str(len(names)), "members, best first": shown})
    most = 150
    some_of = matrix.iloc[:most, :most]
    caption = "P(row beats column): how surely the LLM in the row is more able than the one in the column."
    if len(matrix) > most:
        caption += f" The first {most} LLMs; pairs.csv holds all."
    rule = (
        "An LLM belongs to the first group whose leader does not beat it with probability "
        f"{percent_text(board.tie_prob)}: it is not separated from the leader; other members may be from each other."
    )
    nobody = board.has_ability and not board.found_ability
    text = ["No common ability was found, so all LLMs are in one group." if nobody else rule]
    figure = Figure(lambda: draw(some_of), caption)
    return Section("Ties", text, [pd.DataFrame(groups).iloc[:MOST_LLMS]], figures=[figure])


def rankings(comparison: RankingComparison, draw_flow: Callable, draw_accuracy: Callable) -> Section:
    """Return accuracy, cBMM and posterior compared.

    Parameters
    ----------
    comparison
        The comparison.
    draw_flow, draw_accuracy
        Draw the rank flow and ability against accuracy.

    Returns
    -------
    Section
        Agreement, the biggest movers and why they move.
    """
    text, figures = list(comparison.sentences), []
    if comparison.has_ability:
        text += comparison.movers(_MOST_MOVERS).sentences
        flow = "Ranks by accuracy, by the cBMM estimate and by posterior mean."
        scatter = f"Ability against accuracy, with {percent_text(comparison.prob)} intervals."
        figures = [
            Figure(lambda: draw_flow(comparison), flow),
            Figure(lambda: draw_accuracy(comparison), scatter),
        ]
    return Section("Accuracy, cBMM and posterior", text, figures=figures)


def items(overview: ItemOverview) -> Section:
    """Return the overview of the items.

    Parameters
    ----------
    overview
        The item table.

    Returns
    -------
    Section
        What there is to say, the 20 most informative items, and those reversed.
    """
    text = list(overview.notes)
    tables = [overview.formatted().iloc[:MOST_ITEMS]]
    if overview.reversed:
        tables.append(overview.formatted()[list(overview.table["reversed"])].iloc[:MOST_ITEMS])
        text.append("First table: the most informative items. Second: those on which stronger LLMs do worse.")
    more = len(overview.table) > MOST_ITEMS
    note = f"The {MOST_ITEMS} most informative of {len(overview.table):,} items; items.csv holds all."
    return Section("Items", text, tables, notes=[note] if more else [])


def data(responses: Responses, checks: CheckReport, source: str, related: Sequence[str]) -> Section:
    """Return what was fitted, and what is odd about it.

    Parameters
    ----------
    responses
        The data.
    checks
        Data checks.
    source
        Where they came from.
    related
        What there is to say about LLMs that are alike.

    Returns
    -------
    Section
        Numbers and data checks.
    """
    cells = responses.num_llms * responses.num_items
    missing = cells - responses.num_observed
    per_cell = responses.attempts[responses.attempts > 0]
    attempts = (
        f"{per_cell.min()}" if per_cell.min() == per_cell.max() else f"{per_cell.min()} to {per_cell.max()}"
    )
    rows = {
        "source": source,
        "LLMs": f"{responses.num_llms:,}",
        "items": f"{responses.num_items:,}",
        "answered cells": f"{responses.num_observed:,} of {cells:,}",
        "missing cells (errors that were recorded as missing among them)": f"{missing:,} ({missing / cells:.1%})",
        "attempts per cell": attempts,
        "attempts": f"{responses.num_attempts:,}",
    }
    table = pd.DataFrame({"": rows.keys(), " ": rows.values()})
    text = ["A missing cell counts neither as right nor as wrong.", *related]
    return Section("Data", text, [table, check_table(checks)])


def fit(checks: CheckReport, predictive: PredictiveChecks) -> Section:
    """Return whether the fit converged and describes the data.

    Parameters
    ----------
    checks
        Convergence checks.
    predictive
        Posterior predictive checks.

    Returns
    -------
    Section
        Both lists of checks.
    """
    text = [
        "First whether the engine did its job, then whether data like these come out of the fitted model."
    ]
    return Section("Checks", text, [check_table(checks), check_table(predictive.report)])


def priors(prior_text: str, sensitivity: PriorSensitivity | None) -> Section:
    """Return the priors and how much the top of the board depends on them.

    Parameters
    ----------
    prior_text
        The priors as printed.
    sensitivity
        Power-scaling indices; None where there are none, with several traits.

    Returns
    -------
    Section
        Priors, sentence and table.
    """
    if sensitivity is None:
        text = "How far the top of the board depends on the hyperpriors is not known with several traits: left out."
        return Section("Priors", [f"Model: {prior_text}", text])
    rounded = sensitivity.table.map("{:.3f}".format)
    names = {name: name.replace("_", ", ") for name in rounded.columns}
    table = rounded.rename(columns=names).rename_axis("LLM").reset_index()
    return Section("Priors", [f"Model: {prior_text}", sensitivity.sentence], [table])


def check_table(report: CheckReport) -> pd.DataFrame:
    """Return checks as a table of text.

    Parameters
    ----------
    report
        The checks.

    Returns
    -------
    pandas.DataFrame
        Outcome, name, message.
    """
    rows = [
        {"outcome": str(check.outcome), "check": check.name, "what was found": with_labels(check)}
        for check in report
    ]
    return pd.DataFrame(rows)


def with_labels(check: Check) -> str:
    """Return what a check found, with the labels concerned.

    Parameters
    ----------
    check
        The check.

    Returns
    -------
    str
        Its message; the first labels in brackets.
    """
    return f"{check.message} ({some(check.labels)})" if check.labels else check.message
