"""Plots of ranks and of pairs. No statistics here: `rank_llms` and `pair_matrix` compute what is drawn."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial

import numpy as np
import pandas as pd
from matplotlib import pyplot as plt
from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap, to_rgb
from matplotlib.ticker import MaxNLocator, PercentFormatter

from bayes_irt.analysis.leaderboard import Leaderboard
from bayes_irt.formatting import percent_text
from bayes_irt.plot_labels import LABEL_SIZE, name_sides, points_per_unit, widest, write_cells
from bayes_irt.plot_parts import (
    contrast_colours,
    draw_heat_map,
    forest_panels,
    ink,
    name_rows,
    paper,
    short_names,
    stripe_rows,
)

_ROOM_FOR_TEXT = (17.0, 9.0)
_LARGEST_SIDE = 9.0


def plot_ranks(board: Leaderboard, axes: Sequence[Axes] | None = None, *, most: int = 150) -> list[Axes]:
    """Draw each LLM's rank with its interval, best LLM on top.

    Parameters
    ----------
    board
        The leaderboard.
    axes
        Panels to draw into, filled one after the other; None for a new figure of the right size with up to 50 LLMs
        a panel.
    most
        Number of LLMs shown, from the top.

    Returns
    -------
    list of matplotlib.axes.Axes
        The panels, each with a scale of its own. Dots are expected ranks, lines intervals, diamonds ranks by cBMM; the
        tie group stands at the right.

    Examples
    --------
    >>> from bayes_irt import Priors, Sampler, fit_cbmm, fit_nuts, rank_llms, simulate_suite
    >>> responses = simulate_suite(6, 20).responses
    >>> posterior = fit_nuts(responses, sampler=Sampler(num_chains=2, num_warmup=100, num_draws=100))
    >>> panels = plot_ranks(rank_llms(posterior, fit_cbmm(responses, penalty=Priors()), responses))
    >>> panels[0].get_xlabel()
    'rank among 6 LLMs'
    >>> plt.close(panels[0].figure)
    """
    table = board.table.iloc[:most]
    panels = forest_panels(len(table)) if axes is None else list(axes)
    rows = math.ceil(len(table) / len(panels))
    names = short_names([str(name) for name in table.index])
    for number, panel in enumerate(panels):
        here = slice(number * rows, (number + 1) * rows)
        _draw_ranks(panel, table.iloc[here], names[here], board.prob)
        panel.set_ylim(rows - 0.4, -0.6)
        panel.xaxis.set_major_locator(MaxNLocator("auto", integer=True, min_n_ticks=1))
        panel.xaxis.set_major_formatter(partial(_rank_text, last=len(board.table)))
        panel.set_xlabel(f"rank among {len(board.table):,} LLMs")
    handles, labels = panels[0].get_legend_handles_labels()
    panels[0].figure.legend(handles, labels, loc="outside upper center", ncols=3, frameon=False)
    return panels


def plot_pairs(matrix: pd.DataFrame, axes: Axes | None = None, *, most: int = 150) -> Axes:
    """Draw the probability that one LLM beats another as a heat map.

    Parameters
    ----------
    matrix
        P(row beats column), as `pair_matrix` returns it.
    axes
        Where to draw; None for a new figure.
    most
        Number of LLMs shown, from the top.

    Returns
    -------
    matplotlib.axes.Axes
        Rows are named and columns numbered, as thinly as their size demands; percentages stand in cells that have
        room for them. What is even has the colour of the background.

    Examples
    --------
    >>> from bayes_irt import Sampler, fit_nuts, pair_matrix, simulate_suite
    >>> responses = simulate_suite(6, 20).responses
    >>> posterior = fit_nuts(responses, sampler=Sampler(num_chains=2, num_warmup=100, num_draws=100))
    >>> panel = plot_pairs(pair_matrix(posterior, responses))
    >>> len(panel.texts)
    30
    >>> plt.close(panel.figure)
    """
    shown = matrix.iloc[:most, :most]
    names = short_names([str(name) for name in shown.index])
    panel = _pair_axes(names) if axes is None else axes
    cool, warm = contrast_colours(panel)
    colours = LinearSegmentedColormap.from_list("pairs", [to_rgb(warm), paper(panel), to_rgb(cool)])
    values = shown.to_numpy(dtype=float)
    bar = draw_heat_map(panel, values, colours, (0.0, 1.0))
    bar.ax.yaxis.set_major_formatter(PercentFormatter(1.0))
    bar.set_label("P(row beats column)", color=ink(panel))
    panel.set_xlabel("number of the LLM, best posterior mean first")
    numbers = [str(place) for place in range(1, len(shown) + 1)]
    name_sides(panel, [f"{place}  {name}" for place, name in zip(numbers, names, strict=True)], numbers)
    across, upwards = points_per_unit(panel)
    if across >= _ROOM_FOR_TEXT[0] and upwards >= _ROOM_FOR_TEXT[1]:
        write_cells(panel, values, lambda row, column: _percent(float(values[row, column])))
    return panel


def _rank_text(rank: float, _: int | None, *, last: int) -> str:
    """Return a mark of the axis, empty where there is no such rank."""
    return f"{rank:.0f}" if 1 <= rank <= last else ""


def _draw_ranks(panel: Axes, table: pd.DataFrame, names: Sequence[str], prob: float) -> None:
    place, (cool, warm) = np.arange(len(table)), contrast_colours(panel)
    stripe_rows(panel, len(table))
    interval = f"{percent_text(prob)} interval"
    panel.hlines(
        place, table["rank_lower"], table["rank_upper"], color=cool, linewidth=2.4, alpha=0.55, label=interval
    )
    panel.plot(table["expected_rank"], place, "o", color=cool, markersize=4.5, label="expected rank")
    panel.plot(
        table["cbmm_rank"],
        place,
        "D",
        color=warm,
        markerfacecolor="none",
        markersize=4.5,
        label="rank by cBMM",
    )
    name_rows(panel, [f"{position}  {name}" for name, position in zip(names, table["position"], strict=True)])
    groups = panel.secondary_yaxis("right")
    groups.set_yticks(place, [str(group) for group in table["tie_group"]], fontsize=LABEL_SIZE)
    for side in (panel, groups):
        side.tick_params(axis="y", length=0)
        side.spines[:].set_visible(False)
    panel.grid(axis="x", color="0.5", alpha=0.2, linewidth=0.6)
    panel.annotate(
        "tie\ngroup",
        (1, 1),
        xytext=(4, 3),
        xycoords="axes fraction",
        textcoords="offset points",
        fontsize=LABEL_SIZE,
        color=ink(panel),
    )


def _pair_axes(names: Sequence[str]) -> Axes:
    side = min(_LARGEST_SIDE, 1.2 + 0.29 * max(len(names), 6))
    figure, panel = plt.subplots(layout="constrained")
    figure.set_size_inches(side + widest(panel, names) / 72 + 0.9, side)
    figure.get_layout_engine().set(w_pad=0.1, h_pad=0.06)  # type: ignore[union-attr,call-arg]
    return panel


def _percent(share: float) -> str:
    if share >= 0.995:
        return ">99"
    return "<1" if share <= 0.005 else f"{100 * share:.0f}"
