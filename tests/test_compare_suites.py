"""Rankings compared across suites: tables and figures from made-up runs, what is left out, exit codes."""

import contextlib
import importlib
import io
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from matplotlib import pyplot as plt
from test_comparison import estimate_of, posterior_of, staircase

from bayes_irt import compare_rankings
from bayes_irt.analysis.heterogeneity import HeterogeneityRelation, relate_heterogeneity
from bayes_irt.runs import Run

SCRIPTS = Path(__file__).parents[1] / "scripts"
TOTALS = [30, 25, 20, 15, 10, 5]
SUITES = {"even": (1.0, TOTALS), "mixed": (2.0, [28, 30, 20, 15, 10, 5]), "uneven|odd": (4.0, TOTALS[::-1])}
PNG = b"\x89PNG"


@pytest.fixture(scope="module")
def script():
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(SCRIPTS)
        yield importlib.import_module("compare_rankings")


def call(script, *arguments):
    """Exit code and errors of the script."""
    err = io.StringIO()
    with contextlib.redirect_stderr(err):
        code = script.main([str(argument) for argument in arguments])
    return SimpleNamespace(code=code, err=err.getvalue())


def run_of(ratio, ability, *, converged=True, fitted=True):
    """A run of 6 LLMs whose later half of items discriminates so many times as strongly."""
    responses = staircase(TOTALS)
    slopes = np.repeat([1.0, ratio], responses.num_items // 2)
    posterior = posterior_of(responses, ability, 2.0, slopes=slopes)
    return Run(
        responses, estimate_of(responses, ability, slopes), posterior if fitted else None, converged, "x.csv"
    )


def write_runs(folder, runs):
    for name, run in runs.items():
        (folder / name).mkdir(parents=True)
        run.write(folder / name)
    return folder


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    return write_runs(
        tmp_path_factory.mktemp("runs"), {name: run_of(*given) for name, given in SUITES.items()}
    )


@pytest.fixture(scope="module")
def written(script, runs, tmp_path_factory):
    folder = tmp_path_factory.mktemp("compared")
    plt.close("all")  # what others left open
    assert call(script, runs, "-o", folder, "--prob", "0.8", "--movers", "2").code == 0
    assert not plt.get_fignums()
    return folder


def test_tables_hold_what_the_comparisons_say(runs, written):
    found = {}
    for name in SUITES:
        run = Run.load(runs / name)
        found[name] = compare_rankings(run.posterior, run.estimate, run.responses, prob=0.8)
    relation = relate_heterogeneity(found)
    for name, table in (("suites", relation.table), ("correlations", relation.correlations)):
        saved = pd.read_csv(written / f"{name}.csv", index_col=0)
        assert saved.index.tolist() == table.index.tolist()
        pd.testing.assert_frame_equal(saved.set_axis(table.index), table)
    for name in ("agreement", "rankings"):
        assert (
            pd.read_csv(written / f"{name}.csv")["suite"].value_counts().tolist()
            == [len(TOTALS) // (1 + (name == "agreement"))] * 3
        )
    rankings = pd.read_csv(written / "rankings.csv").set_index(["suite", "llm"])
    for name, one in found.items():
        assert rankings.loc[name, "posterior_rank"].to_dict() == one.table["posterior_rank"].to_dict()
    movers = pd.read_csv(written / "movers.csv")
    assert movers.groupby("suite")["llm"].count().to_dict() == {"mixed": 2, "uneven|odd": 2}
    items = pd.read_csv(written / "mover_items.csv")
    assert set(zip(items["suite"], items["llm"], strict=True)) <= set(
        zip(movers["suite"], movers["llm"], strict=True)
    )


def test_the_text_holds_sentences_tables_and_figures(written):
    text = (written / "comparison.md").read_text()
    assert (
        "By posterior, over 3 suites, more heterogeneity of discrimination goes with less agreement" in text
    )
    assert r"| even | 6 | 40 | 0.00 | 0.00 \[0.00, 0.00\] | 1.000 | 1.000 |" in text
    assert "| mixed | accuracy, cBMM | 0.867 |" in text
    assert "## uneven\\|odd" in text
    assert "Of 6 LLMs, 6 have their accuracy rank inside the 80% interval" in text
    assert text.count("places up, from accuracy rank 6 to posterior rank 1") == 1
    named = [part.split(")")[0].strip("<>") for part in text.split("](")[1:]]
    assert len(named) == 1 + 2 * len(SUITES)
    for name in named:
        assert (written / name).read_bytes().startswith(PNG)
    pictures = {path.name for path in written.glob("*.png")}
    assert pictures == set(named)


def test_one_run_is_enough(script, runs, tmp_path):
    assert call(script, runs / "even", "-o", tmp_path).code == 0
    assert (
        "it takes at least 3 suites that differ, and there are 1" in (tmp_path / "comparison.md").read_text()
    )
    assert pd.read_csv(tmp_path / "suites.csv")["suite"].tolist() == ["even"]


def test_no_mover_is_asked_for(script, runs, tmp_path):
    assert call(script, runs / "mixed", "-o", tmp_path, "--movers", "0").code == 0
    assert not (tmp_path / "movers.csv").exists()
    assert "Who moves" not in (tmp_path / "comparison.md").read_text()


def test_what_is_left_out_or_unsure_is_named_and_exit_3(script, runs, tmp_path):
    folder = write_runs(
        tmp_path / "runs",
        {
            "point": run_of(1.0, TOTALS, fitted=False),
            "loose": run_of(1.0, TOTALS, converged=False),
            "damaged": run_of(1.0, TOTALS),
        },
    )
    damaged = folder / "damaged" / "responses.nc"
    damaged.write_bytes(damaged.read_bytes()[:100])
    (folder / "notes").mkdir()
    said = call(script, folder, runs / "even", "-o", tmp_path / "compared")
    assert said.code == 3
    text = (tmp_path / "compared" / "comparison.md").read_text()
    for wanted in (
        "point: left out: a point estimate alone",
        "damaged: left out: ",
        "loose: its fit by nuts did not",
    ):
        assert wanted in said.err
        assert f"- {wanted}" in text
    assert pd.read_csv(tmp_path / "compared" / "suites.csv")["suite"].tolist() == ["loose", "even"]


def test_nothing_to_compare_is_exit_2(script, runs, tmp_path):
    folder = write_runs(tmp_path / "runs", {"even": run_of(1.0, TOTALS, fitted=False)})
    cases = {
        "is no run directory and holds none": [tmp_path / "absent"],
        "No run has a posterior": [folder],
        "are called alike": [folder, runs],
        "prob is 1.5": [runs, "--prob", "1.5"],
    }
    for wanted, arguments in cases.items():
        said = call(script, *arguments, "-o", tmp_path / "compared")
        assert (said.code, wanted in said.err) == (2, True), said.err
        assert not (tmp_path / "compared").exists()


@pytest.mark.parametrize("number", [1, 5, 30])
def test_every_suite_is_named_and_names_stand_apart(script, number):
    rng = np.random.default_rng(number)
    index = pd.Index([f"a_suite_with_a_long_name_{place:02d}" for place in range(number)], name="suite")
    tau = 0.9 + 0.01 * rng.random((number, 4))
    cv = 0.5 + 0.3 * rng.random(number)
    columns = {"cbmm_cv": cv + 0.1, "cv": cv, "cv_lower": cv - 0.05, "cv_upper": cv + 0.05}
    names = ("kendall_accuracy_cbmm", "kendall_accuracy_posterior", "kendall_lower", "kendall_upper")
    table = pd.DataFrame(columns | dict(zip(names, tau.T, strict=True)), index=index)
    figure = script.draw_heterogeneity(HeterogeneityRelation(table, pd.DataFrame()), 0.9)
    figure.draw_without_rendering()
    whole = figure.bbox
    for panel, across in zip(figure.axes, ("cbmm_cv", "cv"), strict=True):
        np.testing.assert_array_equal(panel.lines[0].get_xdata(), table[across])
        texts = sorted(panel.texts, key=lambda text: text.get_window_extent().y0)
        assert sorted(text.get_text() for text in texts) == list(index)
        boxes = [text.get_window_extent() for text in texts]
        assert all(one.y1 <= other.y0 + 1 for one, other in pairwise(boxes))
        assert all(box.x1 <= whole.x1 and box.y0 >= whole.y0 and box.y1 <= whole.y1 for box in boxes)
    plt.close(figure)
