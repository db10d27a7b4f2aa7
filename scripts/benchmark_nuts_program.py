"""Run one program of the NUTS benchmark and print one line of JSON, as `benchmark_nuts` asks for it."""

from __future__ import annotations

import argparse
import json
import sys
import time
from importlib import import_module
from importlib.metadata import version
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
from benchmark_nuts import PROGRAMS, size_of
from devices import use_all_cores

use_all_cores()


def run(options: argparse.Namespace) -> dict[str, object]:
    """Return what the program achieved; imports take no part in its time."""
    program = PROGRAMS[options.program]
    try:
        module = import_module(program.module)
    except ImportError as error:
        return {"status": "not installed", "reason": str(error)}

    from suites import suite_of

    from bayes_irt import Sampler

    suite, responses = suite_of(size_of(options.suite))
    if (responses.attempts > 1).any():
        return {"status": "failed", "reason": "the suite has cells with more than one attempt"}
    sampler = Sampler(num_warmup=options.warmup, num_draws=options.draws)
    began = time.perf_counter()
    draws = module.sample(responses, sampler, options.seed)
    seconds = time.perf_counter() - began
    shape = (sampler.num_chains, sampler.num_draws)
    if draws.ability.shape != (*shape, responses.num_llms):
        return {"status": "failed", "reason": f"abilities have shape {draws.ability.shape}"}
    return {
        "status": "finished",
        "suite": suite,
        "size": [responses.num_llms, responses.num_items],
        "chains": sampler.num_chains,
        "warmup": sampler.num_warmup,
        "draws": sampler.num_draws,
        "seed": options.seed,
        "versions": {package: version(package) for package in program.packages},
        "seconds": seconds,
        "compiling": draws.compiling,
        **draws.worth(seconds),
    }


def main() -> None:
    """Parse the command, run the program, print the line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("program", choices=PROGRAMS)
    parser.add_argument("--suite", required=True)
    for name in ("--warmup", "--draws", "--seed"):
        parser.add_argument(name, type=int, required=True)
    options = parser.parse_args()
    print(json.dumps({"program": options.program, **run(options)}))


if __name__ == "__main__":
    main()
