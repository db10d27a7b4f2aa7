"""Compare accuracy, cBMM and posterior across suites: tables and figures from the runs of `fit_suites.py`.

``uv run python scripts/compare_rankings.py RUNS --output FOLDER`` takes run directories, or folders of them, and
writes: comparison.md; suites.csv (heterogeneity of discriminations and rank agreement), correlations.csv (their
relation across suites), agreement.csv (every pair of rankings), rankings.csv (every LLM), movers.csv and
mover_items.csv (who moves from accuracy rank to posterior rank, and the items that cause it); heterogeneity.png, and
flow_SUITE.png and accuracy_SUITE.png for each suite. One run is enough for all but the relation across suites.

Exit codes: 0 fine, 2 no run to compare, 3 a run could not be read, has no posterior, or did not converge.

References
----------
Qu, X., Heng, Q., Zeng, H. & Liu, X. (2026). An interpretable and scalable framework for evaluating large language
models. arXiv 2605.07046.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path

import matplotlib as mpl
import pandas as pd
from matplotlib import pyplot as plt
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from bayes_irt.analysis.comparison import RankingComparison, compare_rankings
from bayes_irt.analysis.heterogeneity import HeterogeneityRelation, relate_heterogeneity
from bayes_irt.analysis.movers import Movers
from bayes_irt.cli_output import say
from bayes_irt.comparison_plots import plot_accuracy, plot_rank_flow
from bayes_irt.errors import BayesIRTError, InvalidConfigurationError
from bayes_irt.formatting import markdown_table, markdown_text, percent_text
from bayes_irt.plot_labels import LABEL_SIZE, PointLabel, stack_labels
from bayes_irt.plot_parts import contrast_colours, ink
from bayes_irt.runs import Run

NAMES = {"accuracy": "accuracy", "cbmm": "cBMM", "posterior": "posterior"}
BAD_INPUT = 2
SOME_MISSING = 3


def main(arguments: list[str] | None = None) -> int:
    """Compare all runs; return the exit code."""
    options = _parser().parse_args(arguments)
    mpl.use("Agg")
    try:
        found, flaws = compared(run_folders(options.runs), options.prob)
        if not found:
            raise InvalidConfigurationError("No run has a posterior that could be compared.")
        options.output.mkdir(parents=True, exist_ok=True)
        write(found, flaws, options.output, options.movers)
    except (BayesIRTError, OSError) as error:
        say(f"Error: {error}")
        return BAD_INPUT
    say(f"Wrote {options.output / 'comparison.md'}, tables and figures")
    return SOME_MISSING if flaws else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("runs", nargs="+", type=Path, help="run directories, or folders of them")
    parser.add_argument("--output", "-o", type=Path, required=True, help="folder of tables and figures")
    parser.add_argument("--prob", type=float, default=0.9, help="probability of the intervals")
    parser.add_argument("--movers", type=int, default=5, help="LLMs of each suite whose move is explained")
    return parser


def run_folders(paths: Iterable[Path]) -> dict[str, Path]:
    """Return the run directories by name: those given, and those in the folders given."""
    folders: dict[str, Path] = {}
    for path in paths:
        inside = (
            [path] if (path / "run.json").is_file() else sorted(f.parent for f in path.glob("*/run.json"))
        )
        if not inside:
            raise InvalidConfigurationError(
                f"{path} is no run directory and holds none. Make some by fit_suites.py."
            )
        for folder in inside:
            name = folder.resolve().name
            if folders.setdefault(name, folder).resolve() != folder.resolve():
                raise InvalidConfigurationError(
                    f"{folders[name]} and {folder} are called alike. Rename one: names tell suites apart."
                )
    return folders


def compared(folders: Mapping[str, Path], prob: float) -> tuple[dict[str, RankingComparison], dict[str, str]]:
    """Return the comparison of each suite, and by suite what is wrong with its run."""
    found, flaws = {}, {}
    for name, folder in folders.items():
        say(f"{name}: {folder}")
        try:
            run = Run.load(folder)
        except (BayesIRTError, OSError, ValueError) as error:
            flaws[name] = f"left out: {error}"
            continue
        if run.posterior is None:
            flaws[name] = "left out: a point estimate alone, without posterior."
            continue
        if not run.converged:
            flaws[name] = f"its fit by {run.method} did not converge; its numbers may not be trusted."
        found[name] = compare_rankings(run.posterior, run.estimate, run.responses, prob=prob)
    say(*(f"{name}: {flaw}" for name, flaw in flaws.items()))
    return found, flaws


def write(
    found: Mapping[str, RankingComparison], flaws: Mapping[str, str], folder: Path, num_movers: int
) -> None:
    """Write tables, figures and the text that holds them together."""
    relation = relate_heterogeneity(found)
    movers = {
        name: comparison.movers(num_movers)
        for name, comparison in found.items()
        if num_movers and comparison.has_ability
    }
    relation.table.to_csv(folder / "suites.csv")
    relation.correlations.to_csv(folder / "correlations.csv")
    tables = {
        "agreement": {name: one.agreement for name, one in found.items()},
        "rankings": {name: one.table.reset_index() for name, one in found.items()},
        "movers": {name: one.table.reset_index() for name, one in movers.items()},
        "mover_items": {name: one.items for name, one in movers.items()},
    }
    for name, parts in tables.items():
        if parts:
            stacked(parts).to_csv(folder / f"{name}.csv", index=False)
    prob = next(iter(found.values())).prob
    _save(draw_heterogeneity(relation, prob), folder / "heterogeneity.png")
    for name, comparison in found.items():
        _save(plot_rank_flow(comparison).get_figure(root=True), folder / f"flow_{name}.png")
        if comparison.has_ability:
            _save(plot_accuracy(comparison).get_figure(root=True), folder / f"accuracy_{name}.png")
    text = _markdown(found, relation, movers, flaws)
    (folder / "comparison.md").write_text(text, encoding="utf-8")


def stacked(parts: Mapping[str, pd.DataFrame]) -> pd.DataFrame:
    """Return the tables of all suites in one, the suite in front."""
    return pd.concat([table.assign(suite=name) for name, table in parts.items()]).pipe(
        lambda table: table[["suite", *(column for column in table.columns if column != "suite")]]
    )


def draw_heterogeneity(relation: HeterogeneityRelation, prob: float) -> Figure:
    """Draw rank agreement against heterogeneity of discriminations, one dot a suite, by cBMM and by posterior."""
    table, percent = relation.table, percent_text(prob)
    height = 1.6 + max(2.8, 0.17 * len(table))
    figure, (left, right) = plt.subplots(
        1, 2, figsize=(11, height), sharex=True, sharey=True, layout="constrained"
    )
    figure.get_layout_engine().set(w_pad=0.1, h_pad=0.06)  # type: ignore[union-attr,call-arg]
    colour = contrast_colours(left)[0]
    right.vlines(
        table["cv"],
        table["kendall_lower"],
        table["kendall_upper"],
        color="0.55",
        linewidth=3,
        alpha=0.45,
        label=f"accuracy and true order, {percent}",
    )
    tau = table["kendall_accuracy_posterior"]
    right.hlines(tau, table["cv_lower"], table["cv_upper"], color=colour, alpha=0.6, label=f"CV, {percent}")
    dots = (
        (left, "cBMM", table["cbmm_cv"], table["kendall_accuracy_cbmm"]),
        (right, "posterior mean", table["cv"], tau),
    )
    for panel, name, across, upwards in dots:
        panel.plot(across, upwards, "o", color=colour, label=f"accuracy and {name}")
        panel.set_xlabel("heterogeneity (CV of discriminations)")
        panel.spines[["top", "right"]].set_visible(False)
        panel.grid(color="0.5", alpha=0.2, linewidth=0.6)
        panel.set_axisbelow(True)
        panel.legend(loc="lower center", bbox_to_anchor=(0.5, 1), ncols=3, frameon=False, fontsize=LABEL_SIZE)
    left.set_ylabel("rank agreement (Kendall's tau)")
    for panel, _, across, upwards in dots:
        _name_dots(panel, across, upwards)
    return figure


def _name_dots(panel: Axes, across: pd.Series, upwards: pd.Series) -> None:
    """Write the suites' names at the right of axes whose limits are final."""
    panel.set_xlim(panel.get_xlim())
    panel.set_ylim(panel.get_ylim())
    labels = [
        PointLabel(str(name), float(x), float(y), ink(panel))
        for name, x, y in zip(across.index, across, upwards, strict=True)
        if pd.notna(x) and pd.notna(y)
    ]
    stack_labels(panel, labels, panel.get_xlim()[1], panel.get_ylim(), align="left")


def _save(figure: Figure | None, path: Path) -> None:
    assert figure is not None
    figure.savefig(path, dpi=150)
    plt.close(figure)


def _markdown(
    found: Mapping[str, RankingComparison],
    relation: HeterogeneityRelation,
    movers: Mapping[str, Movers],
    flaws: Mapping[str, str],
) -> str:
    """Return what the tables and figures say."""
    percent = percent_text(next(iter(found.values())).prob)
    lines = ["# Accuracy, cBMM and posterior compared", ""]
    lines += [f"- {markdown_text(f'{name}: {flaw}')}" for name, flaw in flaws.items()] + [""] * bool(flaws)
    lines += ["## Across suites", "", *(f"{sentence}  " for sentence in relation.sentences), ""]
    lines += [markdown_table(suite_rows(relation, percent)), _LEGEND.format(percent=percent), ""]
    lines += ["![Rank agreement against heterogeneity](heterogeneity.png)", ""]
    lines += ["## Rank agreement", "", markdown_table(agreement_rows(found, percent))]
    for name, comparison in found.items():
        lines += [f"## {markdown_text(name)}", "", str(comparison.responses), ""]
        lines += [
            f"{markdown_text(sentence)}  " for sentence in comparison.sentences[len(comparison.agreement) :]
        ] + [""]
        if name in movers and len(movers[name].table):
            lines += ["Who moves most:", ""]
            lines += [f"- {markdown_text(sentence)}" for sentence in movers[name].sentences] + [""]
        lines += [f"![Ranks of {name}](<flow_{name}.png>)", ""]
        if comparison.has_ability:
            lines += [f"![Ability and accuracy of {name}](<accuracy_{name}.png>)", ""]
    return "\n".join(lines)


_LEGEND = (
    "CV: coefficient of variation of the items' discriminations, with its {percent} interval. tau: Kendall's rank "
    "correlation of accuracy with cBMM ability, with the posterior mean, and with the true order as far as the "
    "posterior knows it. Inside: LLMs whose rank by accuracy, or by cBMM, lies inside the {percent} interval of their "
    "posterior rank."
)


def suite_rows(relation: HeterogeneityRelation, percent: str) -> pd.DataFrame:
    """Return one row of text per suite."""
    t = relation.table
    shown = {
        "suite": t.index.to_series().astype(str),
        "LLMs": t["num_llms"].map("{:,}".format),
        "items": t["num_items"].map("{:,}".format),
        "CV cBMM": t["cbmm_cv"].map("{:.2f}".format),
        f"CV {percent}": _spans(t["cv"], t["cv_lower"], t["cv_upper"], 2),
        "tau cBMM": t["kendall_accuracy_cbmm"].map("{:.3f}".format),
        "tau posterior": t["kendall_accuracy_posterior"].map("{:.3f}".format),
        f"tau true order {percent}": _spans(t["kendall_mean"], t["kendall_lower"], t["kendall_upper"], 3),
        "accuracy inside": t["accuracy_inside"].map("{:.0%}".format),
        "cBMM inside": t["cbmm_inside"].map("{:.0%}".format),
    }
    return pd.DataFrame(shown)


def agreement_rows(found: Mapping[str, RankingComparison], percent: str) -> pd.DataFrame:
    """Return one row of text per suite and pair of rankings."""
    t = stacked({name: one.agreement for name, one in found.items()}).reset_index(drop=True)
    shown = {
        "suite": t["suite"],
        "rankings": t["first"].map(NAMES) + ", " + t["second"].map(NAMES),
        "tau": t["kendall_tau"].map("{:.3f}".format),
        f"tau with the true order {percent}": _spans(
            t["kendall_mean"], t["kendall_lower"], t["kendall_upper"], 3
        ),
        "Spearman": t["spearman"].map("{:.3f}".format),
        f"Spearman with the true order {percent}": _spans(
            t["spearman_mean"], t["spearman_lower"], t["spearman_upper"], 3
        ),
    }
    return pd.DataFrame(shown)


def _spans(middle: pd.Series, lower: pd.Series, upper: pd.Series, digits: int) -> list[str]:
    parts = zip(middle, lower, upper, strict=True)
    return ["" if pd.isna(m) else f"{m:.{digits}f} [{a:.{digits}f}, {b:.{digits}f}]" for m, a, b in parts]


if __name__ == "__main__":
    sys.exit(main())
