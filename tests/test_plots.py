"""The forest plot: everything shown, in order, readable, inside the axes, for few LLMs and for many."""

import matplotlib as mpl

mpl.use("Agg")

import numpy as np
import pandas as pd
import pytest
from matplotlib import pyplot as plt

from bayes_irt.analysis.leaderboard import Leaderboard
from bayes_irt.analysis.ranks import ranks_by_draw
from bayes_irt.errors import InvalidConfigurationError
from bayes_irt.plots import plot_leaderboard

LONG = "openrouter/some-organisation/a-very-long-model-name-instruct-v{:03d}-2025-11-30-preview"


def made_up_board(number, names=None, seed=0):
    """A board of made-up draws, among them one LLM that is hardly known."""
    rng = np.random.default_rng(seed)
    spread = np.where(np.arange(number) == number // 3, 1.0, 0.15 + 0.1 * rng.random(number))
    draws = np.sort(rng.normal(size=number)) + spread * rng.normal(size=(400, number))
    draws = (draws - draws.mean(axis=1, keepdims=True)) / draws.std(axis=1, keepdims=True)
    ranks = ranks_by_draw(draws)
    low, high = np.quantile(draws, [0.05, 0.95], axis=0)
    rank_low, rank_high = np.quantile(ranks, [0.05, 0.95], axis=0, method="inverted_cdf").astype(int)
    names = [f"vendor-{i % 7}/model-{i:03d}" for i in range(number)] if names is None else names
    table = pd.DataFrame(
        {
            "cbmm_ability": draws.mean(axis=0) + 0.1 * rng.normal(size=number),
            "ability": draws.mean(axis=0),
            "ability_lower": low,
            "ability_upper": high,
            "rank_lower": rank_low,
            "rank_upper": rank_high,
        },
        index=pd.Index(names, name="llm", dtype=object),
    ).sort_values("ability", ascending=False)
    table.insert(0, "position", np.arange(1, number + 1))
    return Leaderboard(table, 0.9, 0.8, 0.0, 5, 0.95, 10.0)


@pytest.fixture(autouse=True)
def _close_figures():
    yield
    plt.close("all")


def drawn(axes):
    figure = axes[0].get_figure(root=True)
    figure.canvas.draw()
    return figure, figure.canvas.get_renderer()


def boxes(labels, renderer):
    return [label.get_window_extent(renderer) for label in labels if label.get_text()]


def overlapping(found):
    """Return pairs of boxes that share more than a pixel."""
    return [
        (a, b)
        for position, a in enumerate(found)
        for b in found[position + 1 :]
        if min(a.x1, b.x1) - max(a.x0, b.x0) > 1 and min(a.y1, b.y1) - max(a.y0, b.y0) > 1
    ]


def rank_axis(panel):
    return panel.child_axes[0]


@pytest.mark.parametrize("names", ["short", "long"])
@pytest.mark.parametrize("number", [4, 20, 51, 150])
def test_nothing_overlaps(number, names):
    board = made_up_board(number, [LONG.format(i) for i in range(number)] if names == "long" else None)
    axes = plot_leaderboard(board)
    figure, renderer = drawn(axes)
    found = []
    for panel in axes:
        for axis in (panel.yaxis, rank_axis(panel).yaxis):
            found += boxes(axis.get_ticklabels(), renderer)
        low, high = panel.get_xlim()  # labels beyond are not drawn
        shown = [label for label in panel.get_xticklabels() if low <= label.get_position()[0] <= high]
        found += boxes(shown, renderer)
        found += boxes([*panel.texts, panel.xaxis.label], renderer)
        found.append(panel.get_window_extent(renderer))
    found += [legend.get_window_extent(renderer) for legend in figure.legends]
    assert len(found) > 2 * number
    assert overlapping(found) == []
    page = figure.bbox
    outside = [b for b in found if min(b.x0, b.y0, page.x1 - b.x1, page.y1 - b.y1) < 0]
    assert outside == []


def test_overlaps_are_noticed():
    figure, panel = plt.subplots(figsize=(3, 2))
    panel.set_yticks(np.arange(60), [f"model {i}" for i in range(60)])
    figure.canvas.draw()
    assert overlapping(boxes(panel.yaxis.get_ticklabels(), figure.canvas.get_renderer()))


@pytest.mark.parametrize("number", [20, 150])
def test_labels_are_in_order_with_the_best_on_top(number):
    board = made_up_board(number)
    axes = plot_leaderboard(board)
    drawn(axes)
    labels = [label.get_text() for panel in axes for label in panel.get_yticklabels()]
    wanted = zip(board.table["position"], board.table.index, strict=True)
    assert labels == [f"{position}  {name}" for position, name in wanted]
    ranks = [label.get_text() for panel in axes for label in rank_axis(panel).get_yticklabels()]
    pairs = zip(board.table["rank_lower"], board.table["rank_upper"], strict=True)
    assert ranks == [f"{low}–{high}" for low, high in pairs]
    for panel in axes:
        heights = [panel.transData.transform((0, tick))[1] for tick in panel.get_yticks()]
        assert heights == sorted(heights, reverse=True)
        own = [rank_axis(panel).transData.transform((0, y))[1] for y in rank_axis(panel).get_yticks()]
        np.testing.assert_allclose(own, heights)


@pytest.mark.parametrize("number", [20, 150])
def test_all_marks_lie_inside_and_panels_share_their_scale(number):
    board = made_up_board(number)
    axes = plot_leaderboard(board)
    low, high = axes[0].get_xlim()
    assert {panel.get_xlim() for panel in axes} == {(low, high)}
    assert low < board.table[["ability_lower", "cbmm_ability"]].min(axis=None)
    assert high > board.table[["ability_upper", "cbmm_ability"]].max(axis=None)
    means, ends, estimates = [], [], []
    for panel in axes:
        bottom, top = panel.get_ylim()
        mean, estimate = (line for line in panel.lines if len(line.get_xdata()) != 2 or number == 2)
        means += list(mean.get_xdata())
        estimates += list(estimate.get_xdata())
        segments = [segment for lines in panel.collections for segment in lines.get_segments()]
        ends += [sorted(segment[:, 0]) for segment in segments]
        assert all(top < y < bottom for y in mean.get_ydata())
        np.testing.assert_array_equal([segment[0, 1] for segment in segments], mean.get_ydata())
    table = board.table
    np.testing.assert_array_equal(means, table["ability"])
    np.testing.assert_array_equal(estimates, table["cbmm_ability"])
    np.testing.assert_array_equal(ends, table[["ability_lower", "ability_upper"]])


def test_only_the_top_is_shown_on_request():
    axes = plot_leaderboard(made_up_board(60), most=10)
    assert len(axes) == 1
    assert len(axes[0].get_yticks()) == 10
    assert len(plot_leaderboard(made_up_board(200))[0].get_yticks()) == 50


def labels_of(names):
    return [
        label.get_text() for label in plot_leaderboard(made_up_board(len(names), names))[0].get_yticklabels()
    ]


def test_long_names_keep_both_ends():
    labels = labels_of([f"{i:02d}-{LONG}" for i in range(20)])
    assert max(map(len, labels)) < 40
    assert all("…" in label and label.endswith("preview") for label in labels)


def test_names_are_cut_only_as_far_as_they_stay_apart():
    labels = labels_of([LONG.format(i) for i in range(20)])
    assert len({label.split("  ")[1] for label in labels}) == 20
    assert 40 < max(map(len, labels)) < 70
    alike = ["x" * 60 + letter + "y" * 60 for letter in "abcd"]
    assert sorted(label.split("  ")[1] for label in labels_of(alike)) == alike


def test_names_with_dollars_are_not_taken_for_formulas():
    names = ["$x$_free", "a$b", "c_{d}", "e^f$g$"]
    axes = plot_leaderboard(made_up_board(4, names))
    _, renderer = drawn(axes)
    for label in axes[0].get_yticklabels():
        assert label.get_parse_math() is False
        assert label.get_window_extent(renderer).width > 0


def test_given_axes_are_used():
    figure, panels = plt.subplots(1, 2, figsize=(10, 4))
    axes = plot_leaderboard(made_up_board(20), panels)
    assert axes == list(panels)
    assert [len(panel.get_yticks()) for panel in axes] == [10, 10]
    assert plt.get_fignums() == [figure.number]
    one = plt.figure().subplots()
    assert plot_leaderboard(made_up_board(5), [one]) == [one]


def test_more_axes_than_llms():
    _, panels = plt.subplots(1, 3)
    axes = plot_leaderboard(made_up_board(4), panels)
    assert [len(panel.get_yticks()) for panel in axes] == [2, 2, 0]


@pytest.mark.parametrize("number", [2, 3])
def test_too_few_llms_are_refused(number):
    with pytest.raises(InvalidConfigurationError, match=f"{number} LLMs have no ability"):
        plot_leaderboard(made_up_board(number))
    assert plt.get_fignums() == []


def test_the_picture_has_a_legend_and_says_what_is_shown():
    axes = plot_leaderboard(made_up_board(20))
    figure, _ = drawn(axes)
    assert [text.get_text() for text in figure.legends[0].get_texts()] == [
        "90% interval",
        "posterior mean",
        "cBMM estimate",
    ]
    assert axes[0].get_xlabel() == "ability (sd of these LLMs)"
