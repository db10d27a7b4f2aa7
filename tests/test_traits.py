"""Several traits: the model against itself written out, its coordinates, recovery, and what is asked of it.

Monte Carlo tests use fixed seeds, one shape and one sampler; most of the time is spent compiling.
"""

import dataclasses
import io
import json
import warnings
from functools import cache

import arviz
import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest
from jax.flatten_util import ravel_pytree
from numpyro.infer.util import potential_energy
from scipy import stats
from scipy.special import expit, log_expit
from test_cli import call

from bayes_irt import (
    ModelSpec,
    Posterior,
    Priors,
    Responses,
    Sampler,
    check_posterior,
    check_predictive,
    compare_llms,
    compare_rankings,
    describe_items,
    fit_cbmm,
    fit_nuts,
    fit_svi,
    pair_matrix,
    plan_suite,
    prior_sensitivity,
    rank_llms,
    simulate_from_prior,
    trait_correlations,
    trait_loadings,
    trait_profile,
    variance_shares,
)
from bayes_irt.analysis.accuracy import expected_accuracy
from bayes_irt.analysis.ranks import trait_weights
from bayes_irt.checks import Outcome
from bayes_irt.cli_plans import trait_of
from bayes_irt.correlations import cholesky_of
from bayes_irt.errors import ApproximationWarning, InvalidConfigurationError
from bayes_irt.inference.density import find_target, potential, sites_at
from bayes_irt.inference.start import White
from bayes_irt.inference.trait_start import unwhiten_traits
from bayes_irt.item_law import ItemTraits, law_of_items
from bayes_irt.likelihood import tile_cells
from bayes_irt.models import TRAIT_CHOLESKY, response_model
from bayes_irt.posterior import posterior_from_draws
from bayes_irt.prior_simulation import draw_correlation, prior_predictive
from bayes_irt.priors import Common, HalfNormal, LearnedLocation, LearnedScale, Normal
from bayes_irt.provenance import Provenance, plain
from bayes_irt.trait_loads import loads_of

LLMS, ITEMS, TRAITS = 60, 60, 3
USUAL = Priors(HalfNormal(LearnedScale(1.5, 0.3)), Normal(LearnedLocation(0.0, 1.0), LearnedScale(1.5, 0.3)))
METADATA = pd.DataFrame(
    {
        "subject": [f"subject {number % TRAITS}" for number in range(ITEMS)],
        **{f"loads {k}": [int(number % TRAITS == k) for number in range(ITEMS)] for k in range(TRAITS)},
    }
)
# every third item of the second column loads on the first as well
METADATA.loc[METADATA.index[1::9], "loads 0"] = 1
SPECS = {
    "correlated": ModelSpec(traits="subject"),
    "bifactor": ModelSpec(traits="subject", general=True),
    "crossed": ModelSpec(traits=("loads 0", "loads 1", "loads 2")),
}
SAMPLER = Sampler(num_chains=2, num_warmup=200, num_draws=400)


def loads_by(spec):
    return law_of_items(spec.settled(1), METADATA, ITEMS).traits


# Correlations well inside: where a posterior reaches singular matrices, of traits that may be one, some of its
# trajectories diverge at the usual care, as the fit then says.
SEEDS = {"correlated": 2, "bifactor": 2, "crossed": 7}


@cache
def suite(name):
    """Draw under narrower hyperpriors, since the default ones draw suites of constant items now and then."""
    spec = dataclasses.replace(SPECS[name], priors=USUAL)
    return simulate_from_prior(spec, LLMS, ITEMS, seed=SEEDS[name], item_metadata=METADATA)


@cache
def fitted(name):
    spec = SPECS[name]
    estimate = fit_cbmm(suite(name).responses, penalty=Priors(), loads=spec)
    return estimate, fit_nuts(suite(name).responses, spec=spec, estimate=estimate, sampler=SAMPLER)


# Which items load on which trait


@pytest.mark.parametrize("name", SPECS)
def test_an_estimate_takes_the_loads_of_a_model(name):
    estimate = fit_cbmm(suite(name).responses, penalty=Priors(), loads=SPECS[name])
    np.testing.assert_array_equal(estimate.provenance.configuration["loads"], loads_by(SPECS[name]).loads)
    plain = fit_cbmm(suite(name).responses, penalty=Priors(), loads=ModelSpec())
    assert plain.parameters.num_traits == 1


def test_a_column_or_a_table_says_which_items_load():
    by_column, by_table = loads_by(SPECS["correlated"]), loads_by(SPECS["crossed"])
    assert by_column.labels == ("subject 0", "subject 1", "subject 2")
    np.testing.assert_array_equal(by_column.loads, np.arange(ITEMS)[:, None] % 3 == np.arange(3))
    assert by_table.labels == ("loads 0", "loads 1", "loads 2")
    assert by_table.loads.sum() == ITEMS + len(METADATA.index[1::9])
    general = loads_by(SPECS["bifactor"])
    assert general.labels[0] == "general"
    assert general.loads[:, 0].all()
    np.testing.assert_array_equal(general.loads[:, 1:], by_column.loads)


@pytest.mark.parametrize(
    ("columns", "general", "message"),
    [
        ({"t": ["a", "a", "a", "a", "b", "b"]}, False, "Fewer than 3 items load on 'b'"),
        ({"t": ["a", "a", "a", "b", "b", "b"]}, False, None),
        ({"t": ["a", "a", "a", "b", "b", "b", None]}, False, "1 item without a trait"),
        ({"t": ["a", "a", "a", "b", "b", "b", None]}, True, None),
        ({"t": ["general"] * 3 + ["b"] * 3}, True, "called 'general' already"),
        ({"u": ["a", "b"] * 3}, False, "no column 't'"),
        ({"t": [*["a"] * 3, *["b"] * 3, "solo"]}, False, "Fewer than 3 items load on 'solo'"),
        ({"t": [*["a"] * 3, *["b"] * 3, "solo"]}, True, "Fewer than 3 items load on 'solo'"),
    ],
)
def test_traits_that_cannot_be_told_are_refused(columns, general, message):
    metadata = pd.DataFrame(columns)
    read = lambda: law_of_items(ModelSpec(traits="t", general=general), metadata, len(metadata))  # noqa: E731
    if message is None:
        assert read().traits.num_traits == 2 + general
        return
    with pytest.raises(InvalidConfigurationError, match=message):
        read()


def test_columns_of_0_and_1_hold_nothing_else():
    metadata = pd.DataFrame({"a": [1, 1, 1, 0, 0, 0], "b": [0, 0, 0, 1, 1, 2]})
    with pytest.raises(InvalidConfigurationError, match="'b' says whether an item loads"):
        law_of_items(ModelSpec(traits=("a", "b")), metadata, 6)


@pytest.mark.parametrize(
    "options",
    [
        {"traits": ""},
        {"traits": ()},
        {"traits": ("a", "a")},
        {"traits": ("a",)},
        {"traits": 1},
        {"traits": True},
        {"traits": 3, "general": True},
        {"general": True},
        {"traits": "t", "general": 1},
        {"trait_concentration": 2.0},
        {"traits": "t", "general": True, "trait_concentration": 2.0},
        {"traits": "t", "trait_concentration": 0.0},
        {"traits": "t", "llm_groups": "family"},
        {"traits": "t", "item_groups": "repository"},
        {"traits": "t", "priors": Priors(Common())},
    ],
)
def test_models_that_cannot_be_are_refused(options):
    with pytest.raises(InvalidConfigurationError, match=r"trait|general|together"):
        ModelSpec(**options)


@pytest.mark.parametrize("seed", range(3))
def test_loads_are_listed_and_made_dense_again(seed):
    loads = np.random.default_rng(seed).random((7, 4)) < 0.4
    loads[:, 0] |= ~loads.any(axis=1)
    listed = loads_of(ItemTraits(tuple("abcd"), loads))
    values = jnp.arange(1.0, loads.sum() + 1)
    dense = np.asarray(listed.dense(values, 7))
    np.testing.assert_array_equal(dense > 0, loads)
    np.testing.assert_array_equal(dense[loads], values)
    assert listed.num_slots == loads.sum(axis=1).max()


# The model, written down a second time


def log_density(point, responses, loads):
    """Return the log posterior of unconstrained values, from SciPy's densities, up to one of the correlations."""
    a, d, z = np.exp(point["discrimination"]), point["easiness"], point["ability_raw"]
    tau, spread = np.exp(point["discrimination_scale"]), np.exp(point["easiness_scale"])
    total = stats.lognorm(s=1.0, scale=1.5).logpdf(tau) + stats.lognorm(s=1.0, scale=2.0).logpdf(spread)
    total += stats.norm(0, 5.0).logpdf(point["easiness_location"])
    total += stats.halfnorm(scale=tau).logpdf(a).sum()
    total += stats.norm(point["easiness_location"], spread).logpdf(d).sum()
    total += point["discrimination"].sum() + np.log(tau) + np.log(spread)  # Jacobians of the exponentials
    factor = np.eye(z.shape[1])
    if TRAIT_CHOLESKY in point:
        with jax.enable_x64(True):
            factor = np.asarray(cholesky_of(jnp.asarray(point[TRAIT_CHOLESKY])))
    total += stats.multivariate_normal(np.zeros(z.shape[1]), factor @ factor.T).logpdf(z).sum()
    slopes = np.zeros(loads.shape)
    slopes[loads] = a
    eta = ((z - z.mean(axis=0)) / z.std(axis=0)) @ slopes.T + d
    return total + np.where(responses.successes > 0, log_expit(eta), log_expit(-eta)).sum()


@pytest.mark.parametrize("name", ["correlated", "bifactor", "crossed"])
def test_the_density_is_that_of_the_model_written_out(name):
    spec, responses, traits = SPECS[name].settled(1), suite(name).responses, loads_by(SPECS[name])
    rng = np.random.default_rng(0)
    sizes = {
        "discrimination": (int(traits.loads.sum()),),
        "easiness": (ITEMS,),
        "ability_raw": (LLMS, traits.num_traits),
    }
    sizes |= dict.fromkeys(("discrimination_scale", "easiness_location", "easiness_scale"), ())
    fixed = {} if spec.general else {TRAIT_CHOLESKY: rng.normal(size=3)}
    points = [{name: rng.normal(size=size) for name, size in sizes.items()} | fixed for _ in range(5)]
    with jax.enable_x64(True):
        cells = tile_cells(responses.successes, responses.attempts, "float64")
        arguments = (spec, LLMS, ITEMS, cells, None, jax.tree.map(jnp.asarray, loads_of(traits)))
        energy = [float(potential_energy(response_model, arguments, {}, point)) for point in points]
    wanted = np.array([log_density(point, responses, traits.loads) for point in points])
    np.testing.assert_allclose(np.diff(energy), -np.diff(wanted), rtol=1e-8)
    assert np.ptp(wanted) > 10


def test_drawn_correlations_are_those_of_the_sampled_law():
    """LKJ: a correlation of K variables is 2 Beta(c, c) - 1 with c = concentration + (K - 2) / 2."""
    rng = np.random.default_rng(1)
    for size, concentration in ((2, 1.0), (3, 1.0), (4, 3.0)):
        draws = np.array(
            [draw_correlation(size, concentration, rng)[np.triu_indices(size, 1)] for _ in range(3000)]
        )
        shape = concentration + (size - 2) / 2
        for pair in range(draws.shape[1]):
            assert stats.kstest((draws[:, pair] + 1) / 2, stats.beta(shape, shape).cdf).pvalue > 1e-4
        assert (
            stats.kstest((draws[:, 0] + 1) / 2, stats.beta(shape + 1, shape + 1).cdf).pvalue < 1e-4
        )  # control


# Coordinates


@cache
def target(name):
    spec, traits = SPECS[name].settled(1), loads_by(SPECS[name])
    with jax.enable_x64(True):
        cells = tile_cells(suite(name).responses.successes[:8], suite(name).responses.attempts[:8], "float64")
        estimate = fit_cbmm(few(name), penalty=Priors(), loads=traits.loads)
        loads = jax.tree.map(jnp.asarray, loads_of(traits))
        return spec, find_target(spec, jax.tree.map(jnp.asarray, estimate.parameters), cells, None, loads)


def origin(start):
    """The point at which the Gaussian is centred."""
    more = {key: jnp.zeros_like(mean) for key, (mean, _) in start.more.items()}
    return White(
        jnp.zeros_like(start.ability), jnp.zeros_like(start.items), jnp.zeros_like(start.hyper), more
    )


def few(name):
    responses = suite(name).responses
    return Responses.from_arrays(responses.successes[:8], responses.attempts[:8])


@pytest.mark.parametrize("name", ["correlated", "crossed"])
def test_the_volume_of_the_coordinates_is_that_of_their_derivative(name):
    """At places all over, correlations included, the difference is one constant, slots that say nothing aside."""
    spec, found = target(name)
    start, rng = found.start, np.random.default_rng(0)
    with jax.enable_x64(True):
        white = origin(start)
        flat, restore = ravel_pytree(white)
        idle = (
            ravel_pytree(
                dataclasses.replace(white, items=white.items.at[:, :-1].set(1.0 - start.frame.used))
            )[0]
            > 0
        )

        @jax.jit
        def volume_and_derivative(point):
            place = lambda point: ravel_pytree(unwhiten_traits(restore(point), start, spec)[0])[0]  # noqa: E731
            return unwhiten_traits(restore(point), start, spec)[1], jax.jacfwd(place)(point)

        points = [np.where(idle, 0.0, rng.normal(size=flat.size)) for _ in range(4)]
        values = [jax.device_get(volume_and_derivative(point)) for point in points]
    gaps = [np.linalg.slogdet(derivative[:, ~idle])[1] - float(volume) for volume, derivative in values]
    np.testing.assert_allclose(gaps, gaps[0], atol=1e-9)
    assert np.ptp([float(volume) for volume, _ in values]) > 1


def test_the_posterior_is_nearly_round_in_the_coordinates():
    """Curvatures at the start lie within a factor; control: by as many others they would not."""
    spec, found = target("correlated")
    with jax.enable_x64(True):
        start = found.start
        white = origin(start)
        flat, restore = ravel_pytree(white)
        curvature = jax.jit(jax.hessian(lambda point: potential(restore(point), found, spec)))(flat)
    values = np.linalg.eigvalsh(np.asarray(curvature))
    assert np.quantile(values, 0.05) > 0.3
    assert np.quantile(values, 0.95) < 3


# Recovery


@pytest.mark.parametrize("name", ["correlated", "bifactor", "crossed"])
def test_abilities_and_loads_are_recovered(name):
    estimate, posterior = fitted(name)
    truth, traits = suite(name).truth, loads_by(SPECS[name])
    assert posterior.traits == traits.labels
    report = check_posterior(posterior)
    assert report["divergences"].outcome is Outcome.PASS
    assert float(arviz.rhat(posterior.ability).max()) < 1.05
    draws = posterior.parameters
    assert (np.asarray(draws.discrimination)[:, ~traits.loads] == 0).all()
    ability = np.asarray(draws.ability)
    np.testing.assert_allclose(ability.mean(axis=1), 0, atol=1e-9)
    np.testing.assert_allclose(ability.std(axis=1), 1, atol=1e-9)
    lower, upper = np.quantile(ability, (0.05, 0.95), axis=0)
    inside = ((lower < truth.ability) & (truth.ability < upper)).mean()
    assert 0.82 < inside < 0.97
    leading = range(1) if name == "bifactor" else range(TRAITS)
    for trait in leading:
        assert np.corrcoef(ability.mean(axis=0)[:, trait], truth.ability[:, trait])[0, 1] > 0.8
    slopes = np.asarray(draws.discrimination).mean(axis=0)[traits.loads]
    assert np.corrcoef(slopes, np.asarray(truth.discrimination)[traits.loads])[0, 1] > 0.7
    assert np.isfinite(np.asarray(estimate.parameters.ability)).all()


@pytest.mark.parametrize("name", ["correlated", "bifactor"])
def test_few_llms_are_sampled_from_the_declared_model(name):
    """Of 8 LLMs, too: nothing is added to the density of the model, as it is where one ability's radius is free."""
    spec, found = target(name)
    start, rng = found.start, np.random.default_rng(3)
    with jax.enable_x64(True):
        flat, restore = ravel_pytree(origin(start))
        points = [restore(jnp.asarray(rng.normal(size=flat.size))) for _ in range(4)]
        arguments = (spec, 8, ITEMS, found.cells, None, start.frame.loads)

        @jax.jit
        def gap(white):
            sites, volume = sites_at(white, found, spec)
            return (
                potential(white, found, spec)
                - potential_energy(response_model, arguments, {}, sites)
                + volume
            )

        gaps = [float(gap(point)) for point in points]
    np.testing.assert_allclose(gaps, 0, atol=1e-6)


def test_correlations_are_inside_their_intervals():
    _, posterior = fitted("correlated")
    found = trait_correlations(posterior, 0.98)
    wanted = suite("correlated").further["trait_correlation"]
    assert found.index.tolist()[0] == ("subject 0", "subject 1")
    assert ((found["lower"] < wanted) & (wanted < found["upper"])).all()
    assert (found["upper"] - found["lower"]).max() < 1


# What is asked of it


def made_up(ability, slopes, spec, labels, **further):
    """A posterior with known draws."""
    size = ability.shape[:2]
    draws = {"ability": ability, "discrimination": np.broadcast_to(slopes, (*size, *slopes.shape))}
    draws |= {"easiness": np.zeros((*size, len(slopes))), **further}
    law = law_of_items(spec, METADATA, ITEMS)
    provenance = Provenance("nuts", {"spec": plain(spec)}, "digest", 0)
    items = tuple(f"item-{number:04d}" for number in range(ITEMS))
    return posterior_from_draws(draws, {}, (labels, items), provenance, law=law)


def test_variance_shares_follow_their_formulas():
    """All loads alike: omega = (J l)^2 / total, with l^2 the item's share of each ability."""
    rng, spec = np.random.default_rng(0), SPECS["bifactor"].settled(1)
    loads = loads_by(spec).loads
    slopes = loads * np.array([2.0, 1.0, 1.0, 1.0])
    posterior = made_up(rng.normal(size=(1, 5, 9, 4)), slopes, spec, tuple("abcdefghi"))
    shares = variance_shares(posterior)["share"]
    error = np.pi**2 / 3
    general, specific = ITEMS**2 * 4, 3 * (ITEMS / 3) ** 2
    total = general + specific + ITEMS * error
    # standardising abilities scales the slopes of a draw by the abilities' sd
    spread = np.asarray(posterior.parameters.discrimination)[0]
    variance = (spread**2).sum(axis=1) + error
    by_hand = ((spread[:, 0] / np.sqrt(variance)).sum()) ** 2
    assert shares["omega_hierarchical"] == pytest.approx(general / total, abs=0.1)
    first = Posterior(posterior.tree.isel(draw=slice(0, 1)), posterior.provenance)
    exact = variance_shares(first)["share"]
    parts = [((spread[:, k] / np.sqrt(variance)).sum()) ** 2 for k in range(4)]
    whole = sum(parts) + (error / variance).sum()
    assert exact["omega_hierarchical"] == pytest.approx(by_hand / whole)
    assert exact["omega_total"] == pytest.approx(sum(parts) / whole)
    assert exact["explained_common_variance"] == pytest.approx((spread[:, 0] ** 2).sum() / (spread**2).sum())


def test_loadings_are_those_of_the_model_the_largest_first():
    _, posterior = fitted("crossed")
    table, loads = trait_loadings(posterior, 0.8), loads_by(SPECS["crossed"]).loads
    assert len(table) == loads.sum()
    draws = np.asarray(posterior.parameters.discrimination)
    for (trait, item), row in table.iterrows():
        own = draws[:, posterior.items.index(item), posterior.traits.index(trait)]
        np.testing.assert_allclose(row, [own.mean(), *np.quantile(own, (0.1, 0.9))])
    for number, (trait, rows) in enumerate(table.groupby("trait", sort=False)):
        assert trait == posterior.traits[number]
        assert rows["discrimination"].is_monotonic_decreasing
        assert len(rows) == loads[:, number].sum()
    top = trait_loadings(posterior, 0.8, most=2)
    assert top.groupby("trait").size().eq(2).all()
    pd.testing.assert_frame_equal(top, table.groupby("trait", sort=False).head(2))
    with pytest.raises(InvalidConfigurationError, match="most"):
        trait_loadings(posterior, most=0)


def test_llms_are_ranked_on_a_trait_or_on_a_weighting():
    estimate, posterior = fitted("correlated")
    responses = suite("correlated").responses
    ability = np.asarray(posterior.parameters.ability)
    board = rank_llms(posterior, estimate, responses, trait="subject 1")
    np.testing.assert_allclose(
        board.table["ability"].loc[list(responses.llms)], ability[:, :, 1].mean(axis=0), atol=1e-12
    )
    assert "on 'subject 1'" in board.notes[0]
    assert json.loads(board.to_json())["traits"] == {"subject 1": 1.0}
    mixed = rank_llms(posterior, estimate, responses, trait={"subject 0": 3, "subject 2": 1})
    wanted = ability @ [0.75, 0.0, 0.25]
    wanted /= wanted.std(axis=1, keepdims=True)
    np.testing.assert_allclose(
        mixed.table["ability"].loc[list(responses.llms)], wanted.mean(axis=0), atol=1e-12
    )
    assert "'subject 0' (75%), 'subject 2' (25%)" in mixed.notes[0]
    matrix = pair_matrix(posterior, responses, trait="subject 1")
    assert matrix.index[0] == board.table.index[0]
    pair = compare_llms(posterior, responses, *board.table.index[[0, -1]], trait="subject 1")
    assert pair.p_better == pytest.approx(matrix.iloc[0, -1])
    assert pair.p_better > 0.99


def test_comparisons_name_the_trait():
    _, posterior = fitted("correlated")
    responses = suite("correlated").responses
    pair = compare_llms(posterior, responses, "llm-001", "llm-002", trait="subject 2")
    assert " on 'subject 2'" in pair.sentence
    assert pair.table["traits"].iloc[0] == "subject 2=1"
    assert json.loads(pair.to_json())["traits"] == "subject 2=1"
    assert "ability on 'subject 2' (sd)" in pair.to_markdown()


def test_weights_may_be_large():
    weights = trait_weights(fitted("correlated")[1], {"subject 0": 1e308, "subject 1": 1e308})
    np.testing.assert_allclose(weights, [0.5, 0.5, 0])


def test_a_trait_called_general_is_no_general_ability():
    metadata = METADATA.assign(subject=METADATA["subject"].replace("subject 0", "general"))
    spec = ModelSpec(traits="subject").settled(1)
    law = law_of_items(spec, metadata, ITEMS)
    rng = np.random.default_rng(0)
    draws = {"ability": rng.normal(size=(1, 4, 9, 3)), "easiness": np.zeros((1, 4, ITEMS))}
    draws["discrimination"] = np.broadcast_to(law.traits.loads, (1, 4, ITEMS, 3)).astype(float)
    labels = tuple("abcdefghi"), tuple(f"item-{number:04d}" for number in range(ITEMS))
    posterior = posterior_from_draws(
        draws, {}, labels, Provenance("nuts", {"spec": plain(spec)}, "digest", 0), law=law
    )
    with pytest.raises(InvalidConfigurationError, match="no general ability"):
        variance_shares(posterior)


@pytest.mark.parametrize(
    ("names", "wanted"),
    [
        (None, None),
        (["logic"], "logic"),
        (["log=2"], "log=2"),
        (["log=2=3", "logic"], {"log=2": 3.0, "logic": 1.0}),
        (["logic=0.5", "log=2"], {"logic": 0.5, "log=2": 1.0}),
    ],
)
def test_traits_are_named_with_or_without_weights(names, wanted):
    assert trait_of(names, ("logic", "log=2")) == wanted


def test_a_trait_named_twice_is_refused():
    with pytest.raises(InvalidConfigurationError, match="named twice"):
        trait_of(["logic", "logic=0"], ("logic",))


def test_a_general_ability_is_the_one_to_rank_on():
    estimate, posterior = fitted("bifactor")
    board = rank_llms(posterior, estimate, suite("bifactor").responses)
    assert "on 'general'" in board.notes[0]


@pytest.mark.parametrize(
    ("trait", "message"),
    [
        (None, "3 traits: 'subject 0'"),
        ("algebra", "No trait is called 'algebra'"),
        ({"subject 0": 0.0}, "one positive"),
        ({"subject 0": -1.0, "subject 1": 2.0}, "non-negative"),
        ({"subject 0": np.nan}, "non-negative"),
        ({"subject 0": "much"}, "non-negative"),
        (["subject 0"], "a name, or a mapping"),
        (1, "a name, or a mapping"),
    ],
)
def test_traits_that_are_not_there_are_refused(trait, message):
    estimate, posterior = fitted("correlated")
    with pytest.raises(InvalidConfigurationError, match=message):
        rank_llms(posterior, estimate, suite("correlated").responses, trait=trait)


def test_expected_accuracies_count_all_traits():
    _, posterior = fitted("crossed")
    draws = posterior.parameters.at(7)
    logits = np.asarray(draws.ability) @ np.asarray(draws.discrimination).T + draws.easiness
    np.testing.assert_allclose(expected_accuracy(posterior)[7], expit(logits).mean(axis=1), rtol=1e-6)


def test_profiles_and_predictive_checks():
    _, posterior = fitted("correlated")
    profile = trait_profile(posterior)
    ability = np.asarray(posterior.parameters.ability)
    assert profile.loc[("llm-007", "subject 2"), "ability"] == pytest.approx(ability[:, 6, 2].mean())
    assert (profile["lower"] < profile["upper"]).all()
    assert check_predictive(posterior, suite("correlated").responses).report.passed


def test_a_posterior_is_saved_with_its_traits(tmp_path):
    _, posterior = fitted("bifactor")
    posterior.save(tmp_path / "p")
    loaded = Posterior.load(tmp_path / "p")
    assert loaded == posterior
    assert loaded.traits == posterior.traits
    assert loaded.spec == SPECS["bifactor"].settled(1)


@pytest.mark.parametrize("name", ["correlated", "bifactor"])
def test_svi_is_near_nuts(name):
    """The Monte Carlo error of a mean is about .05 of a posterior sd, of an sd 4 %."""
    estimate, nuts = fitted(name)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ApproximationWarning)  # of few LLMs and answers
        svi = fit_svi(suite(name).responses, spec=SPECS[name], estimate=estimate, num_draws=2000)
    assert {site: svi.draws[site].dims for site in svi.draws} == {
        site: nuts.draws[site].dims for site in nuts.draws
    }
    assert svi.traits == nuts.traits
    (mean, sd), (wanted, spread) = (
        (fit.ability.mean(("chain", "draw")).to_numpy(), fit.ability.std(("chain", "draw")).to_numpy())
        for fit in (svi, nuts)
    )
    off = np.abs(mean - wanted) / spread
    assert np.median(off) < 0.1
    assert off.max() < 0.5
    assert 0.85 < np.median(sd / spread) < 1.05
    # control: another LLM's ability
    assert np.median(np.abs(mean - wanted[::-1]) / spread) > 1


def test_prior_draws_have_a_dim_for_traits():
    draws = prior_predictive(SPECS["correlated"], 6, ITEMS, num_draws=3, item_metadata=METADATA).draws
    assert draws["ability"].dims == ("draw", "llm", "trait")
    assert draws["trait_correlation"].dims == ("draw", "trait_pair")


def test_boards_refuse_estimates_with_other_loads():
    posterior = fitted("correlated")[1]
    free = fit_cbmm(suite("correlated").responses, penalty=Priors(), num_traits=TRAITS)
    with pytest.raises(InvalidConfigurationError, match=r"other traits.*loads=posterior\.spec"):
        rank_llms(posterior, free, suite("correlated").responses)


def test_estimates_with_other_loads_are_refused():
    responses = suite("correlated").responses
    for loads, message in ((None, "has 1 traits"), (loads_by(SPECS["crossed"]).loads, "other traits")):
        estimate = fit_cbmm(responses, penalty=Priors(), loads=loads)
        with pytest.raises(InvalidConfigurationError, match=message):
            fit_nuts(responses, spec=SPECS["correlated"], estimate=estimate, sampler=SAMPLER)


def test_one_trait_has_no_profile(small_fit):
    for ask in (trait_profile, trait_loadings, trait_correlations, variance_shares):
        with pytest.raises(InvalidConfigurationError, match="one trait"):
            ask(small_fit[2])
    with pytest.raises(InvalidConfigurationError, match="are uncorrelated"):
        trait_correlations(fitted("bifactor")[1])
    with pytest.raises(InvalidConfigurationError, match="no general ability"):
        variance_shares(fitted("correlated")[1])


def test_the_command_line_fits_and_ranks_several_traits(tmp_path):
    responses, table, items = suite("correlated").responses, tmp_path / "r.csv", tmp_path / "r_items.csv"
    frame = pd.DataFrame(np.asarray(responses.successes), columns=list(responses.items))
    frame.set_axis(list(responses.llms)).to_csv(table, index_label="model")
    METADATA.set_axis(list(responses.items)).to_csv(items, index_label="item")
    sampler = ("--chains", 2, "--warmup", 200, "--draws", 400)  # as SAMPLER, whose program serves
    run = tmp_path / "run"
    fit = call("fit", table, *sampler, "--traits", "subject", "-o", run)
    assert fit.code in (0, 3), fit.err  # so few draws may not converge
    assert "traits by 'subject'" in fit.err
    assert "correlation of traits (90% interval)" in fit.err
    assert "on the mean of 'subject 0' (33%)" in fit.err
    assert set(pd.read_csv(run / "traits.csv")["trait"]) == {"subject 0", "subject 1", "subject 2"}
    ranked = call("rank", run, "--trait", "subject 2", "--format", "json")
    assert json.loads(ranked.out)["traits"] == {"subject 2": 1.0}
    mixed = call("rank", run, "--trait", "subject 0=3", "--trait", "subject 2", "--format", "json")
    assert json.loads(mixed.out)["traits"] == {"subject 0": 0.75, "subject 2": 0.25}
    pair = call("compare", run, "llm-001", "llm-002", "--trait", "subject 2", "--format", "csv")
    assert pair.code in (0, 3, 10, 11)
    assert 0 <= pd.read_csv(io.StringIO(pair.out))["p_better"].iloc[0] <= 1
    assert call("report", run, "-o", tmp_path / "all").code == fit.code
    assert call("report", run, "-o", tmp_path / "one", "--trait", "subject 2").code == fit.code
    words = {name: (tmp_path / name / "report.md").read_text(encoding="utf-8") for name in ("all", "one")}
    assert "LLMs are ranked on the mean of 'subject 0' (33%)" in words["all"]
    assert "LLMs are ranked on 'subject 2'." in words["one"]
    assert (tmp_path / "one/tables/trait_correlations.csv").exists()
    for wrong in (("--trait", "algebra"), ("--trait", "subject 0=much")):
        assert [call(command, run, *wrong).code for command in ("rank", "report")] == [2, 2]
    minibatches = ("--method", "svi", "--batch-size", 8, "--traits", "subject")
    assert call("fit", table, *minibatches, "-o", tmp_path / "no").code == 2


@pytest.mark.parametrize(
    "ask",
    [
        lambda posterior, responses: describe_items(posterior, responses),
        lambda posterior, responses: prior_sensitivity(posterior, responses),
        lambda posterior, _: plan_suite(posterior, 0.3),
    ],
)
def test_what_is_about_one_ability_says_so(ask):
    with pytest.raises(InvalidConfigurationError, match=r"about one ability.*3 traits"):
        ask(fitted("correlated")[1], suite("correlated").responses)


def test_rankings_are_compared_on_one_trait():
    estimate, posterior = fitted("correlated")
    with pytest.raises(InvalidConfigurationError, match="Comparisons of rankings are about one ability"):
        compare_rankings(posterior, estimate, suite("correlated").responses)


def test_log_likelihoods_count_all_traits():
    _, posterior = fitted("crossed")
    responses = suite("crossed").responses
    added = posterior.thin(100).with_log_likelihood(responses)
    assert "log_prior" not in added.tree.children
    draws = posterior.thin(100).parameters.at(1)
    logits = np.asarray(draws.ability) @ np.asarray(draws.discrimination).T + draws.easiness
    wanted = np.where(responses.successes > 0, log_expit(logits), log_expit(-logits)).ravel()
    found = added.tree["log_likelihood"]["successes"].to_numpy()[0, 1]
    np.testing.assert_allclose(found, wanted, atol=1e-4)
