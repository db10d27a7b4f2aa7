"""Plots of several traits. No statistics here: the functions of `analysis.traits` compute what is drawn."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence

import numpy as np
import pandas as pd
from jaxtyping import Float, Integer
from matplotlib import pyplot as plt
from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap, to_rgb

from bayes_irt.arguments import require_whole
from bayes_irt.errors import InvalidConfigurationError, some
from bayes_irt.plot_labels import (
    CELL_TEXT,
    LABEL_SIZE,
    LINE_HEIGHT,
    every,
    name_sides,
    points_per_unit,
    widest,
    write_cells,
)
from bayes_irt.plot_parts import (
    contrast_colours,
    draw_heat_map,
    ink,
    name_rows,
    paper,
    short_names,
    stripe_rows,
)

_TITLE_WIDTH = 18
_NARROWEST_PANEL = 1.3
_MANY_ROWS = 50
_ROW_HEIGHTS = (0.24, 0.17)
_CELL = (0.72, 0.42)
_LARGEST_SIDE = 12.0
_FAINTEST = 0.2
_STRONGEST = 0.55
_ROOM_OF_NAME = 1.3
_LONGEST = 20


def plot_trait_profile(
    profile: pd.DataFrame,
    axes: Sequence[Axes] | None = None,
    *,
    llms: Sequence[str] | None = None,
    most: int = 150,
) -> list[Axes]:
    """Draw each LLM's ability on every trait with its interval, one panel a trait.

    Parameters
    ----------
    profile
        Abilities by LLM and trait, as `trait_profile` returns them.
    axes
        One panel a trait; None for a new figure of the right size.
    llms
        The LLMs to show, in this order; None for all, in the order of the profile.
    most
        Number of LLMs shown, from the top.

    Returns
    -------
    list of matplotlib.axes.Axes
        The panels, all with the same scale. Dots are posterior means, lines intervals.

    Raises
    ------
    InvalidConfigurationError
        If an LLM is not in the profile, there is not one panel a trait, or `most` is not a whole number of at least 1.

    Examples
    --------
    >>> index = pd.MultiIndex.from_product([["opus", "flash"], ["algebra", "logic"]], names=["llm", "trait"])
    >>> ability = {"ability": [1.2, 0.9, -0.3, 0.1]}
    >>> profile = pd.DataFrame(ability, index=index).assign(
    ...     lower=lambda t: t["ability"] - 0.4, upper=lambda t: t["ability"] + 0.4
    ... )
    >>> panels = plot_trait_profile(profile)
    >>> [panel.get_title() for panel in panels]
    ['algebra', 'logic']
    >>> plt.close(panels[0].figure)
    """
    require_whole("most", most, 1)
    known, traits = profile.index.unique("llm"), profile.index.unique("trait")
    chosen = list(known if llms is None else llms)[:most]
    unknown = [llm for llm in chosen if llm not in known]
    if unknown or not chosen:
        raise InvalidConfigurationError(
            f"The profile has no LLM called {some(unknown)}." if unknown else "No LLM is named."
        )
    names = short_names([str(llm) for llm in chosen])
    titles = _titles([str(trait) for trait in traits])
    panels = _profile_panels(titles, names) if axes is None else list(axes)
    if len(panels) != len(traits):
        raise InvalidConfigurationError(
            f"There are {len(panels)} panels for {len(traits)} traits: one is needed for each."
        )
    shown = profile.loc[chosen]
    of = shown.index.get_level_values("trait")
    low, high = shown["lower"].min(), shown["upper"].max()
    margin = 0.05 * (high - low)
    for number, (panel, trait) in enumerate(zip(panels, traits, strict=True)):
        _draw_abilities(panel, shown[of == trait].droplevel("trait").loc[chosen])
        panel.tick_params(axis="y", length=0, labelleft=number == 0)
        panel.set_title(titles[number], fontsize=LABEL_SIZE, parse_math=False)
        panel.set_xlim(low - margin, high + margin)
        panel.set_ylim(len(names) - 0.4, -0.6)
    name_rows(panels[0], names)
    handles, labels = panels[0].get_legend_handles_labels()
    panels[0].figure.legend(handles, labels, loc="outside upper center", ncols=2, frameon=False)
    return panels


def plot_trait_correlations(correlations: pd.DataFrame, axes: Axes | None = None) -> Axes:
    """Draw how traits correlate, with intervals, as the lower half of a matrix.

    Parameters
    ----------
    correlations
        One row per pair of traits, as `trait_correlations` returns them.
    axes
        Where to draw; None for a new figure of the right size.

    Returns
    -------
    matplotlib.axes.Axes
        Rows are named and columns numbered, as thinly as their size demands. Cells that have room hold the posterior
        mean and the interval below it, or the mean alone. No correlation has the colour of the background.

    Examples
    --------
    >>> pairs = [("algebra", "logic"), ("algebra", "sets"), ("logic", "sets")]
    >>> index = pd.MultiIndex.from_tuples(pairs, names=["trait", "other"])
    >>> table = pd.DataFrame({"correlation": [0.8, 0.5, 0.6], "lower": 0.4, "upper": 0.9}, index=index)
    >>> panel = plot_trait_correlations(table)
    >>> [label.get_text() for label in panel.get_yticklabels()]
    ['1  algebra', '2  logic', '3  sets']
    >>> plt.close(panel.figure)
    """
    first, other = (correlations.index.get_level_values(level) for level in (0, 1))
    traits = list(pd.unique(pd.Series([*first[:1], *other], dtype=object)))
    place = {trait: number for number, trait in enumerate(traits)}
    rows, columns = [place[trait] for trait in other], [place[trait] for trait in first]
    mean, lower, upper = (np.full((len(traits), len(traits) - 1), np.nan) for _ in range(3))
    for values, name in ((mean, "correlation"), (lower, "lower"), (upper, "upper")):
        values[rows, columns] = correlations[name]
    numbers = [str(number) for number in range(1, len(traits) + 1)]
    short = short_names([str(trait) for trait in traits])
    names = [f"{number}  {name}" for number, name in zip(numbers, short, strict=True)]
    panel = _matrix_axes(names) if axes is None else axes
    cool, warm = contrast_colours(panel)
    colours = LinearSegmentedColormap.from_list("traits", [to_rgb(warm), paper(panel), to_rgb(cool)])
    draw_heat_map(panel, mean, colours, (-1.0, 1.0)).set_label("correlation of abilities", color=ink(panel))
    panel.set_xlabel("number of the trait")
    name_sides(panel, names, numbers[:-1])
    _write_correlations(panel, mean, lower, upper)
    return panel


def plot_trait_loadings(loadings: pd.DataFrame, axes: Axes | None = None) -> Axes:
    """Draw which items load on which trait, and how much, as a heat map.

    Parameters
    ----------
    loadings
        One row per trait and item, as `trait_loadings` returns them.
    axes
        Where to draw; None for a new figure.

    Returns
    -------
    matplotlib.axes.Axes
        One row a trait, one column an item. Items stand by trait (where all load on a general one, by their other
        trait), those that load most at the left of each block; as many are named as have room, the first of each
        block before others. Where an item does not load by the model, the background shows.

    Examples
    --------
    >>> pairs = [("algebra", "q3"), ("algebra", "q1"), ("logic", "q2")]
    >>> index = pd.MultiIndex.from_tuples(pairs, names=["trait", "item"])
    >>> table = pd.DataFrame({"discrimination": [1.4, 0.5, 0.9], "lower": 0.1, "upper": 2.0}, index=index)
    >>> panel = plot_trait_loadings(table)
    >>> [label.get_text() for label in panel.get_xticklabels()]
    ['q3', 'q1', 'q2']
    >>> plt.close(panel.figure)
    """
    matrix = loadings["discrimination"].unstack("item").reindex(loadings.index.unique("trait"))
    block = _blocks(matrix)
    order = np.lexsort((-matrix.to_numpy()[block, np.arange(len(block))], block))
    matrix, block = matrix.iloc[:, order], block[order]
    traits, items = (short_names([str(name) for name in names]) for names in (matrix.index, matrix.columns))
    panel = _loading_axes(traits, items) if axes is None else axes
    strong, page = to_rgb(contrast_colours(panel)[0]), np.array(paper(panel))
    faint = page + _FAINTEST * (strong - page)
    deep = to_rgb(ink(panel)) + _STRONGEST * (strong - np.array(to_rgb(ink(panel))))
    colours = LinearSegmentedColormap.from_list("loadings", [tuple(faint), strong, tuple(deep)])
    values = matrix.to_numpy(dtype=float)
    bar = draw_heat_map(panel, values, colours, (0.0, float(np.nanmax(values))))
    bar.set_label("discrimination", color=ink(panel))
    starts = np.flatnonzero(np.diff(block, prepend=-1))
    for start in starts[1:]:
        panel.axvline(start - 0.5, color="0.5", linewidth=0.8)
    panel.set_xlabel(f"{len(block):,} items by trait, those that load most first")
    panel.set_yticks(np.arange(len(traits)), traits, fontsize=LABEL_SIZE)
    for label in panel.get_yticklabels():
        label.set_parse_math(False)
    _name_items(panel, items, starts)
    return panel


def _titles(traits: Sequence[str]) -> list[str]:
    """Return the traits' names, on several lines where they are long."""
    return [textwrap.fill(name, _TITLE_WIDTH) for name in short_names(traits)]


def _profile_panels(titles: Sequence[str], names: Sequence[str]) -> list[Axes]:
    figure, grid = plt.subplots(1, len(titles), sharey=True, squeeze=False, layout="constrained")
    lines = [line for title in titles for line in title.splitlines()]
    panel = max(_NARROWEST_PANEL, widest(grid[0][0], lines) / 72 + 0.1)
    height = _ROW_HEIGHTS[len(names) > _MANY_ROWS] * len(names)
    figure.set_size_inches(0.6 + widest(grid[0][0], names) / 72 + panel * len(titles), 1.9 + height)
    figure.get_layout_engine().set(w_pad=0.05, h_pad=0.06)  # type: ignore[union-attr,call-arg]
    return list(grid[0])


def _draw_abilities(panel: Axes, table: pd.DataFrame) -> None:
    place, (cool, _) = np.arange(len(table)), contrast_colours(panel)
    stripe_rows(panel, len(table))
    panel.axvline(0, color="0.5", linewidth=0.8, zorder=0)
    ends = (table["lower"], table["upper"])
    panel.hlines(place, *ends, color=cool, linewidth=2.4, alpha=0.55, label="interval")
    panel.plot(table["ability"], place, "o", color=cool, markersize=3.5, label="posterior mean")
    panel.spines[:].set_visible(False)
    panel.tick_params(axis="x", labelsize=LABEL_SIZE, labeltop=len(table) > _MANY_ROWS)
    panel.grid(axis="x", color="0.5", alpha=0.2, linewidth=0.6)
    panel.set_xlabel("ability (sd)", fontsize=LABEL_SIZE)


def _matrix_axes(names: Sequence[str]) -> Axes:
    figure, panel = plt.subplots(layout="constrained")
    width = min(_LARGEST_SIDE, _CELL[0] * max(len(names) - 1, 2))
    height = min(_LARGEST_SIDE, _CELL[1] * max(len(names), 4))
    figure.set_size_inches(width + widest(panel, names) / 72 + 1.2, height + 0.9)
    figure.get_layout_engine().set(w_pad=0.1, h_pad=0.06)  # type: ignore[union-attr,call-arg]
    return panel


def _write_correlations(panel: Axes, *values: Float[np.ndarray, "row column"]) -> None:
    """Write the mean and below it the interval into the cells, or what of it they have room for."""
    mean = values[0]
    means, lower, upper = (np.vectorize(_decimals)(table) for table in values)
    ends = np.char.add(np.char.add(lower, " to "), upper)
    across, upwards = points_per_unit(panel)
    there = np.isfinite(mean)
    needed = [widest(panel, texts[there]) * CELL_TEXT / LABEL_SIZE + 3 for texts in (means, ends)]
    if across >= needed[1] and upwards >= 2 * LINE_HEIGHT:
        write_cells(panel, mean, lambda row, column: f"{means[row, column]}\n{ends[row, column]}")
    elif across >= needed[0] and upwards >= LINE_HEIGHT:
        write_cells(panel, mean, lambda row, column: str(means[row, column]))


def _decimals(value: float) -> str:
    return f"{round(value, 2) + 0.0:.2f}"  # no minus before a zero


def _loading_axes(traits: Sequence[str], items: Sequence[str]) -> Axes:
    figure, panel = plt.subplots(layout="constrained")
    names = widest(panel, sorted(items, key=len)[-_LONGEST:])
    figure.set_size_inches(8.6 + widest(panel, traits) / 72, 0.7 + names / 72 + 0.3 * max(len(traits), 4))
    figure.get_layout_engine().set(w_pad=0.1, h_pad=0.06)  # type: ignore[union-attr,call-arg]
    return panel


def _blocks(matrix: pd.DataFrame) -> Integer[np.ndarray, " item"]:
    """Return the trait under which each item stands: that on which it loads most, a general one only for want of it."""
    own = matrix.copy()
    general = matrix.notna().all(axis=1)
    own.loc[general] = np.where(matrix[~general].isna().all(axis=0), own.loc[general], np.nan)
    return np.nanargmax(own.to_numpy(dtype=float), axis=0)


def _name_items(panel: Axes, names: Sequence[str], starts: Integer[np.ndarray, " block"]) -> None:
    """Name items below their columns: the first of each block, and others as far as there is room."""
    panel.set_xticks([0], names[:1], rotation=90, fontsize=LABEL_SIZE)
    across, _ = points_per_unit(panel)
    gap = every(len(names), len(names) * across, _ROOM_OF_NAME * LINE_HEIGHT)
    places: list[int] = []
    for start in starts.tolist():
        if all(abs(start - place) >= gap for place in places):
            places.append(start)
    for start, end in zip(list(places), [*places[1:], len(names) - 1 + gap], strict=True):
        places += range(start + gap, end - gap + 1, gap)
    panel.set_xticks(sorted(places), [names[place] for place in sorted(places)], fontsize=LABEL_SIZE)
    for label in panel.get_xticklabels():
        label.set_rotation(90)
        label.set_parse_math(False)
