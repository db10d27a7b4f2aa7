"""`check_responses` finds what was planted, and says so with figures."""

import time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bayes_irt.checks import Outcome
from bayes_irt.data_checks import _expected_pairs, check_responses, linked_components
from bayes_irt.readers import read_responses
from bayes_irt.responses import Responses

NAN = float("nan")


def random_scores(llms, items, seed=0):
    rng = np.random.default_rng(seed)
    logits = rng.normal(size=(llms, 1)) - rng.normal(size=items)
    return (rng.random((llms, items)) < 1 / (1 + np.exp(-logits))).astype(float)


def test_clean_responses_pass():
    report = check_responses(Responses.from_arrays(random_scores(100, 80, seed=1)))
    assert report.passed, str(report)
    assert [check.name for check in report] == [
        "enough LLMs",
        "constant LLMs",
        "constant items",
        "duplicated LLMs",
        "duplicated items",
        "linked LLMs",
    ]


def test_constant_llms_and_items_are_told_apart():
    scores = random_scores(60, 40)
    scores[3], scores[5] = 1, 0
    scores[:, 7] = 1
    scores[5, 7] = NAN
    scores[:, 8] = 0
    scores[3, 8] = NAN
    report = check_responses(Responses.from_arrays(scores))
    assert report["constant LLMs"].outcome is Outcome.FAIL
    assert report["constant LLMs"].labels == ("llm-004", "llm-006")
    assert "2 of 60 LLMs are constant: 1 all right, 1 all wrong" in report["constant LLMs"].message
    assert report["constant items"].labels == ("item-0008", "item-0009")
    assert "1 all right, 1 all wrong" in report["constant items"].message


def test_copied_llms_and_items_fail():
    scores = random_scores(60, 40)
    scores[9], scores[11] = scores[2], scores[2]
    scores[:, 6] = scores[:, 30]
    report = check_responses(Responses.from_arrays(scores))
    assert report["duplicated LLMs"].outcome is Outcome.FAIL
    assert report["duplicated LLMs"].labels == ("llm-003", "llm-010", "llm-012")
    assert "3 LLMs in 1 group (3 pairs)" in report["duplicated LLMs"].message
    assert report["duplicated items"].outcome is Outcome.FAIL
    assert report["duplicated items"].labels == ("item-0007", "item-0031")


def test_another_missing_cell_makes_no_copy():
    scores = random_scores(60, 40)
    scores[9] = scores[2]
    scores[9, 4] = NAN
    assert check_responses(Responses.from_arrays(scores))["duplicated LLMs"].outcome is Outcome.PASS


def test_copies_among_counts_are_found():
    rng = np.random.default_rng(0)
    attempts = np.full((30, 20), 10)
    successes = rng.binomial(attempts, 0.5)
    successes[4] = successes[5]
    report = check_responses(Responses.from_arrays(successes, attempts))
    assert report["duplicated LLMs"].labels == ("llm-005", "llm-006")


def test_few_llms_cannot_tell_copies_from_chance():
    report = check_responses(Responses.from_arrays(random_scores(6, 300)))
    assert report["duplicated items"].outcome is Outcome.CANNOT_TELL
    assert "Chance alone" in report["duplicated items"].message


def test_expected_pairs_match_simulated_ones():
    # The mean over 300 suites has standard error sd / sqrt(300); 4.5 of them and 5 % for PROX are allowed.
    found, expected = [], []
    rng = np.random.default_rng(5)
    ability = rng.normal(size=(12, 1))
    for _ in range(300):
        logits = ability - rng.normal(size=200)
        responses = Responses.from_arrays(rng.random((12, 200)) < 1 / (1 + np.exp(-logits)))
        columns = responses.successes.T
        varied = np.flatnonzero((columns.sum(axis=1) > 0) & (columns.sum(axis=1) < 12))
        _, sizes = np.unique(columns[varied], axis=0, return_counts=True)
        found.append((sizes * (sizes - 1) / 2).sum())
        expected.append(_expected_pairs(responses, "item", varied))
    gap = np.array(found) - np.array(expected)
    assert abs(gap.mean()) < 4.5 * gap.std() / np.sqrt(300) + 0.05 * np.mean(found)
    assert np.mean(found) > 10


@pytest.mark.parametrize(
    ("number", "outcome"),
    [(2, "fail"), (3, "fail"), (4, "cannot tell"), (19, "cannot tell"), (20, "pass")],
)
def test_number_of_llms(number, outcome):
    assert check_responses(Responses.from_arrays(random_scores(number, 50)))["enough LLMs"].outcome == outcome


def test_unlinked_llms_are_named():
    scores = np.full((6, 5), NAN)
    scores[:4, :3] = random_scores(4, 3)
    scores[4:, 3:] = random_scores(2, 2)
    responses = Responses.from_arrays(scores)
    order = ["llm-005", "llm-001", "llm-006", "llm-002", "llm-003", "llm-004"]
    assert linked_components(responses) == [responses.llms[:4], responses.llms[4:]]
    assert linked_components(responses.subset(order))[1] == ("llm-005", "llm-006")
    check = check_responses(responses)["linked LLMs"]
    assert check.outcome is Outcome.FAIL
    assert check.labels == ("llm-005", "llm-006")
    assert "2 groups without common items (sizes 4, 2)" in check.message


def test_a_chain_of_common_items_links():
    scores = np.full((5, 5), NAN)
    for llm in range(5):
        scores[llm, llm] = scores[llm, (llm + 1) % 5] = llm % 2
    assert len(linked_components(Responses.from_arrays(scores))) == 1


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 2**32 - 1))
def test_components_do_not_depend_on_the_order(seed):
    rng = np.random.default_rng(seed)
    scores = np.where(rng.random((8, 8)) < 0.2, 1.0, NAN)
    np.fill_diagonal(scores, 0.0)
    responses = Responses.from_arrays(scores)
    shuffled = responses.subset(rng.permutation(responses.llms), rng.permutation(responses.items))
    groups = {frozenset(group) for group in linked_components(responses)}
    assert groups == {frozenset(group) for group in linked_components(shuffled)}
    assert sum(len(group) for group in groups) == 8
    sizes = [len(group) for group in linked_components(shuffled)]
    assert sizes == sorted(sizes, reverse=True)


def test_real_data(data_dir):
    math = check_responses(read_responses(data_dir / "math500_paper.parquet"))
    assert "(13 pairs)" in math["duplicated LLMs"].message
    assert len(math["duplicated LLMs"].labels) == 26
    assert len(math["constant items"].labels) == 11
    sparse = check_responses(read_responses(data_dir / "agentic_sparse.parquet"))
    assert "27 all right, 138 all wrong" in sparse["constant items"].message
    assert sparse["linked LLMs"].outcome is Outcome.PASS
    lsat = check_responses(read_responses(data_dir / "classic_lsat7.parquet"))
    assert lsat["duplicated LLMs"].outcome is Outcome.CANNOT_TELL


def test_large_suites_take_seconds():
    rng = np.random.default_rng(0)
    responses = Responses.from_arrays(rng.integers(0, 2, (2211, 6000), dtype=np.uint8))
    started = time.monotonic()
    check_responses(responses)
    assert time.monotonic() - started < 20
