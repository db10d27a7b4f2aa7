"""Plots of posterior predictive checks. No statistics here: `check_predictive` computes what is drawn."""

from __future__ import annotations

import math
from collections.abc import Sequence

import matplotlib as mpl
import numpy as np
import pandas as pd
from matplotlib import pyplot as plt
from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator

from bayes_irt.errors import InvalidConfigurationError
from bayes_irt.formatting import percent_text
from bayes_irt.plot_parts import SKY, VERMILION, forest_panels, name_rows, short_names, stripe_rows
from bayes_irt.predictive import PredictiveChecks

_SHADE = 0.6
_MANY = 200


def plot_predictive_llms(
    checks: PredictiveChecks, axes: Sequence[Axes] | None = None, *, most: int = 150
) -> list[Axes]:
    """Draw each LLM's observed score over its predictive interval, best score on top.

    Parameters
    ----------
    checks
        The checks.
    axes
        Panels to draw into, filled one after the other; None for a new figure of the right size with up to 50 LLMs
        a panel.
    most
        Number of LLMs shown, from the top.

    Returns
    -------
    list of matplotlib.axes.Axes
        The panels. Lines are predictive intervals, dots observed scores, diamonds those outside.

    Examples
    --------
    >>> import matplotlib.pyplot as plt
    >>> from bayes_irt import Sampler, check_predictive, fit_nuts, simulate_suite
    >>> responses = simulate_suite(6, 20).responses
    >>> posterior = fit_nuts(responses, sampler=Sampler(num_chains=2, num_warmup=100, num_draws=100))
    >>> panels = plot_predictive_llms(check_predictive(posterior, responses))
    >>> panels[0].get_xlabel()
    'share of right attempts'
    >>> plt.close(panels[0].figure)
    """
    table = checks.llm_scores.sort_values("observed", ascending=False, kind="stable").iloc[:most]
    panels = forest_panels(len(table)) if axes is None else list(axes)
    rows = math.ceil(len(table) / len(panels))
    names = short_names([str(name) for name in table.index])
    ends = table[["observed", "lower", "upper"]].to_numpy(dtype=float)
    low, high = float(ends.min()), float(ends.max())
    margin = 0.05 * (high - low) + 0.005
    for number, panel in enumerate(panels):
        here = slice(number * rows, (number + 1) * rows)
        part = table.iloc[here]
        stripe_rows(panel, len(part))
        place = np.arange(len(part))
        panel.hlines(
            place,
            part["lower"],
            part["upper"],
            color=SKY,
            linewidth=3.2,
            alpha=_SHADE,
            label=_interval(checks),
        )
        _draw_observed(panel, part, place, upright=False)
        name_rows(panel, names[here])
        panel.tick_params(axis="y", length=0)
        panel.spines[:].set_visible(False)
        panel.grid(axis="x", color="0.5", alpha=0.2, linewidth=0.6)
        panel.set_xlabel("share of right attempts")
        panel.set_xlim(low - margin, high + margin)
        panel.set_ylim(rows - 0.4, -0.6)
    _add_legend(panels)
    return panels


def plot_predictive_items(checks: PredictiveChecks, axes: Sequence[Axes] | None = None) -> list[Axes]:
    """Draw each item's observed score and item-rest correlation over their predictive intervals.

    Parameters
    ----------
    checks
        The checks.
    axes
        Two panels to draw into; None for a new figure.

    Returns
    -------
    list of matplotlib.axes.Axes
        The panels, items in order of what is predicted. Bands are predictive intervals, dots observed values,
        diamonds those outside.

    Raises
    ------
    InvalidConfigurationError
        If there are not two axes.

    Examples
    --------
    >>> import matplotlib.pyplot as plt
    >>> from bayes_irt import Sampler, check_predictive, fit_nuts, simulate_suite
    >>> responses = simulate_suite(6, 20).responses
    >>> posterior = fit_nuts(responses, sampler=Sampler(num_chains=2, num_warmup=100, num_draws=100))
    >>> panels = plot_predictive_items(check_predictive(posterior, responses))
    >>> [panel.get_ylabel() for panel in panels]
    ['share of right attempts', 'item-rest correlation']
    >>> plt.close(panels[0].figure)
    """
    if axes is None:
        axes = plt.subplots(2, 1, figsize=(7.2, 6.4), layout="constrained")[1]
    panels = list(axes)
    if len(panels) != 2:
        raise InvalidConfigurationError(f"There are {len(panels)} axes; it takes 2.")
    labels = ("share of right attempts", "item-rest correlation")
    for panel, table, label in zip(panels, (checks.item_scores, checks.item_rest), labels, strict=True):
        part = table.dropna().sort_values("predicted", kind="stable")
        place = np.arange(1, len(part) + 1)
        panel.fill_between(
            place,
            part["lower"],
            part["upper"],
            step="mid",
            color=SKY,
            alpha=_SHADE,
            linewidth=0,
            label=_interval(checks),
        )
        _draw_observed(panel, part, place, upright=True)
        panel.set_xlabel("items, by what is predicted")
        panel.set_ylabel(label)
        panel.set_xlim(0.4, max(len(part), 1) + 0.6)
        panel.xaxis.set_major_locator(MaxNLocator(integer=True))
        _plain_frame(panel)
    _add_legend(panels)
    return panels


def plot_predictive_cells(checks: PredictiveChecks, axes: Axes | None = None) -> Axes:
    """Draw how many cells have 0, 1, 2 ... right answers, over the predictive intervals.

    Parameters
    ----------
    checks
        The checks.
    axes
        Where to draw; None for a new figure.

    Returns
    -------
    matplotlib.axes.Axes
        Bars are predictive intervals, dots observed numbers of cells, diamonds those outside: too many cells at both
        ends are the mark of correlated attempts.

    Raises
    ------
    InvalidConfigurationError
        If no cell has several attempts.

    Examples
    --------
    >>> import matplotlib.pyplot as plt
    >>> from bayes_irt import SuiteDesign, check_predictive, simulate_suite
    >>> from bayes_irt.inference.laplace import fit_laplace
    >>> responses = simulate_suite(16, 30, design=SuiteDesign(attempts=8)).responses
    >>> panel = plot_predictive_cells(check_predictive(fit_laplace(responses, num_draws=200), responses))
    >>> panel.get_xlabel()
    'right answers of 8 attempts'
    >>> plt.close(panel.figure)
    """
    table = checks.cell_counts
    if table.empty:
        raise InvalidConfigurationError("No cell has several attempts, so there is nothing to plot.")
    panel = plt.subplots(figsize=(7.2, 3.6), layout="constrained")[1] if axes is None else axes
    place = table.index.to_numpy()
    panel.bar(
        place,
        table["upper"] - table["lower"],
        0.8,
        table["lower"],
        color=SKY,
        alpha=_SHADE,
        linewidth=0,
        label=_interval(checks),
    )
    _draw_observed(panel, table, place, upright=True)
    panel.set_xlabel(f"right answers of {len(table) - 1} attempts")
    panel.set_ylabel("cells")
    panel.margins(y=0.08)
    panel.set_ylim(bottom=0)
    panel.xaxis.set_major_locator(MaxNLocator(integer=True))
    _plain_frame(panel)
    _add_legend([panel])
    return panel


def _draw_observed(panel: Axes, table: pd.DataFrame, place: np.ndarray, *, upright: bool) -> None:
    """Draw observed values as dots in the colour of text, those outside their interval as diamonds."""
    size = 4.5 if len(table) <= _MANY else 2.0
    marks = (
        (~table["outside"], "o", mpl.rcParams["text.color"], "observed, inside"),
        (table["outside"], "D", VERMILION, "observed, outside"),
    )
    for chosen, marker, colour, label in marks:
        value, where = table["observed"][chosen], place[chosen.to_numpy()]
        pair = (where, value) if upright else (value, where)
        panel.plot(*pair, marker, color=colour, markersize=size, label=label, rasterized=len(table) > _MANY)


def _plain_frame(panel: Axes) -> None:
    panel.spines[["top", "right"]].set_visible(False)
    panel.grid(axis="y", color="0.5", alpha=0.2, linewidth=0.6)


def _interval(checks: PredictiveChecks) -> str:
    return f"{percent_text(checks.prob)} predictive interval"


def _add_legend(panels: Sequence[Axes]) -> None:
    handles, labels = panels[0].get_legend_handles_labels()
    order = sorted(range(len(labels)), key=lambda place: not labels[place].endswith("interval"))
    panels[0].figure.legend(
        [handles[place] for place in order],
        [labels[place] for place in order],
        loc="outside upper center",
        ncols=3,
        frameon=False,
    )
