"""Copies, near-identical LLMs and related groups: found where they are, and not where chance alone makes them."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from bayes_irt.analysis.ranking import rank_llms
from bayes_irt.analysis.row_agreement import RowAgreement, row_agreement
from bayes_irt.analysis.structure import board_changes, check_structure, related_llms, without_duplicates
from bayes_irt.cbmm import fit_cbmm
from bayes_irt.checks import Outcome
from bayes_irt.data_checks import identical_rows
from bayes_irt.errors import InvalidConfigurationError
from bayes_irt.inference.laplace import fit_laplace
from bayes_irt.posterior import posterior_from_draws
from bayes_irt.priors import Priors
from bayes_irt.provenance import Provenance
from bayes_irt.readers import read_responses
from bayes_irt.responses import Responses
from bayes_irt.simulate import SuiteDesign, simulate_suite

LLMS, ITEMS = 24, 300


def fitted(responses, truth, num_draws=8):
    """A posterior that knows the truth, less a little."""
    rng = np.random.default_rng(0)
    draws = {}
    for name in ("ability", "discrimination", "easiness"):
        true = np.asarray(getattr(truth, name))
        draws[name] = np.maximum(true, 0.01) if name == "discrimination" else true
        draws[name] = draws[name] * (1 + 0.02 * rng.normal(size=(1, num_draws, *true.shape)))
    labels = (responses.llms, responses.items)
    return posterior_from_draws(draws, {}, labels, Provenance("toy", {}, responses.digest, 0))


def with_copy(suite, changed, seed=0):
    """The suite in which the last LLM is the first, but for some cells that are drawn anew."""
    successes = suite.responses.successes.copy()
    attempts = suite.responses.attempts
    again = np.random.default_rng(seed).permutation(ITEMS)[:changed]
    kept = successes[-1, again]
    successes[-1] = successes[0]
    successes[-1, again] = kept
    truth = suite.truth
    ability = np.asarray(truth.ability).copy()
    ability[-1] = ability[0]
    responses = Responses.from_arrays(successes, attempts)
    return responses, fitted(responses, type(truth)(ability, truth.discrimination, truth.easiness))


@pytest.fixture(scope="module")
def suite():
    return simulate_suite(LLMS, ITEMS, seed=4)


def test_disagreements_are_counted_on_shared_items():
    design = SuiteDesign(missing="MCAR", missing_share=0.3)
    missing = simulate_suite(6, 1500, design=design, seed=1)
    found = row_agreement(fitted(missing.responses, missing.truth), missing.responses)
    successes, attempts = missing.responses.successes, missing.responses.attempts
    for one in range(6):
        for other in range(6):
            both = (attempts[one] > 0) & (attempts[other] > 0)
            assert found.shared[one, other] == both.sum()
            assert found.observed[one, other] == (successes[one] != successes[other])[both].sum()
    chance = 1 / (
        1 + np.exp(-(missing.truth.ability @ missing.truth.discrimination.T + missing.truth.easiness))
    )
    both = (attempts[0] > 0) & (attempts[1] > 0)
    wanted = (chance[0] * (1 - chance[1]) + chance[1] * (1 - chance[0]))[both].sum()
    assert found.expected[0, 1] == pytest.approx(wanted, rel=0.02)


def test_repeated_attempts_disagree_as_much_as_they_should():
    """Observed over expected disagreement of independent LLMs: within 4 standard errors (.012) of 1."""
    design = SuiteDesign(attempts=4, discrimination_scale=0.7)
    counts = simulate_suite(30, 400, design=design, seed=2)
    found = row_agreement(fitted(counts.responses, counts.truth), counts.responses)
    upper = np.triu_indices(30, 1)
    assert found.observed[upper].sum() / found.expected[upper].sum() == pytest.approx(1, abs=0.05)
    once = RowAgreement(found.observed, found.expected * 4, found.shared)  # as if there were one attempt
    assert once.excess[upper].mean() > 0.5


def test_the_bound_holds_and_is_not_idle():
    """Chernoff's bound lies above a binomial's lower tail of rare events, by a factor below 20."""
    seen = np.arange(0.0, 60)[None]
    found = RowAgreement(seen, np.full(seen.shape, 60.0), np.full(seen.shape, 6000.0))
    exact = stats.binom.logcdf(seen, 6000, 0.01)
    assert (found.log_tail >= exact).all()
    assert (found.log_tail - exact < np.log(20)).all()
    assert RowAgreement(seen, seen * 0 + 1e-300, seen).log_tail.max() == 0


@pytest.mark.parametrize("changed", [0, 60])
def test_copies_are_found(suite, changed):
    """A fifth of the cells drawn anew leaves an excess agreement of about .8."""
    responses, posterior = with_copy(suite, changed)
    table = related_llms(posterior, responses)
    assert table[["first", "second"]].to_numpy().tolist() == [["llm-001", "llm-024"]]
    row = table.iloc[0]
    assert row["excess"] == pytest.approx(1 - changed / ITEMS, abs=0.1)
    assert bool(row["identical"]) is (changed == 0)
    assert row["disagreements"] == (responses.successes[0] != responses.successes[-1]).sum()
    check = check_structure(posterior, responses)["near-identical LLMs"]
    assert check.outcome is Outcome.FAIL
    assert check.labels == ("llm-001", "llm-024")
    assert "keep one of each" in check.message


def test_strangers_are_not_taken_for_copies():
    """30 suites of 24 LLMs: no pair at all; with a rate of .01 a suite, a false alarm in 1 of 4 runs at the bound's
    face value, which is 10 to 100 times too high."""
    for seed in range(30):
        strangers = simulate_suite(LLMS, ITEMS, seed=seed)
        assert related_llms(fitted(strangers.responses, strangers.truth), strangers.responses).empty


def test_a_few_items_prove_nothing():
    """Identical rows of six items may be chance; of sixty they may not."""
    for num_items, number in ((6, 0), (60, 1)):
        few = simulate_suite(8, num_items, seed=3)
        successes = few.responses.successes.copy()
        successes[1] = successes[0]
        responses = Responses.from_arrays(successes)
        truth = few.truth
        ability = np.asarray(truth.ability).copy()
        ability[1] = ability[0]
        posterior = fitted(responses, type(truth)(ability, truth.discrimination, truth.easiness))
        assert len(related_llms(posterior, responses)) == number


def related_suite(spread, seed):
    """Four LLMs in each of six families, which share a liking for items of the given sd."""
    suite = simulate_suite(LLMS, ITEMS, seed=seed)
    rng = np.random.default_rng(seed)
    family = np.repeat(np.arange(6), 4)
    logits = suite.truth.ability @ suite.truth.discrimination.T + suite.truth.easiness
    logits = logits + spread * rng.normal(size=(6, ITEMS))[family]
    metadata = pd.DataFrame({"family": [f"f{number}" for number in family]}, index=suite.responses.llms)
    metadata.loc["llm-001", "family"] = None
    successes = rng.binomial(1, 1 / (1 + np.exp(-logits)))
    responses = Responses.from_arrays(successes, llm_metadata=metadata)
    return responses, fitted(responses, suite.truth)


def test_families_that_err_alike_are_noticed():
    """20 suites without family likings, level .01: more than 2 alarms in 1 of 1,000 runs."""
    alarms = [
        check_structure(posterior, responses, group="family").failures
        for responses, posterior in (related_suite(0.0, seed) for seed in range(20))
    ]
    assert sum(bool(failures) for failures in alarms) <= 2
    responses, posterior = related_suite(1.0, 0)
    report = check_structure(posterior, responses, group="family")
    assert report["near-identical LLMs"].outcome is Outcome.PASS
    check = report["related LLMs (family)"]
    assert check.outcome is Outcome.FAIL
    assert set(check.labels) == {f"f{number}" for number in range(6)}
    assert "llm_groups='family'" in check.message


def test_groups_that_say_nothing_are_refused():
    responses, posterior = related_suite(0.0, 0)
    with pytest.raises(InvalidConfigurationError, match="no column 'maker'"):
        check_structure(posterior, responses, group="maker")
    with pytest.raises(InvalidConfigurationError, match="about other LLMs"):
        related_llms(posterior, simulate_suite(LLMS, ITEMS, seed=9).responses)


def test_copies_are_dropped_and_nothing_else():
    rows = [[1, 0, 1, 0], [1, 1, 1, 1], [1, 0, 1, 0], [1, 1, 1, 1], [0, 1, 1, 0], [1, 0, 1, 0]]
    responses = Responses.from_arrays(rows)
    assert identical_rows(responses) == [("llm-001", "llm-003", "llm-006")]
    assert without_duplicates(responses).llms == ("llm-001", "llm-002", "llm-004", "llm-005")
    distinct = without_duplicates(responses)
    assert without_duplicates(distinct) is distinct


@pytest.fixture(scope="module")
def math500(data_dir):
    return read_responses(data_dir / "math500_paper.parquet")


def board_of(responses):
    estimate = fit_cbmm(responses, penalty=Priors())
    posterior = fit_laplace(responses, estimate=estimate, num_draws=400)
    return rank_llms(posterior, estimate, responses), posterior


def test_math_500_holds_thirteen_llms_twice(math500, data_dir):
    """Found, named, and what dropping the copies changes: 127 LLMs, intervals of the items a little wider."""
    groups = identical_rows(math500)
    assert [len(group) for group in groups] == [2] * 13
    models = pd.read_parquet(data_dir / "math_reasoning_models.parquet").set_index("model")
    copied = models.index[models["copied_prompt_run"]].intersection(math500.llms)
    assert {llm for group in groups for llm in group} == set(copied)
    (before, posterior), distinct = board_of(math500), without_duplicates(math500)
    assert distinct.num_llms == 127
    related = related_llms(posterior, math500)
    pairs = {
        frozenset(pair) for pair in related.loc[related["identical"], ["first", "second"]].to_numpy().tolist()
    }
    assert pairs == {frozenset(group) for group in groups}
    check = check_structure(posterior, math500)["near-identical LLMs"]
    assert check.outcome is Outcome.FAIL
    assert set(check.labels) >= set(copied)
    after, _ = board_of(distinct)
    changes = board_changes(before, after)
    assert changes.index.tolist() == after.table.index.tolist()
    assert (changes["position_after"] <= changes["position_before"]).mean() > 0.9
    for word, board in (("before", before), ("after", after)):
        table = board.table.loc[changes.index]
        np.testing.assert_array_equal(changes[f"rank_upper_{word}"], table["rank_upper"])
        np.testing.assert_array_equal(
            changes[f"width_{word}"], table["ability_upper"] - table["ability_lower"]
        )
    # copies are tied with each other, so that places are taken twice
    assert changes["rank_upper_after"].max() <= 127 < before.table["rank_upper"].max()
    renamed = after.table.rename(index=lambda llm: f"{llm} again")
    for other, message in (
        (replace(after, table=renamed), "no LLM in common"),
        (replace(after, prob=0.5), "50%"),
    ):
        with pytest.raises(InvalidConfigurationError, match=message):
            board_changes(before, other)
