"""Laplace against NUTS, with every family of priors, on a long suite; what it refuses, warns of and records.

One suite of 20 LLMs x 60 items and its posterior by NUTS serve this file, test_svi.py and test_engines.py. Comparisons
with NUTS hold for each of the first six seeds of the suite, not only for the one here.
"""

import ast
import contextlib
import os
import subprocess
import sys
from functools import cache
from typing import NamedTuple

import arviz
import numpy as np
import pytest

from bayes_irt import approximation_checks
from bayes_irt.cbmm import fit_cbmm
from bayes_irt.checks import Outcome
from bayes_irt.diagnostics import check_posterior
from bayes_irt.errors import (
    ApproximationWarning,
    ConvergenceWarning,
    InvalidConfigurationError,
    NumericalError,
)
from bayes_irt.estimate import PointEstimate
from bayes_irt.inference import centre
from bayes_irt.inference.laplace import fit_laplace, require_llms
from bayes_irt.inference.nuts import Sampler, fit_nuts
from bayes_irt.model_spec import ModelSpec
from bayes_irt.posterior import Posterior
from bayes_irt.priors import Gamma, HalfNormal, LogNormal, Priors, TruncatedNormal
from bayes_irt.responses import Responses
from bayes_irt.simulate import SuiteDesign, simulate_suite

LLMS, ITEMS = 20, 60
FAMILIES = (HalfNormal(), LogNormal(), Gamma(), TruncatedNormal())  # Exponential: in CODE


class Suite(NamedTuple):
    responses: Responses
    estimate: PointEstimate
    truth: np.ndarray


@cache
def the_suite():
    suite = simulate_suite(LLMS, ITEMS, seed=2)
    return Suite(suite.responses, fit_cbmm(suite.responses, penalty=Priors()), suite.truth.ability[:, 0])


@cache
def by_nuts():
    suite = the_suite()
    sampler = Sampler(num_chains=4, num_warmup=300, num_draws=1000)
    return fit_nuts(suite.responses, estimate=suite.estimate, sampler=sampler, seed=1)


@cache
def by_laplace(num_draws=4000, seed=0):
    suite = the_suite()
    return fit_laplace(suite.responses, estimate=suite.estimate, num_draws=num_draws, seed=seed)


def moments(posterior, site):
    """Return means and sds of a site's draws."""
    draws = posterior.draws[site].stack(sample=("chain", "draw")).to_numpy()
    return draws.mean(axis=-1), draws.std(axis=-1)


class Comparison(NamedTuple):
    """Differences of means in posterior sds, and ratios of sds."""

    shift: np.ndarray
    ratio: np.ndarray


def compared(ours, theirs, site):
    assert float(arviz.ess(theirs.draws[site]).min()) > 1000
    (mean, sd), (wanted_mean, wanted_sd) = moments(ours, site), moments(theirs, site)
    return Comparison((mean - wanted_mean) / wanted_sd, sd / wanted_sd)


# Against NUTS


def assert_near_nuts(posterior):
    """Monte Carlo errors are .02 of a mean's sd and .015 of an sd."""
    ability = compared(posterior, by_nuts(), "ability")
    assert np.abs(ability.shift).max() < 0.2
    assert np.abs(np.log(ability.ratio)).max() < np.log(1.15)
    for site in ("discrimination", "easiness"):
        items = compared(posterior, by_nuts(), site)
        assert np.abs(items.shift).max() < 0.3
        assert np.abs(np.log(items.ratio)).max() < np.log(1.35)
        assert abs(np.log(np.median(items.ratio))) < np.log(1.2)


def altered(posterior, **sites):
    """Return the same posterior with other draws of some sites."""
    tree = posterior.tree.assign({})
    tree["posterior"] = posterior.draws.assign(sites)
    return Posterior(tree, posterior.provenance)


def test_means_and_sds_are_near_those_of_nuts():
    posterior = by_laplace()
    assert_near_nuts(posterior)
    # controls: narrower abilities, abilities off by a third of an sd, and easinesses half again as wide
    ability, easiness = posterior.draws["ability"], posterior.draws["easiness"]
    centre, middle = ability.mean(("chain", "draw")), easiness.mean(("chain", "draw"))
    for wrong in (
        {"ability": centre + 0.8 * (ability - centre)},
        {"ability": ability + 0.33 * ability.std()},
        {"easiness": middle + 1.5 * (easiness - middle)},
    ):
        with pytest.raises(AssertionError):
            assert_near_nuts(altered(posterior, **wrong))


def test_what_llms_share_is_near_nuts_too():
    """The sd of the difference of two neighbours' abilities, for which covariances matter."""
    order = np.argsort(the_suite().truth)

    def differences(posterior):
        draws = posterior.ability.stack(sample=("chain", "draw")).to_numpy()[order]
        return np.diff(draws, axis=0).std(axis=1)

    ratio = differences(by_laplace()) / differences(by_nuts())
    assert np.abs(np.log(ratio)).max() < np.log(1.2)


# Long suites


def test_nothing_underflows_in_a_long_suite():
    """100 LLMs x 20,000 items, 2 % of them constant. Intervals are a twentieth of an sd wide; 95 of 100 expected."""
    suite = simulate_suite(100, 20_000, design=SuiteDesign(constant_share=0.02), seed=1)
    constant = np.isin(suite.responses.successes.sum(axis=0), (0, 100))
    assert constant.mean() >= 0.02
    posterior = fit_laplace(suite.responses, num_draws=200)
    draws, truth = posterior.ability.to_numpy()[0], suite.truth.ability[:, 0]
    assert np.isfinite(draws).all()
    lower, upper = np.quantile(draws, [0.025, 0.975], axis=0)
    assert (upper - lower).min() > 0.03
    assert (upper - lower).max() < 0.3
    assert 0.85 <= np.mean((lower < truth) & (truth < upper)) <= 1
    assert check_posterior(posterior).passed
    sites = posterior.draws[["discrimination", "easiness"]].isel(item=constant)
    assert all(np.isfinite(sites[site]).all() and (sites[site].std("draw") > 0.1).all() for site in sites)


# What is recorded, checked and warned of


def test_what_is_recorded():
    posterior = by_laplace()
    found = posterior.tree["approximation"].to_dataset()
    assert set(found) == {
        *("answers_per_llm", "llms_per_item"),
        "mode_cycles",
        "mode_change",
        "centre_rounds",
        "centre_change",
        "centre_shift",
        "precision_repaired",
    }
    assert 1 <= int(found["mode_cycles"]) < 30
    assert float(found["mode_change"]) < 1e-3
    assert float(found["centre_change"]) <= 0.05
    assert 0.01 < float(found["centre_shift"]) < 1
    assert not bool(found["precision_repaired"])
    assert posterior.provenance.configuration["num_draws"] == 4000
    assert posterior.ability.sizes == {"chain": 1, "draw": 4000, "llm": LLMS}


def test_draws_are_kept_in_float64():
    """As those of NUTS are."""
    assert {str(array.dtype) for array in by_laplace().draws.values()} == {"float64"}


def test_checks_of_chains_do_not_apply_and_its_own_pass(monkeypatch):
    monkeypatch.setattr(approximation_checks, "FEW_LLMS", LLMS)
    monkeypatch.setattr(approximation_checks, "FEW_ANSWERS", ITEMS)
    report = check_posterior(by_laplace())
    outcomes = {check.name: check.outcome for check in report}
    own = ("mode", "mean", "few LLMs", "few answers", "LLMs far out")
    assert all(outcomes.pop(name) is Outcome.PASS for name in own)
    assert set(outcomes.values()) == {Outcome.NOT_APPLICABLE}
    assert {"R-hat", "bulk ESS", "divergences", "ELBO", "Pareto k-hat"} <= set(outcomes)
    assert report.passed


def test_draws_are_independent():
    """Of 4000 independent draws the ESS is 4000, give or take; false alarm below 1e-6 for 20 abilities."""
    ability = by_laplace().ability
    assert float(arviz.ess(ability).min()) > 3000


def test_the_seed_decides():
    first, again, other = by_laplace(50), by_laplace.__wrapped__(50), by_laplace(50, seed=1)
    assert first == again
    assert not first.draws.equals(other.draws)
    assert other.provenance.seed == 1


def test_saving_and_loading_keeps_all(tmp_path):
    posterior = by_laplace(50)
    posterior.save(tmp_path / "run")
    again = Posterior.load(tmp_path / "run")
    assert again == posterior
    assert set(again.tree.children) == {"posterior", "approximation"}
    assert check_posterior(again).to_frame().equals(check_posterior(posterior).to_frame())


@pytest.mark.parametrize(("limit", "narrow"), [("FEW_LLMS", "of discriminations"), ("VERY_FEW_LLMS", "all")])
def test_few_llms_are_warned_of(monkeypatch, limit, narrow):
    monkeypatch.setattr(approximation_checks, "VERY_FEW_LLMS", LLMS)
    monkeypatch.setattr(approximation_checks, limit, LLMS + 1)
    with pytest.warns(
        ApproximationWarning, match=rf"20 LLMs: below 21 .*{narrow}.* too narrow.*Use fit_nuts"
    ):
        posterior = by_laplace.__wrapped__(50)
    report = check_posterior(posterior)
    assert report["few LLMs"].outcome is Outcome.CANNOT_TELL
    assert report.passed


def test_few_answers_are_warned_of():
    """However many LLMs there are: it is each LLM's own answers that make its ability normal."""
    responses = simulate_suite(120, 15, seed=1).responses
    with pytest.warns(ApproximationWarning, match=r"15 answers in the median: below 80 .* too narrow"):
        report = check_posterior(fit_laplace(responses))
    assert report["few answers"].outcome is Outcome.CANNOT_TELL
    assert report["few LLMs"].outcome is Outcome.PASS


def test_an_llm_far_out_is_warned_of():
    """30 LLMs of which one is right on 3 of 400 items and all others on most: the control is the suite without it."""
    cells = (simulate_suite(29, 400, seed=1).responses.successes > 0).astype(float)
    cells[:, :300] = np.maximum(cells[:, :300], np.random.default_rng(0).random((29, 300)) < 0.9)
    out = np.zeros((1, 400))
    out[0, :3] = 1
    with pytest.warns(ApproximationWarning, match="of the abilities' variance"):
        report = check_posterior(fit_laplace(Responses.from_arrays(np.vstack([cells, out]))))
    assert report["LLMs far out"].labels == ("llm-030",)
    alone = check_posterior(fit_laplace(Responses.from_arrays(cells)))
    assert alone["LLMs far out"].outcome is Outcome.PASS


def test_llms_are_counted_per_item():
    """120 LLMs, each item answered by a third of them: what matters for an item is its own LLMs."""
    suite = simulate_suite(120, 90, seed=1)
    cells = suite.responses.successes.astype(float)
    cells[(np.arange(120)[:, None] + np.arange(90)) % 3 > 0] = np.nan
    with pytest.warns(ApproximationWarning, match="120 LLMs, 40 per item: below 100 .* discriminations"):
        report = check_posterior(fit_laplace(Responses.from_arrays(cells)))
    assert report["few LLMs"].outcome is Outcome.CANNOT_TELL


def test_a_mean_that_is_not_found_is_warned_of(monkeypatch):
    monkeypatch.setattr(centre, "_MOST_ROUNDS", 1)
    with pytest.warns(ConvergenceWarning, match="did not settle"):
        posterior = by_laplace.__wrapped__(50)
    failures = check_posterior(posterior).failures
    assert [check.name for check in failures] == ["mean"]
    assert "Use fit_nuts" in failures[0].message


def test_a_mode_that_is_not_found_fails_its_check():
    posterior = by_laplace(50)
    for name, value in (("mode_change", 0.01), ("precision_repaired", True), ("mode_change", np.nan)):
        tree = posterior.tree.assign({})
        stored = tree["approximation"].to_dataset()
        tree["approximation"] = stored.assign({name: value})
        report = check_posterior(Posterior(tree, posterior.provenance))
        assert [check.name for check in report.failures] == ["mode"]


# What it does without


CODE = """
import sys
from bayes_irt import Exponential, ModelSpec, Priors, fit_cbmm, fit_laplace, simulate_suite
responses = simulate_suite(10, 12, seed=5).responses
estimate, spec = fit_cbmm(responses, penalty=Priors()), ModelSpec(Priors(Exponential()))
posterior = fit_laplace(responses, spec=spec, estimate=estimate, num_draws=10)
assert posterior.num_draws == 10
assert all(abs(posterior.draws[site]).max() < 100 for site in posterior.draws)
print(sorted({name.split(".")[0] for name in sys.modules}))
"""


def test_neither_numpyro_nor_arviz_is_loaded():
    quickly = os.environ | {"XLA_FLAGS": "--xla_backend_optimization_level=0"}
    done = subprocess.run(
        [sys.executable, "-c", CODE], capture_output=True, text=True, check=True, timeout=300, env=quickly
    )
    loaded = set(ast.literal_eval(done.stdout))
    assert {"jax", "xarray", "bayes_irt"} <= loaded
    assert not {name for name in loaded if name.startswith(("numpyro", "arviz", "matplotlib"))}


# What is refused


def test_three_llms_are_refused_before_anything_is_computed(monkeypatch):
    monkeypatch.setattr("bayes_irt.inference.engine.fit_cbmm", lambda *_, **__: pytest.fail("computed"))
    responses = simulate_suite(3, 20, seed=2).responses
    with pytest.raises(InvalidConfigurationError, match=r"at least 4 LLMs; there are 3.*use fit_nuts"):
        fit_laplace(responses)


def test_four_llms_are_enough():
    responses = simulate_suite(4, 20, seed=2).responses
    require_llms(responses, "Laplace")
    with pytest.raises(InvalidConfigurationError, match="SVI needs at least 4 LLMs; there are 3"):
        require_llms(responses.drop(llms=[responses.llms[0]]), "SVI")


@pytest.mark.parametrize("num_draws", [3, 0, -1, 2.5, True, None])
def test_senseless_numbers_of_draws_are_refused(num_draws):
    suite = the_suite()
    with pytest.raises(InvalidConfigurationError, match=r"num_draws is .*at least 4"):
        fit_laplace(suite.responses, estimate=suite.estimate, num_draws=num_draws)


def test_a_start_that_is_not_finite_is_refused():
    suite = the_suite()
    broken = fit_cbmm(suite.responses, penalty=Priors())
    broken.dataset["ability"][:] = np.nan
    with pytest.raises(NumericalError, match="not finite"):
        fit_laplace(suite.responses, estimate=broken)


# Every family


def settles(family):
    """Tell families for which the centre is found from those whose heavy tails keep it from it on small suites."""
    return not isinstance(family, LogNormal | TruncatedNormal)


@pytest.mark.parametrize("family", FAMILIES, ids=lambda family: type(family).__name__)
def test_every_family_of_priors_gives_draws(family):
    suite, spec = the_suite(), ModelSpec(Priors(family))
    said = contextlib.nullcontext() if settles(family) else pytest.warns(ConvergenceWarning, match="settle")
    with said:
        posterior = fit_laplace(suite.responses, spec=spec, estimate=suite.estimate, num_draws=400)
    draws = posterior.draws
    assert set(draws) == {"ability", "discrimination", "easiness", *spec.hyperparameters}
    assert all(np.isfinite(draws[site]).all() for site in draws)
    assert all((moments(posterior, site)[1] > 0).all() for site in draws)
    assert (draws["discrimination"] >= 0).all()
    assert posterior.spec == spec.settled(1)
    assert check_posterior(posterior).passed == settles(family)
    if settles(family):
        found, wanted = moments(posterior, "ability"), moments(by_laplace(), "ability")
        assert np.abs((found[0] - wanted[0]) / wanted[1]).max() < 0.5
        assert np.abs(np.log(found[1] / wanted[1])).max() < np.log(1.3)
