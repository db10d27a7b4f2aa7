"""The kernel against an independent NumPy implementation, and what must never change its sums."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jax.flatten_util import ravel_pytree
from scipy.special import expit, log_expit

from bayes_irt.cell_functions import binomial_cell, outcome_cell
from bayes_irt.errors import InvalidConfigurationError
from bayes_irt.likelihood import cell_sums, log_likelihood, tile_cells
from bayes_irt.parameters import Parameters

# A sum may be off by this share of the sum of its absolute terms (scores: of attempts times |feature|).
TOLERANCE = {"float64": 1e-11, "mixed": 1e-6}
CURVATURES = ("fisher", "tight", "quarter")
LOGIT = st.floats(-40, 40)

run_pass = jax.jit(cell_sums, static_argnames=("loss", "curvature"))


@pytest.fixture(autouse=True)
def _x64():
    with jax.enable_x64(True):
        yield


def random_suite(llms, items, traits, seed, *, most_attempts=1, missing=0.2):
    """Return parameters and counts; the last item has slope 0."""
    rng = np.random.default_rng(seed)
    discrimination = rng.exponential(1.0, (items, traits))
    discrimination[-1] = 0.0
    parameters = Parameters(rng.normal(size=(llms, traits)), discrimination, rng.normal(0, 1.5, items))
    attempts = rng.integers(1, most_attempts + 1, (llms, items)) * (rng.random((llms, items)) >= missing)
    successes = rng.binomial(attempts, expit(dense_logits(parameters)))
    kind = np.min_scalar_type(most_attempts)
    return parameters, successes.astype(kind), attempts.astype(kind)


def dense_logits(parameters):
    return parameters.ability @ parameters.discrimination.T + parameters.easiness


def dense_weight(eta, attempts, curvature):
    if curvature == "fisher":
        return attempts * expit(eta) * expit(-eta)
    if curvature == "quarter":
        return attempts / 4.0
    size = np.maximum(np.abs(eta), 1e-300)
    return attempts * np.where(size < 1e-6, 0.25, np.tanh(size / 2) / (2 * size))


class Dense(NamedTuple):
    """Matrices of cells, from which every sum follows."""

    loss: np.ndarray
    score: np.ndarray
    weight: np.ndarray


def dense_cells(parameters, successes, attempts, curvature="fisher", anchor=None):
    y, n = successes.astype(np.float64), attempts.astype(np.float64)
    eta = dense_logits(parameters if anchor is None else anchor)
    weight = dense_weight(eta, n, curvature)
    score = y - n * expit(eta)
    if anchor is not None:
        score = score - weight * (dense_logits(parameters) - eta)
    return Dense(-(y * log_expit(eta) + (n - y) * log_expit(-eta)), score, weight)


def assert_sums(sums, parameters, dense, attempts, tolerance):
    """Compare every sum with its dense counterpart, on the scale of what was added up."""
    theta = np.column_stack([parameters.ability, np.ones(parameters.num_llms)])
    slope, n = parameters.discrimination, attempts.astype(np.float64)

    def close(value, wanted, scale):
        assert value.shape == wanted.shape
        assert np.all(np.abs(np.asarray(value) - wanted) <= tolerance * (scale + 1.0))

    reach = n * (1.0 + np.abs(dense.score))
    close(sums.loss, dense.loss.sum(), dense.loss.sum())
    close(sums.item_score, dense.score.T @ theta, reach.T @ np.abs(theta))
    close(sums.llm_score, dense.score @ slope, reach @ slope)
    squares = np.einsum("nk,nl->nkl", theta, theta)
    close(
        sums.item_curvature,
        np.einsum("nj,nkl->jkl", dense.weight, squares),
        np.einsum("nj,nkl->jkl", n, np.abs(squares)),
    )
    squares = np.einsum("jk,jl->jkl", slope, slope)
    close(
        sums.llm_curvature,
        np.einsum("nj,jkl->nkl", dense.weight, squares),
        np.einsum("nj,jkl->nkl", n, squares),
    )


@pytest.mark.parametrize("precision", ["float64", "mixed"])
@pytest.mark.parametrize(
    ("size", "traits", "most_attempts", "curvature"),
    [
        ((130, 7), 1, 1, "fisher"),
        ((130, 7), 2, 1000, "tight"),
        ((65, 5000), 1, 12, "quarter"),
        ((9, 4), 3, 1, "tight"),
    ],
)
def test_sums_equal_dense_ones(size, traits, most_attempts, curvature, precision):
    parameters, successes, attempts = random_suite(*size, traits, seed=1, most_attempts=most_attempts)
    cells = tile_cells(successes, attempts, precision)
    sums = run_pass(parameters, cells, loss=True, curvature=curvature)
    dense = dense_cells(parameters, successes, attempts, curvature)
    assert_sums(sums, parameters, dense, attempts, TOLERANCE[precision])
    assert all(leaf.dtype == np.float64 for leaf in jax.tree.leaves(sums))


def test_the_comparison_notices_a_lost_cell():
    parameters, successes, attempts = random_suite(130, 7, 1, seed=1)
    sums = run_pass(parameters, tile_cells(successes, attempts), loss=True, curvature="fisher")
    i, j = np.argwhere(attempts)[-1]
    attempts[i, j] = successes[i, j] = 0
    with pytest.raises(AssertionError):
        assert_sums(sums, parameters, dense_cells(parameters, successes, attempts), attempts, 1e-6)


def test_tiles_cover_every_size():
    for llms, items in [(1, 3), (63, 2), (64, 2), (65, 2), (130, 7), (3, 300_000), (65, 5000)]:
        counts = np.ones((llms, items), dtype=np.uint8)
        cells = tile_cells(counts, counts)
        (outcomes,) = cells.counts
        tiles, rows, width = outcomes.shape
        assert width == items
        assert rows % 4 == 0
        assert rows == 4 or rows * items <= 2**19
        assert 0 <= tiles * rows - llms < max(rows, 4 * tiles)
        assert outcomes.dtype == np.int8
        assert outcomes.sum(dtype=int) == counts.size


def test_anchored_score_is_the_parabola_s():
    curvature = "tight"
    anchor, successes, attempts = random_suite(130, 7, 2, seed=2, most_attempts=1000)
    rng = np.random.default_rng(3)
    here = jax.tree.map(lambda leaf: leaf + 0.3 * rng.random(leaf.shape), anchor)
    sums = run_pass(
        here, tile_cells(successes, attempts, "float64"), loss=True, curvature=curvature, anchor=anchor
    )
    dense = dense_cells(here, successes, attempts, curvature, anchor)
    assert_sums(sums, here, dense, attempts, TOLERANCE["float64"])
    assert not np.allclose(sums.llm_score, dense_cells(here, successes, attempts).score @ here.discrimination)


def test_an_anchor_needs_a_curvature():
    parameters, successes, attempts = random_suite(12, 9, 1, seed=2)
    with pytest.raises(InvalidConfigurationError, match="curvature"):
        cell_sums(parameters, tile_cells(successes, attempts), anchor=parameters)


def test_float32_and_float64_losses_agree():
    parameters, successes, attempts = random_suite(300, 400, 1, seed=4)
    mixed, double = (
        float(run_pass(parameters, tile_cells(successes, attempts, precision), loss=True).loss)
        for precision in ("mixed", "float64")
    )
    assert mixed != double
    assert mixed == pytest.approx(double, rel=1e-6)


@pytest.mark.parametrize("precision", ["float64", "mixed"])
@pytest.mark.parametrize(("traits", "most_attempts", "curvature"), [(1, 1, "fisher"), (2, 1000, "tight")])
def test_extremes_stay_finite(traits, most_attempts, curvature, precision):
    """Logits of -50 and 50 against the answers, slopes of 0, and up to 1000 attempts per cell."""
    _, successes, attempts = random_suite(130, 7, traits, seed=5, most_attempts=most_attempts)
    ability = np.where(np.arange(130) % 2 == 0, 50.0, -50.0)[:, None] * np.eye(traits)[0]
    slope = np.where(np.arange(7) % 2, 0.0, 1.0)[:, None] * np.eye(traits)[0]
    extreme = Parameters(ability, slope, np.zeros(7))
    sums = run_pass(extreme, tile_cells(successes, attempts, precision), loss=True, curvature=curvature)
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(sums))
    assert_sums(
        sums, extreme, dense_cells(extreme, successes, attempts, curvature), attempts, TOLERANCE[precision]
    )


@pytest.fixture(scope="module")
def counted():
    return random_suite(12, 9, 2, seed=6, most_attempts=5)


def test_gradient_is_the_score_and_equals_finite_differences(counted):
    parameters, successes, attempts = counted
    cells = tile_cells(successes, attempts, "float64")
    value, gradient = jax.jit(jax.value_and_grad(log_likelihood))(parameters, cells)
    dense = dense_cells(parameters, successes, attempts)
    assert float(value) == pytest.approx(-dense.loss.sum(), rel=1e-13)
    np.testing.assert_allclose(gradient.ability, dense.score @ parameters.discrimination, atol=1e-11)
    np.testing.assert_allclose(gradient.discrimination, dense.score.T @ parameters.ability, atol=1e-11)
    np.testing.assert_allclose(gradient.easiness, dense.score.sum(axis=0), atol=1e-11)

    flat, restore = ravel_pytree(parameters)
    at = jax.jit(jax.vmap(lambda point: log_likelihood(restore(point), cells)))
    steps = 1e-5 * np.eye(len(flat))
    slopes = (at(flat + steps) - at(flat - steps)) / 2e-5
    np.testing.assert_allclose(ravel_pytree(gradient)[0], slopes, atol=1e-6)


def test_gradient_under_vmap_and_scaled(counted):
    parameters, successes, attempts = counted
    cells = tile_cells(successes, attempts)
    rng = np.random.default_rng(7)
    batch = jax.tree.map(lambda leaf: leaf + 0.1 * rng.normal(size=(3, *leaf.shape)), parameters)
    gradient = jax.jit(jax.grad(lambda p: -2.0 * log_likelihood(p, cells)))
    together = jax.jit(jax.vmap(gradient))(batch)
    for draw in range(3):
        one = jax.tree.map(lambda leaf, draw=draw: leaf[draw], batch)
        dense = dense_cells(one, successes, attempts)
        found = jax.tree.map(lambda leaf, draw=draw: leaf[draw], together)
        np.testing.assert_allclose(found.ability, -2 * dense.score @ one.discrimination, atol=1e-4)
        np.testing.assert_allclose(found.easiness, -2 * dense.score.sum(axis=0), atol=1e-4)
        alone = gradient(one)
        jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-5), found, alone)


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 2**32 - 1), st.floats(-30, 30), st.floats(0, 30))
def test_parameters_of_missing_pairs_change_nothing(seed, easiness, slope):
    """Two groups of LLMs share no items: what is changed in one group leaves the other's sums as they are."""
    parameters, successes, attempts = random_suite(12, 9, 2, seed, most_attempts=5)
    successes[:6, 4:] = attempts[:6, 4:] = 0
    successes[6:, :4] = attempts[6:, :4] = 0
    cells = tile_cells(successes, attempts)
    other = jax.tree.map(np.copy, parameters)
    other.easiness[4:], other.discrimination[4:], other.ability[6:] = easiness, slope, -easiness
    before = run_pass(parameters, cells, curvature="fisher")
    after = run_pass(other, cells, curvature="fisher")
    np.testing.assert_array_equal(before.llm_score[:6], after.llm_score[:6])
    np.testing.assert_array_equal(before.llm_curvature[:6], after.llm_curvature[:6])
    np.testing.assert_array_equal(before.item_score[:4], after.item_score[:4])
    np.testing.assert_array_equal(before.item_curvature[:4], after.item_curvature[:4])
    assert not np.array_equal(before.llm_score[6:], after.llm_score[6:])


def test_an_llm_without_answers_adds_nothing():
    parameters, successes, attempts = random_suite(12, 9, 1, seed=8)
    longer = Parameters(
        np.vstack([parameters.ability, [[33.0]]]), parameters.discrimination, parameters.easiness
    )
    empty = np.zeros((1, 9), dtype=attempts.dtype)
    cells = tile_cells(np.vstack([successes, empty]), np.vstack([attempts, empty]), "float64")
    more = run_pass(longer, cells, loss=True, curvature="tight")
    dense = dense_cells(parameters, successes, attempts, "tight")
    assert float(more.loss) == pytest.approx(dense.loss.sum(), rel=1e-13)
    np.testing.assert_allclose(more.item_score[:, 1], dense.score.sum(axis=0), atol=1e-12)
    assert not np.any(more.llm_score[-1])
    assert not np.any(more.llm_curvature[-1])


def test_permuting_llms_permutes_their_sums():
    parameters, successes, attempts = random_suite(130, 7, 2, seed=9, most_attempts=1000)
    order = np.random.default_rng(10).permutation(130)
    moved = Parameters(parameters.ability[order], parameters.discrimination, parameters.easiness)
    before = run_pass(parameters, tile_cells(successes, attempts, "float64"), loss=True, curvature="tight")
    cells = tile_cells(successes[order], attempts[order], "float64")
    after = run_pass(moved, cells, loss=True, curvature="tight")
    assert float(before.loss) == pytest.approx(float(after.loss), rel=1e-13)
    np.testing.assert_allclose(before.llm_score[order], after.llm_score, rtol=1e-12, atol=1e-8)
    np.testing.assert_allclose(before.llm_curvature[order], after.llm_curvature, rtol=1e-12, atol=1e-8)
    np.testing.assert_allclose(before.item_score, after.item_score, rtol=1e-12, atol=1e-8)
    np.testing.assert_allclose(before.item_curvature, after.item_curvature, rtol=1e-12, atol=1e-8)


@jax.jit
def cell_at(eta, successes, attempts):
    """Return loss, score and both majorising weights of one cell."""
    terms = binomial_cell(eta, successes, attempts, curvature="tight")
    quarter = binomial_cell(eta, successes, attempts, curvature="quarter").weight
    return terms.linear, terms.score, terms.weight, quarter


@settings(max_examples=300, deadline=None)
@given(LOGIT, st.one_of(LOGIT, st.floats(-0.2, 0.2)), st.integers(0, 20), st.integers(0, 20))
def test_tight_and_quarter_weights_majorise(eta, touch, right, wrong):
    successes, attempts = float(right), float(right + wrong)
    loss, score, tight, quarter = map(float, cell_at(touch, successes, attempts))
    there = float(cell_at(eta, successes, attempts)[0])
    assert tight <= quarter
    for weight in (tight, quarter):
        parabola = loss - score * (eta - touch) + weight / 2 * (eta - touch) ** 2
        assert parabola >= there - 1e-12 * (1 + abs(parabola))


def test_fisher_weight_does_not_majorise():
    """The control of the test above: from 4 logits away Fisher's weight promises too much."""
    terms = binomial_cell(jnp.array(4.0), 0.0, 1.0, curvature="fisher")
    parabola = terms.linear - terms.score * (0.0 - 4.0) + terms.weight / 2 * 16.0
    assert parabola < binomial_cell(jnp.array(0.0), 0.0, 1.0).linear


@pytest.mark.parametrize("outcomes", [True, False])
def test_cell_by_cell(outcomes):
    around = [0.0, 1e-9, 1e-4, 0.04999, 0.05, 0.05001, 0.3, 1.0, 7.0, 35.0, 50.0, 169.0, 700.0, 1e5]
    eta = jnp.array([sign * size for size in around for sign in (-1, 1)])[:, None]
    successes, attempts = np.array([0.0, 1.0, 0.0]), np.array([1.0, 1.0, 0.0])
    loss = -(successes * log_expit(eta) + (attempts - successes) * log_expit(-eta))

    def cell(curvature=None):
        if outcomes:
            return outcome_cell(eta, 2 * successes - attempts, curvature=curvature)
        return binomial_cell(eta, successes, attempts, curvature=curvature)

    for curvature in CURVATURES:
        terms = cell(curvature)
        found = terms.linear + (np.log(terms.factor) if outcomes else 0.0)
        # 1 + exp(-|eta|) has lost exp(-|eta|) by |eta| = 36: an absolute error of at most 1e-15
        np.testing.assert_allclose(found, loss, rtol=1e-13, atol=1e-15)
        np.testing.assert_allclose(terms.score, successes - attempts * expit(eta), rtol=1e-13, atol=1e-15)
        weight, wanted = np.broadcast_arrays(terms.weight, dense_weight(eta, attempts, curvature))
        np.testing.assert_allclose(weight, wanted, rtol=2e-11, atol=1e-73)
    assert cell().weight is None


@pytest.mark.parametrize("curvature", ["fisher", "tight"])
def test_outcomes_in_float32_are_right_to_float32_s_precision(curvature):
    """Far from 0 too, where the probability of the other outcome is tiny."""
    eta = np.concatenate([np.linspace(-60, 60, 241), [-1e-3, 1e-3, 1e4, -1e4]])[:, None]
    outcome = np.array([1.0, -1.0, 0.0])
    terms = outcome_cell(
        jnp.asarray(eta, jnp.float32), jnp.asarray(outcome, jnp.float32), curvature=curvature
    )
    tried = np.abs(outcome)
    loss = -tried * log_expit(outcome * eta)
    found = np.asarray(terms.linear, dtype=float) + np.log(np.asarray(terms.factor, dtype=float))
    np.testing.assert_allclose(found, loss, rtol=1e-6, atol=2e-7)
    np.testing.assert_allclose(terms.score, outcome * expit(-outcome * eta), rtol=1e-5, atol=1e-9)
    np.testing.assert_allclose(terms.weight, dense_weight(eta, tried, curvature), rtol=1e-5, atol=1e-8)
