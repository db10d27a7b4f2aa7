"""The questions asked of a run on the command line: exit codes that a job can gate on, every format, honest words."""

import io
import json

import numpy as np
import pandas as pd
import pytest
from test_cli import call

from bayes_irt import Responses, SuiteDesign, compare_models, simulate_suite
from bayes_irt.fitting import FitPlan, fit_run
from bayes_irt.runs import Run

FORMATS = ("table", "csv", "json", "markdown")


def written(responses, folder, method="laplace", *, converged=True):
    run = fit_run(responses, FitPlan(method), "some.csv", say=lambda _: None, progress=lambda *_: None)
    folder.mkdir()
    Run(run.responses, run.estimate, run.posterior, converged, run.source).write(folder)
    return folder


@pytest.fixture(scope="module")
def suite():
    """30 LLMs, the first nearly always right, the second and third alike, the last nearly always wrong."""
    cells = simulate_suite(30, 60, seed=5).responses.successes.astype(float)
    rng = np.random.default_rng(1)
    cells[0], cells[29] = rng.random(60) < 0.95, rng.random(60) < 0.03
    return Responses.from_arrays(cells, llms=["best", *[f"m{n}" for n in range(1, 28)], "[/x]", "worst"])


@pytest.fixture(scope="module")
def run(suite, tmp_path_factory):
    return written(suite, tmp_path_factory.mktemp("runs") / "run")


@pytest.fixture(scope="module")
def doubtful(suite, tmp_path_factory):
    return written(suite, tmp_path_factory.mktemp("runs") / "doubtful", converged=False)


@pytest.mark.parametrize(
    ("a", "b", "code"), [("best", "worst", 0), ("worst", "best", 11), ("m1", "m1", 2), ("best", "nobody", 2)]
)
def test_compare_exits_by_its_verdict(run, a, b, code):
    assert call("compare", run, a, b).code == code


@pytest.mark.parametrize("shape", FORMATS)
def test_names_that_look_like_markup_are_names(run, shape):
    compared = call("compare", run, "[/x]", "worst", "--format", shape)
    assert compared.code in (0, 10, 11)
    assert "[/x]" in compared.out.replace("\\", "")


def test_what_is_not_separated_exits_with_ten(run):
    """At probability .9999 the two best of the middle are never separated."""
    board = json.loads(call("rank", run, "--format", "json").out)["llms"]
    first, second = board[10]["llm"], board[11]["llm"]
    assert call("compare", run, first, second, "--tie-prob", "0.9999").code == 10


def test_a_fit_that_did_not_converge_exits_with_three_whatever_it_says(doubtful):
    compared = call("compare", doubtful, "best", "worst")
    assert compared.code == 3
    assert "may not be trusted" in compared.err
    assert call("agree", doubtful).code == 3


@pytest.mark.parametrize("shape", FORMATS)
def test_compare_in_every_format(run, shape):
    compared = call("compare", run, "best", "worst", "--format", shape)
    assert compared.code == 0
    if shape == "json":
        assert json.loads(compared.out)["p_better"] > 0.99
    elif shape == "csv":
        assert pd.read_csv(io.StringIO(compared.out)).columns[0] == "a"
    assert "best" in compared.out
    assert "worst" in compared.out


@pytest.mark.parametrize("shape", FORMATS)
def test_agree_in_every_format(run, suite, shape):
    agreed = call("agree", run, "--format", shape, "--movers", "2")
    assert agreed.code == 0
    if shape == "csv":
        assert len(pd.read_csv(io.StringIO(agreed.out))) == suite.num_llms
    if shape == "json":
        found = json.loads(agreed.out)
        moved = [row["llm"] for row in found["movers"]]
        assert len(moved) == 2
        assert {row["llm"] for row in found["mover_items"]} == set(moved)
        assert sum(" moves " in sentence for sentence in found["sentences"]) == 2
    if shape == "markdown":
        assert agreed.out.count(" moves ") == 2
        assert "| telling_attempts |" in agreed.out
    assert "Kendall's tau" in agreed.err
    assert agreed.err.count(" moves ") == 2
    assert "do not cover prompts" in agreed.err


def test_agree_without_movers_explains_none(run):
    agreed = call("agree", run, "--format", "json", "--movers", "0")
    assert "movers" not in json.loads(agreed.out)
    assert " moves " not in agreed.err


def test_agree_writes_every_table(run, tmp_path):
    assert call("agree", run, "-o", tmp_path / "tables", "--movers", "3").code == 0
    written = {path.stem: pd.read_csv(path) for path in (tmp_path / "tables").iterdir()}
    assert set(written) == {"rankings", "agreement", "heterogeneity", "movers", "mover_items"}
    assert len(written["movers"]) == 3
    assert set(written["mover_items"]["llm"]) == set(written["movers"]["llm"])
    assert written["agreement"]["kendall_tau"].between(-1, 1).all()


def test_rank_counts_the_ranks_asked_for(run):
    both = [
        json.loads(call("rank", run, "--top", str(top), "--format", "json").out)["llms"] for top in (1, 30)
    ]
    assert all(row["p_top"] == row["p_best"] for row in both[0])
    assert all(row["p_top"] == 1 for row in both[1])


def test_report_writes_beside_the_run_or_elsewhere(run, tmp_path):
    assert call("report", run).code == 0
    assert (run / "report.html").exists()
    reported = call("report", run, "-o", tmp_path / "elsewhere", "--prob", "0.8")
    assert reported.code == 0
    assert "80% intervals" in (tmp_path / "elsewhere/report.md").read_text(encoding="utf-8")
    assert (tmp_path / "elsewhere/tables/leaderboard.csv").exists()
    # the run directory is still one, and may be replaced as a whole
    from bayes_irt.provenance import require_free

    require_free(run, force=True)


@pytest.mark.parametrize(
    "question", [("compare", "{run}", "a", "b"), ("agree", "{run}"), ("report", "{run}")]
)
def test_a_point_estimate_answers_none_of_these(suite, tmp_path, question):
    folder = written(suite, tmp_path / "run", "cbmm")
    asked = call(*(word.format(run=folder) for word in question))
    assert asked.code == 2
    assert "point estimate alone" in asked.err


@pytest.mark.parametrize(
    ("method", "option"),
    [
        ("cbmm", ("--guide", "mean-field")),
        ("cbmm", ("--draws", "5")),
        ("laplace", ("--chains", "2")),
        ("svi", ("--warmup", "50")),
        ("nuts", ("--batch-size", "8")),
        ("laplace", ("--thinning", "2")),
        ("nuts", ("--starts", "2")),
        ("laplace", ("--group", "family")),
    ],
)
def test_options_that_would_do_nothing_are_refused(tmp_path, method, option):
    refused = call("fit", tmp_path / "no.csv", "--method", method, *option, "-o", tmp_path / "run")
    assert refused.code == 2
    words = " ".join(refused.err.replace("│", " ").split())
    assert f"{option[0]} is for --method" in words
    assert "would do nothing" in words


@pytest.fixture(scope="module")
def repeated(tmp_path_factory):
    """A table of four attempts per cell that hang together, with a table of its items; and a run of it."""
    folder = tmp_path_factory.mktemp("repeated")
    design = SuiteDesign(attempts=4, cell_sd=1.5)
    responses = simulate_suite(25, 40, design=design, seed=1).responses
    rows = [
        (llm, item, int(responses.successes[i, j]), 4)
        for i, llm in enumerate(responses.llms)
        for j, item in enumerate(responses.items)
    ]
    pd.DataFrame(rows, columns=["model", "item", "successes", "attempts"]).to_csv(
        folder / "r.csv", index=False
    )
    pd.DataFrame({"item": responses.items, "options": 10}).to_csv(folder / "r_items.csv", index=False)
    assert call("fit", folder / "r.csv", "--method", "laplace", "-o", folder / "run").code == 0
    return folder


def test_repeated_attempts_are_beta_binomial_unless_told_otherwise(repeated):
    posterior = Run.load(repeated / "run").posterior
    assert posterior.spec.observation == "beta-binomial"
    assert 0.1 < float(posterior.draws["dispersion"].mean()) < 0.6
    told = call(
        *("fit", repeated / "r.csv", "--method", "laplace", "--observation", "binomial"),
        *("-o", repeated / "binomial"),
    )
    assert told.code == 0
    assert "dispersion" not in Run.load(repeated / "binomial").posterior.draws


@pytest.mark.parametrize(
    ("options", "title"),
    [
        (("--model", "1pl"), "1PL, beta-binomial attempts"),
        (("--model", "guess", "--floor", "0.2"), "floor 0.2, beta-binomial attempts"),
        (("--model", "guess", "--floor", "options"), "floors by 'options', beta-binomial attempts"),
    ],
)
def test_models_are_named_on_the_command_line(repeated, tmp_path, options, title):
    fitted = call("fit", repeated / "r.csv", "--method", "laplace", *options, "-o", tmp_path / "run")
    assert fitted.code == 0
    assert title in fitted.err
    posterior = Run.load(tmp_path / "run").posterior
    assert posterior.spec.title.endswith(title)
    assert call("report", tmp_path / "run").code == 0
    assert title in (tmp_path / "run/report.md").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    "options",
    [
        ("--model", "guess"),
        ("--floor", "0.2"),
        ("--model", "1pl", "--discrimination", "gamma"),
        ("--model", "guess", "--floor", "learned"),  # by NUTS alone
        ("--model", "guess", "--floor", "nothing"),
    ],
)
def test_models_that_cannot_be_are_refused(repeated, tmp_path, options):
    refused = call("fit", repeated / "r.csv", "--method", "laplace", *options, "-o", tmp_path / "run")
    assert refused.code == 2
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("shape", FORMATS)
def test_plan_in_every_format(repeated, shape):
    asked = call(
        "plan", repeated / "run", "--gap", "0.5", "--attempts", "1", "--attempts", "4", "--format", shape
    )
    assert asked.code == 0
    if shape == "json":
        needed = json.loads(asked.out)["needed"]
        assert 0 < needed["4"] < needed["1"]
    if shape == "csv":
        assert set(pd.read_csv(io.StringIO(asked.out))["attempts"]) == {1, 4}
    assert "with 4 attempts each" in asked.out + asked.err


def test_models_compares_numbers_of_traits(tmp_path, monkeypatch):
    """By columns and explored; unseen LLMs are not asked for, a floor is another question."""
    suite = simulate_suite(24, 30, seed=2).responses
    halves = pd.DataFrame({"half": np.repeat(["a", "b"], 15)}, index=suite.items)
    responses = Responses.from_arrays(suite.successes, items=suite.items, item_metadata=halves)
    folder, asked = written(responses, tmp_path / "run"), []

    def first_two(responses, models, *, criteria, **options):
        asked.append((list(models), criteria))
        few = dict(list(models.items())[:2])
        return compare_models(responses, few, criteria=criteria[:1], **options)

    monkeypatch.setattr("bayes_irt.model_comparison.compare_models", first_two)
    told = call("models", folder, "--traits", "half", "--traits", "3", "--format", "json")
    assert told.code == 0
    assert {row["model"] for row in json.loads(told.out)["rows"]} == {"one ability", "half"}
    assert asked == [
        (["one ability", "half", "general and half", "2 traits", "3 traits"], ("held-out cells", "cells"))
    ]
    for options in (("--traits", "half", "--floor", "0.1"), ("--traits", "nothing"), ("--traits", "1")):
        assert call("models", folder, *options).code == 2


def test_models_compares_the_usual_ones(repeated):
    asked = call("models", repeated / "run", "--floor", "0.1", "--format", "json")
    assert asked.code == 0
    rows = json.loads(asked.out)["rows"]
    assert {row["model"] for row in rows} == {"1PL", "2PL", "2PL, floor 0.1", "2PL, binomial"}
    assert {row["criterion"] for row in rows} == {"held-out cells", "cells", "LLMs"}
