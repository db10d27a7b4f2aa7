"""The item overview: which items say something, which say nothing, which speak against the rest."""

import numpy as np
import pytest

from bayes_irt import Responses, fit_laplace, simulate_suite
from bayes_irt.analysis.items import _reversed, describe_items
from bayes_irt.errors import InvalidConfigurationError
from bayes_irt.replication import observed_statistics


@pytest.fixture(scope="module")
def spoiled():
    """Responses of 60 LLMs with two constant items and one wrongly keyed one, and their posterior."""
    clean = simulate_suite(60, 40, seed=3)
    cells = clean.responses.successes.astype(float)
    sharpest = int(np.argmax(clean.truth.discrimination[:, 0] * clean.responses.successes.var(axis=0)))
    cells[:, sharpest] = 1 - cells[:, sharpest]
    first, second = [item for item in range(40) if item != sharpest][:2]
    cells[:, first], cells[:, second] = 1, 0
    responses = Responses.from_arrays(cells)
    labels = {name: responses.items[place] for name, place in (("reversed", sharpest), ("right", first))}
    return responses, fit_laplace(responses), labels | {"wrong": responses.items[second]}


def test_constant_items_carry_no_information(spoiled):
    responses, posterior, labels = spoiled
    overview = describe_items(posterior, responses)
    assert {labels["right"], labels["wrong"]} <= set(overview.constant)
    assert overview.table.loc[labels["right"], "answers"] == "all right"
    assert overview.table.loc[labels["wrong"], "answers"] == "all wrong"
    number = len(overview.constant)
    assert overview.notes[0].startswith(f"{number} of 40 items carry no information")
    assert np.isnan(overview.table.loc[labels["right"], "item_rest"])


def test_a_wrongly_keyed_item_is_found_and_no_other(spoiled):
    responses, posterior, labels = spoiled
    assert describe_items(posterior, responses).reversed == (labels["reversed"],)


def test_one_llm_far_out_reverses_no_item():
    """30 LLMs, one far below, 100 items without relation to the rest, one in thirty right: false-alarm rate .05."""
    rng = np.random.default_rng(1)
    cells = (rng.random((30, 100)) < 0.04).astype(float)
    cells = np.hstack([cells, (rng.random((30, 60)) < 0.9).astype(float)])
    cells[-1, 100:] = 0.0
    responses = Responses.from_arrays(cells)
    item_rest = observed_statistics(responses).item_rest
    assert not _reversed(item_rest, responses).any()


def test_constant_items_come_last_with_no_share(spoiled):
    responses, posterior, labels = spoiled
    table = describe_items(posterior, responses).table
    assert (table.loc[[labels["right"], labels["wrong"]], "information_share"] == 0).all()
    assert {labels["right"], labels["wrong"]} <= set(table.index[-len(table[table["answers"] != "mixed"]) :])


def test_few_llms_cannot_tell():
    responses = simulate_suite(8, 20).responses
    with pytest.warns(UserWarning, match="too narrow"):
        overview = describe_items(fit_laplace(responses), responses)
    assert overview.reversed == ()
    assert "cannot be told" in overview.notes[1]


def test_information_adds_up_and_orders_the_table(spoiled):
    responses, posterior, _ = spoiled
    shares = describe_items(posterior, responses).table["information_share"]
    assert shares.sum() == pytest.approx(1.0)
    assert shares.is_monotonic_decreasing


def test_information_is_the_curvature_of_the_log_likelihood(spoiled):
    responses, posterior, _ = spoiled
    draws = posterior.parameters
    theta, a, d = (
        draws.ability[..., 0].mean(axis=0),
        draws.discrimination[..., 0].mean(axis=0),
        draws.easiness.mean(axis=0),
    )

    def loss(shift):
        return np.logaddexp(0.0, np.outer(theta + shift, a) + d).sum(axis=0)

    step = 1e-3
    curvature = (loss(step) - 2 * loss(0.0) + loss(-step)) / step**2
    table = describe_items(posterior, responses).table.loc[list(responses.items)]
    curvature[table["answers"] != "mixed"] = 0.0
    np.testing.assert_allclose(table["information_share"], curvature / curvature.sum(), rtol=1e-4)


def test_the_table_as_text_has_a_row_per_item(spoiled):
    responses, posterior, labels = spoiled
    text = describe_items(posterior, responses, prob=0.8).formatted()
    assert "discrimination 80%" in text.columns
    assert text.set_index("item").loc[labels["right"], "item-rest"] == "n/a"


def test_bad_arguments(spoiled):
    responses, posterior, _ = spoiled
    with pytest.raises(InvalidConfigurationError, match="prob is 1"):
        describe_items(posterior, responses, prob=1)
    with pytest.raises(InvalidConfigurationError, match="other"):
        describe_items(posterior, responses.subset(llms=responses.llms[:30]))
