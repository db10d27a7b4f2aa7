"""Plots of rankings compared. No statistics here: `compare_rankings` computes what is drawn."""

from __future__ import annotations

import numpy as np
import pandas as pd
from matplotlib import pyplot as plt
from matplotlib.axes import Axes
from matplotlib.lines import Line2D

from bayes_irt.analysis.comparison import RankingComparison
from bayes_irt.arguments import require_whole
from bayes_irt.errors import InvalidConfigurationError
from bayes_irt.formatting import percent_text
from bayes_irt.plot_labels import (
    LABEL_SIZE,
    LINE_HEIGHT,
    PointLabel,
    points_per_unit,
    stack_labels,
    widest,
)
from bayes_irt.plot_parts import contrast_colours, ink, short_names

_OTHERS = "0.55"
_TALLEST_ROWS = 44
_REACH = 0.05
_MANY = 60
_MARGIN = 6.0
_WIDEST = 3.0
_ROUNDS = 40


def plot_rank_flow(
    comparison: RankingComparison, axes: Axes | None = None, *, most: int = 150, highlighted: int = 12
) -> Axes:
    """Draw how each LLM's rank changes from accuracy by cBMM to the posterior, one line an LLM.

    Parameters
    ----------
    comparison
        The comparison.
    axes
        Where to draw; None for a new figure of the right size.
    most
        Number of LLMs shown, from the top of the posterior ranking.
    highlighted
        Number of LLMs, those that move most from accuracy to posterior, that are coloured.

    Returns
    -------
    matplotlib.axes.Axes
        Rank 1 on top. LLMs tied in accuracy share their places in the order of the posterior. All LLMs are labelled
        where there is room, else the coloured ones.

    Raises
    ------
    InvalidConfigurationError
        If a number is not whole, or below 1 (`highlighted`: below 0).

    Examples
    --------
    >>> from bayes_irt import Priors, Sampler, compare_rankings, fit_cbmm, fit_nuts, simulate_suite
    >>> responses = simulate_suite(6, 20).responses
    >>> posterior = fit_nuts(responses, sampler=Sampler(num_chains=2, num_warmup=100, num_draws=100))
    >>> panel = plot_rank_flow(compare_rankings(posterior, fit_cbmm(responses, penalty=Priors()), responses))
    >>> [label.get_text() for label in panel.get_xticklabels()]
    ['accuracy', 'cBMM', 'posterior']
    >>> plt.close(panel.figure)
    """
    require_whole("most", most, 1)
    require_whole("highlighted", highlighted, 0)
    table = comparison.table
    places = np.stack([_distinct_places(table, f"{name}_rank") for name in ("accuracy", "cbmm", "posterior")])
    table, places = table.iloc[:most], places[:, :most]
    panel = _flow_axes(len(table)) if axes is None else axes
    movers = _biggest_moves(table, highlighted)
    colours = _colours(panel, table, movers)
    for place in [*np.setdiff1d(np.arange(len(table)), movers).tolist(), *movers[::-1]]:
        strong = place in movers
        panel.plot(
            range(3),
            places[:, place],
            "o-",
            color=colours[place] if strong else _OTHERS,
            linewidth=1.8 if strong else 0.8,
            alpha=1.0 if strong else 0.6,
            markersize=4.0 if strong else 2.5,
            zorder=3 if strong else 2,
        )
    panel.set_xlim(-_REACH, 2 + _REACH)
    panel.set_ylim(places.max() + 0.7, 0.3)
    panel.set_xticks(range(3), ["accuracy", "cBMM", "posterior"])
    panel.xaxis.tick_top()
    panel.tick_params(axis="x", length=0)
    panel.set_yticks([])
    panel.spines[:].set_visible(False)
    _add_flow_legend(panel, table, movers)
    _label_flow(panel, table, places, colours, movers)
    return panel


def plot_accuracy(comparison: RankingComparison, axes: Axes | None = None, *, highlighted: int = 10) -> Axes:
    """Draw ability against accuracy, with the intervals of both.

    Parameters
    ----------
    comparison
        The comparison.
    axes
        Where to draw; None for a new figure.
    highlighted
        Number of LLMs, those whose rank moves most from accuracy to posterior, that are coloured and labelled.

    Returns
    -------
    matplotlib.axes.Axes
        Dots are posterior means over observed accuracies, bars the intervals of both. Names stand where the cloud
        leaves room: of those ranked higher at the upper left, of those ranked lower at the lower right; axes too
        small for names stay without.

    Raises
    ------
    InvalidConfigurationError
        If abilities are not applicable (fewer than 4 LLMs), or `highlighted` is not a whole number of at least 0.

    Examples
    --------
    >>> from bayes_irt import Priors, Sampler, compare_rankings, fit_cbmm, fit_nuts, simulate_suite
    >>> responses = simulate_suite(6, 20).responses
    >>> posterior = fit_nuts(responses, sampler=Sampler(num_chains=2, num_warmup=100, num_draws=100))
    >>> panel = plot_accuracy(compare_rankings(posterior, fit_cbmm(responses, penalty=Priors()), responses))
    >>> panel.get_xlabel(), panel.get_ylabel()
    ('accuracy (share of right attempts)', 'ability (sd of these LLMs)')
    >>> plt.close(panel.figure)
    """
    require_whole("highlighted", highlighted, 0)
    table = comparison.table
    if not comparison.has_ability:
        raise InvalidConfigurationError(f"{len(table)} LLMs have no ability to plot; it takes at least 4.")
    movers = _biggest_moves(table, highlighted)
    panel = _scatter_axes(table, movers) if axes is None else axes
    colours = _colours(panel, table, movers)
    others = np.setdiff1d(np.arange(len(table)), movers)
    _draw_crosses(panel, table.iloc[others], _OTHERS, 0.35 if len(table) > _MANY else 0.7, 2)
    for place in movers:
        _draw_crosses(panel, table.iloc[[place]], colours[place], 0.8, 3)
    panel.set_xlabel("accuracy (share of right attempts)")
    panel.set_ylabel("ability (sd of these LLMs)")
    panel.spines[["top", "right"]].set_visible(False)
    panel.grid(color="0.5", alpha=0.2, linewidth=0.6)
    panel.set_axisbelow(True)
    _add_accuracy_legend(panel, table, movers, comparison.prob)
    panel.set_xlim(panel.get_xlim())
    panel.set_ylim(panel.get_ylim())
    _label_outliers(panel, table, movers, colours)
    return panel


def _distinct_places(table: pd.DataFrame, column: str) -> np.ndarray:
    """Return a place of its own for every LLM: tied ones share theirs in the order of the posterior."""
    order = np.lexsort((table["posterior_rank"], table[column]))
    places = np.empty(len(table), dtype=int)
    places[order] = np.arange(1, len(table) + 1)
    return places


def _biggest_moves(table: pd.DataFrame, number: int) -> list[int]:
    """Return the positions of the LLMs that move most, the biggest move first."""
    size = table["move"].abs().to_numpy()
    order = np.argsort(-size, kind="stable")[:number]
    return [int(place) for place in order if size[place] > 0]


def _colours(panel: Axes, table: pd.DataFrame, movers: list[int]) -> list[str]:
    """Return the colour of each LLM's label: rising, falling, or as the axes write."""
    cool, warm = contrast_colours(panel)
    colours = [ink(panel)] * len(table)
    for place in movers:
        colours[place] = cool if table["move"].iloc[place] > 0 else warm
    return colours


def _flow_axes(shown: int) -> Axes:
    rows = min(shown, _TALLEST_ROWS)
    figure, panel = plt.subplots(figsize=(9.2, 1.1 + 0.19 * max(rows, 8)), layout="constrained")
    figure.get_layout_engine().set(w_pad=0.1, h_pad=0.06)  # type: ignore[union-attr,call-arg]
    return panel


def _scatter_axes(table: pd.DataFrame, movers: list[int]) -> Axes:
    """Return axes with room for the names at both sides of the cloud."""
    figure, panel = plt.subplots(layout="constrained")
    names = short_names([str(name) for name in table.index])
    figure.set_size_inches(7.2 + widest(panel, [names[place] for place in movers]) / 72, 5.4)
    return panel


def _label_flow(
    panel: Axes, table: pd.DataFrame, places: np.ndarray, colours: list[str], movers: list[int]
) -> None:
    """Write names at both ends: all where there is room, else those that move most."""
    all_fit = points_per_unit(panel)[1] >= LINE_HEIGHT
    chosen = range(len(table)) if all_fit else movers
    names = short_names([str(name) for name in table.index])
    tied = ["=" if number > 1 else "" for number in table["accuracy_tied"]]
    accuracy, posterior = table["accuracy_rank"].tolist(), table["posterior_rank"].tolist()
    limits = (1.0, float(places.max()))
    left = [
        PointLabel(f"{names[i]}  {accuracy[i]}{tied[i]}", 0.0, float(places[0, i]), colours[i])
        for i in chosen
    ]
    right = [PointLabel(f"{posterior[i]}  {names[i]}", 2.0, float(places[2, i]), colours[i]) for i in chosen]
    stack_labels(panel, left, -_REACH, limits, align="right")
    stack_labels(panel, right, 2 + _REACH, limits, align="left")


def _label_outliers(panel: Axes, table: pd.DataFrame, movers: list[int], colours: list[str]) -> None:
    """Name LLMs in the corners that a rising cloud leaves free: ranked higher at the upper left, lower at the right."""
    names = short_names([str(name) for name in table.index])
    x, y = table["accuracy"].to_numpy(), table["ability"].to_numpy()
    left_ends = table["accuracy_lower"].fillna(table["accuracy"]).to_numpy()
    right_ends = table["accuracy_upper"].fillna(table["accuracy"]).to_numpy()
    rises = [place for place in movers if table["move"].iloc[place] > 0]
    falls = [place for place in movers if table["move"].iloc[place] < 0]
    labels = {place: PointLabel(names[place], x[place], y[place], colours[place]) for place in movers}
    widths = [widest(panel, [names[place] for place in side]) + _MARGIN for side in (rises, falls)]
    edges = (min(left_ends[rises], default=x.min()), max(right_ends[falls], default=x.max()))
    _make_room(panel, edges, widths)
    across, upwards = points_per_unit(panel)
    gap = LINE_HEIGHT / upwards
    (left, right), (bottom, top) = panel.get_xlim(), panel.get_ylim()
    rises = rises if (edges[0] - left) * across >= widths[0] - 1 else []
    falls = falls if (right - edges[1]) * across >= widths[1] - 1 else []
    floor = max(table["ability_upper"].to_numpy()[x <= edges[0]], default=bottom) + gap
    ceiling = min(table["ability_lower"].to_numpy()[x >= edges[1]], default=top) - gap
    stack_labels(panel, [labels[place] for place in rises], edges[0], (floor, top - gap / 2), align="right")
    stack_labels(
        panel, [labels[place] for place in falls], edges[1], (bottom + gap / 2, ceiling), align="left"
    )


def _make_room(panel: Axes, edges: tuple[float, float], widths: list[float]) -> None:
    """Widen the limits until labels of these widths, in points, fit beyond the edges; marks stay between 0 and 1."""
    left, right = panel.get_xlim()
    room = (right - left) * points_per_unit(panel)[0]
    narrowest, widest_range = (left, right), _WIDEST * (right - left)
    for _ in range(_ROUNDS):
        per_point = min(right - left, widest_range) / room
        left = min(narrowest[0], edges[0] - widths[0] * per_point)
        right = max(narrowest[1], edges[1] + widths[1] * per_point)
    panel.set_xlim(left, right)
    panel.set_xticks([mark for mark in panel.get_xticks() if max(left, 0) <= mark <= min(right, 1)])


def _mover_handles(panel: Axes, table: pd.DataFrame, movers: list[int], *, joined: bool) -> list[Line2D]:
    moves, (cool, warm) = table["move"].iloc[movers], contrast_colours(panel)
    entries = (
        (cool, "ranked higher by the posterior", bool((moves > 0).any())),
        (warm, "ranked lower by the posterior", bool((moves < 0).any())),
        (_OTHERS, "other LLMs", len(movers) < len(table)),
    )
    return [
        Line2D([], [], linestyle="-" if joined else "", marker="o", markersize=4, color=colour, label=text)
        for colour, text, present in entries
        if present
    ]


def _add_flow_legend(panel: Axes, table: pd.DataFrame, movers: list[int]) -> None:
    panel.legend(
        handles=_mover_handles(panel, table, movers, joined=True),
        loc="upper center",
        bbox_to_anchor=(0.5, 0),
        ncols=3,
        frameon=False,
        fontsize=LABEL_SIZE,
        labelcolor=ink(panel),
    )


def _add_accuracy_legend(panel: Axes, table: pd.DataFrame, movers: list[int], prob: float) -> None:
    bars = Line2D(
        [], [], color=_OTHERS, marker="+", markersize=9, linestyle="", label=f"{percent_text(prob)} intervals"
    )
    panel.legend(
        handles=[*_mover_handles(panel, table, movers, joined=False), bars],
        loc="lower center",
        bbox_to_anchor=(0.5, 1),
        ncols=4,
        frameon=False,
        fontsize=LABEL_SIZE,
        labelcolor=ink(panel),
    )


def _draw_crosses(panel: Axes, table: pd.DataFrame, colour: str, alpha: float, zorder: int) -> None:
    """Draw dots, and their intervals as crosses."""
    x, y = table["accuracy"], table["ability"]
    panel.hlines(
        y,
        table["accuracy_lower"],
        table["accuracy_upper"],
        color=colour,
        alpha=alpha * 0.7,
        linewidth=1,
        zorder=zorder,
    )
    panel.vlines(
        x,
        table["ability_lower"],
        table["ability_upper"],
        color=colour,
        alpha=alpha * 0.7,
        linewidth=1,
        zorder=zorder,
    )
    panel.plot(x, y, "o", color=colour, alpha=min(1.0, alpha + 0.3), markersize=3.5, zorder=zorder)
