"""Rank intervals and the heat map of pairs: everything shown, readable, for few LLMs and for many."""

import matplotlib as mpl

mpl.use("Agg")

import numpy as np
import pandas as pd
import pytest
from matplotlib import pyplot as plt
from matplotlib.colors import to_rgb

from bayes_irt.analysis.leaderboard import Leaderboard
from bayes_irt.analysis.ranks import rank_intervals, ranks_by_draw, tie_groups, win_shares
from bayes_irt.plot_parts import is_light
from bayes_irt.ranking_plots import plot_pairs, plot_ranks

LONG = "openrouter/some-organisation/a-very-long-model-name-instruct-v{:03d}-2025-11-30-preview"


def made_up_draws(number, seed=0):
    rng = np.random.default_rng(seed)
    return np.sort(rng.normal(size=number))[::-1] + 0.3 * rng.normal(size=(200, number))


def names_of(number, *, long):
    return [LONG.format(i) if long else f"vendor/model-{i:03d}" for i in range(number)]


def made_up_board(number, *, long=False):
    draws = made_up_draws(number)
    draws = draws[:, np.argsort(-draws.mean(axis=0))]
    ranks = ranks_by_draw(draws)
    lower, upper = rank_intervals(ranks, 0.9)
    table = pd.DataFrame(
        {
            "position": np.arange(1, number + 1),
            "cbmm_rank": np.random.default_rng(1).permutation(number) // 4 + np.arange(number) * 3 // 4 + 1,
            "rank_lower": lower,
            "rank_upper": upper,
            "expected_rank": ranks.mean(axis=0),
            "tie_group": tie_groups(draws, 0.95),
        },
        index=pd.Index(names_of(number, long=long), name="llm"),
    )
    return Leaderboard(table, 0.9, 0.8, 0.0, 5, 0.95, 10.0)


def made_up_matrix(number, *, long=False):
    draws = made_up_draws(number)
    draws = draws[:, np.argsort(-draws.mean(axis=0))]
    shares = win_shares(draws, draws)
    np.fill_diagonal(shares, np.nan)
    labels = pd.Index(names_of(number, long=long), name="llm")
    return pd.DataFrame(shares, index=labels, columns=labels.rename("other"))


@pytest.fixture(autouse=True)
def _close_figures():
    yield
    plt.close("all")


def overlapping(found):
    """Return pairs of boxes that share more than a pixel."""
    return [
        (a, b)
        for position, a in enumerate(found)
        for b in found[position + 1 :]
        if min(a.x1, b.x1) - max(a.x0, b.x0) > 1 and min(a.y1, b.y1) - max(a.y0, b.y0) > 1
    ]


def written(panels):
    """Return the boxes of all that is written on and beside the panels."""
    figure = panels[0].get_figure(root=True)
    figure.canvas.draw()
    found = []
    for panel in panels:
        for axis in (panel, *panel.child_axes):
            found += [label.get_window_extent() for label in axis.get_yticklabels() if label.get_text()]
        low, high = panel.get_xlim()
        shown = [label for label in panel.get_xticklabels() if low <= label.get_position()[0] <= high]
        found += [text.get_window_extent() for text in (*shown, *panel.texts, panel.xaxis.label)]
    found += [legend.get_window_extent() for legend in figure.legends]
    return figure, found


def outside(figure, found):
    page = figure.bbox
    return [box for box in found if min(box.x0, box.y0, page.x1 - box.x1, page.y1 - box.y1) < -0.5]


@pytest.mark.parametrize(("number", "long"), [(4, True), (20, False), (51, False), (150, True)])
def test_no_rank_overlaps(number, long):
    panels = plot_ranks(made_up_board(number, long=long))
    figure, found = written(panels)
    assert len(found) > 2 * number
    assert overlapping(found) == []
    assert outside(figure, found) == []


@pytest.mark.parametrize("number", [20, 150])
def test_ranks_are_drawn_in_order_inside_the_axes(number):
    board = made_up_board(number)
    panels = plot_ranks(board)
    labels = [label.get_text() for panel in panels for label in panel.get_yticklabels()]
    assert labels == [f"{place}  {llm}" for place, llm in enumerate(board.table.index, 1)]
    groups = [label.get_text() for panel in panels for label in panel.child_axes[0].get_yticklabels()]
    assert groups == board.table["tie_group"].astype(str).tolist()
    means, estimates, ends = [], [], []
    for panel in panels:
        mean, estimate = panel.lines
        means += list(mean.get_xdata())
        estimates += list(estimate.get_xdata())
        ends += [segment[:, 0] for bars in panel.collections for segment in bars.get_segments()]
        low, high = panel.get_xlim()
        drawn = [*mean.get_xdata(), *estimate.get_xdata(), *np.ravel(ends[-len(mean.get_xdata()) :])]
        assert low < min(drawn)
        assert high > max(drawn)
        marks = [label.get_text() for label in panel.get_xticklabels() if label.get_text()]
        assert len(marks) > 1
        assert all(1 <= int(mark) <= number for mark in marks)
    np.testing.assert_array_equal(means, board.table["expected_rank"])
    np.testing.assert_array_equal(estimates, board.table["cbmm_rank"])
    np.testing.assert_array_equal(ends, board.table[["rank_lower", "rank_upper"]])
    assert [text.get_text() for text in panels[0].figure.legends[0].get_texts()] == [
        "90% interval",
        "expected rank",
        "rank by cBMM",
    ]


def test_only_the_top_is_shown_and_given_axes_are_used():
    assert len(plot_ranks(made_up_board(60), most=10)[0].get_yticks()) == 10
    _, panels = plt.subplots(1, 2)
    assert plot_ranks(made_up_board(20), panels) == list(panels)
    panel = plt.subplots()[1]
    assert plot_pairs(made_up_matrix(60), panel, most=10) is panel
    assert panel.images[0].get_array().shape == (10, 10)


@pytest.mark.parametrize(("number", "long"), [(2, True), (20, False), (51, True), (150, False), (150, True)])
def test_no_pair_overlaps(number, long):
    panel = plot_pairs(made_up_matrix(number, long=long))
    figure, found = written([panel])
    bar = figure.axes[1]
    found += [label.get_window_extent() for label in bar.get_yticklabels()] + [
        bar.yaxis.label.get_window_extent()
    ]
    assert overlapping(found) == []
    assert outside(figure, found) == []


def test_overlaps_are_noticed():
    _, panel = plt.subplots(figsize=(3, 2))
    panel.set_yticks(np.arange(60), [f"model {i}" for i in range(60)])
    assert overlapping(written([panel])[1])


@pytest.mark.parametrize("number", [20, 150])
def test_names_are_thinned_evenly(number):
    panel = plot_pairs(made_up_matrix(number))
    rows = panel.get_yticks()
    step = rows[1] - rows[0]
    assert step == 1 if number == 20 else 2 <= step <= 5
    np.testing.assert_array_equal(rows, np.arange(0, number, step))
    labels = [label.get_text() for label in panel.get_yticklabels()]
    assert labels == [f"{row + 1:.0f}  vendor/model-{row:03.0f}" for row in rows]
    assert [label.get_text() for label in panel.get_xticklabels()] == [
        f"{x + 1:.0f}" for x in panel.get_xticks()
    ]


def test_cells_hold_percentages_where_they_are_large():
    matrix = made_up_matrix(20)
    panel = plot_pairs(matrix)
    assert len(panel.texts) == 20 * 19
    for text in panel.texts:
        column, row = text.get_position()
        share = matrix.iloc[row, column]
        wanted = ">99" if share >= 0.995 else "<1" if share <= 0.005 else f"{100 * share:.0f}"
        assert text.get_text() == wanted
        cell = panel.images[0].cmap(panel.images[0].norm(share))
        assert (text.get_color() == "black") is is_light(cell)
    panel.get_figure(root=True).canvas.draw()
    width, height = np.abs(panel.transData.transform((1, 1)) - panel.transData.transform((0, 0)))
    assert max(text.get_window_extent().width for text in panel.texts) < width
    assert max(text.get_window_extent().height for text in panel.texts) < height
    assert list(plot_pairs(made_up_matrix(150)).texts) == []
    assert list(plot_pairs(matrix, plt.subplots(figsize=(2, 2))[1]).texts) == []


@pytest.mark.parametrize(("style", "even"), [("default", "white"), ("dark_background", "black")])
def test_what_is_even_has_the_colour_of_the_page(style, even):
    with plt.style.context(style):
        panel = plot_pairs(made_up_matrix(20))
    colours = panel.images[0].cmap
    np.testing.assert_allclose(colours(0.5)[:3], to_rgb(even), atol=0.02)
    warm, cool = (to_rgb(colours(end)) for end in (0.0, 1.0))
    assert warm[0] > warm[2]
    assert cool[2] > cool[0]
    assert panel.images[0].get_clim() == (0, 1)


def test_light_ink_on_a_clear_page_is_taken_for_a_dark_one():
    """A report draws with light ink on transparent axes, which have a white face that nobody sees."""
    with plt.rc_context({"axes.labelcolor": "#dddddd"}):
        panel = plot_pairs(made_up_matrix(20))
    assert max(panel.images[0].cmap(0.5)[:3]) < 0.15
