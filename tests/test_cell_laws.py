"""How answers arise from a draw: probabilities against SciPy, draws against their moments, and the way to the disk.

Tests with random data have a false-alarm rate below 1e-4 each (seeds are fixed).
"""

from dataclasses import replace

import numpy as np
import pytest
from scipy import stats
from scipy.special import expit

from bayes_irt.cell_laws import CellLaw, Laws
from bayes_irt.cell_lists import CellList, log_coefficient, observed_cells
from bayes_irt.item_law import ItemGroups, ItemLaw
from bayes_irt.model_spec import ModelSpec
from bayes_irt.parameters import Parameters
from bayes_irt.posterior import Posterior, posterior_from_draws
from bayes_irt.priors import LearnedShare
from bayes_irt.provenance import Provenance, plain
from bayes_irt.responses import Responses

LLMS, ITEMS = 7, 9
FLOOR = np.array([0.0, 0.25, 0.2, 0.0, 0.5, 0.1, 0.9, 0.0, 0.3])
DISPERSION = np.array([0.0, 0.1, 0.3, 0.02, 0.6, 0.2, 0.05, 0.9, 1e-3])
TESTLET = np.array([0, 0, 1, -1, 1, -1, 0, 1, -1])
PARTS = {
    "plain": {},
    "floor": {"floor": FLOOR},
    "dispersion": {"dispersion": DISPERSION},
    "testlets": {"effects": np.random.default_rng(3).normal(size=(LLMS, 2)), "testlet": TESTLET},
}
PARTS["all"] = PARTS["floor"] | PARTS["dispersion"] | PARTS["testlets"]
every_law = pytest.mark.parametrize("name", PARTS)


def law_of(name, scale=1.0):
    rng = np.random.default_rng(0)
    parameters = Parameters(
        scale * rng.normal(size=(LLMS, 1)), rng.random((ITEMS, 1)), rng.normal(size=ITEMS)
    )
    return CellLaw(parameters, **PARTS[name])


def all_cells(seed=1, most=8):
    """Return a list of all cells, some of them with a single attempt."""
    rng = np.random.default_rng(seed)
    attempts = rng.integers(1, most + 1, (LLMS, ITEMS))
    llm, item = (place.ravel() for place in np.indices(attempts.shape))
    return CellList(llm, item, rng.binomial(attempts, 0.5).ravel(), attempts.ravel())


def chances_by_loop(law):
    """Return the chance of a right attempt in every cell."""
    parameters, found = law.parameters, np.empty((LLMS, ITEMS))
    for i, j in np.ndindex(found.shape):
        logit = parameters.ability[i, 0] * parameters.discrimination[j, 0] + parameters.easiness[j]
        if law.effects is not None and law.testlet[j] >= 0:
            logit += law.effects[i, law.testlet[j]]
        floor = 0.0 if law.floor is None else law.floor[j]
        found[i, j] = floor + (1 - floor) * expit(logit)
    return found


def scipy_law(law, cells):
    """Return SciPy's law of the right answers in each cell; independent attempts where dispersion is 0."""
    chance = chances_by_loop(law)[cells.llm, cells.item]
    rho = np.zeros(len(cells)) if law.dispersion is None else law.dispersion[cells.item]
    total = (1 - rho) / np.where(rho > 0, rho, 1)
    dispersed = stats.betabinom(cells.attempts, chance * total, (1 - chance) * total)
    independent = stats.binom(cells.attempts, chance)

    def by_cell(name, *given):
        return np.where(rho > 0, getattr(dispersed, name)(*given), getattr(independent, name)(*given))

    return by_cell


# Probabilities


@every_law
def test_log_probabilities_are_scipy_s(name):
    law, cells = law_of(name), all_cells()
    wanted = scipy_law(law, cells)("logpmf", cells.successes)
    found = law.log_probability(cells) + log_coefficient(cells)
    # a dispersion of 0 is taken for 1e-9, whose betas of 1e9 lose nine digits
    np.testing.assert_allclose(found, wanted, atol=1e-5)
    other = replace(law, floor=np.minimum(FLOOR + 0.01, 0.95))
    with pytest.raises(AssertionError):  # the control: as if guesses were right a little more often
        np.testing.assert_allclose(other.log_probability(cells) + log_coefficient(cells), wanted, atol=1e-5)


@every_law
def test_log_probabilities_of_counts_in_bytes_are_the_same(name):
    law, cells = law_of(name), all_cells(most=200)
    counts = (count.astype(np.uint8) for count in (cells.successes, cells.attempts))
    small = CellList(cells.llm, cells.item, *counts)
    np.testing.assert_array_equal(law.log_probability(small), law.log_probability(cells))


@every_law
def test_far_out_log_probabilities_are_finite_where_they_should_be(name):
    law, cells = law_of(name, scale=1e4), all_cells()
    found = law.log_probability(cells)
    assert np.isfinite(found).all()
    assert (found <= 1e-6).all()


def test_far_out_a_floor_is_all_there_is():
    parameters = Parameters(np.zeros((1, 1)), np.ones((2, 1)), np.array([-800.0, 800.0]))
    law = CellLaw(parameters, floor=np.array([0.2, 0.2]))
    right, wrong = (CellList(np.zeros(2, int), np.arange(2), np.full(2, y), np.ones(2, int)) for y in (1, 0))
    np.testing.assert_allclose(law.log_probability(right), [np.log(0.2), 0.0], atol=1e-12)
    np.testing.assert_allclose(law.log_probability(wrong), [np.log(0.8), np.log(0.8) - 800.0])


@every_law
def test_chances_and_logits_have_what_the_law_has(name):
    law = law_of(name)
    np.testing.assert_allclose(law.chances(slice(None)), chances_by_loop(law), rtol=1e-5)
    rows, items = slice(2, 5), slice(1, 7)
    np.testing.assert_array_equal(law.chances(rows, items), law.chances(slice(None))[rows, items])
    np.testing.assert_array_equal(law.logits(rows, items), law.logits(slice(None))[rows, items])
    assert law.is_plain == (name == "plain")


def test_an_effect_moves_its_own_items_alone():
    law = law_of("testlets")
    effects = law.effects.copy()
    effects[3, 1] += 1.0
    moved = replace(law, effects=effects).logits(slice(None)) - law.logits(slice(None))
    wanted = np.zeros((LLMS, ITEMS))
    wanted[3, TESTLET == 1] = 1.0
    np.testing.assert_allclose(moved, wanted, atol=1e-6)


def test_dispersion_multiplies_the_variance_of_several_attempts():
    attempts = np.array([[0.0, 1.0, 5.0]])
    found = law_of("dispersion").inflation(attempts, slice(1, 4))
    np.testing.assert_allclose(found, [[1.0, 1.0, 1 + 4 * 0.02]])
    assert law_of("floor").inflation(attempts) == 1.0


# Draws


def assert_moments(draws, mean, variance, max_z=5.0):
    """Compare means, and variances by the mean squared deviation, in Monte Carlo standard errors."""
    for values, wanted in ((draws, mean), ((draws - mean) ** 2, variance)):
        error = values.std(axis=0) / np.sqrt(len(draws))
        np.testing.assert_array_less(np.abs(values.mean(axis=0) - wanted), max_z * error + 1e-9)


@every_law
def test_replicated_cells_have_mean_and_variance(name):
    law, cells, rng = law_of(name), all_cells(), np.random.default_rng(5)
    draws = np.array([law.replicate(cells, rng) for _ in range(4000)])
    exact = scipy_law(law, cells)
    assert_moments(draws, exact("mean"), exact("var"))
    with pytest.raises(AssertionError):
        assert_moments(draws + 0.1, exact("mean"), exact("var"))
    if name == "dispersion":
        binomial = scipy_law(law_of("plain"), cells)
        with pytest.raises(AssertionError):
            assert_moments(draws, binomial("mean"), binomial("var"))


@every_law
@pytest.mark.parametrize("most", [1, 6])
def test_drawn_tables_have_mean_and_variance(name, most):
    law, rng = law_of(name), np.random.default_rng(6)
    cells = all_cells(most=most)
    attempts = cells.attempts.reshape(LLMS, ITEMS).astype(float)
    attempts[0, :3] = 0.0
    cells = replace(cells, attempts=attempts.ravel().astype(int))
    chance = law.chances(slice(None))
    draws = np.array([law.draw(attempts, chance, rng) for _ in range(4000)]).reshape(4000, -1)
    assert not draws[:, :3].any()
    tried = np.where(cells.attempts > 0, cells.attempts, 1)
    exact = scipy_law(law, replace(cells, attempts=tried))
    mean, variance = (exact(name)[3:] for name in ("mean", "var"))
    assert_moments(draws[:, 3:], mean, variance)


# All draws of a posterior

GROUPS = ItemGroups(("", "hard"), np.array([0, 1, 1, 0, 1, 0, 0, 1, 0], dtype=np.int32))
TESTLETS = ItemGroups(("django", "sympy"), TESTLET.astype(np.int32))
SPEC = ModelSpec(
    floor=LearnedShare(2.0, 8.0),
    observation="beta-binomial",
    dispersion=LearnedShare(1.0, 3.0),
    dispersion_groups="kind",
    item_groups="repo",
)


def drawn(seed=0, shape=(2, 5)):
    rng = np.random.default_rng(seed)
    return {
        "ability": rng.normal(size=(*shape, LLMS, 1)),
        "discrimination": rng.random((*shape, ITEMS, 1)),
        "easiness": rng.normal(size=(*shape, ITEMS)),
        **{name: 0.5 + rng.random(shape) for name in SPEC.hyperparameters if name != "dispersion"},
        "dispersion": rng.random((*shape, 2)),
        "floor": rng.random((*shape, ITEMS)),
        "testlet": rng.normal(size=(*shape, LLMS, 2)),
    }


def responses_of(seed=2):
    cells = all_cells(seed)
    shape = (LLMS, ITEMS)
    return Responses.from_arrays(cells.successes.reshape(shape), cells.attempts.reshape(shape))


def posterior_of(law, leave_out=()):
    responses = responses_of()
    draws = {name: value for name, value in drawn().items() if name not in leave_out}
    provenance = Provenance("nuts", {"spec": plain(SPEC)}, responses.digest)
    return posterior_from_draws(draws, {}, (responses.llms, responses.items), provenance, law=law)


def assert_same_laws(found, wanted):
    for name in ("floor", "dispersion", "effects", "testlet", "dispersion_group"):
        np.testing.assert_array_equal(getattr(found, name), getattr(wanted, name))
    for name in ("ability", "discrimination", "easiness"):
        np.testing.assert_array_equal(getattr(found.parameters, name), getattr(wanted.parameters, name))


def test_laws_are_those_of_the_draws_and_survive_the_disk(tmp_path):
    posterior, draws = posterior_of(ItemLaw(FLOOR, GROUPS, TESTLETS)), drawn()
    laws = posterior.laws
    assert posterior.draws["dispersion"].dims == ("chain", "draw", "dispersion_group")
    assert posterior.draws["testlet"].dims == ("chain", "draw", "llm", "item_group")
    np.testing.assert_array_equal(laws.testlet, TESTLET)
    np.testing.assert_array_equal(laws.dispersion_group, GROUPS.number)
    np.testing.assert_array_equal(laws.floor, draws["floor"].reshape(10, ITEMS))
    for place in range(10):
        one, where = laws.at(place), divmod(place, 5)
        np.testing.assert_array_equal(one.dispersion, draws["dispersion"][where][GROUPS.number])
        np.testing.assert_array_equal(one.effects, draws["testlet"][where])
        np.testing.assert_array_equal(one.testlet, TESTLET)
    posterior.save(tmp_path / "posterior")
    loaded = Posterior.load(tmp_path / "posterior")
    assert loaded == posterior
    assert_same_laws(loaded.laws, laws)
    assert_same_laws(loaded.thin(2).laws, posterior.thin(2).laws)
    assert loaded.spec == SPEC


def test_floors_that_are_known_are_kept_and_one_dispersion_is_everyone_s(tmp_path):
    one = ItemGroups(("",), np.zeros(ITEMS, dtype=np.int32))
    responses = responses_of()
    draws = {
        name: value for name, value in drawn().items() if name not in ("floor", "testlet", "testlet_scale")
    }
    draws["dispersion"] = draws["dispersion"][..., :1]
    provenance = Provenance("laplace", {}, responses.digest)
    posterior = posterior_from_draws(
        draws, {}, (responses.llms, responses.items), provenance, law=ItemLaw(FLOOR, one, None)
    )
    posterior.save(tmp_path / "posterior")
    for laws in (posterior.laws, Posterior.load(tmp_path / "posterior").laws):
        np.testing.assert_array_equal(laws.floor, np.broadcast_to(FLOOR, (10, ITEMS)))
        wanted = np.broadcast_to(draws["dispersion"].reshape(10, 1), (10, ITEMS))
        np.testing.assert_array_equal(laws.dispersion, wanted)
        assert laws.effects is None
    assert posterior.draws["dispersion"].dims == ("chain", "draw")


def test_plain_posteriors_have_plain_laws():
    left = ("floor", "dispersion", "testlet", "testlet_scale")
    for law in (None, ItemLaw(None, None, None)):
        laws = posterior_of(law, left).laws
        assert laws.at(3).is_plain
        assert "constant_data" not in posterior_of(law, left).tree.children


def test_means_and_other_values_stand_in_for_a_draw():
    laws, draws = posterior_of(ItemLaw(FLOOR, GROUPS, TESTLETS)).laws, drawn()
    mean = laws.mean()
    np.testing.assert_allclose(mean.floor, draws["floor"].mean(axis=(0, 1)))
    np.testing.assert_allclose(mean.effects, draws["testlet"].mean(axis=(0, 1)))
    np.testing.assert_allclose(mean.dispersion, draws["dispersion"].mean(axis=(0, 1))[GROUPS.number])
    np.testing.assert_allclose(mean.parameters.easiness, laws.parameters.easiness.mean(axis=0))
    values = {name: value[1, 2].ravel() for name, value in drawn(seed=9).items()}
    other = laws.with_values(values)
    np.testing.assert_array_equal(other.effects.ravel(), values["testlet"])
    np.testing.assert_array_equal(other.dispersion, values["dispersion"][GROUPS.number])
    np.testing.assert_array_equal(other.floor, values["floor"])
    np.testing.assert_array_equal(other.parameters.ability[:, 0], values["ability"])
    del values["floor"]  # what is not given stays as it is
    known = Laws(laws.parameters, np.tile(FLOOR, (10, 1)), None, None, laws.testlet, laws.dispersion_group)
    np.testing.assert_array_equal(known.with_values(values).floor, FLOOR)


def test_stored_log_likelihoods_and_priors_are_those_of_the_laws():
    posterior, responses = posterior_of(ItemLaw(FLOOR, GROUPS, TESTLETS)), responses_of()
    full, listed = posterior.with_log_likelihood(responses), observed_cells(responses)
    cells = replace(listed, successes=listed.successes.astype(int), attempts=listed.attempts.astype(int))
    found = full.tree["log_likelihood"]["successes"].to_numpy()
    for place in (0, 7):
        wanted = scipy_law(posterior.laws.at(place), cells)("logpmf", cells.successes)
        np.testing.assert_allclose(found[divmod(place, 5)], wanted, rtol=1e-6, atol=1e-6)
    priors, draws = full.tree["log_prior"].to_dataset(), posterior.draws
    assert set(priors) == {"discrimination", "easiness", "hyperparameters", "floor", "testlet"}
    # JAX takes a beta's normalising constant in single precision
    np.testing.assert_allclose(priors["floor"], stats.beta.logpdf(draws["floor"], 2, 8), atol=1e-5)
    scale = draws["testlet_scale"].to_numpy()
    np.testing.assert_allclose(
        priors["testlet"], stats.norm.logpdf(draws["testlet"], 0, scale[..., None, None]), rtol=1e-9
    )
    hyper = stats.beta.logpdf(draws["dispersion"], 1, 3).sum(axis=-1)
    scales = {"discrimination_scale": (1.5, 1), "easiness_scale": (2, 1), "testlet_scale": (0.5, 1)}
    for name, (median, log_sd) in scales.items():
        hyper = hyper + stats.lognorm.logpdf(draws[name], log_sd, scale=median)
    hyper = hyper + stats.norm.logpdf(draws["easiness_location"], 0, 5)
    np.testing.assert_allclose(priors["hyperparameters"], hyper, atol=1e-5)
