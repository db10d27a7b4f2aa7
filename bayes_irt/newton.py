"""The accelerated solver of cBMM.

Each cycle fits the parabola of Fisher's curvature, takes discriminations and easinesses jointly under a >= 0, fits it
anew and takes abilities; Anderson's acceleration mixes the last cycles. A point is accepted only when the loss is not
above the last one's; where neither the mixture nor the plain step manages that, cycles with the tight majorising
curvature, which cannot raise it, take over for a while.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial

import jax
import numpy as np

from bayes_irt.blocks import Problem, ability_step, joint_item_step
from bayes_irt.cell_functions import Curvature
from bayes_irt.estimate import Status
from bayes_irt.likelihood import Cells, Sums, cell_sums
from bayes_irt.mixing import Mixing
from bayes_irt.parameters import Parameters
from bayes_irt.solvers import Point, Solution, Solver, evaluate, largest_difference

# In logits.
_LONGEST_STEP = 3.0
# What a sum over cells may differ by from one order of adding to another.
_ROUNDING = {"mixed": 1e-7, "float64": 1e-13}
# The loss counts as settled where this many cycles lower it by less than the square of the tolerance times itself:
# near an optimum a change of the parameters changes the loss by about its square.
_SETTLED_CYCLES = 10
_SMALLEST_FALL = 1e-14
# Without a penalty what has no finite estimate moves on by logits while the loss hardly falls.
_RUNAWAY = 0.1
_RUNAWAY_SHARE = 1e-2
_FIRST_PAUSE = 5


def solve_by_newton(start: Parameters, cells: Cells, problem: Problem, solver: Solver) -> Solution:
    """Minimise the loss plus penalty from one start by the accelerated solver.

    Parameters
    ----------
    start
        Where to start, in the scale in which sigma is 1.
    cells
        The data.
    problem
        Penalty and zero pattern.
    solver
        Stop rule, limit and precision.

    Returns
    -------
    Solution
        Where it stopped. A non-finite objective ends the search at once.
    """
    return _Newton(cells, problem, solver).run(start)


@partial(jax.jit, static_argnames="curvature")
def _cycle(point: Point, cells: Cells, problem: Problem, curvature: Curvature) -> Parameters:
    """Take items jointly, then, with a parabola fitted anew, abilities."""
    half = joint_item_step(point.parameters, point.sums, problem, longest=_LONGEST_STEP)
    sums = cell_sums(half, cells, curvature=curvature)
    return ability_step(half, sums, problem, longest=_LONGEST_STEP)


@dataclass(slots=True)
class _Newton:
    """The accelerated solver: what it minimises, what it remembers, what it has spent."""

    cells: Cells
    problem: Problem
    solver: Solver
    passes: int = 0
    curvature: Curvature = "fisher"
    pause: int = 0
    next_pause: int = _FIRST_PAUSE
    mixing: Mixing = field(default_factory=Mixing)

    def run(self, start: Parameters) -> Solution:
        point = self.evaluate(start)
        trace: list[float] = []
        change, outcome = np.inf, Status.CYCLE_LIMIT
        while len(trace) < self.solver.max_cycles and np.isfinite(point.objective):
            before = float(point.objective)
            change, point = self.advance(point)
            trace.append(float(point.objective))
            if self.converged(before, point, change):
                outcome = Status.CONVERGED
                break
            if self.settled(trace, change):
                outcome = Status.LOSS_SETTLED
                break
        return Solution(
            jax.device_get(point.parameters),
            float(point.objective),
            np.array(trace),
            change,
            float(point.residual),
            outcome,
            self.passes,
        )

    def evaluate(self, at: Parameters) -> Point:
        self.passes += 1
        point: Point = evaluate(at, self.cells, self.problem, self.curvature)
        return point

    def advance(self, point: Point) -> tuple[float, Point]:
        """Take one cycle; return by how much a parameter moves, the plain step's included, and where it led."""
        point = self.choose_curvature(point)
        limit = float(point.objective) * (1.0 + _ROUNDING[self.solver.precision])
        plain = jax.device_get(_cycle(point, self.cells, self.problem, self.curvature))
        self.passes += 1
        before = jax.device_get(point.parameters)
        change = float(largest_difference(before, plain))
        mixed = self.mixture(point, plain)
        if mixed is not None:
            there = self.evaluate(mixed)
            if there.objective < point.objective:
                return max(change, float(largest_difference(before, jax.device_get(there.parameters)))), there
            self.mixing.forget()
        there = self.evaluate(plain)
        if there.objective <= limit:
            return change, there
        if self.curvature == "fisher":
            self.curvature, self.pause = "tight", self.next_pause
            self.next_pause *= 2
            self.mixing.forget(all_of_it=True)
            return self.advance(self.evaluate(point.parameters))
        return change, point  # not even a majoriser lowers the loss: rounding is all that is left

    def choose_curvature(self, point: Point) -> Point:
        """Return to Fisher's curvature after the pause that follows a failure."""
        if self.curvature == "fisher":
            return point
        self.pause -= 1
        if self.pause >= 0:
            return point
        self.curvature = "fisher"
        self.mixing.forget(all_of_it=True)
        return self.evaluate(point.parameters)

    def mixture(self, point: Point, plain: Parameters) -> Parameters | None:
        """Mix the last cycles so that their steps cancel as far as they can; None at the first.

        Steps are weighed by curvature: in the loss they count alike, and what runs away hardly counts.
        """
        scale = _curvature_scale(point.sums, self.problem)
        flat = self.mixing.mix(_flat(point.parameters), _flat(plain), scale)
        return None if flat is None else _with_shape_of(plain, flat)

    def converged(self, before: float, point: Point, change: float) -> bool:
        tolerance, after = self.solver.tolerance, float(point.objective)
        if self.solver.stop == "relative loss":
            return abs(before - after) < tolerance * abs(after)
        return change < tolerance and float(point.residual) < tolerance

    def settled(self, trace: list[float], change: float) -> bool:
        if self.solver.tolerance == 0 or len(trace) <= _SETTLED_CYCLES:
            return False
        fall = trace[-1 - _SETTLED_CYCLES] - trace[-1]
        share = max(self.solver.tolerance**2, _SMALLEST_FALL)
        if self.problem.ability_precision == 0 and change > _RUNAWAY:
            share = max(share, _RUNAWAY_SHARE * self.solver.tolerance)
        return fall < share * abs(trace[-1])


def _curvature_scale(sums: Sums, problem: Problem) -> np.ndarray:
    """Return the square root of the loss's curvature by each parameter, in the order of `_flat`."""
    by_llm = np.einsum("ikk->ik", jax.device_get(sums.llm_curvature)) + problem.ability_precision
    by_item = np.einsum("jkk->jk", jax.device_get(sums.item_curvature))
    slopes = by_item[:, :-1] + problem.discrimination_precision
    easiness = by_item[:, -1] + problem.easiness_precision
    return np.sqrt(np.concatenate([by_llm.ravel(), slopes.ravel(), easiness]))


def _flat(parameters: Parameters) -> np.ndarray:
    return np.concatenate([np.ravel(leaf) for leaf in jax.tree.leaves(jax.device_get(parameters))])


def _with_shape_of(like: Parameters, flat: np.ndarray) -> Parameters:
    """Restore parameters from one vector; discriminations are held at 0 or above."""
    cuts = np.cumsum([np.size(like.ability), np.size(like.discrimination)])
    ability, discrimination, easiness = np.split(flat, cuts)
    return Parameters(
        ability.reshape(like.ability.shape),
        np.maximum(discrimination, 0.0).reshape(like.discrimination.shape),
        easiness,
    )
