"""Prior sensitivity of the top of the board, against ArviZ on the whole log-likelihood, and where it must show."""

import arviz as az
import numpy as np
import pytest

from bayes_irt import Responses, fit_laplace, simulate_suite
from bayes_irt.analysis.ranks import ranks_by_draw
from bayes_irt.errors import InvalidConfigurationError
from bayes_irt.sensitivity import log_likelihoods, prior_sensitivity


@pytest.fixture(scope="module")
def fitted():
    responses = simulate_suite(12, 40, seed=1).responses
    with pytest.warns(UserWarning, match="too narrow"):
        return responses, fit_laplace(responses)


def test_totals_are_those_of_the_cells(fitted):
    responses, posterior = fitted
    whole = posterior.with_log_likelihood(responses).tree["log_likelihood"]["successes"].sum("cell")
    np.testing.assert_allclose(log_likelihoods(posterior, responses), whole.to_numpy().ravel(), rtol=1e-6)


def test_indices_are_arvizs_on_the_whole_log_likelihood(fitted):
    responses, posterior = fitted
    found = prior_sensitivity(posterior, responses, top=4).table
    whole = posterior.with_log_likelihood(responses).tree
    theirs = az.psense_summary(whole, var_names=["ability"], prior_var_names=["hyperparameters"], round_to=6)
    best = list(found.index)
    ranks = ranks_by_draw(posterior.ability.transpose("chain", "draw", "llm").to_numpy()[0])[None].astype(
        float
    )
    whole["posterior"] = whole["posterior"].to_dataset().assign(rank=(("chain", "draw", "llm"), ranks))
    by_rank = az.psense_summary(
        whole, var_names=["rank"], coords={"llm": best}, prior_var_names=["hyperparameters"], round_to=6
    )
    for llm, row in found.iterrows():
        assert row["rank_prior"] == pytest.approx(by_rank.loc[f"rank[{llm}]", "prior"], abs=2e-4)
        assert row["rank_likelihood"] == pytest.approx(by_rank.loc[f"rank[{llm}]", "likelihood"], rel=0.02)
        assert row["ability_prior"] == pytest.approx(theirs.loc[f"ability[{llm}]", "prior"], abs=2e-4)
        assert row["ability_likelihood"] == pytest.approx(
            theirs.loc[f"ability[{llm}]", "likelihood"], rel=0.02
        )


def test_hyperpriors_matter_little_where_data_are_many_and_show_where_there_are_none(fitted):
    responses, posterior = fitted
    enough = prior_sensitivity(posterior, responses)
    assert enough.sensitive == ()
    assert "do not depend" in enough.sentence
    few = Responses.from_arrays([[1, 1, 0], [1, 0, 0], [0, 1, 0], [1, 1, 1], [0, 0, 1]])
    with pytest.warns(UserWarning, match="Laplace"):
        starved = prior_sensitivity(fit_laplace(few), few)
    worst = starved.table[["ability_prior", "rank_prior"]].to_numpy().max()
    assert worst > 3 * enough.table[["ability_prior", "rank_prior"]].to_numpy().max()


def test_bad_arguments(fitted):
    responses, posterior = fitted
    with pytest.raises(InvalidConfigurationError, match="top is 0"):
        prior_sensitivity(posterior, responses, top=0)
