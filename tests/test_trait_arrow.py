"""The arrow of several traits against dense matrices, the model's density and the arrow of one trait, in float64.

The dense precision is made by automatic differentiation of the log density. As with one trait its core is not that of
the mode: what items say of all else is expected over them, and what abilities say of correlations over these.
"""

from functools import cache
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest
from jax.flatten_util import ravel_pytree
from numpyro import distributions as dist
from numpyro.infer.util import potential_energy
from scipy import linalg

from bayes_irt.cbmm import fit_cbmm
from bayes_irt.correlations import cholesky_of, count_traits, free_correlations, log_correlation_prior
from bayes_irt.inference.arrow import build_arrow
from bayes_irt.inference.item_coordinates import link_of
from bayes_irt.inference.mode import find_mode
from bayes_irt.inference.trait_arrow import TraitArrow, build_trait_arrow
from bayes_irt.inference.trait_items import trait_outer_terms
from bayes_irt.inference.trait_mode import TraitMode, find_trait_mode
from bayes_irt.inference.trait_place import (
    TraitPlace,
    hyper_of_traits,
    log_prior_of_items,
    log_trait_density,
    parameters_of_traits,
    raw_precision,
    slopes_of,
)
from bayes_irt.item_law import ItemLaw, ItemTraits, law_of_items
from bayes_irt.likelihood import Cells, log_likelihood, tile_cells
from bayes_irt.model_spec import ModelSpec
from bayes_irt.models import TRAIT_CHOLESKY, response_model
from bayes_irt.parameters import logits
from bayes_irt.priors import Priors
from bayes_irt.simulate import SuiteDesign, simulate_suite
from bayes_irt.trait_loads import loads_of

LLMS, ITEMS = 10, 12
METADATA = pd.DataFrame(
    {
        "subject": [f"subject {number % 2}" for number in range(ITEMS)],
        # every third item loads on both
        "first": [int(number % 2 == 0 or number % 3 == 0) for number in range(ITEMS)],
        "second": [int(number % 2 == 1 or number % 3 == 0) for number in range(ITEMS)],
    }
)
SPECS = {
    "correlated": ModelSpec(traits="subject", trait_concentration=2.0),
    "crossed": ModelSpec(traits=("first", "second")),
    "bifactor": ModelSpec(traits="subject", general=True),
    "dispersed": ModelSpec(traits="subject", observation="beta-binomial"),
}


class Case(NamedTuple):
    spec: ModelSpec
    cells: Cells
    mode: TraitMode
    arrow: TraitArrow

    @property
    def plane(self):
        """Orthonormal directions along which the abilities may move, trait by trait."""
        return linalg.block_diag(*(linalg.null_space(fixed.T) for fixed in self.arrow.fixed))


@pytest.fixture(autouse=True)
def _x64():
    with jax.enable_x64(True):
        yield


def responses_of(attempts=3):
    design = SuiteDesign(attempts=attempts, missing="MCAR", missing_share=0.1)
    return simulate_suite(LLMS, ITEMS, design=design, seed=5).responses


def prepared(spec, law):
    responses = responses_of()
    estimate = fit_cbmm(responses, penalty=Priors(), loads=law.traits.loads)
    cells = tile_cells(responses.successes, responses.attempts, "float64", law)
    loads = jax.tree.map(jnp.asarray, loads_of(law.traits))
    return cells, jax.tree.map(jnp.asarray, estimate.parameters), loads


@cache
def case_of(name):
    spec = SPECS[name].settled(1)
    with jax.enable_x64(True):
        cells, parameters, loads = prepared(spec, law_of_items(spec, METADATA, ITEMS))
        mode = jax.device_get(find_trait_mode(spec, parameters, loads, cells))
        arrow = build_trait_arrow(spec, mode, cells)
    assert mode.change < 1e-3
    assert not arrow.repaired
    return Case(spec, cells, mode, arrow)


# Correlations


@pytest.mark.parametrize("number", [2, 3, 4])
def test_coordinates_of_correlations_are_numpyro_s(number):
    free = jnp.linspace(-0.8, 1.2, number * (number - 1) // 2 + 1)[1:]
    to_factor = dist.biject_to(dist.constraints.corr_cholesky)
    factor = to_factor(free)
    np.testing.assert_allclose(cholesky_of(free), factor, rtol=1e-12)
    np.testing.assert_allclose(free_correlations(factor @ factor.T), free, rtol=1e-9)
    assert count_traits(len(free)) == number
    for concentration in (1.0, 2.5):

        def wanted(at, concentration=concentration):
            law = dist.LKJCholesky(number, concentration)
            return law.log_prob(to_factor(at)) + to_factor.log_abs_det_jacobian(at, to_factor(at))

        apart = log_correlation_prior(free, concentration) - log_correlation_prior(0.3 * free, concentration)
        np.testing.assert_allclose(apart, wanted(free) - wanted(0.3 * free), rtol=1e-9)
        other = log_correlation_prior(free, 4.0) - log_correlation_prior(0.3 * free, 4.0)
        assert abs(float(other - apart)) > 0.1


# The density


@pytest.mark.parametrize("name", ["correlated", "crossed", "bifactor"])
def test_the_density_is_that_of_numpyro_s_model(name):
    """Up to the volume of the map, and of the raw abilities' location, which is integrated out."""
    case = case_of(name)
    spec, frame, num_traits = case.spec, case.mode.unit, case.mode.place.ability.shape[1]
    flat, restore = ravel_pytree(jax.tree.map(jnp.asarray, case.mode.place))
    arguments = (spec, LLMS, ITEMS, case.cells, None, frame.loads)

    @jax.jit
    def both(flat):
        place = restore(flat)
        ability = place.ability - place.ability.mean(axis=0)
        place = TraitPlace(ability / ability.std(axis=0), place.items, place.hyper)
        hyper = hyper_of_traits(spec, place.hyper, num_traits)
        slope = slopes_of(spec, place.items, frame)[frame.loads.item, frame.loads.slot]
        value, rise = (of(place.items[:, :-1]) for of in (link_of(spec).value, link_of(spec).rise))
        names = ("discrimination_scale", "easiness_location", "easiness_scale")
        sites = dict(zip(names, hyper.items, strict=True))
        sites |= {"discrimination": jnp.log(slope), "easiness": place.items[:, -1]}
        volume = jnp.sum(frame.used * jnp.log(rise / value)) - 0.5 * jnp.sum(
            (1 - frame.used) * place.items[:, :-1] ** 2
        )
        if spec.general:
            sites["ability_raw"] = place.ability
        else:
            sites["ability_raw"] = jnp.exp(hyper.spreads) * place.ability
            sites[TRAIT_CHOLESKY] = hyper.correlations
            volume += (LLMS - 1) * hyper.spreads.sum() + jnp.log(
                jnp.diag(cholesky_of(hyper.correlations))
            ).sum()
        model = volume - potential_energy(response_model, arguments, {}, sites)
        return log_trait_density(spec, place, frame, case.cells), model

    first = both(flat)
    for seed in range(3):
        moved = flat + 0.3 * jax.random.normal(jax.random.key(seed), flat.shape)
        density, model = (now - then for now, then in zip(both(moved), first, strict=True))
        assert abs(float(density)) > 1.0
        np.testing.assert_allclose(density, model, rtol=1e-9)


def test_location_and_scale_of_abilities_change_nothing_but_the_volume():
    case = case_of("crossed")
    place, frame = jax.tree.map(jnp.asarray, case.mode.place), case.mode.unit
    scale, location = jnp.array([1.3, 0.8]), jnp.array([0.4, -0.7])
    value = link_of(case.spec).value(place.items[:, :-1])
    of_slot = scale[frame.trait_of]
    u = link_of(case.spec).inverse(value / of_slot)
    slope = frame.used * frame.unit * link_of(case.spec).value(u)
    easiness = place.items[:, -1] - jnp.sum(slope * location[frame.trait_of], axis=1)
    items = jnp.column_stack([jnp.where(frame.used > 0, u, place.items[:, :-1]), easiness])
    moved = TraitPlace(place.ability * scale + location, items, place.hyper)
    before, after = (logits(parameters_of_traits(case.spec, at, frame)) for at in (place, moved))
    np.testing.assert_allclose(before, after, atol=1e-9)
    apart = log_trait_density(case.spec, moved, frame, case.cells) - log_trait_density(
        case.spec, place, frame, case.cells
    )
    # by u instead of the discrimination, which goes with the abilities' scale
    link = link_of(case.spec)
    by_u = jnp.sum(frame.used * (jnp.log(link.rise(u) * of_slot) - jnp.log(link.rise(place.items[:, :-1]))))
    volume = -(LLMS - 1) * jnp.log(scale).sum() + by_u
    np.testing.assert_allclose(apart, volume, rtol=1e-7)


# The dense matrix


class Parts(NamedTuple):
    """A case by its parts, the core as one vector: abilities trait by trait, then hyperparameters."""

    spec: ModelSpec
    place: TraitPlace
    num_traits: int
    number: int
    core: jax.Array

    @classmethod
    def of(cls, case):
        place = jax.tree.map(jnp.asarray, case.mode.place)
        core = jnp.concatenate([place.ability.T.ravel(), place.hyper])
        return cls(case.spec, place, place.ability.shape[1], place.ability.size, core)

    def split(self, core):
        ability, rest = core[: self.number].reshape(self.num_traits, LLMS).T, core[self.number :]
        return ability, hyper_of_traits(self.spec, rest, self.num_traits)

    @property
    def hyper(self):
        return self.split(self.core)[1]


def gauge_of(ability):
    location = ability.mean(axis=0)
    return jnp.concatenate([jnp.log(jnp.mean((ability - location) ** 2, axis=0)) / 2, location])


def law_of_abilities(parts, gauge, ability, found, information):
    """Return the abilities' own log density, expected over them as far as it depends on correlations."""
    number, spec, hyper = parts.num_traits, parts.spec, parts.hyper
    if spec.general:
        return -(LLMS - 1) * gauge[:number].sum()
    centred = (ability - gauge[number:]) / jnp.exp(gauge[:number])
    before, among = raw_precision(hyper), raw_precision(found)
    quadratic = 0.5 * jnp.sum((centred @ among) * centred)
    # the score by scale is that of items alone
    balance = jnp.diag(before @ parts.place.ability.T @ parts.place.ability) @ gauge[:number]
    spread, step = jnp.linalg.inv(information + before), among - before
    expected = 0.5 * jnp.sum(among * spread.sum(axis=0))
    free = (LLMS - 1) * (found.spreads.sum() - jnp.log(jnp.diag(cholesky_of(found.correlations))).sum())
    free += log_correlation_prior(found.correlations, spec.trait_concentration)
    lost = 0.25 * jnp.einsum("nkl,lm,nmp,pk->", spread, step, spread, step)
    return free - quadratic - balance - expected + lost


def core_block(case, covariance):
    """Return the core's precision with items known: that of the likelihood, and of what is expected."""
    parts, frame, cells = Parts.of(case), case.mode.unit, case.cells
    place, num_traits, number, hyper = parts.place, parts.num_traits, parts.number, parts.hyper
    by_item = covariance.reshape(ITEMS, place.items.shape[1], ITEMS, -1)
    blocks = jnp.asarray(by_item[np.arange(ITEMS), :, np.arange(ITEMS)])
    placed = TraitPlace(place.ability, place.items, hyper.items)
    terms = jax.jit(trait_outer_terms, static_argnums=0)(parts.spec, placed, frame, blocks, cells)
    # the linear part of what is unknown is in the couplings
    cross = items_by_outer(case, hyper)
    precision = terms.precision - terms.unknown + cross.T @ covariance @ cross

    def by_ability(flat):
        at = TraitPlace(flat.reshape(num_traits, LLMS).T, place.items, place.hyper)
        return log_likelihood(parameters_of_traits(parts.spec, at, frame), cells)

    of_llms = -jax.jit(jax.hessian(by_ability))(parts.core[:number])
    information = of_llms.reshape(num_traits, LLMS, num_traits, LLMS)[:, np.arange(LLMS), :, np.arange(LLMS)]

    def law(core):
        ability, found = parts.split(core)
        gauge = gauge_of(ability)
        apart = jnp.concatenate([gauge - gauge_of(place.ability), found.items - hyper.items])
        own = law_of_abilities(parts, gauge, ability, found, information)
        return terms.score @ apart - apart @ precision @ apart / 2 + own

    block = -np.array(jax.jit(jax.hessian(law))(parts.core))
    block[:number, :number] += of_llms
    return block


def dense_precision(case):
    """Return the precision of the core, then of the items."""
    parts, frame, cells = Parts.of(case), case.mode.unit, case.cells
    size = len(parts.core)

    def density(flat):
        ability = parts.split(flat[:size])[0]
        items = flat[size:].reshape(parts.place.items.shape)
        return log_trait_density(
            parts.spec, TraitPlace(ability, items, flat[parts.number : size]), frame, cells
        )

    flat = jnp.concatenate([parts.core, parts.place.items.ravel()])
    whole = -np.array(jax.jit(jax.hessian(density))(flat))
    whole[:size, :size] = core_block(case, np.linalg.inv(whole[size:, size:]))
    return whole


def within_planes(case, whole):
    """Return the covariance of what may move."""
    basis = linalg.block_diag(case.plane, np.eye(len(whole) - case.mode.place.ability.size))
    return basis @ np.linalg.solve(basis.T @ whole @ basis, basis.T)


def items_by_outer(case, hyper):
    """Return minus the mixed second derivatives of the items' prior by items, and by gauge and hyperparameters."""
    place, frame, num_traits = case.mode.place, case.mode.unit, case.mode.place.ability.shape[1]

    def prior(items, outer):
        gauge = outer[: 2 * num_traits].reshape(2, num_traits)
        items = items.reshape(place.items.shape)
        return log_prior_of_items(case.spec, items, frame, gauge, outer[2 * num_traits :]).sum()

    outer = jnp.concatenate([jnp.zeros(2 * num_traits), hyper.items])
    return -np.array(jax.jit(jax.jacfwd(jax.grad(prior), 1))(jnp.ravel(place.items), outer))


def covariance_of(case):
    """Return the arrow's covariance, one column per unit vector: core, then items."""
    shape, core = case.mode.place.items.shape, len(case.arrow.core_factor)
    columns = []
    for unit in np.eye(core + shape[0] * shape[1]):
        at_core, at_items = case.arrow.newton_step(unit[:core], unit[core:].reshape(shape))
        columns.append(np.concatenate([at_core, np.ravel(at_items)]))
    return np.stack(columns, axis=1)


def assert_same_covariance(found, wanted, tolerance=1e-6):
    sd = np.sqrt(np.diag(wanted))
    np.testing.assert_allclose(found / np.outer(sd, sd), wanted / np.outer(sd, sd), atol=tolerance)


@pytest.mark.parametrize("name", ["correlated", "crossed", "bifactor"])
def test_the_covariance_is_the_dense_inverse(name):
    case = case_of(name)
    whole = dense_precision(case)
    found, wanted = covariance_of(case), within_planes(case, whole)
    assert_same_covariance(found, wanted)
    number = len(case.arrow.core_factor)
    np.testing.assert_allclose(case.arrow.core_sd(), np.sqrt(np.diag(wanted)[:number]), rtol=1e-6)
    np.testing.assert_allclose(found, found.T, atol=1e-9)
    whole[0, 0] *= 1.01
    with pytest.raises(AssertionError):
        assert_same_covariance(found, within_planes(case, whole), 1e-4)


@pytest.mark.parametrize("name", ["crossed", "dispersed"])
def test_draws_have_the_covariance_of_newton_s_step(name):
    """False alarm: below 1e-3, of about 2,000 entries at 5.5 standard errors."""
    case, number = case_of(name), 20_000
    core, items = case.arrow.draw(np.random.default_rng(0), number)
    draws = np.concatenate([core, items.reshape(number, -1)], axis=1)
    wanted = covariance_of(case)
    variance = np.diag(wanted)

    def largest(draws):
        error = np.sqrt((np.outer(variance, variance) + wanted**2) / number)
        return float(np.max(np.abs(np.cov(draws, rowvar=False) - wanted) / error))

    assert largest(draws) < 5.5
    assert largest(1.05 * draws) > 5.5


# One trait


@pytest.mark.parametrize("general", [False, True])
def test_one_trait_has_the_mode_and_covariance_of_the_plain_model(general):
    """With and without a law of the raw abilities' spread, which says nothing of one trait."""
    spec, plain = ModelSpec(traits="subject", general=general).settled(1), ModelSpec().settled(1)
    law = ItemLaw(None, None, None, traits=ItemTraits(("one",), np.ones((ITEMS, 1), dtype=bool)))
    cells, parameters, loads = prepared(spec, law)
    mode, known = find_trait_mode(spec, parameters, loads, cells), find_mode(plain, parameters, cells)
    np.testing.assert_allclose(mode.place.ability[:, 0], known.place.ability, atol=1e-3)
    np.testing.assert_allclose(mode.place.items, known.place.items, atol=3e-3)
    np.testing.assert_allclose(mode.place.hyper[:3], known.place.hyper, atol=3e-3)
    one, arrow = build_trait_arrow(spec, mode, cells), build_arrow(plain, known, cells)
    np.testing.assert_allclose(one.core_sd()[: LLMS + 3], arrow.core_sd(), rtol=5e-3)
    rng = np.random.default_rng(1)
    core, items = rng.standard_normal(LLMS + 3), rng.standard_normal((ITEMS, 2))
    padded = np.concatenate([core, np.zeros(len(one.core_factor) - len(core))])
    for found, wanted in zip(one.newton_step(padded, items), arrow.newton_step(core, items), strict=True):
        np.testing.assert_allclose(found[: len(wanted)], wanted, atol=0.02 * np.abs(wanted).max())
