"""Effective draws per second of `fit_nuts` and of other programs, each in a process of its own, one after the other."""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Program:
    """Say what to call a program, which module runs it, and which packages decide its speed."""

    label: str
    module: str
    packages: tuple[str, ...]


OURS = "bayes_irt"
PROGRAMS = {
    OURS: Program("bayes_irt fit_nuts", "benchmark_fit_nuts", ("bayes_irt", "numpyro", "jax")),
    "textbook": Program("textbook NumPyro", "rival_textbook", ("numpyro", "jax")),
    "dynamirt": Program("dynamirt", "rival_dynamirt", ("dynamirt", "numpyro", "jax")),
    "pymc": Program("PyMC with nutpie", "rival_pymc", ("pymc", "nutpie", "numba")),
}
RATES = ("ess_per_s", "ess_gauged_per_s", "ess_per_s_compiled", "ess_gauged_per_s_compiled")


def size_of(suite: str) -> tuple[int, int]:
    """Return numbers of LLMs and items: of MATH-500, or as given, such as 2000x500."""
    if suite == "math500":
        return 140, 500
    llms, items = suite.split("x")
    return int(llms), int(items)


def fresh_environment(folder: str) -> dict[str, str]:
    """Return the environment without what earlier runs compiled, so that every program compiles anew."""
    kept = {name: value for name, value in os.environ.items() if name != "JAX_COMPILATION_CACHE_DIR"}
    flags = [kept["PYTENSOR_FLAGS"]] if "PYTENSOR_FLAGS" in kept else []
    return kept | {"PYTENSOR_FLAGS": ",".join([*flags, f"base_compiledir={folder}"])}


def run_apart(name: str, options: argparse.Namespace) -> dict[str, Any]:
    """Run a program in a process of its own; one of the others is stopped at the end of its time."""
    command = [sys.executable, str(Path(__file__).with_name("benchmark_nuts_program.py")), name]
    for option in ("suite", "warmup", "draws", "seed"):
        command += [f"--{option}", str(getattr(options, option))]
    limit = None if name == OURS else options.limit
    with tempfile.TemporaryDirectory() as folder:
        environment = fresh_environment(folder)
        try:
            done = subprocess.run(
                command, capture_output=True, text=True, check=False, timeout=limit, env=environment
            )
        except subprocess.TimeoutExpired:
            return {"program": name, "status": f"stopped after {limit:g} s"}
    lines = [line for line in done.stdout.splitlines() if line.startswith('{"program"')]
    if done.returncode or not lines:
        last = (done.stderr.strip().splitlines() or [f"exit status {done.returncode}"])[-1]
        return {"program": name, "status": "failed", "reason": last}
    found: dict[str, Any] = json.loads(lines[-1])
    return found


def row(found: dict[str, Any]) -> str:
    """Return a row of the table of times, effective sample sizes and rates."""
    label = PROGRAMS[found["program"]].label
    if found["status"] != "finished":
        reason = f" ({found['reason']})" if "reason" in found else ""
        return f"| {label} | {found['status']}{reason} |" + " |" * 8
    cells = [f"{found[name]:.1f}" for name in ("seconds", "compiling")]
    cells += [f"{found[name]:.0f}" for name in ("ess", "ess_gauged")]
    cells += [f"{found[name]:.2f}" for name in RATES]
    return f"| {label} | " + " | ".join([*cells, f"{found['rhat_gauged']:.3f}"]) + " |"


def ratios(ours: dict[str, Any], other: dict[str, Any]) -> str:
    """Return a row of the table of how many times as many effective draws a second ours has."""
    cells = [f"{ours[name] / other[name]:.1f}" for name in RATES]
    return f"| {PROGRAMS[other['program']].label} | " + " | ".join(cells) + " |"


def benchmark_nuts(options: argparse.Namespace) -> None:
    """Print the table of programs as they finish, then ours divided by each other one."""
    llms, items = size_of(options.suite)
    print(
        f"{options.suite}, {llms:,} x {items:,}; 4 chains, {options.warmup} + {options.draws} draws each. The smallest"
        " effective sample size (ESS) of an ability, as reported\nand gauge-fixed (mean 0, sd 1 in every draw), and"
        " per second: of all time, then of the time after compilation.\n"
    )
    rates = "ESS/s | gauged/s | ESS/s, compiled | gauged/s, compiled"
    print(f"| program | s | compiling | ESS | ESS gauged | {rates} | R-hat |\n|---|" + "--:|" * 9, flush=True)
    asked = {"size": [llms, items], "warmup": options.warmup, "draws": options.draws, "seed": options.seed}
    results = []
    for name in options.programs:
        found = asked | run_apart(name, options)
        print(row(found), flush=True)
        if options.json:
            with Path(options.json).open("a", encoding="utf-8") as file:
                file.write(json.dumps(found) + "\n")
        results.append(found)
    finished = {found["program"]: found for found in results if found["status"] == "finished"}
    ours = finished.pop(OURS, None)
    if ours and finished:
        print(f"\n| {PROGRAMS[OURS].label}, times | {rates} |\n|---|" + "--:|" * 4)
        for found in finished.values():
            print(ratios(ours, found))
