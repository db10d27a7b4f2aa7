"""Posterior predictive checks: what is counted, that p-values are right where they can be, and what each check finds.

Tests with random data have a false-alarm rate below 1e-4 each (seeds are fixed), unless they say otherwise.
"""

import tracemalloc

import numpy as np
import pytest
from scipy import stats
from scipy.special import expit

from bayes_irt import replication
from bayes_irt.cbmm import fit_cbmm
from bayes_irt.cell_laws import CellLaw
from bayes_irt.checks import Outcome
from bayes_irt.errors import InvalidConfigurationError, ModelMisfitWarning, NumericalError
from bayes_irt.inference.laplace import fit_laplace
from bayes_irt.model_spec import ModelSpec
from bayes_irt.parameters import Parameters
from bayes_irt.posterior import posterior_from_draws
from bayes_irt.predictive import check_predictive
from bayes_irt.priors import Priors
from bayes_irt.provenance import Provenance
from bayes_irt.replication import commonest_repeats, observed_statistics, replicate
from bayes_irt.responses import Responses
from bayes_irt.simulate import SuiteDesign, simulate_suite

SPARSE = SuiteDesign(attempts=3, missing="MCAR", missing_share=0.3)


def posterior_at(parameters, responses, chains=1, draws=1):
    """A posterior all of whose draws are the same, or one stack of draws."""
    leaves = {
        "ability": parameters.ability,
        "discrimination": parameters.discrimination,
        "easiness": parameters.easiness,
    }
    stacked = {name: np.broadcast_to(leaf, (chains, draws, *np.shape(leaf))) for name, leaf in leaves.items()}
    provenance = Provenance("made up", {}, responses.digest)
    return posterior_from_draws(stacked, {}, (responses.llms, responses.items), provenance)


def brute_item_rest(responses):
    """Item-rest correlations by loops and numpy.corrcoef."""
    found = np.full(responses.num_items, np.nan)
    for j in range(responses.num_items):
        pairs = []
        for i in range(responses.num_llms):
            n, others = int(responses.attempts[i, j]), np.arange(responses.num_items) != j
            tried = responses.attempts[i, others].sum()
            if n and tried:
                pairs.append((responses.successes[i, j] / n, responses.successes[i, others].sum() / tried))
        x, r = np.array(pairs).T
        if len(x) > 2 and np.ptp(x) > 0 and np.ptp(r) > 0:
            found[j] = np.corrcoef(x, r)[0, 1]
    return found


@pytest.mark.parametrize("cells_per_tile", [1, 40, 2**18])
@pytest.mark.parametrize("design", [SuiteDesign(), SPARSE])
def test_statistics_are_what_they_say(design, cells_per_tile, monkeypatch):
    monkeypatch.setattr(replication, "_CELLS_PER_TILE", cells_per_tile)
    responses = simulate_suite(9, 14, design=design, seed=5).responses
    found = observed_statistics(responses)
    np.testing.assert_array_equal(found.llm_score, responses.successes.sum(axis=1))
    np.testing.assert_array_equal(found.item_score, responses.successes.sum(axis=0))
    np.testing.assert_allclose(found.item_rest, brute_item_rest(responses), atol=1e-12)
    if design is SPARSE:
        counts = responses.successes[responses.attempts == 3]
        np.testing.assert_array_equal(found.cells, np.bincount(counts, minlength=4))
    else:
        assert len(found.cells) == 0


def test_correlations_that_are_not_defined_are_missing():
    y = np.array([[1, 0, 1, 1], [1, 1, 0, 0], [1, 0, 0, 1], [1, 1, 0, 1]])
    tried = np.ones((4, 4), dtype=int)
    tried[2:, 3] = 0
    found = observed_statistics(Responses.from_arrays(y * tried, tried)).item_rest
    assert np.isnan(found[[0, 3]]).all()  # one is constant, one was answered by two LLMs
    assert np.isfinite(found[[1, 2]]).all()


@pytest.mark.parametrize("design", [SuiteDesign(), SPARSE])
def test_dispersions_and_associations_of_the_data(design, monkeypatch):
    """What is said of the data is computed again, cell by cell, in float64."""
    monkeypatch.setattr(replication, "_CELLS_PER_TILE", 40)
    suite = simulate_suite(9, 14, design=design, seed=6)
    y, n = (
        np.asarray(counts, dtype=float) for counts in (suite.responses.successes, suite.responses.attempts)
    )
    truth = suite.truth
    p = expit(truth.ability @ truth.discrimination.T + truth.easiness)
    observed = observed_statistics(suite.responses)
    found = replicate(CellLaw(truth), suite.responses, observed, np.random.default_rng(0))
    residual, variance = y - n * p, n * p * (1 - p)
    for name, axis in (("llm_score", 1), ("item_score", 0)):
        wanted = np.square(residual.sum(axis=axis)).sum() / variance.sum()
        assert found.dispersions[name].observed == pytest.approx(wanted, rel=1e-5)
    numerators, denominators = [], []
    for j in range(14):
        seen = n[:, j] > 0
        rest = ((y.sum(axis=1) - y[:, j]) / (n.sum(axis=1) - n[:, j]))[seen]
        v, e = variance[seen, j], residual[seen, j]
        centred = rest - np.average(rest, weights=v)
        informative = v.sum() >= 1
        numerators.append(informative * (e @ centred))
        denominators.append(informative * (v @ centred**2))
    numerators, denominators = np.array(numerators), np.array(denominators)
    wanted = numerators / np.sqrt(np.where(denominators > 0, denominators, 1.0))
    np.testing.assert_allclose(found.associations[0], wanted, rtol=1e-3, atol=1e-4)
    total = np.square(numerators).sum() / denominators.sum()
    assert found.dispersions["item_rest"].observed == pytest.approx(total, rel=1e-3)
    if design is SPARSE:
        assert found.dispersions["cells"].observed == pytest.approx(
            np.square(residual).sum() / variance.sum(), rel=1e-5
        )


@pytest.mark.parametrize("design", [SuiteDesign(), SPARSE])
def test_replicated_data_follow_the_model(design):
    """Means over 2,000 replicated data sets lie within 5 standard errors of exact expectations."""
    suite = simulate_suite(8, 12, design=design, seed=7)
    observed, rng = observed_statistics(suite.responses), np.random.default_rng(1)
    found = [replicate(CellLaw(suite.truth), suite.responses, observed, rng) for _ in range(2000)]
    p = expit(suite.truth.ability @ suite.truth.discrimination.T + suite.truth.easiness)
    expected = suite.responses.attempts * p
    for name, axis in (("llm_score", 1), ("item_score", 0)):
        scores = np.array([getattr(one.statistics, name) for one in found])
        assert_means(scores, expected.sum(axis=axis))
        with pytest.raises(AssertionError):
            assert_means(scores + 0.2, expected.sum(axis=axis))
        assert_means(np.array([one.dispersions[name].replicated for one in found])[:, None], [1.0])
    associations = np.array([one.associations[1] for one in found])
    varied = associations.std(axis=0) > 0
    assert varied.sum() > 4
    assert_means(associations[:, varied], 0.0)
    assert_means(associations[:, varied] ** 2, 1.0)
    if design is SPARSE:
        assert_means(np.array([one.dispersions["cells"].replicated for one in found])[:, None], [1.0])
        by_number = stats.binom.pmf(np.arange(4)[:, None], 3, p[suite.responses.attempts == 3])
        assert_means(np.array([one.statistics.cells for one in found]), by_number.sum(axis=1))


def assert_means(values, expected, max_z=5.0):
    error = values.std(axis=0) / np.sqrt(len(values))
    assert (np.abs(values.mean(axis=0) - expected) <= max_z * error + 1e-9).all()


def p_values(design, number):
    """P-values of data drawn from the very parameters that the posterior consists of."""
    found = []
    for seed in range(number):
        suite = simulate_suite(6, 10, design=design, seed=1000 + seed)
        posterior = posterior_at(suite.truth, suite.responses)
        found.append(check_predictive(posterior, suite.responses, seed=seed).discrepancies["p_value"])
    return found


def assert_level(found, level=0.1, rate=1e-5):
    """The number of p-values at most `level` is what a binomial allows for p-values that are uniform or larger."""
    most = stats.binom.isf(rate, len(found), level)
    for name in found[0].index:
        small = sum(one[name] <= level for one in found)
        assert small <= most, name


@pytest.mark.filterwarnings("ignore::bayes_irt.errors.ModelMisfitWarning")  # 1 in 100 may fail
def test_p_values_keep_their_level_where_nothing_was_fitted():
    found = p_values(SuiteDesign(attempts=3), 60)
    assert len(found[0]) == 5
    assert_level(found)
    for name in found[0].index:  # and they are not merely large
        assert sum(one[name] <= 0.5 for one in found) >= stats.binom.ppf(1e-5, len(found), 0.5)
    with pytest.raises(AssertionError):
        assert_level(p_values(SuiteDesign(attempts=3, cell_sd=2.0), 12))


REPEATED = SuiteDesign(attempts=8)
CORRELATED = SuiteDesign(attempts=8, cell_sd=1.5)
BINOMIAL = ModelSpec(observation="binomial")


@pytest.mark.filterwarnings("ignore::bayes_irt.errors.ModelMisfitWarning")
def test_binomial_fits_of_independent_attempts_pass():
    """Each of 15 suites fails with probability .01 at most: 4 or more with 1 in 80,000."""
    failed = 0
    for seed in range(15):
        responses = simulate_suite(16, 30, design=REPEATED, seed=seed).responses
        checks = check_predictive(fit_laplace(responses, spec=BINOMIAL, num_draws=200), responses, seed=seed)
        failed += checks.report["repeated attempts"].outcome is Outcome.FAIL
        others = [check for check in checks.report if check.name != "repeated attempts"]
        assert {check.outcome for check in others} == {Outcome.PASS}
        assert checks.cell_counts["observed"].sum() == 16 * 30
    assert failed < 4


@pytest.mark.parametrize("seed", range(3))
def test_binomial_fits_of_correlated_attempts_fail_and_warn(seed):
    responses = simulate_suite(16, 30, design=CORRELATED, seed=seed).responses
    posterior = fit_laplace(responses, spec=BINOMIAL, num_draws=200)
    with pytest.warns(ModelMisfitWarning, match=r"error bars are too narrow, by a factor of about [12]\.\d"):
        checks = check_predictive(posterior, responses)
    assert checks.report["repeated attempts"].outcome is Outcome.FAIL
    assert checks.cell_counts.index.tolist() == list(range(9))
    assert (checks.cell_counts["observed"] > checks.cell_counts["upper"]).loc[[0, 8]].all()
    assert checks.cell_counts["outside"].loc[[0, 8]].all()


def test_a_fit_of_its_own_data_passes(small_fit):
    responses, _, posterior = small_fit
    checks = check_predictive(posterior, responses)
    assert [check.outcome for check in checks.report] == [Outcome.PASS] * 3 + [Outcome.NOT_APPLICABLE]
    assert checks.report.passed
    assert len(checks.cell_counts) == 0


def point_posterior(responses):
    return posterior_at(fit_cbmm(responses, penalty=Priors()).parameters, responses)


def test_wrong_keys_are_found_and_named():
    suite = simulate_suite(60, 40, seed=3)
    assert check_predictive(point_posterior(suite.responses), suite.responses).report.passed
    wrong = np.argsort(-suite.truth.discrimination[:, 0])[:3]
    y = suite.responses.successes.copy()
    y[:, wrong] = 1 - y[:, wrong]
    responses = Responses.from_arrays(y)
    check = check_predictive(point_posterior(responses), responses).report["item-rest correlations"]
    assert check.outcome is Outcome.FAIL
    assert set(check.labels) == {responses.items[j] for j in wrong}
    assert "wrong keys" in check.message


def test_an_llm_and_items_that_are_off_are_named():
    suite = simulate_suite(20, 80, seed=4)
    assert check_predictive(posterior_at(suite.truth, suite.responses), suite.responses).report.passed
    ability = suite.truth.ability.copy()
    ability[7] += 3.0
    moved = Parameters(ability, suite.truth.discrimination, suite.truth.easiness)
    check = check_predictive(posterior_at(moved, suite.responses), suite.responses).report["scores of LLMs"]
    assert check.outcome is Outcome.FAIL
    assert check.labels[0] == "llm-008"
    middling = np.argsort(np.abs(suite.responses.successes.mean(axis=0) - 0.5))[:4]
    easiness = suite.truth.easiness.copy()
    easiness[middling] += 4.0
    moved = Parameters(suite.truth.ability, suite.truth.discrimination, easiness)
    check = check_predictive(posterior_at(moved, suite.responses), suite.responses).report["scores of items"]
    assert check.outcome is Outcome.FAIL
    assert set(check.labels) == {suite.responses.items[j] for j in middling}


def test_copied_items_spread_the_scores():
    y = simulate_suite(30, 60, seed=5).responses.successes.copy()
    y[:, :15] = y[:, [np.argmin(np.abs(y.mean(axis=0) - 0.5))]]
    responses = Responses.from_arrays(y)
    flat = Parameters(np.zeros((30, 1)), np.ones((60, 1)), np.log((y.mean(0) + 0.01) / (1.01 - y.mean(0))))
    check = check_predictive(posterior_at(flat, responses), responses).report["scores of LLMs"]
    assert check.outcome is Outcome.FAIL
    assert "copied items" in check.message


def test_what_cannot_be_checked_is_not_applicable():
    responses = Responses.from_arrays([[1, 0, 1], [1, 1, 0]])
    checks = check_predictive(point_posterior(responses), responses)
    assert checks.report["item-rest correlations"].outcome is Outcome.NOT_APPLICABLE
    assert checks.item_rest[["observed", "lower", "upper"]].isna().all(axis=None)
    assert not checks.item_rest["outside"].any()


def test_tables_are_shares_with_their_intervals():
    suite = simulate_suite(10, 30, design=SPARSE, seed=8)
    responses = suite.responses
    checks = check_predictive(posterior_at(suite.truth, responses), responses, num_draws=4000, prob=0.8)
    p = expit(suite.truth.ability @ suite.truth.discrimination.T + suite.truth.easiness)
    n = responses.attempts
    for table, axis, labels in (
        (checks.llm_scores, 1, responses.llms),
        (checks.item_scores, 0, responses.items),
    ):
        assert tuple(table.index) == labels
        np.testing.assert_allclose(table["observed"], responses.successes.sum(axis) / n.sum(axis))
        np.testing.assert_allclose(table["predicted"], (n * p).sum(axis) / n.sum(axis), atol=0.04)
        sd = np.sqrt((n * p * (1 - p)).sum(axis)) / n.sum(axis)
        width = (table["upper"] - table["lower"]) / (2 * stats.norm.isf(0.1) * sd)
        assert width.mean() == pytest.approx(1.0, abs=0.15)
        inside = (table["observed"] >= table["lower"]) & (table["observed"] <= table["upper"])
        assert (table["outside"] == ~inside).all()
    assert checks.prob == 0.8
    assert checks.provenance.configuration == {"num_draws": 4000, "prob": 0.8, "fit": "made up"}


def test_the_seed_decides(small_fit):
    responses, _, posterior = small_fit
    first, again, other = (check_predictive(posterior, responses, seed=seed) for seed in (4, 4, 5))
    assert first.item_rest.equals(again.item_rest)
    assert not first.item_rest.equals(other.item_rest)
    assert first.provenance.seed == 4


def test_cells_are_never_kept():
    """200 draws of 100,000 cells would take 160 MB in float64; a draw's cells take 0.8."""
    suite = simulate_suite(200, 500, seed=9)
    posterior = posterior_at(suite.truth, suite.responses)
    tracemalloc.start()
    try:
        check_predictive(posterior, suite.responses)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 16e6


def test_bad_input_is_refused(small_fit):
    responses, _, posterior = small_fit
    with pytest.raises(InvalidConfigurationError, match="other LLMs, items or outcomes"):
        check_predictive(posterior, simulate_suite(6, 20, seed=3).responses)
    with pytest.raises(InvalidConfigurationError, match="num_draws is 199"):
        check_predictive(posterior, responses, num_draws=199)
    with pytest.raises(InvalidConfigurationError, match="prob is 1"):
        check_predictive(posterior, responses, prob=1.0)
    with pytest.raises(InvalidConfigurationError, match="seed is -1"):
        check_predictive(posterior, responses, seed=-1)
    truth = simulate_suite(6, 20).truth
    broken = Parameters(
        truth.ability, truth.discrimination, np.where(np.arange(20) == 3, np.nan, truth.easiness)
    )
    with pytest.raises(NumericalError, match="non-finite"):
        check_predictive(posterior_at(broken, responses), responses)


def test_commonest_number_of_attempts():
    assert commonest_repeats(np.array([[1, 1], [0, 1]])) == 0
    assert commonest_repeats(np.array([[10, 8], [10, 1]])) == 10
