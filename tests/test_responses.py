"""`Responses`: what it holds, what it refuses, and that nothing changes it."""

import pickle

import numpy as np
import pandas as pd
import pytest
import xarray as xr
from hypothesis import given, settings
from hypothesis import strategies as st

from bayes_irt.errors import InvalidResponsesError, RunDirectoryError
from bayes_irt.responses import Responses
from bayes_irt.table_columns import TableColumns

NAN = float("nan")


@pytest.fixture
def counts() -> Responses:
    return Responses.from_arrays(
        [[3, 0, 0], [4, 300, 1]],
        [[4, 4, 0], [4, 300, 1]],
        llms=["a", "b"],
        items=["x", "y", "z"],
        llm_metadata=pd.DataFrame({"size": [9.5, NAN], "open": [True, False]}, index=["b", "a"]),
        item_metadata=pd.DataFrame({"topic": ["algebra"], "attempts": [7]}, index=["y"]),
    )


SUITES = st.tuples(st.integers(2, 6), st.integers(2, 6), st.integers(0, 2**32 - 1))


def small_responses(suite) -> Responses:
    """Return random counts with missing cells; the first LLM and the first item are complete."""
    llms, items, seed = suite
    rng = np.random.default_rng(seed)
    attempts = rng.integers(0, 4, (llms, items))
    attempts[0] += 1
    attempts[:, 0] += 1
    return Responses.from_arrays(rng.binomial(attempts, 0.5), attempts)


def test_counts_take_the_smallest_unsigned_type(counts):
    assert counts.successes.dtype == counts.attempts.dtype == np.uint16
    assert Responses.from_arrays([[255, 0], [1, 1]], [[255, 1], [1, 1]]).attempts.dtype == np.uint8
    assert Responses.from_arrays([[0, 0], [1, 1]], [[2**40, 1], [1, 1]]).attempts.dtype == np.uint64


def test_figures(counts):
    assert (counts.num_llms, counts.num_items) == (2, 3)
    assert (counts.num_observed, counts.num_attempts) == (5, 313)
    assert not counts.is_binary
    assert counts.llms == ("a", "b")
    assert counts.items == ("x", "y", "z")


def test_default_labels_and_nan_means_missing():
    responses = Responses.from_arrays([[1.0, NAN], [0.0, 1.0]])
    assert responses.llms == ("llm-001", "llm-002")
    assert responses.items == ("item-0001", "item-0002")
    assert responses.attempts.tolist() == [[1, 0], [1, 1]]
    assert responses.is_binary


def test_truth_values_are_scores():
    assert Responses.from_arrays(np.array([[True, False], [True, True]])).successes.tolist() == [
        [1, 0],
        [1, 1],
    ]


def test_metadata_follow_the_labels_and_clashes_get_a_prefix(counts):
    assert counts.llm_metadata.loc["b", "size"] == 9.5
    assert counts.llm_metadata["open"].tolist() == [False, True]
    assert np.isnan(counts.llm_metadata.loc["a", "size"])
    assert counts.item_metadata.columns.tolist() == ["topic", "item_attempts"]
    assert counts.item_metadata["topic"].isna().tolist() == [True, False, True]


def test_a_name_that_both_use_gets_both_prefixes():
    responses = Responses.from_arrays(
        [[1, 0], [0, 1]],
        llms=["a", "b"],
        items=["x", "y"],
        llm_metadata=pd.DataFrame({"group": ["u", "v"]}, index=["a", "b"]),
        item_metadata=pd.DataFrame({"group": ["s", "t"]}, index=["x", "y"]),
    )
    assert responses.dataset["llm_group"].dims == ("llm",)
    assert responses.dataset["item_group"].values.tolist() == ["s", "t"]


@pytest.mark.parametrize("name", ["successes", "attempts"])
def test_counts_refuse_writing(counts, name):
    with pytest.raises(ValueError, match="read-only"):
        getattr(counts, name)[0, 0] = 1
    with pytest.raises(ValueError, match="read-only"):
        counts.dataset[name].values[0, 0] = 1
    with pytest.raises(ValueError, match=r"read-only|is a view"):
        counts.dataset[name][0, 0] = 1
    with pytest.raises(ValueError, match="cannot set WRITEABLE"):
        counts.dataset[name].values.flags.writeable = True


def test_metadata_refuse_writing(counts):
    with pytest.raises(ValueError, match="read-only"):
        counts.dataset["size"].values[0] = 1
    table = counts.llm_metadata
    table["size"] = 0.0
    assert counts.llm_metadata.loc["b", "size"] == 9.5


def test_assigning_to_the_dataset_or_the_input_changes_nothing(counts):
    digest = counts.digest
    counts.dataset["successes"] = xr.zeros_like(counts.dataset["successes"])
    with pytest.raises((AttributeError, TypeError)):
        counts.dataset = counts.dataset
    assert counts.digest == digest
    scores = np.array([[1, 0], [0, 1]], dtype=np.uint8)
    responses = Responses.from_arrays(scores)
    scores[:] = 0
    assert responses.successes.tolist() == [[1, 0], [0, 1]]


def test_digest_ignores_type_and_layout_but_not_order_or_labels():
    scores = np.array([[1, 0, 1], [0, 1, 1]])
    digest = Responses.from_arrays(scores).digest
    for same in (scores.astype(np.int8), np.asfortranarray(scores), scores.astype(float)):
        assert Responses.from_arrays(same).digest == digest
    other = Responses.from_arrays(scores)
    assert other.subset(items=other.items[::-1]).digest != digest
    assert Responses.from_arrays(scores, llms=["a", "b"]).digest != digest
    assert Responses.from_arrays(1 - scores).digest != digest


def test_equality_is_by_content(counts):
    assert counts == Responses(counts.dataset)
    assert hash(counts) == hash(Responses(counts.dataset))
    assert counts != counts.subset(items=["x", "z", "y"])
    assert counts != Responses(counts.dataset.drop_vars("size"))
    assert counts != "text"


def test_repr_says_what_is_there(counts):
    assert repr(counts) == (
        "Responses: 2 LLMs x 3 items, 313 attempts (1 to 300 per cell), 16.7 % missing, accuracy .38 to "
        "1.00; LLM metadata: size, open; item metadata: topic, item_attempts"
    )


def test_repr_does_not_round_missing_cells_away():
    scores = np.ones((40, 50))
    scores[3, 4] = NAN
    assert "under 0.1 % missing" in repr(Responses.from_arrays(scores))


def test_subset_takes_the_order_given_and_keeps_metadata(counts):
    turned = counts.subset(llms=["b", "a"], items=["y", "x"])
    assert turned.llms == ("b", "a")
    assert turned.successes.tolist() == [[300, 4], [0, 3]]
    assert turned.llm_metadata.loc["b", "size"] == 9.5
    assert counts.subset(items=["x", "z"]).attempts.dtype == np.uint8


def test_unknown_labels_are_named(counts):
    with pytest.raises(InvalidResponsesError, match=r"1 unknown LLM label: 'c'.*'a', 'b'"):
        counts.subset(llms=["a", "c"])
    with pytest.raises(InvalidResponsesError, match="2 unknown item labels: 'p', 'q'"):
        counts.drop(items=["p", "x", "q"])


def test_a_subset_that_empties_an_item_says_so_and_can_drop_it():
    responses = Responses.from_arrays([[1, 0, NAN], [1, 1, NAN], [1, 0, 1]])
    with pytest.raises(InvalidResponsesError, match=r"1 item without an answer \('item-0003'\).*drop_empty"):
        responses.drop(llms=["llm-003"])
    with pytest.warns(UserWarning, match="Left out 1 item without an answer: 'item-0003'"):
        left = responses.drop(llms=["llm-003"], drop_empty=True)
    assert left.items == ("item-0001", "item-0002")


def test_merge_joins_blocks_and_metadata():
    first = Responses.from_arrays(
        [[1, 0], [1, 1]],
        llms=["a", "b"],
        items=["x", "y"],
        llm_metadata=pd.DataFrame({"size": [7, 9]}, ["a", "b"]),
    )
    second = Responses.from_arrays(
        [[0, 1], [1, 0]],
        llms=["b", "c"],
        items=["z", "y"],
        llm_metadata=pd.DataFrame({"size": [9, 70], "open": [True, False]}, ["b", "c"]),
    ).subset(items=["z", "y"])
    with pytest.raises(InvalidResponsesError, match=r"1 cell with answers on both.*LLM 'b', item 'y'"):
        first.merge(second)
    merged = first.merge(second, repeats="add")
    assert merged.llms == ("a", "b", "c")
    assert merged.items == ("x", "y", "z")
    assert merged.attempts.tolist() == [[1, 1, 0], [1, 2, 1], [0, 1, 1]]
    assert merged.successes.tolist() == [[1, 0, 0], [1, 2, 0], [0, 0, 1]]
    assert merged.llm_metadata["size"].tolist() == [7, 9, 70]
    assert merged.llm_metadata["open"].tolist()[1:] == [True, False]


def test_merge_refuses_metadata_that_contradict():
    def one(llms, size):
        return Responses.from_arrays(
            [[1, 0], [0, 1]], llms=llms, llm_metadata=pd.DataFrame({"size": size}, llms)
        )

    with pytest.raises(InvalidResponsesError, match=r"differ in column 'size' \(first: 'b', 9 against 8\)"):
        one(["a", "b"], [7, 9]).merge(one(["b", "c"], [8, 70]), repeats="add")


def test_save_and_load_give_an_equal_object(tmp_path):
    labels = ["a", "b/c", "01"]
    llm_metadata = pd.DataFrame(
        {
            "text": ["plain", "", None],
            "dash/slash%2F a space %20": ["-", "+", "é"],
            "whole": [1, 2, 3],
            "number": [1.5, NAN, -2.0],
            "yes": [True, False, True],
            "perhaps": pd.array([True, None, False], dtype="boolean"),
            "date": pd.to_datetime(["2024-05-01", None, "2025-01-31T12:00"], format="ISO8601"),
            "nothing": [None, None, None],
            "kind": pd.Categorical(["u", "v", "u"]),
        },
        index=labels,
    )
    responses = Responses.from_arrays(
        [[3, 0], [4, 2], [0, 9]], [[9, 0], [9, 9], [9, 9]], llms=labels, llm_metadata=llm_metadata
    )
    path = tmp_path / "responses.nc"
    responses.save(path)
    loaded = Responses.load(path)
    assert loaded == responses
    assert loaded.digest == responses.digest
    assert list(path.parent.iterdir()) == [path]
    pd.testing.assert_frame_equal(loaded.llm_metadata, responses.llm_metadata)
    assert loaded.llm_metadata["text"].isna().tolist() == [False, False, True]
    assert loaded.llm_metadata["yes"].dtype == bool


def test_save_refuses_to_overwrite(tmp_path, counts):
    path = tmp_path / "responses.nc"
    counts.save(path)
    with pytest.raises(RunDirectoryError, match="exists already"):
        counts.save(path)
    counts.subset(items=["x", "y"]).save(path, force=True)
    assert Responses.load(path).num_items == 2
    with pytest.raises(RunDirectoryError, match="does not exist"):
        counts.save(tmp_path / "absent" / "responses.nc")


def test_load_refuses_other_files(tmp_path):
    path = tmp_path / "text.nc"
    path.write_text("no netCDF")
    with pytest.raises(InvalidResponsesError, match="cannot be read as saved responses"):
        Responses.load(path)
    with pytest.raises(InvalidResponsesError, match="cannot be read as saved responses"):
        Responses.load(tmp_path / "absent.nc")
    other = tmp_path / "other.nc"
    xr.Dataset({"x": ("d", [1, 2])}).to_netcdf(other, engine="h5netcdf")
    with pytest.raises(InvalidResponsesError, match="does not hold saved responses"):
        Responses.load(other)


def test_pickling_for_other_processes(counts):
    assert pickle.loads(pickle.dumps(counts)) == counts


ARRAYS = {
    "more successes than attempts": (
        ([[2, 0], [1, 1]],),
        r"1 cell with more successes than attempts \(first: LLM 'llm-001', item 'item-0001'\)",
    ),
    "successes in a missing cell": (([[1, 0], [1, 1]], [[0, 1], [1, 1]]), "more successes than attempts"),
    "negative": (([[-1, 0], [1, 1]],), r"1 cell with negative successes .* recode -1/1"),
    "fractional": (([[0.5, 0], [1, 0.25]],), "2 cells with successes that are not whole numbers"),
    "infinite": (([[np.inf, 0], [1, 1]],), "NaN or infinite"),
    "NaN among counts": (([[NAN, 0], [1, 1]], [[1, 1], [1, 1]]), "NaN or infinite"),
    "text": (([["a", "b"], ["c", "d"]],), "Whole numbers are required"),
    "shapes": (([[1, 0], [0, 1]], [[1, 1]]), r"shape \(2, 2\), attempts \(1, 2\)"),
    "one dimension": (([1, 0],), "1 dimensions. Two are required"),
    "one LLM": (([[1, 0]],), "only one LLM: 'llm-001'. At least two"),
    "one item": (([[1], [0]],), "only one item: 'item-0001'. At least two"),
    "nothing": ((np.empty((0, 0)),), "no LLM"),
    "empty row": (([[NAN, NAN], [1, 0]],), r"1 LLM without an answer \('llm-001'\).*--drop-empty"),
    "empty columns": (
        ([[NAN, 1, NAN], [NAN, 0, NAN]],),
        r"2 items without an answer \('item-0001', 'item-0003'\)",
    ),
}


@pytest.mark.parametrize(("arguments", "message"), ARRAYS.values(), ids=ARRAYS.keys())
def test_bad_arrays_are_refused(arguments, message):
    with pytest.raises(InvalidResponsesError, match=message):
        Responses.from_arrays(*arguments)


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        (["a", "a"], "1 LLM label used more than once: 'a'"),
        (["a"], "1 LLM label for 2 rows"),
        (["a", ""], "An LLM has an empty label"),
    ],
)
def test_bad_labels_are_refused(labels, message):
    with pytest.raises(InvalidResponsesError, match=message):
        Responses.from_arrays([[1, 0], [0, 1]], llms=labels)


@pytest.mark.parametrize(
    ("index", "message"),
    [(["c", "d"], "name none of the LLMs"), (["a", "a"], r"several rows for 1 LLM \('a'\)")],
)
def test_metadata_that_do_not_match_are_refused(index, message):
    with pytest.raises(InvalidResponsesError, match=message):
        Responses.from_arrays(
            [[1, 0], [0, 1]], llms=["a", "b"], llm_metadata=pd.DataFrame({"x": [1, 2]}, index=index)
        )


def test_a_dataset_of_another_form_is_refused(counts):
    with pytest.raises(InvalidResponsesError, match="it lacks 'attempts'"):
        Responses(counts.dataset.drop_vars("attempts"))
    with pytest.raises(InvalidResponsesError, match="describe neither LLMs nor items"):
        Responses(counts.dataset.assign_coords(version=3))


@settings(max_examples=30, deadline=None)
@given(SUITES, st.randoms(use_true_random=False))
def test_permuting_and_back_changes_nothing(suite, random):
    responses = small_responses(suite)
    llms, items = list(responses.llms), list(responses.items)
    random.shuffle(llms)
    random.shuffle(items)
    shuffled = responses.subset(llms, items)
    assert shuffled.num_attempts == responses.num_attempts
    assert shuffled.subset(responses.llms, responses.items) == responses


@settings(max_examples=30, deadline=None)
@given(SUITES)
def test_parts_merge_into_the_whole(suite):
    responses = small_responses(suite)
    doubled = responses.merge(responses, repeats="add")
    np.testing.assert_array_equal(doubled.attempts, 2 * responses.attempts.astype(int))
    np.testing.assert_array_equal(doubled.successes, 2 * responses.successes.astype(int))
    renamed = Responses.from_arrays(
        responses.successes, responses.attempts, llms=[f"other-{i}" for i in range(responses.num_llms)]
    )
    assert responses.merge(renamed).subset(llms=responses.llms) == responses
    assert responses.merge(renamed).subset(llms=renamed.llms) == renamed


@settings(max_examples=30, deadline=None)
@given(SUITES)
def test_long_and_wide_tables_agree(suite):
    responses = small_responses(suite)
    tried = responses.attempts > 0
    solved = np.where(tried, (responses.successes > 0).astype(float), NAN)
    wide = pd.DataFrame(solved, columns=list(responses.items), index=list(responses.llms))
    long = wide.rename_axis("llm").reset_index().melt(id_vars="llm", var_name="item", value_name="score")
    expected = Responses.from_arrays(solved)
    assert Responses.from_wide(wide) == expected
    assert Responses.from_long(long) == expected
    assert Responses.from_long(long.dropna()).subset(expected.llms, expected.items) == expected
    turned = wide.T.rename_axis("item").reset_index()
    assert Responses.from_wide(turned) == expected
    counted = pd.DataFrame(
        {
            "llm": np.repeat(responses.llms, responses.num_items),
            "item": np.tile(responses.items, responses.num_llms),
            "successes": responses.successes.ravel(),
            "attempts": responses.attempts.ravel(),
        }
    )
    assert Responses.from_long(counted) == responses


def test_columns_can_be_named():
    frame = pd.DataFrame({"who": list("aabb"), "what": list("xyxy"), "ok": [1, 0, 1, 1]})
    responses = Responses.from_long(frame, TableColumns(llm="who", item="what", score="ok"))
    assert responses.llms == ("a", "b")
    with pytest.raises(InvalidResponsesError, match="no column 'absent'"):
        Responses.from_long(frame, TableColumns(llm="absent"))
