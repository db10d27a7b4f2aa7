"""The mode: where its own equations say, finite for awkward data; and the mixing that leads to it.

One shape, 20 LLMs x 60 items, serves most tests. What is checked at the mode is written out cell by cell.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.special import expit
from test_nuts import suite_with_five_answers

from bayes_irt.cbmm import fit_cbmm
from bayes_irt.estimate import PointEstimate
from bayes_irt.inference.item_coordinates import as_parameters, inverse_of_pairs, item_terms, link_of
from bayes_irt.inference.mode import Mode, Place, find_mode
from bayes_irt.inference.outer_terms import outer_terms
from bayes_irt.likelihood import cell_sums, tile_cells
from bayes_irt.mixing import Mixing
from bayes_irt.model_spec import ModelSpec
from bayes_irt.parameters import Parameters
from bayes_irt.priors import LearnedLocation, LearnedScale, LogNormal, Priors, TruncatedNormal
from bayes_irt.responses import Responses
from bayes_irt.simulate import SuiteDesign, simulate_suite

LLMS, ITEMS = 20, 60
HALF_NORMAL, LOG_NORMAL = ModelSpec(), ModelSpec(Priors(LogNormal()))
both_families = pytest.mark.parametrize("spec", [HALF_NORMAL, LOG_NORMAL], ids=["half-normal", "log-normal"])


class Case(NamedTuple):
    responses: Responses
    estimate: PointEstimate


@pytest.fixture(autouse=True)
def _x64():
    with jax.enable_x64(True):
        yield


def case_of(responses):
    return Case(responses, fit_cbmm(responses, penalty=Priors()))


def mode_of(case, spec=HALF_NORMAL, estimate=None, **options):
    parameters = case.estimate.parameters if estimate is None else estimate
    cells = tile_cells(case.responses.successes, case.responses.attempts)
    return jax.device_get(find_mode(spec, jax.tree.map(jnp.asarray, parameters), cells, **options))


@pytest.fixture(scope="module")
def regular():
    with jax.enable_x64(False):
        return case_of(simulate_suite(LLMS, ITEMS, seed=3).responses)


# At the mode


@jax.jit
def item_equations(place, unit, cells):
    """Return the items' score, covariance and what they say about the hyperparameters, all tested elsewhere."""
    sums = cell_sums(as_parameters(HALF_NORMAL, place.ability, place.items, unit), cells, curvature="fisher")
    score, precision = item_terms(HALF_NORMAL, place.items, unit, place.hyper, sums)
    covariance = inverse_of_pairs(precision)
    return score, covariance, outer_terms(HALF_NORMAL, place.items, unit, covariance, place.hyper)


def equations(place, unit, responses):
    """Return what must be zero at the mode, in posterior sds: items, hyperparameters, abilities within the plane."""
    cells = tile_cells(responses.successes, responses.attempts)
    score, covariance, terms = jax.device_get(item_equations(place, unit, cells))
    items = np.einsum("jkl,jl->jk", covariance, score) / np.sqrt(np.einsum("jkk->jk", covariance))
    hyper = terms.score[2:] / np.sqrt(np.diag(terms.precision)[2:])
    # each LLM's score expected over the items, cell by cell
    link = link_of(HALF_NORMAL)
    slope, rise = (unit * np.asarray(function(place.items[:, 0])) for function in (link.value, link.rise))
    eta = place.ability[:, None] * slope + place.items[:, 1]
    cell_score = responses.successes - responses.attempts * expit(eta)
    weight = responses.attempts * expit(eta) * expit(-eta)
    var, mixed = rise**2 * covariance[:, 0, 0], rise * covariance[:, 0, 1]
    expected = cell_score @ slope - place.ability * (weight @ var) - weight @ mixed
    expected = expected - expected.mean() - place.ability
    # what is left of it leaves the plane: along information x (theta, 1)
    information = 1 + weight @ (slope**2 + var)
    normals = information[:, None] * np.stack([place.ability, np.ones(len(place.ability))], axis=1)
    within = expected - normals @ np.linalg.lstsq(normals, expected, rcond=None)[0]
    return {"items": items, "hyper": hyper, "abilities": within / np.sqrt(information)}


def test_the_mode_solves_its_equations(regular):
    mode = mode_of(regular, tolerance=1e-5)
    assert mode.converged
    assert mode.change < 1e-5
    assert mode.cycles <= 40
    place, unit = mode.place, mode.unit
    np.testing.assert_allclose([place.ability.mean(), place.ability.std()], [0, 1], atol=1e-12)
    assert len(place.hyper) == len(HALF_NORMAL.hyperparameters)
    for name, value in equations(place, unit, regular.responses).items():
        assert np.abs(value).max() < 1e-3, name
    # controls: a little away the equations notice
    moved = {
        "items": Place(place.ability, place.items + 0.05, place.hyper),
        "hyper": Place(place.ability, place.items, place.hyper + 0.05),
        "abilities": Place(place.ability + 0.1 * np.eye(LLMS)[3], place.items, place.hyper),
    }
    for name, other in moved.items():
        assert np.abs(equations(other, unit, regular.responses)[name]).max() > 0.02


def test_few_cycles_are_enough(regular):
    for seed in range(6):
        case = regular if seed == 0 else case_of(simulate_suite(LLMS, ITEMS, seed=10 + seed).responses)
        mode = mode_of(case)
        assert mode.converged
        assert mode.cycles <= 15


def test_the_mode_hardly_depends_on_where_the_search_starts(regular):
    """Only by the items' units: another estimate takes others, in which items are a little less or more normal."""
    mode = mode_of(regular)
    estimate = regular.estimate.parameters
    rng = np.random.default_rng(0)
    ability = estimate.ability + 0.5 * rng.normal(size=(LLMS, 1))
    elsewhere = Parameters(
        (ability - ability.mean()) / ability.std(),
        0.5 * np.asarray(estimate.discrimination),
        np.asarray(estimate.easiness) + 0.5 * rng.normal(size=ITEMS),
    )
    again = mode_of(regular, estimate=elsewhere)
    np.testing.assert_allclose(again.place.ability, mode.place.ability, atol=0.03)
    np.testing.assert_allclose(again.place.hyper, mode.place.hyper, atol=0.05)


def test_permuting_llms_and_items_permutes_the_mode(regular):
    rng = np.random.default_rng(1)
    llms, items = rng.permutation(LLMS), rng.permutation(ITEMS)
    responses = regular.responses
    moved = case_of(
        Responses.from_arrays(responses.successes[llms][:, items], responses.attempts[llms][:, items])
    )
    before, after = mode_of(regular), mode_of(moved)
    np.testing.assert_allclose(after.place.ability, before.place.ability[llms], atol=2e-3)
    np.testing.assert_allclose(after.place.items[:, 1], before.place.items[items, 1], atol=2e-3)


def test_a_search_that_is_cut_short_says_so():
    place = Place(np.zeros(2), np.zeros((2, 2)), np.zeros(3))
    assert Mode(place, np.ones(2), 9e-4, 5).converged
    assert not Mode(place, np.ones(2), 2e-3, 200).converged
    assert not Mode(place, np.ones(2), np.nan, 1).converged


# Awkward data


def awkward():
    """Return name to responses of 20 LLMs x 60 items."""
    suite = simulate_suite(LLMS, ITEMS, design=SuiteDesign(discrimination_scale=2.0), seed=1)
    right = suite.responses.successes.astype(int)
    strong = int(np.argmax(suite.truth.discrimination[:, 0]))
    names = ("reversed", "constant", "one answer", "missing", "guessed")
    cases = {name: (right.copy(), np.ones_like(right)) for name in names}
    cases["reversed"][0][:, strong] = 1 - right[:, strong]
    successes, _ = cases["constant"]
    successes[:, :3], successes[:, 3:6] = 1, 0
    successes[0], successes[1] = 1, 0
    attempts = cases["one answer"][1]
    attempts[0, 1:] = 0
    attempts[1:, 0] = 0
    attempts = cases["missing"][1]
    attempts[:] = np.random.default_rng(0).random(attempts.shape) > 0.6
    attempts[np.arange(LLMS), np.arange(LLMS)] = attempts[0] = 1
    cases["guessed"][0][:] = np.random.default_rng(2).random(right.shape) < 0.5
    return strong, {
        name: Responses.from_arrays(successes * attempts, attempts)
        for name, (successes, attempts) in cases.items()
    }


STRONG, AWKWARD = awkward()


def assert_sane(mode, spec, num_llms):
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(mode.place))
    np.testing.assert_allclose([mode.place.ability.mean(), mode.place.ability.std()], [0, 1], atol=1e-12)
    assert np.abs(mode.place.ability).max() < min(4.0, np.sqrt(num_llms))
    parameters = as_parameters(spec, mode.place.ability, mode.place.items, mode.unit)
    assert (parameters.discrimination > 0).all()
    assert parameters.discrimination.max() < 30
    assert np.abs(parameters.easiness).max() < 15
    assert np.abs(mode.place.hyper).max() < 5


@both_families
@pytest.mark.parametrize("name", AWKWARD)
def test_awkward_data_have_a_mode(name, spec):
    mode = mode_of(case_of(AWKWARD[name]), spec)
    assert_sane(mode, spec, LLMS)
    assert mode.converged
    slopes = mode.unit * np.asarray(link_of(spec).value(mode.place.items[:, 0]))
    if name == "reversed":
        assert slopes[STRONG] < 0.5 * np.median(slopes)
    if name == "constant":
        assert mode.place.ability[0] == mode.place.ability.max()
        assert mode.place.ability[1] == mode.place.ability.min()
        assert mode.place.items[:3, 1].min() > 1 > -1 > mode.place.items[3:6, 1].max()
    if name == "one answer":
        assert abs(mode.place.ability[0]) < 1


def test_an_estimate_of_equal_abilities_will_do(regular):
    estimate = regular.estimate.parameters
    equal = Parameters(np.zeros((LLMS, 1)), np.zeros((ITEMS, 1)), np.asarray(estimate.easiness))
    mode = mode_of(regular, estimate=equal)
    assert_sane(mode, HALF_NORMAL, LLMS)
    np.testing.assert_allclose(mode.place.ability, mode_of(regular).place.ability, atol=0.03)


@pytest.mark.parametrize("number", [2, 3])
def test_two_and_three_llms_have_a_mode(number):
    case = case_of(simulate_suite(number, 20, seed=2).responses)
    assert_sane(mode_of(case), HALF_NORMAL, number)
    same = case_of(Responses.from_arrays(np.tile(case.responses.successes[:1], (number, 1))))
    assert np.ptp(same.estimate.parameters.ability) < 1e-12
    assert_sane(mode_of(same), HALF_NORMAL, number)


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_an_llm_with_five_answers_is_not_thrown_outwards(seed):
    """On the sphere alone the densest point has it far out and all others in a heap."""
    truth, responses = suite_with_five_answers(29, 2000, seed)
    mode = mode_of(case_of(responses))
    assert mode.converged
    assert abs(mode.place.ability[0]) < 1.5
    others = mode.place.ability[1:]
    assert np.corrcoef(others, truth.ability[1:, 0])[0, 1] > 0.98
    assert 0.8 < others.std() / truth.ability[1:, 0].std() < 1.2


# Mixing


def errors_of(mapped, steps, mixing=None, size=4):
    """Return the distances from the fixed point 0 of an iteration, mixed or plain."""
    place, found = np.ones(size), []
    for _ in range(steps):
        end = mapped(place)
        mixed = None if mixing is None else mixing.mix(place, end, np.ones(size))
        place = end if mixed is None else mixed
        found.append(np.abs(place).max())
    return np.array(found)


def test_mixing_ends_a_linear_iteration_after_as_many_steps_as_it_has_dimensions():
    rng = np.random.default_rng(0)
    vectors = np.linalg.qr(rng.normal(size=(4, 4)))[0]
    matrix = (vectors * [0.98, -0.9, 0.6, 0.1]) @ vectors.T
    mixed, plain = errors_of(lambda x: matrix @ x, 7, Mixing()), errors_of(lambda x: matrix @ x, 7)
    assert mixed[-1] < 1e-8 < 0.1 < plain[-1]


def test_mixing_hastens_a_bent_iteration():
    mixed = errors_of(lambda x: 0.95 * np.sin(x), 12, Mixing())
    plain = errors_of(lambda x: 0.95 * np.sin(x), 12)
    assert mixed[-1] < 1e-3 < 0.1 < plain[-1]


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_numbers_that_are_not_finite_are_not_mixed(bad):
    mixing = Mixing()
    assert (
        mixing.mix(np.ones(2), 0.5 * np.ones(2), np.ones(2)) is None
    )  # the first step has nothing to mix with
    assert mixing.mix(np.ones(2), np.array([0.3, bad]), np.ones(2)) is None
    assert len(mixing.history) == 1
    assert mixing.mix(0.5 * np.ones(2), 0.25 * np.ones(2), np.array([1.0, abs(bad)])) is None
    mixed = mixing.mix(0.25 * np.ones(2), 0.125 * np.ones(2), np.ones(2))
    np.testing.assert_allclose(mixed, 0, atol=1e-12)


def test_mixing_remembers_a_few_steps_and_forgets_on_request():
    mixing = Mixing()
    for number in range(9):
        mixing.mix(np.array([float(number)]), np.array([0.5]), np.ones(1))
    assert [place[0] for place, _ in mixing.history] == [3, 4, 5, 6, 7, 8]
    mixing.forget()
    assert [place[0] for place, _ in mixing.history] == [6, 7, 8]
    mixing.forget(all_of_it=True)
    assert not mixing.history
    assert mixing.mix(np.ones(1), np.ones(1), np.ones(1)) is None


def test_a_narrow_prior_far_from_some_items_has_a_mode(regular):
    """Half of the items start a long way below what the prior all but insists on."""
    spec = ModelSpec(Priors(TruncatedNormal(LearnedLocation(3.0, 0.3), LearnedScale(0.3, 0.2))))
    mode = mode_of(regular, spec)
    assert_sane(mode, spec, LLMS)
    assert mode.converged
