"""The arrow against dense matrices and the model's density in its own coordinates, on 10 LLMs x 12 items in float64.

The dense precision is made by automatic differentiation of the log density. One block is expected over the items
instead, as the arrow documents: second derivatives by hyperparameters and by scale and location of the abilities.
"""

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.flatten_util import ravel_pytree
from numpyro.infer.util import potential_energy
from scipy import linalg

from bayes_irt.cbmm import fit_cbmm
from bayes_irt.inference.arrow import Arrow, build_arrow, factor_or_repaired, log_density
from bayes_irt.inference.item_coordinates import as_parameters, log_regauged_prior
from bayes_irt.inference.laplace import draw_sites, fit_gaussian
from bayes_irt.inference.mode import Mode, Place, find_mode
from bayes_irt.inference.outer_terms import outer_terms
from bayes_irt.likelihood import Cells, log_likelihood, tile_cells
from bayes_irt.model_spec import ModelSpec
from bayes_irt.models import response_model
from bayes_irt.priors import Priors
from bayes_irt.simulate import SuiteDesign, simulate_suite

LLMS, ITEMS = 10, 12
SPEC = ModelSpec()


class Case(NamedTuple):
    cells: Cells
    mode: Mode
    arrow: Arrow

    @property
    def core(self):
        """Places of abilities and hyperparameters among all coordinates, items lying between."""
        size = LLMS + 2 * ITEMS + len(self.mode.place.hyper)
        return np.r_[:LLMS, LLMS + 2 * ITEMS : size]

    @property
    def plane(self):
        """Orthonormal directions along which the abilities may move."""
        return linalg.null_space(self.arrow.fixed.T)


@pytest.fixture(autouse=True)
def _x64():
    with jax.enable_x64(True):
        yield


@pytest.fixture(scope="module")
def case():
    """Three attempts per cell, some cells missing."""
    design = SuiteDesign(attempts=3, missing="MCAR", missing_share=0.1)
    responses = simulate_suite(LLMS, ITEMS, design=design, seed=5).responses
    estimate = fit_cbmm(responses, penalty=Priors())
    with jax.enable_x64(True):
        cells = tile_cells(responses.successes, responses.attempts, "float64")
        parameters = jax.tree.map(jnp.asarray, estimate.parameters)
        mode = jax.device_get(find_mode(SPEC, parameters, cells, tolerance=1e-6))
        arrow = build_arrow(SPEC, mode, cells)
    assert mode.converged
    assert not arrow.repaired
    return Case(cells, mode, arrow)


# The dense matrix


@jax.jit
def curvatures(place, unit, cells):
    """Return minus the second derivatives of the log density, of the likelihood by ability, and of the item priors."""
    flat, restore = ravel_pytree(place)
    whole = -jax.hessian(lambda v: log_density(SPEC, restore(v), unit, cells))(flat)

    def by_ability(ability):
        return log_likelihood(as_parameters(SPEC, ability, place.items, unit), cells)

    def by_items(items, outer):
        return jax.vmap(partial(log_regauged_prior, SPEC), (0, 0, None))(
            items.reshape(-1, 2), unit, outer
        ).sum()

    outer = jnp.concatenate([jnp.zeros(2), place.hyper])
    cross = -jax.jacfwd(jax.grad(by_items), 1)(place.items.ravel(), outer)
    return whole, -jax.hessian(by_ability)(place.ability), cross


@jax.jit
def expected_block(place, unit, item_precision, cross):
    """Return the core's precision but for the likelihood: what items say about it, expected over them."""
    covariance = jnp.linalg.inv(item_precision)
    blocks = covariance.reshape(ITEMS, 2, ITEMS, 2)[jnp.arange(ITEMS), :, jnp.arange(ITEMS)]
    terms = outer_terms(SPEC, place.items, unit, blocks, place.hyper)
    precision = terms.precision - terms.unknown + cross.T @ covariance @ cross
    num_llms = len(place.ability)

    def outer_of(core):
        ability = core[:num_llms]
        log_spread = jnp.log(jnp.mean((ability - ability.mean()) ** 2)) / 2
        return jnp.concatenate([jnp.stack([log_spread, ability.mean()]), core[num_llms:]])

    def log_prior(core):
        apart = outer_of(core) - outer_of(jnp.concatenate([place.ability, place.hyper]))
        return terms.score @ apart - apart @ precision @ apart / 2 - (num_llms - 1) * outer_of(core)[0]

    return -jax.hessian(log_prior)(jnp.concatenate([place.ability, place.hyper]))


def dense_covariance(case, replaced=True, perturbed=0.0):
    """Return the covariance of abilities, items and hyperparameters, in this order, within the plane."""
    place, unit, core = case.mode.place, case.mode.unit, case.core
    whole, by_ability, cross = map(np.array, curvatures(place, unit, case.cells))
    items = slice(LLMS, LLMS + 2 * ITEMS)
    if replaced:
        block = np.array(expected_block(place, unit, whole[items, items], cross))
        block[:LLMS, :LLMS] += by_ability
        whole[np.ix_(core, core)] = block
    whole[LLMS, LLMS] *= 1 + perturbed
    basis = linalg.block_diag(case.plane, np.eye(len(whole) - LLMS))
    return basis @ np.linalg.solve(basis.T @ whole @ basis, basis.T)


def covariance_of(case):
    """Return the arrow's covariance, one column per unit vector."""
    core, columns = case.core, []
    for unit in np.eye(LLMS + 2 * ITEMS + len(case.mode.place.hyper)):
        at_core, at_items = case.arrow.newton_step(unit[core], np.delete(unit, core).reshape(ITEMS, 2))
        column = np.empty_like(unit)
        column[core], column[LLMS : LLMS + 2 * ITEMS] = at_core, np.ravel(at_items)
        columns.append(column)
    return np.stack(columns, axis=1)


def assert_same_covariance(found, wanted, tolerance=1e-6):
    sd = np.sqrt(np.diag(wanted))
    np.testing.assert_allclose(found / np.outer(sd, sd), wanted / np.outer(sd, sd), atol=tolerance)


def test_the_covariance_is_the_dense_inverse(case):
    found, wanted = covariance_of(case), dense_covariance(case)
    assert_same_covariance(found, wanted)
    np.testing.assert_allclose(case.arrow.core_sd(), np.sqrt(np.diag(wanted)[case.core]), rtol=1e-6)
    np.testing.assert_allclose(found, found.T, atol=1e-9)
    # controls: one entry of the precision a hundredth larger; plug-in values in the one block
    with pytest.raises(AssertionError):
        assert_same_covariance(found, dense_covariance(case, perturbed=0.01), 1e-4)
    with pytest.raises(AssertionError):
        assert_same_covariance(found, dense_covariance(case, replaced=False), 1e-3)


def test_the_plane_s_normals_are_information_times_ability_and_one(case):
    ability = case.mode.place.ability
    _, by_ability, _ = curvatures(case.mode.place, case.mode.unit, case.cells)
    information = 1 + np.diag(by_ability)
    np.testing.assert_allclose(case.arrow.information, information, rtol=1e-9)
    normals = information[:, None] * np.stack([ability, np.ones(LLMS)], axis=1)
    fixed = case.arrow.fixed
    np.testing.assert_allclose(fixed.T @ fixed, np.eye(2), atol=1e-12)
    np.testing.assert_allclose(fixed @ (fixed.T @ normals), normals, rtol=1e-9, atol=1e-9)


# Draws


def assert_moments(draws, mean, covariance, largest=5.5):
    """False alarm: below 1e-4, of about 700 entries at 5.5 standard errors."""
    number, var = len(draws), np.diag(covariance)
    z = (draws.mean(axis=0) - mean) / np.sqrt(var / number)
    assert np.abs(z).max() < largest
    error = np.sqrt((np.outer(var, var) + covariance**2) / number)
    z = (np.cov(draws, rowvar=False) - covariance) / error
    assert np.abs(z).max() < largest


def off_the_plane(case, draws):
    return draws @ np.concatenate([case.arrow.fixed, np.zeros((draws.shape[1] - LLMS, 2))])


def test_draws_have_mean_zero_and_the_dense_covariance(case):
    core, items = case.arrow.draw(np.random.default_rng(0), 20_000)
    draws = np.concatenate([core[:, :LLMS], items.reshape(len(core), -1), core[:, LLMS:]], axis=1)
    assert np.abs(off_the_plane(case, draws)).max() < 1e-10
    # in the basis of the plane nothing is constant
    basis = linalg.block_diag(case.plane, np.eye(draws.shape[1] - LLMS))
    covariance = basis.T @ dense_covariance(case) @ basis
    assert_moments(draws @ basis, 0.0, covariance)
    with pytest.raises(AssertionError):
        assert_moments(1.05 * draws @ basis, 0.0, covariance)
    with pytest.raises(AssertionError):
        assert_moments(draws @ basis + 0.1 * np.sqrt(np.diag(covariance)), 0.0, covariance)


def test_matched_draws_have_the_right_mean_squares_already_when_few(case):
    """Over 40 repeats of 8 draws the core's mean squares scatter less than those of plain draws."""
    wanted, rng = case.arrow.core_sd() ** 2, np.random.default_rng(1)

    def scatter(matched):
        found = [np.mean(case.arrow.draw(rng, 8, matched=matched)[0] ** 2, axis=0) for _ in range(40)]
        return np.sqrt(np.mean((np.array(found) / wanted - 1) ** 2))

    assert scatter(matched=True) < 0.8 * scatter(matched=False)


def test_sites_are_drawn_around_the_centre(case):
    gaussian = fit_gaussian(
        SPEC,
        as_parameters(SPEC, case.mode.place.ability, case.mode.place.items, case.mode.unit),
        case.cells,
        0,
        lambda _: None,
    )
    number = 4000
    sites = draw_sites(SPEC, gaussian, number, 3)
    assert sites["ability"].shape == (1, number, LLMS, 1)
    assert sites["discrimination"].shape == (1, number, ITEMS, 1)
    assert sites["easiness"].shape == (1, number, ITEMS)
    centre = gaussian.centre
    for name, mean in (("ability", centre.ability), ("easiness", centre.items[:, 1])):
        draws = sites[name][0].reshape(number, -1)
        z = (draws.mean(axis=0) - np.asarray(mean)) / (draws.std(axis=0) / np.sqrt(number))
        assert np.abs(z).max() < 5  # false alarm: 22 means at 5 standard errors, 1e-5
    assert set(SPEC.hyperparameters) <= set(sites)
    logarithm = np.log(sites["discrimination_scale"][0])
    at = SPEC.hyperparameters.index("discrimination_scale")
    assert abs(logarithm.mean() - float(centre.hyper[at])) < 5 * logarithm.std() / np.sqrt(number)
    assert (sites["discrimination"] >= 0).all()


# The density


def model_density(case, place):
    """Return the NumPyro model's log density at a place, gauge and volume of the map to it worked out anew."""
    unit = case.mode.unit

    def sites(at):
        parameters = as_parameters(SPEC, at.ability, at.items, unit)
        location = at.ability.mean()
        spread = jnp.sqrt(jnp.mean((at.ability - location) ** 2))
        slope = parameters.discrimination[:, 0]
        return (at.ability - location) / spread, slope * spread, parameters.easiness + slope * location

    def on_the_plane(along, items):
        ability, slope, easiness = sites(Place(place.ability + case.plane @ along, items, place.hyper))
        return ability, jnp.concatenate([slope, easiness])

    ability, slope, easiness = sites(place)
    point = {"ability_raw": ability, "discrimination": jnp.log(slope), "easiness": easiness}
    point |= dict(zip(SPEC.hyperparameters, place.hyper, strict=True))
    energy = potential_energy(response_model, (SPEC, LLMS, ITEMS, case.cells), {}, point)
    by_slope = -energy - jnp.log(slope).sum()  # the density of slopes, not of their logarithms
    (sphere, _), (_, items) = jax.jacfwd(on_the_plane, (0, 1))(jnp.zeros(LLMS - 2), place.items)
    area = jnp.linalg.slogdet(sphere.T @ sphere)[1] / 2
    return by_slope + area + jnp.linalg.slogdet(items.reshape(2 * ITEMS, 2 * ITEMS))[1]


def places_around(case, number, share=1.0):
    """Return places in the plane, abilities, items and hyperparameters all moved; without share, off the plane."""
    rng, place = np.random.default_rng(2), case.mode.place
    moves = 0.4 * rng.normal(size=(number, LLMS))
    along = moves @ case.plane @ case.plane.T
    return Place(
        place.ability + share * along + (1 - share) * moves,
        place.items + 0.4 * rng.normal(size=(number, *place.items.shape)),
        place.hyper + 0.3 * rng.normal(size=(number, len(place.hyper))),
    )


def gaps(case, places):
    """Return differences between the arrow's density and the model's."""

    @jax.jit
    def both(place):
        ours = log_density(SPEC, place, jnp.asarray(case.mode.unit), case.cells)
        return ours, model_density(case, place)

    pairs = [both(jax.tree.map(lambda leaf, n=n: leaf[n], places)) for n in range(len(places.hyper))]
    ours, theirs = np.array(pairs, dtype=np.float64).T
    assert np.ptp(theirs) > 5
    return ours - theirs


def test_the_density_is_the_model_s_times_the_volume_of_the_gauge(case):
    found = gaps(case, places_around(case, 12))
    np.testing.assert_allclose(found, found[0], atol=1e-7)
    # control: off the plane the map has another volume
    assert np.ptp(gaps(case, places_around(case, 12, share=0.0))) > 0.01


def test_a_precision_that_is_not_positive_is_repaired_and_says_so():
    rng = np.random.default_rng(3)
    root = rng.normal(size=(6, 8))
    positive = root @ root.T
    factor, repaired = factor_or_repaired(positive)
    assert not repaired
    np.testing.assert_allclose(factor @ factor.T, positive, atol=1e-12)
    factor, repaired = factor_or_repaired(positive - 1.2 * linalg.eigvalsh(positive)[0] * np.eye(6))
    assert repaired
    assert np.isfinite(factor).all()
    assert linalg.eigvalsh(factor @ factor.T).min() > 0
