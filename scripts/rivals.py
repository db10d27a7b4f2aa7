"""Other programs that fit the 2PL, each with the times at which it reached its losses.

All minimise the paper's loss without penalty from the same start, but for girth, which maximises another likelihood.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
from scipy.optimize import minimize, nnls
from scipy.special import expit, log_expit

from bayes_irt import Parameters, Responses
from bayes_irt.cbmm import default_start
from bayes_irt.likelihood import cell_sums, tile_cells

#: Losses that differ by less than this share are the same: cells in float32 do not tell more.
SAME = 1e-6


class TimeIsUpError(Exception):
    """Raised inside a program at the end of its time."""


@dataclass
class Course:
    """Record losses and the seconds at which they were known."""

    limit: float
    seconds: list[float] = field(default_factory=list)
    losses: list[float] = field(default_factory=list)
    began: float = field(default_factory=time.perf_counter)
    finished: bool = False

    def record(self, loss: float) -> None:
        """Note a loss; stop the program when its time is up."""
        self.seconds.append(time.perf_counter() - self.began)
        self.losses.append(float(loss))
        if self.seconds[-1] > self.limit:
            raise TimeIsUpError

    def seconds_to(self, loss: float) -> float | None:
        """Return when the loss was first reached; None if never."""
        return next(
            (s for s, found in zip(self.seconds, self.losses, strict=True) if found <= loss * (1 + SAME)),
            None,
        )

    @classmethod
    def of(cls, program: Callable[[Responses, Course], None], responses: Responses, limit: float) -> Course:
        """Run a program within its time."""
        course = cls(limit)
        try:
            program(responses, course)
            course.finished = True
        except TimeIsUpError:
            pass
        return course


@dataclass
class PeakMemory:
    """Watch how much memory a program takes beyond what the process held before it."""

    bytes: int = 0

    def __enter__(self) -> PeakMemory:
        self._before, self._watching = resident(), True
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._watching = False
        self._thread.join()

    def _watch(self) -> None:
        while self._watching:
            self.bytes = max(self.bytes, resident() - self._before)
            time.sleep(0.002)


def resident() -> int:
    """Return the bytes of memory that the process holds."""
    return int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1]) * 4096


def textbook_cbmm(responses: Responses, course: Course, tolerance: float = 1e-4) -> None:
    """Run the paper's algorithm as one writes it down: NumPy, float64, SciPy's NNLS for each column."""
    y = np.where(responses.successes == 1, 1.0, -1.0)
    y[responses.attempts == 0] = 0.0
    seen = np.abs(y)
    start = default_start(responses)
    theta, slope, easiness = start.ability[:, 0], start.discrimination[:, 0], start.easiness
    before = np.inf
    while True:
        logits = np.outer(theta, slope) + easiness
        target = logits + 4 * y * expit(-y * logits)
        for j in range(len(slope)):
            rows = seen[:, j] > 0
            slope[j] = nnls(theta[rows, None], target[rows, j] - easiness[j])[0][0]
        easiness = ((target - np.outer(theta, slope)) * seen).sum(axis=0) / seen.sum(axis=0)
        theta = ((target - easiness) * seen) @ slope / (seen @ slope**2)
        loss = -(seen * log_expit(y * (np.outer(theta, slope) + easiness))).sum()
        course.record(loss)
        if abs(before - loss) < tolerance * abs(loss):
            return
        before = loss


def _bounded(
    responses: Responses, course: Course, value_and_gradient: Callable[..., tuple[float, np.ndarray]]
) -> None:
    """Run SciPy's L-BFGS-B under a >= 0."""
    start = default_start(responses)
    first = np.concatenate([start.ability[:, 0], start.discrimination[:, 0], start.easiness])
    free = (None, None)
    bounds = [free] * responses.num_llms + [(0, None)] * responses.num_items + [free] * responses.num_items
    minimize(
        value_and_gradient,
        first,
        jac=True,
        bounds=bounds,
        method="L-BFGS-B",
        callback=lambda intermediate_result: course.record(intermediate_result.fun),
        options={"maxiter": 2000, "maxfun": 10_000},
    )


def lbfgs_numpy(responses: Responses, course: Course) -> None:
    """Run L-BFGS-B on the loss in NumPy, float64."""
    y, n = responses.successes.astype(float), responses.attempts.astype(float)
    cuts = [responses.num_llms, responses.num_llms + responses.num_items]

    def value_and_gradient(flat: np.ndarray) -> tuple[float, np.ndarray]:
        theta, slope, easiness = np.split(flat, cuts)
        logits = np.outer(theta, slope) + easiness
        rest = n * expit(logits) - y
        loss = -(n * log_expit(-logits) + y * logits).sum()
        return loss, np.concatenate([rest @ slope, theta @ rest, rest.sum(axis=0)])

    _bounded(responses, course, value_and_gradient)


def lbfgs_kernel(responses: Responses, course: Course) -> None:
    """Run L-BFGS-B fed by the kernel of bayes_irt."""
    cuts = [responses.num_llms, responses.num_llms + responses.num_items]
    with jax.enable_x64(True):
        cells = jax.device_put(tile_cells(responses.successes, responses.attempts))

        def value_and_gradient(flat: np.ndarray) -> tuple[float, np.ndarray]:
            theta, slope, easiness = np.split(flat, cuts)
            sums = _loss_and_score(Parameters(theta[:, None], slope[:, None], easiness), cells)
            pieces = (sums.llm_score[:, 0], sums.item_score[:, 0], sums.item_score[:, 1])
            return float(sums.loss), -np.concatenate([np.asarray(piece) for piece in pieces])

        _bounded(responses, course, value_and_gradient)


_loss_and_score = jax.jit(lambda parameters, cells: cell_sums(parameters, cells, loss=True))


def pymanopt_gradient(responses: Responses, course: Course) -> None:
    """Run Pymanopt's conjugate gradient on a product manifold, discriminations on the positive one."""
    import pymanopt
    from pymanopt.manifolds import Euclidean, Positive, Product
    from pymanopt.optimizers import ConjugateGradient

    y, n = responses.successes.astype(float), responses.attempts.astype(float)
    manifold = Product(
        [Euclidean(responses.num_llms), Positive(responses.num_items, 1), Euclidean(responses.num_items)]
    )

    def cost(theta: np.ndarray, slope: np.ndarray, easiness: np.ndarray) -> float:
        logits = np.outer(theta, slope) + easiness
        loss = -(n * log_expit(-logits) + y * logits).sum()
        course.record(loss)
        return float(loss)

    def gradient(theta: np.ndarray, slope: np.ndarray, easiness: np.ndarray) -> tuple[np.ndarray, ...]:
        rest = n * expit(np.outer(theta, slope) + easiness) - y
        return rest @ slope[:, 0], (theta @ rest)[:, None], rest.sum(axis=0)

    start = default_start(responses)
    on_manifold = pymanopt.function.numpy(manifold)
    problem = pymanopt.Problem(manifold, on_manifold(cost), euclidean_gradient=on_manifold(gradient))
    optimizer = ConjugateGradient(max_time=course.limit, max_iterations=2000, verbosity=0)
    optimizer.run(problem, initial_point=[start.ability[:, 0], start.discrimination, start.easiness])


def girth_mml(responses: Responses, course: Course) -> None:
    """Run girth's marginal maximum likelihood in a process of its own, which can be stopped; record the joint loss."""
    with tempfile.TemporaryDirectory() as folder:
        data, answer = Path(folder) / "data.npy", Path(folder) / "answer.npz"
        np.save(data, responses.successes)
        command = [sys.executable, str(Path(__file__).with_name("rival_girth.py")), str(data), str(answer)]
        try:
            subprocess.run(command, check=True, timeout=course.limit)
        except subprocess.TimeoutExpired:
            raise TimeIsUpError from None
        found = np.load(answer)
    logits = np.outer(found["ability"], found["discrimination"]) + found["easiness"]
    course.record(-log_expit(np.where(responses.successes == 1, logits, -logits)).sum())


def sigmoid_floor(responses: Responses, repeats: int = 9) -> float:
    """Return the seconds of one pass that only adds up sigmoid(theta a + d) in float32."""
    start = default_start(responses)
    arguments = [
        jnp.asarray(x, jnp.float32) for x in (start.ability[:, 0], start.discrimination[:, 0], start.easiness)
    ]
    program = jax.jit(lambda theta, a, d: jax.nn.sigmoid(theta[:, None] * a + d).sum())
    return median_seconds(lambda: program(*arguments), repeats)


def median_seconds(run: Callable[[], object], repeats: int) -> float:
    """Return the median of several timed runs, after one that compiles."""
    jax.block_until_ready(run())
    seconds = []
    for _ in range(repeats):
        began = time.perf_counter()
        jax.block_until_ready(run())
        seconds.append(time.perf_counter() - began)
    return float(np.median(seconds))
