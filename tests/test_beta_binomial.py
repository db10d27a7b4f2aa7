"""Cells with a floor and cells whose attempts hang together: values, scores and weights; then the kernel with them.

Values stand against SciPy's laws and against the urn from which the law comes, scores against automatic and finite
differences, the weight against the sum over all outcomes. All cells of a grid go through one compiled program.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats
from scipy.special import expit, gammaln

from bayes_irt import likelihood
from bayes_irt.beta_binomial import beta_binomial_cell
from bayes_irt.cell_functions import binomial_cell, floor_cell, mean_above
from bayes_irt.errors import InvalidConfigurationError
from bayes_irt.item_law import ItemGroups, ItemLaw
from bayes_irt.likelihood import cell_sums, log_likelihood, tile_cells
from bayes_irt.parameters import Parameters

# Not 0: there the absolute value has no derivative. Its value is that of the limit, which is tested apart.
LOGITS = np.array([-50.0, -36.0, -8.0, -1.3, -1e-3, 1e-3, 0.4, 3.0, 36.0, 50.0])
COUNTS = np.array([(1, 1), (0, 1), (0, 0), (7, 12), (0, 1000), (1000, 1000), (431, 1000)], dtype=float)
FLOORS, DISPERSIONS = np.array([0.0, 0.2, 0.9]), np.array([0.0, 1e-6, 0.02, 0.3, 0.9])


def grid(logits=LOGITS, counts=COUNTS, floors=FLOORS, dispersions=DISPERSIONS):
    """Return logit, right answers, attempts, floor and dispersion of all combinations."""
    places = np.meshgrid(logits, np.arange(len(counts)), floors, dispersions, indexing="ij")
    eta, number, floor, dispersion = (place.ravel() for place in places)
    return eta, *counts[number.astype(int)].T, floor, dispersion


@pytest.fixture(autouse=True)
def _x64():
    with jax.enable_x64(True):
        yield


@jax.jit
def dispersed(eta, successes, attempts, floor, dispersion):
    return beta_binomial_cell(eta, successes, attempts, floor, dispersion, curvature="fisher")


@jax.jit
def floored(eta, successes, attempts, floor):
    return floor_cell(eta, successes, attempts, floor, curvature="fisher")


def chances(eta, floor):
    """Return the chances of a right and of a wrong answer."""
    return floor + (1 - floor) * expit(eta), (1 - floor) * expit(-eta)


def log_coefficient(successes, attempts):
    return gammaln(attempts + 1) - gammaln(successes + 1) - gammaln(attempts - successes + 1)


def urn_loss(eta, successes, attempts, floor, dispersion):
    """Return minus the log probability of a sequence of answers, drawn one after the other."""
    (right, wrong), rest, total = chances(eta, floor), 1 - dispersion, np.zeros_like(eta)
    for k in range(int(attempts.max())):
        for chance, count in ((right, successes), (wrong, attempts - successes)):
            value = chance * rest + k * dispersion
            total -= np.where(k < count, np.log(np.where(k < count, value, 1)), 0)
        total += np.where(k < attempts, np.log(rest + k * dispersion), 0)
    return total


# Values


def test_the_loss_is_scipy_s():
    """SciPy's betas lose digits where dispersion is small: these cells stand against the urn below."""
    places = grid(dispersions=np.array([0.02, 0.3, 0.9]))
    eta, successes, attempts, floor, dispersion = places
    right, wrong = chances(eta, floor)
    total = (1 - dispersion) / dispersion
    found = -np.asarray(dispersed(*places).linear) + log_coefficient(successes, attempts)
    wanted = stats.betabinom.logpmf(successes, attempts, right * total, wrong * total)
    np.testing.assert_allclose(found, wanted, rtol=1e-10, atol=1e-9)


def test_the_loss_is_that_of_the_urn():
    places = grid()
    found, wanted = np.asarray(dispersed(*places).linear), urn_loss(*places)
    np.testing.assert_allclose(found, wanted, rtol=1e-12, atol=1e-12)
    with pytest.raises(AssertionError):  # the control: a dispersion that is off by a millionth
        np.testing.assert_allclose(found, urn_loss(*places[:4], places[4] + 1e-6), rtol=1e-12, atol=1e-12)


def test_without_dispersion_cells_are_binomial():
    eta, successes, attempts, floor, dispersion = grid(dispersions=np.zeros(1))
    found, wanted = (
        dispersed(eta, successes, attempts, floor, dispersion),
        floored(eta, successes, attempts, floor),
    )
    for name in ("linear", "score", "weight"):  # a factor close to 1 is known to 1e-16
        error = np.abs(getattr(found, name) - getattr(wanted, name))
        assert (error <= 1e-15 * attempts + 1e-11 * np.abs(getattr(wanted, name))).all()
    right = chances(eta, floor)[0]
    exact = stats.binom.logpmf(successes, attempts, right) - log_coefficient(successes, attempts)
    usual = np.abs(eta) < 30  # beyond, SciPy cannot know 1 - p from p
    np.testing.assert_allclose(-wanted.linear[usual], exact[usual], rtol=1e-10, atol=1e-9)


def test_without_a_floor_cells_are_those_of_the_2pl():
    eta, successes, attempts, floor, _ = grid(floors=np.zeros(1), dispersions=np.zeros(1))
    found = floored(eta, successes, attempts, floor)
    wanted = jax.jit(lambda *given: binomial_cell(*given, curvature="fisher"))(eta, successes, attempts)
    for name in ("linear", "score", "weight"):
        np.testing.assert_allclose(getattr(found, name), getattr(wanted, name), rtol=1e-12, atol=1e-12)


def test_tiny_floors_and_dispersions_are_close_to_none():
    """Far out, at 36 logits, a floor of 1e-12 is no longer tiny; there chances are small against any floor."""
    eta, successes, attempts, floor, dispersion = grid(
        np.array([-8.0, -1.3, 0.4, 8.0]), floors=np.zeros(1), dispersions=np.zeros(1)
    )
    none, tiny = (dispersed(eta, successes, attempts, floor + s, dispersion + s) for s in (0.0, 1e-14))
    for one, other in zip(jax.tree.leaves(none), jax.tree.leaves(tiny), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-6, atol=1e-9)


def test_at_logit_zero_cells_are_the_limit():
    at, near = (dispersed(*grid(np.array([eta]))) for eta in (0.0, 1e-9))
    for one, other in zip(jax.tree.leaves(at), jax.tree.leaves(near), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-6, atol=1e-6)


# Scores


@jax.jit
def forward(eta, successes, attempts, floor, dispersion):
    """Return derivatives of the losses by logit, floor and dispersion, in forward mode."""
    one, zero = jnp.ones_like(eta), jnp.zeros_like(eta)
    found = {}
    for name, tangents in {
        "eta": (one, zero, zero),
        "floor": (zero, one, zero),
        "dispersion": (zero, zero, one),
    }.items():

        def loss(e, c, r):
            plain = floor_cell(e, successes, attempts, c).linear
            return beta_binomial_cell(e, successes, attempts, c, r).linear, plain

        found[name] = jax.jvp(loss, (eta, floor, dispersion), tangents)[1]
    return found


def assert_close_to_size(found, wanted, size, tolerance):
    np.testing.assert_allclose(found / size, wanted / size, atol=tolerance)


def test_scores_are_derivatives_of_the_loss():
    """Automatic differentiation takes floors of exactly 0 for constants, so these are left to finite differences."""
    places = grid(floors=FLOORS[1:])
    exact, terms, plain = forward(*places), dispersed(*places), floored(*places[:4])
    size = np.maximum(places[2], 1.0)
    assert_close_to_size(terms.score, -exact["eta"][0], size, 1e-11)
    assert_close_to_size(plain.score, -exact["eta"][1], size, 1e-11)
    assert_close_to_size(plain.shape_scores[0], -exact["floor"][1], size, 1e-9)
    assert_close_to_size(terms.shape_scores[0], -exact["floor"][0], size, 1e-9)
    by_dispersion = np.asarray(terms.shape_scores[1])
    np.testing.assert_allclose(by_dispersion, -exact["dispersion"][0], rtol=1e-9, atol=1e-9)
    without = grid(floors=np.zeros(1))
    exact, terms = forward(*without), dispersed(*without)
    assert_close_to_size(terms.score, -exact["eta"][0], np.maximum(without[2], 1.0), 1e-11)


def test_finite_differences_agree():
    """Central ones; at floors and dispersions of 0 one-sided ones, of three points."""
    logits, step = np.array([-3.0, -1.3, 0.4, 3.0]), 1e-6
    places = grid(logits, dispersions=np.array([0.0, 0.02, 0.3, 0.9]))
    terms = dispersed(*places)
    scores = dict(zip((0, 3, 4), (terms.score, *terms.shape_scores), strict=True))
    for place, score in scores.items():
        edge = (places[place] == 0) if place else np.zeros(len(places[0]), dtype=bool)
        at = [
            urn_loss(*(value + h * (number == place) for number, value in enumerate(places)))
            for h in (-step * ~edge, step * np.ones(len(edge)), 2 * step * np.ones(len(edge)))
        ]
        found = np.where(edge, (4 * at[1] - at[2] - 3 * at[0]) / (2 * step), (at[1] - at[0]) / (2 * step))
        bound = 1e-4 * np.maximum(1.0, np.abs(score)) * np.maximum(places[2], 1.0)
        assert (np.abs(score + found) <= bound).all()
        with pytest.raises(AssertionError):  # the control: a score a tenth too large
            assert (np.abs(1.1 * score + found) <= bound).all()


# The weight


@jax.jit
def outcome_scores(eta, attempts, floor, dispersion, outcomes):
    """Return the scores of all outcomes, outcome by cell."""

    def of_one(successes):
        right = jnp.minimum(successes, attempts)
        return beta_binomial_cell(eta, right, attempts, floor, dispersion).score

    return jax.vmap(of_one)(outcomes)


@pytest.mark.parametrize("attempts", [1.0, 2.0, 7.0, 60.0])
def test_the_weight_is_the_expected_square_of_the_score(attempts):
    eta, floor, dispersion = (
        place.ravel()
        for place in np.meshgrid([-36.0, -8.0, -1.3, 0.0, 0.4, 3.0, 36.0], FLOORS, DISPERSIONS, indexing="ij")
    )
    outcomes = np.arange(attempts + 1)
    scores = np.asarray(outcome_scores(eta, np.full_like(eta, attempts), floor, dispersion, outcomes))
    loss = [
        urn_loss(eta, np.full_like(eta, y), np.full_like(eta, attempts), floor, dispersion) for y in outcomes
    ]
    chance = np.exp(log_coefficient(outcomes, attempts)[:, None] - np.array(loss))
    np.testing.assert_allclose(chance.sum(axis=0), 1.0, rtol=1e-10)
    np.testing.assert_allclose(np.sum(chance * scores, axis=0), 0.0, atol=1e-10 * attempts)
    terms = dispersed(eta, np.zeros_like(eta), np.full_like(eta, attempts), floor, dispersion)
    wanted = np.sum(chance * scores**2, axis=0)
    np.testing.assert_allclose(terms.weight, wanted, rtol=1e-8, atol=1e-15)
    if attempts > 1:  # the control: as if attempts were independent
        binomial = floored(eta, np.zeros_like(eta), np.full_like(eta, attempts), floor).weight
        assert (np.asarray(terms.weight)[dispersion == 0.3] < 0.9 * binomial[dispersion == 0.3]).all()


def test_weights_do_not_depend_on_the_outcome():
    eta, _, attempts, floor, dispersion = grid()
    none, all_right = (
        dispersed(eta, right, attempts, floor, dispersion) for right in (0 * attempts, attempts)
    )
    np.testing.assert_array_equal(none.weight, all_right.weight)
    assert not np.any(np.asarray(none.weight)[attempts == 0])
    assert (np.asarray(none.weight) >= 0).all()


@pytest.mark.parametrize("curvature", ["tight", "quarter"])
def test_bounds_are_refused(curvature):
    one = jnp.ones(())
    for cell, given in ((floor_cell, (0.2 * one,)), (beta_binomial_cell, (0.2 * one, 0.1 * one))):
        with pytest.raises(InvalidConfigurationError, match="not convex"):
            cell(one, one, one, *given, curvature=curvature)
        assert cell(one, one, one, *given).weight is None


# Precision and the chances


def test_float32_is_right_to_its_precision():
    """Every factor, and every sum so far, is known to 6e-8 of its size; sums of n parts drift by sqrt(n) of that."""
    places = grid()
    exact = dispersed(*places)
    single = dispersed(*(jnp.asarray(value, jnp.float32) for value in places))
    size = np.maximum(places[2], 1.0)
    for name in ("linear", "score", "weight"):
        found, wanted = (np.asarray(getattr(terms, name), dtype=float) for terms in (single, exact))
        assert np.isfinite(found).all()
        error = np.abs(found - wanted)
        assert (error <= 1e-6 * size + 6e-8 * size * np.abs(wanted)).all(), name
    dispersion, steps = places[4], np.arange(1000)[:, None]
    parts = np.abs(steps - 1) / (1 - dispersion + steps * dispersion) * (steps < places[2])
    sizes = (size, parts.sum(axis=0))  # what cancels in a score by dispersion
    for found, wanted, total in zip(single.shape_scores, exact.shape_scores, sizes, strict=True):
        assert np.isfinite(found).all()
        rounding = 1e-7 * np.sqrt(size) * total
        assert (np.abs(found - wanted) <= rounding + 1e-5 * np.abs(wanted) + 1e-6).all()


def test_chances_are_exact_at_both_ends():
    eta, floor = (place.ravel() for place in np.meshgrid([-700.0, -50.0, 0.3, 50.0, 700.0], FLOORS))
    found = jax.jit(mean_above)(eta, floor)
    right, wrong = chances(eta, floor)
    np.testing.assert_allclose(found.right, right, rtol=1e-14)
    np.testing.assert_allclose(found.wrong, wrong, rtol=1e-14)
    log_right = np.where(floor > 0, np.log(np.where(floor > 0, right, 1)), -np.logaddexp(0, -eta))
    np.testing.assert_allclose(found.log_right, log_right, rtol=1e-14)
    np.testing.assert_allclose(found.log_wrong, np.log1p(-floor) - np.logaddexp(0, eta), rtol=1e-14)
    assert all(np.isfinite(leaf).all() for leaf in found)


# The kernel

LLMS, ITEMS = 14, 9
GROUPS = ItemGroups(("a", "b"), np.array([0, 1, 0, 1, 1, 0, 0, 0, 1], dtype=np.int32))


def made_up(most=6):
    """Return parameters, right answers and attempts of 14 x 9; a third of the cells is missing."""
    rng = np.random.default_rng(0)
    parameters = Parameters(rng.normal(size=(LLMS, 1)), rng.random((ITEMS, 1)), rng.normal(size=ITEMS))
    attempts = rng.integers(1, most + 1, (LLMS, ITEMS)) * (rng.random((LLMS, ITEMS)) > 1 / 3)
    return parameters, rng.binomial(attempts, 0.5).astype(np.uint8), attempts.astype(np.uint8)


def law_of(kind):
    floor = np.linspace(0.0, 0.5, ITEMS)
    return ItemLaw(floor, None if kind == "floor" else GROUPS, None)


SHAPES = {
    "floor": (np.linspace(0.05, 0.5, ITEMS),),
    "dispersion": (np.linspace(0.05, 0.5, ITEMS), np.linspace(0.02, 0.6, ITEMS)),
}
gradient = jax.jit(jax.grad(lambda p, c: log_likelihood(p, c), argnums=(0, 1), allow_int=True))


def dense_log_likelihood(parameters, successes, attempts, shape):
    floor, dispersion = (*shape, np.zeros(ITEMS))[:2]
    eta = np.asarray(parameters.ability) @ np.asarray(parameters.discrimination).T + parameters.easiness
    given = np.broadcast_arrays(eta, successes.astype(float), attempts.astype(float), floor, dispersion)
    return -urn_loss(*given).sum()


@pytest.mark.parametrize("kind", SHAPES)
@pytest.mark.parametrize("tiles", [1, 4])
def test_the_kernel_adds_cells_up_and_has_their_gradient(kind, tiles, monkeypatch):
    """Central differences of the dense sum, in every direction; tiles are filled up by missing rows."""
    monkeypatch.setattr(likelihood, "_CELLS_PER_TILE", 2**19 if tiles == 1 else 4 * ITEMS)
    (parameters, successes, attempts), shape = made_up(), SHAPES[kind]
    cells = tile_cells(successes, attempts, "float64", law_of(kind)).with_shape(*shape)
    assert cells.counts[0].shape[0] == tiles
    total = jax.jit(log_likelihood)(parameters, cells)
    assert float(total) == pytest.approx(
        dense_log_likelihood(parameters, successes, attempts, shape), rel=1e-12
    )
    by_parameters, by_cells = gradient(parameters, cells)
    given = [parameters.ability, parameters.discrimination, parameters.easiness, *shape]
    found = [by_parameters.ability, by_parameters.discrimination, by_parameters.easiness, *by_cells.shape]
    assert len(by_cells.shape) == len(shape)
    for place, (value, slope) in enumerate(zip(given, found, strict=True)):
        for entry in np.ndindex(value.shape):
            ends = []
            for step in (-1e-5, 1e-5):
                moved = [np.array(array) for array in given]
                moved[place][entry] += step
                ends.append(dense_log_likelihood(Parameters(*moved[:3]), successes, attempts, moved[3:]))
            assert float(slope[entry]) == pytest.approx((ends[1] - ends[0]) / 2e-5, rel=1e-6, abs=1e-6)


def test_laws_have_a_cell_of_their_own_only_where_they_need_one():
    _, successes, attempts = made_up(most=1)
    plain = tile_cells(successes, attempts)
    assert plain.shape == ()
    assert plain.num_groups == (0, 0)
    assert tile_cells(successes, attempts, law=law_of("floor")).cell is floor_cell
    dispersed_cells = tile_cells(successes, attempts, law=law_of("dispersion"))
    assert dispersed_cells.cell is beta_binomial_cell
    assert dispersed_cells.num_groups == (2, 0)
    assert not np.any(dispersed_cells.shape[1])
    assert tile_cells(successes, attempts, law=ItemLaw(None, None, GROUPS)).cell is plain.cell


def test_mixed_precision_is_that_of_its_cells():
    parameters, successes, attempts = made_up()
    run = jax.jit(cell_sums, static_argnames=("loss", "curvature"))
    sums = [
        run(
            parameters,
            tile_cells(successes, attempts, precision, law_of("dispersion")).with_shape(
                *SHAPES["dispersion"]
            ),
            loss=True,
            curvature="fisher",
        )
        for precision in ("mixed", "float64")
    ]
    for one, other in zip(*map(jax.tree.leaves, sums), strict=True):
        assert one.dtype == jnp.float64
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-4)
    assert len(sums[0].shape_score) == 2
