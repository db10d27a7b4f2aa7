"""The paper's cycle, faithfully: one majorisation at the constant curvature 1/4, then a, d and theta.

References
----------
Constrained block MM for item response theory, arXiv 2605.07046.
"""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Float, Int

from bayes_irt.blocks import Problem, ability_step, sequential_item_step
from bayes_irt.estimate import Status
from bayes_irt.likelihood import Cells, cell_sums
from bayes_irt.parameters import Parameters
from bayes_irt.solvers import Point, Solution, Solver, evaluate, largest_difference


class _Loop(NamedTuple):
    """The state of the paper's loop."""

    point: Point
    trace: Float[Array, " cycle"]
    cycle: Int[Array, ""]
    change: Float[Array, ""]
    done: Bool[Array, ""]


def solve_by_paper(start: Parameters, cells: Cells, problem: Problem, solver: Solver) -> Solution:
    """Minimise the loss plus penalty from one start by the paper's cycle.

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
    final = jax.device_get(_paper_loop(start, cells, problem, solver))
    cycles = int(final.cycle)
    return Solution(
        final.point.parameters,
        float(final.point.objective),
        final.trace[:cycles],
        float(final.change),
        float(final.point.residual),
        Status.CONVERGED if final.done else Status.CYCLE_LIMIT,
        1 + 2 * cycles,
    )


@partial(jax.jit, static_argnames="solver")
def _paper_loop(start: Parameters, cells: Cells, problem: Problem, solver: Solver) -> _Loop:
    """Run the paper's cycles until the stop rule holds."""

    def step(state: _Loop) -> _Loop:
        old = state.point
        half = sequential_item_step(old.parameters, old.sums, problem)
        # the parabola of the cycle's beginning, read at the new items; abilities have not moved since it touched
        sums = cell_sums(half, cells, curvature="quarter", anchor=old.parameters)
        at = ability_step(half, sums, problem)
        point = evaluate(at, cells, problem, "quarter")
        change = jnp.asarray(largest_difference(old.parameters, point.parameters))
        if solver.stop == "relative loss":
            gap = jnp.abs(old.objective - point.objective)
            done = gap < solver.tolerance * jnp.abs(point.objective)
        else:
            done = (change < solver.tolerance) & (point.residual < solver.tolerance)
        trace = state.trace.at[state.cycle].set(point.objective)
        return _Loop(point, trace, state.cycle + 1, change, done)

    begin = _Loop(
        evaluate(start, cells, problem, "quarter"),
        jnp.zeros(max(solver.max_cycles, 1)),
        jnp.array(0),
        jnp.array(jnp.inf),
        jnp.array(False),
    )
    return lax.while_loop(
        lambda s: ~s.done & (s.cycle < solver.max_cycles) & jnp.isfinite(s.point.objective), step, begin
    )
