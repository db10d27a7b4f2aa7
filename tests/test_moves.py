"""The steps from accuracy to ability: they add up, each for the reason that its name gives."""

import numpy as np
import pytest
from scipy.optimize import brentq
from scipy.special import expit

from bayes_irt.analysis.moves import Answers, steps_to_ability

ITEMS, LLMS = 60, 40


def made_up(seed=0, attempts=None, ability=0.3, slopes=None):
    rng = np.random.default_rng(seed)
    slopes = rng.gamma(2.0, 0.7, size=ITEMS) if slopes is None else np.full(ITEMS, slopes)
    easiness = rng.normal(size=ITEMS)
    attempts = np.ones(ITEMS) if attempts is None else np.asarray(attempts, dtype=float)
    successes = rng.binomial(attempts.astype(int), expit(slopes * ability + easiness)).astype(float)
    return Answers(successes, attempts, slopes, easiness)


def score(answers, ability):
    """Return the derivative of the log-likelihood by ability."""
    expected = answers.attempts * expit(answers.discrimination * ability + answers.easiness)
    return float(answers.discrimination @ (answers.successes - expected))


def most_likely(answers):
    return brentq(lambda ability: score(answers, ability), -6, 6, xtol=1e-13)


def missing(seed=1):
    return (np.random.default_rng(seed).random(ITEMS) > 0.4).astype(int)


def several(seed=2):
    return np.random.default_rng(seed).integers(0, 5, size=ITEMS)


@pytest.mark.parametrize("attempts", [None, missing(), several()])
@pytest.mark.parametrize("ability", [-1.5, 0.0, 0.37])
def test_steps_add_up_and_the_remainder_is_the_score_that_is_left(attempts, ability):
    answers = made_up(attempts=attempts)
    steps = steps_to_ability(answers, ability, LLMS)
    total = steps.contributions.sum()
    assert steps.accuracy_ability + steps.item_set + total + steps.remainder == pytest.approx(
        ability, abs=1e-12
    )
    # The same again without the module's remainder: information is the secant of the score.
    there = steps.accuracy_ability + steps.item_set
    information = (score(answers, there) - score(answers, ability)) / (ability - there)
    assert total == pytest.approx(score(answers, there) / information)
    assert steps.remainder == pytest.approx(-score(answers, ability) / information)
    np.testing.assert_array_equal(steps.contributions[answers.attempts == 0], 0)


@pytest.mark.parametrize("attempts", [None, missing(), several()])
def test_at_the_most_likely_ability_items_explain_everything(attempts):
    answers = made_up(attempts=attempts)
    ability = most_likely(answers)
    steps = steps_to_ability(answers, ability, LLMS)
    assert abs(steps.remainder) < 1e-9
    assert abs(steps.contributions.sum()) > 0.01
    assert steps.contributions.sum() == pytest.approx(ability - steps.accuracy_ability - steps.item_set)


def test_the_accuracy_is_what_is_expected_at_the_ability_that_it_says():
    answers = made_up(attempts=several())
    steps = steps_to_ability(answers, 0.3, LLMS)
    accuracy = answers.successes.sum() / answers.attempts.sum()
    on_all = expit(answers.discrimination * steps.accuracy_ability + answers.easiness).mean()
    assert on_all == pytest.approx(accuracy)
    assert steps.expected.sum() == pytest.approx(answers.successes.sum())


def test_who_saw_all_items_alike_has_no_step_for_the_item_set():
    assert steps_to_ability(made_up(), 0.3, LLMS).item_set == 0.0
    assert steps_to_ability(made_up(attempts=np.full(ITEMS, 4)), 0.3, LLMS).item_set == 0.0


@pytest.mark.parametrize(("side", "sign"), [("easy", -1), ("hard", 1)])
def test_easy_items_flatter_and_hard_ones_belittle(side, sign):
    full = made_up()
    order = np.argsort(full.easiness if side == "hard" else -full.easiness)
    seen = np.zeros(ITEMS)
    seen[order[:20]] = 1
    answers = full._replace(attempts=seen, successes=full.successes * seen)
    steps = steps_to_ability(answers, most_likely(answers), LLMS)
    assert sign * steps.item_set > 0.3


def test_items_that_discriminate_alike_contribute_nothing():
    answers = made_up(slopes=1.3)
    steps = steps_to_ability(answers, most_likely(answers), LLMS)
    np.testing.assert_allclose(steps.contributions, 0, atol=1e-12)
    assert steps.accuracy_ability == pytest.approx(most_likely(answers))


def test_a_right_answer_where_that_tells_much_counts_up():
    answers = made_up()
    steps = steps_to_ability(answers, 0.3, LLMS)
    telling = answers.discrimination > steps.mean_weight
    better = answers.successes > steps.expected
    np.testing.assert_array_equal(steps.contributions > 0, telling == better)
    assert {(bool(a), bool(b)) for a, b in zip(telling, better, strict=True)} == {
        (a, b) for a in (True, False) for b in (True, False)
    }


def test_at_the_mean_weight_an_answer_moves_both_abilities_alike():
    """Against small changes of one answer: contribution is what it adds to ability beyond accuracy ability."""
    answers = made_up()
    base = most_likely(answers)
    steps = steps_to_ability(answers, base, LLMS)
    rises = {}
    for item in range(ITEMS):
        successes = answers.successes.copy()
        successes[item] += 1e-4
        more = answers._replace(successes=successes)
        gain = most_likely(more) - base
        rises[item] = gain - (steps_to_ability(more, base, LLMS).accuracy_ability - steps.accuracy_ability)
    by_slope = np.array([rises[item] for item in np.argsort(answers.discrimination)])
    slopes = np.sort(answers.discrimination)
    turn = np.interp(0.0, by_slope, slopes)
    assert turn == pytest.approx(steps.mean_weight, rel=0.1)
    assert np.all(np.diff(by_slope) > 0)


@pytest.mark.parametrize(("right", "end"), [(1, 1), (0, -1)])
def test_all_right_and_all_wrong_are_cut_where_no_llm_can_lie(right, end):
    answers = made_up()._replace(successes=np.full(ITEMS, float(right)))
    steps = steps_to_ability(answers, end * 2.5, LLMS)
    assert steps.accuracy_ability == end * np.sqrt(LLMS - 1)
    total = steps.accuracy_ability + steps.item_set + steps.contributions.sum() + steps.remainder
    assert total == pytest.approx(end * 2.5)


def test_items_that_tell_nothing_leave_all_to_the_remainder():
    answers = made_up()._replace(discrimination=np.zeros(ITEMS))
    steps = steps_to_ability(answers, 0.2, LLMS)
    assert not steps.contributions.any()
    assert steps.accuracy_ability + steps.item_set + steps.remainder == pytest.approx(0.2)


def test_an_ability_where_the_accuracy_says_it_is():
    answers = made_up()
    there = steps_to_ability(answers, 0.0, LLMS).accuracy_ability
    near, exact = (steps_to_ability(answers, there + gap, LLMS) for gap in (1e-6, 0.0))
    np.testing.assert_allclose(near.contributions, exact.contributions, rtol=1e-4)
