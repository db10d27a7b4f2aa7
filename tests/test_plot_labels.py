"""Labels: as near as keeps them apart, as many as there is room for."""

from itertools import pairwise

import matplotlib as mpl

mpl.use("Agg")

import numpy as np
import pytest
from matplotlib import pyplot as plt
from scipy.optimize import minimize

from bayes_irt.errors import InvalidConfigurationError
from bayes_irt.plot_labels import PointLabel, every, points_per_unit, spread, stack_labels, widest


@pytest.fixture(autouse=True)
def _close_figures():
    yield
    plt.close("all")


@pytest.mark.parametrize("seed", range(20))
def test_labels_are_spread_as_little_as_can_be(seed):
    rng = np.random.default_rng(seed)
    number, gap = int(rng.integers(1, 9)), 1.0
    places = rng.uniform(0, 10, size=number).round(1)
    found = spread(places, gap, 0.0, 10.0)
    assert found.min() >= 0
    assert found.max() <= 10
    assert np.all(np.diff(np.sort(found)) >= gap - 1e-9)
    order = np.argsort(places, kind="stable")
    np.testing.assert_array_equal(order, np.argsort(found, kind="stable"))
    apart = [{"type": "ineq", "fun": lambda x, i=i: x[i + 1] - x[i] - gap} for i in range(number - 1)]
    best = minimize(
        lambda x: np.sum((x - places[order]) ** 2),
        np.linspace(0.5, 9.5, number),
        bounds=[(0, 10)] * number,
        constraints=apart,
        method="SLSQP",
        options={"ftol": 1e-14, "maxiter": 500},
    )
    assert np.sum((found - places) ** 2) <= best.fun + 1e-6


def test_labels_that_are_apart_stay():
    places = np.array([7.0, 1.0, 4.0])
    np.testing.assert_array_equal(spread(places, 3.0, 0.0, 8.0), places)
    assert spread(np.array([]), 3.0, 0.0, 8.0).size == 0


def test_too_many_labels_are_refused():
    np.testing.assert_allclose(spread(np.zeros(5), 2.0, 0.0, 8.0), [0, 2, 4, 6, 8])
    with pytest.raises(InvalidConfigurationError, match="5 labels 2 apart do not fit between 0 and 7"):
        spread(np.zeros(5), 2.0, 0.0, 7.0)


@pytest.mark.parametrize(
    ("number", "room", "wanted"), [(10, 100.0, 1), (10, 99.0, 2), (150, 100.0, 15), (1, 1.0, 10)]
)
def test_rows_are_thinned_as_far_as_needed(number, room, wanted):
    assert every(number, room, 10.0) == wanted
    assert room / number * wanted >= 10.0 - 1e-9


def labels_at(heights):
    return [PointLabel(f"label {i}", 0.5, float(y), "0.5") for i, y in enumerate(heights)]


@pytest.mark.parametrize("align", ["left", "right"])
def test_stacked_labels_do_not_overlap_and_end_at_the_edge(align):
    figure, panel = plt.subplots(figsize=(4, 3))
    drawn = stack_labels(panel, labels_at([0.5] * 9), 0.6, (0.0, 1.0), align=align)
    figure.canvas.draw()
    boxes = sorted((text.get_window_extent() for text in drawn), key=lambda box: box.y0)
    assert len(boxes) == 9
    assert all(upper.y0 >= lower.y1 - 1 for lower, upper in pairwise(boxes))
    edge = panel.transData.transform((0.6, 0))[0]
    ends = [box.x0 - edge if align == "left" else edge - box.x1 for box in boxes]
    assert all(0 < end < 8 for end in ends)
    joined = [artist for artist in panel.lines if list(artist.get_xdata()) == [0.5, 0.6]]
    assert len(joined) == 9


def test_labels_without_room_are_left_out_the_least_important_first():
    _, panel = plt.subplots(figsize=(4, 1.2))
    drawn = stack_labels(panel, labels_at([0.5] * 30), 0.6, (0.0, 1.0), align="left")
    assert 1 < len(drawn) < 12
    assert [text.get_text() for text in drawn] == [f"label {i}" for i in range(len(drawn))]
    assert stack_labels(panel, labels_at([0.5]), 0.6, (0.6, 0.4), align="left") == []


def test_labels_with_dollars_are_not_taken_for_formulas():
    figure, panel = plt.subplots()
    names = ["$x$_free", "a$b", "$\\frac{"]
    drawn = stack_labels(
        panel, [PointLabel(name, 0.5, 0.5, "0.5") for name in names], 0.4, (0, 1), align="left"
    )
    figure.canvas.draw()
    assert [text.get_parse_math() for text in drawn] == [False] * 3
    assert widest(panel, names) > 20


def test_measures_leave_nothing_behind():
    figure, panel = plt.subplots(figsize=(4, 3), dpi=150)
    panel.set_position((0, 0, 1, 1))
    panel.set_xlim(2, 0)
    panel.set_ylim(0, 3)
    assert points_per_unit(panel) == pytest.approx((144.0, 72.0))
    narrow = widest(panel, ["name"])
    figure.set_dpi(300)
    assert points_per_unit(panel) == pytest.approx((144.0, 72.0))
    assert widest(panel, ["name"]) == pytest.approx(narrow, rel=0.1)
    assert list(panel.texts) == []
