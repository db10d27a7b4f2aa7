"""Slow directions of a density: found, and worth finding on a posterior."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.flatten_util import ravel_pytree

from bayes_irt import ModelSpec, fit_cbmm, simulate_suite
from bayes_irt.inference.density import find_target, potential
from bayes_irt.inference.directions import Directions, slow_directions, stretch
from bayes_irt.inference.nuts import _off_resonance
from bayes_irt.inference.start import White
from bayes_irt.likelihood import tile_cells
from bayes_irt.priors import Priors

SIZE = 120


@pytest.fixture(scope="module")
def gaussian():
    """Return a precision with four slow directions, their variances and the rotation."""
    rng = np.random.default_rng(5)
    rotation = np.linalg.qr(rng.normal(size=(SIZE, SIZE)))[0]
    variances = np.concatenate([[9.0, 4.0, 2.5, 1.8], rng.uniform(0.6, 1.1, SIZE - 4)])
    return rotation / variances @ rotation.T, variances, rotation


def find(precision):
    with jax.enable_x64(True):
        return jax.device_get(
            jax.jit(lambda p: slow_directions(lambda x: x @ p @ x / 2, len(precision)))(
                jnp.asarray(precision)
            )
        )


def test_slow_directions_of_a_gaussian_are_found(gaussian):
    precision, variances, rotation = gaussian
    found = find(precision)
    np.testing.assert_allclose(found.stretches[:3], np.sqrt(variances[:3]), rtol=1e-6)
    overlap = np.abs(np.sum(found.vectors[:3] * rotation[:, :3].T, axis=1))
    np.testing.assert_allclose(overlap, 1.0, atol=1e-6)
    # control: the fastest directions are no such thing
    assert np.abs(found.vectors[0] @ rotation[:, -1]) < 1e-3


def test_stretching_makes_a_gaussian_round(gaussian):
    precision, variances, _ = gaussian
    found = find(precision)
    with jax.enable_x64(True):
        whitened = np.asarray(
            jax.hessian(lambda x: stretch(x, found) @ precision @ stretch(x, found) / 2)(jnp.zeros(SIZE))
        )
    before, after = np.linalg.eigvalsh(precision), np.linalg.eigvalsh(whitened)
    assert after[0] > 1 / 1.3
    assert before[0] == pytest.approx(1 / variances.max())


def test_a_curvature_that_tells_nothing_is_left_alone():
    curvature = np.ones(60)
    curvature[[3, 40]] = -0.5, 1e-4
    found = find(np.diag(curvature))
    np.testing.assert_allclose(found.stretches, 1.0, atol=1e-6)


@pytest.mark.parametrize("size", [1, 2, 7])
def test_few_coordinates_and_equal_curvatures_exhaust_the_search(size):
    found = find(0.25 * np.eye(size))
    assert np.isfinite(found.vectors).all()
    assert found.stretches.max() == pytest.approx(2.0)
    lengths = np.linalg.norm(found.vectors, axis=1)
    assert ((lengths < 1e-8) | (np.abs(lengths - 1) < 1e-8)).all()


def test_the_posterior_is_rounder_with_than_without():
    suite = simulate_suite(20, 60, seed=4)
    spec = ModelSpec()
    estimate = fit_cbmm(suite.responses, penalty=Priors())
    with jax.enable_x64(True):
        cells = tile_cells(suite.responses.successes, suite.responses.attempts, "float64")
        parameters = jax.tree.map(jnp.asarray, estimate.parameters)
        target = find_target(spec, parameters, cells)
        zero, restore = ravel_pytree(
            White(jnp.zeros(20), jnp.zeros((60, 2)), jnp.zeros(len(spec.hyperparameters)))
        )
        plain = Directions(jnp.zeros((1, zero.size)), jnp.ones(1))

        def lowest(directions):
            chosen = type(target)(target.cells, target.start, directions)
            slopes = jax.vmap(jax.grad(lambda point: potential(restore(point), chosen, spec)))
            shifts = 1e-3 * jnp.eye(zero.size)
            return np.linalg.eigvalsh(np.asarray(jax.jit(lambda: slopes(shifts) - slopes(-shifts))()) / 2e-3)[
                0
            ]

        with_them, without = lowest(target.directions), lowest(plain)
    assert without < 0.3
    assert with_them > 1.8 * without


def test_step_sizes_keep_off_the_lengths_at_which_trees_double_in_vain():
    turning = np.pi / 15
    steps = jnp.array([0.95, 1.0, 1.1, 1.3, 1.9]) * turning
    moved = np.asarray(_off_resonance(steps)) / turning
    np.testing.assert_allclose(moved, [1.15, 1.15, 1.15, 1.3, 15 / 7 * 1.15], rtol=1e-5)
    assert np.isfinite(np.asarray(_off_resonance(jnp.array([1e-4, 3.0, 8.0])))).all()
