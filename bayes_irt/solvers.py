"""What the solvers of cBMM share: how they are told to search, a point of theirs, and how they answer."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from bayes_irt.arguments import require_number, require_whole
from bayes_irt.blocks import Problem, kkt_residual, penalty_value, rebalance
from bayes_irt.cell_functions import Curvature
from bayes_irt.errors import InvalidConfigurationError
from bayes_irt.estimate import Status
from bayes_irt.identify import canonicalize
from bayes_irt.likelihood import Cells, Precision, Sums, cell_sums
from bayes_irt.parameters import Parameters


@dataclass(frozen=True, slots=True)
class Solver:
    """State how cBMM searches and when it stops.

    Parameters
    ----------
    algorithm
        "newton": the accelerated solver. "paper": the paper's cycle, faithfully.
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
    starts
        Number of starts; the first is the default one (or the one given). The others keep half of its abilities and
        its easinesses to half a logit, and draw slopes anew. The loss is not convex: that they agree is no proof, that
        they differ is a warning.
    seed
        Seed of the starts drawn.

    Raises
    ------
    InvalidConfigurationError
        If a value makes no sense.

    Examples
    --------
    >>> Solver(algorithm="paper", stop="relative loss").tolerance
    0.0001
    """

    algorithm: Literal["newton", "paper"] = "newton"
    stop: Literal["parameters", "relative loss"] = "parameters"
    tolerance: float = 1e-4
    max_cycles: int = 2_000
    precision: Precision = "mixed"
    starts: int = 1
    seed: int = 0

    def __post_init__(self) -> None:
        choices = {
            "algorithm": ("newton", "paper"),
            "stop": ("parameters", "relative loss"),
            "precision": ("mixed", "float64"),
        }
        for name, allowed in choices.items():
            if getattr(self, name) not in allowed:
                wanted = " or ".join(map(repr, allowed))
                raise InvalidConfigurationError(f"{name} is {getattr(self, name)!r}; it must be {wanted}.")
        require_number("tolerance", self.tolerance, 0.0, 1e6)
        for name, least in (("max_cycles", 0), ("starts", 1), ("seed", 0)):
            require_whole(name, getattr(self, name), least)


class Solution(NamedTuple):
    """Where a solver stopped.

    Attributes
    ----------
    parameters
        In the gauge in which the solver left them, in the scale in which sigma is 1.
    objective
        Loss plus penalty.
    trace
        The same after each cycle.
    change
        Largest change of a canonical parameter in the last cycle.
    residual
        First-order residual per attempt.
    outcome
        How it ended.
    passes
        Passes over the data.
    """

    parameters: Parameters
    objective: float
    trace: np.ndarray
    change: float
    residual: float
    outcome: Status
    passes: int


class Point(NamedTuple):
    """Parameters and the pass at them.

    Attributes
    ----------
    parameters
        The parameters.
    sums
        Sums of the pass.
    objective
        Loss plus penalty.
    residual
        First-order residual per attempt.
    """

    parameters: Parameters
    sums: Sums
    objective: Float[Array, ""]
    residual: Float[Array, ""]


@partial(jax.jit, static_argnames="curvature")
def evaluate(at: Parameters, cells: Cells, problem: Problem, curvature: Curvature) -> Point:
    """Run the pass at some parameters, in the gauge that the penalty likes best.

    Parameters
    ----------
    at
        The parameters.
    cells
        The data.
    problem
        Penalty and zero pattern.
    curvature
        The weight wanted, see `cell_functions.binomial_cell`.

    Returns
    -------
    Point
        Sums, objective and first-order residual.
    """
    at = rebalance(jax.tree.map(jnp.asarray, at), problem)
    sums = cell_sums(at, cells, loss=True, curvature=curvature)
    assert sums.loss is not None
    objective = sums.loss + penalty_value(problem, at)
    return Point(at, sums, objective, kkt_residual(at, sums, problem))


def largest_difference(one: Parameters, other: Parameters) -> Float[Array | np.ndarray, ""]:
    """Return the largest difference of two sets of parameters in the canonical gauge.

    Parameters
    ----------
    one, other
        Parameters of one shape, in any gauge; trait by trait. NumPy stays NumPy, JAX stays JAX.

    Returns
    -------
    numpy.ndarray or jax.Array
        In sds of ability or in logits.

    Examples
    --------
    >>> p = Parameters(np.array([[-1.0], [1.0]]), np.array([[1.0]]), np.array([0.0]))
    >>> float(largest_difference(p, Parameters(2 * p.ability, p.discrimination / 2, p.easiness + 0.25)))
    0.25
    """
    pairs = zip(*(jax.tree.leaves(canonicalize(p, sort_traits=False)) for p in (one, other)), strict=True)
    xp = jnp if isinstance(one.ability, jax.Array) else np
    largest: Float[Array | np.ndarray, ""] = xp.stack([xp.abs(a - b).max() for a, b in pairs]).max()
    return largest
