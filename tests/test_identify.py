"""The gauge: logits never move, draws are handled one by one; and what is separated, by hand-made cases."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy.optimize import linprog

from bayes_irt.identify import canonicalize, separated_items, separated_llms
from bayes_irt.parameters import Parameters

VALUE = st.floats(-100, 100, allow_subnormal=False).map(lambda x: round(x, 3))


@st.composite
def any_parameters(draw):
    batch = draw(st.sampled_from([(), (2,), (2, 3)]))
    llms, items, traits = draw(st.integers(2, 5)), draw(st.integers(1, 4)), draw(st.integers(1, 3))
    slopes = draw(arrays(float, (*batch, items, traits), elements=VALUE))
    return Parameters(
        draw(arrays(float, (*batch, llms, traits), elements=VALUE)),
        np.abs(slopes),
        draw(arrays(float, (*batch, items), elements=VALUE)),
    )


def dense_logits(parameters):
    slope_part = np.einsum("...nk,...jk->...nj", parameters.ability, parameters.discrimination)
    return slope_part + parameters.easiness[..., None, :]


def scale_of(parameters):
    """Return how large the terms of a logit get: the yardstick of rounding."""
    size = jax.tree.map(lambda leaf: np.abs(leaf).max(), parameters)
    return 1.0 + size.ability * size.discrimination + size.easiness


@settings(deadline=None)
@given(any_parameters())
def test_logits_stay_and_the_gauge_is_canonical(parameters):
    canonical = canonicalize(parameters)
    rounding = 1e-12 * scale_of(parameters)
    np.testing.assert_allclose(dense_logits(canonical), dense_logits(parameters), rtol=0, atol=rounding)
    spread = canonical.ability.std(axis=-2)
    assert np.all((np.abs(spread - 1) < 1e-9) | (spread == 0))
    np.testing.assert_allclose(canonical.ability.mean(axis=-2), 0, atol=1e-9)
    strength = np.square(canonical.discrimination).sum(axis=-2)
    assert (np.diff(strength, axis=-1) <= 0).all()
    assert (canonical.discrimination >= 0).all()


@settings(deadline=None)
@given(any_parameters())
def test_twice_is_once(parameters):
    once = canonicalize(parameters)
    twice = canonicalize(once)
    rounding = 1e-9 * scale_of(parameters)
    for name in ("ability", "discrimination", "easiness"):
        np.testing.assert_allclose(getattr(twice, name), getattr(once, name), rtol=0, atol=rounding)


@settings(deadline=None)
@given(any_parameters())
def test_draws_are_handled_one_by_one(parameters):
    together = canonicalize(parameters)
    for place in np.ndindex(parameters.ability.shape[:-2]):
        alone = canonicalize(jax.tree.map(lambda leaf, place=place: leaf[place], parameters))
        jax.tree.map(
            lambda one, all_, place=place: np.testing.assert_allclose(one, all_[place], rtol=1e-9, atol=1e-9),
            alone,
            together,
        )


@settings(deadline=None, max_examples=50)
@given(st.floats(0.1, 10), st.floats(-10, 10), st.integers(0, 2**32 - 1))
def test_every_gauge_leads_to_the_same_parameters(scale, location, seed):
    rng = np.random.default_rng(seed)
    ability, slope, easiness = rng.normal(size=(6, 1)), rng.exponential(1, (4, 1)), rng.normal(size=4)
    moved = Parameters((ability - location) / scale, slope * scale, easiness + slope[:, 0] * location)
    jax.tree.map(
        lambda a, b: np.testing.assert_allclose(a, b, atol=1e-10),
        canonicalize(moved),
        canonicalize(Parameters(ability, slope, easiness)),
    )


@pytest.mark.parametrize("value", [0.0, 0.1, -0.3, 1 / 3, 1e6 + 0.1])
@pytest.mark.parametrize("llms", [3, 10, 140])
def test_equal_abilities_become_zero(value, llms):
    """Also where the mean of equal numbers is not exactly that number."""
    parameters = Parameters(np.full((llms, 1), value), np.array([[2.0], [0.0]]), np.array([0.5, -1.0]))
    canonical = canonicalize(parameters)
    np.testing.assert_array_equal(canonical.ability, 0.0)
    np.testing.assert_allclose(canonical.discrimination, parameters.discrimination)
    np.testing.assert_allclose(dense_logits(canonical), dense_logits(parameters), rtol=1e-12)


def test_traits_come_by_strength_with_their_abilities():
    ability = np.array([[1.0, -1.0, 0.0], [-1.0, 1.0, 3.0], [0.0, 3.0, 1.0]])
    discrimination = np.array([[0.1, 2.0, 1.0], [0.1, 3.0, 1.0]])
    canonical = canonicalize(Parameters(ability, discrimination, np.zeros(2)))
    order = [1, 2, 0]
    spread = ability.std(axis=0)
    np.testing.assert_allclose(canonical.discrimination, (discrimination * spread)[:, order])
    np.testing.assert_allclose(canonical.ability, ((ability - ability.mean(axis=0)) / spread)[:, order])


def test_numpy_stays_numpy_and_jax_stays_jax():
    rng = np.random.default_rng(1)
    parameters = Parameters(rng.normal(size=(2, 5, 2)), rng.random((2, 4, 2)), rng.normal(size=(2, 4)))
    canonical = canonicalize(parameters)
    assert all(isinstance(leaf, np.ndarray) for leaf in jax.tree.leaves(canonical))
    with jax.enable_x64(True):
        in_jax = jax.jit(canonicalize)(jax.tree.map(jnp.asarray, parameters))
    assert all(isinstance(leaf, jax.Array) for leaf in jax.tree.leaves(in_jax))
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-12, atol=1e-12), canonical, in_jax)


def test_single_precision_equal_abilities_become_zero():
    canonical = canonicalize(
        Parameters(np.full((7, 1), 0.1, np.float32), np.ones((2, 1), np.float32), np.zeros(2, np.float32))
    )
    np.testing.assert_array_equal(canonical.ability, 0.0)
    assert canonical.ability.dtype == np.float32


LINE = np.array([[-1.5], [-0.5], [0.5], [1.5]])
HAND_MADE = {
    "all right": ([1, 1, 1, 1], [1, 1, 1, 1], True),
    "all wrong": ([0, 0, 0, 0], [1, 1, 1, 1], True),
    "threshold": ([0, 0, 1, 1], [1, 1, 1, 1], True),
    "best only": ([0, 0, 0, 1], [1, 1, 1, 1], True),
    "one slip": ([0, 1, 0, 1], [1, 1, 1, 1], False),
    "reversed": ([1, 1, 0, 0], [1, 1, 1, 1], False),
    "slip is missing": ([0, 0, 0, 1], [1, 1, 0, 1], True),
    "right where seen": ([0, 0, 1, 1], [0, 0, 1, 1], True),
    "counts touch": ([0, 0, 1, 3], [3, 3, 3, 3], True),
    "counts overlap": ([0, 1, 1, 3], [3, 3, 3, 3], False),
    "one cell, some right": ([0, 0, 1, 0], [0, 0, 2, 0], False),
    "one cell, all right": ([0, 0, 2, 0], [0, 0, 2, 0], True),
}


@pytest.mark.parametrize("traits", [1, 2])
@pytest.mark.parametrize("case", HAND_MADE)
def test_separated_items_by_hand(case, traits):
    """With a second trait on which all are equal, what is separated stays the same."""
    successes, attempts, wanted = HAND_MADE[case]
    ability = LINE if traits == 1 else np.column_stack([LINE, np.zeros(4)])
    counts = np.array([successes, attempts])[:, :, None]
    assert separated_items(ability, *counts).tolist() == [wanted]


def test_llms_of_equal_ability_that_disagree_separate_nothing():
    ability = np.array([[0.7], [0.7], [-0.7]])
    successes, attempts = np.array([[1], [0], [0]]), np.array([[1], [1], [0]])
    assert separated_items(ability, successes, attempts).tolist() == [False]
    assert separated_items(np.column_stack([ability, ability]), successes, attempts).tolist() == [False]
    attempts[2] = 1
    assert separated_items(ability, successes, attempts).tolist() == [True]


def test_items_separated_by_two_traits_only():
    ability = np.array([[-1.0, -1.0], [1.0, -1.0], [-1.0, 1.0], [1.0, 1.0]])
    successes = np.array([[0, 0, 0, 1], [0, 1, 1, 1], [0, 1, 1, 0], [1, 1, 0, 0]])
    attempts = np.ones((4, 4), dtype=int)
    # both needed; either suffices; neither helps; the weak win: a slope below 0 would be needed
    assert separated_items(ability, successes, attempts).tolist() == [True, True, False, False]


def test_separated_llms_by_hand():
    discrimination = np.array([[1.0], [2.0], [0.0]])
    successes = np.array([[1, 1, 0], [0, 0, 1], [1, 0, 1], [1, 0, 0], [2, 3, 0]])
    attempts = np.array([[1, 1, 1], [1, 1, 1], [1, 1, 1], [1, 0, 1], [3, 3, 0]])
    assert separated_llms(discrimination, successes, attempts).tolist() == [True, True, False, True, False]


def test_llms_separated_by_two_traits_only():
    discrimination = np.array([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]])
    successes = np.array([[1, 0, 1], [1, 0, 0], [1, 1, 0], [1, 1, 1], [1, 0, 1]])
    attempts = np.array([[1, 1, 1], [1, 1, 1], [1, 1, 1], [1, 1, 1], [2, 1, 1]])
    # good at the first trait only: (+, 0); the same but for (+, -); right on both but wrong on their sum: overlap;
    # all right; (0, -) still raises the likelihood of the second answer but lowers that of the third
    wanted = [True, True, False, True, False]
    assert separated_llms(discrimination, successes, attempts).tolist() == wanted


def improves(right, wrong, bounds):
    """Say whether some direction makes no answer less likely and some likelier, by linear programming."""
    rows = np.concatenate([right, -wrong])
    found = linprog(-rows.sum(axis=0), A_ub=-rows, b_ub=np.zeros(len(rows)), bounds=bounds)
    return -found.fun > 1e-9


@pytest.mark.parametrize("seed", range(20))
def test_items_on_one_trait_each_are_separated_as_a_linear_programme_says(seed):
    """Few answers, some of them missing: about half of all items and LLMs are separated."""
    rng = np.random.default_rng(seed)
    ability, loads = rng.normal(size=(6, 2)).round(1), np.arange(6)[:, None] % 2 == np.arange(2)
    attempts = rng.integers(0, 3, size=(6, 6))
    successes = np.minimum(attempts, rng.integers(0, 3, size=(6, 6)))
    right, wrong = successes > 0, attempts > successes
    features = np.column_stack([ability, np.ones(6)])
    constant = ~right.any(axis=0) | ~wrong.any(axis=0)
    items = [
        constant[j]
        or improves(
            features[right[:, j]],
            features[wrong[:, j]],
            [*((0.0, float(may)) for may in loads[j]), (None, None)],
        )
        for j in range(6)
    ]
    assert separated_items(ability, successes, attempts, loads).tolist() == items
    slopes = loads * rng.uniform(0.5, 2.0, size=(6, 2))
    empty = ~right.any(axis=1) | ~wrong.any(axis=1)
    llms = [empty[i] or improves(slopes[right[i]], slopes[wrong[i]], [(-1.0, 1.0)] * 2) for i in range(6)]
    assert separated_llms(slopes, successes, attempts).tolist() == llms


@pytest.mark.parametrize("ties", [False, True])
def test_many_llms_are_split_as_few_are(ties):
    """Against the definition, item by item; the threshold items are those that a few rows cannot settle."""
    rng = np.random.default_rng(8)
    llms, items = 1300, 60
    ability = np.round(rng.normal(size=llms), 3 if ties else 12)
    attempts = (rng.random((llms, items)) < 0.9).astype(int)
    successes = attempts * (
        rng.random((llms, items)) < 1 / (1 + np.exp(-6 * (ability[:, None] + rng.normal(size=items))))
    )
    successes[:, :8] = attempts[:, :8] * (ability[:, None] >= np.linspace(-3, 3, 8))
    successes[:, 8], successes[:, 9] = attempts[:, 8], 0
    successes[np.argmax(ability), 7] ^= attempts[np.argmax(ability), 7]
    found = separated_items(ability[:, None], successes, attempts)

    def split(j):
        right, wrong = ability[successes[:, j] > 0], ability[attempts[:, j] > successes[:, j]]
        if len(right) == 0 or len(wrong) == 0:
            return True
        return right.min() >= wrong.max() and right.max() > wrong.min()

    wanted = np.array([split(j) for j in range(items)])
    np.testing.assert_array_equal(found, wanted)
    assert 5 < wanted.sum() < 20
