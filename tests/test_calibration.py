"""The gauge of engines, gauged: exact toy posteriors pass as often as stated, wrong ones fail. Then the engines.

The toy is conjugate: ``m ~ N(0, 1)``, ``x_i ~ N(m, 1)``, ``y_i ~ N(x_i, 1)``, so that exact draws of all ``x`` given
``y`` are at hand, and the ranks within a data set depend on each other through ``m``.
"""

import warnings

import numpy as np
import pandas as pd
import pytest
from scipy.special import ndtri
from scipy.stats import binom, kstest, norm, ttest_1samp

from bayes_irt.calibration import (
    CalibrationPlan,
    CalibrationReport,
    check_calibration,
    dataset_seeds,
    thinned,
    true_values,
)
from bayes_irt.cbmm import fit_cbmm
from bayes_irt.checks import Outcome
from bayes_irt.errors import ConvergenceWarning, InvalidConfigurationError, NumericalError
from bayes_irt.inference.laplace import fit_laplace
from bayes_irt.inference.nuts import Sampler, fit_nuts
from bayes_irt.model_spec import ModelSpec
from bayes_irt.posterior import Posterior, posterior_from_draws
from bayes_irt.prior_simulation import prior_predictive, simulate_from_prior
from bayes_irt.priors import HalfNormal, LearnedLocation, LearnedScale, Normal, Priors
from bayes_irt.provenance import Provenance
from bayes_irt.rank_scores import _skew_free_test, judge_scores, normal_scores, score_draws

# The small form that runs in CI. With NUTS the control failed by all of 10 other seeds, its least p-value never above
# 1e-8 where the limit is 7e-4.
CI_PLAN = CalibrationPlan(num_datasets=50, num_draws=31)
NUM_DRAWS, DATASETS, REPORTS = 31, 60, 400


def toy_scores(num_reports, num_parameters=8, narrowed_by=0.0, bias=0.0, seed=0):
    """Return normal scores, reports x data sets x parameters, of toy posteriors as narrow and biased as told."""
    rng = np.random.default_rng(seed)
    shape, n = (num_reports * DATASETS, num_parameters), num_parameters
    x = rng.normal(size=(shape[0], 1)) + rng.normal(size=shape)
    y = x + rng.normal(size=shape)
    precision = 1 + n / 2
    m = (
        y.sum(axis=1, keepdims=True) / 2 / precision
        + rng.normal(size=(NUM_DRAWS, shape[0], 1)) / precision**0.5
    )
    draws = (y + m) / 2 + rng.normal(size=(NUM_DRAWS, *shape)) * 0.5**0.5
    sd = (0.5 + 0.25 / precision) ** 0.5
    mean = draws.mean(axis=0)
    draws = mean + (1 - narrowed_by) * (draws - mean) + bias * sd
    scores = normal_scores(x.ravel(), draws.reshape(NUM_DRAWS, -1), rng)
    return scores.reshape(num_reports, DATASETS, num_parameters)


def table_of(scores):
    """One report's scores as the frame that is judged."""
    columns = {"kind": "x", "mean_square": (scores**2).mean(axis=1), "mean": scores.mean(axis=1)}
    return pd.DataFrame(columns)


def share_failed(scores, rate=0.01):
    judged = [judge_scores(table_of(one), NUM_DRAWS, rate)["passed"].all() for one in scores]
    return 1 - np.mean(judged)


@pytest.mark.parametrize("num_parameters", [1, 8])
@pytest.mark.parametrize("rate", [0.05, 0.01])
def test_exact_posteriors_fail_as_rarely_as_stated(num_parameters, rate):
    """The limit is exceeded with a chance of 1e-3 where the true rate is 1.5 times the stated one.

    Hall's test is no exact one; the squared scores of one parameter are the most skewed there are.
    """
    failed = share_failed(toy_scores(REPORTS, num_parameters), rate)
    assert failed * REPORTS <= binom.ppf(0.999, REPORTS, 1.5 * rate)


def test_a_plain_t_test_would_raise_too_many_alarms():
    """Why the skewness is taken out: at the rate of one of many tests it raises several times as many as stated."""
    number, rate = 2000, 0.001
    squares = (toy_scores(number, 1) ** 2).mean(axis=2)
    uniform = ndtri((np.arange(NUM_DRAWS + 1) + 0.5) / (NUM_DRAWS + 1))
    alarms = (ttest_1samp(squares, np.mean(uniform**2), axis=1).pvalue < rate).sum()
    assert alarms > binom.ppf(0.999, number, 1.5 * rate)
    ours = [_skew_free_test(values, np.mean(uniform**2))["p_value"] < rate for values in squares]
    assert sum(ours) <= binom.ppf(0.999, number, 1.5 * rate)


@pytest.mark.parametrize(
    "wrong", [{"narrowed_by": 0.15}, {"narrowed_by": -0.2}, {"bias": 0.35}, {"bias": -0.35}], ids=str
)
def test_wrong_posteriors_fail(wrong):
    assert share_failed(toy_scores(60, **wrong)) > 0.9


def test_kolmogorov_smirnov_tests_miss_what_pooled_squares_notice():
    scores = toy_scores(60, narrowed_by=0.15)
    limit = 0.01 / scores.shape[2]
    noticed = [(kstest(one, "norm", axis=0).pvalue < limit).any() for one in scores]
    assert np.mean(noticed) < 0.2
    assert share_failed(scores) > 0.9


@pytest.mark.parametrize("value", [0.0, 5.0])
def test_point_masses_fail(value):
    """All draws alike, on the truth or off it."""
    rng = np.random.default_rng(0)
    draws = np.full((31, 4), value)
    tables = [score_draws({"x": rng.normal(size=4)}, {"x": draws}, rng) for _ in range(60)]
    assert not judge_scores(pd.concat(tables).reset_index(), 31, 0.01)["passed"].all()
    stuck = [score_draws({"x": np.zeros(4)}, {"x": draws + 1}, rng) for _ in range(60)]
    assert not judge_scores(pd.concat(stuck).reset_index(), 31, 0.01)["passed"].any()


def test_ranks_are_those_of_brute_force():
    rng = np.random.default_rng(0)
    truth, draws = rng.normal(size=5), rng.normal(size=(9, 5))
    ranks = [sum(draw < value for draw in column) for value, column in zip(truth, draws.T, strict=True)]
    wanted = norm.ppf((np.array(ranks) + 0.5) / 10)
    np.testing.assert_allclose(normal_scores(truth, draws, rng), wanted)


def test_ties_are_broken_evenly():
    """Where truth and draws are one number, every rank is as likely as any other."""
    scores = normal_scores(np.zeros(20_000), np.zeros((3, 20_000)), np.random.default_rng(0))
    counts = np.unique(scores.round(6), return_counts=True)[1]
    assert len(counts) == 4
    assert abs(counts - 5000).max() < 4 * np.sqrt(5000)


def test_scores_are_pooled_by_kind():
    rng = np.random.default_rng(0)
    truth = {"a": rng.normal(size=3), "b": rng.normal(size=2), "log likelihood": np.array([9.0])}
    draws = {name: rng.normal(size=(31, len(value))) for name, value in truth.items()}
    table = score_draws(truth, draws, rng)
    assert table.index.tolist() == ["a", "b", "log likelihood", "all parameters"]
    squares = table["mean_square"]
    assert squares["all parameters"] == pytest.approx((3 * squares["a"] + 2 * squares["b"]) / 5)
    with pytest.raises(InvalidConfigurationError, match="no draws of"):
        score_draws(truth, {"a": draws["a"]}, rng)


def test_neighbouring_draws_that_hang_together_are_noticed():
    rng = np.random.default_rng(0)
    noise = rng.normal(size=(2000, 1))
    slow = np.cumsum(noise, axis=0)[:31]
    free = score_draws({"x": np.zeros(1)}, {"x": noise}, rng)["autocorrelation"]["x"]
    assert abs(free) < 0.1
    assert score_draws({"x": np.zeros(1)}, {"x": slow}, rng)["autocorrelation"]["x"] > 0.4


def made_up_report(own, control, autocorrelation=0.0):
    tables = [table_of(scores).assign(autocorrelation=autocorrelation) for scores in (own, control)]
    return CalibrationReport("toy", *tables, (8, 10), ModelSpec(), CI_PLAN, 0)


def test_a_report_passes_only_if_its_control_fails():
    exact, narrow = toy_scores(1)[0], toy_scores(1, narrowed_by=0.15)[0]
    good = made_up_report(exact, narrow)
    assert good.passed
    assert "toy, 50 data sets of 8 LLMs x 10 items, false-alarm rate 0.01: passed" in str(good)
    blind = made_up_report(exact, exact)
    assert [check.name for check in blind.checks.failures] == ["control"]
    bad = made_up_report(narrow, narrow)
    assert [check.name for check in bad.checks.failures] == ["x"]
    assert "too narrow" in bad.checks["x"].message
    low = made_up_report(toy_scores(1, bias=-0.5)[0], narrow)
    assert "too low" in low.checks["x"].message
    slow = made_up_report(exact, narrow, autocorrelation=0.4)
    assert slow.checks["independent draws"].outcome is Outcome.CANNOT_TELL


def test_seeds_of_data_sets_are_all_different():
    seeds = [seed for number in range(500) for seed in dataset_seeds(3, number)]
    assert len(set(seeds)) == len(seeds)
    assert not set(seeds) & set(dataset_seeds(4, 0))


def prior_as_posterior(responses, spec, seed, num_draws=31):
    """An engine that ignores the data."""
    sets = prior_predictive(
        spec, responses.num_llms, responses.num_items, num_draws=num_draws, seed=seed
    ).draws
    draws = {name: array.to_numpy()[None] for name, array in sets.items() if "accuracy" not in name}
    draws |= {name: draws[name][..., None] for name in ("ability", "discrimination")}
    labels = (responses.llms, responses.items)
    return posterior_from_draws(draws, {}, labels, Provenance("prior", {}, responses.digest, seed))


def test_an_engine_that_ignores_the_data_fails_by_its_likelihood_alone():
    report = check_calibration(prior_as_posterior, 6, 10, plan=CI_PLAN)
    assert [check.name for check in report.checks.failures] == ["log likelihood"]
    assert "too low" in report.checks["log likelihood"].message
    again = check_calibration(prior_as_posterior, 6, 10, plan=CI_PLAN)
    pd.testing.assert_frame_equal(again.scores, report.scores)


def test_too_few_draws_and_other_models_are_refused():
    def few(responses, spec, seed):
        return prior_as_posterior(responses, spec, seed, num_draws=20)

    with pytest.raises(InvalidConfigurationError, match="has 20 draws, and 31"):
        check_calibration(few, 6, 10, plan=CI_PLAN)

    def without(responses, spec, seed):
        full = prior_as_posterior(responses, spec, seed)
        tree = full.tree.copy()
        tree["posterior"] = full.draws.drop_vars("easiness_scale")
        return Posterior(tree, full.provenance)

    with pytest.raises(InvalidConfigurationError, match="easiness_scale"):
        check_calibration(without, 6, 10, plan=CI_PLAN)
    for options in ({"num_datasets": 49}, {"num_draws": 3}, {"attempts": 0}, {"false_alarm_rate": 0.0}):
        with pytest.raises(InvalidConfigurationError):
            CalibrationPlan(**options)


def test_data_sets_without_a_posterior_are_named_and_fail():
    fits = iter(range(50))

    def fragile(responses, spec, seed):
        if next(fits) in (3, 7):
            raise NumericalError("a start that is not finite")
        return prior_as_posterior(responses, spec, seed)

    report = check_calibration(fragile, 6, 10, plan=CI_PLAN)
    assert report.failed == (3, 7)
    assert "fits" in [check.name for check in report.checks.failures]
    assert report.checks["fits"].labels == ("3", "7")
    assert sorted(set(range(50)) - set(report.scores["dataset"])) == [3, 7]

    def broken(responses, spec, seed):
        raise NumericalError("never finite")

    with pytest.raises(NumericalError, match="no posterior of any of 50"):
        check_calibration(broken, 6, 10, plan=CI_PLAN)


def test_thinning_keeps_evenly_spaced_draws_of_all_chains():
    suite = simulate_from_prior(ModelSpec(), 6, 10, seed=1)
    posterior = prior_as_posterior(suite.responses, ModelSpec(), 0, num_draws=90)
    kept = thinned(posterior, 9)
    np.testing.assert_array_equal(kept["ability"], posterior.ability.to_numpy()[0, 5::10])
    assert kept["easiness_scale"].shape == (9, 1)
    assert set(true_values(suite, posterior.laws)) - {"log likelihood"} <= set(kept)


def test_the_likelihood_is_that_of_the_counts():
    spec = ModelSpec(observation="binomial")
    suites = [simulate_from_prior(spec, 6, 10, attempts=3, seed=seed) for seed in (3, 5)]
    laws = prior_as_posterior(suites[0].responses, spec, 0).laws
    for suite in suites:
        truth = suite.truth
        chance = 1 / (1 + np.exp(-(truth.ability @ truth.discrimination.T + truth.easiness)))
        coefficients = binom.logpmf(suite.responses.successes, 3, 0.5) - 3 * np.log(0.5)
        wanted = (binom.logpmf(suite.responses.successes, 3, chance) - coefficients).sum()
        assert true_values(suite, laws)["log likelihood"][0] == pytest.approx(wanted)


def nuts(responses, spec, seed):
    """NUTS with the shape and sampler of the docstrings, so that one compiled program serves them all."""
    with warnings.catch_warnings():
        warnings.simplefilter(
            "ignore", ConvergenceWarning
        )  # of the start, in suites that are all right or all wrong
        estimate = fit_cbmm(responses, penalty=Priors())
    sampler = Sampler(num_chains=2, num_warmup=100, num_draws=100)
    return fit_nuts(responses, spec=spec, estimate=estimate, sampler=sampler, seed=seed)


ENGINES = {"nuts": nuts}


@pytest.mark.parametrize("name", ENGINES)
def test_engines_are_calibrated(name):
    """False-alarm rate 0.01; the report fails too if draws 15 % too narrow would have passed."""
    report = check_calibration(ENGINES[name], 6, 20, plan=CI_PLAN, seed=1)
    assert report.engine == name
    assert report.passed, str(report)


def laplace(responses, spec, seed):
    """Fit with the warnings that suites of this size bring, and of the few that do not settle."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        return fit_laplace(responses, spec=spec, seed=seed)


def test_laplace_is_as_calibrated_as_it_says():
    """Below 100 LLMs per item its discriminations are too narrow, as it warns: by a quarter in the mean square."""
    usual = ModelSpec(
        Priors(HalfNormal(LearnedScale(1.5, 0.3)), Normal(LearnedLocation(0.0, 1.0), LearnedScale(1.5, 0.3)))
    )
    report = check_calibration(laplace, 30, 60, spec=usual, plan=CalibrationPlan(num_datasets=60), seed=2)
    squares = report.table["value"].xs("mean_square", level="statistic")
    assert report.checks["ability"].outcome is Outcome.PASS, str(report)
    assert report.checks["control"].outcome is Outcome.PASS, str(report)
    assert 0.9 < squares["easiness"] < 1.2
    assert 1.0 < squares["discrimination"] < 1.4
