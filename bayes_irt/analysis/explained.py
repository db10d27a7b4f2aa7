"""`ExplainedComparison`: a comparison of rankings together with the LLMs that move and why, in every form."""

from __future__ import annotations

import json
from dataclasses import dataclass

import pandas as pd

from bayes_irt.analysis.comparison import RankingComparison
from bayes_irt.analysis.movers import Movers
from bayes_irt.formatting import markdown_text


@dataclass(frozen=True, slots=True)
class ExplainedComparison:
    """Hold a comparison of rankings and its movers.

    Parameters
    ----------
    comparison
        Accuracy, cBMM and posterior compared.
    movers
        The biggest movers; None where none were asked for, or abilities do not apply.

    Examples
    --------
    >>> from bayes_irt import Priors, Sampler, compare_rankings, fit_cbmm, fit_nuts, simulate_suite
    >>> responses = simulate_suite(6, 20).responses
    >>> estimate = fit_cbmm(responses, penalty=Priors())
    >>> posterior = fit_nuts(responses, sampler=Sampler(num_chains=2, num_warmup=100, num_draws=100))
    >>> comparison = compare_rankings(posterior, estimate, responses)
    >>> list(ExplainedComparison.of(comparison, 3).tables)
    ['rankings', 'agreement', 'heterogeneity', 'movers', 'mover_items']
    """

    comparison: RankingComparison
    movers: Movers | None

    @classmethod
    def of(cls, comparison: RankingComparison, count: int) -> ExplainedComparison:
        """Explain the biggest moves of a comparison, as far as there are abilities to explain them by.

        Parameters
        ----------
        comparison
            The comparison.
        count
            How many LLMs at most; 0 for none.

        Returns
        -------
        ExplainedComparison
            With movers, or without.

        Raises
        ------
        InvalidConfigurationError
            If the count is not whole or below 0.
        """
        return cls(comparison, comparison.movers(count) if count and comparison.has_ability else None)

    @property
    def sentences(self) -> tuple[str, ...]:
        """What the comparison says, then each move in words."""
        return (*self.comparison.sentences, *(self.movers.sentences if self.movers else ()))

    @property
    def tables(self) -> dict[str, pd.DataFrame]:
        """All tables, by the names of their files."""
        tables = {
            "rankings": self.comparison.table,
            "agreement": self.comparison.agreement.set_index(["first", "second"]),
            "heterogeneity": self.comparison.heterogeneity,
        }
        if self.movers is not None:
            tables |= {
                "movers": self.movers.table,
                "mover_items": self.movers.items.set_index(["llm", "item"]),
            }
        return tables

    def formatted(self) -> pd.DataFrame:
        """Return the rankings as text, ready to be printed.

        Returns
        -------
        pandas.DataFrame
            Strings, as `RankingComparison.formatted` says.
        """
        return self.comparison.formatted()

    def to_markdown(self) -> str:
        """Return the rankings as Markdown, what they say below, then movers and their items.

        Returns
        -------
        str
            Cells with a pipe are escaped.
        """
        text = self.comparison.to_markdown()
        if self.movers is None or self.movers.table.empty:
            return text
        words = "".join(f"\n{markdown_text(sentence)}\n" for sentence in self.movers.sentences)
        return f"{text}{words}\n{self.movers.to_markdown()}"

    def to_json(self) -> str:
        """Return everything as one JSON object.

        Returns
        -------
        str
            The comparison's, with ``movers`` and ``mover_items`` (rows; empty where nobody moves) where movers apply.
        """
        described = json.loads(self.comparison.to_json())
        if self.movers is not None:
            moved = json.loads(self.movers.to_json())
            described["sentences"] += moved["sentences"]
            described |= {"movers": moved["movers"], "mover_items": moved["items"]}
        return json.dumps(described, indent=2, ensure_ascii=False)
