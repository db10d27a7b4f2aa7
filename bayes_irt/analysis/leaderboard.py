"""`Leaderboard`: the table of ranked LLMs, what stands under it, and its forms as text."""

from __future__ import annotations

import json
from dataclasses import dataclass

import pandas as pd

from bayes_irt.data_checks import FEWEST_FOR_ABILITY
from bayes_irt.errors import some
from bayes_irt.formatting import (
    markdown_table,
    p_value_text,
    percent_text,
    probability_text,
    standard_error_text,
)

#: Below this reliability, or above this p-value of the scores' spread, no common ability was found.
LEAST_RELIABILITY = 0.3
LARGEST_P_VALUE = 0.05


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
    >>> from bayes_irt import Priors, Sampler, fit_cbmm, fit_nuts, rank_llms, simulate_suite
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
            f"reliability {self.reliability:.2f}, test of the spread of scores p {p_value_text(self.p_value)}"
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
                f"{a:.3f} ± {standard_error_text(s)}"
                for a, s in zip(t["accuracy"], t["accuracy_se"], strict=True)
            ],
            "cBMM": t["cbmm_ability"].map("{:+.2f}".format) if self.has_ability else "n/a",
            "cBMM rank": t["cbmm_rank"].astype(str),
            "ability": ability if self.has_ability else "n/a",
            f"ability {percent}": spread,
            f"rank {percent}": [f"{a}-{b}" for a, b in zip(t["rank_lower"], t["rank_upper"], strict=True)],
            "P(best)": t["p_best"].map(probability_text),
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
