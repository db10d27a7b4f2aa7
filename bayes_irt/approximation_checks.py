"""Checks of what Laplace and SVI say about themselves, recorded in the posterior's group ``approximation``."""

from __future__ import annotations

import math

from bayes_irt.checks import Check, Outcome
from bayes_irt.inference.mode import TOLERANCE
from bayes_irt.posterior import Posterior

#: Moves of Laplace's mean below this share of a posterior standard deviation end the search for it.
CENTRE_TOLERANCE = 0.05
#: With fewer LLMs the intervals of approximations are too narrow: of everything, and of discriminations.
VERY_FEW_LLMS, FEW_LLMS = 10, 100
#: Beyond this Pareto k-hat importance weights do not mend an approximation.
LARGEST_PARETO_K = 0.7
#: Ability sds that differ from Laplace's by more, in the median or for one LLM, are said to disagree.
MEDIAN_DISAGREEMENT, WORST_DISAGREEMENT = 1.1, 1.5

_NAMES = ("mode", "mean", "few LLMs", "ELBO", "agreement with Laplace", "Pareto k-hat")


def check_approximation(posterior: Posterior) -> list[Check]:
    """Check what an approximate engine recorded.

    Parameters
    ----------
    posterior
        The draws.

    Returns
    -------
    list of Check
        "mode" and "mean" (Laplace), "few LLMs" (both), "ELBO", "agreement with Laplace" and "Pareto k-hat" (SVI); what
        the engine has no record of is "not applicable".
    """
    method = posterior.provenance.method
    found = {}
    if "approximation" in posterior.tree.children:
        stored = posterior.tree["approximation"].to_dataset()
        values = {str(name): float(stored[name]) for name in stored}
        made = [*_laplace(values), *_svi(values), _few_llms(len(posterior.llms), method)]
        found = {check.name: check for check in made}
    missing = f"{method} has no such record."
    return [found.get(name, Check(name, Outcome.NOT_APPLICABLE, missing)) for name in _NAMES]


def _few_llms(num_llms: int, method: str) -> Check:
    """Say whether there are LLMs enough for a Gaussian."""
    if num_llms >= FEW_LLMS:
        return Check("few LLMs", Outcome.PASS, f"{num_llms} LLMs (at least {FEW_LLMS} are wanted).")
    if num_llms < VERY_FEW_LLMS:
        short = f"below {VERY_FEW_LLMS} all intervals are too narrow."
    else:
        others = "those of abilities are not" if method == "laplace" else "those of abilities too"
        short = f"below {FEW_LLMS} the intervals of discriminations are too narrow, 90 % ones hold about 85 %"
        short = f"{short}; {others}."
    return Check(
        "few LLMs", Outcome.CANNOT_TELL, f"{num_llms} LLMs: {short} Use fit_nuts where that matters."
    )


def _laplace(values: dict[str, float]) -> list[Check]:
    if "mode_change" not in values:
        return []
    change, cycles = values["mode_change"], int(values["mode_cycles"])
    message = f"The last of {cycles} cycles moved by {change:.2g} posterior sd (limit {TOLERANCE:g})."
    mode = _judge("mode", change < TOLERANCE and not values["precision_repaired"], message)
    change = values["centre_change"]
    message = (
        f"The mean of an ability lies up to {values['centre_shift']:.2f} posterior sd off its mode; the last move was "
        f"{change:.2g} (limit {CENTRE_TOLERANCE:g})."
    )
    return [mode, _judge("mean", change <= CENTRE_TOLERANCE, message)]


def _svi(values: dict[str, float]) -> list[Check]:
    if "elbo" not in values:
        return []
    message = (
        f"After {int(values['steps'])} steps it is {values['elbo']:.1f}; in the last 500 it rose by "
        f"{values['elbo_trend']:.2f} (standard error {values['elbo_trend_se']:.2f})."
    )
    return [
        _judge("ELBO", bool(values["converged"]), message),
        _agreement(values),
        _pareto(values["pareto_k"]),
    ]


def _agreement(values: dict[str, float]) -> Check:
    """Compare an SVI fit's standard deviations of abilities with Laplace's."""
    median = values["sd_ratio_median"]
    lowest, highest = values["sd_ratio_lowest"], values["sd_ratio_highest"]
    near = max(median, 1.0 / median) <= MEDIAN_DISAGREEMENT
    near = near and max(highest, 1.0 / lowest) <= WORST_DISAGREEMENT
    message = (
        f"Sds of abilities are {median:.2f} times Laplace's in the median ({lowest:.2f} to {highest:.2f})."
    )
    return _judge("agreement with Laplace", near, message)


def _pareto(k: float) -> Check:
    name = "Pareto k-hat"
    if math.isnan(k):
        return Check(name, Outcome.NOT_APPLICABLE, "The suite is too large for it.")
    message = f"It is {k:.2f} (limit {LARGEST_PARETO_K})."
    if k < LARGEST_PARETO_K:
        return Check(name, Outcome.PASS, message)
    message += " Importance weights break down with so many parameters: it cannot tell how good the guide is."
    return Check(name, Outcome.CANNOT_TELL, message)


def _judge(name: str, good: bool, message: str) -> Check:
    advice = "" if good else " Use fit_nuts."
    return Check(name, Outcome.PASS if good else Outcome.FAIL, message + advice)
