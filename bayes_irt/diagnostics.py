"""Can the draws be trusted? Convergence checks of a posterior, whatever engine made it.

References
----------
Vehtari, A. et al. (2021). Rank-normalization, folding, and localization: an improved R-hat for assessing convergence
of MCMC. Bayesian Analysis 16, 667-718.
Betancourt, M. (2016). Diagnosing suboptimal cotangent disintegrations in Hamiltonian Monte Carlo. arXiv 1604.00695.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import xarray as xr
from jaxtyping import Float

from bayes_irt.approximation_checks import check_approximation
from bayes_irt.checks import Check, CheckReport, Outcome
from bayes_irt.errors import InvalidConfigurationError
from bayes_irt.posterior import Posterior
from bayes_irt.trait_matching import SAME_TRAIT, chain_cosines

_ITEM_SITES = ("discrimination", "easiness", "floor", "testlet")
_ROUNDING = 1e-12
_CHAIN_CHECKS = (
    "R-hat",
    "R-hat of items",
    "bulk ESS",
    "tail ESS",
    "ESS of items",
    "divergences",
    "E-BFMI",
    "tree depth",
)


@dataclass(frozen=True, slots=True)
class ConvergenceLimits:
    """State what counts as converged.

    With hundreds of parameters some R-hat exceeds 1.01 by chance alone, so abilities and hyperparameters are judged
    one by one, items by their share.

    Parameters
    ----------
    rhat
        Largest rank-normalised R-hat of an ability or hyperparameter.
    item_rhat
        Largest R-hat of an item parameter.
    item_share
        Share of item parameters that must lie below `rhat`.
    ess
        Smallest bulk and tail effective sample size of an ability or hyperparameter.
    item_ess
        Smallest bulk and tail effective sample size of an item parameter.
    ebfmi
        Smallest energy Bayesian fraction of missing information.

    Raises
    ------
    InvalidConfigurationError
        If a limit makes no sense.

    Examples
    --------
    >>> ConvergenceLimits(ess=1000).rhat
    1.01
    """

    rhat: float = 1.01
    item_rhat: float = 1.05
    item_share: float = 0.999
    ess: float = 400.0
    item_ess: float = 100.0
    ebfmi: float = 0.3

    def __post_init__(self) -> None:
        if min(self.rhat, self.item_rhat) <= 1 or not 0 < self.item_share <= 1:
            raise InvalidConfigurationError("R-hat limits must exceed 1, item_share must lie in (0, 1].")
        if min(self.ess, self.item_ess, self.ebfmi) <= 0:
            raise InvalidConfigurationError("ess, item_ess and ebfmi must be positive.")


def check_posterior(posterior: Posterior, *, limits: ConvergenceLimits | None = None) -> CheckReport:
    """Check whether the chains of a posterior converged, or its approximation settled.

    Parameters
    ----------
    posterior
        The draws. What an engine has no statistics for is "not applicable".
    limits
        What counts as converged; None for the defaults.

    Returns
    -------
    CheckReport
        For chains "R-hat", "R-hat of items", "bulk ESS", "tail ESS", "ESS of items", "divergences", "E-BFMI" and "tree
        depth"; each names its worst parameter or chain. For approximations what `check_approximation` says. What does
        not apply to the engine says so. Where traits are explored, "one solution" says whether all chains found the
        same.

    Examples
    --------
    >>> from bayes_irt import Sampler, fit_nuts, simulate_suite
    >>> sampler = Sampler(num_chains=2, num_warmup=100, num_draws=100)
    >>> report = check_posterior(fit_nuts(simulate_suite(6, 20).responses, sampler=sampler))
    >>> str(report["divergences"].outcome)
    'pass'
    """
    limits = ConvergenceLimits() if limits is None else limits
    own = check_approximation(posterior)
    if "approximation" in posterior.tree.children:
        message = f"{posterior.provenance.method} draws independently, in one chain."
        chains = [Check(name, Outcome.NOT_APPLICABLE, message) for name in _CHAIN_CHECKS]
    else:
        chains = _chain_checks(posterior, limits)
        if posterior.traits and posterior.spec.exploratory:
            own = [*own, _one_solution(posterior)]
    return CheckReport((*chains, *own))


def _chain_checks(posterior: Posterior, limits: ConvergenceLimits) -> list[Check]:
    """Judge what chains are judged by."""
    import numpyro  # noqa: F401  ArviZ loads NumPyro lazily, which leaves it incomplete unless it is loaded before

    # isort: split
    import arviz

    draws = posterior.draws
    items = [name for name in draws if name in _ITEM_SITES]
    main = [str(name) for name in draws if name not in _ITEM_SITES]
    ess: dict[str, Callable[[xr.DataArray], np.ndarray]] = {
        "bulk": lambda array: _values(arviz.ess(array, method="bulk")),
        "tail": lambda array: _values(arviz.ess(array, method="tail")),
    }
    rhat: Callable[[xr.DataArray], np.ndarray] = lambda array: _values(arviz.rhat(array))  # noqa: E731
    several = draws.sizes["chain"] > 1
    by_kind = [_by_label(draws, names, rhat) for names in (main, [str(name) for name in items]) if several]
    fractions = _values(arviz.bfmi(posterior.tree)["energy"]) if _sampled(posterior) else np.zeros(0)
    return [
        *_rhat_checks(by_kind, limits),
        *(
            _lowest(f"{kind} ESS", _by_label(draws, main, function), limits.ess)
            for kind, function in ess.items()
        ),
        _lowest(
            "ESS of items",
            {
                f"{name} ({kind})": value
                for kind, function in ess.items()
                for name, value in _by_label(draws, [str(name) for name in items], function).items()
            },
            limits.item_ess,
        ),
        *_sampler_checks(posterior, fractions, limits),
    ]


def _one_solution(posterior: Posterior) -> Check:
    """Say whether all chains found the same traits."""
    loads = np.asarray(posterior.draws["discrimination"].mean("draw").transpose("chain", "item", "trait"))
    cosines = chain_cosines(loads)[1].min(axis=1)
    apart = tuple(f"chain {number}" for number in np.flatnonzero(cosines < SAME_TRAIT))
    message = (
        "The least cosine of a chain's loads on a trait with those of the chain most like all is "
        f"{cosines.min():.3f}"
    )
    if not apart:
        return Check("one solution", Outcome.PASS, f"{message} (at least {SAME_TRAIT} is wanted).")
    message += (
        f" (at least {SAME_TRAIT} is wanted): chains found different traits, which trait_solutions shows. There may be "
        "fewer traits than asked for, or a prior is wanted that shrinks small loads to 0 (sparse_priors)."
    )
    return Check("one solution", Outcome.FAIL, message, apart)


def _values(result: xr.DataArray | xr.Dataset | np.ndarray) -> np.ndarray:
    return np.asarray(getattr(result, "values", result), dtype=np.float64)


def _by_label(
    draws: xr.Dataset, names: list[str], function: Callable[[xr.DataArray], np.ndarray]
) -> dict[str, float]:
    """Apply a diagnostic to every scalar parameter that varies, named as in ``ability[gpt-4]``.

    What is the same in all draws of all chains has nothing to mix: the abilities +1 and -1 of two LLMs whose order is
    certain.
    """
    found: dict[str, float] = {}
    for name in names:
        array = draws[name]
        with np.errstate(divide="ignore", invalid="ignore"):  # chains that are stuck
            values = function(array).ravel()
        dims = [dim for dim in array.dims if dim not in ("chain", "draw")]
        if not dims:
            found[name] = float(values[0])
            continue
        index = array.stack(place=dims)["place"].to_index()
        labels = [", ".join(map(str, entry)) if isinstance(entry, tuple) else str(entry) for entry in index]
        over = ("chain", "draw")
        fixed = np.ravel(array.max(over) - array.min(over) <= _ROUNDING * abs(array).max(over))
        found |= {
            f"{name}[{label}]": float(value)
            for label, value, same in zip(labels, values, fixed, strict=True)
            if not same
        }
    return found


def _sampled(posterior: Posterior) -> bool:
    return "sample_stats" in posterior.tree.children


def _rhat_checks(by_kind: list[dict[str, float]], limits: ConvergenceLimits) -> list[Check]:
    """Judge abilities and hyperparameters one by one, items by share."""
    if not by_kind:
        message = "One chain: R-hat compares chains."
        return [Check(name, Outcome.NOT_APPLICABLE, message) for name in _CHAIN_CHECKS[:2]]
    by_main, by_item = by_kind
    worst = max(by_main, key=lambda name: _nan_as(by_main[name], np.inf))
    good = by_main[worst] < limits.rhat
    message = f"The largest, of {worst}, is {by_main[worst]:.4f} (limit {limits.rhat})."
    first = Check(
        "R-hat", Outcome.PASS if good else Outcome.FAIL, message + _advice(good), () if good else (worst,)
    )
    share = float(np.mean([value < limits.rhat for value in by_item.values()]))
    worst = max(by_item, key=lambda name: _nan_as(by_item[name], np.inf))
    good = share >= limits.item_share and by_item[worst] < limits.item_rhat
    message = (
        f"{share:.2%} of {len(by_item)} lie below {limits.rhat} (at least {limits.item_share:.1%} must); the largest, "
        f"of {worst}, is {by_item[worst]:.4f} (limit {limits.item_rhat})."
    )
    outcome = Outcome.PASS if good else Outcome.FAIL
    return [first, Check("R-hat of items", outcome, message + _advice(good), () if good else (worst,))]


def _lowest(name: str, values: dict[str, float], limit: float) -> Check:
    worst = min(values, key=lambda label: _nan_as(values[label], -np.inf))
    good = values[worst] > limit
    message = f"The smallest, of {worst}, is {values[worst]:.0f} (limit {limit:.0f})."
    return Check(
        name, Outcome.PASS if good else Outcome.FAIL, message + _advice(good), () if good else (worst,)
    )


def _nan_as(value: float, substitute: float) -> float:
    return substitute if np.isnan(value) else value


def _advice(good: bool) -> str:
    return "" if good else " Take more draws or a longer warm-up."


def _sampler_checks(
    posterior: Posterior, fractions: Float[np.ndarray, " chain"], limits: ConvergenceLimits
) -> list[Check]:
    """Judge what only Hamiltonian samplers record."""
    names = _CHAIN_CHECKS[-3:]
    if not _sampled(posterior):
        message = f"{posterior.provenance.method} has no sampler's record."
        return [Check(name, Outcome.NOT_APPLICABLE, message) for name in names]
    stats = posterior.tree["sample_stats"].to_dataset()
    number = int(stats["diverging"].sum())
    message = f"{number} of {posterior.num_draws} draws." + ("" if number == 0 else " Raise target_accept.")
    divergences = Check(names[0], Outcome.FAIL if number else Outcome.PASS, message)
    low = fractions.min()
    outcome = Outcome.PASS if low > limits.ebfmi else Outcome.FAIL
    message = f"The smallest, of chain {int(fractions.argmin())}, is {low:.2f} (limit {limits.ebfmi})."
    energy = Check(names[1], outcome, message)
    deepest = posterior.provenance.configuration["sampler"]["max_tree_depth"]
    full = int((stats["n_steps"] >= 2**deepest - 1).sum())
    message = f"{full} of {posterior.num_draws} trajectories reached the limit of 2^{deepest} - 1 steps."
    message += "" if full == 0 else " Raise max_tree_depth."
    return [divergences, energy, Check(names[2], Outcome.FAIL if full else Outcome.PASS, message)]
