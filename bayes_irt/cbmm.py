"""cBMM: the constrained block majorisation-minimisation point estimate, in JAX.

One cycle majorises the loss once, at the constant curvature 1/4 of the logistic function, and minimises the parabola
over discriminations (non-negative least squares), easinesses and abilities in turn; each step is in closed form, so
the loss cannot rise. With a quadratic penalty every block stays in closed form and a finite minimum exists for every
input; without one, separated items have none and the stop rule acts as the regulariser.

References
----------
Constrained block MM for item response theory, arXiv 2605.07046.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from functools import partial
from typing import Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Bool, Float, Int

from bayes_irt.errors import ConvergenceWarning, InvalidConfigurationError, NumericalError
from bayes_irt.estimate import PointEstimate, Status, estimate_dataset
from bayes_irt.identify import canonicalize, separated_items, separated_llms
from bayes_irt.likelihood import Cells, Precision, Sums, cell_sums, tile_cells
from bayes_irt.nnls import nonnegative_least_squares
from bayes_irt.parameters import Parameters
from bayes_irt.priors import Penalty, Priors, penalty_from_priors
from bayes_irt.provenance import Provenance, plain
from bayes_irt.responses import Responses


@dataclass(frozen=True, slots=True)
class Solver:
    """State when cBMM stops and how it computes.

    Parameters
    ----------
    stop
        "parameters": when no canonical parameter changes by more than `tolerance` in a cycle and the first-order
        residual per attempt is below it. "relative loss": the paper's rule, when the loss changes by less than
        `tolerance` times itself.
    tolerance
        Threshold of the stop rule.
    max_cycles
        Limit of cycles; 0 returns the start.
    precision
        "mixed": cells in float32, sums and parameters in float64. "float64": float64 throughout.

    Raises
    ------
    InvalidConfigurationError
        If a value makes no sense.

    Examples
    --------
    >>> Solver(stop="relative loss", tolerance=1e-4)
    Solver(stop='relative loss', tolerance=0.0001, max_cycles=10000, precision='mixed')
    """

    stop: Literal["parameters", "relative loss"] = "parameters"
    tolerance: float = 1e-4
    max_cycles: int = 10_000
    precision: Precision = "mixed"

    def __post_init__(self) -> None:
        if self.stop not in ("parameters", "relative loss"):
            raise InvalidConfigurationError(
                f"stop is {self.stop!r}; it must be 'parameters' or 'relative loss'."
            )
        if self.precision not in ("mixed", "float64"):
            raise InvalidConfigurationError(
                f"precision is {self.precision!r}; it must be 'mixed' or 'float64'."
            )
        if not self.tolerance >= 0:
            raise InvalidConfigurationError(f"tolerance is {self.tolerance!r}; it must be 0 or more.")
        if self.max_cycles < 0:
            raise InvalidConfigurationError(f"max_cycles is {self.max_cycles}; it must be 0 or more.")


def fit_cbmm(
    responses: Responses,
    *,
    penalty: Priors | Penalty | None = None,
    sigma: float = 1.0,
    num_traits: int = 1,
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
        Rank K of the ability-discrimination product.
    start
        Start values in the scale of the logit times sigma; None for standardised accuracies, slopes of 1 and the
        logits of the items' accuracies.
    solver
        Stop rule, limit and precision.

    Returns
    -------
    PointEstimate
        Estimates in the canonical gauge, with status, loss trace and what is separated.

    Raises
    ------
    InvalidConfigurationError
        If an option makes no sense or the start does not fit the data.
    NumericalError
        If the loss becomes non-finite.

    Warns
    -----
    ConvergenceWarning
        If the limit of cycles comes first.

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
    solver = Solver() if solver is None else solver
    penalty = penalty_from_priors(penalty) if isinstance(penalty, Priors) else penalty
    _check_options(responses, sigma, num_traits, start)
    first = default_start(responses, num_traits) if start is None else start
    scaled = _scale_items(jax.tree.map(lambda leaf: np.asarray(leaf, dtype=np.float64), first), 1.0 / sigma)
    with jax.enable_x64(True):
        cells = tile_cells(responses.successes, responses.attempts, solver.precision)
        totals = _Totals.of(responses)
        final = jax.device_get(_run(scaled, cells, totals, _Weights.of(penalty, sigma), solver))
    if not np.isfinite(final.objective):
        raise NumericalError(
            f"The loss became {final.objective} in cycle {final.cycle}. Try precision='float64'."
        )
    configuration = {
        "penalty": penalty,
        "sigma": sigma,
        "num_traits": num_traits,
        "solver": solver,
        "start": "default" if start is None else "given",
    }
    return _as_estimate(
        responses, final, sigma, solver, Provenance("cbmm", plain(configuration), responses.digest)
    )


def default_start(responses: Responses, num_traits: int = 1) -> Parameters:
    """Return the start values of cBMM.

    With K traits the items are dealt to K parts; trait k starts at the standardised accuracy on part k, and an item
    has slope 1 on its own part and 0.25 on the others.

    Parameters
    ----------
    responses
        The data.
    num_traits
        Number of traits.

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
    successes, attempts = responses.successes.astype(np.float64), responses.attempts.astype(np.float64)
    part = np.arange(responses.num_items) % num_traits
    overall = successes.sum(axis=1) / attempts.sum(axis=1)
    ability = np.empty((responses.num_llms, num_traits))
    for trait in range(num_traits):
        tried = attempts[:, part == trait].sum(axis=1)
        right = successes[:, part == trait].sum(axis=1)
        ability[:, trait] = np.where(tried > 0, right / np.maximum(tried, 1.0), overall)
    spread = np.where(np.ptp(ability, axis=0) > 0, ability.std(axis=0), 1.0)
    ability = (ability - ability.mean(axis=0)) / spread
    slopes = np.where(part[:, None] == np.arange(num_traits), 1.0, 0.25)
    right, wrong = successes.sum(axis=0), (attempts - successes).sum(axis=0)
    return Parameters(ability, slopes, np.log((right + 0.5) / (wrong + 0.5)))


class _Totals(NamedTuple):
    """Attempts by LLM and by item, the scale of the first-order residual."""

    llm: Float[Array | np.ndarray, " llm"]
    item: Float[Array | np.ndarray, " item"]

    @classmethod
    def of(cls, responses: Responses) -> _Totals:
        attempts = responses.attempts
        return cls(attempts.sum(axis=1, dtype=np.float64), attempts.sum(axis=0, dtype=np.float64))


class _Weights(NamedTuple):
    """The penalty as precisions, in the scale in which sigma is 1; all 0 for none."""

    ability: float
    discrimination: float
    easiness: float
    location: float

    @classmethod
    def of(cls, penalty: Penalty | None, sigma: float) -> _Weights:
        if penalty is None:
            return cls(0.0, 0.0, 0.0, 0.0)
        return cls(
            penalty.ability_scale**-2,
            (penalty.discrimination_scale / sigma) ** -2,
            (penalty.easiness_scale / sigma) ** -2,
            penalty.easiness_location / sigma,
        )

    def value(self, p: Parameters) -> Float[Array, ""]:
        return 0.5 * (
            self.ability * jnp.sum(p.ability**2)
            + self.discrimination * jnp.sum(p.discrimination**2)
            + self.easiness * jnp.sum((p.easiness - self.location) ** 2)
        )

    def score(self, p: Parameters) -> Parameters:
        """Return the derivative of minus the penalty."""
        return Parameters(
            -self.ability * p.ability,
            -self.discrimination * p.discrimination,
            -self.easiness * (p.easiness - self.location),
        )


class _State(NamedTuple):
    """The loop's state: parameters, the pass at them, and what the stop rule looks at."""

    parameters: Parameters
    sums: Sums
    objective: Float[Array, ""]
    trace: Float[Array, " cycle"]
    cycle: Int[Array, ""]
    change: Float[Array, ""]
    residual: Float[Array, ""]
    done: Bool[Array, ""]


@partial(jax.jit, static_argnames="solver")
def _run(start: Parameters, cells: Cells, totals: _Totals, weights: _Weights, solver: Solver) -> _State:
    """Run cycles until the stop rule holds."""

    def visit(parameters: Parameters) -> tuple[Sums, Float[Array, ""]]:
        sums = cell_sums(parameters, cells, loss=True, curvature="quarter")
        assert sums.loss is not None
        return sums, sums.loss + weights.value(parameters)

    def step(state: _State) -> _State:
        parameters = _cycle(state.parameters, state.sums, cells, weights)
        sums, objective = visit(parameters)
        change = _largest_difference(canonicalize(state.parameters), canonicalize(parameters))
        residual = _kkt_residual(parameters, sums, totals, weights)
        if solver.stop == "relative loss":
            done = jnp.abs(state.objective - objective) < solver.tolerance * jnp.abs(objective)
        else:
            done = (change < solver.tolerance) & (residual < solver.tolerance)
        trace = state.trace.at[state.cycle].set(objective)
        return _State(parameters, sums, objective, trace, state.cycle + 1, change, residual, done)

    sums, objective = visit(start)
    residual = _kkt_residual(start, sums, totals, weights)
    begin = _State(
        jax.tree.map(jnp.asarray, start),
        sums,
        objective,
        jnp.zeros(max(solver.max_cycles, 1)),
        jnp.array(0),
        jnp.array(jnp.inf),
        residual,
        jnp.array(False),
    )
    return lax.while_loop(
        lambda s: ~s.done & (s.cycle < solver.max_cycles) & jnp.isfinite(s.objective), step, begin
    )


def _cycle(old: Parameters, sums: Sums, cells: Cells, weights: _Weights) -> Parameters:
    """Majorise once at the old parameters, then minimise over a >= 0, d and theta in turn."""
    prior = weights.score(old)
    curvature = sums.item_curvature
    assert curvature is not None
    discrimination = _update_discrimination(old, sums.item_score, curvature, prior, weights)
    moved = jnp.einsum("jk,jk->j", curvature[:, -1, :-1], discrimination - old.discrimination)
    pull = sums.item_score[:, -1] - moved + prior.easiness
    easiness = old.easiness + pull / (curvature[:, -1, -1] + weights.easiness)
    half = Parameters(old.ability, discrimination, easiness)
    after = cell_sums(half, cells, curvature="quarter", anchor=old)
    assert after.llm_curvature is not None
    return Parameters(_update_ability(old, after, prior, weights), discrimination, easiness)


def _update_discrimination(
    old: Parameters,
    item_score: Float[Array, "item trait_and_1"],
    curvature: Float[Array, "item trait_and_1 trait_and_1"],
    prior: Parameters,
    weights: _Weights,
) -> Float[Array, "item trait"]:
    gram = curvature[:, :-1, :-1] + weights.discrimination * jnp.eye(old.num_traits)
    moment = jnp.einsum("jkl,jl->jk", gram, old.discrimination) + item_score[:, :-1] + prior.discrimination
    return nonnegative_least_squares(gram, moment)


def _update_ability(
    old: Parameters, sums: Sums, prior: Parameters, weights: _Weights
) -> Float[Array, "llm trait"]:
    assert sums.llm_curvature is not None
    scale = jnp.trace(sums.llm_curvature, axis1=1, axis2=2)
    ridge = weights.ability + jnp.where(scale > 0, 1e-12 * scale, 1.0)
    gram = sums.llm_curvature + ridge[:, None, None] * jnp.eye(old.num_traits)
    step = jnp.linalg.solve(gram, (sums.llm_score + prior.ability)[..., None])
    return jnp.asarray(old.ability + step[..., 0])


def _largest_difference(one: Parameters, other: Parameters) -> Float[Array, ""]:
    gaps = jax.tree.map(lambda a, b: jnp.abs(a - b).max(), one, other)
    return jnp.asarray(jnp.stack(jax.tree.leaves(gaps)).max())


def _kkt_residual(p: Parameters, sums: Sums, totals: _Totals, weights: _Weights) -> Float[Array, ""]:
    """Return the largest first-order residual per attempt."""
    prior = weights.score(p)
    slope = sums.item_score[:, :-1] + prior.discrimination
    inside = jnp.where(p.discrimination > 0, jnp.abs(slope), jnp.maximum(slope, 0.0))
    largest = jnp.stack(
        [
            (inside / totals.item[:, None]).max(),
            (jnp.abs(sums.item_score[:, -1] + prior.easiness) / totals.item).max(),
            (jnp.abs(sums.llm_score + prior.ability) / totals.llm[:, None]).max(),
        ]
    )
    return largest.max()


def _scale_items(parameters: Parameters, factor: float) -> Parameters:
    return Parameters(parameters.ability, parameters.discrimination * factor, parameters.easiness * factor)


def _check_options(responses: Responses, sigma: float, num_traits: int, start: Parameters | None) -> None:
    if not (np.isfinite(sigma) and sigma > 0):
        raise InvalidConfigurationError(f"sigma is {sigma!r}; it must be a positive, finite number.")
    most = min(responses.num_llms - 1, responses.num_items)
    if not 1 <= num_traits <= most:
        raise InvalidConfigurationError(
            f"num_traits is {num_traits}; {responses.num_llms} LLMs x {responses.num_items} items allow 1 to {most}."
        )
    if start is None:
        return
    wanted = [(responses.num_llms, num_traits), (responses.num_items, num_traits), (responses.num_items,)]
    given = [np.shape(leaf) for leaf in (start.ability, start.discrimination, start.easiness)]
    if given != wanted:
        raise InvalidConfigurationError(
            f"The start has shapes {given} for ability, discrimination and easiness; the data need {wanted}."
        )
    if not all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(start)):
        raise InvalidConfigurationError("The start holds non-finite values; give finite ones, or start=None.")
    if (np.asarray(start.discrimination) < 0).any():
        raise InvalidConfigurationError("The start holds negative discriminations; they must be 0 or more.")


def _as_estimate(
    responses: Responses, final: _State, sigma: float, solver: Solver, provenance: Provenance
) -> PointEstimate:
    raw = _scale_items(jax.tree.map(np.asarray, final.parameters), sigma)
    canonical = canonicalize(raw)
    status = Status.CONVERGED if final.done else Status.CYCLE_LIMIT
    separated = (
        separated_llms(np.asarray(canonical.discrimination), responses.successes, responses.attempts),
        separated_items(np.asarray(canonical.ability), responses.successes, responses.attempts),
    )
    labels = (responses.llms, responses.items)
    trace = np.asarray(final.trace)[: int(final.cycle)]
    estimate = PointEstimate(
        dataset=estimate_dataset(canonical, raw, trace, labels, separated),
        status=status,
        change=float(final.change),
        kkt_residual=float(final.residual),
        provenance=provenance,
    )
    if status is not Status.CONVERGED:
        named = (
            f"{len(estimate.separated_items)} items and {len(estimate.separated_llms)} LLMs are separated."
        )
        warnings.warn(
            f"cBMM: {status} ({solver.max_cycles}). {status.advice} {named}", ConvergenceWarning, stacklevel=3
        )
    return estimate
