"""The point estimate side by side with other programs: time to the loss at which the textbook cBMM stops, and more."""

from __future__ import annotations

import argparse
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from importlib.util import find_spec

import jax
import matplotlib.pyplot as plt
import numpy as np
import rivals
from suites import suite_of

from bayes_irt import Responses, Solver, fit_cbmm
from bayes_irt.cbmm import default_start
from bayes_irt.errors import ConvergenceWarning
from bayes_irt.likelihood import cell_sums, tile_cells

SIZES = ((140, 500), (2211, 541), (2211, 756), (2211, 1192), (2211, 1324), (2211, 5761), (2211, 12032))
OURS = {
    "bayes_irt, default": Solver(),
    "bayes_irt, paper form": Solver(algorithm="paper", stop="relative loss"),
}
RIVALS = {
    "L-BFGS-B, our kernel": (rivals.lbfgs_kernel, 1e12),
    "L-BFGS-B, NumPy": (rivals.lbfgs_numpy, 1e12),
    "Pymanopt": (rivals.pymanopt_gradient, 1e12),
    "girth": (rivals.girth_mml, 1e5),
}
NEEDS = {"Pymanopt": "pymanopt", "girth": "girth"}


@dataclass(frozen=True)
class Line:
    """Hold what one program achieved on one suite; None where it did not get there in its time."""

    program: str
    to_target: float | None
    to_stop: float | None
    loss: float
    peak_bytes_per_cell: float
    first_to_target: float | None = None

    def text(self, target: float, textbook: float) -> str:
        """Return a row of the table."""
        ratio = "-" if self.to_target is None else f"{textbook / self.to_target:.1f}"
        with_compiling = "-" if self.first_to_target is None else f"{textbook / self.first_to_target:.1f}"
        cells = [
            self.program,
            _seconds(self.to_target),
            ratio,
            with_compiling,
            _seconds(self.to_stop),
            "-" if np.isnan(self.loss) else f"{self.loss / target - 1:+.3%}",
            f"{self.peak_bytes_per_cell:.1f}",
        ]
        return "| " + " | ".join(cells) + " |"


def _seconds(value: float | None) -> str:
    return "-" if value is None else f"{value:.3g}"


def timed(run: Callable[[], object]) -> float:
    """Return the seconds of one run."""
    began = time.perf_counter()
    run()
    return time.perf_counter() - began


def run_ours(name: str, solver: Solver, responses: Responses, target: float) -> Line:
    """Time `fit_cbmm` as users call it: to its own stop, and with as many cycles as reach the target."""
    jax.clear_caches()
    with rivals.PeakMemory() as memory:
        first = timed(lambda: fit_cbmm(responses, solver=solver))
        estimate = fit_cbmm(responses, solver=solver)
        to_stop = timed(lambda: fit_cbmm(responses, solver=solver))
    reached = np.flatnonzero(estimate.loss_trace <= target * (1 + rivals.SAME))
    to_target = first_to_target = None
    if len(reached):
        short = replace(solver, tolerance=0.0, max_cycles=int(reached[0]) + 1)
        if solver.algorithm == "paper":
            fit_cbmm(responses, solver=short)  # its loop is compiled for the settings
        to_target = float(np.median([timed(lambda: fit_cbmm(responses, solver=short)) for _ in range(5)]))
        first_to_target = first - to_stop + to_target
    per_cell = memory.bytes / responses.attempts.size
    return Line(name, to_target, to_stop, estimate.loss, per_cell, first_to_target)


def run_rival(name: str, responses: Responses, target: float, limit: float) -> Line | None:
    """Time another program; None where it is not installed or the suite is beyond it."""
    program, most_cells = RIVALS[name]
    if name in NEEDS and find_spec(NEEDS[name]) is None:
        return None
    if responses.attempts.size > most_cells:
        return None
    with rivals.PeakMemory() as memory:
        course = rivals.Course.of(program, responses, limit)
    loss = min(course.losses) if course.losses else float("nan")
    to_stop = course.seconds[-1] if course.finished else None
    return Line(name, course.seconds_to(target), to_stop, loss, memory.bytes / responses.attempts.size)


def passes(responses: Responses, floor: float) -> str:
    """Say what a pass costs, in floors."""
    with jax.enable_x64(True):
        cells = jax.device_put(tile_cells(responses.successes, responses.attempts))
        start = jax.tree.map(jax.numpy.asarray, default_start(responses))
        costs = []
        for label, options in (
            ("score", {}),
            ("score and curvature", {"curvature": "fisher"}),
            ("score, curvature and loss", {"curvature": "fisher", "loss": True}),
        ):
            program = partial(jax.jit(partial(cell_sums, **options)), start, cells)
            seconds = rivals.median_seconds(program, 9)
            costs.append(f"{label} {seconds / floor:.1f}")
        exact = tile_cells(responses.successes, responses.attempts, "float64")
        losses = [float(np.asarray(cell_sums(start, c, loss=True).loss)) for c in (cells, exact)]
    return (
        f"floor {1e3 * floor:.2f} ms ({1e9 * floor / responses.attempts.size:.2f} ns a cell); a pass with "
        + ", ".join(costs)
        + f"; losses with cells in float32 and in float64 differ by {abs(losses[0] / losses[1] - 1):.0e}"
    )


def benchmark_point(options: argparse.Namespace) -> None:
    """Print a table for each size, the growth of our time with cells, and draw the figure."""
    warnings.simplefilter("ignore", ConvergenceWarning)
    lines: dict[int, list[Line]] = {}
    for size in [s for s in SIZES if s[0] * s[1] <= options.most_cells]:
        name, responses = suite_of(size)
        with rivals.PeakMemory() as memory:
            textbook = rivals.Course.of(rivals.textbook_cbmm, responses, float("inf"))
        target, seconds = textbook.losses[-1], textbook.seconds[-1]
        print(f"\n{name}, {size[0]:,} x {size[1]:,}: the textbook cBMM stops at a loss of {target:,.2f}")
        print(passes(responses, rivals.sigmoid_floor(responses)) + "\n")
        print(
            "| program | s to that loss | times faster | with compiling | s to stop | loss, relative | bytes a cell |"
        )
        print("|---|--:|--:|--:|--:|--:|--:|")
        found = [run_ours(label, solver, responses, target) for label, solver in OURS.items()]
        per_cell = memory.bytes / responses.attempts.size
        found.append(Line("textbook cBMM, NumPy", seconds, seconds, target, per_cell))
        found += [
            line
            for line in (run_rival(r, responses, target, options.limit) for r in RIVALS)
            if line is not None
        ]
        for line in found:
            print(line.text(target, seconds), flush=True)
        lines[responses.attempts.size] = found
    report_growth(lines)
    if options.figure:
        draw(lines, options.figure)


def report_growth(lines: dict[int, list[Line]]) -> None:
    """Print the slope of log time on log cells, from a million cells on."""
    points = [
        (size, line.to_stop)
        for size, found in lines.items()
        for line in found[:1]
        if size >= 1e6 and line.to_stop
    ]
    if len(points) > 2:
        cells, seconds = np.log(np.array(points)).T
        slope = np.polyfit(cells, seconds, 1)[0]
        print(f"\ntime to own stop of {next(iter(OURS))} grows as cells^{slope:.2f} from 1e6 cells on")


def draw(lines: dict[int, list[Line]], path: str) -> None:
    """Draw time to the textbook's loss against cells, both in logarithms."""
    figure, axes = plt.subplots(figsize=(7, 4.5), layout="constrained")
    programs = dict.fromkeys(line.program for found in lines.values() for line in found)
    for program in programs:
        points = [
            (size, line.to_target)
            for size, found in lines.items()
            for line in found
            if line.program == program and line.to_target is not None
        ]
        if points:
            axes.loglog(*zip(*points, strict=True), marker="o", ms=4, label=program)
    axes.set(xlabel="cells (LLMs x items)", ylabel="seconds to the textbook's loss")
    axes.grid(alpha=0.3)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False, fontsize=8)
    figure.savefig(path, dpi=150)
