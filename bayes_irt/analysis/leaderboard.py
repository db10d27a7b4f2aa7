"""`Leaderboard`: the table of ranked LLMs, what stands under it, and its forms as text."""

from __future__ import annotations

import json
from dataclasses import dataclass

import pandas as pd

from bayes_irt.analysis.pair import traits_text
from bayes_irt.analysis.reliability import has_common_ability
from bayes_irt.data_checks import FEWEST_FOR_ABILITY
from bayes_irt.formatting import (
    coverage_text,
    markdown_table,
    markdown_text,
    p_value_text,
    percent_text,
    probability_text,
    standard_error_text,
)


@dataclass(frozen=True, slots=True, eq=False)
class Leaderboard:
    """Hold a leaderboard.

    Parameters
    ----------
    table
        One row per LLM, best posterior mean first, indexed by LLM, with these columns:

        - ``position``: 1 for the best posterior mean;
        - ``accuracy`` (observed share of right attempts, on the items that the LLM was given), ``accuracy_se``;
        - ``cbmm_ability``, ``cbmm_rank``;
        - ``ability`` (posterior mean), ``ability_lower``, ``ability_upper``, in standard deviations of the LLMs on the
          board; missing, like ``cbmm_ability``, where there are fewer than 4 LLMs;
        - ``rank_lower``, ``rank_upper``, ``expected_rank`` (posterior mean of the rank), ``p_best``, ``p_top``
          (probability of rank `top` or better);
        - ``tie_group``: see `tie_groups`; 1 for all where no common ability was found;
        - ``expected_accuracy``, ``expected_accuracy_lower``, ``expected_accuracy_upper``: the model's, had every LLM
          answered every item;
        - ``points``, ``points_lower``, ``points_upper``: log odds of the expected accuracy less their mean over the
          LLMs, in units in which a difference of `tripling` points triples the odds of a right answer;
        - ``items_seen``, ``item_share`` (of all items).
    prob
        Probability of the intervals.
    reliability
        1 minus the mean posterior variance of ability.
    p_value
        Of the test whether the LLMs' scores differ at all.
    top
        Ranks that ``p_top`` counts.
    tie_prob
        Probability at which an LLM is separated from the leader of a tie group.
    tripling
        Points that triple the odds.
    traits
        Where there are several, those that LLMs are ranked on, with their weights.

    Examples
    --------
    >>> from bayes_irt import Priors, Sampler, fit_cbmm, fit_nuts, rank_llms, simulate_suite
    >>> responses = simulate_suite(6, 20).responses
    >>> sampler = Sampler(num_chains=2, num_warmup=100, num_draws=100)
    >>> estimate = fit_cbmm(responses, penalty=Priors())
    >>> board = rank_llms(fit_nuts(responses, sampler=sampler), estimate, responses)
    >>> board.has_ability, len(board.notes)
    (True, 3)
    """

    table: pd.DataFrame
    prob: float
    reliability: float
    p_value: float
    top: int
    tie_prob: float
    tripling: float
    traits: tuple[tuple[str, float], ...] = ()

    @property
    def has_ability(self) -> bool:
        """Say whether abilities apply: with fewer than 4 LLMs they do not."""
        return len(self.table) >= FEWEST_FOR_ABILITY

    @property
    def found_ability(self) -> bool:
        """Say whether the data show a common ability at all."""
        return has_common_ability(self.reliability, self.p_value)

    @property
    def notes(self) -> tuple[str, ...]:
        """What stands under the board: how far it can be trusted, and what the intervals cover."""
        return self._on_ability(), self._on_ties(), coverage_text(self.prob)

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
            on = traits_text(self.traits)
            return f"No common ability{on} was found ({figures}): the order may be chance, nobody is best."
        return f"Ability{traits_text(self.traits)} in sd of these LLMs; {figures}."

    def _on_ties(self) -> str:
        expected = "Expected: accuracy had every LLM answered every item, by the model."
        if self.has_ability and not self.found_ability:
            return f"Tie: all LLMs are in one group. {expected}"
        return (
            f"Tie: LLMs of a group are not separated from its first (each joins the first leader that does not beat it "
            f"with probability {percent_text(self.tie_prob)}). {expected}"
        )

    def formatted(self) -> pd.DataFrame:
        """Return the board as text, ready to be printed.

        Returns
        -------
        pandas.DataFrame
            Strings: position, tie group, LLM, accuracy with its standard error, expected accuracy, cBMM ability and
            rank, ability and rank with intervals, P(best), P(top k), items seen (with their share where any LLM lacks
            items).
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
            "tie": t["tie_group"].astype(str),
            "LLM": t.index.to_series().astype(str),
            "accuracy": [
                f"{a:.3f} ± {standard_error_text(s)}"
                for a, s in zip(t["accuracy"], t["accuracy_se"], strict=True)
            ],
            "expected": t["expected_accuracy"].map("{:.3f}".format),
            "cBMM": t["cbmm_ability"].map("{:+.2f}".format) if self.has_ability else "n/a",
            "cBMM rank": t["cbmm_rank"].astype(str),
            "ability": ability if self.has_ability else "n/a",
            f"ability {percent}": spread,
            f"rank {percent}": [f"{a}-{b}" for a, b in zip(t["rank_lower"], t["rank_upper"], strict=True)],
            "P(best)": t["p_best"].map(probability_text),
            f"P(top {self.top})": t["p_top"].map(probability_text),
            "items": self._items(),
        }
        return pd.DataFrame(columns, index=t.index).reset_index(drop=True)

    def _items(self) -> list[str]:
        seen, share = self.table["items_seen"], self.table["item_share"]
        if (share == 1).all():
            return [str(number) for number in seen]
        return [f"{number} ({part:.0%})" for number, part in zip(seen, share, strict=True)]

    def to_markdown(self) -> str:
        """Return the board as a Markdown table, notes below.

        Returns
        -------
        str
            Cells with a pipe are escaped.
        """
        return (
            markdown_table(self.formatted())
            + "\n"
            + "".join(f"{markdown_text(note)}  \n" for note in self.notes)
        )

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
            "found_ability": self.found_ability if self.has_ability else None,
            "top": self.top,
            "tie_prob": self.tie_prob,
            "tripling": self.tripling,
            "traits": dict(self.traits),
            "notes": self.notes,
            "llms": json.loads(self.table.reset_index().to_json(orient="records", double_precision=15)),
        }
        return json.dumps(described, indent=2, ensure_ascii=False)
