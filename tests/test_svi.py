"""SVI: a known Gaussian is found, the three guides against NUTS and each other, minibatches, what is recorded.

The suite of 20 LLMs x 60 items and its posterior by NUTS are those of test_laplace.py.
"""

import warnings
from dataclasses import replace
from functools import cache, partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from test_laplace import ITEMS, LLMS, by_laplace, by_nuts, compared, moments, the_suite

from bayes_irt.checks import Outcome
from bayes_irt.diagnostics import check_posterior
from bayes_irt.errors import ApproximationWarning, ConvergenceWarning, InvalidConfigurationError
from bayes_irt.inference import svi
from bayes_irt.inference.centre import Gaussian
from bayes_irt.inference.guide_coordinates import (
    GuideCoordinates,
    first_guide,
    guide_coordinates,
    log_density_at,
)
from bayes_irt.inference.laplace import fit_gaussian
from bayes_irt.inference.svi import Optimizer, fit_svi
from bayes_irt.inference.svi_record import pareto_k
from bayes_irt.likelihood import Cells, tile_cells
from bayes_irt.model_spec import ModelSpec
from bayes_irt.posterior import Posterior
from bayes_irt.simulate import simulate_suite

SPEC = ModelSpec()
SIZE = LLMS + 2 * ITEMS + len(SPEC.hyperparameters)


def fit(optimizer=None, **options):
    """Fit the suite; that a guide and Laplace disagree is heard by tests of their own."""
    suite = the_suite()
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "The .* guide and Laplace disagree", ApproximationWarning)
        return fit_svi(suite.responses, estimate=suite.estimate, optimizer=optimizer, **options)


@cache
def by_guide(guide):
    return fit(Optimizer(guide=guide), num_draws=4000)


structured, mean_field = partial(by_guide, "structured"), partial(by_guide, "mean-field")


def recorded(posterior):
    stored = posterior.tree["approximation"].to_dataset()
    return {str(name): float(stored[name]) for name in stored}


def with_record(**values):
    """Return the structured fit's posterior with other records: those of one that agrees with Laplace, and these."""
    posterior = structured()
    values = {"sd_ratio_median": 1.0, "sd_ratio_lowest": 0.9, "sd_ratio_highest": 1.1} | values
    tree = posterior.tree.assign({})
    tree["approximation"] = tree["approximation"].to_dataset().assign(values)
    return Posterior(tree, posterior.provenance)


# Against NUTS and each other


def assert_near_nuts(posterior):
    """Monte Carlo errors are .02 of a mean's sd and .015 of an sd."""
    ability = compared(posterior, by_nuts(), "ability")
    assert abs(np.log(np.median(ability.ratio))) < np.log(1.12)
    assert np.abs(np.log(ability.ratio)).max() < np.log(1.25)
    assert np.abs(ability.shift).max() < 0.25
    for site in ("discrimination", "easiness"):
        items = compared(posterior, by_nuts(), site)
        assert abs(np.log(np.median(items.ratio))) < np.log(1.15)
        assert np.abs(items.shift).max() < 0.35


def test_the_structured_guide_is_near_nuts():
    assert_near_nuts(structured())
    with pytest.raises(AssertionError):  # the control: mean-field is not
        assert_near_nuts(mean_field())


def test_mean_field_is_narrower_and_has_a_lower_elbo():
    """ELBOs compare, since all guides state the volume of their map; each is known to about a unit."""
    for site, share in (("ability", 0.97), ("discrimination_scale", 0.8)):
        narrow, wide = (np.median(moments(fitted(), site)[1]) for fitted in (mean_field, structured))
        assert narrow < share * wide
    assert recorded(mean_field())["elbo"] + 1 < recorded(structured())["elbo"]


# In the guide's own space


class Space(NamedTuple):
    gaussian: Gaussian
    cells: Cells
    at: GuideCoordinates


@pytest.fixture(scope="module")
def space():
    suite = the_suite()
    with jax.enable_x64(True):
        cells = tile_cells(suite.responses.successes, suite.responses.attempts)
        parameters = jax.tree.map(jnp.asarray, suite.estimate.parameters)
        gaussian = fit_gaussian(SPEC, parameters, cells, 0, lambda _: None)
        return Space(gaussian, cells, guide_coordinates(gaussian, cells, True))


def test_a_gaussian_is_found_with_its_normalising_constant(space, monkeypatch):
    """Where the density is a Gaussian of the guide's kind its mean, sds and constant are known."""
    rng = np.random.default_rng(0)
    mean, sd = 0.5 * rng.normal(size=SIZE), np.exp(0.3 * rng.normal(size=SIZE))
    monkeypatch.setattr(svi, "log_density_at", lambda _, w, *__: -jnp.sum(((w - mean) / sd) ** 2) / 2)
    optimizer = Optimizer(learning_rate=0.02, max_steps=3000)
    with jax.enable_x64(True):
        first = first_guide(space.gaussian.arrow, space.at, None)
        fitted = svi._fit(SPEC, optimizer, space.at, first, 0, None)
    assert fitted.converged
    found = {name: np.asarray(value) for name, value in fitted.parameters.items()}
    assert np.sqrt(np.mean(((found["auto_loc"] - mean) / sd) ** 2)) < 0.05
    assert np.sqrt(np.mean((found["auto_scale"] / sd - 1) ** 2)) < 0.05
    wanted = SIZE / 2 * np.log(2 * np.pi) + np.log(sd).sum()
    assert fitted.elbo == pytest.approx(wanted, abs=1.0)


def test_minibatches_are_unbiased(space):
    """Five batches that share out the LLMs have on average the density and the gradient of all."""
    rng = np.random.default_rng(1)
    with jax.enable_x64(True):
        density = jax.jit(jax.value_and_grad(lambda w, at, rows: log_density_at(SPEC, w, at, rows)))
        white = jnp.asarray(0.5 * rng.normal(size=SIZE))
        batches = rng.permutation(LLMS).reshape(5, 4)
        pairs = [jax.device_get(density(white, space.at, jnp.asarray(rows))) for rows in batches]
        whole = jax.jit(jax.value_and_grad(lambda w, at: log_density_at(SPEC, w, at)))
        value, gradient = jax.device_get(whole(white, space.at))
    values, gradients = (np.stack(column) for column in zip(*pairs, strict=True))
    assert float(np.mean(values)) == pytest.approx(float(value), rel=1e-6)
    np.testing.assert_allclose(np.mean(gradients, axis=0), gradient, atol=1e-3)
    # controls: batches differ, and so do four of the five
    assert np.ptp(values) > 10
    assert abs(np.mean(values[:4]) - float(value)) > 1
    assert np.abs(np.mean(gradients[:4], axis=0) - gradient).max() > 0.1


def test_a_low_rank_guide_can_be_fitted_by_minibatches():
    """Six LLMs a step, rounded up to eight."""
    posterior = fit(Optimizer(guide="low-rank", batch_size=6, max_steps=3000))
    assert posterior.provenance.configuration["optimizer"]["batch_size"] == 6
    mean, sd = moments(structured(), "ability")
    found = moments(posterior, "ability")
    assert np.abs((found[0] - mean) / sd).max() < 0.5
    assert np.median(moments(mean_field(), "ability")[1]) / 1.05 < np.median(found[1]) < 1.1 * np.median(sd)


# What is recorded, checked and warned of


def test_what_is_recorded():
    posterior, values = structured(), recorded(structured())
    assert set(values) == {
        *("steps", "elbo", "elbo_trend", "elbo_trend_se", "elbo_limit", "converged", "pareto_k"),
        *("sd_ratio_median", "sd_ratio_lowest", "sd_ratio_highest"),
        *(
            "mode_cycles",
            "mode_change",
            "centre_rounds",
            "centre_change",
            "centre_shift",
            "precision_repaired",
        ),
        *("answers_per_llm", "llms_per_item"),
    }
    assert 1000 <= values["steps"] <= 5000
    assert values["steps"] % 100 == 0
    assert values["converged"] == 1
    assert np.isfinite(values["elbo"])
    assert values["sd_ratio_lowest"] < values["sd_ratio_median"] < values["sd_ratio_highest"]
    assert posterior.ability.sizes == {"chain": 1, "draw": 4000, "llm": LLMS}
    assert posterior.provenance.configuration["optimizer"]["guide"] == "structured"


@pytest.mark.parametrize(("sd", "lowest", "highest"), [(0.5, 0.6, 0.95), (2.0, -np.inf, 0.2)])
def test_pareto_k_is_that_of_model_over_guide(sd, lowest, highest):
    """Of a standard normal by N(0, sd^2): its tail index is 1 - sd^2 where the guide is too narrow, else at most 0.

    The control is the inverse ratio, whose index lies elsewhere.
    """
    draws = np.random.default_rng(3).normal(scale=sd, size=20_000)
    log_ratio = draws**2 / 2 * (1 / sd**2 - 1)
    assert lowest < pareto_k(log_ratio) < highest
    assert not lowest < pareto_k(-log_ratio) < highest


def test_nothing_follows_from_a_laplace_that_did_not_settle():
    check = check_posterior(with_record(centre_change=0.3, sd_ratio_median=1.5))["agreement with Laplace"]
    assert check.outcome is Outcome.CANNOT_TELL
    assert "did not settle" in check.message


def test_small_minibatches_do_not_settle_by_their_noise():
    """Batches of four LLMs: the ELBO is that of all data, so that its rise shows."""
    posterior = fit(Optimizer(batch_size=4, max_steps=20_000), num_draws=1000)
    reference, found = recorded(structured()), recorded(posterior)
    assert found["elbo"] > reference["elbo"] - 1.0
    ratio = moments(posterior, "ability")[1] / moments(structured(), "ability")[1]
    assert 0.8 < ratio.min() < ratio.max() < 1.25


def test_its_checks_pass():
    report = check_posterior(with_record())
    assert report["ELBO"].outcome is Outcome.PASS
    assert report["agreement with Laplace"].outcome is Outcome.PASS
    assert report["Pareto k-hat"].outcome in (Outcome.PASS, Outcome.CANNOT_TELL)
    assert report["R-hat"].outcome is report["mode"].outcome is Outcome.NOT_APPLICABLE
    assert report.passed


@pytest.mark.parametrize(
    ("values", "name"),
    [
        ({"converged": False}, "ELBO"),
        ({"sd_ratio_median": 1.2}, "agreement with Laplace"),
        ({"sd_ratio_median": 0.8}, "agreement with Laplace"),
        ({"sd_ratio_lowest": 0.6}, "agreement with Laplace"),
        ({"sd_ratio_highest": 1.6}, "agreement with Laplace"),
        ({"sd_ratio_median": np.nan}, "agreement with Laplace"),
    ],
)
def test_each_defect_fails_its_check(values, name):
    failures = check_posterior(with_record(**values)).failures
    assert [check.name for check in failures] == [name]
    assert "Use fit_nuts" in failures[0].message


@pytest.mark.parametrize(
    ("k", "outcome"), [(0.3, Outcome.PASS), (0.9, Outcome.CANNOT_TELL), (np.nan, Outcome.NOT_APPLICABLE)]
)
def test_pareto_k_never_fails(k, outcome):
    assert check_posterior(with_record(pareto_k=k))["Pareto k-hat"].outcome is outcome


def test_large_suites_have_no_pareto_k(monkeypatch):
    monkeypatch.setattr(svi, "_MOST_CELLS_FOR_K", LLMS * ITEMS - 1)
    assert np.isnan(recorded(fit(num_draws=50))["pareto_k"])


def test_too_few_steps_are_warned_of(monkeypatch):
    """The compiled step is that of the longer fit."""
    compiled = svi._svi
    monkeypatch.setattr(
        svi,
        "_svi",
        lambda spec, optimizer, *rest: compiled(spec, replace(optimizer, max_steps=20_000), *rest),
    )
    with pytest.warns(ConvergenceWarning, match="ELBO still rises"):
        posterior = fit(Optimizer(max_steps=300), num_draws=50)
    assert recorded(posterior)["steps"] == 300
    assert "ELBO" in {check.name for check in check_posterior(posterior).failures}


def test_the_seed_decides_and_progress_is_reported():
    """A second fit of the same shape is served by the compiled step of the first."""
    calls = []
    first = fit(num_draws=50, progress=lambda *call: calls.append(call))
    again, other = fit(num_draws=50), fit(num_draws=50, seed=1)
    assert first == again
    assert not first.draws.equals(other.draws)
    assert other.provenance.seed == 1
    steps = [done for done, _ in calls]
    assert steps == list(range(100, int(recorded(first)["steps"]) + 1, 100))
    assert calls[0][1] < np.mean([elbo for _, elbo in calls[-5:]])


# Options


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"guide": "full"}, "must be 'structured', 'low-rank' or 'mean-field'"),
        ({"rank": 0}, "rank is 0"),
        ({"batch_size": 3}, "batch_size is 3"),
        ({"batch_size": 8.0}, "batch_size is 8.0"),
        ({"learning_rate": 0.0}, "learning_rate is 0.0"),
        ({"learning_rate": 2.0}, "learning_rate is 2.0"),
        ({"max_steps": 99}, "max_steps is 99"),
    ],
)
def test_senseless_options_are_refused(options, message):
    with pytest.raises(InvalidConfigurationError, match=message):
        Optimizer(**options)


def test_three_llms_and_three_draws_are_refused():
    with pytest.raises(InvalidConfigurationError, match="SVI needs at least 4 LLMs; there are 3"):
        fit_svi(simulate_suite(3, 20, seed=2).responses)
    with pytest.raises(InvalidConfigurationError, match="num_draws is 3"):
        fit(num_draws=3)


# Agreement with Laplace


def test_a_guide_that_is_too_narrow_disagrees_and_says_so():
    suite = the_suite()
    with pytest.warns(ApproximationWarning, match=r"mean-field guide and Laplace disagree.*Use fit_nuts"):
        posterior = fit_svi(
            suite.responses, estimate=suite.estimate, optimizer=Optimizer(guide="mean-field"), num_draws=1000
        )
    assert [check.name for check in check_posterior(posterior).failures] == ["agreement with Laplace"]


def test_sds_are_compared_in_one_gauge():
    """Those of abilities that have mean 0 and sd 1 in every draw, of both engines."""
    ratio = moments(structured(), "ability")[1] / moments(by_laplace(), "ability")[1]
    assert recorded(structured())["sd_ratio_median"] == pytest.approx(np.median(ratio), rel=0.02)


def test_the_structured_guide_agrees_with_laplace():
    check = check_posterior(structured())["agreement with Laplace"]
    assert check.outcome is Outcome.PASS, check.message


def test_a_few_draws_are_no_disagreement():
    """The sds that are compared must not be those of the few draws asked for."""
    few, many = recorded(fit(num_draws=50)), recorded(structured())
    assert few["sd_ratio_lowest"] == pytest.approx(many["sd_ratio_lowest"], rel=0.1)
    assert few["sd_ratio_highest"] == pytest.approx(many["sd_ratio_highest"], rel=0.1)


def test_four_draws_are_enough():
    assert fit(num_draws=4).num_draws == 4
