"""One fit from data to a run: the point estimate, the engine asked for, its checks, and what to say about them."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, Protocol

import numpy as np

from bayes_irt.cbmm import fit_cbmm
from bayes_irt.checks import Outcome
from bayes_irt.data_checks import require_linked
from bayes_irt.estimate import PointEstimate, Status
from bayes_irt.estimate_checks import check_estimate
from bayes_irt.inference.engine import require_all_llms, require_gaussian, settled_spec, start_penalty
from bayes_irt.item_law import item_law
from bayes_irt.llm_groups import group_labels
from bayes_irt.model_spec import SHARE, ModelSpec
from bayes_irt.posterior import Posterior
from bayes_irt.priors import Penalty, Priors
from bayes_irt.responses import Responses
from bayes_irt.runs import Run
from bayes_irt.solvers import Solver

if TYPE_CHECKING:
    from bayes_irt.inference.nuts import Sampler
    from bayes_irt.inference.svi import Optimizer

Method = Literal["cbmm", "laplace", "svi", "nuts"]


class Progress(Protocol):
    """What is told while a fit runs."""

    def __call__(self, doing: str, done: int | None = None, total: int | None = None) -> None:
        """Say what is being done and, where it is known, how much of it is."""


@dataclass(frozen=True, slots=True)
class FitPlan:
    """State what to fit and how.

    Parameters
    ----------
    method
        "cbmm" for the point estimate alone, or the engine of the posterior.
    spec
        The statistical model.
    penalise
        Whether the point estimate is penalised; every engine starts from a penalised one.
    solver
        How cBMM searches; None for its defaults.
    sampler
        Length and care of NUTS; None for its defaults.
    optimizer
        Guide and steps of SVI; None for its defaults.
    num_draws
        Draws of Laplace and SVI.
    seed
        Seed of all draws.

    Raises
    ------
    InvalidConfigurationError
        If the method does not fit the model, or SVI is to fit by minibatches a model that it fits whole.

    Examples
    --------
    >>> FitPlan("laplace").num_draws
    1000
    """

    method: Method
    spec: ModelSpec = field(default_factory=ModelSpec)
    penalise: bool = True
    solver: Solver | None = None
    sampler: Sampler | None = None
    optimizer: Optimizer | None = None
    num_draws: int = 1000
    seed: int = 0

    def __post_init__(self) -> None:
        if self.method in ("cbmm", "laplace"):
            require_gaussian(self.spec, f"The method {self.method!r}")
        if self.optimizer is not None:
            require_all_llms(self.spec, self.optimizer.batch_size)


def fit_run(
    responses: Responses,
    plan: FitPlan,
    source: str,
    *,
    say: Callable[[str], None],
    progress: Progress,
) -> Run:
    """Fit responses as planned and judge the result.

    Parameters
    ----------
    responses
        The data.
    plan
        What to fit.
    source
        Where the data came from.
    say
        Called with each line that a user should read.
    progress
        Called while an engine runs.

    Returns
    -------
    Run
        Data, estimate and posterior.

    Raises
    ------
    InvalidConfigurationError
        If LLMs fall into groups that share no item, or a column that the model names is absent or does not say what it
        should; before anything is fitted.
    """
    require_linked(responses)
    if plan.spec.llm_groups is not None:
        group_labels(responses.llm_metadata, plan.spec.llm_groups)
    traits = item_law(settled_spec(responses, plan.spec), responses).traits
    penalty: Penalty | Priors | None = start_penalty(plan.spec) if plan.penalise else None
    loads = None if traits is None else traits.loads
    estimate = fit_cbmm(responses, penalty=penalty, loads=loads, solver=plan.solver)
    timing = estimate.timing
    say(f"{estimate} ({timing.total_seconds:.2f} s, {timing.compile_seconds:.2f} s of it compiling)")
    for check in check_estimate(estimate):
        several = plan.solver is not None and plan.solver.starts > 1
        if check in check_estimate(estimate).failures or (check.name == "agreement of starts" and several):
            say(f"Estimate, {check}")
    if plan.method == "cbmm":
        return Run(responses, estimate, None, estimate.status is Status.CONVERGED, source)
    from bayes_irt.analysis.exploration import strength_sentence
    from bayes_irt.analysis.item_dependence import dependent_items
    from bayes_irt.analysis.traits import trait_sentences
    from bayes_irt.diagnostics import check_posterior

    started = time.perf_counter()
    posterior = _ENGINES[plan.method](responses, estimate, plan, progress)
    report = check_posterior(posterior)
    failures = "; ".join(str(check) for check in report.failures)
    unsure = [check.name for check in report if check.outcome is Outcome.CANNOT_TELL]
    verdict = "all checks passed" if report.passed else f"checks failed: {failures}"
    if report.passed and unsure:
        verdict = f"no check failed (cannot tell: {', '.join(unsure)})"
    say(f"{posterior}, {posterior.spec.title} ({time.perf_counter() - started:.0f} s), {verdict}")
    if plan.spec.llm_groups is not None:
        low, high = np.quantile(posterior.draws[SHARE], (0.05, 0.95))
        say(
            f"{low:.0%} to {high:.0%} of the abilities' variance lies between groups of LLMs by "
            f"{plan.spec.llm_groups!r} (90% interval)."
        )
    for line in trait_sentences(posterior):
        say(line)
    if plan.spec.exploratory:
        say(strength_sentence(posterior))
    for failure in dependent_items(posterior, responses).failures:
        say(f"Items, {failure}")
    return Run(responses, estimate, posterior, report.passed, source)


def _laplace(responses: Responses, estimate: PointEstimate, plan: FitPlan, progress: Progress) -> Posterior:
    from bayes_irt.inference.laplace import fit_laplace

    return fit_laplace(
        responses,
        spec=plan.spec,
        estimate=estimate,
        num_draws=plan.num_draws,
        seed=plan.seed,
        progress=lambda word: progress(f"Laplace: {word}"),
    )


def _svi(responses: Responses, estimate: PointEstimate, plan: FitPlan, progress: Progress) -> Posterior:
    from bayes_irt.inference.svi import fit_svi

    before = "" if plan.spec.beyond_mode else "Laplace first, then "
    progress(f"SVI ({before}compiling)")
    return fit_svi(
        responses,
        spec=plan.spec,
        estimate=estimate,
        optimizer=plan.optimizer,
        num_draws=plan.num_draws,
        seed=plan.seed,
        progress=lambda done, elbo: progress(f"SVI: step {done}, ELBO {elbo:.1f}"),
    )


def _nuts(responses: Responses, estimate: PointEstimate, plan: FitPlan, progress: Progress) -> Posterior:
    from bayes_irt.inference.nuts import fit_nuts

    progress("NUTS (compiling)")
    return fit_nuts(
        responses,
        spec=plan.spec,
        estimate=estimate,
        sampler=plan.sampler,
        seed=plan.seed,
        progress=lambda done, total: progress("NUTS (draws per chain)", done, total),
    )


_ENGINES = {"laplace": _laplace, "svi": _svi, "nuts": _nuts}
