"""Run everything that a change must pass: lint, format, types, tests and doctests.

``uv run python scripts/check.py`` is what the continuous integration runs. Arguments are handed to pytest.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

COMMANDS = (
    ("ruff", "check", "."),
    ("ruff", "format", "--check", "."),
    ("mypy",),
    # in two processes: one would run out of memory maps for compiled programs, and of time
    ("pytest", "-n", "2", "--dist", "loadfile"),
)


def main() -> int:
    """Run all commands, also after a failure, and return the number that failed."""
    root = Path(__file__).parents[1]
    failed = []
    for command in COMMANDS:
        arguments = [*command, *sys.argv[1:]] if command[0] == "pytest" else list(command)
        print(f"$ {' '.join(arguments)}", flush=True)
        if subprocess.run([sys.executable, "-m", *arguments], cwd=root, check=False).returncode:
            failed.append(command[0])
    print(f"failed: {', '.join(failed)}" if failed else "all checks passed", flush=True)
    return len(failed)


if __name__ == "__main__":
    sys.exit(main())
