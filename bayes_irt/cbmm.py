"""cBMM: the constrained block majorisation-minimisation point estimate, in JAX.

The 2PL's loss is minimised over discriminations (non-negative), easinesses and abilities in turn, each step in closed
form; `newton` and `paper_cycle` say how the steps follow each other. With a quadratic penalty a finite minimum exists
for every input; without one, separated items have none and the stop rule acts as the regulariser.

References
----------
Constrained block MM for item response theory, arXiv 2605.07046.
"""

from __future__ import annotations

import time
import warnings
from typing import NamedTuple

import jax
import numpy as np
from jaxtyping import Bool
from scipy.special import expit
from scipy.stats import spearmanr

from bayes_irt.arguments import require_number, require_whole
from bayes_irt.blocks import pose
from bayes_irt.compilation import compile_clock
from bayes_irt.errors import ConvergenceWarning, InvalidConfigurationError, NumericalError
from bayes_irt.estimate import PointEstimate, Status, Timing, estimate_dataset
from bayes_irt.identify import canonicalize, separated_items, separated_llms
from bayes_irt.item_law import item_law
from bayes_irt.likelihood import tile_cells
from bayes_irt.model_spec import ModelSpec
from bayes_irt.newton import solve_by_newton
from bayes_irt.paper_cycle import solve_by_paper
from bayes_irt.parameters import Parameters
from bayes_irt.priors import Penalty, Priors, penalty_from_priors
from bayes_irt.provenance import Provenance, plain
from bayes_irt.responses import Responses
from bayes_irt.solvers import Solution, Solver

_SMALLEST_SIGMA, _LARGEST_SIGMA = 1e-6, 1e6


def fit_cbmm(
    responses: Responses,
    *,
    penalty: Priors | Penalty | None = None,
    sigma: float = 1.0,
    num_traits: int | None = None,
    loads: Bool[np.ndarray, "item trait"] | ModelSpec | None = None,
    start: Parameters | None = None,
    solver: Solver | None = None,
) -> PointEstimate:
    """Fit the 2PL by constrained block majorisation-minimisation.

    Parameters
    ----------
    responses
        The data.
    penalty
        None: the paper's objective, whose optimum is infinite for separated items. `Priors` or `Penalty`: plus
        minus the log prior, whose optimum is finite for every input.
    sigma
        The paper's scale: the logit is divided by it, so discriminations and easinesses grow with it. It is not a
        sampling temperature.
    num_traits
        Rank K of the ability-discrimination product; None for 1, or for what `loads` says.
    loads
        Which items may load on which trait; discriminations are 0 elsewhere, and traits keep the order of its
        columns. Or a model, whose traits they are. None for all.
    start
        Start values in the scale of the logit times sigma; None for standardised accuracies, slopes of 1 and the
        logits of the items' accuracies (times sigma, but for the paper's algorithm).
    solver
        Algorithm, stop rule, limit, precision and number of starts.

    Returns
    -------
    PointEstimate
        Estimates in the canonical gauge, with status, loss trace and what is separated. Of several starts it is the
        one with the least loss.

    Raises
    ------
    InvalidConfigurationError
        If an option makes no sense or the start does not fit the data.
    NumericalError
        If the loss becomes non-finite.

    Warns
    -----
    ConvergenceWarning
        If the stop rule is not met.

    References
    ----------
    arXiv 2605.07046, the constrained block MM algorithm.

    Examples
    --------
    >>> from bayes_irt.simulate import simulate_suite
    >>> suite = simulate_suite(20, 50, seed=1)
    >>> fit_cbmm(suite.responses, penalty=Priors())
    PointEstimate: 20 LLMs x 50 items by cbmm, converged after ... cycles, loss ...
    """
    began = time.perf_counter()
    solver = Solver() if solver is None else solver
    penalty = penalty_from_priors(penalty) if isinstance(penalty, Priors) else penalty
    _check_scales(penalty, sigma)
    if isinstance(loads, ModelSpec):
        traits = item_law(loads, responses).traits
        loads = None if traits is None else traits.loads
    allowed = _check_traits(responses, num_traits, loads)
    scaled = _first_start(responses, start, allowed, sigma, solver)
    with jax.enable_x64(True), compile_clock() as clock:
        cells = jax.device_put(tile_cells(responses.successes, responses.attempts, solver.precision))
        problem = pose(responses, penalty, sigma, allowed)
        begins = [scaled, *(draw_start(scaled, allowed, solver.seed, k) for k in range(1, solver.starts))]
        solve = solve_by_newton if solver.algorithm == "newton" else solve_by_paper
        solutions = [solve(begin, cells, problem, solver) for begin in begins]
    best = min(solutions, key=lambda solution: solution.objective)
    if not np.isfinite(best.objective):
        raise NumericalError(
            f"The loss became {best.objective}. Give a penalty, a start, or precision='float64'."
        )
    configuration = {
        "penalty": penalty,
        "sigma": sigma,
        "num_traits": allowed.shape[1],
        "loads": None if loads is None else allowed.astype(int).tolist(),
        "solver": solver,
        "start": "default" if start is None else "given",
    }
    unbounded = penalty is None and (solver.algorithm, solver.stop) != ("paper", "relative loss")
    seed = int(solver.seed) if solver.starts > 1 else None
    provenance = Provenance("cbmm", plain(configuration), responses.digest, seed)
    pattern = None if loads is None else allowed
    fit = _Fit(responses, best, solutions, sigma, pattern, unbounded, began, clock.seconds)
    estimate = _as_estimate(fit, provenance)
    _warn_unless_converged(estimate)
    return estimate


def default_start(
    responses: Responses, num_traits: int = 1, loads: Bool[np.ndarray, "item trait"] | None = None
) -> Parameters:
    """Return the start values of cBMM.

    With K traits the items are dealt to K parts; trait k starts at the standardised accuracy on part k, and an item
    has slope 1 on its own part and 0.25 on the others. Where it is said which items load on which trait, those items
    are the part.

    Parameters
    ----------
    responses
        The data.
    num_traits
        Number of traits.
    loads
        Which items may load on which trait; None for all.

    Returns
    -------
    parameters.Parameters
        Abilities, slopes, and easinesses ``log((s + .5) / (n - s + .5))`` from each item's successes and attempts.

    Examples
    --------
    >>> responses = Responses.from_arrays(np.array([[0, 0, 1], [1, 0, 1], [1, 1, 1]]))
    >>> default_start(responses).ability.ravel().round(2)
    array([-1.22,  0.  ,  1.22])
    """
    successes, attempts = responses.successes, responses.attempts
    dealt = np.arange(responses.num_items)[:, None] % num_traits == np.arange(num_traits)
    free = loads is None or bool(loads.all())
    part = dealt if free else np.asarray(loads)
    overall = successes.sum(axis=1) / attempts.sum(axis=1)
    ability = np.empty((responses.num_llms, num_traits))
    for trait in range(num_traits):
        tried = attempts[:, part[:, trait]].sum(axis=1)
        right = successes[:, part[:, trait]].sum(axis=1)
        ability[:, trait] = np.where(tried > 0, right / np.maximum(tried, 1), overall)
    spread = np.where(np.ptp(ability, axis=0) > 0, ability.std(axis=0), 1.0)
    ability = (ability - ability.mean(axis=0)) / spread
    slopes = np.where(part, 1.0, 0.25 if free else 0.0)
    right = successes.sum(axis=0)
    wrong = attempts.sum(axis=0) - right
    return Parameters(ability, slopes, np.log((right + 0.5) / (wrong + 0.5)))


def _scale_items(parameters: Parameters, factor: float) -> Parameters:
    return Parameters(parameters.ability, parameters.discrimination * factor, parameters.easiness * factor)


def draw_start(
    first: Parameters, loads: Bool[np.ndarray, "item trait"], seed: int, number: int
) -> Parameters:
    """Draw a start: abilities half noise, slopes of a random size, easinesses half a logit off.

    Parameters
    ----------
    first
        What it is drawn around.
    loads
        Which items may load on which trait.
    seed, number
        Seed, and which of the starts it is.

    Returns
    -------
    parameters.Parameters
        The start.
    """
    rng = np.random.default_rng([seed, number])
    ability = (first.ability + rng.normal(size=first.ability.shape)) / np.sqrt(2)
    slopes = np.where(loads, rng.exponential(1.0, first.discrimination.shape), 0.0)
    return Parameters(ability, slopes, first.easiness + 0.5 * rng.normal(size=first.easiness.shape))


def _first_start(
    responses: Responses,
    start: Parameters | None,
    loads: Bool[np.ndarray, "item trait"],
    sigma: float,
    solver: Solver,
) -> Parameters:
    """Return the first start, in the scale in which sigma is 1.

    The paper's start is the same for every sigma, and so starts too far out where sigma is small.
    """
    if start is None:
        first = default_start(responses, loads.shape[1], loads)
        return first if solver.algorithm == "newton" else _scale_items(first, 1.0 / sigma)
    _check_start(responses, start, loads)
    given = Parameters(
        *(np.asarray(leaf, dtype=float) for leaf in (start.ability, start.discrimination, start.easiness))
    )
    scaled = _scale_items(given, 1.0 / sigma)
    return canonicalize(scaled, sort_traits=False) if solver.algorithm == "newton" else scaled


def _check_scales(penalty: Penalty | None, sigma: float) -> None:
    require_number("sigma", sigma, _SMALLEST_SIGMA, _LARGEST_SIGMA)
    if penalty is not None and not isinstance(penalty, Penalty):
        raise InvalidConfigurationError(f"penalty is {penalty!r}; give Priors(), Penalty() or None.")


def _check_start(responses: Responses, start: Parameters, loads: Bool[np.ndarray, "item trait"]) -> None:
    if not isinstance(start, Parameters):
        raise InvalidConfigurationError(
            f"start is a {type(start).__name__}; give Parameters, such as estimate.raw_parameters."
        )
    wanted = [(responses.num_llms, loads.shape[1]), loads.shape, (responses.num_items,)]
    leaves = (start.ability, start.discrimination, start.easiness)
    given = [np.shape(leaf) for leaf in leaves]
    if given != wanted:
        raise InvalidConfigurationError(
            f"The start has shapes {given} for ability, discrimination and easiness; the data need {wanted}."
        )
    if not all(np.isfinite(leaf).all() for leaf in leaves):
        raise InvalidConfigurationError("The start holds non-finite values; give finite ones, or start=None.")
    if (np.asarray(start.discrimination) < 0).any():
        raise InvalidConfigurationError("The start holds negative discriminations; they must be 0 or more.")
    if np.asarray(start.discrimination)[~loads].any():
        raise InvalidConfigurationError(
            "The start has discriminations where loads allows none; set them to 0."
        )


def _check_traits(
    responses: Responses, num_traits: int | None, loads: Bool[np.ndarray, "item trait"] | None
) -> Bool[np.ndarray, "item trait"]:
    """Check number of traits and zero pattern; return the pattern."""
    if num_traits is not None:
        require_whole("num_traits", num_traits, 1)
    allowed = None if loads is None else _as_pattern(responses, loads)
    traits = int(num_traits) if num_traits is not None else 1 if allowed is None else allowed.shape[1]
    most = min(responses.num_llms - 1, responses.num_items)
    if not 1 <= traits <= most:
        raise InvalidConfigurationError(
            f"num_traits is {traits}; {responses.num_llms} LLMs x {responses.num_items} items allow 1 to {most}."
        )
    if allowed is None:
        return np.ones((responses.num_items, traits), dtype=bool)
    if allowed.shape[1] != traits:
        raise InvalidConfigurationError(f"num_traits is {traits}, but loads has {allowed.shape[1]} columns.")
    return allowed


def _as_pattern(
    responses: Responses, loads: Bool[np.ndarray, "item trait"]
) -> Bool[np.ndarray, "item trait"]:
    try:
        allowed = np.asarray(loads)
    except ValueError as error:
        raise InvalidConfigurationError("loads has rows of different lengths.") from error
    if allowed.ndim != 2 or len(allowed) != responses.num_items:
        raise InvalidConfigurationError(
            f"loads has shape {allowed.shape}; it needs a row for each of {responses.num_items} items and a column "
            "for each trait."
        )
    if not np.isin(allowed, (0, 1)).all():
        raise InvalidConfigurationError("loads holds other values than true and false (or 1 and 0).")
    allowed = allowed.astype(bool)
    if not allowed.any(axis=0).all():
        empty = np.flatnonzero(~allowed.any(axis=0)).tolist()
        raise InvalidConfigurationError(f"No item loads on the traits {empty}. Leave those columns out.")
    return allowed


class _Fit(NamedTuple):
    """What becomes an estimate; `may_grow` says that what is separated cannot meet the stop rule.

    `began` is the reading of the performance counter at which the fit began.
    """

    responses: Responses
    best: Solution
    solutions: list[Solution]
    sigma: float
    loads: Bool[np.ndarray, "item trait"] | None
    may_grow: bool
    began: float
    compile_seconds: float


def _as_estimate(fit: _Fit, provenance: Provenance) -> PointEstimate:
    responses, best = fit.responses, fit.best
    raw = _scale_items(jax.tree.map(np.asarray, best.parameters), fit.sigma)
    canonical = canonicalize(raw, sort_traits=fit.loads is None)
    separated = (
        separated_llms(np.asarray(canonical.discrimination), responses.successes, responses.attempts),
        separated_items(np.asarray(canonical.ability), responses.successes, responses.attempts, fit.loads),
    )
    status = best.outcome
    if fit.may_grow and status is Status.CONVERGED and any(flags.any() for flags in separated):
        status = Status.LOSS_SETTLED  # they stopped moving only where the loss no longer shows it
    labels = (responses.llms, responses.items)
    dataset = estimate_dataset(canonical, raw, best.trace, labels, separated)
    losses = [solution.objective for solution in fit.solutions]
    agreement = _agreement(best, fit.solutions)
    return PointEstimate(
        dataset=dataset.assign(start_loss=("start", losses), start_agreement=("start", agreement)),
        status=status,
        change=best.change,
        kkt_residual=best.residual,
        num_passes=sum(solution.passes for solution in fit.solutions),
        timing=Timing(fit.compile_seconds, time.perf_counter() - fit.began),
        provenance=provenance,
    )


def _agreement(best: Solution, solutions: list[Solution]) -> list[float]:
    """Return the rank correlation of the LLMs' expected scores in each solution with those in the best."""
    if len(solutions) == 1:
        return [1.0]
    wanted = _expected_scores(best.parameters)
    return [_rank_correlation(wanted, _expected_scores(solution.parameters)) for solution in solutions]


def _expected_scores(parameters: Parameters) -> np.ndarray:
    """Return each LLM's mean probability over all items: an order that does not depend on gauge or traits."""
    blocks = np.array_split(np.asarray(parameters.ability), max(1, len(parameters.ability) // 64))
    slopes, easiness = np.asarray(parameters.discrimination).T, np.asarray(parameters.easiness)
    return np.concatenate([expit(block @ slopes + easiness).mean(axis=1) for block in blocks])


def _rank_correlation(one: np.ndarray, other: np.ndarray) -> float:
    """Return Spearman's correlation; 1 where the two are the same, even if they order nothing."""
    if np.array_equal(one, other):
        return 1.0
    if min(np.ptp(one), np.ptp(other)) == 0:
        return 0.0
    return float(spearmanr(one, other).statistic)


def _warn_unless_converged(estimate: PointEstimate) -> None:
    if estimate.status is Status.CONVERGED:
        return
    named = f"{len(estimate.separated_items)} items and {len(estimate.separated_llms)} LLMs are separated."
    warnings.warn(
        f"cBMM: {estimate.status} after {estimate.num_cycles} cycles. {estimate.status.advice} {named}",
        ConvergenceWarning,
        stacklevel=3,
    )
