"""Every script on a tiny budget."""

import runpy
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest

SCRIPTS = Path(__file__).parents[1] / "scripts"
HEAVY = {"check.py"}  # runs the tests themselves
HELPERS = {"devices.py", "rivals.py", "rival_girth.py", "benchmark_point.py", "suites.py"}

BUDGETS = {
    "benchmark.py": (("point", "--most-cells", "7e4", "--limit", "3"), "times faster"),
    "calibration.py": (
        ("--engine", "laplace", "--suites", "2", "--cases", "8 x 40", "--out", "{folder}"),
        "| 8 x 40 | laplace | 2 |",
    ),
    "engines.py": (("large", "--items", "20", "--engines", "laplace", "trajectory"), "95 % intervals hold"),
    "stability.py": (("--most-cells", "2.5e1"), " 0 with a fault"),
}


def test_no_script_is_forgotten():
    names = {path.name for path in SCRIPTS.glob("*.py")}
    assert names == {*BUDGETS, *HEAVY, *HELPERS, "held_out.py", "reference_fits.py"}


@pytest.mark.parametrize("name", BUDGETS)
def test_scripts_run(name, tmp_path):
    arguments, wanted = BUDGETS[name]
    filled = [argument.format(folder=tmp_path) for argument in arguments]
    run = subprocess.run(
        [sys.executable, SCRIPTS / name, *filled], capture_output=True, text=True, check=False
    )
    assert run.returncode == 0, run.stderr
    assert wanted in run.stdout


def test_held_out_cells_of_a_real_suite_are_scored(data_dir):
    budget = ["--suites", "math500_paper", "--method", "laplace", "--llms", "16", "--items", "30"]
    run = subprocess.run(
        [sys.executable, SCRIPTS / "held_out.py", *budget, "--draws", "50"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stderr
    assert "math500_paper, 16 x 30" in run.stdout
    for row in ("laplace", "cbmm", "additive logit", "row mean"):
        assert f"| {row} | -0." in run.stdout
    assert "has the best log score" in run.stdout


@pytest.fixture(scope="module")
def calibration():
    """The names of the script, without its changes of JAX's devices and of the path."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XLA_FLAGS", "--xla_force_host_platform_device_count=1")
        patch.syspath_prepend(SCRIPTS)
        return runpy.run_path(str(SCRIPTS / "calibration.py"), run_name="calibration")


def made_up_tests(case, value, passed, control_passed):
    """The tests of one case as the script stores them."""
    rows = [
        {
            "control": control,
            "kind": kind,
            "statistic": "mean_square",
            "value": value,
            "expected": 1.0,
            "error": 0.05,
        }
        | {"t": 0.0, "p_value": 0.5, "limit": 0.001, "passed": fine, "datasets": 50}
        for control, fine in (("no", passed), ("yes", control_passed))
        for kind in ("ability", "easiness_scale")
    ]
    return pd.DataFrame(rows).assign(case=case, engine="toy")


def test_calibration_is_shown_failures_and_blind_controls_included(calibration):
    tables = [made_up_tests("good", 1.01, True, False), made_up_tests("bad", 1.4, False, False)]
    tables.append(made_up_tests("blind", 1.0, True, True))
    lines = calibration["sbc_markdown"](pd.concat(tables)).splitlines()
    assert lines[0] == "| case | engine | data sets | expected | ability | easiness scale | control |"
    assert lines[2] == "| good | toy | 50 | 1.00 | 1.01 ± 0.05 | 1.01 ± 0.05 | fails |"
    assert lines[3] == "| bad | toy | 50 | 1.00 | **1.40 ± 0.05** | **1.40 ± 0.05** | fails |"
    assert lines[4].endswith("| PASSES |")


def test_a_case_run_again_replaces_what_was_there(calibration, tmp_path):
    path = tmp_path / "sbc.csv"
    for case, value in (("a", 1.0), ("b", 1.1), ("a", 1.2)):
        table = calibration["stored"](path, made_up_tests(case, value, True, False))
    assert table.groupby("case")["value"].unique().map(list).to_dict() == {"a": [1.2], "b": [1.1]}
    pd.testing.assert_frame_equal(pd.read_csv(path), table)
