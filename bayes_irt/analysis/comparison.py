"""Accuracy, cBMM estimate and posterior compared: how far they rank LLMs alike, and who moves.

References
----------
Qu, X., Heng, Q., Zeng, H. & Liu, X. (2026). An interpretable and scalable framework for evaluating large language
models. arXiv 2605.07046.
"""

from __future__ import annotations

import json
from dataclasses import dataclass

import numpy as np
import pandas as pd
from jaxtyping import Float, Integer
from scipy import stats

from bayes_irt.analysis.accuracy import accuracy_with_error
from bayes_irt.analysis.agreement import rank_agreement
from bayes_irt.analysis.movers import Movers, explain_movers
from bayes_irt.analysis.ranks import ability_draws, rank_intervals, ranks_by_draw
from bayes_irt.arguments import require_whole
from bayes_irt.data_checks import FEWEST_FOR_ABILITY, require_linked
from bayes_irt.errors import InvalidConfigurationError
from bayes_irt.estimate import PointEstimate
from bayes_irt.formatting import markdown_table, markdown_text, percent_text
from bayes_irt.posterior import Posterior
from bayes_irt.provenance import require_same_data
from bayes_irt.responses import Responses

_ABILITY_COLUMNS = ["cbmm_ability", "ability", "ability_lower", "ability_upper", "cbmm_z"]
_NAMES = {"accuracy": "accuracy", "cbmm": "cBMM", "posterior": "posterior mean"}
_FAR = 2.0


@dataclass(frozen=True, slots=True, eq=False)
class RankingComparison:
    """Hold three rankings of the same LLMs: by accuracy, by cBMM estimate and by posterior.

    Parameters
    ----------
    table
        One row per LLM, best posterior mean first, indexed by LLM, with these columns:

        - ``accuracy``, with its normal-theory interval ``accuracy_lower`` to ``accuracy_upper``, cut at 0 and 1;
        - ``accuracy_rank``, the best place of those tied (1, 2, 2, 4), and ``accuracy_tied``, how many LLMs share it;
        - ``cbmm_ability``, ``cbmm_rank``, ``cbmm_tied``;
        - ``ability`` (posterior mean), ``ability_lower``, ``ability_upper``; abilities are missing below 4 LLMs;
        - ``posterior_rank`` (of the mean), ``rank_lower``, ``rank_upper``;
        - ``accuracy_inside``, ``cbmm_inside``: whether that rank lies in the posterior's interval; of tied LLMs' places
          one is enough;
        - ``cbmm_z``: the cBMM ability's distance from the posterior mean, in posterior sds;
        - ``move``: places gained from accuracy rank to posterior rank, for tied LLMs from the nearest of their places.
    agreement
        One row per pair of rankings, as `rank_agreement` returns it.
    heterogeneity
        Coefficient of variation of the items' discriminations (``cv``), by ``cbmm`` and by ``posterior`` (its mean
        over draws, with ``cv_lower`` and ``cv_upper``): 0 where all items discriminate alike.
    items
        Posterior means ``discrimination``, ``easiness`` and ``floor``, one row per item.
    responses
        The data.
    prob
        Probability of all intervals.

    Examples
    --------
    >>> from bayes_irt import Priors, Sampler, compare_rankings, fit_cbmm, fit_nuts, simulate_suite
    >>> responses = simulate_suite(6, 20).responses
    >>> estimate = fit_cbmm(responses, penalty=Priors())
    >>> posterior = fit_nuts(responses, sampler=Sampler(num_chains=2, num_warmup=100, num_draws=100))
    >>> comparison = compare_rankings(posterior, estimate, responses)
    >>> comparison.agreement[["first", "second"]].values.tolist()
    [['accuracy', 'cbmm'], ['accuracy', 'posterior'], ['cbmm', 'posterior']]
    """

    table: pd.DataFrame
    agreement: pd.DataFrame
    heterogeneity: pd.DataFrame
    items: pd.DataFrame
    responses: Responses
    prob: float

    @property
    def has_ability(self) -> bool:
        """Say whether abilities apply: with fewer than 4 LLMs they do not."""
        return len(self.table) >= FEWEST_FOR_ABILITY

    @property
    def sentences(self) -> tuple[str, ...]:
        """What the comparison says, in words."""
        agreement = tuple(self._on_agreement(row) for row in self.agreement.to_dict("records"))
        return (*agreement, self._on_ranks(), *([self._on_values()] if self.has_ability else []))

    def _on_agreement(self, row: dict) -> str:
        first, second = _NAMES[row["first"]], _NAMES[row["second"]]
        if np.isnan(row["kendall_tau"]):
            return (
                f"Rankings by {first} and {second}: no correlation, since all LLMs are tied in one of them."
            )
        text = (
            f"Rankings by {first} and {second}: Kendall's tau {row['kendall_tau']:.3f}, Spearman's "
            f"{row['spearman']:.3f}."
        )
        if np.isnan(row["kendall_lower"]):
            return text
        return (
            f"{text} With the true order, as far as the posterior knows it, {first} has a tau of "
            f"{row['kendall_mean']:.3f} ({percent_text(self.prob)} {row['kendall_lower']:.3f} to "
            f"{row['kendall_upper']:.3f})."
        )

    def _on_ranks(self) -> str:
        inside = {name: int(self.table[f"{name}_inside"].sum()) for name in ("accuracy", "cbmm")}
        return (
            f"Of {len(self.table):,} LLMs, {inside['accuracy']:,} have their accuracy rank inside the "
            f"{percent_text(self.prob)} interval of their posterior rank, and {inside['cbmm']:,} their cBMM rank."
        )

    def _on_values(self) -> str:
        far = int((self.table["cbmm_z"].abs() > _FAR).sum())
        median = self.table["cbmm_z"].abs().median()
        return (
            f"The cBMM ability lies a median of {median:.2f} posterior sds from the posterior mean; for {far:,} of "
            f"{len(self.table):,} LLMs it lies more than {_FAR:g} away."
        )

    def movers(self, count: int = 10, *, items_each: int = 5) -> Movers:
        """Return the LLMs that move most from accuracy rank to posterior rank, and the items that cause it.

        Parameters
        ----------
        count
            How many LLMs at most; those that do not move are left out.
        items_each
            How many items to name in either direction.

        Returns
        -------
        Movers
            The biggest move first, up or down; of equal moves the better LLM first.

        Raises
        ------
        InvalidConfigurationError
            If a number is not whole or below 1, or abilities are not applicable (fewer than 4 LLMs).
        """
        require_whole("count", count, 1)
        require_whole("items_each", items_each, 1)
        if not self.has_ability:
            raise InvalidConfigurationError(
                f"{len(self.table)} LLMs have no ability by which a move could be explained; it takes at least "
                f"{FEWEST_FOR_ABILITY}."
            )
        order = np.argsort(-self.table["move"].abs().to_numpy(), kind="stable")[:count]
        chosen = self.table.iloc[order]
        chosen = chosen[chosen["move"] != 0]
        return explain_movers(chosen, self.items, self.responses, self.prob, items_each)

    def formatted(self) -> pd.DataFrame:
        """Return the table as text, ready to be printed.

        Returns
        -------
        pandas.DataFrame
            Strings; an equals sign marks a shared rank, an asterisk one outside the posterior rank interval.
        """
        t, percent = self.table, percent_text(self.prob)
        shown: dict[str, pd.Series | list[str] | str] = {
            "LLM": t.index.to_series().astype(str),
            "accuracy": t["accuracy"].map("{:.3f}".format),
        }
        for name, heading in (("accuracy", "accuracy rank"), ("cbmm", "cBMM rank")):
            parts = zip(t[f"{name}_rank"], t[f"{name}_tied"], t[f"{name}_inside"], strict=True)
            shown[heading] = [
                f"{rank}{'=' if tied > 1 else ''}{'' if inside else ' *'}" for rank, tied, inside in parts
            ]
        shown["rank"] = t["posterior_rank"].astype(str)
        shown[f"rank {percent}"] = [f"{a}-{b}" for a, b in zip(t["rank_lower"], t["rank_upper"], strict=True)]
        shown["move"] = [f"{move:+d}" if move else "0" for move in t["move"]]
        signed = {"cBMM": "cbmm_ability", "ability": "ability", "cBMM z": "cbmm_z"}
        shown |= {
            heading: t[name].map("{:+.2f}".format) if self.has_ability else "n/a"
            for heading, name in signed.items()
        }
        return pd.DataFrame(shown, index=t.index).reset_index(drop=True)

    def to_markdown(self) -> str:
        """Return the table as Markdown, what it says below.

        Returns
        -------
        str
            Cells with a pipe are escaped.
        """
        legend = "= shared rank; * outside the posterior rank interval; move: places gained from accuracy rank to rank."
        return (
            markdown_table(self.formatted())
            + f"\n{legend}  \n"
            + "".join(f"{markdown_text(text)}  \n" for text in self.sentences)
        )

    def to_json(self) -> str:
        """Return the comparison as one JSON object.

        Returns
        -------
        str
            With ``prob``, ``sentences``, ``agreement``, ``heterogeneity`` and ``llms`` (the table's rows); what is not
            applicable is null.
        """
        tables = {
            "agreement": self.agreement,
            "heterogeneity": self.heterogeneity.reset_index(),
            "llms": self.table.reset_index(),
        }
        rows = {
            name: json.loads(t.to_json(orient="records", double_precision=15)) for name, t in tables.items()
        }
        return json.dumps(
            {"prob": self.prob, "sentences": self.sentences, **rows}, indent=2, ensure_ascii=False
        )


def compare_rankings(
    posterior: Posterior, estimate: PointEstimate, responses: Responses, *, prob: float = 0.9
) -> RankingComparison:
    """Compare the rankings of LLMs by accuracy, by cBMM estimate and by posterior.

    Parameters
    ----------
    posterior
        Draws of any engine.
    estimate
        The cBMM estimate of the same responses.
    responses
        The data.
    prob
        Probability of the equal-tailed intervals of ability, rank and rank correlation.

    Returns
    -------
    RankingComparison
        Tables and sentences. Rank correlations beside the posterior use at most 1,000 draws, spread evenly.

    Raises
    ------
    InvalidConfigurationError
        If posterior, estimate and responses are about different data or several traits, LLMs fall into groups that
        share no item, or `prob` is not in (0, 1).

    Examples
    --------
    >>> from bayes_irt import Priors, Sampler, fit_cbmm, fit_nuts, simulate_suite
    >>> responses = simulate_suite(6, 20).responses
    >>> estimate = fit_cbmm(responses, penalty=Priors())
    >>> posterior = fit_nuts(responses, sampler=Sampler(num_chains=2, num_warmup=100, num_draws=100))
    >>> compare_rankings(posterior, estimate, responses).table["posterior_rank"].tolist()
    [1, 2, 3, 4, 5, 6]
    """
    _check(posterior, estimate, responses, prob)
    draws = ability_draws(posterior)
    accuracy, _ = accuracy_with_error(responses)
    found = estimate.parameters
    cbmm, cbmm_slope = np.asarray(found.ability)[:, 0], np.asarray(found.discrimination)[:, 0]
    discrimination = posterior.draws["discrimination"]
    law = posterior.laws.mean()
    items = {
        "discrimination": np.asarray(law.parameters.discrimination)[:, 0],
        "easiness": law.parameters.easiness,
        "floor": np.zeros(responses.num_items) if law.floor is None else law.floor,
    }
    return RankingComparison(
        table=_table(draws, cbmm, responses, prob),
        agreement=rank_agreement({"accuracy": accuracy, "cbmm": cbmm}, draws, prob),
        heterogeneity=_heterogeneity(
            (discrimination.std("item") / discrimination.mean("item")).to_numpy().ravel(),
            cbmm_slope,
            prob,
        ),
        items=pd.DataFrame(items, index=pd.Index(responses.items, name="item", dtype=object)),
        responses=responses,
        prob=prob,
    )


def _check(posterior: Posterior, estimate: PointEstimate, responses: Responses, prob: float) -> None:
    require_same_data(posterior.provenance, responses.digest, "posterior")
    require_same_data(estimate.provenance, responses.digest, "estimate")
    require_linked(responses)
    posterior.require_one_trait("Comparisons of rankings")
    if estimate.parameters.num_traits != 1:
        raise InvalidConfigurationError(
            f"The estimate has {estimate.parameters.num_traits} traits; rankings are compared on one. Fit it with one."
        )
    if not 0 < prob < 1:
        raise InvalidConfigurationError(f"prob is {prob}; it must lie between 0 and 1, such as 0.9.")


def _table(
    draws: Float[np.ndarray, "sample llm"], cbmm: Float[np.ndarray, " llm"], responses: Responses, prob: float
) -> pd.DataFrame:
    accuracy, error = accuracy_with_error(responses)
    reach = stats.norm.isf((1 - prob) / 2) * error
    mean, sd = draws.mean(axis=0), draws.std(axis=0)
    ability_lower, ability_upper = np.quantile(draws, ((1 - prob) / 2, (1 + prob) / 2), axis=0)
    interval = rank_intervals(ranks_by_draw(draws), prob)
    posterior_rank = np.empty(len(mean), dtype=int)
    posterior_rank[np.lexsort((-accuracy, -mean))] = np.arange(1, len(mean) + 1)
    places = {name: _places(values) for name, values in (("accuracy", accuracy), ("cbmm", cbmm))}
    columns = {
        "accuracy": accuracy,
        "accuracy_lower": np.clip(accuracy - reach, 0, 1),
        "accuracy_upper": np.clip(accuracy + reach, 0, 1),
        "accuracy_rank": places["accuracy"][0],
        "accuracy_tied": np.diff(places["accuracy"], axis=0)[0] + 1,
        "cbmm_ability": cbmm,
        "cbmm_rank": places["cbmm"][0],
        "cbmm_tied": np.diff(places["cbmm"], axis=0)[0] + 1,
        "ability": mean,
        "ability_lower": ability_lower,
        "ability_upper": ability_upper,
        "posterior_rank": posterior_rank,
        "rank_lower": interval[0],
        "rank_upper": interval[1],
        "accuracy_inside": _overlap(places["accuracy"], interval),
        "cbmm_inside": _overlap(places["cbmm"], interval),
        "cbmm_z": np.divide(cbmm - mean, sd, out=np.full_like(mean, np.nan), where=sd > 0),
        "move": np.clip(posterior_rank, *places["accuracy"]) - posterior_rank,
    }
    index = pd.Index(responses.llms, name="llm", dtype=object)
    table = pd.DataFrame(columns, index=index).sort_values("posterior_rank", kind="stable")
    if len(table) < FEWEST_FOR_ABILITY:
        table[_ABILITY_COLUMNS] = np.nan
    return table


def _places(
    values: Float[np.ndarray, " llm"],
) -> tuple[Integer[np.ndarray, " llm"], Integer[np.ndarray, " llm"]]:
    """Return first and last of the places that each LLM shares with those tied with it."""
    first, last = (stats.rankdata(-values, method=method).astype(int) for method in ("min", "max"))
    return first, last


def _overlap(places: tuple[np.ndarray, np.ndarray], interval: tuple[np.ndarray, np.ndarray]) -> np.ndarray:
    return np.asarray((places[0] <= interval[1]) & (places[1] >= interval[0]))


def _heterogeneity(
    by_draw: Float[np.ndarray, " sample"], cbmm: Float[np.ndarray, " item"], prob: float
) -> pd.DataFrame:
    """Return the coefficient of variation of the discriminations; NaN where cBMM has none above 0."""
    lower, upper = np.quantile(by_draw, ((1 - prob) / 2, (1 + prob) / 2))
    own = cbmm.std() / cbmm.mean() if cbmm.any() else np.nan
    rows = [(own, np.nan, np.nan), (by_draw.mean(), lower, upper)]
    index = pd.Index(["cbmm", "posterior"], name="source", dtype=object)
    return pd.DataFrame(rows, columns=["cv", "cv_lower", "cv_upper"], index=index)
