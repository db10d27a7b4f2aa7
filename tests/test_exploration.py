"""Traits that are explored: matching by loads, recovery of a simple structure, and solutions that differ."""

import dataclasses
import io
import warnings
from functools import cache

import numpy as np
import pandas as pd
import pytest
import xarray as xr
from test_cli import call

from bayes_irt import (
    ModelSpec,
    Parameters,
    Priors,
    Responses,
    Sampler,
    check_posterior,
    compare_models,
    fit_cbmm,
    fit_laplace,
    fit_nuts,
    rank_llms,
    sparse_priors,
    trait_models,
    trait_solutions,
    trait_strengths,
)
from bayes_irt.checks import Outcome
from bayes_irt.cli_plans import spec_of
from bayes_irt.errors import InvalidConfigurationError
from bayes_irt.item_law import law_of_items
from bayes_irt.parameters import logits
from bayes_irt.posterior import Posterior
from bayes_irt.priors import Gamma, HalfNormal
from bayes_irt.trait_matching import load_cosines, match_to, match_traits, matched_cosines, same_traits

LLMS, ITEMS, TRAITS = 120, 60, 2
SPEC = ModelSpec(sparse_priors(), traits=TRAITS)


def suite_of(num_traits, seed=0, items=ITEMS):
    """Draw simple structure: each item loads on one of uncorrelated traits."""
    rng = np.random.default_rng(seed)
    ability = rng.normal(size=(LLMS, num_traits))
    slopes = np.zeros((items, num_traits))
    slopes[np.arange(items), np.arange(items) % num_traits] = rng.uniform(1.0, 2.5, items)
    chances = 1 / (1 + np.exp(-(ability @ slopes.T + rng.normal(size=items))))
    return Responses.from_arrays((rng.random(chances.shape) < chances).astype(int)), ability, slopes


@cache
def by_laplace(num_traits=TRAITS, spec=SPEC):
    return fit_laplace(suite_of(num_traits)[0], spec=spec)


@cache
def by_nuts():
    return fit_nuts(
        suite_of(TRAITS)[0], spec=SPEC, sampler=Sampler(num_chains=2, num_warmup=150, num_draws=150)
    )


# Which trait is which


def draws_of(rng, chains=2, number=30):
    """Draw loads of three traits around one structure, and correlations that tell the traits apart."""
    slopes = np.zeros((9, 3))
    slopes[np.arange(9), np.arange(9) % 3] = [3, 2, 1] * 3
    loads = slopes + rng.uniform(0, 0.3, size=(chains, number, 9, 3))
    ability = rng.normal(size=(chains, number, 20, 3))
    ability = (ability - ability.mean(axis=2, keepdims=True)) / ability.std(axis=2, keepdims=True)
    among = np.broadcast_to([0.1, 0.2, 0.3], (chains, number, 3)).copy()
    return Parameters(ability, loads, rng.normal(size=(chains, number, 9))), among


def test_draws_in_any_order_are_matched():
    rng = np.random.default_rng(0)
    known, among = draws_of(rng)
    mixed = Parameters(
        *(np.array(values) for values in (known.ability, known.discrimination, known.easiness))
    )
    mixed_among = among.copy()
    pairs = {(0, 1): 0, (0, 2): 1, (1, 2): 2}
    for chain in range(2):
        for draw in range(30):
            order = rng.permutation(3)
            for values in (mixed.ability, mixed.discrimination):
                values[chain, draw] = values[chain, draw][:, order]
            for (first, second), place in pairs.items():
                old = pairs[tuple(sorted((order[first], order[second])))]
                mixed_among[chain, draw, place] = among[chain, draw, old]
    found, correlation = match_traits(mixed, mixed_among)
    np.testing.assert_allclose(found.discrimination, known.discrimination)
    np.testing.assert_allclose(found.ability, known.ability)
    np.testing.assert_allclose(correlation, among)
    np.testing.assert_allclose(logits(found), logits(mixed), atol=1e-5)
    assert match_traits(mixed, None)[1] is None
    assert np.abs(mixed.discrimination - known.discrimination).max() > 1


def test_the_strongest_trait_comes_first():
    rng = np.random.default_rng(1)
    known, _ = draws_of(rng)
    turned = Parameters(known.ability[..., ::-1], known.discrimination[..., ::-1], known.easiness)
    np.testing.assert_allclose(match_traits(turned, None)[0].discrimination, known.discrimination)


def test_cosines_are_those_of_loads():
    one = np.array([[3.0, 0.0], [4.0, 2.0]])
    np.testing.assert_allclose(load_cosines(one, one), [[1, 0.8], [0.8, 1]])
    np.testing.assert_array_equal(match_to(one[:, ::-1], one), [1, 0])
    np.testing.assert_allclose(matched_cosines(one[:, ::-1], one), 1)
    assert same_traits(one[:, ::-1], one)
    assert not same_traits(np.array([[1.0, 1.0], [1.0, 0.0]]), np.eye(2))
    assert load_cosines(np.zeros((2, 1)), np.ones((2, 1))) == 0


# Recovery


def test_a_simple_structure_is_found_without_being_told():
    slopes = suite_of(TRAITS)[2]
    for posterior in (by_laplace(), by_nuts()):
        assert posterior.traits == ("trait 1", "trait 2")
        loads = posterior.draws["discrimination"].mean("draw").to_numpy()
        assert min(matched_cosines(one, slopes).min() for one in loads) > 0.95
        report = check_posterior(posterior)
        assert report["one solution"].outcome is Outcome.PASS
        strengths = trait_strengths(posterior)
        assert strengths["share"].is_monotonic_decreasing
        np.testing.assert_allclose(strengths["share"].sum(), 1)
        np.testing.assert_array_equal(strengths["items"], [30, 30])
    # the engines agree, and each chain started by itself
    ability = [np.asarray(posterior.parameters.ability) for posterior in (by_laplace(), by_nuts())]
    gap = (ability[0].mean(axis=0) - ability[1].mean(axis=0)) / ability[1].std(axis=0)
    assert np.median(np.abs(gap)) < 0.2
    truth = suite_of(TRAITS)[1]
    found = ability[0].mean(axis=0)
    cross = np.abs(np.corrcoef(found.T, truth.T)[:TRAITS, TRAITS:])
    assert cross.max(axis=1).min() > 0.85


def test_prior_without_sparsity_mixes_traits_more():
    slopes = suite_of(TRAITS)[2]
    plain = by_laplace(spec=ModelSpec(traits=TRAITS))
    least = [
        matched_cosines(posterior.draws["discrimination"].mean(("chain", "draw")).to_numpy(), slopes).min()
        for posterior in (plain, by_laplace())
    ]
    assert least[0] < least[1] - 0.02


def test_traits_that_are_not_there_are_said_to_differ():
    """One ability explored as three: starts find different mixtures of it."""
    with pytest.warns(UserWarning, match="Laplace"):
        posterior = fit_laplace(suite_of(1)[0], spec=dataclasses.replace(SPEC, traits=3))
    failed = {check.name for check in check_posterior(posterior).failures}
    assert failed & {"one solution", "mode", "mean"}
    assert float(posterior.tree["approximation"]["starts"]) == 4


def test_chains_with_different_traits_are_named_and_shown():
    posterior = by_nuts()
    draws = posterior.draws.copy(deep=True)
    loads = draws["discrimination"].transpose("chain", "draw", "item", "trait")
    turned = loads.to_numpy().copy()
    turned[1] = np.stack([turned[1].sum(axis=-1), np.abs(turned[1, ..., 0] - turned[1, ..., 1])], axis=-1) / 2
    draws["discrimination"] = loads.copy(data=turned)
    groups = {name: posterior.tree[name].to_dataset() for name in posterior.tree.children}
    tree = xr.DataTree.from_dict({**groups, "posterior": draws})
    check = check_posterior(Posterior(tree, posterior.provenance))["one solution"]
    assert check.outcome is Outcome.FAIL
    assert "chain 1" in check.labels or "chain 0" in check.labels
    shown = trait_solutions(Posterior(tree, posterior.provenance), most=2)
    assert shown.index.names == ["chain", "trait"]
    assert shown["cosine"].min() < 0.9
    assert shown["items"].str.count(",").eq(1).all()
    same = trait_solutions(posterior)
    assert same["cosine"].min() > 0.98


# How many traits


def in_groups():
    responses = suite_of(TRAITS, items=48)[0]
    groups = pd.DataFrame({"group": [f"group {number % TRAITS}" for number in range(48)]}, responses.items)
    return Responses.from_arrays(responses.successes, items=responses.items, item_metadata=groups)


def quiet(responses, spec, seed):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # few answers on each trait; too many traits
        return fit_laplace(responses, spec=spec, seed=seed)


@pytest.mark.parametrize("criterion", ["held-out cells", "cells"])
def test_the_number_of_traits_is_found(criterion):
    models = trait_models(["group"], most=3)
    del models["general and group"]
    table = compare_models(in_groups(), models, criteria=(criterion,), fit=quiet).table.set_index("model")
    assert table.loc["group", "tied"]
    assert not table.loc["one ability", "tied"]
    assert table.loc["2 traits", "mean"] > table.loc["one ability", "mean"]
    assert table.loc["3 traits", "mean"] < table.loc["2 traits", "mean"] + table.loc["2 traits", "se"]


def test_trait_models_follow_what_is_asked():
    assert trait_models(["a", "b"])["general and b"] == ModelSpec(traits="b", general=True)
    assert list(trait_models("column")) == ["one ability", "column", "general and column"]
    assert trait_models(most=3)["3 traits"] == ModelSpec(sparse_priors(), traits=3)
    for columns, most in (((), 1), ((), 0), (("a",), 1.5)):
        with pytest.raises(InvalidConfigurationError):
            trait_models(columns, most)


# What is asked


def test_the_number_of_traits_must_make_sense():
    law = law_of_items(SPEC.settled(1), pd.DataFrame(index=range(9)), 9).traits
    assert law.labels == ("trait 1", "trait 2")
    assert law.exploratory
    assert law.loads.all()
    assert (SPEC.exploratory, ModelSpec(traits="subject").exploratory, ModelSpec().exploratory) == (
        True,
        False,
        False,
    )
    assert "2 exploratory traits" in SPEC.title
    for wrong in (1, 0, -2, True, 2.5):
        with pytest.raises(InvalidConfigurationError):
            ModelSpec(traits=wrong)
    with pytest.raises(InvalidConfigurationError, match="general"):
        ModelSpec(traits=3, general=True)
    with pytest.raises(InvalidConfigurationError, match="at least"):
        law_of_items(ModelSpec(traits=8).settled(1), pd.DataFrame(index=range(9)), 9)


def test_the_command_line_explores_with_a_sparse_prior(tmp_path):
    assert isinstance(spec_of(traits=("3",)).priors.discrimination, Gamma)
    assert spec_of(traits=("3",)).traits == 3
    assert spec_of(traits=("subject",)).priors.discrimination == HalfNormal()
    responses = suite_of(TRAITS)[0]
    table = pd.DataFrame(
        responses.successes, index=pd.Index(responses.llms, name="llm"), columns=responses.items
    )
    table.to_csv(tmp_path / "suite.csv")
    run = tmp_path / "run"
    fit = call("fit", tmp_path / "suite.csv", "--method", "laplace", "--traits", 2, "-o", run)
    assert fit.code in (0, 3)
    assert "2 exploratory traits" in fit.err
    assert "Of what tells LLMs apart: trait 1" in fit.err
    ranked = call("rank", run, "--trait", "trait 2", "--format", "csv")
    assert ranked.code == fit.code
    assert len(pd.read_csv(io.StringIO(ranked.out))) == LLMS


def test_llms_are_ranked_on_an_explored_trait():
    posterior = by_laplace()
    estimate = fit_cbmm(suite_of(TRAITS)[0], penalty=Priors(), num_traits=TRAITS)
    best = posterior.ability.mean(("chain", "draw")).sel(trait="trait 2").to_series().idxmax()
    # the estimate's traits have an order of their own
    turned = dataclasses.replace(estimate, dataset=estimate.dataset.isel(trait=[1, 0]))
    for given in (estimate, turned):
        board = rank_llms(posterior, given, suite_of(TRAITS)[0], trait="trait 2").table
        assert best in board.index[:3]
        assert np.corrcoef(board["cbmm_ability"], board["ability"])[0, 1] > 0.95
