"""The leaderboard against brute force, its notes, and whether it finds order where there is order only.

Seeds are fixed; random tests state their Monte Carlo error or their false-alarm rate.
"""

import json
from dataclasses import replace

import numpy as np
import pytest
from scipy import stats
from scipy.special import logit

from bayes_irt.analysis.accuracy import accuracy_with_error, expected_accuracy
from bayes_irt.analysis.pair import Verdict
from bayes_irt.analysis.pairs import compare_llms
from bayes_irt.analysis.ranking import rank_estimate, rank_llms
from bayes_irt.analysis.ranks import ranks_by_draw
from bayes_irt.analysis.reliability import ability_reliability, score_spread_p_value
from bayes_irt.data_checks import linked_components
from bayes_irt.errors import InvalidConfigurationError
from bayes_irt.estimate import PointEstimate, Status, Timing, estimate_dataset
from bayes_irt.identify import canonicalize
from bayes_irt.inference.nuts import Sampler, fit_nuts
from bayes_irt.parameters import Parameters
from bayes_irt.posterior import posterior_from_draws
from bayes_irt.provenance import Provenance
from bayes_irt.responses import Responses
from bayes_irt.simulate import SuiteDesign, simulate_suite

LLMS, ITEMS = 7, 12
NAMES = ("gpt-4o", "a|b", "модель", "[bold]x[/bold]", "01", "1", "<script>")


def some_responses(num_llms=LLMS, seed=0):
    """Counts of up to 5 attempts, a fifth of the cells missing."""
    rng = np.random.default_rng(seed)
    attempts = rng.integers(1, 6, size=(num_llms, ITEMS)) * (rng.random((num_llms, ITEMS)) > 0.2)
    attempts[:, 0], attempts[0] = 2, 3
    chance = np.linspace(0.2, 0.8, num_llms)[:, None]
    return Responses.from_arrays(rng.binomial(attempts, chance), attempts, llms=NAMES[:num_llms])


def posterior_of(responses, ability):
    shape = ability.shape[:2]
    items = {"discrimination": np.ones((*shape, responses.num_items, 1))}
    items["easiness"] = np.zeros((*shape, responses.num_items))
    labels = (responses.llms, responses.items)
    provenance = Provenance("nuts", {}, responses.digest, 0)
    return posterior_from_draws({"ability": ability[..., None], **items}, {}, labels, provenance)


def estimate_of(responses, seed=1):
    rng = np.random.default_rng(seed)
    size = (responses.num_llms, responses.num_items)
    raw = Parameters(rng.normal(size=(size[0], 1)), rng.random((size[1], 1)), rng.normal(size=size[1]))
    separated = tuple(np.zeros(number, dtype=bool) for number in size)
    labels = (responses.llms, responses.items)
    dataset = estimate_dataset(canonicalize(raw), raw, np.array([1.0]), labels, separated)
    return PointEstimate(
        dataset, Status.CONVERGED, 0.0, 0.0, 1, Timing(0.0, 0.0), Provenance("cbmm", {}, responses.digest)
    )


def made_up_fit(num_llms=LLMS, spread=0.7, seed=0, responses=None):
    responses = some_responses(num_llms, seed) if responses is None else responses
    rng = np.random.default_rng(seed)
    ability = np.linspace(-1, 1, num_llms) + spread * rng.normal(size=(2, 300, num_llms))
    return posterior_of(responses, ability), estimate_of(responses), responses


@pytest.fixture(scope="module")
def fit():
    return made_up_fit()


@pytest.fixture(scope="module")
def board(fit):
    return rank_llms(*fit)


def test_ranks_and_intervals_are_those_of_brute_force(fit, board):
    posterior, _, responses = fit
    draws = posterior.ability.to_numpy().reshape(-1, LLMS)
    ranks = np.array([[1 + sum(other > own for other in draw) for own in draw] for draw in draws])
    np.testing.assert_array_equal(ranks_by_draw(draws), ranks)
    for index, llm in enumerate(responses.llms):
        row, own = board.table.loc[llm], ranks[:, index]
        assert row["p_best"] == pytest.approx(np.mean(own == 1))
        assert row["ability"] == pytest.approx(draws[:, index].mean())
        limits = np.quantile(draws[:, index], [0.05, 0.95])
        assert [row["ability_lower"], row["ability_upper"]] == pytest.approx(list(limits))
        # the narrowest interval of ranks that leaves at most 5 % on either side
        lower = max(r for r in range(1, LLMS + 1) if np.mean(own < r) < 0.05)
        upper = min(r for r in range(1, LLMS + 1) if np.mean(own > r) <= 0.05)
        assert (row["rank_lower"], row["rank_upper"]) == (lower, upper)
        assert np.mean((own >= lower) & (own <= upper)) >= 0.9
        assert row["expected_rank"] == pytest.approx(own.mean())
        assert row["p_top"] == pytest.approx(np.mean(own <= 5))
    assert board.table["p_best"].sum() == pytest.approx(1)
    assert board.table["p_top"].sum() == pytest.approx(5)
    assert board.table["expected_rank"].sum() == pytest.approx(LLMS * (LLMS + 1) / 2)
    first_two = rank_llms(*fit, top=2).table
    assert first_two["p_top"].sum() == pytest.approx(2)


def test_expected_accuracy_and_points(fit, board):
    """Points: log odds of the expected accuracy, 10 to a factor of 3, with mean 0 in every draw."""
    accuracy = expected_accuracy(fit[0])
    points = 10 / np.log(3) * (logit(accuracy) - logit(accuracy).mean(axis=1, keepdims=True))
    for index, llm in enumerate(fit[2].llms):
        for name, draws in (("expected_accuracy", accuracy[:, index]), ("points", points[:, index])):
            found = board.table.loc[llm, [name, f"{name}_lower", f"{name}_upper"]].tolist()
            assert found == pytest.approx([draws.mean(), *np.quantile(draws, [0.05, 0.95])])
    chess = rank_llms(*fit, tripling=191).table
    np.testing.assert_allclose(chess["points"], 19.1 * board.table["points"])
    assert not np.allclose(board.table["expected_accuracy"], board.table["accuracy"], atol=0.05)


def test_points_triple_the_odds():
    """One item of slope 1: an ability that is log 3 higher has three times the odds, and 10 points more."""
    responses = Responses.from_arrays(np.eye(4, 1, dtype=int).repeat(ITEMS, axis=1))
    ability = (
        np.zeros((1, 8, 4)) + np.array([0, 1, 2, 3]) * np.log(3) * np.linspace(1, 1.001, 8)[None, :, None]
    )
    posterior = posterior_of(responses, ability)
    sd = ability[0, 0].std()  # the gauge moves it into the slopes
    assert posterior.parameters.discrimination[0, 0, 0] == pytest.approx(sd)
    points = rank_llms(posterior, estimate_of(responses), responses).table["points"]
    np.testing.assert_allclose(-np.diff(points), 10, rtol=0.002)
    assert points.sum() == pytest.approx(0, abs=1e-9)


def test_tie_groups_are_those_of_the_draws(fit, board):
    """Without a common ability all are tied; with one, LLMs join the first leader that does not beat them."""
    assert not board.found_ability
    assert set(board.table["tie_group"]) == {1}
    ladder = Responses.from_arrays(np.tri(LLMS, ITEMS, 3, dtype=int)[::-1], llms=NAMES)
    ordered = made_up_fit(responses=ladder)
    found = rank_llms(*ordered, tie_prob=0.8)
    assert found.found_ability
    draws = ordered[0].ability.to_numpy().reshape(-1, LLMS)
    leaders, wanted = [], {}
    for llm in found.table.index:
        own = draws[:, NAMES.index(llm)]
        free = [n for n, leader in enumerate(leaders) if np.mean(draws[:, leader] > own) < 0.8]
        if not free:
            leaders.append(NAMES.index(llm))
        wanted[llm] = 1 + (free[0] if free else len(leaders) - 1)
    assert found.table["tie_group"].to_dict() == wanted
    assert 1 < max(wanted.values()) < LLMS


def test_the_share_of_items_seen(fit, board):
    responses = fit[2]
    share = (responses.attempts > 0).mean(axis=1)
    assert board.table["item_share"].to_dict() == dict(zip(responses.llms, share, strict=True))
    shown = board.formatted()["items"].tolist()
    assert all(text.endswith("%)") for text in shown)
    complete = simulate_suite(LLMS, ITEMS).responses
    assert set(rank_llms(*fit_of(complete)).formatted()["items"]) == {str(ITEMS)}


def test_options_out_of_range_are_refused(fit):
    for option, value in (("tie_prob", 1.0), ("top", 0), ("top", 1.5), ("tripling", 0.0)):
        with pytest.raises(InvalidConfigurationError, match=option):
            rank_llms(*fit, **{option: value})


def test_equal_draws_share_no_rank():
    ranks = ranks_by_draw(np.array([[1.0, 1.0, 0.0], [0.0, 2.0, 2.0]]))
    assert np.sort(ranks, axis=1).tolist() == [[1, 2, 3], [1, 2, 3]]


def test_the_board_is_ordered_and_complete(fit, board):
    _, estimate, responses = fit
    table = board.table
    assert table["position"].tolist() == list(range(1, LLMS + 1))
    assert table["ability"].is_monotonic_decreasing
    assert sorted(table.index) == sorted(NAMES)
    ability = dict(zip(estimate.llms, estimate.parameters.ability[:, 0], strict=True))
    for llm in NAMES:
        assert table.loc[llm, "cbmm_ability"] == ability[llm]
        assert table.loc[llm, "cbmm_rank"] == 1 + sum(value > ability[llm] for value in ability.values())
    seen = dict(zip(responses.llms, (responses.attempts > 0).sum(axis=1), strict=True))
    assert table["items_seen"].to_dict() == seen


def test_wider_probability_wider_intervals(fit, board):
    wide = rank_llms(*fit, prob=0.99).table
    assert (wide["ability_lower"] < board.table["ability_lower"]).all()
    assert (wide["rank_upper"] >= board.table["rank_upper"]).all()
    for prob in (0.0, 1.0, 1.5, float("nan")):
        with pytest.raises(InvalidConfigurationError, match="between 0 and 1"):
            rank_llms(*fit, prob=prob)


def test_accuracy_and_its_error_are_those_of_items_drawn_again():
    """Against the bootstrap of whole items, their attempts kept together.

    The formula is linearised and good to a few percent; the Monte Carlo error of the bootstrap's sd is 0.5 percent.
    """
    responses = some_responses()
    accuracy, error = accuracy_with_error(responses)
    rng = np.random.default_rng(0)
    for index in range(LLMS):
        successes = responses.successes[index].astype(float)
        attempts = responses.attempts[index].astype(float)
        assert accuracy[index] == pytest.approx(successes.sum() / attempts.sum())
        seen = np.flatnonzero(attempts)
        chosen = rng.choice(seen, size=(20_000, len(seen)))
        again = successes[chosen].sum(axis=1) / attempts[chosen].sum(axis=1)
        wanted = again.std() * np.sqrt(len(seen) / (len(seen) - 1))
        assert error[index] == pytest.approx(wanted, rel=0.1)
        independent = np.sqrt(accuracy[index] * (1 - accuracy[index]) / attempts.sum())
        assert abs(independent / wanted - 1) > 0.02  # as if attempts were independent: another number


def test_repeating_every_attempt_leaves_the_error_alone():
    """Attempts that all agree within an item carry nothing new."""
    once = simulate_suite(5, 30).responses
    ten = Responses.from_arrays(once.successes * np.uint8(10), once.attempts * np.uint8(10))
    np.testing.assert_allclose(accuracy_with_error(ten)[1], accuracy_with_error(once)[1])


def test_one_item_gives_no_error():
    attempts = np.ones((4, 3), dtype=int)
    attempts[0, 1:] = 0
    responses = Responses.from_arrays(np.eye(4, 3, dtype=int) * attempts, attempts)
    assert np.isnan(accuracy_with_error(responses)[1]).tolist() == [True, False, False, False]
    text = rank_llms(*fit_of(responses)).formatted()
    assert (text["accuracy"].str.endswith("± n/a")).sum() == 1


def fit_of(responses, seed=0):
    ability = np.random.default_rng(seed).normal(size=(2, 100, responses.num_llms))
    return posterior_of(responses, ability), estimate_of(responses), responses


def test_the_board_as_text(board):
    text = board.formatted()
    assert len(text) == LLMS
    assert {"tie", "LLM", "accuracy", "cBMM", "ability 90%", "rank 90%", "P(best)", "items"} <= set(
        text.columns
    )
    assert text["LLM"].tolist() == board.table.index.tolist()
    row, source = text.iloc[0], board.table.iloc[0]
    assert row["accuracy"] == f"{source['accuracy']:.3f} ± {source['accuracy_se']:.3f}"
    assert row["ability 90%"] == f"[{source['ability_lower']:+.2f}, {source['ability_upper']:+.2f}]"
    assert row["expected"] == f"{source['expected_accuracy']:.3f}"
    assert row["tie"] == f"{source['tie_group']:.0f}"
    assert row["rank 90%"] == f"{source['rank_lower']:.0f}-{source['rank_upper']:.0f}"
    assert text.map(lambda cell: isinstance(cell, str)).all(axis=None)


def test_the_board_as_markdown(board):
    lines = board.to_markdown().splitlines()
    assert len(lines) == 2 + LLMS + 1 + len(board.notes)
    bars = {line.replace("\\|", "").count("|") for line in lines[: 2 + LLMS]}
    assert bars == {len(board.formatted().columns) + 1}
    assert sum("a\\|b" in line for line in lines) == 1
    assert [line.strip() for line in lines[-len(board.notes) :]] == list(board.notes)


def test_the_board_as_json(board):
    read = json.loads(board.to_json())
    assert [row["llm"] for row in read["llms"]] == board.table.index.tolist()
    for column in board.table.columns:
        np.testing.assert_allclose([row[column] for row in read["llms"]], board.table[column], rtol=1e-12)
    assert read["prob"] == 0.9
    assert read["notes"] == list(board.notes)
    assert (read["top"], read["tie_prob"], read["tripling"]) == (5, 0.95, 10.0)
    assert (read["reliability"], read["found_ability"]) == (board.reliability, board.found_ability)


@pytest.mark.parametrize("number", [2, 3])
def test_below_four_llms_ability_is_not_applicable(number):
    fit = made_up_fit(number)
    board = rank_llms(*fit)
    assert not board.has_ability
    text = board.formatted()
    for column in ("cBMM", "ability", "ability 90%"):
        assert set(text[column]) == {"n/a"}
    rows = json.loads(board.to_json())["llms"]
    assert {row[name] for row in rows for name in ("cbmm_ability", "ability", "ability_lower")} == {None}
    assert sum(row["p_best"] for row in rows) == pytest.approx(1)
    assert "not applicable" in board.notes[0]
    assert (
        board.table[["expected_rank", "p_top", "tie_group", "expected_accuracy", "points"]]
        .notna()
        .all(axis=None)
    )
    # the order is still that of the posterior
    mean = fit[0].ability.mean(("chain", "draw")).to_series()
    assert board.table.index.tolist() == mean.sort_values(ascending=False).index.tolist()
    assert rank_llms(*made_up_fit(4)).has_ability
    assert rank_estimate(*fit[1:])["cbmm_ability"].isna().all()


def test_notes_say_what_intervals_cover(board):
    assert "reliability" in board.notes[0]
    assert "p " in board.notes[0]
    assert board.notes[-1] == (
        "90% intervals cover run-to-run noise and the choice of items like these; they do not cover prompts, the "
        "evaluation harness or contamination."
    )
    found = replace(board, p_value=0.01)
    assert "beat it with probability 95%" in found.notes[1]
    assert "all LLMs are in one group" in replace(board, p_value=0.2).notes[1]
    assert len(board.notes) == len(found.notes) == 3


def unlinked(llms=NAMES):
    """Four LLMs on six items, the others on six others."""
    attempts = np.zeros((len(llms), ITEMS), dtype=int)
    attempts[:4, :6], attempts[4:, 6:] = 1, 1
    successes = np.random.default_rng(0).binomial(attempts, 0.5)
    return Responses.from_arrays(successes, attempts, llms=llms)


def test_unlinked_llms_are_refused_by_name():
    responses = unlinked()
    fit = fit_of(responses)
    for refused in (lambda: rank_llms(*fit), lambda: rank_estimate(*fit[1:])):
        with pytest.raises(InvalidConfigurationError, match="2 groups that share no item") as caught:
            refused()
        assert all(repr(name) in str(caught.value) for name in NAMES)
    with pytest.warns(UserWarning, match="6 items without an answer"):
        one = responses.subset(llms=linked_components(responses)[0], drop_empty=True)
    assert sorted(rank_llms(*fit_of(one)).table.index) == sorted(NAMES[:4])


def test_many_groups_make_a_short_message():
    responses = Responses.from_arrays(np.zeros((40, 40)), np.eye(40, dtype=int))
    with pytest.raises(InvalidConfigurationError, match="40 groups") as caught:
        rank_llms(*fit_of(responses))
    assert "35 more groups" in str(caught.value)
    assert len(str(caught.value)) < 500


def test_a_board_of_noise_says_so():
    posterior, estimate, responses = made_up_fit(spread=5.0)
    board = rank_llms(posterior, estimate, responses)
    assert board.reliability < 0.3
    assert not board.found_ability
    assert "No common ability was found" in board.notes[0]


def test_parts_about_different_data_are_refused(fit):
    posterior, estimate, responses = fit
    shorter = some_responses(5)
    with pytest.raises(InvalidConfigurationError, match="posterior is about other LLMs"):
        rank_llms(posterior, estimate, shorter)
    with pytest.raises(InvalidConfigurationError, match="estimate is about other LLMs"):
        rank_llms(posterior, estimate_of(shorter), responses)
    with pytest.raises(InvalidConfigurationError, match="estimate is about other LLMs"):
        rank_estimate(estimate, shorter)


def test_a_board_of_a_point_estimate(fit):
    _, estimate, responses = fit
    table = rank_estimate(estimate, responses)
    assert table["cbmm_ability"].is_monotonic_decreasing
    assert table["position"].tolist() == list(range(1, LLMS + 1))
    accuracy, error = accuracy_with_error(responses)
    for index, llm in enumerate(responses.llms):
        assert table.loc[llm, ["accuracy", "accuracy_se"]].tolist() == [accuracy[index], error[index]]


def test_reliability_is_one_minus_the_posterior_variance(fit):
    draws = fit[0].ability.to_numpy().reshape(-1, LLMS)
    wanted = 1 - np.mean([np.var(draws[:, index]) for index in range(LLMS)])
    assert ability_reliability(fit[0]) == pytest.approx(wanted)
    assert ability_reliability(made_up_fit(spread=0.01)[0]) > 0.99


# The test of the scores' spread


def complete(rng):
    return rng.binomial(1, 0.5, size=(6, 40)), np.ones((6, 40), dtype=int)


def with_missing(rng):
    attempts = (rng.random((7, 50)) > 0.3).astype(int)
    attempts[:2], attempts[:, 0] = 1, 1
    return rng.binomial(attempts, 0.4), attempts


def counts(rng):
    attempts = np.full((6, 30), 4)
    return rng.binomial(attempts, rng.random(30)), attempts


def unequal_counts(rng):
    attempts = rng.integers(0, 4, size=(6, 60))
    attempts[0], attempts[:, 0] = 1, 2
    return rng.binomial(attempts, 0.5), attempts


SUITES = [complete, with_missing, counts, unequal_counts]


def shuffled(successes, attempts, rng):
    """Deal each item's outcomes anew among the LLMs that answered it equally often."""
    successes = successes.copy()
    for item, who in equally_often(attempts):
        successes[who, item] = successes[rng.permutation(who), item]
    return successes, attempts


def equally_often(attempts):
    """Return every item with each group of LLMs that tried it equally often."""
    for item in range(attempts.shape[1]):
        for number in np.unique(attempts[attempts[:, item] > 0, item]):
            yield item, np.flatnonzero(attempts[:, item] == number)


def permutation_p_value(successes, attempts, rng, number=4000):
    """Return the share of shuffles whose scores lie further out, in the metric of the shuffles' own covariance."""
    own = np.zeros(len(attempts))
    drawn = np.zeros((number, len(attempts)))
    for item, who in equally_often(attempts):
        residual = successes[who, item] - successes[who, item].mean()
        own[who] += residual
        drawn[:, who] += rng.permuted(np.tile(residual, (number, 1)), axis=1)
    inverse = np.linalg.pinv(np.cov(drawn.T), rcond=1e-6, hermitian=True)
    distance = np.einsum("si,ij,sj->s", drawn, inverse, drawn)
    return np.mean(distance >= own @ inverse @ own)


@pytest.mark.parametrize("suite", SUITES)
def test_the_p_value_is_that_of_a_permutation_test(suite):
    """Chi-squared is an approximation: within .03, of which the Monte Carlo error is .008 at most."""
    rng = np.random.default_rng(3)
    successes, attempts = suite(rng)
    for lift in (0, 3):  # noise, and one LLM better at some items
        raised = successes.copy()
        room = np.flatnonzero(raised[0] < attempts[0])[: lift * 2]
        raised[0, room] = attempts[0, room]
        p_value = score_spread_p_value(Responses.from_arrays(raised, attempts))
        assert p_value == pytest.approx(permutation_p_value(raised, attempts, rng), abs=0.03)


def p_values(suite, number, rng, lift=0.0):
    for _ in range(number):
        successes, attempts = shuffled(*suite(rng), rng)
        better = rng.random(attempts.shape[1]) < lift
        successes[0, better] = attempts[0, better]
        yield score_spread_p_value(Responses.from_arrays(successes, attempts))


@pytest.mark.parametrize("suite", SUITES)
def test_p_values_are_uniform_where_there_is_no_order(suite):
    """Kolmogorov-Smirnov over 250 suites; a false alarm in 1 of 10,000 runs."""
    rng = np.random.default_rng(4)
    assert stats.kstest(list(p_values(suite, 250, rng)), "uniform").pvalue > 1e-4
    assert stats.kstest(list(p_values(suite, 100, rng, lift=0.3)), "uniform").pvalue < 1e-4


def test_a_real_order_has_a_tiny_p_value():
    for missing in (SuiteDesign(), SuiteDesign(missing="MCAR", missing_share=0.3), SuiteDesign(attempts=3)):
        assert score_spread_p_value(simulate_suite(30, 100, design=missing).responses) < 1e-10


def test_items_that_do_not_distinguish_leave_p_at_one():
    same = np.tile([1, 0, 1], (5, 1))
    assert score_spread_p_value(Responses.from_arrays(same)) == 1.0


def test_permuting_llms_and_items_leaves_the_p_value():
    rng = np.random.default_rng(5)
    successes, attempts = with_missing(rng)
    rows, columns = rng.permutation(len(attempts)), rng.permutation(attempts.shape[1])
    moved = Responses.from_arrays(successes[rows][:, columns], attempts[rows][:, columns])
    assert score_spread_p_value(moved) == pytest.approx(
        score_spread_p_value(Responses.from_arrays(successes, attempts))
    )


@pytest.mark.parametrize("order", ["real", "shuffled"])
def test_shuffled_columns_show_no_common_ability(order):
    """24 LLMs x 23 items; shuffled within columns, accuracies still differ, but for no reason."""
    responses = simulate_suite(24, 23, seed=3).responses
    if order == "shuffled":
        deal = np.random.default_rng(0)
        responses = Responses.from_arrays(*shuffled(responses.successes, responses.attempts, deal))
    posterior = fit_nuts(responses, sampler=Sampler(num_chains=2, num_warmup=100, num_draws=100))
    board = rank_llms(posterior, estimate_of(responses), responses)
    if order == "real":
        assert board.found_ability
        assert board.reliability > 0.5
        assert board.table["tie_group"].max() > 2
        assert "No common ability" not in "".join(board.notes)
    else:
        assert not board.found_ability
        assert board.reliability < 0.3
        assert "No common ability was found" in board.notes[0]
        assert set(board.table["tie_group"]) == {1}
        assert board.table["p_best"].max() < 0.5
        first_and_last = compare_llms(posterior, responses, *board.table.index[[0, -1]])
        assert first_and_last.verdict is Verdict.NOT_SEPARATED
        assert board.table["accuracy"].max() - board.table["accuracy"].min() > 0.1
