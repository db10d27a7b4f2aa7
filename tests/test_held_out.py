"""Held-out cells: the split, log scores against SciPy, baselines against their definitions, comparisons with ties.

Random tests have a false-alarm rate below 1e-4 each (seeds are fixed).
"""

import numpy as np
import pandas as pd
import pytest
from scipy import stats
from scipy.optimize import minimize
from scipy.special import expit

from bayes_irt.baselines import baseline_scores, fit_additive
from bayes_irt.cbmm import fit_cbmm
from bayes_irt.cell_lists import CellList
from bayes_irt.errors import InvalidConfigurationError
from bayes_irt.held_out import HeldOut, HeldOutScore, compare_scores, held_out_score, split_cells
from bayes_irt.parameters import Parameters
from bayes_irt.posterior import posterior_from_draws
from bayes_irt.priors import Penalty, Priors
from bayes_irt.provenance import Provenance
from bayes_irt.responses import Responses
from bayes_irt.simulate import SuiteDesign, simulate_suite

SPARSE = SuiteDesign(attempts=3, missing="MCAR", missing_share=0.6)


def made_up_posterior(train, num_draws=15, seed=0):
    rng = np.random.default_rng(seed)
    draws = {
        "ability": rng.normal(size=(3, num_draws, train.num_llms, 1)),
        "discrimination": rng.random((3, num_draws, train.num_items, 1)),
        "easiness": rng.normal(size=(3, num_draws, train.num_items)),
    }
    provenance = Provenance("made up", {}, train.digest)
    return posterior_from_draws(draws, {}, (train.llms, train.items), provenance)


def back_together(train, held_out):
    counts = [np.array(train.successes, dtype=int), np.array(train.attempts, dtype=int)]
    cells = held_out.cells
    assert not counts[1][cells.llm, cells.item].any()
    counts[0][cells.llm, cells.item] = cells.successes
    counts[1][cells.llm, cells.item] = cells.attempts
    return counts


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize(("design", "share"), [(SuiteDesign(), 0.2), (SuiteDesign(), 0.8), (SPARSE, 0.5)])
def test_parts_make_the_whole_and_nobody_is_left_without_an_answer(design, share, seed):
    responses = simulate_suite(9, 13, design=design, seed=seed).responses
    train, held_out = split_cells(responses, share=share, seed=seed)
    assert len(held_out.cells) == round(share * responses.num_observed)
    successes, attempts = back_together(train, held_out)
    np.testing.assert_array_equal(successes, responses.successes)
    np.testing.assert_array_equal(attempts, responses.attempts)
    assert (train.attempts > 0).any(axis=0).all()
    assert (train.attempts > 0).any(axis=1).all()
    assert (train.llms, train.items) == (held_out.llms, held_out.items) == (responses.llms, responses.items)
    assert held_out.train_digest == train.digest


def test_the_most_that_can_be_held_out_can_be_and_no_more():
    """Of a full 4 x 6 matrix 6 cells must stay at least, by chance up to 9 do."""
    responses = simulate_suite(4, 6).responses
    train, _ = split_cells(responses, share=15 / 24, seed=1)
    assert train.num_observed == 9
    with pytest.raises(InvalidConfigurationError, match="is 20 of 24 cells, but between 1 and"):
        split_cells(responses, share=20 / 24)
    with pytest.raises(InvalidConfigurationError, match="is 0 of 24 cells"):
        split_cells(responses, share=0.01)
    with pytest.raises(InvalidConfigurationError, match=r"share is 1\.5"):
        split_cells(responses, share=1.5)
    diagonal = Responses.from_arrays(np.where(np.eye(4, dtype=bool), 1, np.nan))
    with pytest.raises(InvalidConfigurationError, match="between 1 and 0 can be held out"):
        split_cells(diagonal)


def test_the_seed_decides_and_metadata_stay():
    frame = pd.DataFrame({"size": [7, 8, 9, 10]}, index=list("abcd"))
    y = np.random.default_rng(0).integers(2, size=(4, 30))
    responses = Responses.from_arrays(y, llms="abcd", llm_metadata=frame)
    (train, one), (again, same), (_, other) = (split_cells(responses, seed=seed) for seed in (3, 3, 4))
    assert train == again
    assert one.digest == same.digest != other.digest
    assert train.llm_metadata["size"].tolist() == [7, 8, 9, 10]
    assert repr(one) == "HeldOut: 24 cells of 4 LLMs x 30 items"


def share_chosen(number=600):
    responses = simulate_suite(5, 8).responses
    chosen = np.zeros((5, 8))
    for seed in range(number):
        cells = split_cells(responses, share=0.25, seed=seed)[1].cells
        chosen[cells.llm, cells.item] += 1
    return chosen / number


def test_every_cell_is_as_likely_to_be_held_out():
    share, error = share_chosen(), np.sqrt(0.25 * 0.75 / 600)
    assert np.abs(share - 0.25).max() < 5 * error
    with pytest.raises(AssertionError):
        assert np.abs(share - 0.35).max() < 5 * error


@pytest.mark.parametrize("design", [SuiteDesign(), SPARSE])
def test_a_posterior_is_scored_by_its_mean_probability(design):
    train, held_out = split_cells(simulate_suite(7, 12, design=design, seed=2).responses)
    posterior = made_up_posterior(train)
    score = held_out_score(posterior, held_out)
    draws = posterior.parameters
    wanted, numbers = np.zeros(7), np.zeros(7, dtype=int)
    for i, j, y, n in zip(*(np.asarray(v, dtype=int) for v in cells_of(held_out)), strict=True):
        p = expit(draws.ability[:, i, 0] * draws.discrimination[:, j, 0] + draws.easiness[:, j])
        wanted[i] += np.log(stats.binom.pmf(y, n, p).mean())
        numbers[i] += 1
    np.testing.assert_allclose(score.table["log_score"], wanted, rtol=1e-10)
    assert score.table["num_cells"].tolist() == numbers.tolist()
    assert tuple(score.table.index) == train.llms
    assert score.mean == pytest.approx(wanted.sum() / numbers.sum())
    assert score.method == "made up"
    assert score.num_cells == len(held_out.cells)


def cells_of(held_out):
    return (held_out.cells.llm, held_out.cells.item, held_out.cells.successes, held_out.cells.attempts)


def test_what_no_draw_thinks_possible_still_has_a_finite_score():
    train = Responses.from_arrays([[0, 1], [1, 0]])
    cells = CellList(*np.array([[0], [0], [5000], [5000]]))
    held_out = HeldOut(train.llms, train.items, cells, train.digest)
    draws = {
        "ability": np.array([[[[1.0], [-1.0]]] * 2]),
        "discrimination": np.zeros((1, 2, 2, 1)),
        "easiness": np.array([[[-9.0, 0.0], [-8.0, 0.0]]]),
    }
    posterior = posterior_from_draws(draws, {}, (train.llms, train.items), Provenance("x", {}, train.digest))
    logs = 5000 * -np.log1p(np.exp([9.0, 8.0]))
    assert held_out_score(posterior, held_out).table["log_score"].iloc[0] == pytest.approx(
        np.logaddexp(*logs) - np.log(2)
    )


@pytest.mark.parametrize("sigma", [1.0, 2.5])
def test_an_estimate_is_scored_at_itself(sigma):
    train, held_out = split_cells(simulate_suite(8, 15, design=SPARSE, seed=3).responses)
    estimate = fit_cbmm(train, penalty=Penalty(), sigma=sigma)
    p = estimate.parameters
    i, j, y, n = (np.asarray(v, dtype=int) for v in cells_of(held_out))
    chance = expit((p.ability[i, 0] * p.discrimination[j, 0] + p.easiness[j]) / sigma)
    wanted = np.bincount(i, weights=stats.binom.logpmf(y, n, chance), minlength=8)
    np.testing.assert_allclose(held_out_score(estimate, held_out).table["log_score"], wanted, rtol=1e-8)


def test_a_fit_that_saw_the_cells_is_refused():
    responses = simulate_suite(8, 15, seed=3).responses
    _, held_out = split_cells(responses)
    with pytest.raises(InvalidConfigurationError, match="belong to another training part"):
        held_out_score(made_up_posterior(responses), held_out)
    with pytest.raises(InvalidConfigurationError, match="belong to another training part"):
        held_out_score(fit_cbmm(responses, penalty=Priors()), held_out)
    with pytest.raises(InvalidConfigurationError, match="belong to another training part"):
        baseline_scores(split_cells(responses, seed=1)[0], held_out)


def test_the_row_mean_is_what_it_says():
    train, held_out = split_cells(simulate_suite(6, 14, design=SPARSE, seed=4).responses)
    share = (train.successes.sum(axis=1) + 0.5) / (train.attempts.sum(axis=1) + 1.0)
    i, _, y, n = (np.asarray(v, dtype=int) for v in cells_of(held_out))
    wanted = np.bincount(i, weights=stats.binom.logpmf(y, n, share[i]), minlength=6)
    found = baseline_scores(train, held_out)["row mean"].table["log_score"]
    np.testing.assert_allclose(found, wanted, rtol=1e-8)


@pytest.mark.parametrize("design", [SuiteDesign(), SPARSE])
def test_the_additive_logit_minimises_its_penalised_loss(design):
    responses = simulate_suite(7, 11, design=design, seed=5).responses
    y, n = np.asarray(responses.successes, dtype=float), np.asarray(responses.attempts, dtype=float)

    def loss(flat):
        eta = flat[:7, None] + flat[7:18] + flat[18]
        return np.sum(n * np.logaddexp(0, eta) - y * eta) + np.sum(flat[:18] ** 2) / 8

    best = minimize(loss, np.zeros(19), method="BFGS", options={"gtol": 1e-5}).x
    found = fit_additive(responses)
    np.testing.assert_allclose(found.ability[:, 0], best[:7], atol=2e-3)
    np.testing.assert_allclose(found.easiness, best[7:18] + best[18], atol=2e-3)
    assert (found.discrimination == 1).all()


def test_the_truth_predicts_best():
    suite = simulate_suite(30, 300, seed=6)
    train, held_out = split_cells(suite.responses)
    leaves = {
        name: getattr(suite.truth, name)[None, None] for name in ("ability", "discrimination", "easiness")
    }
    truth = posterior_from_draws(leaves, {}, (train.llms, train.items), Provenance("truth", {}, train.digest))
    scores = {"truth": held_out_score(truth, held_out), **baseline_scores(train, held_out)}
    comparison = compare_scores(scores)
    assert comparison.table.index.tolist() == ["truth", "additive logit", "row mean"]
    assert comparison.table["tied"].tolist() == [True, False, False]
    assert comparison.sentence.startswith("truth has the best log score (-0.")
    assert "worse: additive logit (-0.0" in comparison.sentence
    assert "tied" not in comparison.sentence


def made_up_score(values, cells, digest="0"):
    index = pd.Index([f"m{i}" for i in range(len(values))], name="llm", dtype=object)
    return HeldOutScore("x", pd.DataFrame({"log_score": values, "num_cells": cells}, index=index), digest)


def test_differences_and_standard_errors_are_paired_by_llm():
    rng = np.random.default_rng(0)
    cells = np.array([10, 20, 5, 0, 15])
    first, second = (-0.5 * cells + rng.normal(size=5) * (cells > 0) for _ in range(2))
    scores = {"a": made_up_score(first, cells), "b": made_up_score(second, cells)}
    table = compare_scores(scores).table
    best, other = (first, second) if first.sum() > second.sum() else (second, first)
    gap = (other - best)[cells > 0]
    number = cells[cells > 0]
    mean = gap.sum() / number.sum()
    residuals = gap - mean * number
    error = np.sqrt(len(gap) / (len(gap) - 1) * np.sum(residuals**2)) / number.sum()
    assert table["difference"].tolist() == pytest.approx([0.0, mean])
    assert table["se"].tolist() == pytest.approx([0.0, error])


def tied_share(shift, number=400):
    """How often two scores that differ by noise, and by a shift in standard errors, are called tied."""
    rng, cells = np.random.default_rng(1), np.full(40, 25)
    tied = 0
    for _ in range(number):
        noise = rng.normal(size=40)
        scores = {
            "a": made_up_score(-15.0 + np.zeros(40), cells),
            "b": made_up_score(-15.0 + noise + shift / np.sqrt(40), cells),
        }
        tied += compare_scores(scores).table["tied"].all()
    return tied / number


def test_equal_scores_are_called_tied_as_often_as_two_standard_errors_say():
    """95 % by Student's t with 39 degrees of freedom; a difference of 6 standard errors hardly ever is."""
    wanted = 1 - 2 * stats.t.sf(2, 39)
    error = np.sqrt(wanted * (1 - wanted) / 400)
    assert abs(tied_share(0.0) - wanted) < 4.5 * error
    assert tied_share(6.0) < 0.01


def test_the_sentence_reports_ties_as_ties():
    cells = np.full(4, 10)
    base = np.array([-5.0, -6.0, -4.0, -5.0])
    scores = {
        "row mean": made_up_score(base - np.array([3.0, 3.1, 2.9, 3.0]), cells),
        "nuts": made_up_score(base, cells),
        "laplace": made_up_score(base + np.array([0.2, -0.3, 0.1, -0.1]), cells),
    }
    comparison = compare_scores(scores)
    assert comparison.table.index.tolist() == ["nuts", "laplace", "row mean"]
    assert comparison.sentence == (
        "nuts has the best log score (-0.5000 per cell, 40 cells); tied with it: laplace (-0.0025 ± 0.0111); "
        "worse: row mean (-0.3000 ± 0.0041)."
    )
    same = compare_scores({"one": scores["nuts"], "two": scores["nuts"]})
    assert same.table["tied"].all()


def test_what_cannot_be_compared_is_refused():
    score = made_up_score(np.array([-1.0, -2.0]), np.array([2, 2]))
    with pytest.raises(InvalidConfigurationError, match="two scores or more"):
        compare_scores({"one": score})
    with pytest.raises(InvalidConfigurationError, match="same held-out cells"):
        compare_scores({"one": score, "two": made_up_score(np.array([-1.0, -2.0]), np.array([2, 2]), "1")})
    lonely = made_up_score(np.array([-1.0, 0.0]), np.array([2, 0]))
    with pytest.raises(InvalidConfigurationError, match="are of one LLM"):
        compare_scores({"one": lonely, "two": lonely})


def test_scores_do_not_depend_on_the_gauge():
    train, held_out = split_cells(simulate_suite(6, 10, seed=7).responses)
    p = fit_cbmm(train, penalty=Priors()).parameters
    moved = Parameters(
        2.0 * p.ability + 1.0, p.discrimination / 2.0, p.easiness - p.discrimination[:, 0] / 2.0
    )
    scores = []
    for parameters in (p, moved):
        leaves = {
            n: np.asarray(getattr(parameters, n))[None, None]
            for n in ("ability", "discrimination", "easiness")
        }
        posterior = posterior_from_draws(
            leaves, {}, (train.llms, train.items), Provenance("x", {}, train.digest)
        )
        scores.append(held_out_score(posterior, held_out).mean)
    assert scores[0] == pytest.approx(scores[1], rel=1e-10)
