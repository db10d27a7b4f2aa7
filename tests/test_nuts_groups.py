"""NUTS with groups of related LLMs: its coordinates, its posterior against the model written out, and what groups do.

All fits are of 12 LLMs x 20 items by one sampler, so that one compiled program serves them all: which LLMs are related
is data. Monte Carlo tests use fixed seeds.
"""

import re
import warnings

import arviz
import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from jax.flatten_util import ravel_pytree
from numpyro.infer import MCMC, NUTS
from numpyro.infer.util import potential_energy
from scipy import stats
from test_cli import call

from bayes_irt.calibration import CalibrationPlan, check_calibration
from bayes_irt.cbmm import fit_cbmm
from bayes_irt.diagnostics import check_posterior
from bayes_irt.errors import ConvergenceWarning
from bayes_irt.inference.density import find_target
from bayes_irt.inference.nuts import Sampler, fit_nuts
from bayes_irt.inference.start import White, unwhiten
from bayes_irt.likelihood import tile_cells
from bayes_irt.llm_groups import groups_from_labels
from bayes_irt.model_spec import ModelSpec
from bayes_irt.models import response_model
from bayes_irt.posterior import Posterior
from bayes_irt.prior_densities import log_ability_prior
from bayes_irt.prior_simulation import simulate_from_prior
from bayes_irt.priors import Priors
from bayes_irt.responses import Responses
from bayes_irt.simulate import simulate_suite

LLMS, ITEMS = 12, 20
SPEC = ModelSpec(llm_groups="family", observation="binomial")
LABELS = np.array(["a"] * 4 + ["b"] * 3 + ["c"] * 3 + [""] * 2, dtype=object)
MIXED = np.array(["a", "b", "c", ""] * 3, dtype=object)
SAMPLER = Sampler(num_chains=2, num_warmup=100, num_draws=100)
SITES = (
    *("ability", "discrimination", "easiness", "discrimination_scale"),
    *("easiness_location", "easiness_scale", "ability_share"),
)


def with_groups(responses, labels=LABELS):
    known = np.where(labels == "", np.nan, labels)
    return Responses(responses.dataset.assign_coords(family=("llm", known)))


def fitted(responses, seed=0):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # of starts where all is right or all is wrong
        estimate = fit_cbmm(responses, penalty=Priors())
    return fit_nuts(responses, spec=SPEC, estimate=estimate, sampler=SAMPLER, seed=seed)


def counts():
    """12 LLMs x 20 items, 4 attempts, some of three families and two of none."""
    return simulate_from_prior(SPEC, LLMS, ITEMS, attempts=4, seed=12, groups=LABELS.tolist()).responses


@pytest.fixture(scope="module")
def posterior():
    return fitted(counts())


@pytest.fixture(scope="module")
def start():
    """Return the Gaussian around the mode, by the program that fits use."""
    responses = counts()
    estimate = fit_cbmm(responses, penalty=Priors())
    with jax.enable_x64(True):
        cells = tile_cells(responses.successes, responses.attempts)
        groups = jax.tree.map(jnp.asarray, groups_from_labels(LABELS))
        return find_target(SPEC, jax.tree.map(jnp.asarray, estimate.parameters), cells, groups).start


# Coordinates and density


def test_the_volume_of_the_coordinates_is_that_of_their_derivative(start):
    """At five places the difference is one constant, although the share stretches abilities together."""
    rng = np.random.default_rng(0)
    with jax.enable_x64(True):
        flat, restore = ravel_pytree(White(jnp.zeros(LLMS), jnp.zeros((ITEMS, 2)), jnp.zeros(4)))

        @jax.jit
        def volume_and_derivative(point):
            place = lambda point: ravel_pytree(unwhiten(restore(point), start, SPEC)[0])[0]  # noqa: E731
            return unwhiten(restore(point), start, SPEC)[1], jax.jacfwd(place)(point)

        found = [volume_and_derivative(point) for point in rng.normal(size=(5, flat.size))]
    gaps = [np.linalg.slogdet(derivative)[1] - float(volume) for volume, derivative in found]
    np.testing.assert_allclose(gaps, gaps[0], atol=1e-9)
    assert np.ptp([float(volume) for volume, _ in found]) > 1


def log_density(point, responses):
    """Return the log posterior of unconstrained values, from SciPy's densities.

    Location and radius of the raw abilities have the law of unrelated LLMs, which the data do not see; what is left is
    angular central Gaussian, with the dense covariance of values whose mean is taken away.
    """
    a, d, z = np.exp(point["discrimination"]), point["easiness"], point["ability_raw"]
    tau, spread = np.exp(point["discrimination_scale"]), np.exp(point["easiness_scale"])
    share = 1 / (1 + np.exp(-point["ability_share"]))
    total = stats.lognorm(s=1.0, scale=1.5).logpdf(tau) + stats.lognorm(s=1.0, scale=2.0).logpdf(spread)
    total += stats.norm(0, 5).logpdf(point["easiness_location"]) + np.log(share * (1 - share))
    total += stats.halfnorm(scale=tau).logpdf(a).sum() + stats.norm.logpdf(z).sum()
    total += stats.norm(point["easiness_location"], spread).logpdf(d).sum()
    total += point["discrimination"].sum() + np.log(tau) + np.log(spread)  # Jacobians of the exponentials
    ability = (z - z.mean()) / z.std()
    related = (LABELS[:, None] == LABELS) & (LABELS != "")
    matrix = np.where(np.eye(LLMS, dtype=bool), 1.0, share * related)
    basis = np.linalg.qr(np.column_stack([np.ones(LLMS), np.eye(LLMS)[:, 1:]]))[0][:, 1:]
    inner = basis.T @ matrix @ basis  # of values whose mean is taken away
    square = (basis.T @ ability) @ np.linalg.solve(inner, basis.T @ ability)
    total -= 0.5 * (np.linalg.slogdet(inner)[1] + (LLMS - 1) * np.log(square / LLMS))
    eta = ability[:, None] * a + d
    return total + np.sum(responses.successes * eta - responses.attempts * np.logaddexp(0, eta))


def test_the_density_is_that_of_the_model_written_out():
    responses, rng = counts(), np.random.default_rng(0)
    sizes = {"discrimination": (ITEMS,), "easiness": (ITEMS,), "ability_raw": (LLMS,)}
    sizes |= dict.fromkeys(SPEC.hyperparameters, ())
    points = [{name: rng.normal(size=size) for name, size in sizes.items()} for _ in range(6)]
    with jax.enable_x64(True):
        cells = tile_cells(responses.successes, responses.attempts, "float64")
        arguments = (SPEC, LLMS, ITEMS, cells, groups_from_labels(LABELS))
        energy = [float(potential_energy(response_model, arguments, {}, point)) for point in points]
    wanted = np.array([log_density(point, responses) for point in points])
    # up to the binomial coefficients, which no parameter changes
    np.testing.assert_allclose(np.diff(energy), -np.diff(wanted), rtol=1e-9)


# The posterior


def textbook_model(successes, attempts):
    """Declare the model plainly: a common part for each family and an own part for each LLM."""
    tau = numpyro.sample("discrimination_scale", dist.LogNormal(jnp.log(1.5), 1.0))
    slope = numpyro.sample("slope", dist.HalfNormal(1.0).expand([ITEMS]).to_event(1))
    a = numpyro.deterministic("discrimination", tau * slope)
    mean = numpyro.sample("easiness_location", dist.Normal(0.0, 5.0))
    spread = numpyro.sample("easiness_scale", dist.LogNormal(jnp.log(2.0), 1.0))
    shift = numpyro.sample("shift", dist.Normal(0.0, 1.0).expand([ITEMS]).to_event(1))
    d = numpyro.deterministic("easiness", mean + spread * shift)
    share = numpyro.sample("ability_share", dist.Uniform(0.0, 1.0))
    family = numpyro.sample("u", dist.Normal(0.0, 1.0).expand([5]).to_event(1))
    own = numpyro.sample("e", dist.Normal(0.0, 1.0).expand([LLMS]).to_event(1))
    number = jnp.array([0] * 4 + [1] * 3 + [2] * 3 + [3, 4])
    z = jnp.sqrt(share) * family[number] + jnp.sqrt(1.0 - share) * own
    theta = numpyro.deterministic("ability", (z - z.mean()) / z.std())
    logits = theta[:, None] * a + d
    numpyro.sample("outcome", dist.Binomial(attempts, logits=logits).to_event(2), obs=successes)


def draws_of_oracle(responses):
    with jax.enable_x64(True):
        mcmc = MCMC(
            NUTS(textbook_model, max_tree_depth=7, target_accept_prob=0.9),
            num_warmup=300,
            num_samples=700,
            num_chains=4,
            chain_method="vectorized",
            progress_bar=False,
        )
        successes, attempts = (
            jnp.asarray(counts, int) for counts in (responses.successes, responses.attempts)
        )
        mcmc.run(jax.random.key(3), successes, attempts)
        drawn = mcmc.get_samples(group_by_chain=True)
    return {name: np.asarray(drawn[name]) for name in SITES}


def distances(ours, theirs, min_ess=200):
    """Return differences of means and of sds in units of their Monte Carlo error, for every parameter."""
    found = {}
    for name in SITES:
        pair = [np.moveaxis(draws[name], (0, 1), (-2, -1)) for draws in (ours, theirs)]
        flat = (array.reshape(-1, *array.shape[-2:]) for array in pair)
        for number, (one, two) in enumerate(zip(*flat, strict=True)):
            for method, value in (("mean", np.mean), ("sd", np.std)):
                for draws in (one, two):
                    assert arviz.ess(draws, method=method) > min_ess, name
                errors = [float(arviz.mcse(draws, method=method)) for draws in (one, two)]
                found[name, number, method] = abs(value(one) - value(two)) / np.hypot(*errors)
    return found


def draws_of(responses, num_fits):
    parts = [fitted(responses, seed).draws for seed in range(num_fits)]
    return {name: np.concatenate([part[name].to_numpy() for part in parts]) for name in SITES}


def test_the_posterior_is_that_of_families_written_out():
    """False alarm: 112 comparisons at 4.9 standard errors, 1 in 10,000 runs."""
    responses = counts()
    theirs = draws_of_oracle(responses)
    found = distances(draws_of(responses, 12), theirs)
    assert len(found) == 112
    assert max(found.values()) < 4.9
    # control: the same data, the families mixed up
    others = distances(draws_of(with_groups(responses, MIXED), 6), theirs, min_ess=100)
    assert others["ability_share", 0, "mean"] > 4.9


def test_posteriors_are_complete_and_survive_the_disk(posterior, tmp_path):
    draws = posterior.draws
    assert set(draws) == set(SITES)
    assert draws["ability_share"].dims == ("chain", "draw")
    assert float(draws["ability_share"].min()) > 0
    assert float(draws["ability_share"].max()) < 1
    assert posterior.llm_groups == tuple(LABELS)
    assert posterior.spec == SPEC
    posterior.save(tmp_path / "posterior")
    loaded = Posterior.load(tmp_path / "posterior")
    assert loaded == posterior
    assert loaded.thin(10).llm_groups == tuple(LABELS)
    assert len(posterior.summary(kind="stats")) == LLMS + 2 * ITEMS + 4
    named = [check.message for check in check_posterior(posterior)]
    assert len(named) >= 8
    assert float(arviz.rhat(draws["ability_share"])) < 1.1
    assert int(posterior.tree["sample_stats"]["diverging"].sum()) == 0
    assert float(posterior.tree["sample_stats"]["n_steps"].mean()) < 32


def test_the_share_is_judged_like_other_hyperparameters(posterior):
    """A share that two chains disagree about is named."""
    stuck = posterior.draws.copy(deep=True)
    stuck["ability_share"][0] *= 0.01
    tree = posterior.tree.copy()
    tree["posterior"] = stuck
    assert "ability_share" in check_posterior(Posterior(tree, posterior.provenance))["R-hat"].labels


def test_log_priors_have_the_abilities_and_the_share(posterior):
    full = posterior.with_log_likelihood(counts())
    added, draws = full.tree["log_prior"].to_dataset(), posterior.draws
    assert set(added) == {"discrimination", "easiness", "hyperparameters", "ability"}
    assert added["ability"].dims == added["hyperparameters"].dims == ("chain", "draw")
    groups = groups_from_labels(LABELS)
    with jax.enable_x64(True):
        one = draws["ability"].to_numpy()[1, 7], draws["ability_share"].to_numpy()[1, 7]
        wanted = float(log_ability_prior(*(jnp.asarray(value) for value in one), groups))
    assert float(added["ability"][1, 7]) == pytest.approx(wanted)
    assert np.isfinite(arviz.psense_summary(full.tree, prior_var_names=["ability"])["prior"]).all()


# What groups do


def families(few_answers=2):
    """Four families of three LLMs alike; of each, one LLM has two answers, the others 80."""
    rng, labels = np.random.default_rng(4), np.repeat(np.array(list("abcd"), dtype=object), 3)
    ability = np.repeat([-1.35, -0.4, 0.45, 1.3], 3)
    items = simulate_suite(LLMS, ITEMS, seed=3).truth
    chance = 1 / (1 + np.exp(-(ability[:, None] * (0.8 + items.discrimination[:, 0]) + items.easiness)))
    attempts = np.full((LLMS, ITEMS), 4)
    attempts[2::3] = 0
    attempts[2::3, :few_answers] = 1
    successes = rng.binomial(attempts, chance)
    return ability, labels, Responses.from_arrays(successes, attempts)


def test_llms_with_few_answers_are_drawn_to_their_family():
    """Beside the same data whose families are mixed up: the error of four abilities falls, and so does their spread."""
    ability, labels, responses = families()
    few = np.arange(LLMS) % 3 == 2
    mixed = np.roll(np.array(list("abcd"), dtype=object), 1)[np.arange(LLMS) % 4]
    summaries = []
    for given in (labels, mixed):
        draws = fitted(with_groups(responses, given)).draws
        drawn = draws["ability"].stack(sample=("chain", "draw")).to_numpy()
        truth = (ability - ability.mean()) / ability.std()
        error = np.sqrt(np.mean((drawn.mean(axis=1) - truth)[few] ** 2))
        summaries.append((error, drawn.std(axis=1)[few].mean(), float(draws["ability_share"].mean())))
    (error, spread, share), (other_error, other_spread, other_share) = summaries
    assert share > 0.75 > 0.5 > other_share
    assert error < 0.5 * other_error
    assert spread < 0.7 * other_spread


def test_the_command_line_takes_groups_and_refuses_what_has_none(tmp_path):
    responses, table, llms = counts(), tmp_path / "results.csv", tmp_path / "llms.csv"
    columns = ("successes", "attempts")
    frame = responses.dataset[list(columns)].to_dataframe()[list(columns)].rename_axis(["model", "item"])
    frame.to_csv(table)
    responses.llm_metadata.rename_axis("model").to_csv(llms)
    options = ("--successes", "successes", "--attempts", "attempts", "--llms", llms)
    sampler = (
        "--chains",
        2,
        "--warmup",
        100,
        "--draws",
        100,
        "--observation",
        "binomial",
    )  # as SAMPLER and SPEC
    made = call("fit", table, "-o", tmp_path / "run", *options, *sampler, "--group", "family")
    assert made.code in (0, 3), made.err  # so few draws may not converge
    assert re.search(
        r"\d+% to \d+% of the abilities' variance lies between groups of LLMs by 'family'", made.err
    )
    posterior = Posterior.load(tmp_path / "run" / "posterior")
    assert posterior.llm_groups == tuple(LABELS)
    refused = call("fit", table, "-o", tmp_path / "other", *options, *sampler, "--group", "famly")
    assert refused.code == 2
    assert "no column 'famly'; there are 'family'" in refused.err
    assert not (tmp_path / "other").exists()
    idle = call("fit", table, "-o", tmp_path / "other", *options, "--method", "laplace", "--group", "family")
    assert idle.code == 2
    assert "--group" in idle.err


def test_the_order_of_llms_and_the_names_of_groups_do_not_matter(posterior):
    """Monte Carlo error of 200 draws, .1 posterior sds per mean: within .45, a false alarm in 10,000 runs."""
    order = np.random.default_rng(0).permutation(LLMS)
    responses = counts()
    moved = Responses.from_arrays(
        responses.successes[order], responses.attempts[order], llms=np.array(responses.llms)[order]
    )
    renamed = np.array([{"a": "z", "b": "y", "c": "x", "": ""}[label] for label in LABELS], dtype=object)
    again = fitted(with_groups(moved, renamed[order]))
    over = ("chain", "draw")
    mean, sd = posterior.ability.mean(over), posterior.ability.std(over)
    found = again.ability.mean(over).sel(llm=posterior.ability["llm"])
    assert float((abs(found - mean) / sd).max()) < 0.45
    share = [fit.draws["ability_share"] for fit in (posterior, again)]
    assert abs(float(share[0].mean() - share[1].mean())) < 0.1


def test_nuts_with_groups_is_calibrated():
    """False-alarm rate 0.01; the report fails too if draws 15 % too narrow would have passed."""

    def engine(responses, spec, seed):
        assert spec == SPEC
        return fitted(responses, seed)

    plan = CalibrationPlan(num_datasets=50, num_draws=31, groups=tuple(LABELS))
    report = check_calibration(engine, LLMS, ITEMS, spec=SPEC, plan=plan, seed=1)
    assert report.passed, str(report)
    assert "ability_share" in set(report.scores["kind"])
