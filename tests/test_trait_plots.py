"""Plots of several traits: everything shown, in its place, readable, for few LLMs and items and for many."""

import matplotlib as mpl

mpl.use("Agg")

import numpy as np
import pandas as pd
import pytest
from matplotlib import pyplot as plt
from matplotlib.colors import to_rgb
from test_ranking_plots import names_of, outside, overlapping

from bayes_irt.errors import InvalidConfigurationError
from bayes_irt.plot_parts import is_light
from bayes_irt.trait_plots import plot_trait_correlations, plot_trait_loadings, plot_trait_profile

SUBJECTS = ("algebra", "$x$ and *y*", "a name of more than one line", *"defghijklmn")
STYLES = ("default", "dark_background")


def made_up_profile(number, traits, *, long=False):
    rng = np.random.default_rng(0)
    mean = rng.normal(size=(number, 1)) + 0.5 * rng.normal(size=(number, len(traits)))
    reach = rng.uniform(0.1, 0.5, size=mean.shape)
    index = pd.MultiIndex.from_product([names_of(number, long=long), traits], names=["llm", "trait"])
    columns = {"ability": mean, "lower": mean - reach, "upper": mean + reach}
    return pd.DataFrame({name: values.ravel() for name, values in columns.items()}, index=index)


def made_up_correlations(traits):
    pairs = [(one, other) for place, one in enumerate(traits) for other in traits[place + 1 :]]
    mean = np.random.default_rng(1).uniform(-0.3, 0.98, size=len(pairs))
    index = pd.MultiIndex.from_tuples(pairs, names=["trait", "other"])
    return pd.DataFrame({"correlation": mean, "lower": mean - 0.1, "upper": mean + 0.02}, index=index)


def made_up_loadings(sizes, *, general=False, long=False):
    """Items of one trait each, in an order that is not the one drawn."""
    rng, rows = np.random.default_rng(2), []
    names = names_of(sum(sizes), long=long)
    traits = np.repeat(SUBJECTS[: len(sizes)], sizes)
    for item, trait in zip(names, traits, strict=True):
        rows += [("general", item, rng.gamma(2.0))] if general else []
        rows.append((trait, item, rng.gamma(2.0)))
    table = pd.DataFrame(rows, columns=["trait", "item", "discrimination"]).sort_values(
        "trait", kind="stable"
    )
    order = ["general", *SUBJECTS]
    table = table.sort_values("trait", key=lambda column: column.map(order.index), kind="stable")
    return table.set_index(["trait", "item"]).assign(lower=0.0, upper=9.0)


@pytest.fixture(autouse=True)
def _close_figures():
    yield
    plt.close("all")


def written(panels):
    """Return the boxes of all that is written on and beside the panels and their keys."""
    figure = panels[0].get_figure(root=True)
    figure.canvas.draw()
    found = []
    for panel in figure.axes:
        texts = [panel.title, panel.xaxis.label, panel.yaxis.label, *panel.texts]
        for axis, (low, high) in ((panel.xaxis, panel.get_xlim()), (panel.yaxis, sorted(panel.get_ylim()))):
            for tick in axis.get_major_ticks():
                if low <= tick.get_loc() <= high:
                    texts += [label for label in (tick.label1, tick.label2) if label.get_visible()]
        found += [text.get_window_extent() for text in texts if text.get_text()]
    return figure, [*found, *(legend.get_window_extent() for legend in figure.legends)]


def labels_of(axis):
    return [label.get_text() for label in axis.get_ticklabels()]


# Profiles


@pytest.mark.parametrize(("number", "traits", "long"), [(1, 2, True), (20, 4, False), (150, 14, True)])
def test_no_name_of_a_profile_overlaps(number, traits, long):
    panels = plot_trait_profile(made_up_profile(number, SUBJECTS[:traits], long=long))
    figure, found = written(panels)
    assert len(found) > number + 4 * traits
    assert overlapping(found) == []
    assert outside(figure, found) == []


@pytest.mark.parametrize("number", [20, 150])
def test_abilities_stand_in_the_row_of_their_llm_and_the_panel_of_their_trait(number):
    profile = made_up_profile(number, SUBJECTS[:3])
    panels = plot_trait_profile(profile)
    assert labels_of(panels[0].yaxis) == names_of(number, long=False)
    assert {panel.get_xlim() for panel in panels} == {panels[0].get_xlim()}
    for panel, trait in zip(panels, SUBJECTS, strict=False):
        here = profile.xs(trait, level="trait")
        dots = panel.lines[-1]
        np.testing.assert_array_equal(dots.get_xdata(), here["ability"])
        np.testing.assert_array_equal(dots.get_ydata(), np.arange(number))
        ends = [segment[:, 0] for segment in panel.collections[0].get_segments()]
        np.testing.assert_array_equal(ends, here[["lower", "upper"]])
        low, high = panel.get_xlim()
        assert low < here["lower"].min()
        assert high > here["upper"].max()
        assert panel.get_title().replace("\n", " ") == trait


def test_llms_are_shown_in_the_order_asked_for():
    profile = made_up_profile(30, SUBJECTS[:2])
    chosen = [f"vendor/model-{number:03d}" for number in (7, 2, 29, 11)]
    panels = plot_trait_profile(profile, llms=chosen, most=3)
    assert labels_of(panels[0].yaxis) == chosen[:3]
    for panel, trait in zip(panels, SUBJECTS, strict=False):
        wanted = [profile.loc[(llm, trait), "ability"] for llm in chosen[:3]]
        np.testing.assert_array_equal(panel.lines[-1].get_xdata(), wanted)


def test_given_panels_are_used_one_a_trait():
    profile = made_up_profile(5, SUBJECTS[:2])
    panels = plt.subplots(1, 2)[1]
    assert plot_trait_profile(profile, panels) == list(panels)
    assert labels_of(panels[0].yaxis) == names_of(5, long=False)
    panels[1].figure.canvas.draw()
    assert not any(tick.label1.get_visible() for tick in panels[1].yaxis.get_major_ticks())
    with pytest.raises(InvalidConfigurationError, match="3 panels for 2 traits"):
        plot_trait_profile(profile, plt.subplots(1, 3)[1])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"llms": ["nobody"]}, "no LLM called 'nobody'"),
        ({"llms": []}, "No LLM is named"),
        ({"most": 0}, "most"),
    ],
)
def test_llms_that_are_not_there_are_refused(options, message):
    with pytest.raises(InvalidConfigurationError, match=message):
        plot_trait_profile(made_up_profile(5, SUBJECTS[:2]), **options)


# Correlations


@pytest.mark.parametrize("number", [2, 4, 14, 60])
def test_no_correlation_overlaps(number):
    traits = [*SUBJECTS, *(f"trait {number}" for number in range(60))][:number]
    panel = plot_trait_correlations(made_up_correlations(traits))
    figure, found = written([panel])
    assert overlapping(found) == []
    assert outside(figure, found) == []
    names = [f"{place}  {trait}" for place, trait in enumerate(traits, 1)]
    if number <= 14:
        assert [label.replace("…", "") for label in labels_of(panel.yaxis)][:2] == names[:2]
        assert labels_of(panel.xaxis) == [str(place) for place in range(1, number)]


def test_correlations_stand_below_the_diagonal_with_their_intervals():
    table = made_up_correlations(SUBJECTS[:5])
    table.iloc[0] = (-0.001, -0.2, 0.004)
    panel = plot_trait_correlations(table)
    values = panel.images[0].get_array()
    texts = {text.get_position(): text for text in panel.texts}
    assert len(texts) == len(table) == values.count()
    for (one, other), row in table.iterrows():
        column, line = SUBJECTS.index(one), SUBJECTS.index(other)
        assert values[line, column] == row["correlation"]
        mean, interval = texts[column, line].get_text().split("\n")
        low, high = map(float, interval.split(" to "))
        np.testing.assert_allclose((float(mean), low, high), row, atol=0.0051)
        cell = panel.images[0].cmap(panel.images[0].norm(row["correlation"]))
        assert (texts[column, line].get_color() == "black") is is_light(cell)
    assert texts[0, 1].get_text() == "0.00\n-0.20 to 0.00"
    assert panel.images[0].get_clim() == (-1, 1)


def test_what_stands_in_the_cells_fits_them():
    table = made_up_correlations(SUBJECTS[:5])
    panel = plot_trait_correlations(table)
    panel.get_figure(root=True).canvas.draw()
    width, height = np.abs(panel.transData.transform((1, 1)) - panel.transData.transform((0, 0)))
    assert max(text.get_window_extent().width for text in panel.texts) < width
    assert max(text.get_window_extent().height for text in panel.texts) < height
    narrow = plot_trait_correlations(table, plt.subplots(figsize=(3.4, 2.4))[1])
    assert {len(text.get_text()) for text in narrow.texts} <= {4, 5}
    assert len(narrow.texts) == len(table)
    assert list(plot_trait_correlations(table, plt.subplots(figsize=(0.9, 0.7))[1]).texts) == []


@pytest.mark.parametrize(("style", "none"), [("default", "white"), ("dark_background", "black")])
def test_no_correlation_has_the_colour_of_the_page(style, none):
    with plt.style.context(style):
        colours = plot_trait_correlations(made_up_correlations(SUBJECTS[:3])).images[0].cmap
    np.testing.assert_allclose(colours(0.5)[:3], to_rgb(none), atol=0.02)


# Loadings


@pytest.mark.parametrize(
    ("sizes", "general", "long"),
    [
        ((3, 3), False, True),
        ((30, 30, 40, 500), True, False),
        ((860,) * 14, False, True),
        ((3,) * 14, True, True),
    ],
)
def test_no_item_overlaps(sizes, general, long):
    panel = plot_trait_loadings(made_up_loadings(sizes, general=general, long=long))
    figure, found = written([panel])
    assert len(found) > len(sizes) + 5
    assert overlapping(found) == []
    assert outside(figure, found) == []


@pytest.mark.parametrize("general", [False, True])
def test_items_stand_by_trait_those_that_load_most_first(general):
    table = made_up_loadings((30, 20, 50), general=general)
    panel = plot_trait_loadings(table)
    values = panel.images[0].get_array().filled(np.nan)
    own = values[general:]
    assert values.shape == (3 + general, 100)
    np.testing.assert_array_equal(np.isfinite(own).sum(axis=0), 1)
    np.testing.assert_array_equal(np.flatnonzero(np.diff(np.nanargmax(own, axis=0))) + 1, [30, 50])
    for block in (slice(0, 30), slice(30, 50), slice(50, 100)):
        assert (np.diff(np.nanmax(own[:, block], axis=0)) <= 0).all()
    for place, label in zip(panel.get_xticks(), labels_of(panel.xaxis), strict=True):
        for row, trait in enumerate(labels_of(panel.yaxis)):
            loads = table["discrimination"].get((trait, label), np.nan)
            np.testing.assert_equal(values[row, int(place)], loads)


def test_the_first_item_of_each_block_is_named():
    panel = plot_trait_loadings(made_up_loadings((300, 300, 40, 500)))
    starts = np.cumsum([0, 300, 300, 40])
    named = panel.get_xticks()
    assert set(starts) <= set(named)
    assert len(named) < 80
    edges = sorted(line.get_xdata()[0] for line in panel.lines)
    np.testing.assert_array_equal(edges, starts[1:] - 0.5)


def test_items_of_several_traits_stand_by_the_one_on_which_they_load_most():
    rows = [("a", "one", 2.0), ("a", "both", 0.5), ("b", "both", 1.5), ("b", "two", 1.0), ("b", "more", 3.0)]
    table = pd.DataFrame(rows, columns=["trait", "item", "discrimination"]).set_index(["trait", "item"])
    panel = plot_trait_loadings(table)
    assert labels_of(panel.xaxis) == ["one", "more", "both", "two"]
    np.testing.assert_array_equal(
        panel.images[0].get_array().filled(0), [[2.0, 0, 0.5, 0], [0, 3.0, 1.5, 1.0]]
    )


def test_items_of_the_general_trait_alone_come_first():
    rows = [("general", item, 1.0) for item in ("x", "y", "z")] + [("a", "x", 0.5), ("a", "y", 0.7)]
    table = pd.DataFrame(rows, columns=["trait", "item", "discrimination"]).set_index(["trait", "item"])
    assert labels_of(plot_trait_loadings(table).xaxis) == ["z", "y", "x"]


@pytest.mark.parametrize("style", STYLES)
def test_larger_discriminations_stand_out_more(style):
    with plt.style.context(style):
        panel = plot_trait_loadings(made_up_loadings((5, 5)))
        page = np.array(to_rgb(panel.get_facecolor()))
    colours = panel.images[0].cmap(np.linspace(0, 1, 20))[:, :3]
    assert (np.diff(np.abs(colours - page).sum(axis=1)) > 0).all()
    assert panel.images[0].get_clim()[0] == 0
