"""Two LLMs compared: against brute force and SciPy, verdicts, words, and what is refused."""

import io
import json
import re

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from bayes_irt.analysis.accuracy import expected_accuracy
from bayes_irt.analysis.pair import Verdict
from bayes_irt.analysis.paired_test import paired_test
from bayes_irt.analysis.pairs import compare_llms, pair_matrix
from bayes_irt.analysis.ranks import tie_groups, win_shares
from bayes_irt.errors import InvalidConfigurationError
from bayes_irt.posterior import posterior_from_draws
from bayes_irt.provenance import Provenance
from bayes_irt.responses import Responses

NAMES = ("gpt-4o", "a|b", "модель", "[bold]x", "01", "1")
ITEMS = 60


def suite(attempts=1, num_llms=6, seed=0):
    """Six LLMs in a clear order; the second lacks the first ten items, the fourth the last ten."""
    rng = np.random.default_rng(seed)
    tried = np.full((num_llms, ITEMS), attempts)
    if num_llms > 3:
        tried[1, :10], tried[3, -10:] = 0, 0
    chance = np.linspace(0.85, 0.15, num_llms)[:, None]
    return Responses.from_arrays(rng.binomial(tried, chance), tried, llms=NAMES[:num_llms])


def posterior_of(responses, spread=0.4, seed=1):
    rng = np.random.default_rng(seed)
    shape = (2, 150)
    ability = np.linspace(1.5, -1.5, responses.num_llms) + spread * rng.normal(
        size=(*shape, responses.num_llms)
    )
    draws = {
        "ability": ability[..., None],
        "discrimination": np.abs(rng.normal(1, 0.3, size=(*shape, ITEMS, 1))),
        "easiness": rng.normal(size=(*shape, ITEMS)),
    }
    labels = (responses.llms, responses.items)
    return posterior_from_draws(draws, {}, labels, Provenance("toy", {}, responses.digest, 0))


@pytest.fixture(scope="module")
def responses():
    return suite()


@pytest.fixture(scope="module")
def posterior(responses):
    return posterior_of(responses)


@pytest.fixture(scope="module")
def pair(posterior, responses):
    return compare_llms(posterior, responses, "gpt-4o", "a|b", prob=0.8)


def test_figures_are_those_of_the_draws(pair, posterior):
    ability = posterior.ability.to_numpy().reshape(-1, 6)
    gain = ability[:, 0] - ability[:, 1]
    expected = expected_accuracy(posterior)[:, :2]
    assert pair.p_better == pytest.approx(np.mean(gain > 0))
    assert pair.p_better == pytest.approx(np.mean(expected[:, 0] > expected[:, 1]))  # one trait: one order
    for found, draws in (
        (pair.ability_difference, gain),
        (pair.expected_difference, expected[:, 0] - expected[:, 1]),
        (pair.expected_accuracy[0], expected[:, 0]),
        (pair.expected_accuracy[1], expected[:, 1]),
    ):
        wanted = [draws.mean(), *np.quantile(draws, [0.1, 0.9])]
        np.testing.assert_allclose([found.mean, found.lower, found.upper], wanted)


def test_observed_figures_are_those_of_the_cells(pair, responses):
    first, second = responses.successes[:2].astype(float)
    assert pair.accuracy == pytest.approx((first.mean(), second[10:].mean()))
    assert pair.shared_accuracy == pytest.approx((first[10:].mean(), second[10:].mean()))
    assert (pair.items_seen, pair.items_shared, pair.num_items) == ((60, 50), 50, 60)
    only_a, only_b = (np.sum(first[10:] > second[10:]), np.sum(first[10:] < second[10:]))
    assert (pair.test.only_a, pair.test.only_b) == (only_a, only_b)
    assert pair.test.p_value == pytest.approx(stats.binomtest(only_a, only_a + only_b).pvalue)
    assert pair.test.difference == pytest.approx(pair.shared_accuracy[0] - pair.shared_accuracy[1])
    error = np.std(first[10:] - second[10:], ddof=1) / np.sqrt(50)
    assert pair.test.standard_error == pytest.approx(error)
    assert pair.test.z == pytest.approx(pair.test.difference / error)


def test_the_other_way_round(pair, posterior, responses):
    turned = compare_llms(posterior, responses, "a|b", "gpt-4o", prob=0.8)
    assert turned.p_better == pytest.approx(1 - pair.p_better)
    assert turned.expected_difference.lower == pytest.approx(-pair.expected_difference.upper)
    assert turned.ability_difference.mean == pytest.approx(-pair.ability_difference.mean)
    assert turned.test.p_value == pytest.approx(pair.test.p_value)
    assert turned.test.z == pytest.approx(-pair.test.z)


def test_counts_take_the_paired_standard_error():
    responses = suite(attempts=4)
    test = compare_llms(posterior_of(responses), responses, "gpt-4o", "модель").test
    shares = responses.successes[[0, 2]] / 4
    assert test.name == "paired standard error"
    assert test.p_value == pytest.approx(stats.ttest_rel(*shares).pvalue)
    assert test.z == pytest.approx(stats.ttest_rel(*shares).statistic)


def test_one_cell_with_two_attempts_is_not_mcnemars():
    tried = np.ones((6, ITEMS), dtype=int)
    tried[0, 0] = 2
    responses = Responses.from_arrays(np.eye(6, ITEMS, dtype=int), tried, llms=NAMES)
    names = [compare_llms(posterior_of(responses), responses, a, "1").test.name for a in NAMES[:2]]
    assert names == ["paired standard error", "exact McNemar"]


def test_mcnemars_p_values_are_valid_and_not_idle():
    """Under equal chances p <= .05 in at most 5 % of 2,000 pairs, within 4.5 standard errors (.022)."""
    rng = np.random.default_rng(2)
    chance = rng.random(80)
    same = [
        paired_test(*rng.binomial(1, chance, size=(2, 80)).astype(float), single=True).p_value
        for _ in range(2000)
    ]
    assert np.mean(np.array(same) <= 0.05) < 0.05 + 0.022
    better = np.clip(chance + 0.25, 0, 1)
    apart = [
        paired_test(
            rng.binomial(1, better).astype(float), rng.binomial(1, chance).astype(float), single=True
        ).p_value
        for _ in range(300)
    ]
    assert np.mean(np.array(apart) <= 0.05) > 0.5


def test_tests_that_cannot_be_computed_say_so():
    one = np.array([1.0])
    test = paired_test(one, one - 0.5, single=False)
    assert (test.standard_error, test.z, test.p_value) == (None, None, None)
    assert "no p-value" in str(test)
    alike = paired_test(
        np.array([3, 2]) / 3, np.array([2, 1]) / 3, single=False
    )  # both differences 1/3, but rounded
    assert (alike.z, alike.p_value) == (None, None)
    same = paired_test(np.ones(5), np.ones(5), single=True)
    assert (same.p_value, same.z) == (1.0, None)


def test_verdicts_follow_the_threshold(posterior, responses):
    p_better = compare_llms(posterior, responses, "gpt-4o", "a|b").p_better
    assert 0.8 < p_better < 0.95
    verdicts = {
        (a, b, threshold): compare_llms(posterior, responses, a, b, threshold=threshold).verdict
        for a, b in (("gpt-4o", "a|b"), ("a|b", "gpt-4o"))
        for threshold in (0.8, 0.95)
    }
    assert verdicts == {
        ("gpt-4o", "a|b", 0.8): Verdict.A_BETTER,
        ("gpt-4o", "a|b", 0.95): Verdict.NOT_SEPARATED,
        ("a|b", "gpt-4o", 0.8): Verdict.B_BETTER,
        ("a|b", "gpt-4o", 0.95): Verdict.NOT_SEPARATED,
    }


def test_the_sentence_says_what_the_verdict_is(posterior, responses, pair):
    assert pair.sentence.startswith(
        f"gpt-4o and a|b are not separated at 95%: P(gpt-4o > a|b) = .{pair.p_better * 1000:.0f}"
    )
    assert "On the 50 items that both answered" in pair.sentence
    assert "exact McNemar p = " in pair.sentence
    assert "80% intervals cover run-to-run noise" in pair.sentence
    last = compare_llms(posterior, responses, "1", "gpt-4o")
    assert last.sentence.startswith("gpt-4o is better than 1 at 95%: P(1 > gpt-4o) < .001")


def test_nobody_is_better_where_there_is_no_common_ability():
    """The same draws, but columns shuffled: the scores do not differ more than chance lets them."""
    rng = np.random.default_rng(0)
    noise = Responses.from_arrays(rng.permuted(suite().successes, axis=0), llms=NAMES)
    pair = compare_llms(posterior_of(noise), noise, "gpt-4o", "1")
    assert pair.p_better > 0.99
    assert not pair.found_ability
    assert pair.verdict is Verdict.NOT_SEPARATED
    assert "no common ability" in pair.sentence


def test_below_four_llms_ability_is_not_applicable():
    responses = suite(num_llms=3)
    pair = compare_llms(posterior_of(responses), responses, "gpt-4o", "модель")
    assert pair.ability_difference is None
    assert pair.verdict is Verdict.A_BETTER
    assert "ability is not applicable" in pair.sentence
    assert json.loads(pair.to_json())["ability_difference"] is None
    assert pair.expected_difference.lower > 0
    assert compare_llms(posterior_of(suite()), suite(), "gpt-4o", "модель").ability_difference is not None


def test_linked_llms_may_share_no_item():
    tried = np.ones((6, ITEMS), dtype=int)
    tried[0, :30], tried[1, 30:] = 0, 0
    responses = Responses.from_arrays(np.random.default_rng(0).binomial(tried, 0.5), tried, llms=NAMES)
    pair = compare_llms(posterior_of(responses), responses, "gpt-4o", "a|b")
    assert (pair.items_shared, pair.shared_accuracy, pair.test) == (0, None, None)
    assert "share no item" in pair.sentence
    assert pair.formatted().iloc[2].tolist()[1:] == ["n/a"] * 3
    assert json.loads(pair.to_json())["test_p_value"] is None


def test_disjoint_pairs_are_refused_by_name():
    """{A, B} saw one set of items, {C, D} another: nothing links them."""
    tried = np.zeros((4, ITEMS), dtype=int)
    tried[:2, :30], tried[2:, 30:] = 1, 1
    responses = Responses.from_arrays(np.random.default_rng(0).binomial(tried, 0.5), tried, llms=list("ABCD"))
    posterior = posterior_of(responses)
    for refused in (
        lambda: compare_llms(posterior, responses, "A", "C"),
        lambda: compare_llms(posterior, responses, "A", "B"),
        lambda: pair_matrix(posterior, responses),
    ):
        with pytest.raises(InvalidConfigurationError, match="share no item: 'A', 'B' / 'C', 'D'"):
            refused()


def test_what_makes_no_pair_is_refused(posterior, responses):
    for call, message in (
        (lambda: compare_llms(posterior, responses, "1", "1"), "compared with itself"),
        (lambda: compare_llms(posterior, responses, "1", "gpt"), "No LLM is called 'gpt'"),
        (lambda: compare_llms(posterior, suite(seed=1), "1", "01"), "about other LLMs"),
        (lambda: compare_llms(posterior, responses, "1", "01", threshold=0.4), "threshold"),
        (lambda: compare_llms(posterior, responses, "1", "01", prob=1.0), "prob"),
        (lambda: pair_matrix(posterior, suite(seed=1)), "about other LLMs"),
    ):
        with pytest.raises(InvalidConfigurationError, match=message):
            call()


def test_forms_agree(pair):
    read = json.loads(pair.to_json())
    row = pd.read_csv(io.StringIO(pair.to_csv())).iloc[0]
    assert read["sentence"] == pair.sentence
    assert row["p_better"] == pair.p_better == pytest.approx(read["p_better"], rel=1e-14)
    assert row["expected_difference_lower"] == pytest.approx(pair.expected_difference.lower)
    assert (row["items_seen_b"], row["test_name"], row["verdict"]) == (50, "exact McNemar", "not separated")
    lines = pair.to_markdown().splitlines()
    bars = {line.replace("\\|", "").count("|") for line in lines[:8]}
    assert bars == {5}
    assert re.sub(r"\\(.)", r"\1", lines[-1]) == pair.sentence


def test_the_matrix_of_all_pairs(posterior, responses):
    matrix = pair_matrix(posterior, responses)
    ability = posterior.ability.to_numpy().reshape(-1, 6)
    best_first = np.argsort(-ability.mean(axis=0))
    assert matrix.index.tolist() == matrix.columns.tolist() == [NAMES[place] for place in best_first]
    assert np.isnan(np.diag(matrix)).all()
    for a in NAMES:
        for b in NAMES:
            if a != b:
                wanted = compare_llms(posterior, responses, a, b).p_better
                assert matrix.loc[a, b] == pytest.approx(wanted)
                assert matrix.loc[a, b] + matrix.loc[b, a] == pytest.approx(1)


def test_equal_draws_count_half():
    draws = np.array([[1.0, 1.0], [2.0, 0.0], [0.0, 0.0], [0.0, 1.0]])
    assert win_shares(draws, draws)[0, 1] == 0.5
    assert win_shares(draws[:3], draws[:3])[0, 1] == pytest.approx(2 / 3)


def stated(pairs, num_llms, num_draws=100):
    """Draws of abilities in which one LLM beats another with the probabilities given; the others never change."""
    draws = np.tile(-10.0 * np.arange(num_llms), (num_draws, 1))
    for winner, loser, share in pairs:
        lost = np.arange(num_draws) >= share * num_draws
        draws[lost, loser] = draws[lost, winner] + 0.01
    return draws


def test_tie_groups_by_hand():
    # none separated, then all
    assert tie_groups(stated([(0, 1, 0.9), (0, 2, 0.9), (0, 3, 0.9)], 4), 0.95).tolist() == [1, 1, 1, 1]
    assert tie_groups(stated([], 4), 0.95).tolist() == [1, 2, 3, 4]
    # at the threshold itself an LLM is separated
    assert tie_groups(stated([(0, 1, 0.95)], 2), 0.95).tolist() == [1, 2]
    # not contiguous: the third ties with the first, though the second does not
    assert tie_groups(stated([(0, 2, 0.9)], 3), 0.95).tolist() == [1, 2, 1]


def test_overlaps_do_not_chain():
    """Each is tied with its neighbour: the second joins the first, so that the third, apart from it, leads anew."""
    rng = np.random.default_rng(0)
    draws = np.array([2.0, 1.0, 0.0, -1.0]) + 0.6 * rng.normal(size=(4000, 4))
    shares = win_shares(draws, draws)
    assert (np.diag(shares, 1) < 0.95).all()
    assert (np.diag(shares, 2) > 0.95).all()
    assert tie_groups(draws, 0.95).tolist() == [1, 1, 2, 2]
    assert tie_groups(draws[:, ::-1], 0.95).tolist() == [2, 2, 1, 1]
    assert tie_groups(draws, 0.5).tolist() == [1, 2, 3, 4]
