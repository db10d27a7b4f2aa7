"""Cases whose answer is known beforehand: saturated boards, few answers, unequal item sets, perfect LLMs."""

import numpy as np
import pytest
from test_cli import call, write_wide

from bayes_irt import fitting
from bayes_irt.analysis.pair import Verdict
from bayes_irt.analysis.pairs import compare_llms, pair_matrix
from bayes_irt.analysis.ranking import rank_llms
from bayes_irt.cbmm import fit_cbmm
from bayes_irt.data_checks import check_responses
from bayes_irt.inference.laplace import fit_laplace
from bayes_irt.inference.nuts import Sampler, fit_nuts
from bayes_irt.inference.svi import fit_svi
from bayes_irt.priors import Priors
from bayes_irt.responses import Responses
from bayes_irt.simulate import simulate_suite

SHORT = Sampler(num_chains=2, num_warmup=150, num_draws=250)


def board_of(responses, engine="nuts"):
    estimate = fit_cbmm(responses, penalty=Priors())
    fits = {
        "nuts": lambda: fit_nuts(responses, estimate=estimate, sampler=SHORT),
        "laplace": lambda: fit_laplace(responses, estimate=estimate),
        "svi": lambda: fit_svi(responses, estimate=estimate),
    }
    posterior = fits[engine]()
    return rank_llms(posterior, estimate, responses), posterior


def with_totals(totals, num_items, seed):
    """Deal each LLM exactly so many right answers, more often on easy items."""
    rng = np.random.default_rng(seed)
    easiness = 1.2 * rng.normal(size=num_items)
    noisy = easiness + rng.logistic(size=(len(totals), num_items))
    return (np.argsort(np.argsort(-noisy, axis=1), axis=1) < np.array(totals)[:, None]).astype(int)


def saturated_board():
    """12 LLMs x 500 items: 230 passed by all, 40 by none; the first eight within 2 right answers on the others."""
    totals = [140, 140, 139, 139, 139, 139, 138, 138, 120, 105, 95, 80]
    live = with_totals(totals, 230, 4)
    same = live.all(axis=0) | ~live.any(axis=0)
    # exchange answers within two rows until every item has both outcomes, which leaves the totals alone
    for item in np.flatnonzero(same):
        llm = int(item) % 8
        other = next(
            o for o in np.flatnonzero(~same) if live[llm, o] != live[llm, item] and 2 < live[:, o].sum() < 10
        )
        live[llm, [item, other]] = live[llm, [other, item]]
    return Responses.from_arrays(np.hstack([np.ones((12, 230), int), np.zeros((12, 40), int), live]))


def test_a_saturated_board_has_no_winner():
    responses = saturated_board()
    constant = check_responses(responses)["constant items"]
    assert len(constant.labels) == 270
    assert "230 all right, 40 all wrong" in constant.message
    board, posterior = board_of(responses)
    assert int(posterior.tree["sample_stats"]["diverging"].sum()) == 0
    assert board.found_ability
    eight = {f"llm-{number:03d}" for number in range(1, 9)}
    assert set(board.table.index[:8]) == eight
    assert board.table["p_best"].iloc[0] < 0.4
    assert set(board.table.index[board.table["tie_group"] == 1]) == eight
    matrix = pair_matrix(posterior, responses)
    assert matrix.iloc[:8, :8].max(axis=None) < 0.95
    assert matrix.iloc[:8, 9:].min(axis=None) > 0.95
    pair = compare_llms(posterior, responses, *board.table.index[[0, 7]])
    assert pair.verdict is Verdict.NOT_SEPARATED


def test_a_clear_leader_wins():
    """6 LLMs x 1,400 items, the leader .6 logits ahead of the next."""
    rng = np.random.default_rng(2)
    ability = np.array([0.6, 0.0, -0.05, -0.1, -0.15, -0.2])[:, None]
    chance = 1 / (1 + np.exp(-ability - 1.5 * rng.normal(size=1400)))
    board, _ = board_of(Responses.from_arrays(rng.binomial(1, chance)))
    assert board.table.index[0] == "llm-001"
    assert board.table["p_best"].iloc[0] > 0.99
    assert board.table["tie_group"].tolist()[:2] == [1, 2]


def test_two_llms_two_items_three_attempts():
    """A 3 and 2 of 3, B 2 and 1 of 3: A is better perhaps, and nobody knows by how much."""
    responses = Responses.from_arrays([[3, 2], [2, 1]], [[3, 3], [3, 3]], llms=["A", "B"])
    board, posterior = board_of(responses)
    pair = compare_llms(posterior, responses, "A", "B")
    assert 0.5 < pair.p_better < 0.95
    assert pair.expected_difference.upper - pair.expected_difference.lower > 0.3
    assert pair.verdict is Verdict.NOT_SEPARATED
    assert pair.ability_difference is None
    assert "not applicable" in board.notes[0]
    assert board.table["tie_group"].tolist() == [1, 1]
    assert pair.test.p_value is None  # both differences are 1/3: there is no spread to judge them by


@pytest.mark.parametrize("engine", ["laplace", "svi", "nuts"])
def test_all_right_is_first_and_all_wrong_last(engine):
    """50 LLMs x 30 items: finite, with wide outer tails, which only the normal prior of abilities ends."""
    successes = simulate_suite(50, 30, seed=5).responses.successes.copy()
    successes[0], successes[-1] = 1, 0
    board, _ = board_of(Responses.from_arrays(successes), engine)
    table = board.table
    assert np.isfinite(table.drop(columns="accuracy_se").to_numpy(dtype=float)).all()
    assert (table.index[0], table.index[-1]) == ("llm-001", "llm-050")
    assert table["expected_accuracy_upper"].iloc[0] < 1
    assert table["expected_accuracy_lower"].iloc[-1] > 0
    usual = (table["ability_upper"] - table["ability_lower"]).iloc[10:40].median() / 2
    first, last = table.iloc[0], table.iloc[-1]
    # 1.7 times as wide as usual in long runs; the Monte Carlo error of the shortest is 6 %
    assert first["ability_upper"] - first["ability"] > 1.4 * usual
    assert last["ability"] - last["ability_lower"] > 1.4 * usual
    for name in ("ability", "expected_accuracy"):
        assert table[f"{name}_upper"].iloc[-1] < table[f"{name}_lower"].iloc[0]


def test_perfect_on_easy_items_is_not_better_than_half_on_hard_ones():
    """A answered ten easy items, B ten hard ones too: A's accuracy is 100 %, B's 75 %, and A is not better."""
    rng = np.random.default_rng(1)
    successes, attempts = np.zeros((22, 20), dtype=int), np.ones((22, 20), dtype=int)
    successes[:2, :10], successes[1, 10:15], attempts[0, 10:] = 1, 1, 0
    successes[2:, :10], successes[2:, 10:] = rng.random((20, 10)) < 0.95, rng.random((20, 10)) < 0.25
    llms = ["A", "B", *(f"other {number}" for number in range(20))]
    responses = Responses.from_arrays(successes, attempts, llms=llms)
    board, posterior = board_of(responses)
    pair = compare_llms(posterior, responses, "A", "B")
    assert pair.accuracy == (1.0, 0.75)
    assert pair.shared_accuracy == (1.0, 1.0)
    assert 0.1 < pair.p_better < 0.9
    width = board.table["ability_upper"] - board.table["ability_lower"]
    assert width["A"] > 1.1 * width["B"]
    assert board.table["item_share"][["A", "B"]].tolist() == [0.5, 1.0]
    # 100 % of easy items is nowhere near 100 % of all
    assert board.table["expected_accuracy_upper"]["A"] < 0.9


def test_one_answer_says_next_to_nothing():
    """30 LLMs x 60 items, the first with a single right answer: nearly the prior's interval, and never 100 %."""
    full = simulate_suite(30, 60, seed=6).responses
    attempts = full.attempts.copy()
    item = int(np.argmin(abs(full.successes.mean(axis=0) - 0.5)))
    attempts[0] = 0
    attempts[0, item] = 1
    successes = full.successes * attempts
    successes[0, item] = 1
    board, _ = board_of(Responses.from_arrays(successes, attempts), "laplace")
    row = board.table.loc["llm-001"]
    assert row["accuracy"] == 1.0
    assert np.isnan(row["accuracy_se"])
    assert row["ability_upper"] - row["ability_lower"] > 2.2  # 3.3 is the prior's
    assert row["expected_accuracy_upper"] < 0.95
    assert row["expected_accuracy_upper"] - row["expected_accuracy_lower"] > 0.3
    assert row["rank_upper"] - row["rank_lower"] > 20
    assert row["p_best"] < 0.3
    assert board.formatted()["items"][row["position"] - 1] == "1 (2%)"


@pytest.mark.parametrize("method", ["cbmm", "laplace", "nuts"])
def test_disjoint_pairs_are_refused_before_anything_is_fitted(tmp_path, monkeypatch, method):
    """{A, B} answered one set of items, {C, D} another: exit code 2, both groups named, no fit and no directory."""
    attempts = np.kron(np.eye(2, dtype=int), np.ones((2, 6), dtype=int))
    successes = attempts * np.random.default_rng(0).binomial(1, 0.5, size=attempts.shape)
    responses = Responses.from_arrays(successes, attempts, llms=list("ABCD"))
    fits = []
    monkeypatch.setattr(fitting, "fit_cbmm", lambda *_, **__: fits.append(1))
    table = write_wide(tmp_path / "apart.csv", responses)
    outcome = call("fit", table, "--method", method, "-o", tmp_path / "run")
    assert outcome.code == 2
    assert "share no item: 'A', 'B' / 'C', 'D'" in outcome.err
    assert fits == []
    assert not (tmp_path / "run").exists()
