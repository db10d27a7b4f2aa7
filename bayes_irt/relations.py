"""What the list of LLMs itself does to a board: copies and near-identical LLMs, and what dropping copies changes."""

from __future__ import annotations

from dataclasses import dataclass

import pandas as pd

from bayes_irt.analysis.leaderboard import Leaderboard
from bayes_irt.analysis.ranking import rank_llms
from bayes_irt.analysis.ranks import Trait, board_trait
from bayes_irt.analysis.structure import board_changes, pairs_and_checks, without_duplicates
from bayes_irt.checks import CheckReport
from bayes_irt.data_checks import FEWEST_FOR_ABILITY
from bayes_irt.errors import some
from bayes_irt.formatting import probability_relation
from bayes_irt.inference.engine import first_estimate
from bayes_irt.inference.laplace import fit_laplace
from bayes_irt.item_law import item_law
from bayes_irt.posterior import Posterior
from bayes_irt.responses import Responses


@dataclass(frozen=True, slots=True, eq=False)
class Relations:
    """Hold what is known about LLMs that are alike.

    Parameters
    ----------
    checks
        The checks of `check_structure`.
    pairs
        Pairs of LLMs that agree far more than the model explains, as `related_llms` returns them.
    changes
        What dropping copies changes, as `board_changes` returns it; empty where there are no copies.

    Examples
    --------
    >>> from bayes_irt import fit_laplace, simulate_suite
    >>> responses = simulate_suite(20, 60).responses
    >>> describe_relations(fit_laplace(responses), responses).sentences
    ('Of 20 LLMs, no two agree far more than the model explains.',)
    """

    checks: CheckReport
    pairs: pd.DataFrame
    changes: pd.DataFrame

    @property
    def sentences(self) -> tuple[str, ...]:
        """What there is to say, in words."""
        found = tuple(f"{c.message} ({some(c.labels)})" if c.labels else c.message for c in self.checks)
        return found if self.changes.empty else (*found, self._on_copies())

    def _on_copies(self) -> str:
        change, kept = self.changes, len(self.changes)
        wider = float((change["width_after"] / change["width_before"]).mean() - 1.0)
        moved = int((change["rank_upper_after"] - change["rank_lower_after"] != _places(change)).sum())
        first = str(change.index[0])
        before, after = (
            probability_relation(change[f"p_best_{word}"].iloc[0]) for word in ("before", "after")
        )
        return (
            f"Without copies {kept:,} LLMs remain: intervals of ability change by {100 * wider:+.1f}% on average, the "
            f"number of places in the rank interval changes for {moved:,} LLMs. {first}: P(best) {before} with copies, "
            f"{after} without (both by Laplace)."
        )

    @property
    def tables(self) -> dict[str, pd.DataFrame]:
        """Pairs and changes by file name, where there are any."""
        named = {"related_llms": self.pairs.set_index(["first", "second"]), "without_copies": self.changes}
        return {name: table for name, table in named.items() if len(table)}


def describe_relations(
    posterior: Posterior,
    responses: Responses,
    *,
    prob: float = 0.9,
    group: str | None = None,
    seed: int = 0,
    trait: Trait = None,
) -> Relations:
    """Find LLMs that are alike and, where there are copies, fit again without them.

    Parameters
    ----------
    posterior
        Draws.
    responses
        The data that were fitted.
    prob
        Probability of the intervals that are compared.
    group
        A column of the LLMs' metadata that says who is related; None for none.
    seed
        Seed of permutations and refits.
    trait
        Where there are several traits, that on which boards are compared, or weights of several; None for all alike, or
        the general one.

    Returns
    -------
    Relations
        What was found. With copies, Laplace fits the data with and without them; it takes at least 4 LLMs without.

    Raises
    ------
    InvalidConfigurationError
        If the responses are not those fitted, or an option is out of range.

    Examples
    --------
    >>> from bayes_irt import fit_laplace, simulate_suite
    >>> responses = simulate_suite(20, 60).responses
    >>> len(describe_relations(fit_laplace(responses), responses).pairs)
    0
    """
    pairs, checks = pairs_and_checks(posterior, responses, group=group, seed=seed)
    kept = without_duplicates(responses)
    changes = pd.DataFrame()
    if FEWEST_FOR_ABILITY <= kept.num_llms < responses.num_llms:
        boards = [_board(data, posterior, prob, seed, trait) for data in (responses, kept)]
        changes = board_changes(*boards)
    return Relations(checks, pairs, changes)


def _board(responses: Responses, posterior: Posterior, prob: float, seed: int, trait: Trait) -> Leaderboard:
    """Rank by Laplace under the priors of a posterior, LLMs taken as unrelated."""
    spec = posterior.spec if posterior.traits else posterior.spec.for_mode()
    estimate = first_estimate(responses, spec, None, seed, item_law(spec, responses).traits)
    fitted = fit_laplace(responses, spec=spec, estimate=estimate, seed=seed)
    return rank_llms(fitted, estimate, responses, prob, trait=board_trait(fitted, trait))


def _places(change: pd.DataFrame) -> pd.Series:
    return change["rank_upper_before"] - change["rank_lower_before"]
