"""Draws from the prior against NumPyro's model, the accuracies they imply against brute force, and their plot.

Random tests state their false-alarm rate and include a control that must fail.
"""

from dataclasses import replace

import matplotlib as mpl

mpl.use("Agg")

import jax
import numpy as np
import pandas as pd
import pytest
from matplotlib import pyplot as plt
from numpyro.infer import Predictive
from scipy.special import expit
from scipy.stats import binomtest, ks_2samp

from bayes_irt.errors import InvalidConfigurationError, InvalidResponsesError
from bayes_irt.model_spec import ModelSpec
from bayes_irt.models import response_model
from bayes_irt.prior_plots import plot_prior_predictive
from bayes_irt.prior_simulation import prior_predictive, simulate_from_prior
from bayes_irt.priors import (
    Exponential,
    Gamma,
    HalfNormal,
    LearnedLocation,
    LearnedScale,
    LearnedShare,
    LogNormal,
    Normal,
    Priors,
    TruncatedNormal,
)

FAMILIES = (HalfNormal(), LogNormal(), Gamma(), Exponential(), TruncatedNormal())
LLMS, ITEMS, DRAWS = 5, 3, 4000
FALSE_ALARMS = 1e-3  # over all tests of this file that compare samples
NARROW = ModelSpec(Priors(easiness=Normal(LearnedLocation(-2.0, 0.1), LearnedScale(0.1, 0.1))))


@pytest.fixture(autouse=True)
def _close_figures():
    yield
    plt.close("all")


@pytest.fixture(scope="module")
def predictive():
    return prior_predictive(ModelSpec(), 8, 30, num_draws=200, seed=4)


def p_values(spec, draws):
    """Compare one entry of every site with NumPyro's draws of it."""
    model = Predictive(response_model, num_samples=DRAWS)
    drawn = {name: np.asarray(v) for name, v in model(jax.random.key(1), spec, LLMS, ITEMS).items()}
    own = {name: draws[name].to_numpy() for name in drawn if name != "ability_raw"}
    return {
        name: ks_2samp(value.reshape(DRAWS, -1)[:, 0], drawn[name].reshape(DRAWS, -1)[:, 0]).pvalue
        for name, value in own.items()
    }


@pytest.mark.parametrize("family", FAMILIES, ids=lambda family: type(family).__name__)
def test_draws_are_those_of_the_numpyro_model(family):
    spec = ModelSpec(Priors(discrimination=family))
    found = p_values(spec, prior_predictive(spec, LLMS, ITEMS, num_draws=DRAWS).draws)
    assert {"ability", "discrimination", "easiness", *spec.hyperparameters} == set(found)
    assert min(found.values()) > FALSE_ALARMS / (len(FAMILIES) * len(found))


def test_draws_of_another_prior_are_noticed():
    other = ModelSpec(Priors(discrimination=HalfNormal(LearnedScale(1.8, 1.0))))
    found = p_values(ModelSpec(), prior_predictive(other, LLMS, ITEMS, num_draws=DRAWS).draws)
    assert found["discrimination_scale"] < 1e-4 < found["easiness_scale"]


def test_accuracies_are_those_of_brute_force(predictive):
    draws = predictive.draws
    for draw in (0, 17, 199):
        one = draws.isel(draw=draw)
        chance = [
            [
                expit(t * a + d)
                for a, d in zip(one["discrimination"].values, one["easiness"].values, strict=True)
            ]
            for t in one["ability"].values
        ]
        np.testing.assert_allclose(one["llm_accuracy"], np.mean(chance, axis=1))
        np.testing.assert_allclose(one["item_accuracy"], np.mean(chance, axis=0))


def test_abilities_are_standardised_in_every_draw(predictive):
    ability = predictive.draws["ability"].to_numpy()
    np.testing.assert_allclose(ability.mean(axis=1), 0, atol=1e-12)
    np.testing.assert_allclose(ability.std(axis=1), 1)


def test_summary_and_histograms_describe_the_draws(predictive):
    draws, summary = predictive.draws, predictive.summary()
    by_llm, by_item = draws["llm_accuracy"].to_numpy(), draws["item_accuracy"].to_numpy()
    gap = by_llm.max(axis=1) - by_llm.min(axis=1)
    assert summary.loc["best minus worst LLM", 0.95] == pytest.approx(np.quantile(gap, 0.95))
    assert summary.loc["mean accuracy", "mean"] == pytest.approx(by_item.mean())
    assert summary.loc["items below .02", "mean"] == pytest.approx(np.mean(by_item < 0.02))
    assert summary.loc["items above .98", "mean"] == pytest.approx(np.mean(by_item > 0.98))
    table = predictive.histograms(50)
    assert table["item accuracy"].iloc[0] == pytest.approx(np.mean(by_item < 0.02))
    shares = table.drop(columns=["lower", "upper"]).sum()
    np.testing.assert_allclose(shares, 1)


def test_a_prior_about_hard_items_says_so():
    hard = prior_predictive(NARROW, 8, 30, num_draws=200).summary()
    wide = prior_predictive(ModelSpec(), 8, 30, num_draws=200).summary()
    assert hard.loc["mean accuracy", 0.95] < 0.5 < wide.loc["mean accuracy", 0.95]


def test_floors_and_testlets_are_part_of_what_a_prior_expects(predictive):
    """Floors raise every chance, of the same abilities and items; learned ones and testlets come from their priors."""
    items = pd.DataFrame({"guess": np.linspace(0, 0.9, 30), "text": ["a", "b"] * 15})
    plain = predictive.draws
    for floor, wanted in ((0.25, np.full(30, 0.25)), ("guess", items["guess"].to_numpy())):
        spec = ModelSpec(floor=floor)
        found = prior_predictive(spec, 8, 30, num_draws=200, seed=4, item_metadata=items).draws
        raised = wanted + (1 - wanted) * plain["item_accuracy"]
        np.testing.assert_allclose(found["item_accuracy"], raised, atol=1e-5)
        np.testing.assert_array_equal(found["ability"], plain["ability"])
    learned = prior_predictive(ModelSpec(floor=LearnedShare(40.0, 40.0)), 8, 30, num_draws=200).draws
    assert 0.3 < float(learned["item_accuracy"].min()) < 0.6
    near, far = (
        prior_predictive(
            replace(NARROW, item_groups="text", testlet_scale=LearnedScale(median, 0.01)),
            *(8, 30),
            num_draws=200,
            item_metadata=items,
        ).by_suite["sd between LLMs"]
        for median in (0.01, 5.0)
    )
    assert far.median() > 1.5 * near.median()
    with pytest.raises(InvalidConfigurationError, match="no column 'guess'"):
        prior_predictive(ModelSpec(floor="guess"), 8, 30)


def test_the_seed_decides(predictive):
    again = prior_predictive(ModelSpec(), 8, 30, num_draws=200, seed=4)
    assert again.draws.identical(predictive.draws)
    assert not prior_predictive(ModelSpec(), 8, 30, num_draws=200).draws.identical(predictive.draws)
    suites = [simulate_from_prior(ModelSpec(), 8, 10, seed=seed) for seed in (1, 1, 2)]
    assert suites[0].responses == suites[1].responses
    assert suites[0].truth.easiness[0] != suites[2].truth.easiness[0]


@pytest.mark.parametrize(("observation", "noticed"), [("binomial", 0.3), ("auto", 0.5)])
def test_cells_are_drawn_with_the_chances_of_the_truth(observation, noticed):
    """Where attempts hang together the variance is that of a beta-binomial law."""
    attempts = np.full((20, 40), 50)
    attempts[3, 5:] = 0
    suite = simulate_from_prior(replace(NARROW, observation=observation), 20, 40, attempts=attempts, seed=2)
    rho = suite.hyperparameters.get("dispersion", 0.0)
    assert (rho > 0) == (observation == "auto")
    np.testing.assert_array_equal(suite.responses.attempts, attempts)
    chance = expit(suite.truth.ability @ suite.truth.discrimination.T + suite.truth.easiness)
    standardised = (suite.responses.successes - attempts * chance) / np.sqrt(
        attempts * chance * (1 - chance) * (1 + np.maximum(attempts - 1, 0) * rho) + 1e-9
    )
    squares = standardised[attempts > 0] ** 2
    z = (squares.mean() - 1) / (squares.std() / np.sqrt(squares.size))
    assert abs(z) < 4  # false-alarm rate 1e-4
    off = squares + noticed
    assert (off.mean() - 1) / (off.std() / np.sqrt(off.size)) > 4


def test_constant_suites_are_kept():
    """Wide hyperpriors give suites that are nearly all right or all wrong; none is drawn again."""
    suites = [simulate_from_prior(ModelSpec(), 6, 10, seed=seed) for seed in range(400)]
    shares = np.array([s.responses.successes.mean() for s in suites])
    extreme = (shares == 0) | (shares == 1)
    assert 0 < extreme.sum() < 100
    expected = prior_predictive(ModelSpec(), 6, 10, num_draws=4000).draws["llm_accuracy"].to_numpy()
    low = (expected.mean(axis=1) < 0.1).mean()
    assert binomtest(int((shares < 0.1).sum()), 400, low).pvalue > 1e-3
    assert binomtest(int((shares < 0.1).sum()), 400, 0.5 * low).pvalue < 1e-3


@pytest.mark.parametrize(
    "call",
    [
        lambda: prior_predictive(ModelSpec(), 1, 10),
        lambda: prior_predictive(ModelSpec(), 8, 10, num_draws=0),
        lambda: prior_predictive(ModelSpec(), 8, 10, seed=-1),
        lambda: simulate_from_prior(ModelSpec(), 8, 1),
        lambda: simulate_from_prior(ModelSpec(), 8, 10, seed=-1),
        lambda: simulate_from_prior(ModelSpec(), 8, 10, attempts=np.ones((10, 8), dtype=int)),
        lambda: prior_predictive(ModelSpec(), 8, 10, num_draws=5).histograms(0),
        lambda: plot_prior_predictive(
            prior_predictive(ModelSpec(), 8, 10, num_draws=5), plt.subplots(1, 2)[1]
        ),
    ],
)
def test_nonsense_is_refused(call):
    with pytest.raises(InvalidConfigurationError):
        call()


def test_an_item_without_attempts_is_refused():
    attempts = np.ones((8, 10), dtype=int)
    attempts[:, 3] = 0
    with pytest.raises(InvalidResponsesError):
        simulate_from_prior(ModelSpec(), 8, 10, attempts=attempts)


def test_the_plot_shows_the_histograms(predictive):
    panels = plot_prior_predictive(predictive)
    items = predictive.histograms(50)
    heights = [bar.get_height() for bar in panels[2].patches]
    np.testing.assert_array_equal(heights[:50], items["item accuracy"])
    np.testing.assert_array_equal(heights[50:], items["item accuracy"].iloc[[0, -1]])
    assert heights[0] == pytest.approx(predictive.summary()["mean"]["items below .02"])
    for panel, name in zip(panels, ("mean accuracy", "best minus worst LLM"), strict=False):
        np.testing.assert_array_equal(
            [bar.get_height() for bar in panel.patches], predictive.histograms(20)[name]
        )
        quantiles = predictive.summary().loc[name, [0.05, 0.5, 0.95]]
        drawn = np.concatenate([line.get_xdata() for line in panel.lines])
        np.testing.assert_allclose(sorted(drawn), quantiles)


def test_the_plot_is_readable(predictive):
    panels = plot_prior_predictive(predictive)
    figure = panels[0].get_figure(root=True)
    figure.canvas.draw()
    renderer = figure.canvas.get_renderer()
    texts = [t for p in panels for t in (p.title, p.xaxis.label, p.yaxis.label)]
    boxes = [text.get_window_extent(renderer) for text in texts]
    assert all(text.get_text() for text in texts)
    page = figure.bbox
    assert all(min(b.x0, b.y0, page.x1 - b.x1, page.y1 - b.y1) >= 0 for b in boxes)
    for position, one in enumerate(boxes):
        assert not any(one.overlaps(other) for other in boxes[position + 1 :])


def test_given_axes_are_used(predictive):
    _, axes = plt.subplots(1, 3)
    assert plot_prior_predictive(predictive, axes) == list(axes)
    assert len(plt.get_fignums()) == 1
