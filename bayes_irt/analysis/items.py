"""Items: what each one says about the LLMs, which say nothing, and which speak against the rest."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd
from jaxtyping import Bool, Float
from scipy.special import expit
from scipy.stats import mannwhitneyu, spearmanr

from bayes_irt.arguments import require_probability
from bayes_irt.data_checks import FEWEST_FOR_ITEMS
from bayes_irt.formatting import percent_text
from bayes_irt.posterior import Posterior
from bayes_irt.provenance import require_same_data
from bayes_irt.replication import observed_statistics
from bayes_irt.responses import Responses

#: Chance that any item at all of a suite is called reversed although none is.
REVERSED_FALSE_ALARM = 0.05
_ROWS = 256


@dataclass(frozen=True, slots=True, eq=False)
class ItemOverview:
    """Hold the item table.

    Parameters
    ----------
    table
        One row per item, most informative first, indexed by item: ``accuracy`` (share of attempts), ``llms_seen``;
        ``discrimination`` and ``easiness`` (posterior means, logits) with ``_lower`` and ``_upper``; ``difficulty``
        (posterior median of minus easiness over discrimination, on the ability scale); ``item_rest`` (correlation of
        an LLM's share right with its share right on all other items; missing where either is constant);
        ``information_share`` (of all information about the abilities of these LLMs); ``answers`` ("all right", "all
        wrong" or "mixed"); ``reversed`` (whether stronger LLMs do worse, beyond chance).
    prob
        Probability of the intervals.

    Examples
    --------
    >>> from bayes_irt import fit_laplace, simulate_suite
    >>> responses = simulate_suite(30, 40).responses
    >>> overview = describe_items(fit_laplace(responses), responses)
    >>> overview.constant, overview.notes[0]
    (('item-0014',), '1 of 40 items carries no information about which LLM is better: 0 passed by all, 1 by none.')
    """

    table: pd.DataFrame
    prob: float

    @property
    def constant(self) -> tuple[str, ...]:
        """Items that all LLMs passed, or none: they say nothing about which LLM is better."""
        return tuple(self.table.index[self.table["answers"] != "mixed"].astype(str))

    @property
    def reversed(self) -> tuple[str, ...]:
        """Items on which stronger LLMs do worse, beyond chance: wrongly keyed, perhaps."""
        return tuple(self.table.index[self.table["reversed"]].astype(str))

    @property
    def notes(self) -> tuple[str, ...]:
        """What there is to say about the items, one sentence each."""
        return self._on_constant(), self._on_reversed(), self._on_information()

    def _on_constant(self) -> str:
        number, (right, wrong) = len(self.table), (self._number("all right"), self._number("all wrong"))
        if right + wrong == 0:
            return f"All {number:,} items have right and wrong answers."
        verb = "carries" if right + wrong == 1 else "carry"
        return (
            f"{right + wrong:,} of {number:,} items {verb} no information about which LLM is better: {right:,} passed "
            f"by all, {wrong:,} by none."
        )

    def _on_reversed(self) -> str:
        if self.table["llms_seen"].max() < FEWEST_FOR_ITEMS:
            return f"Whether items are wrongly keyed cannot be told from fewer than {FEWEST_FOR_ITEMS} LLMs."
        found = len(self.reversed)
        if found == 0:
            return "On no item do stronger LLMs do worse beyond chance."
        counted = f"{found:,} {'item' if found == 1 else 'items'}"
        return f"On {counted} stronger LLMs do worse, beyond chance: look at the key."

    def _on_information(self) -> str:
        running = np.cumsum(self.table["information_share"].to_numpy())
        if running[-1] == 0.0:
            return "No item carries information."
        half = min(int(np.searchsorted(running, 0.5)) + 1, len(running))
        return f"Half of the information comes from {half:,} of {len(running):,} items."

    def _number(self, answers: str) -> int:
        return int((self.table["answers"] == answers).sum())

    def formatted(self) -> pd.DataFrame:
        """Return the table as text, ready to be printed.

        Returns
        -------
        pandas.DataFrame
            Strings.
        """
        t, percent = self.table, percent_text(self.prob)
        spans = {
            name: [f"[{a:.2f}, {b:.2f}]" for a, b in zip(t[f"{name}_lower"], t[f"{name}_upper"], strict=True)]
            for name in ("discrimination", "easiness")
        }
        columns = {
            "item": t.index.to_series().astype(str),
            "accuracy": t["accuracy"].map("{:.3f}".format),
            "discrimination": t["discrimination"].map("{:.2f}".format),
            f"discrimination {percent}": spans["discrimination"],
            "easiness": t["easiness"].map("{:+.2f}".format),
            f"easiness {percent}": spans["easiness"],
            "item-rest": [f"{r:+.2f}" if np.isfinite(r) else "n/a" for r in t["item_rest"]],
            "information": t["information_share"].map(lambda share: f"{100 * share:.2f}%"),
            "LLMs": t["llms_seen"].astype(str),
        }
        return pd.DataFrame(columns, index=t.index).reset_index(drop=True)


def describe_items(posterior: Posterior, responses: Responses, *, prob: float = 0.9) -> ItemOverview:
    """Describe each item by its parameters, its fit to the rest, and the information it gives.

    Parameters
    ----------
    posterior
        Draws of the items.
    responses
        The data.
    prob
        Probability of the equal-tailed intervals.

    Returns
    -------
    ItemOverview
        Most informative item first. Information is Fisher's about ability, ``n a^2 p (1 - p)`` at the posterior means,
        summed over the LLMs that saw the item; constant items have none. An item is called reversed where at least 20
        LLMs saw it and those who did better on it rank lower on the rest, beyond chance: by Mann and Whitney's test
        where cells are right or wrong, by Spearman's correlation where they are counts (one-sided; over all items
        together the chance of a false alarm is .05).

    Raises
    ------
    InvalidConfigurationError
        If the posterior is about other data, or `prob` is not in (0, 1).

    References
    ----------
    Lord, F. M. (1980). Applications of item response theory to practical testing problems, chapter 5.

    Examples
    --------
    >>> from bayes_irt import fit_laplace, simulate_suite
    >>> responses = simulate_suite(30, 40).responses
    >>> describe_items(fit_laplace(responses), responses).table.shape
    (40, 13)
    """
    posterior.require_one_trait("Items' positions and informations")
    require_same_data(posterior.provenance, responses.digest, "posterior")
    require_probability("prob", prob)
    draws = posterior.parameters
    slopes, easiness = np.asarray(draws.discrimination)[..., 0], np.asarray(draws.easiness)
    attempts = responses.attempts.sum(axis=0, dtype=np.float64)
    right = responses.successes.sum(axis=0, dtype=np.float64)
    seen = (responses.attempts > 0).sum(axis=0)
    item_rest = observed_statistics(responses).item_rest
    answers = np.where(right == attempts, "all right", np.where(right == 0, "all wrong", "mixed"))
    information = np.where(answers == "mixed", _information(posterior, responses), 0.0)
    tails = ((1 - prob) / 2, (1 + prob) / 2)
    with np.errstate(divide="ignore"):
        difficulty = np.median(-easiness / slopes, axis=0)
    columns: dict[str, np.ndarray] = {"accuracy": right / attempts, "llms_seen": seen}
    for name, values in (("discrimination", slopes), ("easiness", easiness)):
        lower, upper = np.quantile(values, tails, axis=0)
        columns |= {name: values.mean(axis=0), f"{name}_lower": lower, f"{name}_upper": upper}
    columns |= {
        "difficulty": difficulty,
        "item_rest": item_rest,
        "information_share": information / max(information.sum(), np.finfo(float).tiny),
        "answers": answers,
        "reversed": _reversed(item_rest, responses),
    }
    table = pd.DataFrame(columns, index=pd.Index(responses.items, name="item", dtype=object))
    return ItemOverview(table.sort_values("information_share", ascending=False, kind="stable"), prob)


def _information(posterior: Posterior, responses: Responses) -> Float[np.ndarray, " item"]:
    """Return Fisher's information about the abilities of the LLMs that saw each item."""
    law, total = posterior.laws.mean(), np.zeros(responses.num_items)
    slopes = np.asarray(law.parameters.discrimination)[:, 0]
    for start in range(0, responses.num_llms, _ROWS):
        rows = slice(start, start + _ROWS)
        known, chance = expit(law.logits(rows)), law.chances(rows)
        attempts = responses.attempts[rows].astype(np.float64)
        by_logit = (chance - (0.0 if law.floor is None else law.floor)) * known * (1.0 - known) / chance
        total += slopes**2 * np.sum(attempts * by_logit / law.inflation(attempts), axis=0)
    return total


def _reversed(item_rest: Float[np.ndarray, " item"], responses: Responses) -> Bool[np.ndarray, " item"]:
    """Say on which items stronger LLMs do worse, by ranks: one LLM far out must not decide."""
    seen = (responses.attempts > 0).sum(axis=0)
    enough = np.isfinite(item_rest) & (seen >= FEWEST_FOR_ITEMS)
    found = np.zeros(len(seen), dtype=bool)
    if not enough.any():
        return found
    attempts, right = responses.attempts.astype(np.float64), responses.successes.astype(np.float64)
    tried, passed = attempts.sum(axis=1), right.sum(axis=1)
    for item in np.flatnonzero(enough & (item_rest < 0)):
        rows = (attempts[:, item] > 0) & (tried > attempts[:, item])
        rest = (passed[rows] - right[rows, item]) / (tried[rows] - attempts[rows, item])
        p_value = _lower_tail(right[rows, item] / attempts[rows, item], rest)
        found[item] = p_value < REVERSED_FALSE_ALARM / enough.sum()
    return found


def _lower_tail(share: Float[np.ndarray, " llm"], rest: Float[np.ndarray, " llm"]) -> float:
    """Return the p-value of a negative relation."""
    if np.isin(share, (0.0, 1.0)).all():
        return float(mannwhitneyu(rest[share == 1.0], rest[share == 0.0], alternative="less").pvalue)
    return float(spearmanr(share, rest, alternative="less").pvalue)
