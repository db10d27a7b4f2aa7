"""Cells against automatic and finite differences, counts of a thousand included; weighted sums against dense ones.

Closed forms stand against them in test_likelihood.py.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.special import expit, log_expit

from bayes_irt.cell_functions import binomial_cell, outcome_cell
from bayes_irt.likelihood import cell_sums, tile_cells
from bayes_irt.parameters import Parameters

LOGITS = np.array([-50.0, -36.0, -8.0, -1.3, -1e-3, 0.0, 1e-3, 0.4, 3.0, 36.0, 50.0])
COUNTS = [(1.0, 1.0), (0.0, 1.0), (0.0, 0.0), (7.0, 12.0), (0.0, 1000.0), (1000.0, 1000.0), (431.0, 1000.0)]
run_pass = jax.jit(cell_sums, static_argnames=("loss", "curvature"))


@pytest.fixture(autouse=True)
def _x64():
    with jax.enable_x64(True):
        yield


def loss_of(terms):
    return terms.linear + (0.0 if terms.factor is None else jnp.log(terms.factor))


def cells_of(successes, attempts):
    """Return the cells that may hold these counts: binomial ones always, outcomes up to one attempt."""

    def binomial(eta, curvature=None):
        return binomial_cell(eta, successes, attempts, curvature=curvature)

    def outcome(eta, curvature=None):
        return outcome_cell(eta, jnp.asarray(2 * successes - attempts), curvature=curvature)

    return [binomial, outcome] if attempts <= 1 else [binomial]


@pytest.mark.parametrize(("successes", "attempts"), COUNTS)
def test_scores_and_curvatures_are_derivatives_of_the_loss(successes, attempts):
    eta = jnp.asarray(LOGITS[LOGITS != 0])  # at 0 the absolute value has no derivative
    for cell in cells_of(successes, attempts):
        terms = cell(eta, "fisher")
        slope = jax.vmap(jax.grad(lambda e, cell=cell: loss_of(cell(e))))(eta)
        bend = jax.vmap(jax.grad(lambda e, cell=cell: cell(e).score))(eta)
        size = max(attempts, 1.0)
        np.testing.assert_allclose(terms.score, -slope, rtol=1e-12, atol=1e-14 * size)
        np.testing.assert_allclose(terms.weight, -bend, rtol=1e-9, atol=1e-15 * size)


@pytest.mark.parametrize(("successes", "attempts"), COUNTS)
def test_finite_differences_agree(successes, attempts):
    """Central differences with step h are off by h^2 / 6 times a third derivative of at most n / 10."""
    step, size = 1e-4, max(attempts, 1.0)
    for cell in cells_of(successes, attempts):
        terms, after, before = (cell(jnp.asarray(LOGITS + h), "fisher") for h in (0.0, step, -step))
        rounding = 1e-16 * size * 50 / step
        slope = (loss_of(after) - loss_of(before)) / (2 * step)
        np.testing.assert_allclose(terms.score, -slope, atol=rounding + 1e-9 * size)
        bend = (after.score - before.score) / (2 * step)
        np.testing.assert_allclose(terms.weight, -bend, atol=rounding + 1e-9 * size)
        # control: a weight a hundredth too large is noticed
        if attempts:
            with pytest.raises(AssertionError):
                np.testing.assert_allclose(1.01 * terms.weight, -bend, atol=rounding + 1e-9 * size)


@pytest.mark.parametrize(("successes", "attempts"), COUNTS[3:])
def test_counts_of_a_thousand_have_their_closed_forms(successes, attempts):
    (cell,), eta = cells_of(successes, attempts), LOGITS
    terms = cell(jnp.asarray(eta), "fisher")
    failures = attempts - successes
    wanted = -successes * log_expit(eta) - failures * log_expit(-eta)
    np.testing.assert_allclose(loss_of(terms), wanted, rtol=1e-12, atol=1e-12)
    score = successes * expit(-eta) - failures * expit(eta)
    np.testing.assert_allclose(terms.score, score, rtol=1e-10, atol=1e-13 * attempts)
    np.testing.assert_allclose(terms.weight, attempts * expit(eta) * expit(-eta), rtol=1e-12)


def suite(most_attempts, seed=0):
    """Return parameters and counts of 70 x 9; the first two items have slope 0, a third of the cells is missing."""
    rng = np.random.default_rng(seed)
    slope = rng.exponential(1.0, (9, 1))
    slope[:2] = 0.0
    parameters = Parameters(3 * rng.normal(size=(70, 1)), slope, rng.normal(0, 2.0, 9))
    attempts = rng.integers(1, most_attempts + 1, (70, 9)) * (rng.random((70, 9)) > 1 / 3)
    eta = parameters.ability * slope[:, 0] + parameters.easiness
    successes = rng.binomial(attempts, expit(eta))
    kind = np.min_scalar_type(most_attempts)
    return parameters, successes.astype(kind), attempts.astype(kind), eta


@pytest.mark.parametrize("most_attempts", [1, 1000])
@pytest.mark.parametrize("curvature", ["fisher", "tight", "quarter"])
def test_weights_are_summed_with_weights_of_the_items(most_attempts, curvature):
    parameters, successes, attempts, eta = suite(most_attempts)
    by_item = np.random.default_rng(1).normal(size=(9, 3))
    cells = tile_cells(successes, attempts, "float64")
    sums = run_pass(parameters, cells, curvature=curvature, item_weights=by_item)
    weight = {
        "fisher": expit(eta) * expit(-eta),
        "tight": np.tanh(eta / 2) / (2 * eta),
        "quarter": 0.25,
    }[curvature]
    dense = (attempts * weight) @ by_item
    np.testing.assert_allclose(sums.llm_weighted, dense, rtol=1e-10, atol=1e-11 * most_attempts)
    plain = run_pass(parameters, cells, curvature=curvature)
    assert plain.llm_weighted is None
    np.testing.assert_allclose(sums.llm_curvature, plain.llm_curvature, rtol=1e-12)
    np.testing.assert_allclose(sums.llm_score, plain.llm_score, rtol=1e-12, atol=1e-12 * most_attempts)
    # control: the weights of two items exchanged
    with pytest.raises(AssertionError):
        np.testing.assert_allclose(
            sums.llm_weighted, (attempts * weight) @ by_item[::-1], atol=1e-3 * most_attempts
        )


def test_weights_of_the_items_survive_tiles_and_float32():
    """300,000 items: four rows a tile."""
    rng = np.random.default_rng(2)
    parameters = Parameters(
        rng.normal(size=(6, 1)), rng.exponential(1.0, (300_000, 1)), rng.normal(size=300_000)
    )
    eta = parameters.ability * parameters.discrimination[:, 0] + parameters.easiness
    counts = rng.binomial(1, expit(eta)).astype(np.uint8)
    by_item = rng.random((300_000, 1))
    sums = run_pass(
        parameters, tile_cells(counts, np.ones_like(counts)), curvature="fisher", item_weights=by_item
    )
    np.testing.assert_allclose(sums.llm_weighted, (expit(eta) * expit(-eta)) @ by_item, rtol=1e-5)
    assert sums.llm_weighted.dtype == np.float64


@pytest.mark.parametrize("most_attempts", [1, 1000])
def test_an_item_without_slope_tells_abilities_apart_from_nothing(most_attempts):
    """Its logit is its easiness: other abilities change neither its score nor what LLMs learn from it."""
    parameters, successes, attempts, _ = suite(most_attempts)
    cells = tile_cells(successes[:, :2], attempts[:, :2], "float64")
    flat = Parameters(parameters.ability, parameters.discrimination[:2], parameters.easiness[:2])
    moved = Parameters(40 * parameters.ability, flat.discrimination, flat.easiness)
    here, there = (run_pass(p, cells, loss=True, curvature="fisher") for p in (flat, moved))
    assert not np.any(here.llm_score)
    assert not np.any(here.llm_curvature)
    assert float(here.loss) == float(there.loss)
    np.testing.assert_array_equal(here.item_score[:, 1], there.item_score[:, 1])
    np.testing.assert_allclose(40 * here.item_score[:, 0], there.item_score[:, 0], rtol=1e-12)
    assert np.abs(here.item_score[:, 0]).min() > 0  # the slope itself is still learned
