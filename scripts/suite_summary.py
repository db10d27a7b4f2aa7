"""What `fit_suites.py` says across suites: one row a suite, rewritten after each."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from bayes_irt.analysis.agreement import rank_correlations
from bayes_irt.analysis.comparison import compare_rankings
from bayes_irt.analysis.leaderboard import Leaderboard
from bayes_irt.analysis.ranking import rank_estimate, rank_llms
from bayes_irt.diagnostics import check_posterior
from bayes_irt.estimate_checks import check_estimate
from bayes_irt.files import write_whole
from bayes_irt.formatting import markdown_table, markdown_text, probability_text
from bayes_irt.runs import Run

COLUMNS = {
    "suite": "suite",
    "status": "status",
    "num_llms": "LLMs",
    "num_items": "items",
    "method": "method",
    "seconds": "s",
    "converged": "converged",
    "failed_checks": "failed checks",
    "first_llm": "first",
    "p_best": "P(best)",
    "first_tie_group": "tied first",
    "reliability": "reliability",
    "cv": "CV of discriminations",
    "kendall_accuracy_cbmm": "tau accuracy, cBMM",
    "kendall_accuracy_posterior": "tau accuracy, posterior",
}
LEGEND = (
    "P(best), tied first: of the LLM with the highest posterior mean, and how many LLMs its tie group holds. CV: "
    "coefficient of variation, the heterogeneity of the items' discriminations, by posterior where there is one, else "
    "by cBMM. tau: Kendall's rank correlation."
)
WHOLE = dict.fromkeys(("num_llms", "num_items", "first_tie_group"), "Int64")
Row = dict[str, object]


def row_of(suite: str, status: str, run: Run, seconds: float) -> tuple[Row, pd.DataFrame]:
    """Return the row of a run, and its leaderboard."""
    row: Row = {
        "suite": suite,
        "status": status,
        "num_llms": run.responses.num_llms,
        "num_items": run.responses.num_items,
        "method": run.method,
        "seconds": seconds,
        "converged": run.converged,
    }
    figures, table = _by_estimate(run) if run.posterior is None else _by_posterior(run)
    return row | figures, table


def _by_estimate(run: Run) -> tuple[Row, pd.DataFrame]:
    table = rank_estimate(run.estimate, run.responses)
    discrimination = np.asarray(run.estimate.parameters.discrimination)[:, 0]
    cbmm = pd.Series(np.asarray(run.estimate.parameters.ability)[:, 0], index=list(run.estimate.llms))
    tau, _ = rank_correlations(table["accuracy"].to_numpy(), cbmm[table.index].to_numpy())
    figures: Row = {
        "failed_checks": "; ".join(check.name for check in check_estimate(run.estimate).failures),
        "first_llm": table.index[0],
        "cv": discrimination.std() / discrimination.mean() if discrimination.any() else np.nan,
        "kendall_accuracy_cbmm": tau,
    }
    return figures, table


def _by_posterior(run: Run) -> tuple[Row, pd.DataFrame]:
    assert run.posterior is not None
    board = rank_llms(run.posterior, run.estimate, run.responses, top=min(5, run.responses.num_llms))
    compared = compare_rankings(run.posterior, run.estimate, run.responses)
    tau = compared.agreement.set_index(["first", "second"])["kendall_tau"]
    figures: Row = {
        "failed_checks": "; ".join(check.name for check in check_posterior(run.posterior).failures),
        "reliability": board.reliability if board.has_ability else np.nan,
        "cv": compared.heterogeneity.loc["posterior", "cv"],
        "kendall_accuracy_cbmm": tau["accuracy", "cbmm"],
        "kendall_accuracy_posterior": tau["accuracy", "posterior"],
        **_first(board),
    }
    return figures, board.table


def _first(board: Leaderboard) -> Row:
    """Return who is first, where anybody is."""
    if board.has_ability and not board.found_ability:
        return {"message": board.notes[0]}
    return {
        "first_llm": board.table.index[0],
        "p_best": board.table["p_best"].iloc[0],
        "first_tie_group": int((board.table["tie_group"] == 1).sum()),
    }


def former_seconds(folder: Path) -> dict[str, float]:
    """Return how long the fits of an earlier summary took."""
    path = folder / "summary.csv"
    if not path.is_file():
        return {}
    table = pd.read_csv(path, dtype={"suite": str})
    return dict(zip(table["suite"], table["seconds"], strict=True))


def write_summary(folder: Path, rows: list[Row]) -> str:
    """Write ``summary.csv`` and ``summary.md``, each whole; return the latter."""
    table = pd.DataFrame(rows, columns=[*COLUMNS, "message"]).astype(WHOLE)
    write_whole(folder / "summary.csv", table.to_csv(index=False))
    text = markdown_summary(table)
    write_whole(folder / "summary.md", text)
    return text


def markdown_summary(table: pd.DataFrame) -> str:
    """Return the rows as people read them, messages below; columns without an entry are left out."""
    forms: dict[str, Callable[[Any], str]] = dict.fromkeys(("reliability", "cv"), "{:.2f}".format)
    forms |= dict.fromkeys(("kendall_accuracy_cbmm", "kendall_accuracy_posterior"), "{:.3f}".format)
    forms |= dict.fromkeys(("num_llms", "num_items"), "{:,.0f}".format)
    forms |= {"seconds": "{:.1f}".format, "p_best": probability_text, "first_tie_group": "{:.0f}".format}
    forms["converged"] = lambda value: "yes" if value else "no"
    shown = {}
    for name, heading in COLUMNS.items():
        known = table[name].notna() & (table[name] != "")
        if known.any():
            cells = table[name].map(forms.get(name, str), na_action="ignore")
            shown[heading] = cells.where(known, "")
    messages = table[table["message"].notna()].itertuples()
    listed = "".join(
        f"- {markdown_text(str(row.suite))}: {markdown_text(str(row.message))}\n" for row in messages
    )
    text = f"# Suites\n\n{markdown_table(pd.DataFrame(shown))}\n{LEGEND}  \n{counted(table)}  \n"
    return f"{text}\n{listed}" if listed else text


def counted(table: pd.DataFrame) -> str:
    """Return in one sentence how the suites fared."""
    number = table["status"].value_counts()
    parts = [
        f"{number[status]} {status}"
        for status in ("fitted", "skipped", "failed", "waiting")
        if status in number
    ]
    loose = int((table["converged"] == False).sum())  # noqa: E712  unknown is neither
    return f"{len(table)} suites: {', '.join(parts)}; {loose} did not converge."
