"""The report of a run: one self-contained page, and a summary in Markdown, of all that a reader should know."""

from __future__ import annotations

import base64
import io
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NamedTuple

import jinja2
import pandas as pd
from matplotlib import pyplot as plt
from matplotlib.figure import Figure as Drawing

import bayes_irt.report_sections as sections
from bayes_irt.analysis.comparison import compare_rankings
from bayes_irt.analysis.explained import ExplainedComparison
from bayes_irt.analysis.item_dependence import dependent_items
from bayes_irt.analysis.items import describe_items
from bayes_irt.analysis.leaderboard import Leaderboard
from bayes_irt.analysis.pairs import pair_matrix
from bayes_irt.analysis.ranking import rank_llms
from bayes_irt.analysis.ranks import Trait, board_trait
from bayes_irt.checks import CheckReport, Outcome
from bayes_irt.comparison_plots import plot_accuracy, plot_rank_flow
from bayes_irt.data_checks import check_responses
from bayes_irt.diagnostics import check_posterior
from bayes_irt.errors import InvalidConfigurationError, RunDirectoryError
from bayes_irt.files import write_tables, write_whole
from bayes_irt.formatting import markdown_table, markdown_text
from bayes_irt.posterior import Posterior
from bayes_irt.predictive import check_predictive
from bayes_irt.ranking_plots import plot_pairs
from bayes_irt.relations import describe_relations
from bayes_irt.responses import Responses
from bayes_irt.runs import Run
from bayes_irt.sensitivity import PriorSensitivity, prior_sensitivity
from bayes_irt.trait_sections import items_of_traits, rankings_left_out, tables_of_traits, traits

_DOTS_PER_INCH = 110
# Tables that not every report has.
_TABLES_OF_SOME = {
    *("related_llms", "without_copies", "movers", "mover_items"),
    *("rankings", "agreement", "heterogeneity", "items", "prior_sensitivity"),
    *("trait_overview", "traits", "trait_loadings", "trait_correlations", "variance_shares"),
}
_BAR_WIDTH = 176.0
_INKED = (
    "axes.edgecolor",
    "axes.labelcolor",
    "axes.titlecolor",
    "text.color",
    "xtick.color",
    "ytick.color",
)
_DARK = "#e6e8ea"
_LIGHT = "#1c1e21"


@dataclass(frozen=True, slots=True, eq=False)
class Report:
    """Hold a report, ready to be written.

    Parameters
    ----------
    title, subtitle
        What it is about.
    sections
        What it says.
    tables
        File name without ending to a whole table, for machines.
    command
        The command that made the run; empty where it is not known.
    provenance
        Method, options, versions and digests, as JSON.

    Examples
    --------
    >>> from bayes_irt.fitting import FitPlan, fit_run
    >>> from bayes_irt.simulate import simulate_suite
    >>> responses = simulate_suite(30, 60).responses
    >>> run = fit_run(responses, FitPlan("laplace"), "simulated", say=lambda _: None, progress=lambda *_: None)
    >>> report = build_report(run)
    >>> [section.title for section in report.sections][:3]
    ['In short', 'Leaderboard', 'Ties']
    """

    title: str
    subtitle: str
    sections: tuple[sections.Section, ...]
    tables: Mapping[str, pd.DataFrame]
    command: str
    provenance: str

    def to_html(self) -> str:
        """Return one page that needs no network, for light and dark screens, phones and paper.

        Returns
        -------
        str
            HTML; all that comes from data is escaped.
        """
        return _render("report.html.j2", self, autoescape=True)

    def to_markdown(self) -> str:
        """Return the summary as Markdown, without figures.

        Returns
        -------
        str
            Markdown; names that look like tags or tables are escaped.
        """
        return _render("report.md.j2", self, autoescape=False)

    def write(self, folder: str | Path) -> None:
        """Write ``report.html``, ``report.md`` and the tables as ``tables/*.csv``, in place of older ones.

        Parameters
        ----------
        folder
            Where; it is made if need be.

        Raises
        ------
        RunDirectoryError
            If it cannot be written to.
        """
        target = Path(folder)
        page, summary = self.to_html(), self.to_markdown()
        try:
            target.mkdir(parents=True, exist_ok=True)
            write_whole(target / "report.html", page)
            write_whole(target / "report.md", summary)
            for name in _TABLES_OF_SOME - set(self.tables):
                (target / "tables" / f"{name}.csv").unlink(missing_ok=True)
            write_tables(target / "tables", self.tables)
        except OSError as error:
            raise RunDirectoryError(f"The report cannot be written to {str(target)!r} ({error}).") from error


def build_report(
    run: Run, *, prob: float = 0.9, group: str | None = None, seed: int = 0, trait: Trait = None
) -> Report:
    """Put together what a reader of the leaderboard should know.

    Parameters
    ----------
    run
        A run with a posterior.
    prob
        Probability of all intervals.
    group
        A column of the LLMs' metadata that says who is related (family, base LLM); None for none.
    seed
        Seed of replicated data and of the refit without copies.
    trait
        Where there are several traits, that on which LLMs are ranked, or weights of several; None for all alike, or the
        general one.

    Returns
    -------
    Report
        The report. With several traits it has profiles, correlations and loadings of traits in place of the comparison
        of rankings, the informations of items and the sensitivity to priors, which are about one ability.

    Raises
    ------
    InvalidConfigurationError
        If the run has a point estimate alone, `prob` is not in (0, 1), or a trait is unknown.

    Examples
    --------
    >>> from bayes_irt.fitting import FitPlan, fit_run
    >>> from bayes_irt.simulate import simulate_suite
    >>> responses = simulate_suite(30, 60).responses
    >>> run = fit_run(responses, FitPlan("laplace"), "simulated", say=lambda _: None, progress=lambda *_: None)
    >>> "<!DOCTYPE html>" in build_report(run).to_html()
    True
    """
    posterior, responses = run.posterior, run.responses
    if posterior is None:
        raise InvalidConfigurationError(
            "A report needs a posterior, and this run has a point estimate alone. Fit it with --method laplace or nuts."
        )
    trait = board_trait(posterior, trait)
    board = rank_llms(posterior, run.estimate, responses, prob, trait=trait)
    matrix = pair_matrix(posterior, responses, trait=trait)
    checks, predictive = check_posterior(posterior), check_predictive(posterior, responses, seed=seed)
    relations = describe_relations(posterior, responses, prob=prob, group=group, seed=seed, trait=trait)
    dependence = [check.message for check in dependent_items(posterior, responses)]
    of_model = (
        _several_traits(posterior, responses, board) if posterior.traits else _one_trait(run, posterior, prob)
    )
    parts = (
        sections.headline(board, checks, predictive),
        sections.ranking(board),
        sections.ties(board, matrix, plot_pairs),
        *of_model.sections,
        sections.data(responses, check_responses(responses), run.source, [*relations.sentences, *dependence]),
        sections.fit(checks, predictive),
        sections.priors(_priors_text(posterior), of_model.sensitivity),
    )
    tables = {"leaderboard": board.table, "pairs": matrix, **of_model.tables, **relations.tables}
    return Report(
        title=f"{Path(run.source).stem or run.source}: {responses.num_llms:,} LLMs on {responses.num_items:,} items",
        subtitle=f"{posterior}; {_verdict(checks)}",
        sections=parts,
        tables=tables,
        command=run.command,
        provenance=json.dumps(_origin(run), indent=2, ensure_ascii=False),
    )


class _OfModel(NamedTuple):
    """What depends on whether there are several traits."""

    sections: tuple[sections.Section, ...]
    sensitivity: PriorSensitivity | None
    tables: dict[str, pd.DataFrame]


def _one_trait(run: Run, posterior: Posterior, prob: float) -> _OfModel:
    comparison = compare_rankings(posterior, run.estimate, run.responses, prob=prob)
    overview = describe_items(posterior, run.responses, prob=prob)
    sensitivity = prior_sensitivity(posterior, run.responses)
    return _OfModel(
        (sections.rankings(comparison, plot_rank_flow, plot_accuracy), sections.items(overview)),
        sensitivity,
        {
            **ExplainedComparison.of(comparison, 10).tables,
            "items": overview.table,
            "prior_sensitivity": sensitivity.table,
        },
    )


def _several_traits(posterior: Posterior, responses: Responses, board: Leaderboard) -> _OfModel:
    found = tables_of_traits(posterior, responses, board.prob)
    return _OfModel((traits(board, found), rankings_left_out(), items_of_traits(found)), None, found.tables)


def _verdict(checks: CheckReport) -> str:
    unsure = ", ".join(check.name for check in checks if check.outcome is Outcome.CANNOT_TELL)
    if not checks.passed:
        return "checks of the fit failed"
    return f"no check of the fit failed (cannot tell: {unsure})" if unsure else "the fit passed its checks"


def _priors_text(posterior: Posterior) -> str:
    spec = posterior.spec
    text = f"{spec.title}; discriminations {spec.priors.discrimination}, easinesses {spec.priors.easiness}"
    correlated = spec.traits is not None and not spec.general
    return f"{text}, correlations of traits LKJ({spec.trait_concentration:g})." if correlated else f"{text}."


def _origin(run: Run) -> dict[str, Any]:
    assert run.posterior is not None
    return {
        "source": run.source,
        "data_digest": run.responses.digest,
        "posterior": asdict(run.posterior.provenance),
        "estimate": {
            name: value for name, value in asdict(run.estimate.provenance).items() if name != "versions"
        },
    }


class _Picture(NamedTuple):
    light: str
    dark: str
    width: int
    height: int


def _picture(figure: sections.Figure) -> _Picture:
    """Draw a figure for light and for dark pages."""
    light, width, height = _drawn(figure, _LIGHT)
    return _Picture(light, _drawn(figure, _DARK)[0], width, height)


def _drawn(figure: sections.Figure, ink: str) -> tuple[str, int, int]:
    """Return a figure as PNG in base64, with its size on the page."""
    inks = {name: ink for name in plt.rcParams if name in _INKED}
    with plt.rc_context(inks):
        drawing = figure.draw().get_figure(root=True)
        assert isinstance(drawing, Drawing)
        buffer = io.BytesIO()
        drawing.savefig(buffer, format="png", dpi=_DOTS_PER_INCH, transparent=True)
        inches = drawing.get_size_inches()
        plt.close(drawing)
    return base64.b64encode(buffer.getvalue()).decode("ascii"), round(96 * inches[0]), round(96 * inches[1])


class _Bars(NamedTuple):
    rows: list[tuple[float, ...]]
    zero: float | None


def _bars(section: sections.Section) -> _Bars | None:
    """Return places of the interval bars, in the bar's own units."""
    if section.bars is None:
        return None
    low, high = float(section.bars["lower"].min()), float(section.bars["upper"].max())
    scale = (_BAR_WIDTH - 8) / max(high - low, 1e-9)
    placed = ((section.bars[["lower", "middle", "upper"]] - low) * scale + 4).round(1)
    zero = round((0.0 - low) * scale + 4, 1) if low < 0 < high else None
    return _Bars([tuple(row) for row in placed.to_numpy().tolist()], zero)


def _render(template: str, report: Report, *, autoescape: bool) -> str:
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("bayes_irt"),
        autoescape=autoescape,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
        keep_trailing_newline=True,
    )
    return environment.get_template(template).render(
        report=report, picture_of=_picture, bars_of=_bars, markdown_table=markdown_table, escape=markdown_text
    )
