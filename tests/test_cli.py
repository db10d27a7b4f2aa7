"""The command line: what goes to which stream, exit codes, and run directories that appear whole or not at all.

Calls go through `main`, in this process where that is enough.
"""

import contextlib
import csv
import io
import json
import re
import shutil
import subprocess
import sys
import warnings
from pathlib import Path
from typing import NamedTuple

import jax  # noqa: F401  loaded first, the command line leaves the devices of this process as they are
import numpy as np
import pandas as pd
import pytest
from test_bad_input import FILES

from bayes_irt import cli, fitting, runs
from bayes_irt.errors import NumericalError
from bayes_irt.readers import read_responses
from bayes_irt.runs import Run
from bayes_irt.simulate import simulate_suite

NUTS = ("--method", "nuts", "--chains", "2", "--warmup", "100", "--draws", "100")
CBMM = ("--method", "cbmm")
FORMATS = ("table", "csv", "json", "markdown")
ODD_NAMES = ("[bold]x[/bold]", "a|b", "<script>", "модель ß", 'a, "b"', "[/]")


class Outcome(NamedTuple):
    code: int
    out: str
    err: str


def call(*arguments, warn=False):
    """Call the command line as a shell would."""
    out, err, argv, code = io.StringIO(), io.StringIO(), sys.argv, 0
    sys.argv = ["bayes-irt", *map(str, arguments)]
    # `main` sets how warnings are shown; leaving the context restores it
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err), warnings.catch_warnings():
        if warn:
            warnings.simplefilter("default")
        try:
            cli.main()
        except SystemExit as stop:
            code = stop.code or 0
        finally:
            sys.argv = argv
    return Outcome(code, out.getvalue(), err.getvalue())


def write_wide(path, responses, llms=None):
    scores = np.where(responses.attempts > 0, responses.successes, np.nan)
    frame = pd.DataFrame(scores, columns=list(responses.items))
    frame.insert(0, "model", list(llms or responses.llms))
    frame.to_csv(path, index=False)
    return path


@pytest.fixture
def table(tmp_path):
    return write_wide(tmp_path / "results.csv", simulate_suite(6, 20).responses, ODD_NAMES)


def snapshot(folder):
    return {path.relative_to(folder): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def labels(outcome, shape):
    """Return the LLMs on a board, in its order."""
    if shape == "csv":
        return [row["llm"] for row in csv.DictReader(io.StringIO(outcome.out))]
    if shape == "json":
        read = json.loads(outcome.out)
        return [row["llm"] for row in (read["llms"] if isinstance(read, dict) else read)]
    text = re.sub(r"\\(.)", r"\1", outcome.out).replace("&lt;", "<")
    return sorted((name for name in ODD_NAMES if name in text), key=text.index)


# Point estimates: every format, streams, run directories


@pytest.mark.parametrize("shape", FORMATS)
def test_a_point_estimate_in_every_format(table, tmp_path, shape):
    fitted = call("fit", table, *CBMM, "-o", tmp_path / "run", "--format", shape)
    assert fitted.code == 0
    found = labels(fitted, shape)
    assert sorted(found) == sorted(ODD_NAMES)
    assert "Wrote" in fitted.err
    assert "no error bars" in fitted.err
    for words in ("Wrote", "error bars", "converged", "Responses:"):
        assert words not in fitted.out
    assert call("rank", tmp_path / "run", "--format", shape).out == fitted.out
    board = pd.read_csv(tmp_path / "run/leaderboard.csv", dtype={"llm": str})
    assert board["llm"].tolist() == found
    assert sorted(path.name for path in tmp_path.iterdir()) == ["results.csv", "run"]


def test_the_paper_s_objective_on_request(table, tmp_path):
    call("fit", table, *CBMM, "-o", tmp_path / "penalised")
    fitted = call("fit", table, *CBMM, "--no-penalty", "-o", tmp_path / "plain", warn=True)
    assert fitted.code in (0, 3)
    one, two = (Run.load(tmp_path / name).estimate for name in ("penalised", "plain"))
    assert one.loss != two.loss
    assert two.provenance.configuration["solver"]["algorithm"] == "paper"
    assert two.provenance.configuration["solver"]["stop"] == "relative loss"
    refused = call("fit", table, *NUTS, "--no-penalty", "-o", tmp_path / "nuts")
    assert refused.code == 2
    assert "--method cbmm" in refused.err
    assert not (tmp_path / "nuts").exists()


def test_algorithms_agree_and_several_starts_are_compared(table, tmp_path):
    newton = call("fit", table, *CBMM, "--starts", "3", "--seed", "5", "-o", tmp_path / "newton")
    paper = call("fit", table, *CBMM, "--algorithm", "paper", "-o", tmp_path / "paper")
    assert newton.code == paper.code == 0
    one, two = (Run.load(tmp_path / name).estimate for name in ("newton", "paper"))
    assert one.loss == pytest.approx(two.loss, rel=1e-6)
    assert one.dataset.sizes["start"] == 3
    assert one.provenance.configuration["solver"]["seed"] == 5
    assert two.provenance.configuration["solver"]["algorithm"] == "paper"
    refused = call("fit", table, *NUTS, "--starts", "3", "-o", tmp_path / "nuts")
    assert refused.code == 2
    assert "--method cbmm" in refused.err


def test_an_existing_run_is_kept_unless_forced(table, tmp_path):
    run = tmp_path / "run"
    assert call("fit", table, *CBMM, "-o", run).code == 0
    before = snapshot(tmp_path)
    for command in (("fit", table, *CBMM, "-o", run), ("demo", "-o", run)):
        refused = call(*command)
        assert refused.code == 2
        assert refused.out == ""
        assert "exists already" in refused.err
        assert "--force" in refused.err
        assert snapshot(tmp_path) == before
    (run / "leaderboard.csv").unlink()
    assert call("fit", table, *CBMM, "-o", run, "--force").code == 0
    assert set(snapshot(run)) == {path.relative_to("run") for path in before if path.parts[0] == "run"}


def test_force_replaces_no_other_directory_or_file(table, tmp_path):
    (tmp_path / "thesis").mkdir()
    (tmp_path / "thesis" / "chapter.tex").write_text("x")
    before = snapshot(tmp_path)
    for target in ("thesis", "results.csv"):
        refused = call("fit", table, *CBMM, "-o", tmp_path / target, "--force")
        assert refused.code == 2
        assert "not a result directory" in refused.err
    assert snapshot(tmp_path) == before


def test_an_output_below_a_file_is_refused_before_the_fit(table, tmp_path):
    refused = call("fit", table, *CBMM, "-o", table / "run")
    assert refused.code == 2
    assert "cannot be made" in refused.err
    assert "Responses:" not in refused.err


@pytest.mark.parametrize("where", ["write", "fit"])
def test_a_fit_that_fails_leaves_nothing(table, tmp_path, monkeypatch, where):
    def fail(*_, **__):
        raise NumericalError("It went wrong.")

    if where == "write":
        monkeypatch.setattr(runs.Run, "write", fail)
    else:
        monkeypatch.setattr(fitting, "fit_cbmm", fail)
    failed = call("fit", table, *CBMM, "-o", tmp_path / "run")
    assert failed.code == 2
    assert failed.out == ""
    assert "It went wrong." in failed.err
    assert [path.name for path in tmp_path.iterdir()] == ["results.csv"]


# Bad input


@pytest.mark.parametrize(("name", "content", "problem", "remedy"), FILES.values(), ids=FILES.keys())
def test_bad_input_is_refused(tmp_path, name, content, problem, remedy):
    path = tmp_path / name
    path.write_bytes(content)
    refused = call("fit", path, "-o", tmp_path / "run")
    assert refused.code == 2
    assert refused.out == ""
    assert refused.err.startswith("Error: ")
    assert "Traceback" not in refused.err
    assert problem in refused.err
    assert remedy in refused.err
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("fit", "absent.csv", "-o", "run"), "No such file"),
        (("fit", ".", "-o", "run"), "is a directory"),
        (("fit", "results.csv"), "--output"),
        (("fit", "results.csv", "-o", "run", "--chains", "1"), "--chains"),
        (("fit", "results.csv", "-o", "run", "--method", "magic"), "--method"),
        (("fit", "results.csv", "-o", "run", "--prob", "1.5"), "--prob"),
        (("fit", "results.csv", "-o", "run", "--ignore", "absent"), "no column 'absent'"),
        (("fit", "results.csv", "-o", "run", "--items", "absent.csv"), "absent.csv"),
        (("rank", "absent"), "no directory"),
        (("rank", "results.csv"), "no directory"),
        (("rank", "."), "result directory"),
        (("magic",), "magic"),
    ],
)
def test_bad_arguments_are_refused(table, monkeypatch, arguments, words):
    monkeypatch.chdir(table.parent)
    refused = call(*arguments)
    assert refused.code == 2
    assert refused.out == ""
    assert words in refused.err
    assert [path.name for path in table.parent.iterdir()] == ["results.csv"]


def test_what_is_dropped_on_request_is_named(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text("model,q1,q2,q3\na,,,\nb,0,1,\nc,1,1,\n")
    fitted = call("fit", path, *CBMM, "--drop-empty", "-o", tmp_path / "run", "--format", "csv", warn=True)
    assert fitted.code == 0
    assert "Warning: Left out 1 LLM without an answer: 'a'." in fitted.err
    assert sorted(labels(fitted, "csv")) == ["b", "c"]


def test_columns_are_named_with_commas_or_one_by_one(tmp_path):
    path = tmp_path / "t.csv"
    rows = [f"m{i},{size},x,note,{i % 2},{(i + 1) % 2},1" for i, size in enumerate([7, 70, 9, 3])]
    path.write_text("\n".join(["model,size,family,remark,q1,q2,q3", *rows]) + "\n")
    for number, options in enumerate(
        (
            ("--llm-columns", "size,family", "--ignore", "remark,q3"),
            ("--llm-columns", "size", "--llm-columns", "family", "--ignore", "remark", "--ignore", "q3"),
        )
    ):
        run = tmp_path / f"run{number}"
        assert call("fit", path, *CBMM, *options, "-o", run).code == 0
        responses = Run.load(run).responses
        assert responses.items == ("q1", "q2")
        assert set(responses.llm_metadata.columns) == {"size", "family"}


# Posteriors


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """Fit a suite once; return its folder and what the command said."""
    folder = tmp_path_factory.mktemp("finished")
    table = write_wide(folder / "results.csv", simulate_suite(6, 20).responses, ODD_NAMES)
    return folder, call("fit", table, *NUTS, "-o", folder / "run", "--format", "json")


def test_a_short_chain_is_written_and_marked(finished):
    """200 draws are too few: exit code 3, with the board and the run all the same."""
    folder, fitted = finished
    assert fitted.code == 3, fitted.err
    assert "did not converge" in fitted.err
    assert "ESS" in fitted.err
    read = json.loads(fitted.out)
    assert sorted(labels(fitted, "json")) == sorted(ODD_NAMES)
    assert read["prob"] == 0.9
    files = {path.name for path in (folder / "run").iterdir()}
    assert files == {
        "run.json",
        "responses.nc",
        "estimate",
        "posterior",
        "leaderboard.csv",
        "leaderboard.png",
    }
    described = json.loads((folder / "run/run.json").read_text())
    assert (described["method"], described["converged"]) == ("nuts", False)
    assert described["source"] == str(folder / "results.csv")
    run = Run.load(folder / "run")
    assert run.responses.digest == read_responses(folder / "results.csv").digest == described["data_digest"]
    assert run.posterior.num_draws == 200
    assert sorted(path.name for path in folder.iterdir()) == ["results.csv", "run"]


@pytest.mark.parametrize("shape", FORMATS)
def test_a_run_is_ranked_in_every_format(finished, shape):
    folder, fitted = finished
    before = snapshot(folder)
    ranked = call("rank", folder / "run", "--format", shape)
    assert ranked.code == 3
    assert labels(ranked, shape) == labels(fitted, "json")
    assert "did not converge" in ranked.err
    notes = json.loads(fitted.out)["notes"]
    where = ranked.out if shape in ("json", "markdown") else ranked.err
    read = json.loads(where)["notes"] if shape == "json" else notes
    assert read == notes
    assert shape == "json" or all(note in where for note in notes)
    if shape == "json":
        assert ranked.out == fitted.out
    if shape == "csv":
        stored = (folder / "run/leaderboard.csv").read_text(encoding="utf-8")
        assert ranked.out.splitlines() == stored.splitlines()
        assert next(csv.DictReader(io.StringIO(stored)))["position"] == "1"
    assert snapshot(folder) == before


def test_another_probability_gives_other_intervals(finished):
    folder, fitted = finished
    wide = json.loads(call("rank", folder / "run", "--format", "json", "--prob", "0.99").out)
    narrow = json.loads(fitted.out)
    assert wide["prob"] == 0.99
    assert all(
        a["ability_lower"] < b["ability_lower"] for a, b in zip(wide["llms"], narrow["llms"], strict=True)
    )
    assert "ability 99%" in call("rank", folder / "run", "--prob", "0.99").out


def damage(run, what):
    described = json.loads((run / "run.json").read_text())
    if what in described:
        del described[what]
        (run / "run.json").write_text(json.dumps(described))
    elif what == "other format":
        (run / "run.json").write_text(json.dumps({**described, "format": 99}))
    elif what == "other method":
        (run / "run.json").write_text(json.dumps({**described, "method": 7}))
    elif what == "no json":
        (run / "run.json").write_text("{")
    elif what == "a list":
        (run / "run.json").write_text("[]")
    elif what == "other data":
        simulate_suite(6, 20, seed=9).responses.save(run / "responses.nc", force=True)
    else:
        (run / what).unlink()


@pytest.mark.parametrize(
    "what",
    [
        "format",
        "method",
        "converged",
        "source",
        "other format",
        "other method",
        "no json",
        "a list",
        "other data",
        "run.json",
        "responses.nc",
        "posterior/posterior.nc",
        "posterior/posterior.json",
        "estimate/estimate.nc",
        "estimate/estimate.json",
    ],
)
def test_a_damaged_run_is_refused(finished, tmp_path, what):
    run = tmp_path / "run"
    shutil.copytree(finished[0] / "run", run)
    damage(run, what)
    refused = call("rank", run)
    assert refused.code == 2
    assert refused.out == ""
    assert refused.err.startswith("Error: ")
    assert run.name in refused.err


@pytest.mark.parametrize("number", [2, 3])
def test_few_llms_have_no_ability_but_ranks(tmp_path, number):
    table = write_wide(tmp_path / "t.csv", simulate_suite(number, 20, seed=2).responses)
    run = tmp_path / "run"
    fitted = call("fit", table, *NUTS, "-o", run)
    assert fitted.code == 3
    assert fitted.out.count("n/a") >= 3 * number
    assert "ability is not applicable" in fitted.err
    assert not (run / "leaderboard.png").exists()
    read = json.loads(call("rank", run, "--format", "json").out)
    for row in read["llms"]:
        assert row["ability"] is row["ability_lower"] is row["ability_upper"] is row["cbmm_ability"] is None
        assert 1 <= row["rank_lower"] <= row["rank_upper"] <= number
    assert sum(row["p_best"] for row in read["llms"]) == pytest.approx(1)


def test_few_llms_by_point_estimate(tmp_path):
    table = write_wide(tmp_path / "t.csv", simulate_suite(3, 20, seed=2).responses)
    run = tmp_path / "run"
    assert call("fit", table, *CBMM, "-o", run).code == 0
    for shape in ("table", "markdown"):
        shown = call("rank", run, "--format", shape)
        assert shown.out.count("n/a") == 3
        assert "nan" not in shown.out
    rows = json.loads(call("rank", run, "--format", "json").out)
    assert [row["cbmm_ability"] for row in rows] == [None] * 3
    assert all("nan" not in row for row in call("rank", run, "--format", "csv").out.splitlines())


# As processes


def process(*arguments, folder=None):
    script = shutil.which("bayes-irt", path=str(Path(sys.executable).parent))
    finished = subprocess.run(
        [script, *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=500,
        cwd=folder,
        encoding="utf-8",
    )
    return Outcome(finished.returncode, finished.stdout, finished.stderr)


def test_help_names_the_commands():
    shown = process("--help")
    assert shown.code == 0
    for command in ("demo", "fit", "rank"):
        assert command in shown.out
    assert process().code == 2


def test_a_process_returns_the_code_and_a_plain_message(tmp_path):
    refused = process("fit", "absent.csv", "-o", "run", folder=tmp_path)
    assert refused.code == 2
    assert refused.out == ""
    assert refused.err.startswith("Error: absent.csv cannot be read")
    assert list(tmp_path.iterdir()) == []


def test_the_demo_tells_how_many_truths_the_intervals_hold(tmp_path):
    shown = process("demo", "--chains", "2", "--warmup", "50", "--draws", "50", folder=tmp_path)
    assert shown.code == 3, shown.err
    line = next(line for line in shown.err.splitlines() if "true abilities" in line)
    inside = int(line.split(" hold ")[1].split()[0])
    assert line == f"The 90% intervals hold {inside} of 30 true abilities."
    assert inside >= 20  # 27 expected; below 20 has a probability under 1 in 10,000
    run = tmp_path / "demo-run"
    assert {"leaderboard.png", "leaderboard.csv", "run.json"} <= {path.name for path in run.iterdir()}
    assert (run / "leaderboard.png").stat().st_size > 10_000
    assert len(pd.read_csv(run / "leaderboard.csv")) == 30
    assert sum("llm-0" in row for row in shown.out.splitlines()) == 30
    assert "reliability" in shown.err
