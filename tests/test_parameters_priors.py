"""Parameters, their table of dims, and priors: printable data that refuse nonsense."""

import dataclasses

import jax
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bayes_irt.errors import InvalidConfigurationError
from bayes_irt.model_spec import ModelSpec
from bayes_irt.parameters import DIMS, Parameters, difficulty, logits
from bayes_irt.priors import (
    HalfNormal,
    LearnedLocation,
    LearnedScale,
    LogNormal,
    Normal,
    Penalty,
    Priors,
    penalty_from_priors,
)


def random_parameters(batch=(), traits=2, seed=0):
    rng = np.random.default_rng(seed)
    return Parameters(
        rng.normal(size=(*batch, 5, traits)), rng.random((*batch, 4, traits)), rng.normal(size=(*batch, 4))
    )


@pytest.mark.parametrize("traits", [1, 3])
@pytest.mark.parametrize("batch", [(), (2, 3)])
def test_logits_by_loop(batch, traits):
    parameters = random_parameters(batch, traits)
    with jax.enable_x64(True):
        found = np.asarray(logits(parameters))
    assert found.shape == (*batch, 5, 4)
    for place in np.ndindex(batch):
        for i in range(5):
            for j in range(4):
                products = parameters.ability[*place, i] * parameters.discrimination[*place, j]
                wanted = products.sum() + parameters.easiness[*place, j]
                assert found[*place, i, j] == pytest.approx(wanted, rel=1e-12)


def test_sizes_are_those_of_the_last_dims():
    parameters = random_parameters((2, 3), traits=3)
    assert (parameters.num_llms, parameters.num_items, parameters.num_traits) == (5, 4, 3)


def test_parameters_are_a_frozen_pytree():
    parameters = random_parameters()
    doubled = jax.tree.map(lambda leaf: 2 * leaf, parameters)
    assert isinstance(doubled, Parameters)
    np.testing.assert_array_equal(doubled.easiness, 2 * parameters.easiness)
    assert len(jax.tree.leaves(parameters)) == 3
    with pytest.raises(dataclasses.FrozenInstanceError):
        parameters.easiness = np.zeros(4)


@settings(deadline=None)
@given(st.integers(1, 3), st.integers(0, 2**32 - 1))
def test_at_its_difficulty_along_its_slope_half_of_the_answers_are_right(traits, seed):
    parameters = random_parameters((), traits, seed)
    direction = parameters.discrimination / np.linalg.norm(parameters.discrimination, axis=1, keepdims=True)
    ability = difficulty(parameters)[:, None] * direction
    with jax.enable_x64(True):
        at = logits(Parameters(ability, parameters.discrimination, parameters.easiness))
    np.testing.assert_allclose(np.diagonal(at), 0, atol=1e-9)


def test_difficulty_is_undefined_without_slope_and_harder_where_easiness_falls():
    items = Parameters(
        np.zeros((2, 1, 1)), np.array([[[2.0], [0.0]], [[0.5], [4.0]]]), np.array([[1.0, 1.0], [-1.0, 2.0]])
    )
    np.testing.assert_array_equal(difficulty(items), [[-0.5, np.nan], [2.0, -0.5]])


def test_every_learned_quantity_has_dims():
    for priors in (Priors(), Priors(discrimination=LogNormal())):
        assert set(ModelSpec(priors).hyperparameters) <= {name for name, dims in DIMS.items() if not dims}
    everything = ModelSpec(observation="beta-binomial", llm_groups="family", item_groups="repo")
    assert set(everything.hyperparameters) <= set(DIMS)
    assert set(ModelSpec(traits="subject").hyperparameters) <= set(DIMS)
    assert {f.name for f in dataclasses.fields(Parameters)} <= set(DIMS)
    assert {dim for dims in DIMS.values() for dim in dims} == {
        *("llm", "item", "trait", "trait_pair"),
        *("dispersion_group", "item_group"),
    }


def test_models_with_equal_priors_are_equal_and_hashable():
    """Compiled programs are kept per model."""
    assert hash(ModelSpec()) == hash(ModelSpec(Priors(HalfNormal(), Normal())))
    assert ModelSpec() == ModelSpec(Priors())
    assert ModelSpec() != ModelSpec(Priors(discrimination=LogNormal()))
    assert ModelSpec() != ModelSpec(Priors(HalfNormal(LearnedScale(median=2.0))))


def test_log_normal_discriminations_learn_a_location_too():
    assert ModelSpec().hyperparameters == ("discrimination_scale", "easiness_location", "easiness_scale")
    assert ModelSpec(Priors(LogNormal())).hyperparameters == (
        "discrimination_location",
        "discrimination_scale",
        "easiness_location",
        "easiness_scale",
    )


def test_penalty_is_the_priors_at_their_medians():
    priors = Priors(HalfNormal(LearnedScale(3.0, 0.5)), Normal(LearnedLocation(-1.0), LearnedScale(4.0)))
    assert penalty_from_priors(priors) == Penalty(1.0, 3.0, -1.0, 4.0)
    with pytest.raises(InvalidConfigurationError, match=r"LogNormal.*HalfNormal"):
        penalty_from_priors(Priors(LogNormal()))


@pytest.mark.parametrize("value", [0.0, -1.0, float("nan"), float("inf")])
@pytest.mark.parametrize(
    ("prior", "name"),
    [
        (LearnedScale, "median"),
        (LearnedScale, "log_sd"),
        (LearnedLocation, "sd"),
        (Penalty, "ability_scale"),
        (Penalty, "discrimination_scale"),
        (Penalty, "easiness_scale"),
    ],
)
def test_scales_must_be_positive(prior, name, value):
    with pytest.raises(
        InvalidConfigurationError, match=rf"{prior.__name__}\.{name} is .*must be a (positive|number between)"
    ):
        prior(**{name: value})


@pytest.mark.parametrize("value", [float("nan"), float("-inf")])
@pytest.mark.parametrize(("prior", "name"), [(LearnedLocation, "mean"), (Penalty, "easiness_location")])
def test_locations_must_be_finite(prior, name, value):
    with pytest.raises(InvalidConfigurationError, match=rf"{prior.__name__}\.{name} is .*finite"):
        prior(**{name: value})
    assert prior(**{name: -3.0})


def test_priors_print_as_the_call_that_makes_them():
    priors = Priors(LogNormal(LearnedLocation(0.5, 1.0)), Normal(scale=LearnedScale(2.5)))
    assert eval(repr(priors)) == priors
