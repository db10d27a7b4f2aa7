"""The report: one page that needs nothing else, a summary, tables; names from data do no harm in either."""

import json
import re
from dataclasses import replace
from html.parser import HTMLParser

import numpy as np
import pandas as pd
import pytest

from bayes_irt import ModelSpec, Priors, Responses, fit_cbmm, simulate_suite
from bayes_irt.errors import InvalidConfigurationError, RunDirectoryError
from bayes_irt.fitting import FitPlan, fit_run
from bayes_irt.posterior import posterior_from_draws
from bayes_irt.provenance import Provenance, plain
from bayes_irt.report import build_report
from bayes_irt.report_sections import MOST_ITEMS
from bayes_irt.runs import Run

NAMES = (
    "<script>alert(1)</script>",
    "a|b",
    "**bold**",
    "![x](http://x.y/z.png)",
    'quote"d',
    "модель ß",
    "new\nline",
)
TITLES = (
    *("In short", "Leaderboard", "Ties", "Accuracy, cBMM and posterior"),
    *("Items", "Data", "Checks", "Priors"),
)


COMMAND = "bayes-irt fit 'suites/my results.csv' -o RUN --method laplace"


def fitted(responses, method="laplace"):
    plan = FitPlan(method)
    run = fit_run(responses, plan, "suites/my results.csv", say=lambda _: None, progress=lambda *_: None)
    return replace(run, command=COMMAND)


@pytest.fixture(scope="module")
def run():
    """A run of 30 LLMs and 60 items with odd names, one LLM twice, one cell in ten missing."""
    suite = simulate_suite(29, 60, seed=4)
    cells = suite.responses.successes.astype(float)
    cells[np.random.default_rng(0).random(cells.shape) < 0.1] = np.nan
    llms = [*NAMES, *suite.responses.llms[len(NAMES) :], "copy of a|b"]
    items = ["<img src=x onerror=alert(2)>", *suite.responses.items[1:]]
    return fitted(Responses.from_arrays(np.vstack([cells, cells[1]]), llms=llms, items=items))


@pytest.fixture(scope="module")
def report(run):
    return build_report(run)


@pytest.fixture(scope="module")
def page(report):
    return report.to_html()


class Page(HTMLParser):
    """What a browser would load, run or show."""

    def __init__(self, page):
        super().__init__()
        self.tags, self.links, self.ids, self.words = [], [], [], []
        self.feed(page)

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        named = dict(attrs)
        self.ids += [named["id"]] if "id" in named else []
        self.links += [named[name] for name in ("src", "href", "srcset") if name in named]
        assert not any(name.startswith("on") for name in named)

    def handle_data(self, data):
        self.words.append(data)


def test_sections_come_in_order(report):
    assert tuple(section.title for section in report.sections) == TITLES


def test_the_page_needs_no_network_and_runs_nothing(page):
    parsed = Page(page)
    assert not {"script", "link", "iframe", "object"} & set(parsed.tags)
    assert all(link.startswith(("#", "data:image/png;base64,")) for link in parsed.links)
    assert {link.removeprefix("#") for link in parsed.links if link.startswith("#")} <= set(parsed.ids)
    assert "url(" not in page
    assert "@import" not in page


def test_names_are_shown_as_they_are(page):
    """Escaped, so that a browser shows the very name; the control finds a tag where a page is not escaped."""
    shown = " ".join("".join(Page(page).words).split())
    for name in NAMES:
        assert " ".join(name.split()) in shown
    assert "<img src=x onerror=alert(2)>" in shown
    assert "script" in Page(f"<p>{NAMES[0]}</p>").tags


def test_markdown_keeps_one_row_per_llm_and_no_tag(report):
    text = report.to_markdown()
    assert not re.search(r"<[a-zA-Z/!]", text)
    board = text.split("## Leaderboard")[1].split("## Ties")[0]
    rows = [line for line in board.splitlines() if line.startswith("|")]
    assert len(rows) == 2 + 30
    assert len({len(re.findall(r"(?<!\\)\|", row)) for row in rows}) == 1
    assert r"\*\*bold\*\*" in board
    assert not re.search(r"(?<!\\)\]\(", text)


def test_figures_have_a_light_and_a_dark_form_and_words(page):
    parsed = Page(page)
    assert parsed.tags.count("picture") == parsed.tags.count("source") == 3
    pictures = [link for link in parsed.links if link.startswith("data:image/png")]
    assert len(set(pictures)) == 6
    assert len(re.findall(r'<img [^>]*alt="[^"]{20,}"', page)) == 3


def test_what_the_page_must_say(page, run):
    shown = " ".join(" ".join(Page(page).words).split())
    for words in (
        "90% intervals cover run-to-run noise",
        "do not cover prompts, the evaluation harness or contamination",
        f"{run.responses.num_observed:,} of 1,800",
        "Without copies 29 LLMs remain",
        "disagree on 0 of",
        "Kendall's tau",
        "hyperpriors",
        run.responses.digest,
        COMMAND,
    ):
        assert words in shown


def test_tables_are_whole(report, tmp_path):
    report.write(tmp_path / "out")
    tables = {path.stem: pd.read_csv(path) for path in (tmp_path / "out/tables").iterdir()}
    assert (
        set(tables) == set(report.tables) >= {"leaderboard", "pairs", "rankings", "items", "without_copies"}
    )
    assert len(tables["leaderboard"]) == 30
    assert len(tables["items"]) == 60 > MOST_ITEMS
    assert tables["pairs"].shape == (30, 31)
    assert set(tables["leaderboard"]["llm"]) > set(NAMES)


def test_writing_again_replaces_and_leaves_the_run_whole(report, run, tmp_path):
    (tmp_path / "run").mkdir()
    run.write(tmp_path / "run")
    report.write(tmp_path / "run")
    (tmp_path / "run/report.html").write_text("old")
    report.write(tmp_path / "run")
    assert (tmp_path / "run/report.html").read_text(encoding="utf-8").startswith("<!DOCTYPE html>")
    assert Run.load(tmp_path / "run").responses == run.responses
    assert not [path for path in (tmp_path / "run").rglob("*") if path.name.startswith(".")]


def test_a_place_that_cannot_be_written_is_an_error(report, tmp_path):
    (tmp_path / "file").write_text("x")
    with pytest.raises(RunDirectoryError, match="cannot be written"):
        report.write(tmp_path / "file")


def test_provenance_is_json(report):
    origin = json.loads(report.provenance)
    assert origin["posterior"]["method"] == "laplace"
    assert origin["posterior"]["versions"]["bayes_irt"]


def test_a_point_estimate_has_no_report():
    with pytest.raises(InvalidConfigurationError, match="needs a posterior"):
        build_report(fitted(simulate_suite(29, 60, seed=4).responses, "cbmm"))


def test_a_fit_that_failed_its_checks_says_so_at_the_top(small_fit):
    """6 LLMs by two short chains; made in Python, so that there is no command."""
    report = build_report(Run(*small_fit, False, "few.csv"))
    assert report.command == ""
    assert "Checks of the fit failed" in report.sections[0].text[1]
    assert "checks of the fit failed" in report.subtitle


def test_three_llms_have_ranks_and_expected_accuracies_but_no_abilities():
    """Draws made by hand: the first LLM is best in all of them."""
    responses = Responses.from_arrays([[1, 1, 1, 0], [1, 0, 1, 0], [0, 0, 1, 0]], llms=["a", "b", "c"])
    rng = np.random.default_rng(0)
    draws = {
        "ability": np.array([1.2, 0.0, -1.2])[None, None, :, None] + 0.1 * rng.normal(size=(2, 100, 3, 1)),
        "discrimination": np.exp(0.3 * rng.normal(size=(2, 100, 4, 1))),
        "easiness": rng.normal(size=(2, 100, 4)),
        "discrimination_scale": np.exp(0.3 * rng.normal(size=(2, 100))),
        "easiness_location": rng.normal(size=(2, 100)),
        "easiness_scale": np.exp(0.3 * rng.normal(size=(2, 100))),
    }
    made = Provenance("nuts", {"spec": plain(ModelSpec())}, responses.digest, 0)
    posterior = posterior_from_draws(draws, {}, (responses.llms, responses.items), made)
    report = build_report(Run(responses, fit_cbmm(responses, penalty=Priors()), posterior, True, "three"))
    shown = " ".join(" ".join(Page(report.to_html()).words).split())
    assert "ability is not applicable" in shown
    assert "Ranks of the first 3 LLMs do not depend" in shown
    assert "nan" not in shown.lower().split()
    assert "movers" not in report.tables


def test_tables_that_a_report_no_longer_has_go(report, tmp_path):
    (tmp_path / "tables").mkdir()
    (tmp_path / "tables/movers.csv").write_text("old")
    (tmp_path / "tables/mine.csv").write_text("mine")
    replace(report, tables={name: t for name, t in report.tables.items() if name != "movers"}).write(tmp_path)
    assert not (tmp_path / "tables/movers.csv").exists()
    assert (tmp_path / "tables/mine.csv").read_text() == "mine"
