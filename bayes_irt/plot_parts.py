"""What the plots share: colours, panels of rows, heat maps, names that fit."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from jaxtyping import Float
from matplotlib import pyplot as plt
from matplotlib.axes import Axes
from matplotlib.colorbar import Colorbar
from matplotlib.colors import Colormap, to_rgb, to_rgba
from matplotlib.typing import ColorType

# Okabe-Ito: told apart by colour-blind readers too.
BLUE = "#0072B2"
SKY = "#56B4E9"
VERMILION = "#D55E00"
ORANGE = "#E69F00"

_ROWS_PER_PANEL = 50
_LONGEST_LABELS = (34, 48, 64)


def forest_panels(shown: int) -> list[Axes]:
    """Return the panels of a new figure for a forest plot.

    Parameters
    ----------
    shown
        Number of rows in all.

    Returns
    -------
    list of matplotlib.axes.Axes
        Side by side, with up to 50 rows each.

    Examples
    --------
    >>> import matplotlib.pyplot as plt
    >>> panels = forest_panels(120)
    >>> len(panels)
    3
    >>> plt.close(panels[0].figure)
    """
    count = math.ceil(shown / _ROWS_PER_PANEL)
    rows = math.ceil(shown / count)
    figure, grid = plt.subplots(
        1,
        count,
        figsize=(7.2 if count == 1 else 6.2 * count, 1.4 + 0.24 * rows),
        squeeze=False,
        layout="constrained",
    )
    figure.get_layout_engine().set(w_pad=0.1, h_pad=0.06)  # type: ignore[union-attr,call-arg]
    return list(grid[0])


def is_light(colour: ColorType) -> bool:
    """Say whether dark text reads better on a colour than light text.

    Parameters
    ----------
    colour
        Any Matplotlib colour.

    Returns
    -------
    bool
        By its brightness to the eye.

    Examples
    --------
    >>> is_light("white"), is_light("#0072B2")
    (True, False)
    """
    red, green, blue = to_rgb(colour)
    return 0.299 * red + 0.587 * green + 0.114 * blue > 0.5


def contrast_colours(panel: Axes) -> tuple[str, str]:
    """Return a cool and a warm colour that stand out beside the ink of axes, for colour-blind readers too.

    Parameters
    ----------
    panel
        The axes.

    Returns
    -------
    tuple of str
        Blue and vermilion beside dark ink, sky blue and orange beside light ink.

    Examples
    --------
    >>> with plt.style.context("dark_background"):
    ...     panel = plt.subplots()[1]
    >>> contrast_colours(panel) == (SKY, ORANGE)
    True
    >>> plt.close()
    """
    return (SKY, ORANGE) if is_light(ink(panel)) else (BLUE, VERMILION)


def ink(panel: Axes) -> str:
    """Return the colour in which axes write, so that what is added suits light and dark styles alike.

    Parameters
    ----------
    panel
        The axes.

    Returns
    -------
    str
        A Matplotlib colour.

    Examples
    --------
    >>> with plt.style.context("dark_background"):
    ...     panel = plt.subplots()[1]
    >>> ink(panel)
    'white'
    >>> plt.close()
    """
    return str(panel.xaxis.label.get_color())


def paper(panel: Axes) -> tuple[float, float, float]:
    """Return the colour that axes are drawn on, also where they are made to be shown on a page of its own colour.

    Parameters
    ----------
    panel
        The axes.

    Returns
    -------
    tuple of float
        Red, green and blue: the axes' own background if it suits their ink, else nearly white or black.

    Examples
    --------
    >>> panel = plt.subplots()[1]
    >>> paper(panel)
    (1.0, 1.0, 1.0)
    >>> panel.xaxis.label.set_color("white")
    >>> paper(panel)
    (0.1, 0.1, 0.1)
    >>> plt.close()
    """
    own, dark = panel.get_facecolor(), is_light(ink(panel))
    if to_rgba(own)[3] > 0 and is_light(own) != dark:
        return to_rgb(own)
    return to_rgb("0.1" if dark else "0.97")


def draw_heat_map(
    panel: Axes, values: Float[np.ndarray, "row column"], colours: Colormap, limits: tuple[float, float]
) -> Colorbar:
    """Draw values as colours, without a frame.

    Parameters
    ----------
    panel
        Where to draw.
    values
        Missing ones are left out.
    colours
        From the lower to the upper limit.
    limits
        Values of the first and the last colour.

    Returns
    -------
    matplotlib.colorbar.Colorbar
        The key of the colours, at the right.

    Examples
    --------
    >>> panel = plt.subplots()[1]
    >>> bar = draw_heat_map(panel, np.eye(2), plt.get_cmap("viridis"), (0.0, 1.0))
    >>> bar.ax.get_ylim() == (0.0, 1.0)
    True
    >>> plt.close()
    """
    low, high = limits
    image = panel.imshow(values, cmap=colours, vmin=low, vmax=high, aspect="auto", interpolation="nearest")
    panel.spines[:].set_visible(False)
    panel.tick_params(length=0)
    return panel.figure.colorbar(image, ax=panel, fraction=0.04, pad=0.02, aspect=30)


def stripe_rows(panel: Axes, number: int) -> None:
    """Shade every other row, the first one at height 0.

    Parameters
    ----------
    panel
        Where to draw.
    number
        Number of rows.
    """
    for row in range(0, number, 2):
        panel.axhspan(row - 0.5, row + 0.5, color="0.5", alpha=0.09, linewidth=0)


def name_rows(panel: Axes, names: Sequence[str]) -> None:
    """Write names at the left of the rows.

    Parameters
    ----------
    panel
        Where to draw.
    names
        Shown as they are: a dollar starts no formula.
    """
    panel.set_yticks(np.arange(len(names)), list(names), fontsize=8)
    for label in panel.get_yticklabels():
        label.set_parse_math(False)


def short_names(names: Sequence[str]) -> list[str]:
    """Cut long names in the middle, to the least of a few lengths that still tells them apart.

    Parameters
    ----------
    names
        Any names.

    Returns
    -------
    list of str
        Names of at most 64 characters; the full ones if they differ only where they would be cut.

    Examples
    --------
    >>> short_names(["gpt-4", "x" * 60])
    ['gpt-4', 'xxxxxxxxxxxxxxxx…xxxxxxxxxxxxxxxx']
    """
    for longest in _LONGEST_LABELS:
        short = [_cut(name, longest) for name in names]
        if len(set(short)) == len(set(names)):
            return short
    return list(names)


def _cut(name: str, longest: int) -> str:
    half = (longest - 1) // 2
    return name if len(name) <= longest else f"{name[:half]}…{name[-half:]}"
