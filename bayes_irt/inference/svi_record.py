"""What an SVI fit records of itself and warns of: the ELBO's course, Laplace beside it, Pareto k-hat.

References
----------
Yao, Y. et al. (2018). Yes, but did it work? Evaluating variational inference. ICML 2018 (Pareto k-hat).
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass

import numpy as np
from jaxtyping import Array, Float

from bayes_irt.approximation_checks import WARNED_OF, answer_counts, check_approximation
from bayes_irt.checks import Outcome
from bayes_irt.errors import ApproximationWarning, ConvergenceWarning
from bayes_irt.inference.centre import Gaussian
from bayes_irt.inference.laplace import recorded
from bayes_irt.item_law import ItemTraits
from bayes_irt.posterior import Posterior
from bayes_irt.responses import Responses

_LAPLACE_DRAWS = 4000


@dataclass(frozen=True, slots=True)
class FittedGuide:
    """Hold a guide's parameters, averaged, and the ELBO's course.

    Parameters
    ----------
    parameters
        NumPyro's parameters of the guide.
    elbo
        The ELBO over the last 500 steps.
    trend, trend_se
        How much it rose from the 500 steps before, with standard error.
    limit
        The rise that ends the fit, in nats.
    steps
        Number of steps taken.
    """

    parameters: dict[str, Array]
    elbo: float
    trend: float
    trend_se: float
    limit: float
    steps: int

    @property
    def converged(self) -> bool:
        """Say whether the ELBO rises no more than it may, surely."""
        return self.trend + 2.0 * self.trend_se < self.limit or self.trend < -2.0 * self.trend_se


def record_of(
    fitted: FittedGuide,
    log_ratio: Float[np.ndarray, " ratio"],
    responses: Responses,
    traits: ItemTraits | None,
) -> dict[str, np.ndarray]:
    """Return what a posterior keeps of the fit.

    Parameters
    ----------
    fitted
        The guide.
    log_ratio
        Logarithms of model over guide at draws from the guide; none for large suites.
    responses
        The data.
    traits
        Which items load on which trait; None for one trait.

    Returns
    -------
    dict
        Name to scalar.
    """
    values = {
        "steps": fitted.steps,
        "elbo": fitted.elbo if len(log_ratio) == 0 else log_ratio.mean(),
        "elbo_trend": fitted.trend,
        "elbo_trend_se": fitted.trend_se,
        "elbo_limit": fitted.limit,
        "converged": fitted.converged,
        "pareto_k": pareto_k(log_ratio),
    }
    counts = answer_counts(responses, traits)
    return {name: np.asarray(value) for name, value in values.items()} | counts


def beside_laplace(
    ability: Float[np.ndarray, "draw llm"], gaussian: Gaussian, responses: Responses
) -> dict[str, np.ndarray]:
    """Return what a posterior keeps of Laplace, and how sds of abilities compare with Laplace's.

    Parameters
    ----------
    ability
        Draws of the abilities, in any gauge.
    gaussian
        Laplace's approximation, from which the fit started.
    responses
        The data.

    Returns
    -------
    dict
        Name to scalar.
    """
    core = gaussian.arrow.draw_core(np.random.default_rng(0), _LAPLACE_DRAWS)
    laplace = np.asarray(gaussian.centre.ability) + core[:, : ability.shape[1]]
    ratio = _gauged_sds(ability) / _gauged_sds(laplace)
    values = {
        "sd_ratio_median": np.median(ratio),
        "sd_ratio_lowest": ratio.min(),
        "sd_ratio_highest": ratio.max(),
    }
    return recorded(gaussian, responses) | {name: np.asarray(value) for name, value in values.items()}


def _gauged_sds(ability: Float[np.ndarray, "draw llm"]) -> Float[np.ndarray, " llm"]:
    centred = ability - ability.mean(axis=1, keepdims=True)
    return np.asarray((centred / centred.std(axis=1, keepdims=True)).std(axis=0))


def pareto_k(log_ratio: Float[np.ndarray, " ratio"]) -> float:
    """Return the shape of the tail of importance weights: below .7 they can mend an approximation.

    Parameters
    ----------
    log_ratio
        Logarithms of the weights, model over approximation.

    Returns
    -------
    float
        Pareto k-hat; NaN for no weights.

    Examples
    --------
    >>> float("nan") == pareto_k(np.zeros(0))
    False
    """
    if len(log_ratio) == 0:
        return float("nan")
    from arviz_stats.base import array_stats  # type: ignore[attr-defined]

    return float(
        array_stats.psislw(-log_ratio)[1]
    )  # it takes log likelihoods, whose weights are their inverse


def warn_of(posterior: Posterior, guide: str) -> None:
    """Warn of what the checks of an SVI fit say.

    Parameters
    ----------
    posterior
        The fit.
    guide
        Name of its guide.
    """
    checks = {check.name: check for check in check_approximation(posterior)}
    if checks["ELBO"].outcome is Outcome.FAIL:
        warnings.warn(f"The ELBO still rises. {checks['ELBO'].message}", ConvergenceWarning, stacklevel=3)
    for name in (*WARNED_OF, "testlets", "learned floors"):
        if checks[name].outcome is Outcome.CANNOT_TELL:
            warnings.warn(f"SVI, {checks[name].message}", ApproximationWarning, stacklevel=3)
    agreement = checks["agreement with Laplace"]
    if agreement.outcome is Outcome.NOT_APPLICABLE:
        if guide != "structured":
            warnings.warn(
                f"The {guide} guide is too narrow where parameters of one LLM or one item hang together, as they do in "
                "this model. Use guide='structured' (--guide structured), or fit_nuts.",
                ApproximationWarning,
                stacklevel=3,
            )
    elif agreement.outcome is not Outcome.PASS:
        verb = "disagree" if agreement.outcome is Outcome.FAIL else "cannot be compared"
        warnings.warn(
            f"The {guide} guide and Laplace {verb}. {agreement.message}", ApproximationWarning, stacklevel=3
        )
