"""Plots: analysis tables in, Matplotlib axes out. No statistics here."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import pandas as pd
from matplotlib.axes import Axes

from bayes_irt.analysis.leaderboard import Leaderboard
from bayes_irt.errors import InvalidConfigurationError
from bayes_irt.formatting import percent_text
from bayes_irt.plot_parts import contrast_colours, forest_panels, name_rows, short_names, stripe_rows


def plot_leaderboard(
    board: Leaderboard, axes: Sequence[Axes] | None = None, *, most: int = 150
) -> list[Axes]:
    """Draw a forest plot of abilities with their intervals, best LLM on top.

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
        The panels. Dots are posterior means, lines intervals, diamonds cBMM estimates; the rank interval stands at
        the right.

    Raises
    ------
    InvalidConfigurationError
        If abilities are not applicable (fewer than 4 LLMs).

    Examples
    --------
    >>> import matplotlib.pyplot as plt
    >>> from bayes_irt import Priors, Sampler, fit_cbmm, fit_nuts, rank_llms, simulate_suite
    >>> responses = simulate_suite(6, 20).responses
    >>> sampler = Sampler(num_chains=2, num_warmup=100, num_draws=100)
    >>> estimate = fit_cbmm(responses, penalty=Priors())
    >>> board = rank_llms(fit_nuts(responses, sampler=sampler), estimate, responses)
    >>> panels = plot_leaderboard(board)
    >>> panels[0].get_xlabel()
    'ability (sd of these LLMs)'
    >>> plt.close(panels[0].figure)
    """
    if not board.has_ability:
        raise InvalidConfigurationError(
            f"{len(board.table)} LLMs have no ability to plot; it takes at least 4."
        )
    shown = min(most, len(board.table))
    panels = forest_panels(shown) if axes is None else list(axes)
    rows = math.ceil(shown / len(panels))
    table = board.table.iloc[:shown]
    names = short_names([str(name) for name in table.index])
    low = min(table["ability_lower"].min(), table["cbmm_ability"].min())
    high = max(table["ability_upper"].max(), table["cbmm_ability"].max())
    margin = 0.05 * (high - low)
    for number, panel in enumerate(panels):
        rows_here = slice(number * rows, min((number + 1) * rows, shown))
        _draw_panel(panel, table.iloc[rows_here], names[rows_here], board.prob)
        panel.set_xlim(low - margin, high + margin)
        panel.set_ylim(rows - 0.4, -0.6)
    handles, labels = panels[0].get_legend_handles_labels()
    panels[0].figure.legend(handles, labels, loc="outside upper center", ncols=3, frameon=False)
    return panels


def _draw_panel(panel: Axes, table: pd.DataFrame, names: Sequence[str], prob: float) -> None:
    place, (cool, warm) = np.arange(len(table)), contrast_colours(panel)
    stripe_rows(panel, len(table))
    panel.axvline(0, color="0.5", linewidth=0.8, zorder=0)
    panel.hlines(
        place,
        table["ability_lower"],
        table["ability_upper"],
        color=cool,
        linewidth=2.4,
        alpha=0.55,
        label=f"{percent_text(prob)} interval",
    )
    panel.plot(table["ability"], place, "o", color=cool, markersize=4.5, label="posterior mean")
    panel.plot(
        table["cbmm_ability"],
        place,
        "D",
        color=warm,
        markerfacecolor="none",
        markersize=4.5,
        label="cBMM estimate",
    )
    labels = [f"{position}  {name}" for name, position in zip(names, table["position"], strict=True)]
    name_rows(panel, labels)
    ranks = panel.secondary_yaxis("right")
    pairs = zip(table["rank_lower"], table["rank_upper"], strict=True)
    ranks.set_yticks(place, [f"{a}–{b}" for a, b in pairs], fontsize=8)
    for side in (panel, ranks):
        side.tick_params(axis="y", length=0)
        side.spines[:].set_visible(False)
    panel.grid(axis="x", color="0.5", alpha=0.2, linewidth=0.6)
    panel.set_xlabel("ability (sd of these LLMs)")
    panel.annotate(
        f"rank\n{percent_text(prob)}",
        (1, 1),
        xytext=(4, 3),
        xycoords="axes fraction",
        textcoords="offset points",
        fontsize=8,
    )
