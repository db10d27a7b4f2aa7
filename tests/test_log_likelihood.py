"""What ArviZ needs beside the draws: log-likelihood, data, replicated data and log prior of a posterior.

Random tests have a false-alarm rate below 1e-5 (seeds are fixed).
"""

import warnings

import matplotlib as mpl

mpl.use("Agg")

import numpyro  # noqa: F401  before ArviZ

# isort: split
import arviz as az
import arviz_plots
import numpy as np
import pytest
from matplotlib import pyplot as plt
from scipy import stats
from scipy.special import expit

from bayes_irt import posterior as posterior_module
from bayes_irt.errors import InvalidConfigurationError
from bayes_irt.model_spec import ModelSpec, restored_spec
from bayes_irt.posterior import Posterior, posterior_from_draws
from bayes_irt.priors import Exponential, Gamma, LearnedScale, LogNormal, Priors, TruncatedNormal
from bayes_irt.provenance import Provenance, plain
from bayes_irt.responses import Responses
from bayes_irt.simulate import SuiteDesign, simulate_suite

DESIGN = SuiteDesign(attempts=3, missing="MCAR", missing_share=0.3)


def made_up(responses, spec=None, seed=0, shape=(2, 40)):
    rng = np.random.default_rng(seed)
    spec = ModelSpec() if spec is None else spec
    draws = {
        "ability": rng.normal(size=(*shape, responses.num_llms, 1)),
        "discrimination": rng.random((*shape, responses.num_items, 1)),
        "easiness": rng.normal(size=(*shape, responses.num_items)),
    }
    draws |= {name: 0.5 + rng.random(shape) for name in spec.hyperparameters}
    provenance = Provenance("nuts", {"spec": plain(spec)}, responses.digest, seed)
    return posterior_from_draws(draws, {}, (responses.llms, responses.items), provenance)


@pytest.fixture(scope="module")
def responses():
    return simulate_suite(5, 7, design=DESIGN, seed=4).responses


def test_every_observed_cell_has_its_binomial_log_probability(responses):
    posterior = made_up(responses)
    found = posterior.with_log_likelihood(responses).tree["log_likelihood"]["successes"]
    assert found.sizes == {"chain": 2, "draw": 40, "cell": responses.num_observed}
    draws = posterior.draws
    logits = draws["ability"] * draws["discrimination"] + draws["easiness"]
    for position in range(responses.num_observed):
        cell = found.isel(cell=position)
        llm, item = cell["llm"].item(), cell["item"].item()
        i, j = responses.llms.index(llm), responses.items.index(item)
        p = expit(logits.sel(llm=llm, item=item))
        counts = (
            int(responses.successes[i, j]),
            int(responses.attempts[i, j]),
        )  # SciPy is less exact for bytes
        wanted = stats.binom.logpmf(*counts, p)
        np.testing.assert_allclose(cell, wanted, rtol=1e-10)


def test_data_stand_beside_the_log_likelihood_and_the_rest_is_kept(responses):
    posterior = made_up(responses)
    tree = posterior.with_log_likelihood(responses).tree
    assert set(tree.children) == {
        "posterior",
        "log_likelihood",
        "observed_data",
        "posterior_predictive",
        "log_prior",
    }
    seen = responses.attempts > 0
    observed = tree["observed_data"]
    np.testing.assert_array_equal(observed["successes"], responses.successes[seen])
    np.testing.assert_array_equal(observed["attempts"], responses.attempts[seen])
    assert observed["llm"].to_numpy().tolist() == [responses.llms[i] for i in np.nonzero(seen)[0]]
    assert observed["item"].to_numpy().tolist() == [responses.items[j] for j in np.nonzero(seen)[1]]
    assert tree["posterior"].to_dataset().identical(posterior.draws)


def scores_of(tree, draws):
    """Standardise each cell's mean over replicated data by its exact mean and sd; near standard normal."""
    logits = draws["ability"] * draws["discrimination"] + draws["easiness"]
    observed = tree["observed_data"]
    p = expit(logits.sel(llm=observed["llm"], item=observed["item"]))
    n, over = observed["attempts"], ("chain", "draw")
    variance = (n * p * (1 - p)).sum(over)
    total = tree["posterior_predictive"]["successes"].sum(over)
    return ((total - (n * p).sum(over)) / np.sqrt(variance)).to_numpy()


def test_replicated_data_follow_the_model(responses):
    posterior = made_up(responses, shape=(2, 1000))
    tree = posterior.with_log_likelihood(responses, seed=3).tree
    replicated = tree["posterior_predictive"]["successes"]
    assert ((replicated >= 0) & (replicated <= tree["observed_data"]["attempts"])).all()
    assert np.abs(scores_of(tree, posterior.draws)).max() < 5.5
    other = made_up(responses, shape=(2, 1000), seed=1)
    with pytest.raises(AssertionError):  # the draws of another posterior
        assert np.abs(scores_of(tree, other.draws)).max() < 5.5


def test_replicated_data_depend_on_the_seed_alone(responses):
    posterior = made_up(responses)
    first, again, other = (posterior.with_log_likelihood(responses, seed=seed).tree for seed in (5, 5, 6))
    assert first.identical(again)
    assert not first["posterior_predictive"].equals(other["posterior_predictive"])
    assert first["log_likelihood"].equals(other["log_likelihood"])
    assert first["posterior_predictive"].attrs == {"seed": 5}


DENSITIES = {
    Priors(): lambda a, h: stats.halfnorm.logpdf(a, scale=h["scale"]),
    Priors(LogNormal()): lambda a, h: stats.lognorm.logpdf(a, h["scale"], scale=np.exp(h["location"])),
    Priors(Gamma(shape=2.5)): lambda a, h: stats.gamma.logpdf(a, 2.5, scale=h["scale"]),
    Priors(Exponential()): lambda a, h: stats.expon.logpdf(a, scale=h["scale"]),
    Priors(TruncatedNormal()): lambda a, h: stats.truncnorm.logpdf(
        a, -h["location"] / h["scale"], np.inf, loc=h["location"], scale=h["scale"]
    ),
}


@pytest.mark.parametrize("priors", DENSITIES, ids=lambda priors: type(priors.discrimination).__name__)
def test_log_priors_are_those_of_the_fit(responses, priors):
    posterior = made_up(responses, ModelSpec(priors))
    log_prior = posterior.with_log_likelihood(responses).tree["log_prior"].to_dataset()
    draws = posterior.draws
    hyper = {
        part: draws[name].to_numpy()[..., None]
        for part in ("location", "scale")
        if (name := f"discrimination_{part}") in draws
    }
    wanted = DENSITIES[priors](draws["discrimination"].to_numpy(), hyper)
    np.testing.assert_allclose(log_prior["discrimination"], wanted, rtol=1e-9)
    centre, scale = draws["easiness_location"], draws["easiness_scale"]
    easiness = stats.norm.logpdf(draws["easiness"].transpose("item", ...), centre, scale)
    np.testing.assert_allclose(log_prior["easiness"].transpose("item", ...), easiness, rtol=1e-9)
    total = 0.0
    for name, prior in {
        "discrimination_location": getattr(priors.discrimination, "location", None),
        "discrimination_scale": priors.discrimination.scale,
        "easiness_location": priors.easiness.location,
        "easiness_scale": priors.easiness.scale,
    }.items():
        if isinstance(prior, LearnedScale):
            total = total + stats.lognorm.logpdf(draws[name], prior.log_sd, scale=prior.median)
        elif prior is not None:
            total = total + stats.norm.logpdf(draws[name], prior.mean, prior.sd)
    np.testing.assert_allclose(log_prior["hyperparameters"], total, rtol=1e-9)
    assert posterior.spec == ModelSpec(priors)


def test_an_unknown_type_is_no_model():
    with pytest.raises(InvalidConfigurationError, match="holds a 'Penalty'"):
        restored_spec({"type": "ModelSpec", "priors": {"type": "Penalty"}})


def test_a_posterior_without_a_model_says_so(responses):
    posterior = made_up(responses)
    nameless = Posterior(posterior.tree, Provenance("nuts", {}, responses.digest))
    with pytest.raises(InvalidConfigurationError, match="names no model"):
        nameless.with_log_likelihood(responses)


def test_other_data_are_refused(responses):
    with pytest.raises(InvalidConfigurationError, match="other LLMs, items or outcomes"):
        made_up(responses).with_log_likelihood(simulate_suite(5, 7, seed=9).responses)


def test_what_is_too_large_is_refused_with_a_way_out(responses, monkeypatch):
    posterior = made_up(responses)
    size = 8 * 80 * responses.num_observed
    monkeypatch.setattr(posterior_module, "LARGEST_LOG_LIKELIHOOD", size - 1)
    message = f"{responses.num_observed} cells x 80 draws .* one draw in 2 .*thin.*held_out_score"
    with pytest.raises(InvalidConfigurationError, match=message):
        posterior.with_log_likelihood(responses)
    assert posterior.thin(2).with_log_likelihood(responses).num_draws == 40
    monkeypatch.setattr(posterior_module, "LARGEST_LOG_LIKELIHOOD", size)
    posterior.with_log_likelihood(responses)


def test_thinning_keeps_every_so_many_of_each_chain(responses):
    posterior = made_up(responses).with_log_likelihood(responses)
    thinned = posterior.thin(15)
    assert thinned.draws["draw"].to_numpy().tolist() == [0, 15, 30]
    assert thinned.ability.equals(posterior.ability.isel(draw=[0, 15, 30]))
    assert thinned.tree["log_likelihood"].sizes["draw"] == 3
    with pytest.raises(InvalidConfigurationError, match="every is 0"):
        posterior.thin(0)


def test_parameters_hold_the_draws_chain_by_chain(responses):
    posterior = made_up(responses)
    parameters = posterior.parameters
    assert parameters.ability.shape == (80, 5, 1)
    assert parameters.discrimination.shape == (80, 7, 1)
    second_chain = posterior.draws.isel(chain=1, draw=3)
    np.testing.assert_array_equal(parameters.at(43).ability[:, 0], second_chain["ability"])
    np.testing.assert_array_equal(parameters.at(43).easiness, second_chain["easiness"])


def test_saving_keeps_all_groups(responses, tmp_path):
    posterior = made_up(responses).with_log_likelihood(responses)
    posterior.save(tmp_path / "run")
    assert Posterior.load(tmp_path / "run") == posterior


@pytest.fixture(scope="module")
def fitted(small_fit):
    responses, _, posterior = small_fit
    return responses, posterior, posterior.with_log_likelihood(responses)


@pytest.mark.filterwarnings("ignore:Estimated shape parameter")  # few LLMs: each answer moves its item
def test_arviz_computes_loo(fitted):
    responses, _, posterior = fitted
    result = az.loo(posterior.tree, pointwise=True)
    assert result.n_data_points == responses.num_observed
    assert np.isfinite(result.elpd_i).all()
    assert result.elpd_i["llm"].to_numpy().tolist()[::20] == list(responses.llms)
    seen = posterior.tree["log_likelihood"]["successes"]
    in_sample = float(np.log(np.exp(seen).mean(("chain", "draw"))).sum())
    assert in_sample - responses.num_observed < result.elpd < in_sample


@pytest.mark.filterwarnings("ignore:Estimated shape parameter")
def test_arviz_compares_fits(fitted):
    """A fit whose items are turned round predicts worse than the fit itself."""
    responses, posterior, good = fitted
    turned = posterior.draws.assign(easiness=-posterior.draws["easiness"])
    tree = posterior.tree.assign({})
    tree["posterior"] = turned
    bad = Posterior(tree, posterior.provenance).with_log_likelihood(responses)
    table = az.compare({"turned": bad.tree, "fitted": good.tree})
    assert table.index.tolist() == ["fitted", "turned"]
    assert table.loc["turned", "elpd"] < table.loc["fitted", "elpd"] - table.loc["turned", "dse"]


def test_arviz_judges_prior_sensitivity(fitted):
    _, _, posterior = fitted
    table = az.psense_summary(posterior.tree, prior_var_names=["hyperparameters"], round_to=6)
    assert np.isfinite(table[["prior", "likelihood"]].to_numpy()).all()
    assert {"ability[llm-001]", "discrimination_scale", "easiness_location"} <= set(table.index)
    everything = az.psense_summary(posterior.tree, var_names=["discrimination_scale"], round_to=6)
    assert everything.loc["discrimination_scale", "prior"] > table.loc["discrimination_scale", "prior"]


def test_arviz_draws_predictive_plots(fitted):
    _, _, posterior = fitted
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Variables successes in .* look binary")
        plots = arviz_plots.plot_ppc_dist(posterior.tree, backend="matplotlib", kind="ecdf", num_samples=5)
    figure = plots.viz["figure"].item()
    assert len(figure.axes[0].lines) >= 6
    plt.close("all")


def test_one_attempt_has_no_coefficient():
    binary = Responses.from_arrays(np.array([[0, 1], [1, 1]]))
    found = made_up(binary).with_log_likelihood(binary).tree["log_likelihood"]["successes"]
    assert (np.exp(found) < 1).all()
