"""Fractional scores: read by the rule that the user names, and refused where it does not fit."""

import json

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from test_cli import CBMM, call

from bayes_irt import Responses, ScoreParts, ScoreThreshold, TableColumns, read_responses
from bayes_irt.errors import InvalidConfigurationError, InvalidResponsesError
from bayes_irt.scores import counted_scores

WIDE = pd.DataFrame({"model": ["a", "b"], "q1": [0.5, 1.0], "q2": [0.25, None], "q3": [0.0, 0.75]})


def long_of(frame):
    return frame.melt("model", var_name="item", value_name="score")


@pytest.mark.parametrize("shape", ["wide", "turned", "long"])
@pytest.mark.parametrize(
    ("rule", "successes", "attempts"),
    [
        (ScoreThreshold(0.5), [[1, 0, 0], [1, 0, 1]], [[1, 1, 1], [1, 0, 1]]),
        (ScoreThreshold(0.75), [[0, 0, 0], [1, 0, 1]], [[1, 1, 1], [1, 0, 1]]),
        (ScoreParts(4), [[2, 1, 0], [4, 0, 3]], [[4, 4, 4], [4, 0, 4]]),
        (ScoreParts(300), [[150, 75, 0], [300, 0, 225]], [[300, 300, 300], [300, 0, 300]]),
    ],
)
def test_scores_become_counts_by_the_rule(shape, rule, successes, attempts):
    columns = TableColumns(scores=rule)
    if shape == "long":
        responses = Responses.from_long(long_of(WIDE), columns)
    else:
        turned = WIDE.set_index("model").T.rename_axis("item").reset_index()
        responses = Responses.from_wide(WIDE if shape == "wide" else turned, columns)
    np.testing.assert_array_equal(responses.successes, successes)
    np.testing.assert_array_equal(responses.attempts, attempts)


@pytest.mark.parametrize("build", [Responses.from_wide, lambda frame: Responses.from_long(long_of(frame))])
def test_without_a_rule_they_are_refused_and_the_rules_named(build):
    with pytest.raises(InvalidResponsesError, match=r"is fractional.*--threshold.*--parts"):
        build(WIDE)


@pytest.mark.parametrize(
    ("score", "rule", "wanted"),
    [
        (0.4, ScoreParts(4), "no share of 4 parts"),
        (0.34, ScoreParts(3), "no share of 3 parts"),
        (1.5, ScoreParts(2), "outside 0 to 1"),
        (-0.5, ScoreParts(2), "outside 0 to 1"),
        (0.502, ScoreParts(100), "no share of 100 parts"),
        (np.inf, ScoreThreshold(0.5), "text or infinite"),
        (np.inf, ScoreParts(2), "text or infinite"),
    ],
)
def test_scores_that_the_rule_does_not_fit_are_refused(score, rule, wanted):
    with pytest.raises(InvalidResponsesError, match=f"^cell 1 .*{wanted}"):
        counted_scores(np.array([1.0, score]), lambda cell: f"cell {cell}", rule)


@given(number=st.integers(2, 1000), data=st.data())
def test_every_share_is_found_again_as_printed_in_full(number, data):
    right = data.draw(st.integers(0, number))
    found = counted_scores(np.array([right / number, float(repr(right / number))]), str, ScoreParts(number))
    np.testing.assert_array_equal(found, [[right, right], [number, number]])


@given(number=st.integers(2, 19), data=st.data())
def test_two_decimals_are_enough_for_few_parts(number, data):
    right = data.draw(st.integers(0, number))
    found = counted_scores(np.array([round(right / number, 2)]), str, ScoreParts(number))
    np.testing.assert_array_equal(found, [[right], [number]])


@pytest.mark.parametrize(
    "make",
    [
        lambda: ScoreParts(1),
        lambda: ScoreParts(2.5),
        lambda: ScoreThreshold(np.nan),
        lambda: ScoreThreshold("1"),
    ],
)
def test_senseless_rules_are_refused(make):
    with pytest.raises(InvalidConfigurationError, match="must be"):
        make()


@pytest.mark.parametrize("rule", [0.5, "threshold"])
def test_what_is_no_rule_is_refused(rule):
    with pytest.raises(InvalidConfigurationError, match="ScoreThreshold"):
        Responses.from_wide(WIDE, TableColumns(scores=rule))


def test_a_rule_for_scores_is_refused_where_there_are_counts():
    counts = pd.DataFrame(
        {"llm": list("aabb"), "item": list("xyxy"), "successes": [1, 2, 0, 2], "attempts": 2}
    )
    with pytest.raises(InvalidResponsesError, match="would do nothing"):
        Responses.from_long(counts, TableColumns(scores=ScoreThreshold(0.5)))


def test_the_command_line_names_the_rule(tmp_path):
    table = tmp_path / "scores.csv"
    scores = np.random.default_rng(0).integers(0, 5, size=(8, 12)) / 4
    pd.DataFrame(scores).add_prefix("q").rename_axis("model").reset_index().to_csv(table, index=False)
    refused = call("fit", table, *CBMM, "-o", tmp_path / "no")
    assert refused.code == 2
    assert "--parts 4" in refused.err
    for name, option, attempts in (("parts", ("--parts", 4), 4), ("threshold", ("--threshold", 0.5), 1)):
        assert call("fit", table, *CBMM, "-o", tmp_path / name, *option).code == 0
        responses = Responses.load(tmp_path / name / "responses.nc")
        assert set(np.unique(responses.attempts)) == {attempts}
        assert str(option[1]) in json.loads((tmp_path / name / "run.json").read_text())["command"]
    both = call("fit", table, *CBMM, "-o", tmp_path / "both", "--parts", 4, "--threshold", 0.5)
    assert (both.code, "give one" in both.err) == (2, True)


def test_a_file_is_read_by_the_rule(tmp_path):
    path = tmp_path / "scores.csv"
    WIDE.to_csv(path, index=False)
    assert read_responses(path, columns=TableColumns(scores=ScoreParts(4))).attempts.max() == 4
