"""Plots of predictive checks: everything shown, in order, told apart by shape and colour, for few LLMs and for many."""

import matplotlib as mpl

mpl.use("Agg")

import numpy as np
import pandas as pd
import pytest
from matplotlib import pyplot as plt
from test_plots import LONG, boxes, drawn, overlapping

from bayes_irt.checks import CheckReport
from bayes_irt.errors import InvalidConfigurationError
from bayes_irt.plot_parts import SKY, VERMILION
from bayes_irt.predictive import PredictiveChecks
from bayes_irt.predictive_plots import plot_predictive_cells, plot_predictive_items, plot_predictive_llms
from bayes_irt.provenance import Provenance


def made_up_table(names, rng, name):
    predicted = rng.random(len(names))
    width = 0.02 + 0.05 * rng.random(len(names))
    observed = predicted + 1.2 * width * (2 * rng.random(len(names)) - 1)
    columns = {
        "observed": observed,
        "predicted": predicted,
        "lower": predicted - width,
        "upper": predicted + width,
        "outside": np.abs(observed - predicted) > width,
    }
    return pd.DataFrame(columns, index=pd.Index(names, name=name, dtype=object))


def made_up_checks(num_llms, num_items=60, attempts=8, names=None, seed=0):
    rng = np.random.default_rng(seed)
    llms = [f"vendor-{i % 7}/model-{i:03d}" for i in range(num_llms)] if names is None else names
    items = [f"item-{j:04d}" for j in range(num_items)]
    rest = made_up_table(items, rng, "item")
    rest.iloc[:3, :4] = np.nan
    rest.iloc[:3, 4] = False
    cells = made_up_table(list(range(attempts + 1)) if attempts else [], rng, "successes")
    cells.iloc[:, :4] *= 1000
    return PredictiveChecks(
        CheckReport(()),
        pd.DataFrame(),
        made_up_table(llms, rng, "llm"),
        made_up_table(items, rng, "item"),
        rest,
        cells,
        0.9,
        Provenance("predictive checks", {}, "0"),
    )


@pytest.fixture(autouse=True)
def _close_figures():
    yield
    plt.close("all")


def shown_boxes(panels, figure, renderer):
    found = []
    for panel in panels:
        for axis, (low, high), side in (
            (panel.yaxis, sorted(panel.get_ylim()), 1),
            (panel.xaxis, sorted(panel.get_xlim()), 0),
        ):
            labels = [label for label in axis.get_ticklabels() if low <= label.get_position()[side] <= high]
            found += boxes([*labels, axis.label], renderer)
        found.append(panel.get_window_extent(renderer))
    found += [legend.get_window_extent(renderer) for legend in figure.legends]
    page = figure.bbox
    outside = [b for b in found if min(b.x0, b.y0, page.x1 - b.x1, page.y1 - b.y1) < 0]
    return found, outside


@pytest.mark.parametrize("names", ["short", "long"])
@pytest.mark.parametrize("number", [4, 20, 51, 150])
def test_nothing_overlaps_among_llms(number, names):
    checks = made_up_checks(
        number, names=[LONG.format(i) for i in range(number)] if names == "long" else None
    )
    panels = plot_predictive_llms(checks)
    found, outside = shown_boxes(panels, *drawn(panels))
    assert len(found) > number
    assert overlapping(found) == []
    assert outside == []


@pytest.mark.parametrize("num_items", [5, 60, 3000])
def test_nothing_overlaps_among_items_and_cells(num_items):
    checks = made_up_checks(5, num_items, attempts=num_items // 5)
    for panels in (plot_predictive_items(checks), [plot_predictive_cells(checks)]):
        found, outside = shown_boxes(panels, *drawn(panels))
        assert overlapping(found) == []
        assert outside == []


def marks_of(panel):
    """Values of the dots and of the diamonds, with the colour of each kind."""
    inside, outside = panel.lines
    assert (inside.get_marker(), outside.get_marker()) == ("o", "D")
    assert inside.get_color() != outside.get_color() == VERMILION
    return inside, outside


@pytest.mark.parametrize("number", [20, 150])
def test_all_llms_are_shown_best_first_and_those_outside_are_marked(number):
    checks = made_up_checks(number)
    table = checks.llm_scores.sort_values("observed", ascending=False)
    panels = plot_predictive_llms(checks)
    drawn(panels)
    assert [label.get_text() for panel in panels for label in panel.get_yticklabels()] == list(table.index)
    ends, inside, outside = [], [], []
    for panel in panels:
        bottom, top = panel.get_ylim()
        (lines,) = (entry for entry in panel.collections if hasattr(entry, "get_segments"))
        ends += [sorted(segment[:, 0]) for segment in lines.get_segments()]
        dots, diamonds = marks_of(panel)
        inside += list(dots.get_xdata())
        outside += list(diamonds.get_xdata())
        assert all(top < y < bottom for y in [*dots.get_ydata(), *diamonds.get_ydata()])
        assert panel.get_xlim() == panels[0].get_xlim()
    np.testing.assert_array_equal(ends, table[["lower", "upper"]])
    np.testing.assert_array_equal(inside, table["observed"][~table["outside"]])
    np.testing.assert_array_equal(outside, table["observed"][table["outside"]])
    low, high = panels[0].get_xlim()
    assert low < table[["observed", "lower"]].min(axis=None)
    assert high > table[["observed", "upper"]].max(axis=None)


def test_items_stand_in_order_of_what_is_predicted():
    checks = made_up_checks(4)
    panels = plot_predictive_items(checks)
    for panel, table in zip(panels, (checks.item_scores, checks.item_rest), strict=True):
        known = table.dropna().sort_values("predicted")
        dots, diamonds = marks_of(panel)
        places = np.arange(1, len(known) + 1)
        np.testing.assert_array_equal(dots.get_xdata(), places[~known["outside"]])
        np.testing.assert_array_equal(dots.get_ydata(), known["observed"][~known["outside"]])
        np.testing.assert_array_equal(diamonds.get_ydata(), known["observed"][known["outside"]])
    assert len(checks.item_rest.dropna()) == len(checks.item_scores) - 3


def test_cells_are_counted_by_right_answers():
    checks = made_up_checks(4, attempts=5)
    panel = plot_predictive_cells(checks)
    table = checks.cell_counts
    spans = [(bar.get_y(), bar.get_y() + bar.get_height()) for bar in panel.patches]
    np.testing.assert_allclose(spans, table[["lower", "upper"]])
    assert [bar.get_x() + bar.get_width() / 2 for bar in panel.patches] == pytest.approx(range(6))
    dots, diamonds = marks_of(panel)
    assert sorted([*dots.get_xdata(), *diamonds.get_xdata()]) == list(range(6))
    assert panel.get_xlabel() == "right answers of 5 attempts"


def luminance(colour):
    parts = np.array(mpl.colors.to_rgb(colour))
    linear = np.where(parts <= 0.03928, parts / 12.92, ((parts + 0.055) / 1.055) ** 2.4)
    return linear @ [0.2126, 0.7152, 0.0722]


def contrast(one, other):
    """Contrast ratio of WCAG 2."""
    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("style", ["default", "dark_background"])
def test_marks_are_readable_on_light_and_dark(style):
    with plt.style.context(style):
        page = mpl.rcParams["axes.facecolor"]
        panel = plot_predictive_cells(made_up_checks(4))
        dots, diamonds = marks_of(panel)
        bar = panel.patches[0].get_facecolor()
        blended = np.array(bar[:3]) * bar[3] + np.array(mpl.colors.to_rgb(page)) * (1 - bar[3])
        assert contrast(dots.get_color(), page) > 15
        assert contrast(diamonds.get_color(), page) > 3
        assert contrast(blended, page) > 1.5
        assert contrast(dots.get_color(), blended) > 3
    assert mpl.colors.to_hex(bar) == SKY.lower()


def test_the_legend_says_what_is_shown():
    checks = made_up_checks(20)
    for panels in (
        plot_predictive_llms(checks),
        plot_predictive_items(checks),
        [plot_predictive_cells(checks)],
    ):
        texts = [text.get_text() for text in panels[0].figure.legends[0].get_texts()]
        assert texts == ["90% predictive interval", "observed, inside", "observed, outside"]


def test_given_axes_are_used():
    checks = made_up_checks(20)
    figure, panels = plt.subplots(1, 5, figsize=(20, 6), layout="constrained")
    assert plot_predictive_llms(checks, panels[:2], most=12) == list(panels[:2])
    assert [len(panel.get_yticks()) for panel in panels[:2]] == [6, 6]
    assert plot_predictive_items(checks, panels[2:4]) == list(panels[2:4])
    assert plot_predictive_cells(checks, panels[4]) is panels[4]
    assert plt.get_fignums() == [figure.number]


def test_what_cannot_be_drawn_is_refused():
    checks = made_up_checks(4, attempts=0)
    with pytest.raises(InvalidConfigurationError, match="No cell has several attempts"):
        plot_predictive_cells(checks)
    _, panels = plt.subplots(1, 3)
    with pytest.raises(InvalidConfigurationError, match="There are 3 axes; it takes 2"):
        plot_predictive_items(checks, panels)
