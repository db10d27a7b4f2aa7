"""The report of a run with several traits: what it adds, what it leaves out and says so, names that do no harm."""

import re

import numpy as np
import pandas as pd
import pytest
from scipy.special import expit
from test_report import COMMAND, NAMES, TITLES, Page

from bayes_irt import ModelSpec, Priors, Responses, fit_cbmm, rank_llms
from bayes_irt.errors import InvalidConfigurationError
from bayes_irt.item_law import law_of_items
from bayes_irt.posterior import posterior_from_draws
from bayes_irt.provenance import Provenance, plain
from bayes_irt.report import build_report
from bayes_irt.runs import Run
from bayes_irt.trait_sections import MOST_PROFILES

TRAITS = ("<b>logic</b>", "a|b", "$x$ of **sets**")
SPECS = {"correlated": ModelSpec(traits="subject"), "bifactor": ModelSpec(traits="subject", general=True)}


def made_up_run(name, num_llms=24, each=12, *, copy=False):
    """Answers to items of three traits, and draws around the abilities and items that made them."""
    spec, rng, num_items = SPECS[name].settled(1), np.random.default_rng(3), 3 * each
    llms = [*NAMES, *(f"llm-{number:03d}" for number in range(num_llms))][:num_llms]
    items = ["<img src=x onerror=alert(2)>", *(f"item-{number:03d}" for number in range(1, num_items))]
    metadata = pd.DataFrame({"subject": np.tile(TRAITS, each)}, index=items)
    law = law_of_items(spec, metadata, num_items)
    number = law.traits.num_traits
    ability = rng.normal(size=(num_llms, 1)) + 0.6 * rng.normal(size=(num_llms, number))
    ability = (ability - ability.mean(axis=0)) / ability.std(axis=0)
    slopes = law.traits.loads * rng.gamma(4.0, 0.4, size=(num_items, number))
    easiness = rng.normal(size=num_items)
    answers = (rng.random((num_llms, num_items)) < expit(ability @ slopes.T + easiness)).astype(int)
    if copy:
        answers[1] = answers[0]
    responses = Responses.from_arrays(answers, llms=llms, items=items, item_metadata=metadata)
    size, near = (2, 60), lambda value: value + 0.1 * rng.normal(size=(2, 60, *np.shape(value)))
    draws = {
        "ability": near(ability),
        "discrimination": slopes * np.exp(near(np.zeros(slopes.shape))),
        "easiness": near(easiness),
        "discrimination_scale": np.exp(near(0.0)),
        "easiness_location": near(0.0),
        "easiness_scale": np.exp(near(0.0)),
    }
    if not spec.general:
        draws["trait_correlation"] = np.broadcast_to([0.5, 0.7, 0.6], (*size, 3)) + 0.01 * near(np.zeros(3))
    made = Provenance("nuts", {"spec": plain(spec)}, responses.digest, 0)
    posterior = posterior_from_draws(draws, {}, (responses.llms, responses.items), made, law=law)
    estimate = fit_cbmm(responses, penalty=Priors(), loads=law.traits.loads)
    return Run(responses, estimate, posterior, True, "suites/my results.csv", COMMAND)


@pytest.fixture(scope="module")
def runs():
    return {name: made_up_run(name) for name in SPECS}


@pytest.fixture(scope="module")
def reports(runs):
    return {name: build_report(run) for name, run in runs.items()}


@pytest.fixture(scope="module")
def pages(reports):
    return {name: report.to_html() for name, report in reports.items()}


def words_of(page):
    return " ".join("".join(Page(page).words).split())


def section(report, title):
    return next(section for section in report.sections if section.title == title)


@pytest.mark.parametrize("name", SPECS)
def test_sections_are_those_of_one_trait_and_one_more(name, reports):
    assert [section.title for section in reports[name].sections] == [*TITLES[:3], "Traits", *TITLES[3:]]


@pytest.mark.parametrize("name", SPECS)
def test_the_page_is_whole_and_names_are_shown_as_they_are(name, pages):
    parsed, shown = Page(pages[name]), words_of(pages[name])
    assert not {"script", "link", "iframe", "object", "b"} & set(parsed.tags)
    assert all(link.startswith(("#", "data:image/png;base64,")) for link in parsed.links)
    for label in (*TRAITS, *(" ".join(label.split()) for label in NAMES), "<img src=x onerror=alert(2)>"):
        assert label in shown
    assert parsed.tags.count("picture") == {"correlated": 4, "bifactor": 3}[name]
    pictures = [link for link in parsed.links if link.startswith("data:image/png")]
    assert len(set(pictures)) == len(pictures) == 2 * parsed.tags.count("picture")


@pytest.mark.parametrize("name", SPECS)
def test_markdown_holds_no_tag_and_whole_tables(name, reports):
    text = reports[name].to_markdown()
    assert not re.search(r"<[a-zA-Z/!]", text)
    part = text.split("## Traits")[1].split("## ")[0]
    rows = [line for line in part.splitlines() if line.startswith("|")]
    widths = [len(re.findall(r"(?<!\\)\|", row)) for row in rows]
    number = 3 + SPECS[name].general
    assert len(rows) == 2 + number + (5 if SPECS[name].general else 0)
    assert set(widths[: 2 + number]) == {7}


def test_the_board_states_its_weighting_and_another_can_be_asked_for(runs, reports):
    run = runs["correlated"]
    equal = rank_llms(run.posterior, run.estimate, run.responses, trait=dict.fromkeys(TRAITS, 1))
    pd.testing.assert_frame_equal(reports["correlated"].tables["leaderboard"], equal.table)
    assert "the mean of '$x$ of **sets**' (33%)" in reports["correlated"].sections[0].text[1]
    own = build_report(run, trait={"a|b": 3, "<b>logic</b>": 1})
    wanted = rank_llms(run.posterior, run.estimate, run.responses, trait={"a|b": 3, "<b>logic</b>": 1})
    pd.testing.assert_frame_equal(own.tables["leaderboard"], wanted.table)
    assert not own.tables["leaderboard"]["ability"].equals(equal.table["ability"])
    weights = section(own, "Traits").tables[0].set_index("trait")["weight in the board"]
    assert weights.to_dict() == {"$x$ of **sets**": "0%", "<b>logic</b>": "25%", "a|b": "75%"}
    with pytest.raises(InvalidConfigurationError, match="No trait is called 'sets'"):
        build_report(run, trait="sets")


def test_a_general_ability_counts_alone(reports):
    report = reports["bifactor"]
    assert report.sections[0].text[1] == "LLMs are ranked on 'general'."
    assert section(report, "Traits").tables[0]["weight in the board"].tolist() == ["100%", "0%", "0%", "0%"]


def test_correlations_or_shares_are_told(pages, reports):
    shown = words_of(pages["correlated"])
    assert "Lowest and highest correlation of traits (90% interval)" in shown
    assert "LKJ(1)" in shown
    assert "omega" not in shown
    shown = words_of(pages["bifactor"])
    assert (
        "of the total score's variance is the general ability's (omega hierarchical, 90% interval)" in shown
    )
    assert "LKJ" not in shown
    share = reports["bifactor"].tables["variance_shares"]["share"]
    assert section(reports["bifactor"], "Traits").tables[1]["share"].tolist() == [f"{x:.2f}" for x in share]


@pytest.mark.parametrize("name", SPECS)
def test_what_is_left_out_is_said(name, pages):
    shown = words_of(pages[name])
    for words in (
        "are compared on one ability, so that they are left out",
        "Informations and reversed items are about one ability, and are left out",
        "is not known with several traits",
    ):
        assert words in shown


@pytest.mark.parametrize("name", SPECS)
def test_tables_are_whole(name, runs, reports, tmp_path):
    run, number = runs[name], 3 + SPECS[name].general
    (tmp_path / "tables").mkdir()
    for old in ("items", "rankings", "prior_sensitivity"):
        (tmp_path / f"tables/{old}.csv").write_text("of a report of one trait")
    reports[name].write(tmp_path)
    tables = {path.stem: pd.read_csv(path) for path in (tmp_path / "tables").iterdir()}
    of_model = "variance_shares" if SPECS[name].general else "trait_correlations"
    wanted = {"leaderboard", "pairs", "trait_overview", "traits", "trait_loadings", of_model}
    assert set(tables) == set(reports[name].tables) == wanted
    assert len(tables["traits"]) == run.responses.num_llms * number
    assert len(tables["trait_loadings"]) == run.responses.num_items * (1 + SPECS[name].general)
    assert set(tables["trait_overview"]["trait"]) == set(run.posterior.traits)


def test_the_overview_counts_the_items_of_each_trait(runs):
    run = runs["correlated"]
    of = run.responses.item_metadata["subject"].to_numpy()
    for label, row in build_report(run).tables["trait_overview"].iterrows():
        answers = run.responses.successes[:, of == label]
        assert row["items"] == answers.shape[1]
        assert row["llms_seen"] == len(answers)
        assert row["accuracy"] == pytest.approx(answers.mean())
        draws = np.asarray(run.posterior.parameters.ability)[..., run.posterior.traits.index(label)]
        assert row["reliability"] == pytest.approx(1 - draws.var(axis=0).mean())


def test_items_are_those_that_load_most(runs, reports):
    run, table = runs["correlated"], section(reports["correlated"], "Items").tables[0]
    slopes = np.asarray(run.posterior.parameters.discrimination).mean(axis=0)
    for number, label in enumerate(run.posterior.traits):
        best = np.argsort(-slopes[:, number])[:5]
        own = table[table["trait"] == label]
        assert own["item"].tolist() == [run.responses.items[place] for place in best]
        assert own["discrimination"].tolist() == [f"{slopes[place, number]:.2f}" for place in best]


def test_many_llms_show_the_profiles_of_the_first():
    report = build_report(made_up_run("correlated", num_llms=70))
    figure = section(report, "Traits").figures[0]
    assert f"The first {MOST_PROFILES} of 70 LLMs" in figure.caption
    shown = [label.get_text() for label in figure.draw().get_yticklabels()]
    assert len(shown) == MOST_PROFILES
    assert shown[0] in str(report.tables["leaderboard"].index[0])


def test_without_copies_the_same_traits_are_fitted_again():
    run = made_up_run("correlated", copy=True)
    report = build_report(run, trait="a|b")
    changes = report.tables["without_copies"]
    assert len(changes) == run.responses.num_llms - 1
    assert any("Without copies 23 LLMs remain" in text for text in section(report, "Data").text)
    # by Laplace of the same answers, on the same trait: near the abilities that made them
    on_board = report.tables["leaderboard"]["ability"].loc[changes.index]
    assert np.corrcoef(changes["ability_before"], on_board)[0, 1] > 0.8
