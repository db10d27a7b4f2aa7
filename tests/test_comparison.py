"""Accuracy, cBMM and posterior compared: known orders, ties, movers with their reasons, and a real suite."""

import json

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from bayes_irt.analysis.comparison import compare_rankings
from bayes_irt.analysis.heterogeneity import relate_heterogeneity
from bayes_irt.cbmm import fit_cbmm
from bayes_irt.errors import InvalidConfigurationError
from bayes_irt.estimate import PointEstimate, Status, Timing, estimate_dataset
from bayes_irt.identify import canonicalize
from bayes_irt.inference.laplace import fit_laplace
from bayes_irt.parameters import Parameters
from bayes_irt.posterior import posterior_from_draws
from bayes_irt.priors import Priors
from bayes_irt.provenance import Provenance
from bayes_irt.responses import Responses

ITEMS, DRAWS = 40, 300


def staircase(totals, items=ITEMS):
    """Responses of LLMs that are right on the first so many items."""
    return Responses.from_arrays((np.arange(items) < np.array(totals)[:, None]).astype(int))


def posterior_of(responses, ability, noise=0.0, slopes=None, easiness=0.0, seed=0):
    """Draws around the abilities given; items alike, unless slopes and easinesses are given."""
    rng = np.random.default_rng(seed)
    size = (2, DRAWS // 2)
    draws = np.asarray(ability) + noise * rng.normal(size=(*size, responses.num_llms))
    slopes = np.ones(responses.num_items) if slopes is None else np.asarray(slopes)
    items = {"discrimination": np.broadcast_to(slopes[:, None], (*size, len(slopes), 1))}
    items["easiness"] = np.broadcast_to(easiness, (*size, responses.num_items))
    provenance = Provenance("nuts", {}, responses.digest, 0)
    return posterior_from_draws(
        {"ability": draws[..., None], **items}, {}, (responses.llms, responses.items), provenance
    )


def estimate_of(responses, ability, slopes=None):
    slopes = np.ones(responses.num_items) if slopes is None else np.asarray(slopes)
    raw = Parameters(np.asarray(ability, dtype=float)[:, None], slopes[:, None], np.zeros(len(slopes)))
    separated = tuple(np.zeros(number, dtype=bool) for number in (responses.num_llms, responses.num_items))
    labels = (responses.llms, responses.items)
    dataset = estimate_dataset(canonicalize(raw), raw, np.array([1.0]), labels, separated)
    provenance = Provenance("cbmm", {}, responses.digest)
    return PointEstimate(dataset, Status.CONVERGED, 0.0, 0.0, 1, Timing(0.0, 0.0), provenance)


def compared(totals, posterior, cbmm, noise=0.0, prob=0.9, **items):
    responses = staircase(totals)
    return compare_rankings(
        posterior_of(responses, posterior, noise, **items),
        estimate_of(responses, cbmm, **items),
        responses,
        prob=prob,
    )


def tau(comparison, first, second):
    return comparison.agreement.set_index(["first", "second"]).loc[(first, second), "kendall_tau"]


def test_perfect_agreement():
    totals = [30, 25, 20, 15, 10, 5]
    comparison = compared(totals, totals, totals)
    table = comparison.table
    for name in ("accuracy_rank", "cbmm_rank", "posterior_rank", "rank_lower", "rank_upper"):
        assert table[name].tolist() == [1, 2, 3, 4, 5, 6]
    assert table["accuracy_inside"].all()
    assert table["cbmm_inside"].all()
    assert (table["move"] == 0).all()
    assert table.index.tolist() == list(comparison.responses.llms)
    np.testing.assert_allclose(comparison.agreement["kendall_tau"], 1.0)
    movers = comparison.movers(5)
    assert len(movers.table) == len(movers.items) == 0
    assert movers.sentences == ()
    assert json.loads(movers.to_json())["movers"] == []
    assert movers.to_markdown().count("\n") == 5


def test_reversed_order():
    totals = [30, 25, 20, 15, 10, 5]
    comparison = compared(totals, totals[::-1], totals)
    table = comparison.table
    assert table.index.tolist() == list(comparison.responses.llms)[::-1]
    assert table["accuracy_rank"].tolist() == [6, 5, 4, 3, 2, 1]
    assert table["move"].tolist() == [5, 3, 1, -1, -3, -5]
    assert not table[["accuracy_inside", "cbmm_inside"]].any(axis=None)
    assert [tau(comparison, "accuracy", "cbmm"), tau(comparison, "cbmm", "posterior")] == pytest.approx(
        [1.0, -1.0]
    )


def test_ties_share_their_places():
    """Three LLMs share places 2 to 4; the posterior puts them second, fourth and sixth."""
    totals = [30, 20, 20, 20, 10, 5]
    order = [6, 5, 3, 1, 4, 2]
    comparison = compared(totals, order, order)
    table = comparison.table.loc[list(comparison.responses.llms)]
    assert table["accuracy_rank"].tolist() == [1, 2, 2, 2, 5, 6]
    assert table["accuracy_tied"].tolist() == [1, 3, 3, 3, 1, 1]
    assert table["posterior_rank"].tolist() == [1, 2, 4, 6, 3, 5]
    assert table["move"].tolist() == [0, 0, 0, -2, 2, 1]
    assert table["accuracy_inside"].tolist() == [True, True, True, False, False, False]
    wanted = stats.kendalltau(totals, order).statistic
    assert tau(comparison, "accuracy", "posterior") == pytest.approx(wanted)
    assert comparison.formatted()["accuracy rank"].tolist() == ["1", "2=", "5 *", "2=", "6 *", "2= *"]


def test_all_tied_in_accuracy():
    comparison = compared([20] * 6, range(6), range(6))
    assert (comparison.table["accuracy_rank"] == 1).all()
    assert (comparison.table["move"] == 0).all()
    assert comparison.table["accuracy_inside"].all()
    assert np.isnan(tau(comparison, "accuracy", "posterior"))
    assert "all LLMs are tied" in comparison.sentences[0]
    assert json.loads(comparison.to_json())["agreement"][0]["kendall_tau"] is None


@pytest.fixture(scope="module")
def noisy():
    totals = np.array([33, 30, 28, 26, 24, 22, 20, 18, 15, 12, 9, 5])
    shuffled = totals + 4.0 * np.random.default_rng(1).normal(size=len(totals))
    slopes = np.random.default_rng(2).gamma(2.0, 0.5, size=ITEMS)
    return compared(totals, shuffled / 8, totals / 8, noise=0.3, slopes=slopes)


def test_the_columns_say_what_the_draws_say(noisy):
    responses = noisy.responses
    totals = responses.successes.sum(axis=1)
    table = noisy.table.loc[list(responses.llms)]
    shuffled = totals + 4.0 * np.random.default_rng(1).normal(size=len(totals))
    draws = posterior_of(responses, shuffled / 8, 0.3).ability.to_numpy().reshape(-1, len(totals))
    cbmm = np.array((totals / 8 - (totals / 8).mean()) / (totals / 8).std())
    np.testing.assert_allclose(table["ability"], draws.mean(axis=0))
    np.testing.assert_allclose(table["cbmm_z"], (cbmm - draws.mean(axis=0)) / draws.std(axis=0), rtol=1e-6)
    ranks = 1 + (draws[:, None, :] > draws[:, :, None]).sum(axis=2)
    lower, upper = np.quantile(ranks, [0.05, 0.95], axis=0, method="inverted_cdf")
    np.testing.assert_array_equal(table[["rank_lower", "rank_upper"]], np.stack([lower, upper], axis=1))
    for name in ("accuracy", "cbmm"):
        inside = (table[f"{name}_rank"] >= table["rank_lower"]) & (
            table[f"{name}_rank"] <= table["rank_upper"]
        )
        np.testing.assert_array_equal(table[f"{name}_inside"], inside)
    np.testing.assert_array_equal(table["move"], table["accuracy_rank"] - table["posterior_rank"])
    error = np.sqrt(table["accuracy"] * (1 - table["accuracy"]) / (ITEMS - 1))
    reach = stats.norm.ppf(0.95) * error
    np.testing.assert_allclose(table["accuracy_upper"], (table["accuracy"] + reach).clip(upper=1.0))
    np.testing.assert_allclose(table["accuracy_lower"], table["accuracy"] - reach)


def test_heterogeneity_is_the_coefficient_of_variation(noisy):
    slopes = np.random.default_rng(2).gamma(2.0, 0.5, size=ITEMS)
    wanted = slopes.std() / slopes.mean()
    assert noisy.heterogeneity["cv"].tolist() == pytest.approx([wanted, wanted])
    assert noisy.heterogeneity.loc["posterior", ["cv_lower", "cv_upper"]].tolist() == pytest.approx(
        [wanted] * 2
    )
    assert compared([9, 7, 5, 3], range(4), range(4)).heterogeneity["cv"].tolist() == pytest.approx([0, 0])


def test_movers_are_those_that_move_most_and_their_steps_add_up(noisy):
    movers = noisy.movers(4, items_each=ITEMS)
    by_size = noisy.table["move"].abs().sort_values(ascending=False, kind="stable")
    assert movers.table.index.tolist() == by_size.index[:4].tolist()
    steps = movers.table[["accuracy_ability", "item_set", "item_weights", "remainder"]]
    np.testing.assert_allclose(steps.sum(axis=1), noisy.table.loc[movers.table.index, "ability"], atol=1e-12)
    totals = movers.items.groupby("llm")["contribution"].sum()
    np.testing.assert_allclose(totals[movers.table.index], movers.table["item_weights"])
    for llm, own in movers.items.groupby("llm"):
        assert own["item"].is_unique
        assert own["contribution"].abs().is_monotonic_decreasing
        np.testing.assert_array_equal(own["accuracy"] == "underrates", own["contribution"] > 0)
        counts = dict(
            zip(
                noisy.responses.items, noisy.responses.successes[noisy.responses.llms.index(llm)], strict=True
            )
        )
        assert own["successes"].tolist() == [counts[item] for item in own["item"]]


def test_moves_are_told_in_words(noisy):
    movers = noisy.movers(2, items_each=1)
    for sentence, (llm, row) in zip(movers.sentences, movers.table.iterrows(), strict=True):
        move = row["move"]
        words = f"{abs(move)} {'place' if abs(move) == 1 else 'places'} {'up' if move > 0 else 'down'}"
        assert sentence.startswith(f"{llm} moves {words}, from accuracy rank {row['accuracy_rank']}")
        assert f"to posterior rank {row['posterior_rank']} (90%" in sentence
        assert f"right {row['telling_successes']} times" in sentence
    assert len(movers.items) <= 4


def test_who_saw_easy_items_only_is_brought_down_for_that():
    """Of 13 LLMs the middle one saw the 30 easy items alone, of 60, and stands first by accuracy."""
    ability, easiness = np.linspace(1, -1, 13), np.repeat([1.7, -1.2], 30)
    attempts = np.ones((13, 60), dtype=int)
    attempts[6, 30:] = 0
    chance = 1 / (1 + np.exp(-ability[:, None] - easiness))
    responses = Responses.from_arrays(np.random.default_rng(0).binomial(attempts, chance), attempts)
    posterior = posterior_of(responses, ability, 0.2, easiness=easiness)
    comparison = compare_rankings(posterior, estimate_of(responses, ability), responses)
    assert comparison.table.loc["llm-007", "accuracy_rank"] == 1
    movers = comparison.movers(1)
    row = movers.table.loc["llm-007"]
    assert row["move"] < -3
    assert row["item_set"] < -0.5
    assert abs(row["item_weights"]) < abs(row["item_set"]) / 10
    assert "the items that it saw -" in movers.sentences[0]


def test_counts_are_told_as_counts():
    rng = np.random.default_rng(3)
    attempts = np.full((8, 12), 4)
    responses = Responses.from_arrays(rng.binomial(attempts, np.linspace(0.2, 0.8, 8)[:, None]), attempts)
    slopes = rng.gamma(2.0, 0.5, size=12)
    comparison = compare_rankings(
        posterior_of(responses, rng.normal(size=8), 0.1, slopes),
        estimate_of(responses, rng.normal(size=8)),
        responses,
    )
    reasons = comparison.movers(8).items["reason"]
    assert reasons.str.fullmatch(
        r"\d of 4 right, (more|fewer) than expected, where that tells (much|little)"
    ).all()


def test_what_the_comparison_says_in_words(noisy):
    text = noisy.sentences
    assert len(text) == 5
    assert text[0].startswith("Rankings by accuracy and cBMM: Kendall's tau 1.000, Spearman's 1.000.")
    assert "With the true order" not in text[0]
    assert "With the true order" in text[1]
    inside = noisy.table["accuracy_inside"].sum()
    assert f"Of 12 LLMs, {inside} have their accuracy rank inside the 90% interval" in text[3]
    assert text[4].startswith("The cBMM ability lies a median of")


def test_the_forms_as_text(noisy):
    lines = noisy.to_markdown().splitlines()
    assert len(lines) == 2 + 12 + 1 + 1 + len(noisy.sentences)
    read = json.loads(noisy.to_json())
    assert [row["llm"] for row in read["llms"]] == noisy.table.index.tolist()
    for column in noisy.table.columns:
        np.testing.assert_allclose([row[column] for row in read["llms"]], noisy.table[column], rtol=1e-12)
    assert len(read["agreement"]) == 3
    movers = noisy.movers(3)
    assert len(json.loads(movers.to_json())["items"]) == len(movers.items)
    assert movers.to_markdown().count("\n") == 2 + len(movers.table) + 1 + 2 + len(movers.items)
    assert noisy.formatted().map(lambda cell: isinstance(cell, str)).all(axis=None)


@pytest.mark.parametrize("number", [2, 3])
def test_below_four_llms_ranks_are_compared_but_no_abilities(number):
    comparison = compared([20, 15, 10][:number], range(number), range(number))
    assert comparison.table[["ability", "cbmm_ability", "cbmm_z", "ability_lower"]].isna().all(axis=None)
    assert comparison.table["posterior_rank"].tolist() == list(range(1, number + 1))
    assert set(comparison.formatted()["cBMM z"]) == {"n/a"}
    assert len(comparison.sentences) == 4
    with pytest.raises(InvalidConfigurationError, match="have no ability by which a move"):
        comparison.movers(3)


def test_what_does_not_belong_together_is_refused():
    totals = [20, 15, 10, 5]
    responses, other = staircase(totals), staircase([20, 15, 10, 6])
    posterior, estimate = posterior_of(responses, totals), estimate_of(responses, totals)
    with pytest.raises(InvalidConfigurationError, match="posterior is about other LLMs"):
        compare_rankings(posterior, estimate_of(other, totals), other)
    with pytest.raises(InvalidConfigurationError, match="estimate is about other LLMs"):
        compare_rankings(posterior, estimate_of(other, totals), responses)
    for prob in (0.0, 1.0, float("nan")):
        with pytest.raises(InvalidConfigurationError, match="between 0 and 1"):
            compare_rankings(posterior, estimate, responses, prob=prob)
    for count in (0, 1.5):
        with pytest.raises(InvalidConfigurationError, match="count is"):
            compare_rankings(posterior, estimate, responses).movers(count)


def test_unlinked_llms_are_refused():
    attempts = np.kron(np.eye(2, dtype=int), np.ones((3, 20), dtype=int))
    responses = Responses.from_arrays(attempts * (np.arange(40) % 3 > 0), attempts)
    with pytest.raises(InvalidConfigurationError, match="share no item"):
        compare_rankings(posterior_of(responses, range(6)), estimate_of(responses, range(6)), responses)


# Across suites


def suites(number, sign):
    """Suites whose discriminations vary more and more, and whose accuracy ranks agree less and less (or more)."""
    totals, found = np.array([33, 30, 27, 24, 21, 18, 15, 12]), {}
    for place in range(number):
        ability = totals.astype(float)
        shift = place if sign < 0 else number - 1 - place
        ability[: shift + 1] = ability[: shift + 1][::-1]
        slopes = 1 + 0.1 * (place + 1) * np.resize([-1.0, 1.0], ITEMS)
        found[f"suite {place}"] = compared(totals, ability / 8, ability / 8, noise=0.01, slopes=slopes)
    return found


@pytest.mark.parametrize(("sign", "word"), [(-1, "less"), (1, "more")])
def test_heterogeneity_and_agreement_across_suites(sign, word):
    relation = relate_heterogeneity(suites(5, sign))
    np.testing.assert_allclose(relation.table["cbmm_cv"], 0.1 * np.arange(1, 6))
    np.testing.assert_allclose(relation.table["cv"], 0.1 * np.arange(1, 6))
    agreement = [1 - 2 * (k * (k + 1) // 2) / 28 for k in range(5)]
    agreement = agreement if sign < 0 else agreement[::-1]
    for name in ("kendall_accuracy_cbmm", "kendall_accuracy_posterior"):
        np.testing.assert_allclose(relation.table[name], agreement)
    assert relation.correlations["kendall_tau"].tolist() == pytest.approx([sign, sign])
    assert relation.correlations["p_value"].tolist() == pytest.approx(
        [2 / 120] * 2
    )  # one order of 5!, and its reverse
    assert f"more heterogeneity of discrimination goes with {word} agreement" in relation.sentences[0]
    read = json.loads(relation.to_json())
    assert [row["suite"] for row in read["suites"]] == relation.table.index.tolist()
    assert len(relation.to_markdown().splitlines()) == 2 + 5 + 1 + 2


def test_two_suites_have_no_relation():
    relation = relate_heterogeneity(suites(2, -1))
    assert relation.correlations["kendall_tau"].isna().all()
    assert "it takes at least 3 suites" in relation.sentences[1]
    assert json.loads(relation.to_json())["correlations"][0]["p_value"] is None


def test_suites_of_different_probabilities_are_refused():
    totals = [20, 15, 10, 5]
    pair = {str(prob): compared(totals, totals, totals, prob=prob) for prob in (0.8, 0.9)}
    for given in (pair, {}):
        with pytest.raises(InvalidConfigurationError, match="all at the same prob"):
            relate_heterogeneity(given)


# A real suite


def test_math500(data_dir):
    """The paper's main example: hardly any LLM's accuracy rank is refuted, and items explain who moves."""
    responses = Responses.from_wide(pd.read_parquet(data_dir / "math500_paper.parquet"))
    posterior = fit_laplace(responses, num_draws=300)
    comparison = compare_rankings(posterior, fit_cbmm(responses, penalty=Priors()), responses)
    assert tau(comparison, "accuracy", "cbmm") == pytest.approx(0.968, abs=0.01)
    assert comparison.table["accuracy_inside"].mean() > 0.85
    assert comparison.table["cbmm_inside"].mean() > 0.95
    movers = comparison.movers(20).table
    gain = movers["ability"] - movers["accuracy_ability"]
    assert stats.spearmanr(gain, movers["item_weights"]).statistic > 0.9
    assert movers["remainder"].abs().median() < 0.01
    assert (movers["item_set"] == 0).all()
