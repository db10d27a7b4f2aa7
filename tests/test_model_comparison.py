"""Models compared: rows against brute-force quadrature, LOO against refits, and the right model winning."""

import itertools
import warnings
from functools import cache

import numpy as np
import pandas as pd
import pytest
from scipy import integrate, stats
from scipy.special import expit

from bayes_irt import (
    Common,
    ComparisonPlan,
    HalfNormal,
    LearnedLocation,
    LearnedScale,
    LearnedShare,
    ModelSpec,
    Normal,
    Priors,
    compare_models,
    fit_laplace,
    simulate_from_prior,
    simulate_suite,
    usual_models,
)
from bayes_irt.cell_laws import CellLaw
from bayes_irt.errors import InvalidConfigurationError
from bayes_irt.left_out import cell_scores, llm_scores
from bayes_irt.model_comparison import CRITERIA
from bayes_irt.parameters import Parameters
from bayes_irt.row_likelihood import row_log_likelihoods

NARROW = Normal(LearnedLocation(0.0, 0.3), LearnedScale(1.5, 0.1))
GRID = np.linspace(-9, 9, 721)


def law_of(floor=None, dispersion=None, testlet=None) -> CellLaw:
    rng = np.random.default_rng(4)
    parameters = Parameters(np.zeros((1, 1)), rng.gamma(3, 0.5, (5, 1)), rng.normal(size=5))
    full = [None if value is None else np.full(5, value) for value in (floor, dispersion)]
    effects = None if testlet is None else np.zeros((1, 2))
    return CellLaw(parameters, *full, effects, testlet)


def chance(law: CellLaw, ability: float, shift: np.ndarray | float = 0.0) -> np.ndarray:
    floor = 0.0 if law.floor is None else law.floor
    logits = law.parameters.discrimination[:, 0] * ability + law.parameters.easiness + shift
    return floor + (1 - floor) * expit(logits)


@pytest.mark.parametrize(("floor", "dispersion"), list(itertools.product((None, 0.2), (None, 0.3))))
def test_a_row_is_integrated_as_by_quad(floor, dispersion):
    law = law_of(floor, dispersion)
    right, tried = np.array([[3, 0, 2, 1, 0]], np.uint8), np.array([[3, 2, 3, 3, 0]], np.uint8)

    counts = right[0].astype(float), tried[0].astype(float)

    def density(ability: float) -> float:
        p = chance(law, ability)
        if dispersion is None:
            cells = stats.binom.pmf(*counts, p)
        else:
            total = (1 - dispersion) / dispersion
            cells = stats.betabinom.pmf(*counts, p * total, (1 - p) * total)
        return float(np.prod(cells) / 9 * stats.norm.pdf(ability))  # coefficients 1, 1, 3, 3, 1

    wanted = integrate.quad(density, -9, 9, epsabs=1e-14)[0]
    assert row_log_likelihoods(law, right, tried, GRID)[0] == pytest.approx(np.log(wanted), abs=1e-6)


def test_testlets_are_integrated_out_too():
    testlet, scale = np.array([0, 0, 1, 1, -1]), 0.7
    law = law_of(testlet=testlet)
    right, tried = np.array([[1, 0, 1, 1, 0]], np.uint8), np.ones((1, 5), np.uint8)

    ability, effects = np.linspace(-8, 8, 161), np.linspace(-5, 5, 101)
    cube = np.meshgrid(ability, effects, effects, indexing="ij")
    total = np.ones(cube[0].shape)
    for item, (slope, easiness) in enumerate(
        zip(law.parameters.discrimination[:, 0], law.parameters.easiness, strict=True)
    ):
        p = expit(slope * cube[0] + easiness + (0.0 if testlet[item] < 0 else cube[1 + testlet[item]]))
        total *= p if right[0, item] else 1 - p
    weights = np.multiply.outer(
        stats.norm.pdf(ability), np.multiply.outer(*[stats.norm.pdf(effects, 0, scale)] * 2)
    )
    wanted = (total * weights).sum() * (ability[1] - ability[0]) * (effects[1] - effects[0]) ** 2
    found = row_log_likelihoods(law, right, tried, GRID, scale)[0]
    assert found == pytest.approx(np.log(wanted), abs=1e-4)


def quiet(responses, spec, seed):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        return fit_laplace(responses, spec=spec, seed=seed)


@cache
def steep():
    """Discriminations that differ much."""
    return simulate_suite(60, 80, seed=2).responses


@cache
def compared():
    models = {"1PL": ModelSpec(Priors(Common())), "2PL": ModelSpec(), "again": ModelSpec()}
    return compare_models(steep(), models, fit=quiet, plan=ComparisonPlan(folds=3))


@pytest.mark.parametrize("criterion", CRITERIA)
def test_the_right_model_wins_and_equals_tie(criterion):
    table = compared().by[criterion].table
    assert set(table.index[table["tied"]]) == {"2PL", "again"}
    assert table.loc["1PL", "difference"] < 0


def test_sentences_call_ties_ties():
    for sentence in compared().sentences:
        assert " tie" in sentence
        assert "worse: 1PL" in sentence


def test_forms_agree():
    found = compared()
    assert len(found.formatted()) == 9
    assert found.to_markdown().count("|") > 50
    assert found.table.loc[found.table["criterion"] == "cells", "high_k"].between(0, 0.05).all()
    assert '"criterion"' in found.to_json()


def test_leaving_out_cells_is_what_refits_say():
    """The score of a few cells, each left out by a refit, is that of smoothed weights."""
    responses = simulate_suite(30, 30, seed=5).responses
    posterior = quiet(responses, ModelSpec(), 0)
    score, high = cell_scores(posterior, responses)
    assert high < 0.02
    observed = score.table["log_score"].sum() / responses.num_observed
    from bayes_irt import held_out_score, split_cells

    folds = []
    for seed in range(6):
        train, held_out = split_cells(responses, share=0.1, seed=seed)
        folds.append(held_out_score(quiet(train, ModelSpec(), 0), held_out).mean)
    error = np.std(folds, ddof=1) / np.sqrt(len(folds))
    assert abs(observed - np.mean(folds)) < 3 * error


def test_a_floor_is_found_where_there_is_one():
    hard = Normal(LearnedLocation(-1.5, 0.1), LearnedScale(1.5, 0.1))
    spec = ModelSpec(Priors(HalfNormal(LearnedScale(2.0, 0.1)), hard), floor=0.3)
    responses = simulate_from_prior(spec, 100, 150, seed=1).responses
    models = {"2PL": ModelSpec(), "floor": ModelSpec(floor=0.3)}
    found = compare_models(responses, models, criteria=("held-out cells",), fit=quiet)
    assert found.table["model"].tolist() == ["floor", "2PL"]
    assert found.table["tied"].tolist() == [True, False]


def test_dispersion_is_found_where_there_is_some():
    spec = ModelSpec(Priors(HalfNormal(LearnedScale(1.5, 0.1)), NARROW), dispersion=LearnedShare(8.0, 12.0))
    responses = simulate_from_prior(spec, 24, 30, attempts=6, seed=1).responses
    models = {name: usual_models(responses)[name] for name in ("2PL", "2PL, binomial")}
    found = compare_models(responses, models, criteria=("LLMs",), fit=quiet, plan=ComparisonPlan(folds=2))
    for comparison in found.by.values():
        assert comparison.table.index[0] == "2PL"
        assert comparison.table["tied"].tolist() == [True, False]


def test_usual_models_follow_the_data():
    assert list(usual_models(steep())) == ["1PL", "2PL"]
    assert usual_models(steep(), "0.25")["2PL, floor 0.25"].floor == 0.25
    assert usual_models(steep(), "n_options")["2PL, floor n_options"].floor == "n_options"


def test_bad_questions_are_refused():
    models = {"1PL": ModelSpec(Priors(Common())), "2PL": ModelSpec()}
    with pytest.raises(InvalidConfigurationError, match="two models"):
        compare_models(steep(), {"2PL": ModelSpec()})
    with pytest.raises(InvalidConfigurationError, match="criteria"):
        compare_models(steep(), models, criteria=("everything",))  # type: ignore[arg-type]
    with pytest.raises(InvalidConfigurationError, match="folds"):
        llm_scores(steep(), ModelSpec(), folds=31)
    with pytest.raises(InvalidConfigurationError, match="unseen LLM"):
        llm_scores(steep(), ModelSpec(llm_groups="family"))
    fitted = []
    for plan, spec, message in (
        (ComparisonPlan(folds=31), ModelSpec(), "folds"),
        (None, ModelSpec(floor="nothing"), "no column 'nothing'"),
        (None, ModelSpec(llm_groups="family"), "unseen LLM"),
    ):
        with pytest.raises(InvalidConfigurationError, match=message):
            compare_models(
                steep(), {"2PL": ModelSpec(), "other": spec}, plan=plan, fit=lambda *_: fitted.append(1)
            )
    assert fitted == []  # all of it before anything is fitted


def test_items_that_one_fold_alone_answered_are_left_out():
    responses = steep()
    attempts = np.array(responses.attempts)
    attempts[1:, 0] = 0  # item 0 has one answer
    counts = {"successes": np.minimum(responses.successes, attempts), "attempts": attempts}
    dataset = responses.dataset.assign({name: (("llm", "item"), values) for name, values in counts.items()})
    score = llm_scores(type(responses)(dataset), ModelSpec(), quiet, folds=2)
    assert np.isfinite(score.table["log_score"]).all()
    assert isinstance(score.table, pd.DataFrame)
