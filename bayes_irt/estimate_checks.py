"""Can a point estimate be read? Identifiability, convergence, separation, agreement of starts.

References
----------
Constrained block MM for item response theory, arXiv 2605.07046: abilities and discriminations are identified up to
location and scale where abilities are not all equal and discriminations not all 0.
"""

from __future__ import annotations

import numpy as np

from bayes_irt.checks import Check, CheckReport, Outcome
from bayes_irt.estimate import PointEstimate, Status

_AGREEMENT = 0.99


def check_estimate(estimate: PointEstimate) -> CheckReport:
    """Check a point estimate.

    Parameters
    ----------
    estimate
        The estimate.

    Returns
    -------
    CheckReport
        Checks "abilities vary" and "items discriminate" (without which nothing is identified), "convergence",
        "separated items", "separated LLMs" and "agreement of starts".

    Examples
    --------
    >>> from bayes_irt import Priors, fit_cbmm, simulate_suite
    >>> report = check_estimate(fit_cbmm(simulate_suite(20, 50).responses, penalty=Priors()))
    >>> str(report["items discriminate"].outcome)
    'pass'
    """
    penalised = estimate.provenance.configuration["penalty"] is not None
    return CheckReport(
        (
            _abilities_vary(estimate),
            _items_discriminate(estimate),
            _convergence(estimate),
            _separated("separated items", "items", estimate.separated_items, penalised=penalised),
            _separated("separated LLMs", "LLMs", estimate.separated_llms, penalised=penalised),
            _starts(estimate),
        )
    )


def _abilities_vary(estimate: PointEstimate) -> Check:
    equal = np.flatnonzero(np.ptp(estimate.parameters.ability, axis=0) == 0)
    if len(equal) == 0:
        return Check("abilities vary", Outcome.PASS, "No trait has the same ability for all LLMs.")
    message = (
        f"All LLMs have the same ability on {_traits(equal, estimate)}: discriminations mean nothing there. The LLMs "
        "have the same scores, or no item tells them apart."
    )
    return Check("abilities vary", Outcome.FAIL, message)


def _items_discriminate(estimate: PointEstimate) -> Check:
    flat = np.flatnonzero(~(estimate.parameters.discrimination > 0).any(axis=0))
    if len(flat) == 0:
        number = int((estimate.parameters.discrimination == 0).all(axis=1).sum())
        message = f"{number} of {len(estimate.items)} items have discrimination 0."
        return Check("items discriminate", Outcome.PASS, message)
    message = (
        f"All items have discrimination 0 on {_traits(flat, estimate)}: the order of abilities means nothing there. "
        "No ability that the items share was found."
    )
    return Check("items discriminate", Outcome.FAIL, message)


def _traits(which: np.ndarray, estimate: PointEstimate) -> str:
    if estimate.parameters.num_traits == 1:
        return "the only trait"
    return "trait " + ", ".join(str(number) for number in which)


def _convergence(estimate: PointEstimate) -> Check:
    outcome = Outcome.PASS if estimate.status is Status.CONVERGED else Outcome.FAIL
    message = (
        f"{estimate.status.advice} In the last cycle a parameter changed by {estimate.change:.1e}; the first-order "
        f"residual per attempt is {estimate.kkt_residual:.1e}."
    )
    return Check("convergence", outcome, message)


def _separated(name: str, what: str, labels: tuple[str, ...], *, penalised: bool) -> Check:
    if not labels:
        return Check(name, Outcome.PASS, f"No {what} are separated.")
    found = f"The others predict the outcomes of {len(labels)} {what} without error"
    if penalised:
        message = f"{found}: how far out these are, the penalty decides, not the data."
        return Check(name, Outcome.PASS, message, labels)
    message = f"{found}: these have no finite estimate. Give a penalty."
    return Check(name, Outcome.FAIL, message, labels)


def _starts(estimate: PointEstimate) -> Check:
    name = "agreement of starts"
    losses, agreement = (estimate.dataset[key].to_numpy() for key in ("start_loss", "start_agreement"))
    if len(losses) == 1:
        message = "One start; Solver(starts=...) takes several, since the loss is not convex."
        return Check(name, Outcome.NOT_APPLICABLE, message)
    good = bool((agreement > _AGREEMENT).all())
    message = (
        f"{len(losses)} starts ended at losses from {losses.min():.2f} to {losses.max():.2f}; the least rank "
        f"correlation of scores with the best is {agreement.min():.3f} (limit {_AGREEMENT})."
    )
    return Check(name, Outcome.PASS if good else Outcome.FAIL, message)
