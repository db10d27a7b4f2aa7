"""Convergence checks on draws made by hand: independent ones pass, and each defect fails the check that is for it.

Independent draws fail by chance alone with a probability below 1e-6 per test (seeds are fixed).
"""

import numpy as np
import pytest

from bayes_irt.checks import Outcome
from bayes_irt.diagnostics import ConvergenceLimits, check_posterior
from bayes_irt.errors import InvalidConfigurationError
from bayes_irt.posterior import posterior_from_draws
from bayes_irt.provenance import Provenance

CHAINS, DRAWS, LLMS, ITEMS = 4, 1000, 6, 8
LABELS = (tuple(f"m{i}" for i in range(LLMS)), tuple(f"q{j}" for j in range(ITEMS)))


def good_draws(chains=CHAINS, items=ITEMS, seed=0):
    rng = np.random.default_rng(seed)
    shape = (chains, DRAWS)
    ability = np.linspace(-1, 1, LLMS) + 0.3 * rng.normal(size=(*shape, LLMS))
    ability -= ability.mean(axis=-1, keepdims=True)
    ability /= ability.std(axis=-1, keepdims=True)
    return {
        "ability": ability[..., None],
        "discrimination": np.exp(0.3 * rng.normal(size=(*shape, items)))[..., None],
        "easiness": rng.normal(size=(*shape, items)),
        "discrimination_scale": np.exp(rng.normal(size=shape)),
        "easiness_location": rng.normal(size=shape),
        "easiness_scale": np.exp(rng.normal(size=shape)),
    }


def good_stats(seed=1):
    rng = np.random.default_rng(seed)
    shape = (CHAINS, DRAWS)
    return {
        "diverging": np.zeros(shape, dtype=bool),
        "energy": rng.normal(size=shape),
        "n_steps": 2 ** rng.integers(3, 6, size=shape) - 1,
    }


def report_on(draws, stats=None, limits=None, method="nuts"):
    items = tuple(f"q{j}" for j in range(draws["easiness"].shape[-1]))
    provenance = Provenance(method, {"sampler": {"max_tree_depth": 10}}, "0")
    posterior = posterior_from_draws(draws, stats or {}, (LABELS[0], items), provenance)
    return check_posterior(posterior, limits=limits)


def failed(report):
    return {check.name for check in report.failures}


def test_independent_draws_pass():
    report = report_on(good_draws(), good_stats())
    judged = [check for check in report if check.outcome is not Outcome.NOT_APPLICABLE]
    assert {check.outcome for check in judged} == {Outcome.PASS}
    assert [check.name for check in judged] == [
        "R-hat",
        "R-hat of items",
        "bulk ESS",
        "tail ESS",
        "ESS of items",
        "divergences",
        "E-BFMI",
        "tree depth",
    ]


@pytest.mark.parametrize("name", ["discrimination_scale", "easiness_location", "easiness_scale"])
def test_a_chain_that_stays_elsewhere_is_named(name):
    draws = good_draws()
    draws[name][2] += 3.0
    report = report_on(draws, good_stats())
    assert {"R-hat", "bulk ESS"} <= failed(report) <= {"R-hat", "bulk ESS", "tail ESS"}
    assert report["R-hat"].labels == (name,)
    assert name in report["R-hat"].message


def test_an_llm_whose_chains_disagree_is_named():
    draws = good_draws()
    draws["ability"][0, :, 5] += 4.0  # the gauge moves the others too, but less
    assert report_on(draws)["R-hat"].labels == ("ability[m5]",)


def test_an_item_whose_chains_disagree_is_named():
    draws = good_draws()
    draws["discrimination"][1, :, 7] += 2.0
    report = report_on(draws, good_stats())
    assert failed(report) == {"R-hat of items", "ESS of items"}
    assert report["R-hat of items"].labels == ("discrimination[q7]",)
    assert "discrimination[q7]" in report["ESS of items"].labels[0]


@pytest.mark.parametrize(("number", "outcome"), [(0, "pass"), (1, "pass"), (2, "fail")])
def test_items_are_judged_by_their_share(number, outcome):
    """Of 40 item parameters, one in 40 may lie between the two limits of R-hat, two may not."""
    draws = good_draws(items=20)
    draws["easiness"][0, :, :number] += 0.45
    check = report_on(draws, limits=ConvergenceLimits(item_share=0.97))["R-hat of items"]
    assert check.outcome == outcome
    if number:
        rhat = float(check.message.split(" is ")[1].split()[0])
        assert 1.01 < rhat < 1.05
        assert f"{1 - number / 40:.2%} of 40" in check.message


def test_draws_that_stick_have_a_small_effective_sample_size():
    draws = good_draws()
    draws["easiness_scale"] = np.repeat(draws["easiness_scale"][:, ::50], 50, axis=1)
    report = report_on(draws, good_stats())
    assert {"bulk ESS", "tail ESS"} <= failed(report)
    assert report["bulk ESS"].labels == report["tail ESS"].labels == ("easiness_scale",)
    draws = good_draws()
    draws["easiness"][:, :, 3] = np.repeat(draws["easiness"][:, ::50, 3], 50, axis=1)
    check = report_on(draws)["ESS of items"]
    assert check.outcome is Outcome.FAIL
    assert "easiness[q3]" in check.labels[0]


def test_one_divergence_fails():
    stats = good_stats()
    stats["diverging"][3, 77] = True
    report = report_on(good_draws(), stats)
    assert failed(report) == {"divergences"}
    assert "1 of 4000 draws" in report["divergences"].message
    assert "target_accept" in report["divergences"].message


def test_an_energy_that_wanders_fails():
    stats = good_stats()
    stats["energy"][2] = np.cumsum(0.1 * stats["energy"][2])
    report = report_on(good_draws(), stats)
    assert failed(report) == {"E-BFMI"}
    assert "chain 2" in report["E-BFMI"].message


def test_a_trajectory_at_its_limit_fails():
    stats = good_stats()
    stats["n_steps"][0, 5:8] = 2**10 - 1
    stats["n_steps"][1, 5] = 2**10 - 2
    report = report_on(good_draws(), stats)
    assert failed(report) == {"tree depth"}
    assert "3 of 4000" in report["tree depth"].message


def test_what_does_not_apply_is_no_failure():
    report = report_on(good_draws(chains=1), limits=ConvergenceLimits(ess=200), method="laplace")
    outcomes = {check.name: check.outcome for check in report}
    for name in ("R-hat", "R-hat of items", "divergences", "E-BFMI", "tree depth"):
        assert outcomes[name] is Outcome.NOT_APPLICABLE
    assert report.passed
    assert outcomes["bulk ESS"] is Outcome.PASS
    assert "laplace" in report["divergences"].message


def test_two_llms_whose_order_is_certain_can_pass():
    """Their abilities are +1 and -1 in every draw, up to rounding: there is nothing to mix."""
    draws = good_draws()
    draws["ability"] = np.array([1.0, -1.0])[:, None] + 1e-15 * draws["ability"][:, :, :2]
    provenance = Provenance("nuts", {"sampler": {"max_tree_depth": 10}}, "0")
    posterior = posterior_from_draws(draws, good_stats(), (LABELS[0][:2], LABELS[1]), provenance)
    assert check_posterior(posterior).passed


def test_chains_stuck_at_different_values_fail():
    draws = good_draws()
    draws["easiness_location"][:] = np.arange(CHAINS)[:, None]
    assert {"R-hat", "bulk ESS"} <= failed(report_on(draws, good_stats()))


def test_a_draw_that_is_not_a_number_fails():
    draws = good_draws()
    draws["easiness_location"][1, 2] = np.nan
    assert {"R-hat", "bulk ESS", "tail ESS"} <= failed(report_on(draws, good_stats()))


def test_limits_are_the_users():
    draws = good_draws()
    assert failed(report_on(draws, limits=ConvergenceLimits(ess=5000))) == {"bulk ESS", "tail ESS"}
    for bad in ({"rhat": 1.0}, {"item_rhat": 0.9}, {"item_share": 0.0}, {"ess": 0.0}, {"ebfmi": -1.0}):
        with pytest.raises(InvalidConfigurationError, match="must"):
            ConvergenceLimits(**bad)
