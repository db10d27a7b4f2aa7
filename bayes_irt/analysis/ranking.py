"""The leaderboard: accuracy, cBMM estimate and posterior of every LLM, with intervals for ability and rank."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pandas as pd
from jaxtyping import Float, Integer
from scipy.stats import rankdata

from bayes_irt.analysis.reliability import ability_reliability, score_spread_p_value
from bayes_irt.data_checks import FEWEST_FOR_ABILITY, linked_components
from bayes_irt.errors import InvalidConfigurationError, some
from bayes_irt.estimate import PointEstimate
from bayes_irt.posterior import Posterior
from bayes_irt.provenance import require_same_data
from bayes_irt.responses import Responses

#: Below this reliability, or above this p-value of the scores' spread, no common ability was found.
LEAST_RELIABILITY = 0.3
LARGEST_P_VALUE = 0.05

_ABILITY_COLUMNS = ("cbmm_ability", "ability", "ability_lower", "ability_upper")


@dataclass(frozen=True, slots=True, eq=False)
class Leaderboard:
    """Hold a leaderboard.

    Parameters
    ----------
    table
        One row per LLM, best posterior mean first, indexed by LLM: ``position``; ``accuracy`` (share of attempts)
        and ``accuracy_se``; ``cbmm_ability`` and ``cbmm_rank``; ``ability`` (posterior mean) with ``ability_lower``
        and ``ability_upper``; ``rank_lower`` and ``rank_upper``; ``p_best``; ``items_seen``. Abilities are in
        standard deviations of the LLMs on the board; they are missing where there are fewer than 4 LLMs.
    prob
        Probability of the intervals.
    reliability
        1 minus the mean posterior variance of ability.
    p_value
        Of the test whether the LLMs' scores differ at all.
    components
        Groups of LLMs linked by shared items, largest first.

    Examples
    --------
    >>> from bayes_irt import Priors, Sampler, fit_cbmm, fit_nuts, simulate_suite
    >>> responses = simulate_suite(6, 20).responses
    >>> sampler = Sampler(num_chains=2, num_warmup=100, num_draws=100)
    >>> estimate = fit_cbmm(responses, penalty=Priors())
    >>> board = rank_llms(fit_nuts(responses, sampler=sampler), estimate, responses)
    >>> board.has_ability, len(board.notes)
    (True, 2)
    """

    table: pd.DataFrame
    prob: float
    reliability: float
    p_value: float
    components: tuple[tuple[str, ...], ...]

    @property
    def has_ability(self) -> bool:
        """Say whether abilities apply: with fewer than 4 LLMs they do not."""
        return len(self.table) >= FEWEST_FOR_ABILITY

    @property
    def found_ability(self) -> bool:
        """Say whether the data show a common ability at all."""
        return self.reliability >= LEAST_RELIABILITY and self.p_value <= LARGEST_P_VALUE

    @property
    def notes(self) -> tuple[str, ...]:
        """What stands under the board: how far it can be trusted, and what the intervals cover."""
        return tuple(note for note in (self._on_ability(), self._on_links(), self._on_intervals()) if note)

    def _on_ability(self) -> str:
        if not self.has_ability:
            return (
                f"{len(self.table)} LLMs: ability is not applicable (it is standardised over the LLMs, and takes at "
                f"least {FEWEST_FOR_ABILITY}); P(best) and ranks are."
            )
        figures = (
            f"reliability {self.reliability:.2f}, test of the spread of scores p {_p_text(self.p_value)}"
        )
        if not self.found_ability:
            return f"No common ability was found ({figures}): the order below may be chance, nobody is best."
        return f"Ability in sd of these LLMs; {figures}."

    def _on_links(self) -> str:
        if len(self.components) == 1:
            return ""
        apart = [group[0] for group in self.components]
        return (
            f"The LLMs fall into {len(self.components)} groups that share no item (one of each: {some(apart)}): "
            "comparisons between groups rest on the prior alone."
        )

    def _on_intervals(self) -> str:
        return (
            f"{percent_text(self.prob)} intervals cover run-to-run noise and the choice of items like these; they do "
            "not cover prompts, the evaluation harness or contamination."
        )

    def formatted(self) -> pd.DataFrame:
        """Return the board as text, ready to be printed.

        Returns
        -------
        pandas.DataFrame
            Strings: position, LLM, accuracy with its standard error, cBMM ability and rank, ability and rank with
            intervals, P(best), items seen.
        """
        t, percent = self.table, percent_text(self.prob)
        ability = t["ability"].map("{:+.2f}".format)
        spread = [
            f"[{a:+.2f}, {b:+.2f}]" for a, b in zip(t["ability_lower"], t["ability_upper"], strict=True)
        ]
        if not self.has_ability:
            spread = ["n/a"] * len(t)
        columns = {
            "#": t["position"].astype(str),
            "LLM": t.index.to_series().astype(str),
            "accuracy": [
                f"{a:.3f} ± {_se_text(s)}" for a, s in zip(t["accuracy"], t["accuracy_se"], strict=True)
            ],
            "cBMM": t["cbmm_ability"].map("{:+.2f}".format) if self.has_ability else "n/a",
            "cBMM rank": t["cbmm_rank"].astype(str),
            "ability": ability if self.has_ability else "n/a",
            f"ability {percent}": spread,
            f"rank {percent}": [f"{a}-{b}" for a, b in zip(t["rank_lower"], t["rank_upper"], strict=True)],
            "P(best)": t["p_best"].map(_share_text),
            "items": t["items_seen"].astype(str),
        }
        return pd.DataFrame(columns, index=t.index).reset_index(drop=True)

    def to_markdown(self) -> str:
        """Return the board as a Markdown table, notes below.

        Returns
        -------
        str
            Cells with a pipe are escaped.
        """
        return markdown_table(self.formatted()) + "\n" + "".join(f"{note}  \n" for note in self.notes)

    def to_json(self) -> str:
        """Return the board as one JSON object: ``llms`` (the table's rows), and what stands under it.

        Returns
        -------
        str
            What is not applicable is null.
        """
        described = {
            "prob": self.prob,
            "reliability": self.reliability,
            "p_value": self.p_value,
            "found_ability": self.found_ability,
            "components": self.components,
            "notes": self.notes,
            "llms": json.loads(self.table.reset_index().to_json(orient="records", double_precision=15)),
        }
        return json.dumps(described, indent=2, ensure_ascii=False)


def rank_llms(
    posterior: Posterior, estimate: PointEstimate, responses: Responses, prob: float = 0.9
) -> Leaderboard:
    """Rank LLMs by their posterior ability, beside their accuracy and cBMM estimate.

    Parameters
    ----------
    posterior
        Draws of the abilities.
    estimate
        The cBMM estimate of the same responses.
    responses
        The data.
    prob
        Probability of the equal-tailed intervals of ability and rank.

    Returns
    -------
    Leaderboard
        Best posterior mean ability first. The standard error of an accuracy treats an item's attempts as one
        cluster. A rank interval holds at least `prob` of the posterior of the rank.

    Raises
    ------
    InvalidConfigurationError
        If posterior, estimate and responses are about different LLMs or items, or `prob` is not in (0, 1).

    Examples
    --------
    >>> from bayes_irt import Priors, Sampler, fit_cbmm, fit_nuts, simulate_suite
    >>> responses = simulate_suite(6, 20).responses
    >>> estimate = fit_cbmm(responses, penalty=Priors())
    >>> sampler = Sampler(num_chains=2, num_warmup=100, num_draws=100)
    >>> board = rank_llms(fit_nuts(responses, sampler=sampler), estimate, responses)
    >>> board.table.columns.tolist()[:3]
    ['position', 'accuracy', 'accuracy_se']
    """
    _check_same({"posterior": posterior, "estimate": estimate}, responses)
    if not 0 < prob < 1:
        raise InvalidConfigurationError(f"prob is {prob}; it must lie between 0 and 1, such as 0.9.")
    draws = posterior.ability.stack(sample=("chain", "draw")).transpose("sample", "llm").to_numpy()
    ranks = ranks_by_draw(draws)
    tails = ((1 - prob) / 2, (1 + prob) / 2)
    lower, upper = np.quantile(draws, tails, axis=0)
    rank_lower, rank_upper = rank_intervals(ranks, prob)
    accuracy, error = accuracy_with_error(responses)
    cbmm = estimate.parameters.ability[:, 0]
    table = pd.DataFrame(
        {
            "accuracy": accuracy,
            "accuracy_se": error,
            "cbmm_ability": cbmm,
            "cbmm_rank": rankdata(-cbmm, method="min").astype(int),
            "ability": draws.mean(axis=0),
            "ability_lower": lower,
            "ability_upper": upper,
            "rank_lower": rank_lower,
            "rank_upper": rank_upper,
            "p_best": (ranks == 1).mean(axis=0),
            "items_seen": (responses.attempts > 0).sum(axis=1),
        },
        index=pd.Index(responses.llms, name="llm", dtype=object),
    ).sort_values(["ability", "accuracy"], ascending=False, kind="stable")
    table.insert(0, "position", np.arange(1, len(table) + 1))
    if len(table) < FEWEST_FOR_ABILITY:
        table.loc[:, list(_ABILITY_COLUMNS)] = np.nan
    return Leaderboard(
        table=table,
        prob=prob,
        reliability=ability_reliability(posterior),
        p_value=score_spread_p_value(responses),
        components=tuple(linked_components(responses)),
    )


def rank_estimate(estimate: PointEstimate, responses: Responses) -> pd.DataFrame:
    """Rank LLMs by their cBMM estimate alone, without error bars.

    Parameters
    ----------
    estimate
        The cBMM estimate of the responses.
    responses
        The data.

    Returns
    -------
    pandas.DataFrame
        One row per LLM, most able first: ``position``, ``accuracy``, ``accuracy_se``, ``cbmm_ability`` (missing with
        fewer than 4 LLMs), ``items_seen``.

    Raises
    ------
    InvalidConfigurationError
        If the estimate is about other LLMs or items.

    Examples
    --------
    >>> from bayes_irt import Priors, fit_cbmm, simulate_suite
    >>> responses = simulate_suite(6, 20).responses
    >>> rank_estimate(fit_cbmm(responses, penalty=Priors()), responses).shape
    (6, 5)
    """
    _check_same({"estimate": estimate}, responses)
    accuracy, error = accuracy_with_error(responses)
    columns = {"accuracy": accuracy, "accuracy_se": error, "cbmm_ability": estimate.parameters.ability[:, 0]}
    table = pd.DataFrame(columns, index=pd.Index(responses.llms, name="llm", dtype=object))
    table["items_seen"] = (responses.attempts > 0).sum(axis=1)
    table = table.sort_values(["cbmm_ability", "accuracy"], ascending=False, kind="stable")
    table.insert(0, "position", np.arange(1, len(table) + 1))
    if len(table) < FEWEST_FOR_ABILITY:
        table["cbmm_ability"] = np.nan
    return table


def markdown_table(table: pd.DataFrame) -> str:
    r"""Return a table of text as Markdown.

    Parameters
    ----------
    table
        The cells; the index is left out.

    Returns
    -------
    str
        Pipes in cells are escaped.

    Examples
    --------
    >>> print(markdown_table(pd.DataFrame({"LLM": ["a|b"]})))
    | LLM |
    | --- |
    | a\|b |
    <BLANKLINE>
    """
    rows = [list(table.columns), ["---"] * len(table.columns), *table.to_numpy().tolist()]
    lines = ["| " + " | ".join(str(cell).replace("|", "\\|") for cell in row) + " |" for row in rows]
    return "\n".join(lines) + "\n"


def ranks_by_draw(ability: Float[np.ndarray, "sample llm"]) -> Integer[np.ndarray, "sample llm"]:
    """Return each LLM's rank in each draw, 1 for the most able.

    Parameters
    ----------
    ability
        Draws of the abilities.

    Returns
    -------
    numpy.ndarray
        Ranks; every draw holds each rank once.

    Examples
    --------
    >>> ranks_by_draw(np.array([[0.1, 0.9, -1.0]]))
    array([[2, 1, 3]])
    """
    order = np.argsort(-ability, axis=1, kind="stable")
    ranks = np.empty(order.shape, dtype=np.int64)
    np.put_along_axis(ranks, order, np.arange(1, order.shape[1] + 1)[None, :], axis=1)
    return ranks


def rank_intervals(
    ranks: Integer[np.ndarray, "sample llm"], prob: float
) -> tuple[Integer[np.ndarray, " llm"], Integer[np.ndarray, " llm"]]:
    """Return the interval of each LLM's rank that a leaderboard shows.

    Parameters
    ----------
    ranks
        Draws of the ranks.
    prob
        Probability of the intervals.

    Returns
    -------
    tuple of numpy.ndarray
        Lowest and highest rank; together with what is between they hold at least `prob` of the draws.

    Examples
    --------
    >>> rank_intervals(np.array([[1, 2], [1, 2], [1, 2], [2, 1]]), 0.4)
    (array([1, 2]), array([1, 2]))
    """
    tails = ((1 - prob) / 2, (1 + prob) / 2)
    lower, upper = np.quantile(ranks, tails, axis=0, method="inverted_cdf").astype(int)
    return lower, upper


def accuracy_with_error(responses: Responses) -> tuple[Float[np.ndarray, " llm"], Float[np.ndarray, " llm"]]:
    """Return each LLM's share of right attempts and its standard error, items being clusters of attempts.

    Parameters
    ----------
    responses
        The data.

    Returns
    -------
    tuple of numpy.ndarray
        Accuracy and standard error; the error of an LLM with one item is NaN (it cannot be estimated).

    References
    ----------
    Cochran, W. G. (1977). Sampling Techniques, 3rd ed., section 2.11 (the ratio estimator).

    Examples
    --------
    >>> one_each = Responses.from_arrays(np.array([[1, 1, 0, 0], [1, 1, 1, 0]]))
    >>> [values.round(3).tolist() for values in accuracy_with_error(one_each)]
    [[0.5, 0.75], [0.289, 0.25]]
    """
    attempts, successes = responses.attempts.astype(np.float64), responses.successes.astype(np.float64)
    tried, seen = attempts.sum(axis=1), (attempts > 0).sum(axis=1)
    accuracy = successes.sum(axis=1) / tried
    squares = np.square(successes - accuracy[:, None] * attempts).sum(axis=1)
    several = seen > 1
    correction = np.divide(seen, seen - 1, out=np.full(seen.shape, np.nan), where=several)
    return accuracy, np.sqrt(squares * correction) / tried


def _check_same(fits: Mapping[str, Posterior | PointEstimate], responses: Responses) -> None:
    for name, fitted in fits.items():
        require_same_data(fitted.provenance, responses.digest, name)
        if isinstance(fitted, PointEstimate) and fitted.parameters.num_traits != 1:
            raise InvalidConfigurationError(
                f"The {name} has {fitted.parameters.num_traits} traits, and LLMs are ranked on one. Fit it with one."
            )


def percent_text(share: float) -> str:
    """Return a share as a percentage without needless digits.

    Parameters
    ----------
    share
        Between 0 and 1.

    Returns
    -------
    str
        The percentage.

    Examples
    --------
    >>> percent_text(0.9), percent_text(0.995)
    ('90%', '99.5%')
    """
    return f"{100 * share:.6g}%"


def _p_text(value: float) -> str:
    return f"= {value:.3f}" if value >= 0.001 else "< 0.001"


def _se_text(value: float) -> str:
    return "n/a" if np.isnan(value) else f"{value:.3f}"


def _share_text(value: float) -> str:
    return "< .001" if value < 0.001 else f"{value:.3f}".removeprefix("0")
