"""Labels of plots that never overlap: stacked beside points, in cells, or thinned on rows too narrow for all."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Literal, NamedTuple

import numpy as np
from jaxtyping import Float
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.text import Text
from scipy.optimize import isotonic_regression

from bayes_irt.errors import InvalidConfigurationError
from bayes_irt.plot_parts import is_light

#: Size of labels, and height of a line of them, in points.
LABEL_SIZE = 8.0
LINE_HEIGHT = 10.5
#: Size of what stands in the cells of a heat map, in points.
CELL_TEXT = 6.5


def points_per_unit(panel: Axes) -> tuple[float, float]:
    """Lay the figure out and return how many points one unit of data takes.

    Parameters
    ----------
    panel
        Axes with linear scales and limits that are final.

    Returns
    -------
    tuple of float
        Across and upwards.

    Raises
    ------
    InvalidConfigurationError
        If the axes belong to no figure.

    Examples
    --------
    >>> from matplotlib import pyplot as plt
    >>> figure, panel = plt.subplots(figsize=(4, 3))
    >>> panel.set_position((0, 0, 1, 1))
    >>> _ = panel.set_xlim(0, 4), panel.set_ylim(0, 1)
    >>> points_per_unit(panel)
    (72.0, 216.0)
    >>> plt.close(figure)
    """
    figure = panel.get_figure(root=True)
    if figure is None:
        raise InvalidConfigurationError("The axes belong to no figure. Make them by plt.subplots.")
    figure.draw_without_rendering()
    left, right = panel.get_xlim()
    bottom, top = panel.get_ylim()
    points = 72.0 / figure.dpi
    across, upwards = panel.bbox.width / abs(right - left), panel.bbox.height / abs(top - bottom)
    return float(across * points), float(upwards * points)


def spread(
    places: Float[np.ndarray, " label"], gap: float, lowest: float, highest: float
) -> Float[np.ndarray, " label"]:
    """Move labels along a line as little as keeps them apart.

    Parameters
    ----------
    places
        Where the labels belong, in any order.
    gap
        Least distance between two.
    lowest, highest
        Ends of the line; it must hold all labels.

    Returns
    -------
    numpy.ndarray
        New places in the same order, least squares from the old ones.

    Raises
    ------
    InvalidConfigurationError
        If the line is too short.

    References
    ----------
    Barlow, R. E. et al. (1972). Statistical Inference under Order Restrictions (isotonic regression).

    Examples
    --------
    >>> spread(np.array([5.0, 5.0, 9.0]), 2.0, 0.0, 10.0)
    array([4., 6., 9.])
    """
    places = np.asarray(places, dtype=float)
    if not len(places):
        return places
    room = highest - lowest - gap * (len(places) - 1)
    if room < -1e-9:
        raise InvalidConfigurationError(
            f"{len(places)} labels {gap:g} apart do not fit between {lowest:g} and {highest:g}. Leave some out."
        )
    order = np.argsort(places, kind="stable")
    steps = gap * np.arange(len(places))
    free = np.clip(isotonic_regression(places[order] - steps).x, lowest, lowest + max(room, 0.0))
    moved = np.empty_like(places)
    moved[order] = free + steps
    return moved


def every(number: int, room: float, needed: float) -> int:
    """Return how thinly a row of labels must be set: every first, second, third ...

    Parameters
    ----------
    number
        Number of labels.
    room
        Length of the row.
    needed
        Length that one label needs.

    Returns
    -------
    int
        At least 1.

    Examples
    --------
    >>> every(10, 100.0, 10.0), every(150, 500.0, 10.0)
    (1, 3)
    """
    return max(1, math.ceil(needed * number / room - 1e-9))


def name_sides(panel: Axes, rows: Sequence[str], columns: Sequence[str]) -> None:
    """Name rows and columns of a heat map, as thinly as their size demands: every first, second, third ...

    Parameters
    ----------
    panel
        Axes that hold the heat map.
    rows
        Names of the rows; shown as they are.
    columns
        Short names of the columns, such as numbers.

    Examples
    --------
    >>> from matplotlib import pyplot as plt
    >>> panel = plt.subplots()[1]
    >>> _ = panel.imshow(np.zeros((200, 2)), aspect="auto")
    >>> name_sides(panel, [f"row {number}" for number in range(200)], ["a", "b"])
    >>> len(panel.get_yticks()) < 40, [label.get_text() for label in panel.get_xticklabels()]
    (True, ['a', 'b'])
    >>> plt.close()
    """
    panel.set_xticks([0], columns[:1], fontsize=LABEL_SIZE)
    _, upwards = points_per_unit(panel)
    places = range(0, len(rows), every(len(rows), len(rows) * upwards, LINE_HEIGHT))
    panel.set_yticks(places, [rows[place] for place in places], fontsize=LABEL_SIZE)
    for label in panel.get_yticklabels():
        label.set_parse_math(False)
    across, _ = points_per_unit(panel)
    width = LABEL_SIZE * (1 + max(map(len, columns)) * 0.6)
    places = range(0, len(columns), every(len(columns), len(columns) * across, width))
    panel.set_xticks(places, [columns[place] for place in places], fontsize=LABEL_SIZE)


def write_cells(
    panel: Axes, values: Float[np.ndarray, "row column"], text_of: Callable[[int, int], str]
) -> None:
    """Write into the cells of a heat map, dark on light and light on dark.

    Parameters
    ----------
    panel
        Axes that hold the heat map.
    values
        What it shows; nothing is written where they are missing.
    text_of
        What to write in a row and column.
    """
    shades = panel.images[0].to_rgba(np.nan_to_num(values))
    for row, column in zip(*np.nonzero(np.isfinite(values)), strict=True):
        panel.text(
            column,
            row,
            text_of(int(row), int(column)),
            ha="center",
            va="center",
            fontsize=CELL_TEXT,
            color="black" if is_light(tuple(shades[row, column])) else "white",
        )


class PointLabel(NamedTuple):
    """One label of a point.

    Parameters
    ----------
    text
        What it says; shown as it is.
    x, y
        The point, in data units.
    colour
        Of text and line.
    """

    text: str
    x: float
    y: float
    colour: str


def stack_labels(
    panel: Axes,
    labels: Sequence[PointLabel],
    edge: float,
    limits: tuple[float, float],
    *,
    align: Literal["left", "right"],
) -> list[Text]:
    """Stack labels along an upright line, near their points as far as that keeps them apart, and join them by lines.

    Parameters
    ----------
    panel
        Axes whose limits and size are final.
    labels
        The labels, the most important first: those for which no room is left are not drawn.
    edge
        Where the labels end (align "right") or start ("left"), in data units.
    limits
        Lowest and highest place of a label's middle, in data units.
    align
        Which side of the labels lies at the edge.

    Returns
    -------
    list of matplotlib.text.Text
        What was drawn.

    Examples
    --------
    >>> from matplotlib import pyplot as plt
    >>> figure, panel = plt.subplots()
    >>> here = [PointLabel(name, 0.5, 0.5, "0.5") for name in ("one", "other")]
    >>> [text.get_text() for text in stack_labels(panel, here, 0.4, (0.0, 1.0), align="right")]
    ['one', 'other']
    >>> plt.close(figure)
    """
    gap = LINE_HEIGHT / points_per_unit(panel)[1]
    low, high = limits
    kept = labels[: max(0, 1 + math.floor((high - low) / gap + 1e-9))]
    heights = spread(np.array([label.y for label in kept]), gap, low, high)
    drawn: list[Text] = []
    for label, height in zip(kept, heights, strict=True):
        ends = ([label.x, edge], [label.y, float(height)])
        panel.add_artist(Line2D(*ends, color=label.colour, linewidth=0.8, linestyle=":", clip_on=False))
        text = panel.annotate(
            label.text,
            (edge, float(height)),
            (2 if align == "left" else -2, 0),
            textcoords="offset points",
            ha=align,
            va="center",
            fontsize=LABEL_SIZE,
            color=label.colour,
            parse_math=False,
            annotation_clip=False,
        )
        drawn.append(text)
    return drawn


def widest(panel: Axes, texts: Sequence[str]) -> float:
    """Return the width of the widest label.

    Parameters
    ----------
    panel
        Where they are to be written.
    texts
        What they say.

    Returns
    -------
    float
        In points.

    Examples
    --------
    >>> from matplotlib import pyplot as plt
    >>> figure, panel = plt.subplots()
    >>> widest(panel, ["short", "rather long"]) > widest(panel, ["short"]) > 0
    True
    >>> plt.close(figure)
    """
    found = 0.0
    for text in texts:
        written = panel.text(0, 0, text, fontsize=LABEL_SIZE, parse_math=False)
        found = max(found, float(written.get_window_extent().width))
        written.remove()
    return found * 72.0 / panel.get_figure(root=True).dpi  # type: ignore[union-attr]
