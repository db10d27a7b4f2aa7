"""Every script on a tiny budget."""

import json
import runpy
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from bayes_irt import simulate_suite

SCRIPTS = Path(__file__).parents[1] / "scripts"
HEAVY = {"check.py"}  # runs the tests themselves
HELPERS = {
    *("devices.py", "suites.py", "benchmark_point.py", "rivals.py", "rival_girth.py"),
    *("benchmark_nuts.py", "benchmark_nuts_program.py", "benchmark_draws.py", "benchmark_fit_nuts.py"),
    *("rival_textbook.py", "rival_dynamirt.py", "rival_pymc.py"),
    *("suite_plans.py", "suite_summary.py"),
}
ON_DATA = {"held_out.py", "reference_fits.py", "fit_suites.py", "compare_rankings.py", "run_notebooks.py"}

BUDGETS = {
    "benchmark.py": (("point", "--most-cells", "7e4", "--limit", "3"), "times faster"),
    "calibration.py": (
        ("--engine", "laplace", "--suites", "2", "--cases", "8 x 40", "--out", "{folder}"),
        "| 8 x 40 | laplace | 2 |",
    ),
    "engines.py": (("large", "--items", "20", "--engines", "laplace", "trajectory"), "95 % intervals hold"),
    "likelihoods.py": (
        ("repeats", "--llms", "6", "--suites", "2"),
        "| 6 | laplace | beta-binomial | 2 |",
    ),
    "traits.py": (
        (
            "recover",
            "--suites",
            "2",
            "--llms",
            "12",
            "--traits",
            "2",
            "--items",
            "10",
            "--warmup",
            "50",
            "--draws",
            "50",
        ),
        "90 % intervals of abilities hold",
    ),
    "stability.py": (("--most-cells", "2.5e1"), " 0 with a fault"),
}


def test_no_script_is_forgotten():
    names = {path.name for path in SCRIPTS.glob("*.py")}
    assert names == {*BUDGETS, *HEAVY, *HELPERS, *ON_DATA}


@pytest.mark.parametrize("name", BUDGETS)
def test_scripts_run(name, tmp_path):
    arguments, wanted = BUDGETS[name]
    filled = [argument.format(folder=tmp_path) for argument in arguments]
    run = subprocess.run(
        [sys.executable, SCRIPTS / name, *filled], capture_output=True, text=True, check=False
    )
    assert run.returncode == 0, run.stderr
    assert wanted in run.stdout


def nuts_benchmark(*arguments):
    """What the script printed."""
    command = [sys.executable, SCRIPTS / "benchmark.py", "nuts", "--suite", "8x20", *arguments]
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    return run.stdout


def test_samplers_are_compared_and_those_not_installed_are_named(tmp_path):
    path = tmp_path / "lines.json"
    shown = nuts_benchmark("--warmup", "20", "--draws", "20", "--json", path)
    found = {line["program"]: line for line in map(json.loads, path.read_text().splitlines())}
    assert list(found) == ["bayes_irt", "textbook", "dynamirt", "pymc"]
    for name, line in found.items():
        if name in ("dynamirt", "pymc") and find_spec(name) is None:
            assert line["status"] == "not installed"
            continue
        assert (line["status"], line["size"]) == ("finished", [8, 20])
        assert 0 < line["compiling"] < line["seconds"]
        rate = line["ess_gauged"] / (line["seconds"] - line["compiling"])
        assert line["ess_gauged_per_s_compiled"] == pytest.approx(rate)
    assert shown.count("| textbook NumPyro |") == 2  # in the table and among the ratios
    assert ("not installed (No module named 'dynamirt')" in shown) == (find_spec("dynamirt") is None)


def test_another_sampler_is_stopped_at_the_end_of_its_time():
    shown = nuts_benchmark("--programs", "textbook", "--limit", "0.2")
    assert "| textbook NumPyro | stopped after 0.2 s |" in shown


def test_mirrored_draws_are_turned_round(monkeypatch):
    monkeypatch.syspath_prepend(SCRIPTS)
    draws_of = runpy.run_path(str(SCRIPTS / "benchmark_draws.py"))["Draws"]
    ability, slopes = np.arange(6.0).reshape(1, 2, 3) ** 2, np.ones((1, 2, 5))
    mirror = np.array([1.0, -1.0])[None, :, None]
    fixed = draws_of(ability, slopes, 0.0).gauge_fixed()
    np.testing.assert_allclose(fixed.mean(axis=-1), 0, atol=1e-12)
    np.testing.assert_allclose(fixed.std(axis=-1), 1)
    np.testing.assert_allclose(draws_of(3 * mirror * ability + 7, mirror * slopes, 0.0).gauge_fixed(), fixed)


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


def test_suites_are_fitted_one_after_the_other_and_compared(tmp_path):
    tables, runs, compared = (tmp_path / name for name in ("tables", "runs", "compared"))
    tables.mkdir()
    for name in ("one", "two"):
        responses = simulate_suite(8, 20, seed=ord(name[0])).responses
        frame = pd.DataFrame(np.asarray(responses.successes), columns=list(responses.items))
        frame.set_axis(list(responses.llms)).to_csv(tables / f"{name}.csv", index_label="model")
    (tables / "broken.csv").write_text("model,q1\na,right\n")
    command = [sys.executable, SCRIPTS / "fit_suites.py", tables, "--output", runs, "--method", "laplace"]
    fitted = subprocess.run(command, capture_output=True, text=True, check=False)
    assert fitted.returncode == 3, fitted.stderr
    assert "3 suites: 2 fitted, 1 failed; 0 did not converge." in fitted.stdout
    command = [sys.executable, SCRIPTS / "compare_rankings.py", runs, "--output", compared]
    made = subprocess.run(command, capture_output=True, text=True, check=False)
    assert made.returncode == 0, made.stderr
    assert pd.read_csv(compared / "suites.csv")["suite"].tolist() == ["one", "two"]


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
