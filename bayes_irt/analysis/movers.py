"""`Movers`: the LLMs whose posterior rank differs most from their accuracy rank, and the items that cause it."""

from __future__ import annotations

import json
from dataclasses import dataclass

import numpy as np
import pandas as pd

from bayes_irt.analysis.moves import Answers, Steps, steps_to_ability
from bayes_irt.formatting import markdown_table, percent_text
from bayes_irt.responses import Responses

_RANKS = [
    "accuracy_rank",
    "accuracy_tied",
    "posterior_rank",
    "rank_lower",
    "rank_upper",
    "move",
    "accuracy_inside",
]
_ITEM_COLUMNS = [
    *("llm", "item", "successes", "attempts", "expected"),
    *("discrimination", "contribution", "accuracy", "reason"),
]
_STEPS = {
    "item_set": "the items that it saw",
    "item_weights": "the weights of its items",
    "remainder": "prior and averaging",
}
_STEP_COLUMNS = [
    *("accuracy_ability", *_STEPS, "ability"),
    *("telling_attempts", "telling_successes", "telling_expected"),
]


@dataclass(frozen=True, slots=True, eq=False)
class Movers:
    """Hold the biggest movers between accuracy rank and posterior rank, and why they move.

    Parameters
    ----------
    table
        One row per LLM, the biggest move first, indexed by LLM: ``accuracy_rank`` and ``accuracy_tied`` (how many LLMs
        share it), ``posterior_rank`` with ``rank_lower`` and ``rank_upper``, ``move`` (places gained),
        ``accuracy_inside``; then, in sds of ability, ``accuracy_ability`` (the ability that the accuracy alone says),
        the steps ``item_set`` (it did not see all items alike), ``item_weights`` (its right and wrong answers fell on
        items that discriminate more, or less, than usual) and ``remainder`` (prior and averaging), and their sum,
        ``ability``; and what makes ``item_weights``: ``telling_attempts`` at items that weigh more for ability than for
        accuracy, ``telling_successes`` and ``telling_expected``, the successes that its accuracy lets expect there.
    items
        The items that contribute most to ``item_weights``, up and down, the largest contribution of an LLM first:
        ``llm``, ``item``, ``successes``, ``attempts``, ``expected`` (successes, from the LLM's accuracy),
        ``discrimination``, ``contribution`` (to ability), ``accuracy`` ("underrates" or "overrates" the LLM on this
        item) and ``reason``.
    prob
        Probability of the rank intervals.

    Examples
    --------
    >>> from bayes_irt import Priors, Sampler, compare_rankings, fit_cbmm, fit_nuts, simulate_suite
    >>> responses = simulate_suite(6, 20).responses
    >>> estimate = fit_cbmm(responses, penalty=Priors())
    >>> posterior = fit_nuts(responses, sampler=Sampler(num_chains=2, num_warmup=100, num_draws=100))
    >>> movers = compare_rankings(posterior, estimate, responses).movers(3)
    >>> steps = movers.table[["accuracy_ability", "item_set", "item_weights", "remainder"]].sum(axis=1)
    >>> bool((abs(steps - movers.table["ability"]) < 1e-9).all())
    True
    """

    table: pd.DataFrame
    items: pd.DataFrame
    prob: float

    @property
    def sentences(self) -> tuple[str, ...]:
        """Each move in words."""
        return tuple(self._sentence(llm) for llm in self.table.index)

    def _sentence(self, llm: str) -> str:
        row = self.table.loc[llm].to_dict()
        places, way = abs(int(row["move"])), "up" if row["move"] > 0 else "down"
        shared = f" (shared by {row['accuracy_tied']:.0f})" if row["accuracy_tied"] > 1 else ""
        inside = "inside" if row["accuracy_inside"] else "outside"
        steps = [f"{words} {row[name]:+.2f}" for name, words in _STEPS.items() if abs(row[name]) >= 0.005]
        text = (
            f"{llm} moves {places} {'place' if places == 1 else 'places'} {way}, from accuracy rank "
            f"{row['accuracy_rank']:.0f}{shared} to posterior rank {row['posterior_rank']:.0f} "
            f"({percent_text(self.prob)} {row['rank_lower']:.0f}-{row['rank_upper']:.0f}, accuracy rank {inside}). "
            f"Its accuracy says {row['accuracy_ability']:+.2f} sd, the posterior {row['ability']:+.2f}"
            f"{': ' if steps else ''}{', '.join(steps)}. In {row['telling_attempts']:.0f} attempts at items that "
            f"discriminate more than average it was right {row['telling_successes']:.0f} times, where its accuracy "
            f"lets expect {row['telling_expected']:.1f}."
        )
        own = self.items[self.items["llm"] == llm]
        same_way = np.sign(own["contribution"]) == np.sign(row["move"])
        telling = own[same_way & (own["contribution"].abs() >= 0.0005)]
        named = [f"{item.item} ({item.contribution:+.3f}, {item.reason})" for item in telling.itertuples()]
        return f"{text} Most: {'; '.join(named)}." if named else text

    def to_markdown(self) -> str:
        """Return movers and items as two Markdown tables.

        Returns
        -------
        str
            Cells with a pipe are escaped.
        """
        movers = self.table.reset_index()
        signed = ["accuracy_ability", *_STEPS, "ability"]
        movers[signed] = movers[signed].map("{:+.2f}".format)
        movers["telling_expected"] = movers["telling_expected"].map("{:.1f}".format)
        items = self.items.copy()
        items["contribution"] = items["contribution"].map("{:+.3f}".format)
        items[["expected", "discrimination"]] = items[["expected", "discrimination"]].map("{:.2f}".format)
        return markdown_table(movers) + "\n" + markdown_table(items)

    def to_json(self) -> str:
        """Return movers and items as one JSON object.

        Returns
        -------
        str
            With ``movers``, ``items`` and ``sentences``.
        """
        described = {
            "prob": self.prob,
            "sentences": self.sentences,
            "movers": json.loads(self.table.reset_index().to_json(orient="records", double_precision=15)),
            "items": json.loads(self.items.to_json(orient="records", double_precision=15)),
        }
        return json.dumps(described, indent=2, ensure_ascii=False)


def explain_movers(
    table: pd.DataFrame, items: pd.DataFrame, responses: Responses, prob: float, items_each: int
) -> Movers:
    """Explain the moves of some LLMs.

    Parameters
    ----------
    table
        The LLMs, in order, as in `RankingComparison.table`.
    items
        Posterior means ``discrimination``, ``easiness`` and ``floor``, one row per item.
    responses
        The data.
    prob
        Probability of the rank intervals.
    items_each
        How many items to name in either direction.

    Returns
    -------
    Movers
        One row per LLM.
    """
    places = {llm: place for place, llm in enumerate(responses.llms)}
    slope, easiness, floor = (items[name].to_numpy() for name in ("discrimination", "easiness", "floor"))
    steps: list[tuple[float, ...]] = []
    named: list[tuple[object, ...]] = []
    for llm, ability in table["ability"].items():
        place = places[str(llm)]
        successes, attempts = (
            counts[place].astype(np.float64) for counts in (responses.successes, responses.attempts)
        )
        answers = Answers(successes, attempts, slope, easiness, floor)
        found = steps_to_ability(answers, float(ability), responses.num_llms)
        total = float(found.contributions.sum())
        telling = slope > found.mean_weight
        counted = (float(values[telling].sum()) for values in (attempts, successes, found.expected))
        steps.append(
            (found.accuracy_ability, found.item_set, total, found.remainder, float(ability), *counted)
        )
        named += [
            (llm, responses.items[item], *_described(item, found, answers))
            for item in _named_items(found, items_each)
        ]
    moves = table[_RANKS].join(pd.DataFrame(steps, columns=_STEP_COLUMNS, index=table.index, dtype=float))
    moves = moves.astype({"telling_attempts": int, "telling_successes": int})
    return Movers(moves, pd.DataFrame(named, columns=_ITEM_COLUMNS), prob)


def _named_items(steps: Steps, items_each: int) -> list[int]:
    """Return the items that contribute most, up and down, the largest contribution first."""
    order = np.argsort(-steps.contributions, kind="stable")
    up = [place for place in order[:items_each].tolist() if steps.contributions[place] > 0]
    down = [place for place in order[::-1][:items_each].tolist() if steps.contributions[place] < 0]
    return sorted(up + down, key=lambda place: -abs(float(steps.contributions[place])))


def _described(item: int, steps: Steps, answers: Answers) -> tuple[object, ...]:
    """Return what the table of items says about one: from the counts to the reason."""
    contribution, discrimination = float(steps.contributions[item]), float(answers.discrimination[item])
    successes, attempts = int(answers.successes[item]), int(answers.attempts[item])
    much = "much" if discrimination > steps.mean_weight else "little"
    return (
        successes,
        attempts,
        float(steps.expected[item]),
        discrimination,
        contribution,
        "underrates" if contribution > 0 else "overrates",
        f"{_outcome(successes, attempts, float(steps.expected[item]))} where that tells {much}",
    )


def _outcome(successes: int, attempts: int, expected: float) -> str:
    if attempts == 1:
        return "right" if successes else "wrong"
    return f"{successes} of {attempts} right, {'more' if successes > expected else 'fewer'} than expected,"
