"""`ModelSpec`: what it has, what it refuses, how "auto" is decided, its way through JSON, which engine fits what."""

import json
from dataclasses import replace

import pandas as pd
import pytest

from bayes_irt.errors import InvalidConfigurationError
from bayes_irt.fitting import FitPlan, fit_run
from bayes_irt.inference.laplace import fit_laplace
from bayes_irt.model_spec import ModelSpec, restored_spec
from bayes_irt.priors import Common, LearnedLocation, LearnedScale, LearnedShare, LogNormal, Priors
from bayes_irt.provenance import plain
from bayes_irt.responses import Responses
from bayes_irt.simulate import simulate_suite

SHARE, SCALE = LearnedShare(2.0, 5.0), LearnedScale(0.3, 0.5)
FULL = ModelSpec(
    Priors(LogNormal()),
    llm_groups="family",
    ability_share=SHARE,
    floor=LearnedShare(2.0, 8.0),
    observation="beta-binomial",
    dispersion=SHARE,
    dispersion_groups="kind",
    item_groups="repository",
    testlet_scale=SCALE,
)
SPECS = {
    "plain": ModelSpec(),
    "number": ModelSpec(floor=0.25),
    "column": ModelSpec(floor="options", observation="binomial"),
    "1PL": ModelSpec(Priors(Common(LearnedLocation(0.2, 0.5)))),
    "testlets": ModelSpec(item_groups="repository", testlet_scale=SCALE),
    "full": FULL,
}
BEYOND_LAPLACE = {
    "testlets": ModelSpec(item_groups="repository"),
    "learned floors": ModelSpec(floor=LearnedShare(2.0, 8.0)),
    "groups of LLMs": ModelSpec(llm_groups="family"),
}


@pytest.mark.parametrize("name", SPECS)
def test_models_survive_a_way_through_json(name):
    spec = SPECS[name]
    assert restored_spec(json.loads(json.dumps(plain(spec)))) == spec
    assert hash(restored_spec(plain(spec))) == hash(spec)
    others = [other for key, other in SPECS.items() if key != name]
    assert spec not in others


def test_models_from_before_there_was_more_are_plain():
    old = {"type": "ModelSpec", "priors": plain(Priors()), "llm_groups": "family"}
    assert restored_spec(old) == ModelSpec(llm_groups="family")


def test_hyperparameters_are_named_in_order():
    items = ("discrimination_location", "discrimination_scale", "easiness_location", "easiness_scale")
    assert FULL.hyperparameters == (*items, "dispersion", "testlet_scale", "ability_share")
    assert SPECS["1PL"].hyperparameters == ("discrimination_location", "easiness_location", "easiness_scale")
    assert (FULL.dispersed, FULL.related) == (True, True)
    assert not ModelSpec().dispersed


# "auto"


def test_auto_is_decided_by_the_attempts():
    spec = ModelSpec(dispersion=SHARE, dispersion_groups="kind")
    several = spec.settled(2)
    assert several == replace(spec, observation="beta-binomial")
    # one attempt cannot hang together with another: what there is of dispersion is dropped
    assert spec.settled(1) == ModelSpec(observation="binomial")
    assert spec.settled(0) == spec.settled(1)
    for settled in (several, spec.settled(1)):
        for attempts in (1, 8):
            assert settled.settled(attempts) is settled


def test_the_mode_is_that_of_the_model_without_what_only_nuts_fits():
    found = FULL.for_mode()
    wanted = ModelSpec(
        FULL.priors, floor=0.2, observation="beta-binomial", dispersion=SHARE, dispersion_groups="kind"
    )
    assert found == wanted
    assert found.for_mode() == found
    for name in ("plain", "number", "column", "1PL"):
        assert SPECS[name].for_mode() == SPECS[name]


# Refusals


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"floor": 1.0}, "floor is 1.0"),
        ({"floor": -0.1}, "floor is -0.1"),
        ({"floor": float("nan")}, "floor is nan"),
        ({"floor": True}, "floor is True"),
        ({"floor": ""}, "floor's column has no name"),
        ({"observation": "poisson"}, "must be 'auto', 'binomial' or 'beta-binomial'"),
        ({"observation": None}, "observation is None"),
        ({"dispersion": 0.1}, "must be a LearnedShare"),
        ({"testlet_scale": 0.5, "item_groups": "text"}, "must be a LearnedScale"),
        ({"item_groups": ""}, "column of the items' metadata"),
        ({"dispersion_groups": 3}, "column of the items' metadata"),
    ],
)
def test_models_that_make_no_sense_are_refused(options, message):
    with pytest.raises(InvalidConfigurationError, match=message):
        ModelSpec(**options)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"observation": "binomial", "dispersion": SHARE}, "Binomial attempts have no dispersion"),
        ({"observation": "binomial", "dispersion_groups": "kind"}, "Binomial attempts have no dispersion"),
        ({"testlet_scale": SCALE}, "no items belong together"),
        ({"ability_share": SHARE}, "no LLMs are related"),
    ],
)
def test_priors_of_what_there_is_not_are_refused(options, message):
    with pytest.raises(InvalidConfigurationError, match=message):
        ModelSpec(**options)


def with_metadata(seed=0):
    """Return a suite with every column that the models name, but those of the LLMs."""
    responses = simulate_suite(8, 12, seed=seed).responses
    items = pd.DataFrame({"repository": ["a", "b"] * 6, "options": [4] * 12}, index=list(responses.items))
    return Responses.from_arrays(
        responses.successes, llms=responses.llms, items=responses.items, item_metadata=items
    )


@pytest.mark.parametrize("name", BEYOND_LAPLACE)
def test_laplace_names_the_engines_that_can(name):
    with pytest.raises(
        InvalidConfigurationError, match=rf"Laplace cannot fit the {name} .*Use fit_nuts or fit_svi"
    ):
        fit_laplace(with_metadata(), spec=BEYOND_LAPLACE[name])


@pytest.mark.parametrize("name", BEYOND_LAPLACE)
@pytest.mark.parametrize("method", ["cbmm", "laplace"])
def test_plans_of_other_methods_are_refused(method, name):
    for able in ("nuts", "svi"):
        assert FitPlan(able, BEYOND_LAPLACE[name]).spec is BEYOND_LAPLACE[name]
    with pytest.raises(InvalidConfigurationError, match=f"'{method}' cannot fit the {name}"):
        FitPlan(method, BEYOND_LAPLACE[name])


@pytest.mark.parametrize("options", [{"floor": "guess"}, {"item_groups": "guess"}])
def test_absent_columns_are_named_before_anything_is_fitted(options):
    said = []
    plan = FitPlan("nuts", ModelSpec(**options))
    with pytest.raises(InvalidConfigurationError, match="no column 'guess'; there are"):
        fit_run(with_metadata(), plan, "made up", say=said.append, progress=lambda *_: None)
    assert not said


def test_laplace_keeps_the_floors_that_it_was_told():
    posterior = fit_laplace(with_metadata(), spec=ModelSpec(floor="options"), num_draws=50)
    assert posterior.spec == ModelSpec(floor="options", observation="binomial")
    assert (posterior.laws.floor == 0.25).all()
    assert posterior.laws.dispersion is None
