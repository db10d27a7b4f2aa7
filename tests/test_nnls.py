"""Batched non-negative least squares against SciPy's, one problem at a time."""

import jax
import numpy as np
import pytest
from scipy.optimize import nnls

from bayes_irt.nnls import nonnegative_least_squares

UNITS = 60
solve = jax.jit(nonnegative_least_squares)


@pytest.fixture(autouse=True)
def _x64():
    with jax.enable_x64(True):
        yield


def problems(traits, kind, seed):
    """Return design matrices and targets: regular ones, ones with collinear columns, and ones of rank 1."""
    rng = np.random.default_rng([seed, traits])
    design = rng.normal(size=(UNITS, 12, traits))
    if kind == "correlated":
        design = design + 3.0 * rng.normal(size=(UNITS, 12, 1))
    elif kind == "collinear":
        design[:, :, -1] = 2.0 * design[:, :, 0]
        design[::3, :, traits // 2] = 0.0
    elif kind == "rank 1":
        design = design[:, :, :1] * rng.normal(size=(UNITS, 1, traits))
    design = design * 10.0 ** rng.integers(-3, 4, (UNITS, 1, 1))
    return design, rng.normal(size=(UNITS, 12)) * 10.0 ** rng.integers(-3, 4, (UNITS, 1))


def normal_equations(design, target):
    return np.einsum("unk,unl->ukl", design, design), np.einsum("unk,un->uk", design, target)


def assert_kkt(solution, gram, moment, tolerance):
    """Check that no step in the allowed directions lowers the loss, each unit on its own scale."""
    slope = np.einsum("ukl,ul->uk", gram, solution) - moment
    scale = np.abs(moment).max(axis=1, keepdims=True) + 1e-300
    assert (solution >= 0).all()
    assert (slope >= -tolerance * scale).all()
    assert (
        np.abs(slope[solution > 0]) <= tolerance * np.broadcast_to(scale, slope.shape)[solution > 0]
    ).all()


@pytest.mark.parametrize("kind", ["regular", "correlated", "collinear", "rank 1"])
@pytest.mark.parametrize("traits", range(1, 7))
def test_solutions_are_scipy_s(traits, kind):
    design, target = problems(traits, kind, seed=1)
    gram, moment = normal_equations(design, target)
    found = np.asarray(solve(gram, moment))
    assert_kkt(found, gram, moment, 1e-7)
    for unit in range(UNITS):
        wanted, residual = nnls(design[unit], target[unit])
        reached = np.linalg.norm(design[unit] @ found[unit] - target[unit])
        assert reached <= residual * (1 + 1e-9)
        if kind in ("regular", "correlated"):
            np.testing.assert_allclose(found[unit], wanted, rtol=1e-6, atol=1e-9 * wanted.max())
            np.testing.assert_array_equal(found[unit] == 0, wanted == 0)


def test_both_sides_of_the_boundary_are_met():
    """The problems above exercise the constraint: some solutions lie inside, some at 0, some half and half."""
    gram, moment = normal_equations(*problems(3, "regular", seed=1))
    active = (np.asarray(solve(gram, moment)) == 0).sum(axis=1)
    assert set(active) == {0, 1, 2, 3}
    unconstrained = np.linalg.solve(gram, moment[..., None])[..., 0]
    with pytest.raises(AssertionError):
        assert_kkt(np.maximum(unconstrained, 0.0), gram, moment, 1e-7)


@pytest.mark.parametrize("traits", [1, 3])
def test_units_without_data_stay_at_zero(traits):
    design, target = problems(traits, "regular", seed=2)
    design[:5] = 0.0
    gram, moment = normal_equations(design, target)
    found = np.asarray(solve(gram, moment))
    assert (found[:5] == 0).all()
    assert_kkt(found, gram, moment, 1e-7)


def test_units_do_not_depend_on_their_neighbours():
    gram, moment = normal_equations(*problems(4, "correlated", seed=3))
    order = np.random.default_rng(4).permutation(UNITS)
    there, back = np.asarray(solve(gram[order], moment[order])), np.asarray(solve(gram, moment))[order]
    np.testing.assert_allclose(there, back, rtol=1e-9, atol=1e-12 * np.abs(back).max())
