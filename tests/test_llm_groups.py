"""Groups of related LLMs: who belongs together, the algebra of their blocks, their density, draws, and refusals."""

import json

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest
from scipy import stats

from bayes_irt.calibration import CalibrationPlan, check_calibration
from bayes_irt.coverage import CoverageCase
from bayes_irt.errors import InvalidConfigurationError
from bayes_irt.fitting import FitPlan
from bayes_irt.inference.laplace import fit_laplace
from bayes_irt.inference.nuts import fit_nuts
from bayes_irt.inference.svi import fit_svi
from bayes_irt.llm_groups import GroupPrecision, ability_precision, group_labels, groups_from_labels
from bayes_irt.model_spec import ModelSpec, restored_spec
from bayes_irt.prior_densities import log_ability_prior, log_share_prior
from bayes_irt.prior_simulation import prior_predictive, simulate_from_prior
from bayes_irt.priors import LearnedShare, LogNormal, Priors
from bayes_irt.provenance import plain
from bayes_irt.responses import Responses
from bayes_irt.simulate import simulate_suite

SPEC = ModelSpec(llm_groups="family")
LABELS = np.array(["a", "b", "a", "", "b", "a", "c", ""], dtype=object)


@pytest.fixture(autouse=True)
def _x64():
    with jax.enable_x64(True):
        yield


def covariance(share, labels=LABELS):
    """Return the matrix written out: 1 on the diagonal, the share where two LLMs are related."""
    related = (labels[:, None] == labels) & (labels != "")
    return np.where(np.eye(len(labels), dtype=bool), 1.0, share * related)


# The algebra


@pytest.mark.parametrize("share", [0.0, 0.3, 0.95])
@pytest.mark.parametrize("data", [0.0, 2.0])
def test_blocks_are_those_of_the_matrix_written_out(share, data):
    groups, rng = groups_from_labels(LABELS), np.random.default_rng(0)
    prior = ability_precision(share, groups)
    held = data * rng.gamma(1.0, size=len(LABELS))
    precision = GroupPrecision(prior.own + held, prior.shared, groups)
    dense = np.linalg.inv(covariance(share)) + np.diag(held)
    values = rng.normal(size=(2, len(LABELS)))
    np.testing.assert_allclose(precision.times(values), values @ dense, atol=1e-10)
    np.testing.assert_allclose(precision.solve(values), values @ np.linalg.inv(dense), atol=1e-10)
    np.testing.assert_allclose(precision.log_determinant(), np.linalg.slogdet(dense)[1], atol=1e-10)
    factor = jax.jacfwd(precision.spread)(jnp.zeros(len(LABELS)))
    np.testing.assert_allclose(factor @ factor.T, np.linalg.inv(dense), atol=1e-10)


def density_by_quadrature(ability, share, labels):
    """Return the density of standardised values up to a constant: location and scale are integrated out."""
    law = stats.multivariate_normal(cov=covariance(share, labels))
    nodes, weights = np.polynomial.legendre.leggauss(80)
    level, radius = np.meshgrid(7.0 * nodes, 4.5 * (nodes + 1.0), indexing="ij")
    density = law.pdf(level[..., None] + radius[..., None] * ability) * radius ** (len(ability) - 2)
    return weights @ density @ weights


def test_the_density_is_that_of_normal_values_without_location_and_scale():
    labels = np.array(["a", "a", "b", "b", ""], dtype=object)
    groups, rng = groups_from_labels(labels), np.random.default_rng(1)
    found, wanted = [], []
    for share in (0.2, 0.8, 0.8):
        ability = rng.normal(size=len(labels))
        ability = (ability - ability.mean()) / ability.std()
        related, unrelated = (density_by_quadrature(ability, value, labels) for value in (share, 0.0))
        wanted.append(np.log(related / unrelated))
        found.append(float(log_ability_prior(jnp.asarray(ability), jnp.asarray(share), groups)))
    np.testing.assert_allclose(found, wanted, atol=1e-9)
    assert np.ptp(wanted) > 0.5  # a density of 1 everywhere would not do


def test_densities_of_many_draws_are_those_of_each():
    groups, rng = groups_from_labels(LABELS), np.random.default_rng(0)
    ability, share = rng.normal(size=(2, 3, len(LABELS))), rng.uniform(size=(2, 3))
    ability = (ability - ability.mean(axis=-1, keepdims=True)) / ability.std(axis=-1, keepdims=True)
    together = log_ability_prior(jnp.asarray(ability), jnp.asarray(share), groups)
    for place in np.ndindex(2, 3):
        one = log_ability_prior(jnp.asarray(ability[place]), jnp.asarray(share[place]), groups)
        assert float(together[place]) == pytest.approx(float(one), abs=1e-12)


def test_the_shares_prior_is_beta():
    spec = ModelSpec(llm_groups="family", ability_share=LearnedShare(2.0, 5.0))
    shares = np.array([0.1, 0.5, 0.9])
    np.testing.assert_allclose(log_share_prior(spec, shares), stats.beta(2, 5).logpdf(shares), rtol=1e-9)


# Draws


def test_draws_from_the_prior_correlate_within_groups():
    """Against standardised draws of a multivariate normal; 4.5 standard errors, 1 false alarm in 4,000 runs of 28."""
    spec = ModelSpec(llm_groups="family", ability_share=LearnedShare(60_000.0, 40_000.0))
    draws = prior_predictive(spec, len(LABELS), 2, num_draws=4000, groups=LABELS.tolist()).draws
    np.testing.assert_allclose(draws["ability_share"], 0.6, atol=0.01)
    raw = np.random.default_rng(1).multivariate_normal(np.zeros(len(LABELS)), covariance(0.6), size=40_000)
    other = (raw - raw.mean(axis=1, keepdims=True)) / raw.std(axis=1, keepdims=True)
    found, wanted = np.corrcoef(draws["ability"].to_numpy().T), np.corrcoef(other.T)
    error = (1 - wanted**2) * np.sqrt(1 / 4000 + 1 / 40_000)
    pairs = np.triu_indices(len(LABELS), 1)
    assert (abs(found - wanted) / np.where(error > 0, error, 1))[pairs].max() < 4.5
    related = covariance(1.0)[pairs] > 0
    assert wanted[pairs][related].min() > 0.2 > 0.0 > wanted[pairs][~related].max()


def test_models_without_groups_draw_what_they_did():
    """The stream of random numbers is that of the unrelated model: hyperparameters, items, abilities, cells."""
    suite = simulate_from_prior(ModelSpec(), 8, 10, seed=1)
    related = simulate_from_prior(SPEC, 8, 10, seed=1, groups=LABELS.tolist())
    assert set(related.hyperparameters) - set(suite.hyperparameters) == {"ability_share"}
    for name, value in suite.hyperparameters.items():
        assert related.hyperparameters[name] == value
    assert suite.responses.llm_metadata.columns.tolist() == []
    known = related.responses.llm_metadata["family"]
    assert known.isna().tolist() == (LABELS == "").tolist()
    assert group_labels(related.responses.llm_metadata, "family").tolist() == LABELS.tolist()


@pytest.mark.parametrize(
    ("spec", "groups", "message"),
    [
        (SPEC, None, "groups is absent"),
        (ModelSpec(), ["a", "a", "b"], "groups is given"),
        (SPEC, ["a", "a"], "2 groups for 3 LLMs"),
        (SPEC, ["a", "b", "c"], "No two of the 3 LLMs"),
        (SPEC, ["a", "a", "a"], "All 3 LLMs are in one group"),
    ],
)
def test_groups_that_do_not_fit_the_model_are_refused(spec, groups, message):
    with pytest.raises(InvalidConfigurationError, match=message):
        simulate_from_prior(spec, 3, 5, groups=groups)
    with pytest.raises(InvalidConfigurationError, match=message):
        prior_predictive(spec, 3, 5, num_draws=5, groups=groups)


def test_calibration_takes_groups_from_its_plan():
    def engine(responses, spec, seed):
        raise AssertionError(responses.llm_metadata["family"].tolist())

    plan = CalibrationPlan(num_datasets=50, groups=("a", "a", "b"))
    with pytest.raises(AssertionError, match=r"\['a', 'a', 'b'\]"):
        check_calibration(engine, 3, 5, spec=SPEC, plan=plan)
    with pytest.raises(InvalidConfigurationError, match="groups is absent"):
        check_calibration(engine, 3, 5, spec=SPEC)


# Metadata


def test_labels_are_read_from_any_kind_of_column():
    frame = pd.DataFrame(
        {"text": ["x", None, "x"], "number": [7.0, np.nan, 7.0], "flag": [True, False, True]}
    )
    assert group_labels(frame, "text").tolist() == ["x", "", "x"]
    assert group_labels(frame, "number").tolist() == ["7.0", "", "7.0"]
    assert group_labels(frame, "flag").tolist() == ["True", "False", "True"]


@pytest.mark.parametrize(
    ("column", "message"),
    [
        ("famly", r"no column 'famly'; there are 'family', 'own', 'same', 'none'\. Name the column"),
        ("own", "No two of the 3 LLMs share a group in the column 'own'"),
        ("none", "No two of the 3 LLMs share a group in the column 'none'"),
        ("same", "All 3 LLMs are in one group in the column 'same'"),
    ],
)
def test_columns_that_tell_nothing_are_refused(column, message):
    metadata = pd.DataFrame(
        {"family": ["a", "a", "b"], "own": list("abc"), "same": ["a"] * 3, "none": [None] * 3},
        index=["x", "y", "z"],
    )
    responses = Responses.from_arrays(np.eye(3, 5, dtype=int) + 0, llms=list("xyz"), llm_metadata=metadata)
    with pytest.raises(InvalidConfigurationError, match=message):
        group_labels(metadata, column)
    with pytest.raises(InvalidConfigurationError, match=message):
        fit_nuts(responses, spec=ModelSpec(llm_groups=column))


def test_responses_without_metadata_are_refused():
    with pytest.raises(InvalidConfigurationError, match="no column 'family'; there is none"):
        fit_nuts(simulate_suite(6, 20).responses, spec=SPEC)


# The model as data


def test_models_survive_a_way_through_json():
    for spec in (
        SPEC,
        ModelSpec(Priors(discrimination=LogNormal()), "base LLM", LearnedShare(2.0, 3.0)),
    ):
        assert restored_spec(json.loads(json.dumps(plain(spec)))) == spec
        assert len({spec, restored_spec(plain(spec)), spec.for_mode()}) == 2
    old = {"type": "ModelSpec", "priors": plain(Priors())}  # written before there were groups
    assert restored_spec(old) == ModelSpec()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"llm_groups": ""}, "must be the name of a column"),
        ({"llm_groups": 3}, "must be the name of a column"),
        ({"llm_groups": "family", "ability_share": 0.5}, "must be a LearnedShare"),
        ({"ability_share": LearnedShare(2.0)}, "no LLMs are related"),
    ],
)
def test_models_that_make_no_sense_are_refused(options, message):
    with pytest.raises(InvalidConfigurationError, match=message):
        ModelSpec(**options)


@pytest.mark.parametrize("alpha", [0.0, -1.0, np.inf, np.nan, "1"])
def test_senseless_priors_of_the_share_are_refused(alpha):
    with pytest.raises(InvalidConfigurationError, match="must be a number between"):
        LearnedShare(alpha)


# What does not know groups says so


def test_laplace_names_the_engines_that_can():
    with pytest.raises(
        InvalidConfigurationError, match=r"Laplace cannot fit the groups.*'family'.*Use fit_nuts or fit_svi"
    ):
        fit_laplace(simulate_suite(6, 20).responses, spec=SPEC)


@pytest.mark.parametrize("fit", [fit_nuts, fit_svi])
def test_absent_columns_of_groups_are_named(fit):
    with pytest.raises(InvalidConfigurationError, match="no column 'family'"):
        fit(simulate_suite(6, 20).responses, spec=SPEC)


@pytest.mark.parametrize("method", ["cbmm", "laplace"])
def test_plans_of_other_methods_are_refused(method):
    for able in ("nuts", "svi"):
        assert FitPlan(able, SPEC).spec is SPEC
    with pytest.raises(InvalidConfigurationError, match=f"'{method}' cannot fit the groups"):
        FitPlan(method, SPEC)


def test_suites_of_the_coverage_table_have_no_groups():
    with pytest.raises(InvalidConfigurationError, match="suites have none"):
        CoverageCase("related", 8, 40, spec=SPEC)
