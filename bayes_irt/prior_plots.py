"""Plots of what a prior says. No statistics here: `PriorPredictive` computes what is drawn."""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd
from matplotlib import pyplot as plt
from matplotlib.axes import Axes

from bayes_irt.errors import InvalidConfigurationError
from bayes_irt.plot_parts import BLUE, VERMILION
from bayes_irt.prior_simulation import PriorPredictive

_BINS, _BINS_OF_ITEMS = 20, 50
_LOWEST, _MIDDLE, _HIGHEST = 0.05, 0.5, 0.95


def plot_prior_predictive(predictive: PriorPredictive, axes: Sequence[Axes] | None = None) -> list[Axes]:
    """Draw what a prior says about accuracies, before any data.

    Parameters
    ----------
    predictive
        Draws from the prior.
    axes
        Three panels to draw into; None for a new figure.

    Returns
    -------
    list of matplotlib.axes.Axes
        The mean accuracy of a suite, the gap between its best and worst LLM, and the accuracies of its items, with
        those below .02 and above .98 marked. All are expected accuracies; heights are shares of the draws, or of the
        items of all draws. The line below the bars spans 90 % of the draws, its dot is their median.

    Raises
    ------
    InvalidConfigurationError
        If there are not three axes.

    Examples
    --------
    >>> import matplotlib.pyplot as plt
    >>> from bayes_irt import ModelSpec, prior_predictive
    >>> panels = plot_prior_predictive(prior_predictive(ModelSpec(), 30, 200, num_draws=50))
    >>> [panel.get_xlabel() for panel in panels]
    ['mean accuracy of a suite', 'gap between best and worst LLM', 'accuracy of an item']
    >>> plt.close(panels[0].figure)
    """
    panels = _new_panels() if axes is None else list(axes)
    if len(panels) != 3:
        raise InvalidConfigurationError(f"There are {len(panels)} axes; it takes 3.")
    summary, table = predictive.summary((_LOWEST, _MIDDLE, _HIGHEST)), predictive.histograms(_BINS)
    labels = ("mean accuracy of a suite", "gap between best and worst LLM")
    for panel, name, label in zip(panels, ("mean accuracy", "best minus worst LLM"), labels, strict=False):
        _draw_bars(panel, table, name)
        _draw_span(panel, summary, name)
        panel.set_xlabel(label)
        panel.set_ylabel("share of prior draws")
    items = predictive.histograms(_BINS_OF_ITEMS)
    _draw_bars(panels[2], items, "item accuracy")
    _draw_bars(panels[2], items.iloc[[0, -1]], "item accuracy", VERMILION)
    _name_extremes(panels[2], summary)
    panels[2].set_xlabel("accuracy of an item")
    panels[2].set_ylabel("share of all items")
    for panel in panels:
        panel.set_xlim(-0.02, 1.02)
        panel.spines[["top", "right"]].set_visible(False)
        panel.grid(axis="y", color="0.5", alpha=0.2, linewidth=0.6)
        panel.set_axisbelow(True)
    return panels


def _new_panels() -> list[Axes]:
    figure, panels = plt.subplots(1, 3, figsize=(10.8, 3.2), layout="constrained")
    figure.get_layout_engine().set(w_pad=0.1, h_pad=0.06)  # type: ignore[union-attr,call-arg]
    return list(panels)


def _draw_bars(panel: Axes, table: pd.DataFrame, name: str, color: str = BLUE) -> None:
    width = table["upper"] - table["lower"]
    panel.bar(
        table["lower"], table[name], width=width, align="edge", color=color, edgecolor="white", linewidth=0.4
    )


def _draw_span(panel: Axes, summary: pd.DataFrame, name: str) -> None:
    """Draw median and 90 % interval below the bars."""
    low, middle, high = (float(summary[prob][name]) for prob in (_LOWEST, _MIDDLE, _HIGHEST))
    height = -0.045 * panel.get_ylim()[1]
    panel.plot([low, high], [height, height], color="0.2", linewidth=1.6, solid_capstyle="butt")
    panel.plot([middle], [height], "o", color="0.2", markersize=4.5)
    panel.set_title(f"median {_text(middle)}, 90% [{_text(low)}, {_text(high)}]", fontsize=9)


def _name_extremes(panel: Axes, summary: pd.DataFrame) -> None:
    low, high = (float(summary["mean"][name]) for name in ("items below .02", "items above .98"))
    panel.set_title(f"{low:.1%} of items below .02, {high:.1%} above .98", fontsize=9)


def _text(share: float) -> str:
    return f"{share:.2f}".removeprefix("0")
