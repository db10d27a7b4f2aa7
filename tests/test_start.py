"""Where samplers start: finite for awkward items, at the items' modes, and whitening that whitens.

One mid-size suite serves all tests: N = 60 LLMs, J = 40 items, of which one is wrongly keyed, one is always right,
one always wrong, and some have missing answers.
"""

from dataclasses import replace
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.flatten_util import ravel_pytree
from numpyro.infer.util import potential_energy
from scipy.special import expit

from bayes_irt.cbmm import Solver, fit_cbmm
from bayes_irt.estimate import PointEstimate
from bayes_irt.inference.mode import find_mode
from bayes_irt.inference.start import Start, White, find_start, unwhiten
from bayes_irt.likelihood import Cells, tile_cells
from bayes_irt.model_spec import ModelSpec
from bayes_irt.models import response_model
from bayes_irt.priors import LogNormal, Priors
from bayes_irt.responses import Responses
from bayes_irt.simulate import SuiteDesign, simulate_suite

LLMS, ITEMS = 60, 40
REVERSED, ALL_RIGHT, ALL_WRONG = 0, 1, 2
REGULAR = np.arange(3, ITEMS)
SPEC = ModelSpec()


class Case(NamedTuple):
    responses: Responses
    estimate: PointEstimate
    cells: Cells
    start: Start


def awkward_suite():
    design = SuiteDesign("half-normal", 1.5, missing="MCAR", missing_share=0.1)
    suite = simulate_suite(LLMS, ITEMS, design=design, seed=1)
    successes, attempts = suite.responses.successes.copy(), suite.responses.attempts.copy()
    attempts[:, :3] = 1
    successes[:, REVERSED] = suite.truth.ability[:, 0] < 0.3
    successes[:, ALL_RIGHT], successes[:, ALL_WRONG] = 1, 0
    return Responses.from_arrays(successes, attempts)


def start_of(spec, estimate, cells):
    mode = find_mode(spec, jax.tree.map(jnp.asarray, estimate.parameters), cells, tolerance=1e-8)
    return jax.jit(find_start, static_argnums=0)(spec, mode.place, mode.unit, cells)


@pytest.fixture(autouse=True)
def _x64():
    with jax.enable_x64(True):
        yield


@pytest.fixture(scope="module")
def case():
    responses = awkward_suite()
    estimate = fit_cbmm(responses, penalty=Priors(), solver=Solver(precision="float64"))
    with jax.enable_x64(True):
        cells = tile_cells(responses.successes, responses.attempts, "float64")
        start = start_of(SPEC, estimate, cells)
    return Case(responses, estimate, cells, jax.device_get(start))


def discriminations(start):
    return start.slope_unit * np.log1p(np.exp(start.items[:, 0]))


def origin(start):
    """Return the point of the white space that is the start itself."""
    return White(np.zeros(LLMS), np.zeros((ITEMS, 2)), np.zeros(len(start.hyper)))


def sites_of(flat, restore, start):
    """Return all unconstrained sites as one vector, in the order of their names."""
    return ravel_pytree(unwhiten(restore(flat), start, SPEC)[0])[0]


def energy_at(cells, sites):
    return potential_energy(response_model, (SPEC, LLMS, ITEMS, cells), {}, sites)


@pytest.mark.parametrize("priors", [Priors(), Priors(discrimination=LogNormal())])
def test_awkward_items_start_inside(case, priors):
    assert case.estimate.parameters.discrimination[REVERSED] == 0
    spec, start = SPEC, case.start
    if priors != SPEC.priors:
        spec = ModelSpec(priors)
        start = jax.device_get(start_of(spec, case.estimate, case.cells))
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(start))
    assert len(start.hyper) == len(spec.hyperparameters)
    slopes = discriminations(start)
    assert (slopes > 0).all()
    assert slopes[REVERSED] < 0.3 < np.median(slopes) < slopes.max() < 12
    assert start.items[ALL_RIGHT, 1] > 2
    assert start.items[ALL_WRONG, 1] < -2
    assert (start.ability_sd > 0).all()
    assert (start.ability_sd <= 1).all()
    np.testing.assert_allclose(start.ability.mean(), 0, atol=1e-12)
    np.testing.assert_allclose(start.ability.std(), 1, atol=1e-12)


def item_scores(start, responses):
    """Return the derivative of the log posterior by each item's (u, d), given abilities and hyperparameters."""
    u, easiness = start.items.T
    slope, rise = discriminations(start), start.slope_unit * expit(start.items[:, 0])
    tau, location, scale = np.exp(start.hyper[0]), start.hyper[1], np.exp(start.hyper[2])
    eta = start.ability[:, None] * slope + easiness
    score = responses.successes - responses.attempts * expit(eta)
    by_u = (start.ability @ score - slope / tau**2) * rise + expit(-u)
    return np.stack([by_u, score.sum(axis=0) - (easiness - location) / scale**2], axis=1)


def test_items_start_at_their_conditional_mode(case):
    """In units of each item's own posterior spread."""

    def decrement(start):
        scores = item_scores(start, case.responses)
        return np.abs(np.einsum("jlk,jl->jk", start.item_factor, scores)).max(axis=1)

    found = decrement(case.start)
    assert found[REGULAR].max() < 1e-6
    assert found.max() < 1e-3
    # control: half a posterior sd away the same measure notices
    nudge = 0.5 * case.start.item_factor.sum(axis=2)
    moved = replace(case.start, items=case.start.items + nudge)
    assert np.median(decrement(moved)) > 0.2


def test_learned_scales_are_those_of_the_items(case):
    """At the EM's fixed point tau squared is near the mean of E[a squared]; the plug-in value is 4 % off in tau."""
    start = case.start
    slopes = discriminations(start)
    rise = start.slope_unit * expit(start.items[:, 0])
    variance = (start.item_factor[:, 0] ** 2).sum(axis=1) * rise**2
    tau = np.exp(start.hyper[0])
    assert tau == pytest.approx(np.sqrt((slopes**2 + variance).mean()), rel=0.02)
    location, scale = start.hyper[1], np.exp(start.hyper[2])
    easiness = start.items[:, 1]
    variance = (start.item_factor[:, 1] ** 2).sum(axis=1)
    assert location == pytest.approx(easiness.mean(), abs=0.02)
    assert scale == pytest.approx(np.sqrt(((easiness - location) ** 2 + variance).mean()), rel=0.02)


def test_the_origin_is_the_start(case):
    sites, _ = unwhiten(origin(case.start), case.start, SPEC)
    np.testing.assert_allclose(sites["ability_raw"], case.start.ability, atol=1e-14)
    np.testing.assert_allclose(np.exp(sites["discrimination"]), discriminations(case.start), rtol=1e-12)
    np.testing.assert_allclose(sites["easiness"], case.start.items[:, 1], atol=1e-14)
    for name, value in zip(SPEC.hyperparameters, case.start.hyper, strict=True):
        assert float(sites[name]) == pytest.approx(value)


def test_log_determinant_is_that_of_the_map(case):
    """Up to a constant: its differences between points are those of the dense Jacobian."""
    zero, restore = ravel_pytree(origin(case.start))
    rng = np.random.default_rng(2)
    points = [zero, *rng.normal(size=(4, len(zero)))]
    jacobian = jax.jit(jax.jacfwd(partial(sites_of, restore=restore, start=case.start)))
    dense = np.array([np.linalg.slogdet(jacobian(point))[1] for point in points])
    stated = np.array([float(unwhiten(restore(point), case.start, SPEC)[1]) for point in points])
    assert np.ptp(stated) > 1
    np.testing.assert_allclose(dense - stated, dense[0] - stated[0], atol=1e-8)


def test_free_directions_of_the_abilities_have_their_prior_s_spread(case):
    """The mean of N raw abilities has sd 1/sqrt(N) a priori, their radius sd 1/sqrt(2)."""
    white = White(np.random.default_rng(4).normal(size=LLMS), np.zeros((ITEMS, 2)), np.zeros(3))
    raw = np.asarray(unwhiten(white, case.start, SPEC)[0]["ability_raw"])
    assert raw.mean() == pytest.approx(white.ability.mean(), rel=1e-12)
    along = case.start.ability @ white.ability / np.sqrt(LLMS)
    assert case.start.ability @ raw / np.sqrt(LLMS) - np.sqrt(LLMS) == pytest.approx(along / np.sqrt(2))


def test_white_abilities_keep_the_logits_of_the_others(case):
    """What one LLM's step moves the common scale by is handed to the items (to first order)."""
    who = int(np.argmax(case.start.ability))
    others = np.delete(np.arange(LLMS), who)

    def logits(size):
        white = origin(case.start)
        # a step without mean or radius: the two directions in which the raw abilities are free
        basis = np.stack([np.ones(LLMS), case.start.ability])
        step = np.eye(LLMS)[who]
        step = step - basis.T @ np.linalg.solve(basis @ basis.T, basis @ step)
        sites, _ = unwhiten(White(size * step, white.items, white.hyper), case.start, SPEC)
        raw = sites["ability_raw"]
        ability = (raw - raw.mean()) / raw.std()
        return ability[:, None] * np.exp(sites["discrimination"]) + sites["easiness"], step

    before, step = logits(0.0)
    after, _ = logits(1e-4)
    rate = np.asarray(after - before) / 1e-4
    own = case.start.ability_sd * step
    wanted = own[:, None] * discriminations(case.start)
    np.testing.assert_allclose(rate[others], wanted[others], atol=1e-3)
    np.testing.assert_allclose(rate[who], wanted[who], atol=1e-3)


def hessian(potential, at, step=1e-4):
    """Return the second derivatives of a function, from differences of its gradient."""
    slopes = jax.jit(jax.vmap(jax.grad(potential)))
    shifts = step * np.eye(len(at))
    return np.asarray(slopes(at + shifts) - slopes(at - shifts)) / (2 * step)


def share_near_one(diagonal):
    return np.mean((diagonal > 0.3) & (diagonal < 3.0))


def test_the_posterior_is_nearly_round_in_white_coordinates(case):
    zero, restore = ravel_pytree(origin(case.start))

    def white_potential(flat):
        sites, log_determinant = unwhiten(restore(flat), case.start, SPEC)
        return energy_at(case.cells, sites) - log_determinant

    found = hessian(white_potential, zero)
    diagonal = np.diagonal(found)
    items, hyper = slice(LLMS, LLMS + 2 * ITEMS), slice(LLMS + 2 * ITEMS, None)
    assert share_near_one(diagonal) > 0.95
    assert share_near_one(diagonal[hyper]) == 1
    # items follow their priors' locations and scales, and (u, d) of an item each other: no cross terms are left
    assert np.linalg.norm(found[items, hyper], axis=0).max() < 0.2
    pairs = found[np.arange(LLMS, LLMS + 2 * ITEMS, 2), np.arange(LLMS + 1, LLMS + 2 * ITEMS, 2)]
    assert np.quantile(np.abs(pairs), 0.95) < 0.1

    # control: in NumPyro's own coordinates the same potential is not round
    sites, restore_sites = ravel_pytree(unwhiten(origin(case.start), case.start, SPEC)[0])
    plain = hessian(lambda flat: energy_at(case.cells, restore_sites(flat)), sites)
    assert share_near_one(np.diagonal(plain)) < 0.6


def test_draws_around_the_start_have_the_energy_of_a_gaussian(case):
    """Over standard normal points the potential rises by half a unit per coordinate, if start and scales are right."""
    zero, restore = ravel_pytree(origin(case.start))

    @jax.jit
    @jax.vmap
    def potential(flat):
        sites, log_determinant = unwhiten(restore(flat), case.start, SPEC)
        return energy_at(case.cells, sites) - log_determinant

    points = np.random.default_rng(3).normal(size=(200, len(zero)))
    rise = np.asarray(potential(points)) - float(potential(zero[None])[0])
    assert np.isfinite(rise).all()
    assert 0.9 < rise.mean() / (len(zero) / 2) < 1.1
