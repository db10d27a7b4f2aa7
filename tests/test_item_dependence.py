"""Groups of items: found where they are, not found where they are not."""

from functools import cache

import numpy as np
import pandas as pd
import pytest

from bayes_irt import (
    HalfNormal,
    LearnedLocation,
    LearnedScale,
    ModelSpec,
    Normal,
    Priors,
    Responses,
    check_item_groups,
    fit_laplace,
    simulate_from_prior,
    simulate_suite,
)
from bayes_irt.analysis.item_dependence import grouping_columns
from bayes_irt.errors import InvalidConfigurationError
from bayes_irt.fitting import FitPlan, fit_run

USUAL = Priors(HalfNormal(LearnedScale(1.5, 0.1)), Normal(LearnedLocation(0.0, 0.3), LearnedScale(1.5, 0.1)))
SPEC = ModelSpec(USUAL, item_groups="repo", testlet_scale=LearnedScale(0.8, 0.05))
ITEMS = pd.DataFrame(
    {
        "repo": [f"repo {number % 8}" for number in range(80)],
        "other": [f"other {number // 10}" for number in range(80)],
        "size": np.arange(80),
        "name": [f"item {number}" for number in range(80)],
    }
)


@cache
def fitted():
    suite = simulate_from_prior(SPEC, 40, 80, seed=3, item_metadata=ITEMS)
    return suite, fit_laplace(suite.responses)


def test_a_testlet_is_found_and_its_size_about_right():
    suite, posterior = fitted()
    check = check_item_groups(posterior, suite.responses, "repo")["items of one group"]
    assert check.outcome.name == "FAIL"
    assert "item_groups='repo'" in check.message
    size = float(check.message.split("about ")[1].split(":")[0])
    assert size == pytest.approx(suite.hyperparameters["testlet_scale"], rel=0.35)


def test_groups_that_say_nothing_pass():
    suite, posterior = fitted()
    assert check_item_groups(posterior, suite.responses, "other").passed


def test_false_alarms_are_rare():
    """At level .01 none of 10 fails but with probability .1; the seed is fixed."""
    for seed in range(10):
        dataset = simulate_suite(30, 60, seed=seed).responses.dataset
        responses = Responses(dataset.assign_coords(topic=("item", ["a", "b", "c", "d"] * 15)))
        assert check_item_groups(fit_laplace(responses), responses, "topic").passed


def test_columns_of_words_that_repeat_are_looked_at():
    suite, _ = fitted()
    assert grouping_columns(suite.responses) == ("repo", "other")


def test_every_fit_warns_of_dependent_items():
    suite, _ = fitted()
    said: list[str] = []
    fit_run(suite.responses, FitPlan("laplace"), "simulated", say=said.append, progress=lambda *_: None)
    assert sum("'repo'" in line for line in said) == 1
    assert not any("'other'" in line for line in said)


def test_an_absent_column_is_refused():
    suite, posterior = fitted()
    with pytest.raises(InvalidConfigurationError, match="no column 'nothing'"):
        check_item_groups(posterior, suite.responses, "nothing")
