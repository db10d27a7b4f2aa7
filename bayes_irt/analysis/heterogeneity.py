"""Across suites: where items discriminate unequally, accuracy and ability rank LLMs less alike.

References
----------
Qu, X., Heng, Q., Zeng, H. & Liu, X. (2026). An interpretable and scalable framework for evaluating large language
models. arXiv 2605.07046 (the finding on seven suites, by cBMM).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pandas as pd
from scipy import stats

from bayes_irt.analysis.comparison import RankingComparison
from bayes_irt.errors import InvalidConfigurationError
from bayes_irt.formatting import markdown_table, markdown_text, p_value_text

FEWEST_SUITES = 3
_RELATED = (("cbmm_cv", "kendall_accuracy_cbmm", "cBMM"), ("cv", "kendall_accuracy_posterior", "posterior"))


@dataclass(frozen=True, slots=True, eq=False)
class HeterogeneityRelation:
    """Hold, suite by suite, how unequally items discriminate and how far accuracy agrees with ability.

    Parameters
    ----------
    table
        One row per suite, indexed by its name: ``num_llms``, ``num_items``; the coefficient of variation of the
        discriminations by cBMM (``cbmm_cv``) and by the posterior (``cv``, ``cv_lower``, ``cv_upper``); Kendall's tau
        of accuracy with the cBMM estimate (``kendall_accuracy_cbmm``), with the posterior mean
        (``kendall_accuracy_posterior``) and with the true order (``kendall_mean``, ``kendall_lower``,
        ``kendall_upper``); and the shares of LLMs whose accuracy and cBMM rank lie inside their posterior rank interval
        (``accuracy_inside``, ``cbmm_inside``).
    correlations
        By source, ``cbmm`` and ``posterior``: Kendall's tau across suites of heterogeneity with agreement
        (``kendall_tau``, negative where more heterogeneity goes with less agreement), its two-sided ``p_value`` (exact
        without ties) and ``num_suites``. NaN for fewer than 3 suites, or where all are tied.

    Examples
    --------
    >>> from bayes_irt import Priors, Sampler, compare_rankings, fit_cbmm, fit_nuts, simulate_suite
    >>> comparisons = {}
    >>> for seed in range(3):
    ...     responses = simulate_suite(6, 20, seed=seed).responses
    ...     posterior = fit_nuts(responses, sampler=Sampler(num_chains=2, num_warmup=100, num_draws=100))
    ...     estimate = fit_cbmm(responses, penalty=Priors())
    ...     comparisons[f"suite {seed}"] = compare_rankings(posterior, estimate, responses)
    >>> relate_heterogeneity(comparisons).correlations["num_suites"].tolist()
    [3, 3]
    """

    table: pd.DataFrame
    correlations: pd.DataFrame

    @property
    def sentences(self) -> tuple[str, ...]:
        """The relation in words, for cBMM and for the posterior."""
        return tuple(
            self._sentence(source, name) for source, name in zip(("cbmm", "posterior"), _NAMES, strict=True)
        )

    def _sentence(self, source: str, name: str) -> str:
        row = self.correlations.loc[source].to_dict()
        number = int(row["num_suites"])
        if np.isnan(row["kendall_tau"]):
            return (
                f"By {name}, no relation can be given between heterogeneity of discrimination and rank agreement: it "
                f"takes at least {FEWEST_SUITES} suites that differ, and there are {number}."
            )
        less = "less" if row["kendall_tau"] < 0 else "more"
        return (
            f"By {name}, over {number} suites, more heterogeneity of discrimination goes with {less} agreement of "
            f"accuracy and ability (Kendall's tau {row['kendall_tau']:+.2f}, p {p_value_text(row['p_value'])})."
        )

    def to_markdown(self) -> str:
        """Return the table as Markdown, the relation below.

        Returns
        -------
        str
            Cells with a pipe are escaped.
        """
        shown = self.table.reset_index()
        fractions = [name for name in shown.columns if shown[name].dtype.kind == "f"]
        shown[fractions] = shown[fractions].map("{:.3f}".format)
        return markdown_table(shown) + "\n" + "".join(f"{markdown_text(text)}  \n" for text in self.sentences)

    def to_json(self) -> str:
        """Return the relation as one JSON object.

        Returns
        -------
        str
            With ``suites``, ``correlations`` and ``sentences``; what is not applicable is null.
        """
        tables = {"suites": self.table.reset_index(), "correlations": self.correlations.reset_index()}
        rows = {
            name: json.loads(t.to_json(orient="records", double_precision=15)) for name, t in tables.items()
        }
        return json.dumps({"sentences": self.sentences, **rows}, indent=2, ensure_ascii=False)


_NAMES = tuple(name for _, _, name in _RELATED)


def relate_heterogeneity(comparisons: Mapping[str, RankingComparison]) -> HeterogeneityRelation:
    """Relate the heterogeneity of discrimination to rank agreement, across suites.

    Parameters
    ----------
    comparisons
        Name of a suite to its comparison; all at the same probability.

    Returns
    -------
    HeterogeneityRelation
        Table by suite, and the correlations across them. They say nothing about causes: suites differ in length, LLMs
        and difficulty too, and short ones agree less by chance.

    Raises
    ------
    InvalidConfigurationError
        If there is no comparison, or their intervals have different probabilities.

    Examples
    --------
    >>> from bayes_irt import Priors, Sampler, compare_rankings, fit_cbmm, fit_nuts, simulate_suite
    >>> responses = simulate_suite(6, 20).responses
    >>> posterior = fit_nuts(responses, sampler=Sampler(num_chains=2, num_warmup=100, num_draws=100))
    >>> comparison = compare_rankings(posterior, fit_cbmm(responses, penalty=Priors()), responses)
    >>> relate_heterogeneity({"simulated": comparison}).table["num_items"].to_dict()
    {'simulated': 20}
    """
    if len({comparison.prob for comparison in comparisons.values()}) != 1:
        raise InvalidConfigurationError(
            "Give one comparison or more, all at the same prob: their intervals stand in one table."
        )
    index = pd.Index(list(comparisons), name="suite", dtype=object)
    table = pd.DataFrame([_row(comparison) for comparison in comparisons.values()], index=index)
    rows = [_relation(table[cv].to_numpy(), table[agreement].to_numpy()) for cv, agreement, _ in _RELATED]
    correlations = pd.DataFrame(
        rows,
        columns=["kendall_tau", "p_value", "num_suites"],
        index=pd.Index(["cbmm", "posterior"], name="source", dtype=object),
    )
    return HeterogeneityRelation(table, correlations)


def _row(comparison: RankingComparison) -> dict[str, float]:
    pairs = {(row["first"], row["second"]): row for row in comparison.agreement.to_dict("records")}
    with_posterior = pairs["accuracy", "posterior"]
    cv = comparison.heterogeneity.to_dict("index")
    return {
        "num_llms": comparison.responses.num_llms,
        "num_items": comparison.responses.num_items,
        "cbmm_cv": cv["cbmm"]["cv"],
        **{str(name): value for name, value in cv["posterior"].items()},
        "kendall_accuracy_cbmm": pairs["accuracy", "cbmm"]["kendall_tau"],
        "kendall_accuracy_posterior": with_posterior["kendall_tau"],
        **{name: with_posterior[name] for name in ("kendall_mean", "kendall_lower", "kendall_upper")},
        "accuracy_inside": comparison.table["accuracy_inside"].mean(),
        "cbmm_inside": comparison.table["cbmm_inside"].mean(),
    }


def _relation(heterogeneity: np.ndarray, agreement: np.ndarray) -> tuple[float, float, int]:
    known = np.isfinite(heterogeneity) & np.isfinite(agreement)
    first, second = heterogeneity[known], agreement[known]
    if len(first) < FEWEST_SUITES or np.ptp(first) == 0 or np.ptp(second) == 0:
        return np.nan, np.nan, len(first)
    found = stats.kendalltau(first, second)
    return float(found.statistic), float(found.pvalue), len(first)
