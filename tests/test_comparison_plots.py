"""Rank flow and scatter: everything shown, in place, labels apart, for few LLMs and for many, in light and dark."""

import matplotlib as mpl

mpl.use("Agg")

import numpy as np
import pandas as pd
import pytest
from matplotlib import pyplot as plt
from matplotlib.colors import to_rgb
from scipy.stats import rankdata

from bayes_irt.analysis.comparison import RankingComparison
from bayes_irt.comparison_plots import plot_accuracy, plot_rank_flow
from bayes_irt.errors import InvalidConfigurationError
from bayes_irt.plot_parts import BLUE, ORANGE, SKY, VERMILION
from bayes_irt.responses import Responses

LONG = "openrouter/some-organisation/a-very-long-model-name-instruct-v{:03d}-2025-11-30-preview"


def made_up(number, *, long=False, noise=0.25, seed=0):
    """A comparison of made-up figures, accuracies rounded so that some are tied."""
    rng = np.random.default_rng(seed)
    ability = np.sort(rng.normal(size=number))[::-1]
    accuracy = (1 / (1 + np.exp(-ability - noise * rng.normal(size=number)))).round(2)
    cbmm = ability + noise / 2 * rng.normal(size=number)
    place = np.arange(1, number + 1)
    first, last = (rankdata(-accuracy, method=method).astype(int) for method in ("min", "max"))
    reach = np.minimum(place - 1, number // 10 + 1)
    table = pd.DataFrame(
        {
            "accuracy": accuracy,
            "accuracy_lower": np.clip(accuracy - 0.04, 0, 1),
            "accuracy_upper": np.clip(accuracy + 0.04, 0, 1),
            "accuracy_rank": first,
            "accuracy_tied": last - first + 1,
            "cbmm_ability": cbmm,
            "cbmm_rank": rankdata(-cbmm).astype(int),
            "cbmm_tied": 1,
            "ability": ability,
            "ability_lower": ability - 0.3,
            "ability_upper": ability + 0.3,
            "posterior_rank": place,
            "rank_lower": place - reach,
            "rank_upper": np.minimum(place + number // 10 + 1, number),
            "accuracy_inside": True,
            "cbmm_inside": True,
            "cbmm_z": 0.0,
            "move": np.clip(place, first, last) - place,
        },
        index=pd.Index(
            [LONG.format(i) if long else f"vendor/model-{i:03d}" for i in range(number)], name="llm"
        ),
    )
    empty = pd.DataFrame()
    return RankingComparison(table, empty, empty, empty, Responses.from_arrays(np.eye(2, dtype=int)), 0.9)


@pytest.fixture(autouse=True)
def _close_figures():
    yield
    plt.close("all")


def drawn(panel):
    figure = panel.get_figure(root=True)
    figure.canvas.draw()
    return figure, figure.canvas.get_renderer()


def overlapping(found):
    """Return pairs of boxes that share more than a pixel."""
    return [
        (a, b)
        for position, a in enumerate(found)
        for b in found[position + 1 :]
        if min(a.x1, b.x1) - max(a.x0, b.x0) > 1 and min(a.y1, b.y1) - max(a.y0, b.y0) > 1
    ]


def all_boxes(panel):
    """Return the boxes of all that is written, inside the limits."""
    figure, renderer = drawn(panel)
    found = [text.get_window_extent(renderer) for text in panel.texts if text.get_text()]
    for axis, (low, high) in ((panel.xaxis, panel.get_xlim()), (panel.yaxis, sorted(panel.get_ylim()))):
        place = 0 if axis is panel.xaxis else 1
        found += [
            label.get_window_extent(renderer)
            for label in axis.get_ticklabels()
            if label.get_text() and low <= label.get_position()[place] <= high
        ]
    found += [panel.xaxis.label.get_window_extent(renderer)] if panel.get_xlabel() else []
    found.append(panel.get_legend().get_window_extent(renderer))
    return figure, found


def outside(figure, found):
    page = figure.bbox
    return [box for box in found if min(box.x0, box.y0, page.x1 - box.x1, page.y1 - box.y1) < -0.5]


SIZES = [(5, True), (20, False), (20, True), (44, True), (70, False), (150, False), (150, True)]


@pytest.mark.parametrize(("number", "long"), SIZES)
@pytest.mark.parametrize("plot", [plot_rank_flow, plot_accuracy])
def test_nothing_overlaps(plot, number, long):
    comparison = made_up(number, long=long)
    panel = plot(comparison)
    figure, found = all_boxes(panel)
    movers = np.count_nonzero(comparison.table["move"])
    if plot is plot_accuracy:
        assert len(panel.texts) == min(movers, 10)
    else:
        assert len(panel.texts) == 2 * (number if number <= 44 else min(movers, 12))
    assert overlapping(found) == []
    assert outside(figure, found) == []


def test_overlaps_are_noticed():
    _, panel = plt.subplots(figsize=(3, 2))
    for height in np.linspace(0, 1, 60):
        panel.text(0, height, "model")
    panel.legend([], [], title="x")
    assert overlapping(all_boxes(panel)[1])


@pytest.mark.parametrize("plot", [plot_rank_flow, plot_accuracy])
def test_nothing_overlaps_in_small_axes(plot):
    _, panels = plt.subplots(1, 2, figsize=(11, 2.4), layout="constrained")
    panel = plot(made_up(60), panels[1])
    assert panel is panels[1]
    found = [text.get_window_extent() for text in panel.texts]
    assert overlapping(found) == []
    assert plot(made_up(20), plt.subplots(figsize=(1.5, 1.0))[1]).get_figure() is not None


def flow_lines(panel):
    return [line for line in panel.lines if len(line.get_xdata()) == 3]


@pytest.mark.parametrize("number", [20, 150])
def test_every_llm_has_its_line_through_its_three_ranks(number):
    comparison = made_up(number)
    table = comparison.table
    panel = plot_rank_flow(comparison)
    found = np.array(sorted((tuple(line.get_ydata()) for line in flow_lines(panel)), key=lambda y: y[2]))
    np.testing.assert_array_equal(found[:, 2], table["posterior_rank"])
    np.testing.assert_array_equal(found[:, 1], table["cbmm_rank"])
    np.testing.assert_array_equal(np.sort(found[:, 0]), np.arange(1, number + 1))
    spare = found[:, 0] - table["accuracy_rank"]
    assert ((spare >= 0) & (spare < table["accuracy_tied"])).all()
    for _, tied in table.groupby("accuracy_rank"):  # in the order of the posterior
        assert np.all(np.diff(found[tied["posterior_rank"] - 1, 0]) == 1)
    low, high = panel.get_ylim()
    assert low > number
    assert high < 1


def test_few_llms_are_all_labelled_and_many_where_they_move():
    comparison = made_up(20)
    texts = [text.get_text() for text in plot_rank_flow(comparison).texts]
    table = comparison.table
    marks = np.where(table["accuracy_tied"] > 1, "=", "")
    left = [
        f"{llm}  {rank}{mark}"
        for llm, rank, mark in zip(table.index, table["accuracy_rank"], marks, strict=True)
    ]
    assert texts[:20] == left
    assert texts[20:] == [
        f"{rank}  {llm}" for llm, rank in zip(table.index, table["posterior_rank"], strict=True)
    ]
    many = made_up(150)
    texts = [text.get_text() for text in plot_rank_flow(many, highlighted=7).texts]
    size = many.table["move"].abs().sort_values(ascending=False, kind="stable")
    assert len(texts) == 14
    assert {text.split("  ")[0] for text in texts[:7]} == set(size.index[:7])


@pytest.mark.parametrize(
    ("style", "up", "down"), [("default", BLUE, VERMILION), ("dark_background", SKY, ORANGE)]
)
def test_colours_say_who_rises_and_suit_the_style(style, up, down):
    comparison = made_up(20)
    moves = comparison.table["move"]
    before = dict(mpl.rcParams)
    with plt.style.context(style):
        flow, scatter = plot_rank_flow(comparison, highlighted=5), plot_accuracy(comparison, highlighted=5)
        ink = mpl.rcParams["axes.labelcolor"]
    chosen = moves.abs().sort_values(ascending=False, kind="stable").index[:5]
    for text in flow.texts[20:]:
        llm = text.get_text().split("  ")[1]
        wanted = (up if moves[llm] > 0 else down) if llm in chosen else ink
        assert to_rgb(text.get_color()) == to_rgb(wanted)
    assert {text.get_text() for text in scatter.texts} == set(chosen)
    for text in scatter.texts:
        assert to_rgb(text.get_color()) == to_rgb(up if moves[text.get_text()] > 0 else down)
    assert {to_rgb(text.get_color()) for text in scatter.get_legend().get_texts()} == {to_rgb(ink)}
    assert dict(mpl.rcParams) == before


def test_only_the_top_is_shown_on_request():
    panel = plot_rank_flow(made_up(60), most=10)
    assert len(flow_lines(panel)) == 10
    assert len(flow_lines(plot_rank_flow(made_up(200)))) == 150


def test_no_highlights_and_no_moves():
    comparison = made_up(30)
    assert list(plot_accuracy(comparison, highlighted=0).texts) == []
    still = RankingComparison(
        comparison.table.assign(move=0), *(pd.DataFrame(),) * 3, comparison.responses, 0.9
    )
    panel = plot_rank_flow(still)
    assert [text.get_text() for text in panel.get_legend().get_texts()] == ["other LLMs"]
    for options in ({"most": 0}, {"highlighted": -1}, {"highlighted": 1.5}):
        with pytest.raises(InvalidConfigurationError, match="whole number"):
            plot_rank_flow(comparison, **options)


@pytest.mark.parametrize("number", [20, 150])
def test_the_scatter_shows_every_llm_with_both_intervals(number):
    comparison = made_up(number)
    panel = plot_accuracy(comparison)
    dots = np.concatenate([line.get_xydata() for line in panel.lines if line.get_marker() == "o"])
    points = comparison.table[["accuracy", "ability"]].to_numpy()
    np.testing.assert_array_equal(np.unique(dots, axis=0), np.unique(points, axis=0))
    segments = np.concatenate([bars.get_segments() for bars in panel.collections])
    assert len(segments) == 2 * number
    flat = segments[segments[:, 0, 1] == segments[:, 1, 1]]
    ends = comparison.table[["accuracy_lower", "accuracy_upper"]].to_numpy()
    np.testing.assert_allclose(np.unique(flat[:, :, 0], axis=0), np.unique(ends, axis=0))
    left, right = panel.get_xlim()
    assert left <= ends.min()
    assert right >= ends.max()
    assert all(0 <= mark <= 1 for mark in panel.get_xticks())
    assert "90% intervals" in [text.get_text() for text in panel.get_legend().get_texts()]


def test_an_llm_with_one_item_has_no_bar_across():
    comparison = made_up(20)
    comparison.table.iloc[3, [1, 2]] = np.nan
    panel = plot_accuracy(comparison)
    assert overlapping(all_boxes(panel)[1]) == []


@pytest.mark.parametrize("number", [2, 3])
def test_below_four_llms_there_are_ranks_and_no_abilities(number):
    assert len(flow_lines(plot_rank_flow(made_up(number)))) == number
    with pytest.raises(InvalidConfigurationError, match=f"{number} LLMs have no ability"):
        plot_accuracy(made_up(number))
