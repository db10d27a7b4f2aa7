"""NUTS against an independent posterior, on awkward data, and on an LLM with five answers.

Monte Carlo tests use fixed seeds; comparisons scale with the Monte Carlo error after a gate on the effective sample
size, and each has a control that must fail.
"""

import arviz
import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from numpyro.infer import MCMC, NUTS
from numpyro.infer.util import potential_energy
from scipy import stats

from bayes_irt.cbmm import fit_cbmm
from bayes_irt.errors import InvalidConfigurationError, NumericalError
from bayes_irt.inference.engine import start_penalty
from bayes_irt.inference.nuts import Sampler, fit_nuts
from bayes_irt.likelihood import tile_cells
from bayes_irt.model_spec import ModelSpec
from bayes_irt.models import response_model
from bayes_irt.parameters import Parameters, logits
from bayes_irt.priors import HalfNormal, LogNormal, Priors
from bayes_irt.responses import Responses
from bayes_irt.simulate import SuiteDesign, simulate_suite

SHORT = Sampler(num_chains=2, num_warmup=100, num_draws=100)
LONG = Sampler(num_chains=4, num_warmup=300, num_draws=1000)
SITES = (
    "ability",
    "discrimination",
    "easiness",
    "discrimination_scale",
    "easiness_location",
    "easiness_scale",
)


# The oracle: the same model written down a second time, plainly, answers one by one


def small_counts():
    """5 LLMs x 12 items, 8 attempts, some cells missing."""
    design = SuiteDesign(attempts=8, missing="MCAR", missing_share=0.15)
    return simulate_suite(5, 12, design=design, seed=4).responses


def answers_one_by_one(responses):
    """Return LLM, item and outcome of every attempt."""
    rows, columns, outcomes = [], [], []
    for row, column in zip(*np.nonzero(responses.attempts), strict=True):
        right, tried = int(responses.successes[row, column]), int(responses.attempts[row, column])
        rows += [row] * tried
        columns += [column] * tried
        outcomes += [1] * right + [0] * (tried - right)
    return np.array(rows), np.array(columns), np.array(outcomes)


def textbook_model(median, rows, columns, outcomes):
    tau = numpyro.sample("discrimination_scale", dist.LogNormal(jnp.log(median), 1.0))
    slope = numpyro.sample("slope", dist.HalfNormal(1.0).expand([12]).to_event(1))
    a = numpyro.deterministic("discrimination", tau * slope)
    mean = numpyro.sample("easiness_location", dist.Normal(0.0, 5.0))
    spread = numpyro.sample("easiness_scale", dist.LogNormal(jnp.log(2.0), 1.0))
    shift = numpyro.sample("shift", dist.Normal(0.0, 1.0).expand([12]).to_event(1))
    d = numpyro.deterministic("easiness", mean + spread * shift)
    z = numpyro.sample("z", dist.Normal(0.0, 1.0).expand([5]).to_event(1))
    theta = numpyro.deterministic("ability", (z - z.mean()) / z.std())
    logit = theta[rows] * a[columns] + d[columns]
    numpyro.sample("outcome", dist.Bernoulli(logits=logit), obs=outcomes)


def draws_of_oracle(medians, responses):
    """Return draws under each prior median of the discriminations' scale, from one compiled program."""
    with jax.enable_x64(True):
        mcmc = MCMC(
            NUTS(textbook_model, max_tree_depth=6),
            num_warmup=300,
            num_samples=600,
            num_chains=4,
            chain_method="vectorized",
            progress_bar=False,
            jit_model_args=True,
        )
        found = []
        for median in medians:
            mcmc.run(jax.random.key(11), jnp.asarray(median), *answers_one_by_one(responses))
            drawn = mcmc.get_samples(group_by_chain=True)
            found.append({name: np.asarray(value) for name, value in drawn.items()})
    return found


def draws_of(posterior):
    return {name: posterior.draws[name].to_numpy() for name in posterior.draws}


def distances(ours, theirs, names, min_ess=200):
    """Return differences of means and of sds in units of their Monte Carlo error, for every parameter."""
    found = []
    for name in names:
        pair = [np.moveaxis(np.asarray(draws[name]), (0, 1), (-2, -1)) for draws in (ours, theirs)]
        for one, two in zip(*(array.reshape(-1, *array.shape[-2:]) for array in pair), strict=True):
            for method, value in (("mean", np.mean), ("sd", np.std)):
                for draws in (one, two):
                    assert arviz.ess(draws, method=method) > min_ess, name
                errors = [float(arviz.mcse(draws, method=method)) for draws in (one, two)]
                found.append((value(one) - value(two)) / np.hypot(*errors))
    return np.array(found)


def assert_same_posterior(ours, theirs):
    """False alarm: 64 comparisons at 4.8 standard errors, 1 in 10,000 runs."""
    found = distances(ours, theirs, SITES)
    assert len(found) == 64
    assert abs(found).max() < 4.8


def test_the_posterior_is_that_of_the_model_written_out():
    """Counts and missing cells against a Bernoulli likelihood of single answers."""
    responses = small_counts()
    assert (responses.attempts.min(), responses.attempts.max()) == (0, 8)
    binomial = ModelSpec(observation="binomial")
    ours = draws_of(fit_nuts(responses, spec=binomial, sampler=LONG, seed=5))
    same, different = draws_of_oracle((1.5, 0.2), responses)
    assert_same_posterior(ours, same)
    # controls: another prior of one scale, and easinesses a tenth of a logit off
    with pytest.raises(AssertionError):
        assert_same_posterior(ours, different)
    with pytest.raises(AssertionError):
        assert_same_posterior({**ours, "easiness": ours["easiness"] + 0.1}, same)


def log_density(point, family, responses):
    """Return the log posterior of unconstrained values, from SciPy's densities and answers one by one."""
    a, d, z = np.exp(point["discrimination"]), point["easiness"], point["ability_raw"]
    tau, spread = np.exp(point["discrimination_scale"]), np.exp(point["easiness_scale"])
    if family == "half-normal":
        slopes, by_tau = stats.halfnorm(scale=tau), stats.lognorm(s=1.0, scale=1.5)
    else:
        place = point["discrimination_location"]
        slopes, by_tau = stats.lognorm(s=tau, scale=np.exp(place)), stats.lognorm(s=0.75, scale=0.5)
    total = by_tau.logpdf(tau) + stats.lognorm(s=1.0, scale=2.0).logpdf(spread)
    total += stats.norm(0, 5).logpdf(point["easiness_location"])
    total += stats.norm.logpdf(z).sum() + slopes.logpdf(a).sum()
    total += stats.norm(point["easiness_location"], spread).logpdf(d).sum()
    if family == "log-normal":
        total += stats.norm(0, 1.5).logpdf(place)
    total += point["discrimination"].sum() + np.log(tau) + np.log(spread)  # Jacobians of the exponentials
    rows, columns, outcomes = answers_one_by_one(responses)
    eta = ((z - z.mean()) / z.std())[rows] * a[columns] + d[columns]
    return total + np.sum(outcomes * eta - np.logaddexp(0, eta))


@pytest.mark.parametrize("family", ["half-normal", "log-normal"])
def test_the_density_is_that_of_the_model_written_out(family):
    spec = ModelSpec(Priors(discrimination=HalfNormal() if family == "half-normal" else LogNormal()))
    responses, rng = small_counts(), np.random.default_rng(0)
    sizes = {"discrimination": (12,), "easiness": (12,), "ability_raw": (5,)}
    sizes |= dict.fromkeys(spec.hyperparameters, ())
    points = [{name: rng.normal(size=size) for name, size in sizes.items()} for _ in range(6)]
    with jax.enable_x64(True):
        cells = tile_cells(responses.successes, responses.attempts, "float64")
        energy = [
            float(potential_energy(response_model, (spec, 5, 12, cells), {}, point)) for point in points
        ]
    wanted = np.array([log_density(point, family, responses) for point in points])
    # up to the binomial coefficients, which no parameter changes
    np.testing.assert_allclose(np.diff(energy), -np.diff(wanted), rtol=1e-9)
    assert np.ptp(wanted) > 10


def test_log_normal_discriminations(small_fit):
    responses, estimate, half_normal = small_fit
    spec = ModelSpec(Priors(discrimination=LogNormal()))
    posterior = fit_nuts(responses, spec=spec, estimate=estimate, sampler=SHORT)
    assert "discrimination_location" in posterior.draws
    assert posterior.provenance.configuration["spec"]["priors"]["discrimination"]["type"] == "LogNormal"
    assert all(np.isfinite(posterior.draws[site]).all() for site in posterior.draws)
    means = [fit.ability.mean(("chain", "draw")) for fit in (posterior, half_normal)]
    assert np.corrcoef(*means)[0, 1] > 0.95


# Awkward data; one shape (24 x 23) and one sampler, so that one compiled program serves all


def awkward_cases():
    """Return name to responses of 24 LLMs x 23 items."""
    suite = simulate_suite(24, 23, design=SuiteDesign(discrimination_scale=2.0), seed=1)
    plain = suite.responses.successes.astype(int)
    strong = int(np.argmax(suite.truth.discrimination[:, 0]))
    cases = {name: (plain.copy(), np.ones_like(plain)) for name in ("reversed", "constant", "missing")}
    cases["reversed"][0][:, strong] = 1 - plain[:, strong]
    successes, _ = cases["constant"]
    successes[:, :3], successes[:, 3:6] = 1, 0
    successes[0], successes[1] = 1, 0
    successes, attempts = cases["missing"]
    attempts[:] = np.random.default_rng(0).random(attempts.shape) > 0.4
    attempts[0, 1:] = 0
    attempts[0, 0] = attempts[1, 1:] = 1
    successes *= attempts
    return strong, {name: Responses.from_arrays(*pair) for name, pair in cases.items()}


STRONG, CASES = awkward_cases()


def intervals(posterior, prob=0.9):
    draws = posterior.ability.stack(sample=("chain", "draw")).to_numpy()
    return np.quantile(draws, [(1 - prob) / 2, (1 + prob) / 2], axis=1)


@pytest.mark.parametrize("name", CASES)
def test_awkward_data_are_sampled_without_divergence(name):
    posterior = fit_nuts(CASES[name], sampler=SHORT)
    recorded = posterior.tree["sample_stats"]
    assert int(recorded["diverging"].sum()) == 0
    assert int(recorded["tree_depth"].max()) < 10
    assert float(recorded["acceptance_rate"].mean()) > 0.6
    assert all(np.isfinite(posterior.draws[site]).all() for site in posterior.draws)
    assert float(arviz.rhat(posterior.ability).max()) < 1.1


def test_a_reversed_item_is_held_near_zero():
    responses = CASES["reversed"]
    assert fit_cbmm(responses, penalty=Priors()).parameters.discrimination[STRONG] == 0
    slopes = fit_nuts(responses, sampler=SHORT).draws["discrimination"]
    means = slopes.mean(("chain", "draw")).to_numpy()
    assert float(slopes.min()) > 0
    assert means[STRONG] < 0.5 < np.median(means)


def test_all_right_and_all_wrong_llms_are_at_the_ends():
    lower, upper = intervals(fit_nuts(CASES["constant"], sampler=SHORT))
    assert np.argmax(lower) == 0
    assert np.argmin(upper) == 1


def test_an_llm_with_one_answer_is_uncertain():
    lower, upper = intervals(fit_nuts(CASES["missing"], sampler=SHORT))
    width = upper - lower
    assert np.argmax(width) == 0
    assert width[0] > 2


@pytest.mark.parametrize("number", [2, 3])
def test_two_and_three_llms_can_be_fitted(number):
    posterior = fit_nuts(simulate_suite(number, 20, seed=2).responses, sampler=SHORT)
    ability = posterior.ability
    assert ability.sizes["llm"] == number
    np.testing.assert_allclose(ability.mean("llm"), 0, atol=1e-9)
    np.testing.assert_allclose(ability.std("llm"), 1, atol=1e-9)
    assert all(np.isfinite(posterior.draws[site]).all() for site in posterior.draws)
    if number == 2:
        np.testing.assert_allclose(abs(ability), 1, atol=1e-9)


# An LLM with five answers in a long suite


def suite_with_five_answers(num_llms, num_items, seed):
    """Set the first LLM's true ability to .3 and keep five of its answers, at random."""
    rng = np.random.default_rng(seed)
    truth = simulate_suite(num_llms, num_items, seed=seed).truth
    others = truth.ability[1:, 0]
    others = (others - others.mean()) / others.std()
    mean = -0.3 / (num_llms - 1)  # so that all together have mean 0 and sd 1
    ability = np.append(0.3, mean + np.sqrt((num_llms - 0.09) / (num_llms - 1) - mean**2) * others)
    truth = Parameters(ability[:, None], truth.discrimination, truth.easiness)
    chance = 1 / (1 + np.exp(-np.asarray(logits(truth), dtype=np.float64)))
    attempts = np.ones(chance.shape, dtype=int)
    attempts[0] = 0
    attempts[0, rng.choice(num_items, size=5, replace=False)] = 1
    return truth, Responses.from_arrays(rng.binomial(attempts, chance), attempts)


@pytest.mark.parametrize(("num_llms", "num_items"), [(140, 500), (29, 2000)])
def test_five_answers_give_a_wide_interval_around_the_truth(num_llms, num_items):
    """Fixed item scales throw such an LLM to 3.85 [3.7, 4.0] or -8.85; learned ones leave it uncertain."""
    truth, responses = suite_with_five_answers(num_llms, num_items, seed=0)
    np.testing.assert_allclose([truth.ability.mean(), truth.ability.std()], [0, 1], atol=1e-12)
    assert responses.attempts[0].sum() == 5
    posterior = fit_nuts(responses, sampler=Sampler(num_chains=2, num_warmup=100, num_draws=150))
    lower, upper = intervals(posterior)
    assert lower[0] < 0.3 < upper[0]
    assert 1 < upper[0] - lower[0] < 4
    # control: LLMs with all answers are known well, and where they are
    assert (upper - lower)[1:].max() < 1
    inside = (lower < truth.ability[:, 0]) & (truth.ability[:, 0] < upper)
    assert inside[1:].mean() > 0.75  # of 28 or more; 90 % expected


# Options


@pytest.mark.parametrize(
    "options",
    [
        {"num_chains": 1},
        {"num_warmup": 19},
        {"num_draws": 3},
        {"target_accept": 0.0},
        {"target_accept": 1.0},
        {"max_tree_depth": 0},
    ],
)
def test_senseless_options_are_refused(options):
    with pytest.raises(InvalidConfigurationError, match=r"must|needs"):
        Sampler(**options)


def test_progress_is_reported(small_fit):
    responses, estimate, _ = small_fit
    calls = []
    fit_nuts(responses, estimate=estimate, sampler=SHORT, progress=lambda *call: calls.append(call))
    done = [call[0] for call in calls]
    assert len(calls) > 2
    assert done == sorted(set(done))
    assert {total for _, total in calls} == {done[-1]} == {200}


def test_an_estimate_of_other_data_is_refused(small_fit):
    responses, estimate, _ = small_fit
    other = simulate_suite(6, 21).responses
    with pytest.raises(InvalidConfigurationError, match="other LLMs, items or outcomes"):
        fit_nuts(other, estimate=estimate, sampler=SHORT)
    renamed = Responses.from_arrays(responses.successes, llms=list("abcdef"), items=responses.items)
    with pytest.raises(InvalidConfigurationError, match="other LLMs, items or outcomes"):
        fit_nuts(renamed, estimate=estimate, sampler=SHORT)


def test_a_start_that_is_not_finite_is_refused(small_fit):
    responses = small_fit[0]
    broken = fit_cbmm(responses, penalty=Priors())
    broken.dataset["ability"][:] = np.nan
    with pytest.raises(NumericalError, match="not finite"):
        fit_nuts(responses, estimate=broken, sampler=SHORT)


def test_global_precision_is_left_alone(small_fit):
    assert small_fit[2].ability.dtype == np.float64
    assert jnp.zeros(1).dtype == jnp.float32


def test_the_starting_penalty_follows_the_priors():
    spec = ModelSpec(Priors(discrimination=LogNormal()))
    assert start_penalty(spec) == Priors()
    assert start_penalty(ModelSpec()) == Priors()


@pytest.mark.parametrize("rows", [[[1, 0, 1, 0], [0, 1, 1, 0]], [[1, 0, 1, 0]] * 3, [[1, 1, 1, 1]] * 6])
def test_llms_of_equal_scores_can_be_fitted(rows):
    """All abilities of the estimate are then equal: the density has no value at the start itself.

    Shapes are those of other tests, so that their compiled programs serve.
    """
    posterior = fit_nuts(Responses.from_arrays(np.tile(rows, 5)), sampler=SHORT)
    assert np.isfinite(posterior.ability).all()
