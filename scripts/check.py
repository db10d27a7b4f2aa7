"""Run everything that a change must pass: lint, format, types, tests and doctests.

``uv run python scripts/check.py`` is what the continuous integration runs. Arguments are handed to pytest.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

COMMANDS = (
    ("ruff", "check", "."),
    ("ruff", "format", "--check", "."),
    ("mypy",),
    # in two processes: one would run out of memory maps for compiled programs, and of time
    # the package's doctests, many and short, come last and fill both processes to the end
    ("pytest", "-n", "2", "--dist", "loadfile", "--no-loadscope-reorder"),
)


def main() -> int:
    """Run all commands, also after a failure, and return the number that failed.

    The processes of one run share what JAX compiles; nothing of it is kept for the next.
    """
    root = Path(__file__).parents[1]
    failed = []
    with tempfile.TemporaryDirectory() as programs:
        shared = {"JAX_COMPILATION_CACHE_DIR": programs, "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0.3"}
        for command in COMMANDS:
            arguments = [*command, *sys.argv[1:]] if command[0] == "pytest" else list(command)
            print(f"$ {' '.join(arguments)}", flush=True)
            environment = os.environ | shared
            done = subprocess.run([sys.executable, "-m", *arguments], cwd=root, check=False, env=environment)
            if done.returncode:
                failed.append(command[0])
    print(f"failed: {', '.join(failed)}" if failed else "all checks passed", flush=True)
    return len(failed)


if __name__ == "__main__":
    sys.exit(main())
