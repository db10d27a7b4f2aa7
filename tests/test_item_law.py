"""What a model reads from the items' metadata: floors, groups with a dispersion, testlets; and what it refuses."""

import numpy as np
import pandas as pd
import pytest

from bayes_irt.errors import InvalidConfigurationError
from bayes_irt.item_law import ItemGroups, item_groups, item_law, law_of_items
from bayes_irt.model_spec import ModelSpec
from bayes_irt.prior_simulation import simulate_from_prior
from bayes_irt.priors import LearnedShare
from bayes_irt.responses import Responses


def law(metadata=None, **options):
    """Return what a model says of items with this metadata, attempts being several."""
    frame = pd.DataFrame(index=range(4)) if metadata is None else pd.DataFrame(metadata)
    return law_of_items(ModelSpec(**options).settled(8), frame, len(frame))


# Floors


def test_plain_models_say_nothing_of_items():
    found = law(observation="binomial")
    assert (found.floor, found.dispersion, found.testlets) == (None, None, None)


@pytest.mark.parametrize(
    ("values", "floors"),
    [
        ([0.25, 0.5, 0.0], [0.25, 0.5, 0.0]),
        ([4, 5, 2], [0.25, 0.2, 0.5]),
        ([4.0, None, 10.0], [0.25, 0.0, 0.1]),
        ([0.25, np.nan, 0.125], [0.25, 0.0, 0.125]),
        (["4", "5", None], [0.25, 0.2, 0.0]),
        ([0, 0, 0], [0.0, 0.0, 0.0]),
    ],
)
def test_floors_are_probabilities_or_one_over_the_number_of_options(values, floors):
    found = law({"guess": values}, floor="guess").floor
    assert found.dtype == np.float64
    np.testing.assert_array_equal(found, floors)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ([0.25, 1.0], "neither probabilities from 0 to below 1 nor whole numbers of options from 2"),
        ([0.25, 4.0], "run from 0.25 to 4"),
        ([-0.1, 0.2], "run from -0.1 to 0.2"),
        ([1, 4], "run from 1 to 4"),
        ([2.5, 4], "run from 2.5 to 4"),
        ([np.inf, 0.2], "infinite floors"),
        ([np.inf, np.inf], "infinite floors"),
        ([None, None], "no floor at all"),
        (["four", "5"], "'four'.*no number"),
    ],
)
def test_columns_that_hold_no_floors_are_refused(values, message):
    with pytest.raises(InvalidConfigurationError, match=message):
        law({"guess": values}, floor="guess")


def test_metadata_of_other_items_are_refused():
    for spec in (ModelSpec(), ModelSpec(floor="guess"), ModelSpec(traits="guess")):
        with pytest.raises(InvalidConfigurationError, match="2 rows for 4 items"):
            simulate_from_prior(spec, 5, 4, item_metadata=pd.DataFrame({"guess": [0.2, 0.3]}))


def test_one_floor_is_every_item_s_and_learned_ones_stand_at_their_prior_mean():
    np.testing.assert_array_equal(law(floor=0.2).floor, np.full(4, 0.2))
    np.testing.assert_array_equal(law(floor=0).floor, np.zeros(4))
    np.testing.assert_array_equal(law(floor=LearnedShare(2.0, 6.0)).floor, np.full(4, 0.25))


@pytest.mark.parametrize("option", ["floor", "dispersion_groups", "item_groups"])
def test_absent_columns_are_named_beside_those_there_are(option):
    with pytest.raises(InvalidConfigurationError, match=f"no column 'kind'; there are 'topic'.*{option}"):
        law({"topic": ["a", "a", "b"]}, **{option: "kind"})
    with pytest.raises(InvalidConfigurationError, match="no column 'kind'; there is none"):
        law(**{option: "kind"})


# Groups


def test_testlets_are_groups_of_two_or_more():
    found = law({"text": ["b", "a", "b", None, "c", "a", np.nan]}, item_groups="text").testlets
    assert found.labels == ("a", "b")
    np.testing.assert_array_equal(found.number, [1, 0, 1, -1, -1, 0, -1])
    assert found.of_items() == ("b", "a", "b", "", "", "a", "")


def test_every_item_is_in_a_group_with_a_dispersion():
    found = law({"kind": ["b", "a", "b", None]}, dispersion_groups="kind").dispersion
    assert found.labels == ("", "a", "b")
    np.testing.assert_array_equal(found.number, [2, 1, 2, 0])
    alone = law().dispersion
    assert alone.labels == ("",)
    np.testing.assert_array_equal(alone.number, np.zeros(4))


def test_groups_are_texts_whatever_their_type():
    found = item_groups(pd.DataFrame({"year": [2023, 2024, 2023, 2024]}), "year")
    assert found.labels == ("2023", "2024")
    boolean = item_groups(pd.DataFrame({"hard": [True, False, True, False]}), "hard")
    assert boolean.labels == ("False", "True")


@pytest.mark.parametrize(
    ("values", "option", "message"),
    [
        (["a", "b", "c"], "item_groups", "No two items share a group in the column 'text'"),
        ([None, None, None], "item_groups", "No two items share a group"),
        (["a", "a", "a"], "item_groups", "All items are in one group in the column 'text' \\('a'\\)"),
        (["a", "a", "a"], "dispersion_groups", "tells none apart"),
    ],
)
def test_groups_that_tell_nothing_apart_are_refused(values, option, message):
    with pytest.raises(InvalidConfigurationError, match=message):
        law({"text": values}, **{option: "text"})


def test_groups_of_one_item_may_have_a_dispersion():
    found = law({"kind": ["a", "b", "c"]}, dispersion_groups="kind").dispersion
    np.testing.assert_array_equal(found.number, [0, 1, 2])


def test_labels_go_with_their_items():
    groups = ItemGroups(("x", "y"), np.array([1, -1, 0]))
    assert groups.of_items() == ("y", "", "x")


def test_metadata_are_those_of_the_responses():
    items = pd.DataFrame({"options": [4, 2, 5], "text": ["a", "a", "b"]}, index=["q1", "q2", "q3"])
    responses = Responses.from_arrays(
        [[1, 0, 1], [1, 1, 0]], items=list(items.index), item_metadata=items.loc[["q1", "q2", "q3"]]
    )
    found = item_law(ModelSpec(floor="options", item_groups="text").settled(1), responses)
    np.testing.assert_array_equal(found.floor, [0.25, 0.5, 0.2])
    np.testing.assert_array_equal(found.testlets.number, [0, 0, -1])
    assert found.dispersion is None
