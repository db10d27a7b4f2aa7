"""Measure speed, always as ratios between programs run one after the other on the same machine.

``uv run --group bench python scripts/benchmark.py nuts`` compares the effective draws per second of `fit_nuts` with
those of the textbook NumPyro program, dynamirt, and PyMC with nutpie, each in a process of its own.
``uv run --group bench python scripts/benchmark.py point`` compares `fit_cbmm` with a textbook cBMM, L-BFGS-B, Pymanopt
and girth at the sizes of the paper's suites.

MATH-500 is read from the folder in ``BAYES_IRT_DATA``; without it, a simulated suite of the same size is used.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
from benchmark_nuts import PROGRAMS, benchmark_nuts


def run_point(options: argparse.Namespace) -> None:
    """Compare point estimates; imported here, since the other command needs none of it."""
    from benchmark_point import benchmark_point

    benchmark_point(options)


def add_nuts(parser: argparse.ArgumentParser) -> None:
    """Declare the options of ``nuts``."""
    parser.add_argument(
        "--suite", default="math500", help="math500, or the size of a simulated suite, such as 2000x500"
    )
    parser.add_argument("--programs", nargs="+", choices=PROGRAMS, default=list(PROGRAMS))
    parser.add_argument(
        "--limit", type=float, default=3600.0, help="seconds that each other program may take"
    )
    parser.add_argument("--warmup", type=int, default=500)
    parser.add_argument("--draws", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", help="file to which each program's line of JSON is added")
    parser.set_defaults(run=benchmark_nuts)


def add_point(parser: argparse.ArgumentParser) -> None:
    """Declare the options of ``point``."""
    parser.add_argument("--limit", type=float, default=60.0, help="seconds that each other program may take")
    parser.add_argument("--most-cells", type=float, default=1e12, help="leave out larger suites")
    parser.add_argument("--figure", help="file to draw time against size to")
    parser.set_defaults(run=run_point)


def main() -> None:
    """Parse the command and run it."""
    parser = argparse.ArgumentParser(description=__doc__)
    commands = parser.add_subparsers(required=True)
    add_nuts(commands.add_parser("nuts", help="effective draws per second against other samplers"))
    add_point(commands.add_parser("point", help="time to a loss against other programs that fit the 2PL"))
    options = parser.parse_args()
    options.run(options)


if __name__ == "__main__":
    main()
