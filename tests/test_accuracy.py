"""Expected accuracy against brute force, its log odds where they are extreme, and what its thinning keeps."""

import numpy as np
import pytest
from scipy.special import expit, logit

from bayes_irt.analysis.accuracy import expected_accuracy, expected_log_odds
from bayes_irt.errors import InvalidConfigurationError
from bayes_irt.posterior import posterior_from_draws
from bayes_irt.provenance import Provenance


def made_up(num_llms=7, num_items=11, num_draws=30, slope=1.0, seed=0):
    rng = np.random.default_rng(seed)
    shape = (2, num_draws)
    draws = {
        "ability": rng.normal(size=(*shape, num_llms, 1)),
        "discrimination": slope * np.abs(rng.normal(size=(*shape, num_items, 1))),
        "easiness": 1.5 * rng.normal(size=(*shape, num_items)),
    }
    labels = tuple(
        tuple(f"{word}{number}" for number in range(size))
        for word, size in (("m", num_llms), ("q", num_items))
    )
    return posterior_from_draws(draws, {}, labels, Provenance("toy", {}, "", 0))


def brute_force(posterior):
    draws = posterior.draws
    logits = draws["ability"] * draws["discrimination"] + draws["easiness"]
    mean = expit(logits).mean("item").transpose("chain", "draw", "llm")
    return mean.to_numpy().reshape(-1, len(posterior.llms))


def test_it_is_the_mean_chance_over_all_items():
    posterior = made_up()
    np.testing.assert_allclose(expected_accuracy(posterior), brute_force(posterior), rtol=1e-12)
    np.testing.assert_allclose(expected_log_odds(posterior), logit(brute_force(posterior)), rtol=1e-10)


def test_chosen_llms_come_in_the_order_asked_for():
    posterior = made_up()
    chosen = expected_accuracy(posterior, ["m4", "m0"])
    np.testing.assert_allclose(chosen, brute_force(posterior)[:, [4, 0]], rtol=1e-12)
    with pytest.raises(InvalidConfigurationError, match="No LLM is called 'm9'"):
        expected_accuracy(posterior, ["m4", "m9"])


def test_thinned_draws_are_spread_over_all_chains():
    posterior = made_up()
    kept = expected_accuracy(posterior, most_draws=6)
    np.testing.assert_allclose(kept, brute_force(posterior)[[5, 15, 25, 35, 45, 55]], rtol=1e-12)
    np.testing.assert_array_equal(expected_accuracy(posterior, most_draws=60), expected_accuracy(posterior))
    with pytest.raises(InvalidConfigurationError, match="most_draws"):
        expected_accuracy(posterior, most_draws=0)


def test_log_odds_stay_finite_where_nothing_is_wrong():
    """With logits near 100 the chance of a wrong answer is 1e-44: 1 minus the accuracy would be 0."""
    posterior = made_up()
    tree = posterior.tree.copy()
    tree["posterior"]["easiness"] = tree["posterior"]["easiness"] * 0 + 100
    steep = type(posterior)(tree, posterior.provenance)
    ability, slopes = steep.draws["ability"], steep.draws["discrimination"]
    wanted = -np.log(np.exp(-(ability * slopes + 100)).mean("item"))
    found = expected_log_odds(steep)
    np.testing.assert_allclose(
        found, wanted.transpose("chain", "draw", "llm").to_numpy().reshape(60, -1), rtol=1e-9
    )
    assert np.isinf(logit(brute_force(steep))).all()


@pytest.mark.parametrize("slope", [1.0, 5.0])
def test_many_llms_are_interpolated_in_their_order(slope):
    """Beyond 256 LLMs: the error stays below 2e-6, against a spread of about .01 between draws."""
    posterior = made_up(num_llms=400, num_items=300, num_draws=4, slope=slope)
    found, exact = expected_accuracy(posterior), brute_force(posterior)
    assert abs(found - exact).max() < 2e-6
    np.testing.assert_array_equal(np.argsort(found, axis=1), np.argsort(exact, axis=1))
    assert abs(found - exact).max() > 0
