"""Several suites as one fit: labels, metadata, and LLMs that have not answered all suites."""

from functools import cache

import numpy as np
import pandas as pd
import pytest
from test_cli import call

from bayes_irt import (
    ModelSpec,
    Responses,
    fit_laplace,
    trait_correlations,
    trait_profile,
    unite_suites,
)
from bayes_irt.errors import InvalidConfigurationError, InvalidResponsesError

LLMS, ITEMS, BOTH = 80, 90, 50


@cache
def drawn():
    """Two suites whose abilities correlate by .9; all LLMs answer the first, the first 50 the second too."""
    rng = np.random.default_rng(4)
    among = np.array([[1.0, 0.9], [0.9, 1.0]])
    ability = rng.multivariate_normal(np.zeros(2), among, size=LLMS)
    suites = {}
    for place, (name, number) in enumerate((("maths", LLMS), ("code", BOTH))):
        slopes, easiness = rng.uniform(0.8, 2.0, ITEMS), rng.normal(size=ITEMS)
        logits = ability[:number, place, None] * slopes + easiness
        answers = (rng.random(logits.shape) < 1 / (1 + np.exp(-logits))).astype(int)
        suites[name] = Responses.from_arrays(answers, llms=[f"llm-{k:03d}" for k in range(number)])
    return suites, ability


def test_items_bear_their_suite_s_name_and_llms_are_shared():
    suites, _ = drawn()
    whole = unite_suites(suites)
    assert (whole.num_llms, whole.num_items) == (LLMS, 2 * ITEMS)
    assert whole.items[0] == "maths: item-0001"
    assert whole.items[ITEMS] == "code: item-0001"
    assert whole.item_metadata["suite"].tolist() == ["maths"] * ITEMS + ["code"] * ITEMS
    np.testing.assert_array_equal(whole.successes[:BOTH, ITEMS:], suites["code"].successes)
    assert (whole.attempts[BOTH:, ITEMS:] == 0).all()


def test_metadata_come_along():
    items = pd.DataFrame({"topic": ["a", "b"]}, index=["q1", "q2"])
    llms = pd.DataFrame({"family": ["x", "y"]}, index=["one", "two"])
    first = Responses.from_arrays(
        [[1, 0], [1, 1]], llms=["one", "two"], items=["q1", "q2"], item_metadata=items
    )
    second = Responses.from_arrays([[3, 0], [2, 1]], [[4, 4], [4, 4]], llms=["one", "two"], llm_metadata=llms)
    whole = unite_suites({"s": first, "t": second}, column="from")
    assert whole.item_metadata["topic"].tolist()[:2] == ["a", "b"]
    assert whole.llm_metadata["family"].tolist() == ["x", "y"]
    assert whole.attempts.tolist() == [[1, 1, 4, 4], [1, 1, 4, 4]]
    with pytest.raises(InvalidConfigurationError, match="column 'topic'"):
        unite_suites({"s": first, "t": second}, column="topic")
    with pytest.raises(InvalidConfigurationError, match="at least 2"):
        unite_suites({"s": first})
    family = pd.DataFrame({"family": ["z", "y"]}, index=["one", "two"])
    other = Responses.from_arrays([[1, 0], [0, 1]], llms=["one", "two"], llm_metadata=family)
    with pytest.raises(InvalidResponsesError, match="family"):
        unite_suites({"s": second, "t": other})


def test_an_llm_is_judged_on_a_suite_it_has_not_answered_by_the_others():
    suites, ability = drawn()
    posterior = fit_laplace(unite_suites(suites), spec=ModelSpec(traits="suite"))
    assert posterior.traits == ("code", "maths")
    found = trait_correlations(posterior).iloc[0]
    assert found["lower"] < 0.9 < found["upper"]
    profile = trait_profile(posterior).reset_index()
    code = profile[profile["trait"] == "code"]
    width = (code["upper"] - code["lower"]).to_numpy()
    assert np.median(width[BOTH:]) > 1.3 * np.median(width[:BOTH])
    unseen = code["ability"].to_numpy()[BOTH:]
    assert np.corrcoef(unseen, ability[BOTH:, 0])[0, 1] > 0.85
    inside = (code["lower"] < _standard(ability[:, 1])) & (_standard(ability[:, 1]) < code["upper"])
    assert inside[BOTH:].mean() > 0.75


def _standard(values):
    return (values - values.mean()) / values.std()


def test_the_command_line_fits_several_tables_as_one(tmp_path):
    suites, _ = drawn()
    for name, suite in suites.items():
        table = pd.DataFrame(suite.successes, index=pd.Index(suite.llms, name="llm"), columns=suite.items)
        table.to_csv(tmp_path / f"{name}.csv")
    first, second = tmp_path / "maths.csv", tmp_path / "code.csv"
    options = ("--also", second, "--traits", "suite", "--method", "laplace")
    fit = call("fit", first, *options, "-o", tmp_path / "run")
    assert fit.code in (0, 3)
    assert "Correlation of traits" in fit.err
    assert "180 items" in fit.err
    ranked = call("rank", tmp_path / "run", "--trait", "code")
    assert ranked.code == fit.code
    for option in ("--items", "--llms"):
        assert call("fit", first, "--also", second, option, first, "-o", tmp_path / "no").code == 2
    twice = call("fit", first, "--also", first, "-o", tmp_path / "no")
    assert (twice.code, "called" in twice.err) == (2, True)
