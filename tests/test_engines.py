"""One contract for every engine: what comes back, in which gauge, from which data and seed; and NUTS's own options.

The suite of 20 LLMs x 60 items, its fits by NUTS, Laplace and SVI and their compiled programs are those of
test_laplace.py and test_svi.py.
"""

import warnings
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from typing import NamedTuple

import arviz
import jax.numpy as jnp
import numpy as np
import pytest
from test_laplace import ITEMS, LLMS, by_laplace, by_nuts, moments, the_suite
from test_svi import structured

from bayes_irt.analysis.ranking import rank_llms
from bayes_irt.cbmm import fit_cbmm
from bayes_irt.checks import Outcome
from bayes_irt.diagnostics import check_posterior
from bayes_irt.errors import ApproximationWarning, InvalidConfigurationError
from bayes_irt.inference import nuts
from bayes_irt.inference.laplace import fit_laplace
from bayes_irt.inference.nuts import Sampler, fit_nuts
from bayes_irt.inference.svi import fit_svi
from bayes_irt.model_spec import ModelSpec
from bayes_irt.posterior import Posterior
from bayes_irt.priors import Priors
from bayes_irt.provenance import plain
from bayes_irt.responses import Responses
from bayes_irt.simulate import simulate_suite

SPEC = ModelSpec()
# that of test_laplace.by_nuts, so that one compiled program serves both
SAMPLER = Sampler(num_chains=4, num_warmup=300, num_draws=1000)


class Engine(NamedTuple):
    """An engine, its fit of the suite, what it was asked for, and the group that it adds to the draws."""

    fit: Callable[..., Posterior]
    fitted: Callable[[], Posterior]
    options: dict
    chains: int
    group: str


ENGINES = {
    "nuts": Engine(fit_nuts, by_nuts, {"sampler": SAMPLER}, 4, "sample_stats"),
    "laplace": Engine(fit_laplace, by_laplace, {"num_draws": 4000}, 1, "approximation"),
    "svi": Engine(fit_svi, structured, {"num_draws": 4000}, 1, "approximation"),
}
every_engine = pytest.mark.parametrize("name", ENGINES)


def fit_again(name, responses, estimate, **options):
    """Fit by the same compiled program; whether approximations agree is tested elsewhere."""
    engine = ENGINES[name]
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "The .* guide and Laplace disagree", ApproximationWarning)
        return engine.fit(responses, estimate=estimate, **(engine.options | options))


@every_engine
def test_posteriors_have_one_shape(name):
    engine = ENGINES[name]
    posterior = engine.fitted()
    draws, responses = posterior.draws, the_suite().responses
    assert set(draws) == {"ability", "discrimination", "easiness", *SPEC.hyperparameters}
    assert draws["ability"].dims == ("chain", "draw", "llm")
    assert draws["discrimination"].dims == draws["easiness"].dims == ("chain", "draw", "item")
    assert all(draws[site].dims == ("chain", "draw") for site in SPEC.hyperparameters)
    sizes = {"chain": engine.chains, "draw": 4000 // engine.chains, "llm": LLMS, "item": ITEMS}
    assert dict(draws.sizes) == sizes
    assert (posterior.llms, posterior.items) == (responses.llms, responses.items)
    assert set(posterior.tree.children) == {"posterior", engine.group}


@every_engine
def test_each_draw_is_in_the_canonical_gauge(name):
    draws = ENGINES[name].fitted().draws
    np.testing.assert_allclose(draws["ability"].mean("llm"), 0, atol=1e-6)
    np.testing.assert_allclose(draws["ability"].std("llm"), 1, atol=1e-6)
    assert float(draws["discrimination"].min()) >= 0
    assert all(np.isfinite(draws[site]).all() for site in draws)
    scales = [site for site in SPEC.hyperparameters if site.endswith("scale")]
    assert all(float(draws[site].min()) > 0 for site in scales)


@every_engine
def test_provenance_says_what_made_it(name):
    posterior = ENGINES[name].fitted()
    provenance = posterior.provenance
    assert provenance.method == name
    assert provenance.data_digest == the_suite().responses.digest
    assert provenance.seed == (1 if name == "nuts" else 0)
    assert provenance.configuration["spec"] == plain(SPEC.settled(1))
    assert posterior.spec == SPEC.settled(1)
    assert {"jax", "numpy", "bayes_irt"} <= set(provenance.versions)
    wanted = {"nuts": {"spec", "sampler"}, "laplace": {"spec", "num_draws"}}
    assert set(provenance.configuration) == wanted.get(name, {"spec", "optimizer", "num_draws"})
    assert name in repr(posterior)


@every_engine
def test_saving_and_loading_gives_an_equal_posterior(name, tmp_path):
    posterior = ENGINES[name].fitted().thin(10)
    posterior.save(tmp_path / name)
    assert Posterior.load(tmp_path / name) == posterior


@every_engine
def test_boards_checks_and_summaries_take_it(name):
    posterior, suite = ENGINES[name].fitted(), the_suite()
    board = rank_llms(posterior, suite.estimate, suite.responses)
    assert board.has_ability
    assert sorted(board.table.index) == sorted(suite.responses.llms)
    assert np.corrcoef(board.table.loc[list(suite.responses.llms), "ability"], suite.truth)[0, 1] > 0.9
    report = check_posterior(posterior)
    assert len(list(report)) >= 10
    assert len({check.name for check in report}) == len(list(report))
    assert {check.outcome for check in report} <= set(Outcome)
    table = posterior.summary(["ability"])
    assert len(table) == LLMS
    np.testing.assert_allclose(table["mean"], moments(posterior, "ability")[0], atol=1e-5)
    assert np.isfinite(table[["mean", "sd"]].to_numpy()).all()


def test_engines_agree():
    """Of one posterior: abilities within a quarter of a posterior sd, and in the same order where it is clear."""
    mean, sd = moments(by_nuts(), "ability")
    for name in ("laplace", "svi"):
        found = moments(ENGINES[name].fitted(), "ability")[0]
        assert np.abs((found - mean) / sd).max() < 0.25
        clear = mean[:, None] - mean > sd.max()
        assert (found[:, None] - found)[clear].min() > 0


# Refusals


@cache
def other_data():
    """Return the estimate of another suite, of the same responses under other names, and one with two traits."""
    responses = the_suite().responses
    names = tuple(f"other-{number}" for number in range(LLMS))
    renamed = Responses.from_arrays(responses.successes, llms=names, items=responses.items)
    several = fit_cbmm(responses, num_traits=2, penalty=Priors())
    other = simulate_suite(LLMS, ITEMS, seed=9).responses
    return [fit_cbmm(one, penalty=Priors()) for one in (other, renamed)], several


@every_engine
def test_estimates_of_other_data_are_refused(name):
    others, several = other_data()
    for estimate in others:
        with pytest.raises(
            InvalidConfigurationError, match="estimate is about other LLMs, items or outcomes"
        ):
            ENGINES[name].fit(the_suite().responses, estimate=estimate)
    with pytest.raises(InvalidConfigurationError, match="estimate has 2 traits, the model has 1"):
        ENGINES[name].fit(the_suite().responses, estimate=several)


@every_engine
@pytest.mark.parametrize("seed", [-1, 2**32, 1.0, True, None, "0"])
def test_seeds_out_of_range_are_refused(name, seed):
    suite = the_suite()
    with pytest.raises(InvalidConfigurationError, match=r"seed is .*whole number of at least 0"):
        ENGINES[name].fit(suite.responses, estimate=suite.estimate, seed=seed)


class AskedError(Exception):
    """Where an estimate would be computed."""


@every_engine
def test_an_estimate_is_computed_where_none_is_given(name, monkeypatch):
    def ask(responses, *, penalty, loads):
        raise AskedError(responses is the_suite().responses and penalty == SPEC.priors and loads is None)

    monkeypatch.setattr("bayes_irt.inference.engine.fit_cbmm", ask)
    with pytest.raises(AskedError, match="True"):
        ENGINES[name].fit(the_suite().responses)


# Seeds, progress, order


@every_engine
def test_the_seed_decides_and_progress_is_reported(name):
    suite, fitted, calls = the_suite(), ENGINES[name].fitted(), []
    seed = fitted.provenance.seed
    again = fit_again(
        name, suite.responses, suite.estimate, seed=seed, progress=lambda *call: calls.append(call)
    )
    assert again == fitted
    if name == "laplace":
        assert [word for (word,) in calls] == ["mode", "covariance", "centre", "draws"]
    else:
        done = [call[0] for call in calls]
        assert len(done) >= 10
        assert done == sorted(set(done))
    other = fit_again(name, suite.responses, suite.estimate, seed=seed + 5)
    assert not other.draws.equals(fitted.draws)
    mean, sd = moments(fitted, "ability")
    assert np.abs((moments(other, "ability")[0] - mean) / sd).max() < 0.2  # of 4000 draws
    assert jnp.zeros(1).dtype == jnp.float32  # global precision is left alone


@pytest.mark.parametrize("name", ["laplace", "svi"])
def test_the_order_of_llms_does_not_matter(name):
    """Up to Monte Carlo error: .02 of a posterior sd for means of 4000 draws, Laplace's centre and SVI's steps more."""
    suite, order = the_suite(), np.random.default_rng(0).permutation(LLMS)
    responses = suite.responses
    moved = Responses.from_arrays(
        responses.successes[order],
        responses.attempts[order],
        llms=[responses.llms[i] for i in order],
        items=responses.items,
    )
    posterior = fit_again(name, moved, fit_cbmm(moved, penalty=Priors()))
    assert posterior.llms == moved.llms
    found, (mean, sd) = moments(posterior, "ability")[0], moments(ENGINES[name].fitted(), "ability")
    assert np.abs((found - mean[order]) / sd[order]).max() < 0.15
    # control: in the wrong order they differ
    assert np.abs((found - mean) / sd).max() > 1


# NUTS's own options, on the docstrings' suite and sampler

SHORT = Sampler(num_chains=2, num_warmup=100, num_draws=100)


def test_thinning_keeps_every_second_draw(small_fit):
    """The compiled programs are those of the other fit, which differs in nothing else."""
    responses, estimate, whole = small_fit
    programs = nuts._advance._cache_size(), nuts._begin._cache_size()
    thinned = fit_nuts(responses, estimate=estimate, sampler=replace(SHORT, num_draws=50, thinning=2))
    assert (nuts._advance._cache_size(), nuts._begin._cache_size()) == programs
    assert thinned.ability.sizes == {"chain": 2, "draw": 50, "llm": 6}
    for site in whole.draws:
        kept = whole.draws[site].isel(draw=slice(1, None, 2)).to_numpy()
        np.testing.assert_allclose(thinned.draws[site], kept, rtol=1e-9, atol=1e-9)
    stats, wanted = thinned.tree["sample_stats"], whole.tree["sample_stats"]
    steps = wanted["n_steps"].to_numpy().reshape(2, 50, 2)
    np.testing.assert_array_equal(stats["n_steps"], steps.max(axis=-1))  # the longer of each two
    np.testing.assert_allclose(stats["lp"], wanted["lp"][:, 1::2], rtol=1e-9)
    # control: the first of each two
    assert not np.allclose(thinned.ability, whole.ability.isel(draw=slice(0, None, 2)))


def test_chains_one_after_the_other_are_chains_of_the_same_posterior(small_fit):
    """Rounding differs, and what chains do is chaotic: the draws are others."""
    responses, estimate, together = small_fit
    one_by_one = fit_nuts(
        responses, estimate=estimate, sampler=replace(SHORT, chain_method="sequential", target_accept=0.95)
    )
    assert one_by_one.ability.sizes == together.ability.sizes
    assert one_by_one.provenance.configuration["sampler"]["chain_method"] == "sequential"
    assert int(one_by_one.tree["sample_stats"]["diverging"].sum()) == 0
    both = np.concatenate([together.ability, one_by_one.ability])
    assert max(float(arviz.rhat(both[..., i])) for i in range(6)) < 1.1
    assert len(np.unique(one_by_one.ability[:, 0, 0])) == 2  # each chain has a stream of its own


@pytest.mark.parametrize("options", [{"thinning": 0}, {"thinning": 1.5}, {"chain_method": "serial"}])
def test_senseless_options_of_nuts_are_refused(options):
    with pytest.raises(InvalidConfigurationError, match="must be"):
        Sampler(**options)
