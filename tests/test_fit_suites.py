"""Many suites fitted in one call: what is planned, what is skipped, what a failure leaves standing, exit codes."""

import contextlib
import importlib
import io
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest

from bayes_irt import Priors, compare_rankings, rank_llms, simulate_suite
from bayes_irt.errors import NumericalError
from bayes_irt.model_spec import ModelSpec
from bayes_irt.priors import LogNormal
from bayes_irt.responses import Responses
from bayes_irt.runs import Run

SCRIPTS = Path(__file__).parents[1] / "scripts"
BROKEN = "model,q1,q2\na,1,7\nb,x,1\n"


@pytest.fixture(scope="module")
def scripts():
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(SCRIPTS)
        names = ("fit_suites", "suite_plans", "suite_summary")
        yield SimpleNamespace(**{name: importlib.import_module(name) for name in names})


def call(main, *arguments):
    """Exit code, output and errors of a script."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = main([str(argument) for argument in arguments])
    return SimpleNamespace(code=code, out=out.getvalue(), err=err.getvalue())


def write_table(path, responses):
    frame = pd.DataFrame(np.asarray(responses.successes), columns=list(responses.items))
    frame.insert(0, "model", list(responses.llms))
    frame.to_csv(path, index=False)


def summary_of(folder):
    return pd.read_csv(folder / "summary.csv").set_index("suite")


@pytest.fixture(scope="module")
def tables(tmp_path_factory):
    """Two suites of one shape, one with a companion that describes its items, and a broken file."""
    folder = tmp_path_factory.mktemp("tables")
    for seed, name in enumerate(("first", "second")):
        write_table(folder / f"{name}.csv", simulate_suite(8, 20, seed=seed + 1).responses)
    items = list(simulate_suite(8, 20).responses.items)
    pd.DataFrame({"item": items, "level": 1}).to_csv(folder / "second_items.csv", index=False)
    (folder / "broken.csv").write_text(BROKEN)
    return folder


@pytest.fixture(scope="module")
def fitted(scripts, tables, tmp_path_factory):
    """The folder of the runs, and what the script said."""
    output = tmp_path_factory.mktemp("fitted") / "runs"
    return output, call(scripts.fit_suites.main, tables, "-o", output)


@pytest.fixture
def points(scripts, tmp_path):
    """Two suites fitted by cBMM, as folder of tables and folder of runs."""
    folder, output = tmp_path / "tables", tmp_path / "runs"
    folder.mkdir()
    for seed, name in enumerate(("one", "two")):
        write_table(folder / f"{name}.csv", simulate_suite(8, 20, seed=seed + 1).responses)
    assert call(scripts.fit_suites.main, folder, "-o", output, "--method", "cbmm").code == 0
    return folder, output


def forbid_fits(scripts, monkeypatch):
    def fit_run(*_, **__):
        raise TypeError("nothing may be fitted")

    monkeypatch.setattr(scripts.fit_suites, "fit_run", fit_run)


def test_one_broken_file_does_not_stop_the_others(fitted):
    output, said = fitted
    assert said.code == 3
    assert sorted(path.name for path in output.iterdir()) == ["first", "second", "summary.csv", "summary.md"]
    table = summary_of(output)
    assert table["status"].to_dict() == {"broken": "failed", "first": "fitted", "second": "fitted"}
    assert "broken.csv: 'x' for LLM 'b'" in table.loc["broken", "message"]
    assert pd.isna(table.loc["broken", "num_llms"])
    text = (output / "summary.md").read_text()
    assert "3 suites: 2 fitted, 1 failed; 0 did not converge." in text
    assert "- broken: " in text
    assert text in said.out
    assert "first: Warning: Laplace, 8 LLMs: below 25" in said.err
    assert "level" in Run.load(output / "second").responses.item_metadata


def test_the_summary_holds_what_the_runs_say(fitted):
    output, _ = fitted
    for name in ("first", "second"):
        run, row = Run.load(output / name), summary_of(output).loc[name]
        board = rank_llms(run.posterior, run.estimate, run.responses)
        compared = compare_rankings(run.posterior, run.estimate, run.responses)
        assert (row["num_llms"], row["num_items"], row["method"]) == (8, 20, "laplace")
        assert row["converged"] == run.converged
        assert row["seconds"] > 0
        assert row["first_llm"] == board.table.index[0]
        assert row["p_best"] == pytest.approx(board.table["p_best"].iloc[0])
        assert row["first_tie_group"] == (board.table["tie_group"] == 1).sum()
        assert row["reliability"] == pytest.approx(board.reliability)
        assert row["cv"] == pytest.approx(compared.heterogeneity.loc["posterior", "cv"])
        tau = compared.agreement["kendall_tau"].tolist()
        assert row[["kendall_accuracy_cbmm", "kendall_accuracy_posterior"]].tolist() == pytest.approx(tau[:2])
        saved = pd.read_csv(output / name / "leaderboard.csv", index_col="llm")
        assert saved.index.tolist() == board.table.index.tolist()
        pd.testing.assert_frame_equal(saved.set_axis(board.table.index), board.table, check_dtype=False)


def test_what_is_done_is_not_fitted_again(scripts, tables, fitted, monkeypatch):
    output, _ = fitted
    before = summary_of(output)
    forbid_fits(scripts, monkeypatch)
    assert call(scripts.fit_suites.main, tables, "-o", output, "--force").code == 3  # the broken one
    after = summary_of(output)
    assert after["status"].to_dict() == {"broken": "failed", "first": "skipped", "second": "skipped"}
    pd.testing.assert_frame_equal(before.drop(columns="status"), after.drop(columns="status"))


def test_all_fine_is_exit_0_again_when_skipped(scripts, points, monkeypatch):
    folder, output = points
    table = summary_of(output)
    assert table["first_llm"].notna().all()
    assert table[["cv", "kendall_accuracy_cbmm"]].notna().all(axis=None)
    assert table[["p_best", "reliability", "kendall_accuracy_posterior"]].isna().all(axis=None)
    forbid_fits(scripts, monkeypatch)
    said = call(scripts.fit_suites.main, folder, "-o", output, "--method", "cbmm")
    assert (said.code, summary_of(output)["status"].tolist()) == (0, ["skipped", "skipped"])
    assert "| reliability |" not in said.out


CHANGES = {
    "num_draws": ({"num_draws": 500}, "differs in num_draws"),
    "seed": ({"seed": 1}, "differs in seed"),
    "discrimination": ({"spec": ModelSpec(Priors(discrimination=LogNormal()))}, "differs in spec"),
    "method": ({"method": "svi"}, "was fitted by laplace, not by svi"),
    "penalty": ({"penalise": False}, "differs in penalty"),
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_run_with_other_options_is_not_the_one_planned(scripts, tables, fitted, change):
    output, _ = fitted
    plan = next(plan for plan in scripts.suite_plans.plans_of_folder(tables, {}) if plan.name == "first")
    options, reason = CHANGES[change]
    found, why = scripts.fit_suites._done(output / "first", plan.read(), replace(plan.fit, **options))
    assert found is None
    assert reason in why
    found, why = scripts.fit_suites._done(output / "first", plan.read(), plan.fit)
    assert (found.method, why) == ("laplace", "")


def test_related_llms_must_be_the_same_too(scripts):
    responses = simulate_suite(8, 20).responses
    grouped = [
        Responses(responses.dataset.assign_coords(family=("llm", list(names))))
        for names in ("aabbccdd", "aaaaccdd")
    ]
    first, second, without = (one.llm_metadata for one in (*grouped, responses))
    same = scripts.fit_suites._same
    assert same("family", first, first)
    assert not same("family", first, second)
    assert not same("family", first, without)


def test_a_run_of_other_data_is_kept_unless_forced(scripts, points):
    folder, output = points
    old = Run.load(output / "one").responses.digest
    write_table(folder / "one.csv", simulate_suite(8, 20, seed=9).responses)
    said = call(scripts.fit_suites.main, folder, "-o", output, "--method", "cbmm")
    assert said.code == 3
    assert (
        "about other LLMs, items or outcomes than its source holds now. Replace it with --force" in said.err
    )
    assert summary_of(output)["status"].tolist() == ["failed", "skipped"]
    assert Run.load(output / "one").responses.digest == old
    said = call(scripts.fit_suites.main, folder, "-o", output, "--method", "cbmm", "--force")
    assert (said.code, summary_of(output)["status"].tolist()) == (0, ["fitted", "skipped"])
    assert "one: fitted again. The run in" in said.err
    assert Run.load(output / "one").responses.digest != old


@pytest.mark.parametrize("part", ["responses.nc", "run.json", "estimate/estimate.nc"])
def test_a_damaged_run_is_named_and_replaced_only_with_force(scripts, points, part):
    folder, output = points
    damaged = next((output / "two").rglob(Path(part).name))
    damaged.write_bytes(damaged.read_bytes()[:100])
    said = call(scripts.fit_suites.main, folder, "-o", output, "--method", "cbmm")
    assert said.code == 3
    assert "two holds no run that can be read" in said.err


def test_a_folder_that_holds_no_run_is_left_alone_even_with_force(scripts, points):
    folder, output = points
    write_table(folder / "three.csv", simulate_suite(8, 20, seed=3).responses)
    (output / "three").mkdir()
    (output / "three" / "thesis.tex").write_text("precious")
    said = call(scripts.fit_suites.main, folder, "-o", output, "--method", "cbmm", "--force")
    assert (said.code, "'three' is not a result directory" in said.err.replace(str(output) + "/", "")) == (
        3,
        True,
    )
    assert (output / "three" / "thesis.tex").read_text() == "precious"


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (NumericalError("The loss became nan."), "The loss became nan."),
        (MemoryError("80 GiB"), "MemoryError: 80 GiB"),
    ],
)
def test_a_fit_that_fails_does_not_stop_the_others(scripts, tables, tmp_path, monkeypatch, error, text):
    real = scripts.fit_suites.fit_run
    seen = []

    def fit_run(responses, plan, source, *, say, progress):
        seen.append(summary_of(tmp_path)["status"].tolist())
        if "first" in source:
            raise error
        return real(responses, plan, source, say=say, progress=progress)

    monkeypatch.setattr(scripts.fit_suites, "fit_run", fit_run)
    said = call(scripts.fit_suites.main, tables, "-o", tmp_path, "--method", "cbmm")
    assert said.code == 3
    assert seen == [["failed", "waiting", "waiting"], ["failed", "failed", "waiting"]]
    assert summary_of(tmp_path).loc["first", "message"] == text
    assert Run.load(tmp_path / "second").method == "cbmm"
    assert not (tmp_path / "first").exists()


def test_an_error_of_the_program_ends_it(scripts, tables, tmp_path, monkeypatch):
    forbid_fits(scripts, monkeypatch)
    with pytest.raises(TypeError, match="nothing may be fitted"):
        call(scripts.fit_suites.main, tables, "-o", tmp_path)


def test_too_few_llms_are_a_failure_of_their_suite(scripts, tmp_path):
    write_table(tmp_path / "pair.csv", simulate_suite(2, 20).responses)
    said = call(scripts.fit_suites.main, tmp_path, "-o", tmp_path / "runs")
    assert said.code == 3
    assert "pair: failed. " in said.err
    assert "at least 4" in said.err


def test_an_unconverged_fit_is_exit_3_also_when_skipped(scripts, points, monkeypatch):
    folder, output = points
    real = scripts.fit_suites.fit_run
    monkeypatch.setattr(
        scripts.fit_suites, "fit_run", lambda *given, **named: replace(real(*given, **named), converged=False)
    )
    write_table(folder / "three.csv", simulate_suite(8, 20, seed=3).responses)
    for status in ("fitted", "skipped"):
        said = call(scripts.fit_suites.main, folder, "-o", output, "--method", "cbmm")
        assert said.code == 3
        assert f"three: {status}, NOT converged" in said.err
        assert "1 did not converge" in said.out


TOML = """
[defaults]
seed = 7
discrimination = "log-normal"
warmup = 300
drop_empty = true

[suites.math500]
dataset = "math500"

[suites.own]
path = "results.csv"
method = "nuts"
seed = 8
draws = 400
target_accept = 0.9
columns = { llm = "who", ignore = ["date"] }
"""


def test_a_file_states_each_suite_on_top_of_the_defaults(scripts, tmp_path):
    path = tmp_path / "suites.toml"
    path.write_text(TOML)
    named, own = scripts.suite_plans.plans_of_file(path)
    assert (named.name, named.source, named.path, named.drop_empty) == ("math500", "math500", None, False)
    assert (named.fit.method, named.fit.seed, named.fit.sampler) == ("laplace", 7, None)
    assert own.fit.spec == named.fit.spec == ModelSpec(Priors(discrimination=LogNormal()))
    sampler = own.fit.sampler
    assert (own.fit.method, own.fit.seed, own.drop_empty) == ("nuts", 8, True)
    assert (sampler.num_warmup, sampler.num_draws, sampler.target_accept) == (300, 400, 0.9)
    (tmp_path / "results.csv").write_text("date,who,q1,q2\nmay,a,1,0\njune,b,0,1\n")
    assert own.read().llms == ("a", "b")
    assert own.read().items == ("q1", "q2")


BAD = {
    "no TOML": ("[suites", "cannot be read as TOML"),
    "no suite": ("[defaults]\nseed = 1", "names no suite"),
    "unknown table": ("[suite.a]\npath = 'a.csv'", "unknown key 'suite'; did you mean 'suites'?"),
    "unknown key": (
        "[suites.a]\npath = 'a.csv'\nmetod = 'nuts'",
        "[suites.a] of {path} has the unknown key 'metod'; did you mean 'method', 'model'?",
    ),
    "unknown default": ("[defaults]\nsede = 1\n[suites.a]\npath = 'a.csv'", "'sede'; did you mean 'seed'?"),
    "unknown column": (
        "[suites.a]\npath = 'a.csv'\ncolumns = {scor = 'x'}",
        "columns has the unknown key 'scor'; did you mean 'score'?",
    ),
    "unknown method": ("[suites.a]\npath = 'a.csv'\nmethod = 'mcmc'", "'mcmc'; it must be one of 'cbmm', "),
    "unknown dataset": ("[suites.a]\ndataset = 'math50'", "math500"),
    "no source": ("[suites.a]\nseed = 1", "either a path, or the dataset's name"),
    "two sources": ("[suites.a]\npath = 'a.csv'\ndataset = 'math500'", "either a path, or"),
    "reading a dataset": (
        "[suites.a]\ndataset = 'math500'\ndrop_empty = true",
        "'drop_empty' say how a file is read",
    ),
    "wrong type": ("[suites.a]\npath = 'a.csv'\nseed = 'one'", "seed is 'one'; it must be a whole number"),
    "truth value": ("[suites.a]\npath = 'a.csv'\nseed = true", "seed is True; it must be a whole number"),
    "a table wanted": ("[suites]\na = 'a.csv'", "[suites.a] of {path} is 'a.csv'; it must be a table."),
    "idle": (
        "[suites.a]\npath = 'a.csv'\nwarmup = 500",
        "warmup is for method nuts; with laplace it would do nothing",
    ),
    "idle default": ("[defaults]\nwarmup = 500\n[suites.a]\npath = 'a.csv'", "'warmup' would do nothing"),
    "no penalty": ("[suites.a]\npath = 'a.csv'\npenalty = false", "penalty is for method cbmm"),
    "layout": ("[suites.a]\npath = 'a.csv'\ncolumns = {layout = 'tall'}", "must be 'long' or 'wide'"),
    "path as name": ("[suites.'../a']\npath = 'a.csv'", "'../a' cannot be that of a directory"),
    "the summary's name": ("[suites.'summary.csv']\npath = 'a.csv'", "cannot be that of a directory"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_configurations_are_refused_before_anything_is_done(scripts, tmp_path, case):
    content, wanted = BAD[case]
    path = tmp_path / "suites.toml"
    path.write_text(content)
    said = call(scripts.fit_suites.main, path, "-o", tmp_path / "runs")
    assert said.code == 2
    assert wanted.format(path=path) in said.err
    assert not (tmp_path / "runs").exists()


def test_a_file_says_itself_what_is_fitted(scripts, tmp_path):
    path = tmp_path / "suites.toml"
    path.write_text("[suites.a]\npath = 'a.csv'")
    said = call(scripts.fit_suites.main, path, "-o", tmp_path / "runs", "--method", "nuts")
    assert (said.code, "--method is for a folder" in said.err) == (2, True)
    assert call(scripts.fit_suites.main, tmp_path / "absent", "-o", tmp_path / "runs").code == 2


def test_companions_are_no_suites_unless_they_stand_alone(scripts, tmp_path):
    for name in (
        "a.csv",
        "a_items.csv",
        "a_models.tsv",
        "hard_items.csv",
        ".hidden.csv",
        "notes.txt",
        "b.csv.gz",
    ):
        (tmp_path / name).write_text("")
    assert [plan.name for plan in scripts.suite_plans.plans_of_folder(tmp_path, {})] == [
        "a",
        "b",
        "hard_items",
    ]
    (tmp_path / "a.parquet").write_text("")
    said = call(scripts.fit_suites.main, tmp_path, "-o", tmp_path / "runs")
    assert (said.code, "are called 'a' but for their ending" in said.err) == (2, True)


def test_a_folder_without_tables_is_bad_configuration(scripts, tmp_path):
    said = call(scripts.fit_suites.main, tmp_path, "-o", tmp_path / "runs")
    assert (said.code, "holds no table of responses" in said.err) == (2, True)
    said = call(scripts.fit_suites.main, tmp_path, "-o", tmp_path / "runs", "--seed", "-1")
    assert (said.code, "seed is -1" in said.err) == (2, True)
