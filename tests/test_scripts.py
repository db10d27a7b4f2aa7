"""Every script on a tiny budget."""

import subprocess
import sys
from pathlib import Path

import pytest

SCRIPTS = Path(__file__).parents[1] / "scripts"
HEAVY = {"check.py"}  # runs the tests themselves
HELPERS = {"devices.py", "rivals.py", "rival_girth.py", "benchmark_point.py", "suites.py"}

BUDGETS = {
    "benchmark.py": (("point", "--most-cells", "7e4", "--limit", "3"), "times faster"),
    "stability.py": (("--most-cells", "2.5e1"), " 0 with a fault"),
}


def test_no_script_is_forgotten():
    names = {path.name for path in SCRIPTS.glob("*.py")}
    assert names == {*BUDGETS, *HEAVY, *HELPERS, "coverage.py", "reference_fits.py"}


@pytest.mark.parametrize("name", BUDGETS)
def test_scripts_run(name):
    arguments, wanted = BUDGETS[name]
    run = subprocess.run(
        [sys.executable, SCRIPTS / name, *arguments], capture_output=True, text=True, check=False
    )
    assert run.returncode == 0, run.stderr
    assert wanted in run.stdout
