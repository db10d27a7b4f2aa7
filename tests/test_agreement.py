"""Rank correlations by draw against SciPy's, one draw at a time, ties included; known agreements."""

import numpy as np
import pytest
from scipy import stats

from bayes_irt.analysis import agreement
from bayes_irt.analysis.agreement import (
    kendall_by_draw,
    rank_agreement,
    rank_correlations,
    spearman_by_draw,
)
from bayes_irt.analysis.ranks import ranks_by_draw


@pytest.mark.parametrize("number", [2, 3, 17, 60])
@pytest.mark.parametrize("decimals", [0, 1, 8])
def test_correlations_by_draw_are_those_of_scipy(number, decimals):
    rng = np.random.default_rng(number)
    values = rng.normal(size=number).round(decimals)
    values[0] += 0.1  # never all tied
    draws = values + rng.normal(size=(30, number))
    ranks = ranks_by_draw(draws)
    kendall = [stats.kendalltau(values, draw).statistic for draw in draws]
    spearman = [stats.spearmanr(values, draw).statistic for draw in draws]
    np.testing.assert_allclose(kendall_by_draw(values, ranks), kendall, atol=1e-12)
    np.testing.assert_allclose(spearman_by_draw(values, ranks), spearman, atol=1e-12)
    assert rank_correlations(values, draws[0]) == pytest.approx((kendall[0], spearman[0]))


def test_where_all_are_tied_there_is_no_correlation():
    ranks = np.array([[1, 2, 3], [3, 2, 1]])
    assert np.isnan(kendall_by_draw(np.ones(3), ranks)).all()
    assert np.isnan(spearman_by_draw(np.ones(3), ranks)).all()
    assert np.isnan(rank_correlations(np.ones(3), np.arange(3.0))).all()
    table = rank_agreement({"accuracy": np.ones(3), "cbmm": np.arange(3.0)}, sharp(3)[0], 0.9)
    assert table["kendall_tau"].isna().tolist() == [True, True, False]


def test_ties_lower_no_correlation_of_what_they_leave_open():
    """Tau-b divides by untied pairs: three LLMs, two of them tied, the third in its place."""
    assert rank_correlations(np.array([0.5, 0.5, 0.1]), np.array([3.0, 2.0, 1.0])) == pytest.approx(
        (2 / np.sqrt(6), stats.pearsonr([1.5, 1.5, 3], [1, 2, 3]).statistic)
    )


def sharp(number=20, noise=0.0, seed=0):
    """Draws that differ little, LLMs in order."""
    ladder = np.linspace(2, -2, number)
    return ladder + noise * np.random.default_rng(seed).normal(size=(500, number)), ladder


def test_perfect_agreement_and_reversed_order():
    draws, ladder = sharp()
    table = rank_agreement({"accuracy": ladder, "cbmm": -ladder}, draws, 0.9).set_index(["first", "second"])
    names = ["kendall_tau", "kendall_mean", "kendall_lower", "kendall_upper"]
    names += ["spearman", "spearman_mean", "spearman_lower", "spearman_upper"]
    np.testing.assert_allclose(table.loc[("accuracy", "posterior"), names].astype(float), 1.0)
    np.testing.assert_allclose(table.loc[("cbmm", "posterior"), names].astype(float), -1.0)
    both = table.loc[("accuracy", "cbmm")]
    assert both[["kendall_tau", "spearman"]].tolist() == pytest.approx([-1.0, -1.0])
    assert both[["kendall_mean", "kendall_lower", "spearman_upper"]].isna().all()


def test_the_interval_is_that_of_the_draws():
    draws, ladder = sharp(noise=0.5)
    row = rank_agreement({"accuracy": ladder}, draws, 0.8).iloc[0]
    by_draw = [stats.kendalltau(ladder, draw).statistic for draw in draws]
    assert row["kendall_mean"] == pytest.approx(np.mean(by_draw))
    assert [row["kendall_lower"], row["kendall_upper"]] == pytest.approx(
        list(np.quantile(by_draw, [0.1, 0.9]))
    )
    assert row["kendall_tau"] == pytest.approx(stats.kendalltau(ladder, draws.mean(axis=0)).statistic)
    assert row["kendall_upper"] < row["kendall_tau"]  # means average away what draws leave open


def test_many_draws_are_thinned_evenly(monkeypatch):
    draws, ladder = sharp(noise=0.5)
    monkeypatch.setattr(agreement, "MOST_DRAWS", 51)
    row = rank_agreement({"accuracy": ladder}, draws, 0.8).iloc[0]
    kept = draws[np.linspace(0, 499, 51).round().astype(int)]
    assert row["kendall_mean"] == pytest.approx(
        np.mean([stats.kendalltau(ladder, draw).statistic for draw in kept])
    )
    assert row["kendall_tau"] == pytest.approx(stats.kendalltau(ladder, draws.mean(axis=0)).statistic)
