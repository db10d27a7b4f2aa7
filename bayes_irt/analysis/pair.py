"""`PairComparison`: what is known about two LLMs, and its forms as text."""

from __future__ import annotations

import json
from dataclasses import dataclass
from enum import StrEnum

import pandas as pd

from bayes_irt.analysis.paired_test import PairedTest
from bayes_irt.data_checks import FEWEST_FOR_ABILITY
from bayes_irt.formatting import (
    coverage_text,
    markdown_table,
    markdown_text,
    percent_text,
    probability_relation,
    probability_text,
)


class Verdict(StrEnum):
    """What a comparison comes to at the asked probability.

    Examples
    --------
    >>> Verdict("not separated").name
    'NOT_SEPARATED'
    """

    A_BETTER = "A better"
    NOT_SEPARATED = "not separated"
    B_BETTER = "B better"


@dataclass(frozen=True, slots=True)
class Interval:
    """Hold a posterior mean with its equal-tailed interval.

    Parameters
    ----------
    mean
        Posterior mean.
    lower, upper
        Limits.

    Examples
    --------
    >>> str(Interval(0.5, 0.05, 0.95))
    '+0.50 [+0.05, +0.95]'
    """

    mean: float
    lower: float
    upper: float

    def __str__(self) -> str:
        return f"{self.mean:+.2f} [{self.lower:+.2f}, {self.upper:+.2f}]"

    @property
    def in_points(self) -> str:
        """The interval of a difference of shares, in percentage points."""
        return f"{100 * self.mean:+.1f} [{100 * self.lower:+.1f}, {100 * self.upper:+.1f}]"


@dataclass(frozen=True, slots=True)
class PairComparison:
    """Hold the comparison of two LLMs, A and B.

    Parameters
    ----------
    a, b
        Their labels.
    p_better
        P(A > B): share of the posterior in which A is more able than B.
    verdict
        "A better" where P(A > B) reaches the threshold, "B better" where P(B > A) does, else "not separated"; always
        that where no common ability was found.
    ability_difference
        A's ability less B's, in standard deviations of the LLMs fitted; None below 4 LLMs, where abilities do not
        apply.
    expected_accuracy
        The model's, of A and of B, had both answered every item.
    expected_difference
        A's expected accuracy less B's.
    accuracy, accuracy_se
        Observed, of A and of B, each on the items that it was given; a standard error is None with one item.
    items_seen
        Number of items that A and B answered.
    items_shared
        Number of items that both answered.
    num_items
        Number of items of the suite.
    shared_accuracy
        Observed, of A and of B, on the shared items, which weigh the same; None without any.
    test
        The classical test on the shared items; None without any.
    prob
        Probability of the intervals.
    threshold
        Probability that a verdict takes.
    found_ability
        Whether the suite shows a common ability at all; True below 4 LLMs, where that is not asked.
    traits
        Where there are several, those that they are compared on, with their weights.

    Examples
    --------
    >>> from bayes_irt import Sampler, compare_llms, fit_nuts, simulate_suite
    >>> responses = simulate_suite(6, 20).responses
    >>> sampler = Sampler(num_chains=2, num_warmup=100, num_draws=100)
    >>> pair = compare_llms(fit_nuts(responses, sampler=sampler), responses, "llm-001", "llm-002")
    >>> pair.items_shared, pair.test.name
    (20, 'exact McNemar')
    """

    a: str
    b: str
    p_better: float
    verdict: Verdict
    ability_difference: Interval | None
    expected_accuracy: tuple[Interval, Interval]
    expected_difference: Interval
    accuracy: tuple[float, float]
    accuracy_se: tuple[float | None, float | None]
    items_seen: tuple[int, int]
    items_shared: int
    num_items: int
    shared_accuracy: tuple[float, float] | None
    test: PairedTest | None
    prob: float
    threshold: float
    found_ability: bool
    traits: tuple[tuple[str, float], ...] = ()

    @property
    def sentence(self) -> str:
        """The comparison in words, ready to be pasted under a table."""
        return " ".join((self._on_better(), self._on_size(), self._on_shared(), coverage_text(self.prob)))

    def _on_better(self) -> str:
        odds = f"P({self.a} > {self.b}) {probability_relation(self.p_better)}"
        asked, on = percent_text(self.threshold), traits_text(self.traits)
        if not self.found_ability:
            suite = f"the items{on} show" if on else "the suite shows"
            return f"{odds}{on}, but {suite} no common ability, so neither is called better."
        if self.verdict is Verdict.NOT_SEPARATED:
            return f"{self.a} and {self.b} are not separated{on} at {asked}: {odds}."
        better, other = (self.a, self.b) if self.verdict is Verdict.A_BETTER else (self.b, self.a)
        return f"{better} is better than {other}{on} at {asked}: {odds}."

    def _on_size(self) -> str:
        first, second = (_percent(each.mean) for each in self.expected_accuracy)
        text = (
            f"Had both answered all {self.num_items:,} items, the model expects accuracies of {first} and {second}, a "
            f"difference of {self.expected_difference.in_points} points"
        )
        if self.ability_difference is None:
            return f"{text}; with fewer than {FEWEST_FOR_ABILITY} LLMs, ability is not applicable."
        return f"{text}; in ability{traits_text(self.traits)} {self.ability_difference} sd."

    def _on_shared(self) -> str:
        if self.shared_accuracy is None or self.test is None:
            return "They share no item, so no paired test applies; other LLMs link them."
        first, second = (_percent(share) for share in self.shared_accuracy)
        count = "the 1 item" if self.items_shared == 1 else f"the {self.items_shared:,} items"
        return f"On {count} that both answered, {first} and {second} were right ({self.test})."

    @property
    def table(self) -> pd.DataFrame:
        """All figures in one row, a column each; what does not apply is missing."""
        far = self.ability_difference
        figures: dict[str, object] = {"a": self.a, "b": self.b, "p_better": self.p_better}
        figures |= {"verdict": str(self.verdict), "found_ability": self.found_ability}
        figures |= _limits("ability_difference", far)
        figures |= _limits("expected_accuracy_a", self.expected_accuracy[0])
        figures |= _limits("expected_accuracy_b", self.expected_accuracy[1])
        figures |= _limits("expected_difference", self.expected_difference)
        shared: tuple[float | None, float | None] = self.shared_accuracy or (None, None)
        pairs = {"accuracy": self.accuracy, "accuracy_se": self.accuracy_se, "items_seen": self.items_seen}
        for name, values in (pairs | {"shared_accuracy": shared}).items():
            figures |= {f"{name}_a": values[0], f"{name}_b": values[1]}
        figures |= {"items_shared": self.items_shared, "num_items": self.num_items}
        for name in ("name", "difference", "standard_error", "z", "p_value", "only_a", "only_b"):
            figures[f"test_{name}"] = None if self.test is None else getattr(self.test, name)
        figures |= {"prob": self.prob, "threshold": self.threshold}
        if self.traits:
            figures["traits"] = ", ".join(f"{name}={weight:g}" for name, weight in self.traits)
        return pd.DataFrame([figures])

    def to_json(self) -> str:
        """Return all figures and the sentence as one JSON object.

        Returns
        -------
        str
            What does not apply is null.
        """
        row = json.loads(self.table.to_json(orient="records", double_precision=15))[0]
        return json.dumps({**row, "sentence": self.sentence}, indent=2, ensure_ascii=False)

    def to_csv(self) -> str:
        """Return all figures as a CSV table of one row.

        Returns
        -------
        str
            What does not apply is empty.
        """
        return self.table.to_csv(index=False)

    def formatted(self) -> pd.DataFrame:
        """Return the main figures as text, ready to be printed.

        Returns
        -------
        pandas.DataFrame
            Strings: what is compared, A, B, and A less B.
        """
        shared = ("n/a", "n/a", "n/a")
        if self.shared_accuracy is not None:
            one, two = self.shared_accuracy
            shared = (_percent(one), _percent(two), f"{100 * (one - two):+.1f}")
        expected = [_percent(each.mean) for each in self.expected_accuracy]
        odds = [probability_text(p) for p in (self.p_better, 1 - self.p_better)]
        rows = [
            (
                "items answered",
                *(f"{number:,}" for number in self.items_seen),
                f"{self.items_shared:,} shared",
            ),
            ("observed accuracy, own items", *(_percent(share) for share in self.accuracy), ""),
            ("observed accuracy, shared items", *shared),
            ("expected accuracy, all items", *expected, self.expected_difference.in_points),
            (f"ability{traits_text(self.traits)} (sd)", "", "", str(self.ability_difference or "n/a")),
            ("P(better)", *odds, str(self.verdict)),
        ]
        return pd.DataFrame(rows, columns=["", self.a, self.b, "difference"])

    def to_markdown(self) -> str:
        """Return the main figures as a Markdown table, the sentence below.

        Returns
        -------
        str
            Cells with a pipe are escaped.
        """
        return f"{markdown_table(self.formatted())}\n{markdown_text(self.sentence)}\n"


def traits_text(traits: tuple[tuple[str, float], ...]) -> str:
    """Return on which traits something is, for the middle of a sentence.

    Parameters
    ----------
    traits
        Names and weights; empty where there is one trait.

    Returns
    -------
    str
        Empty where there is one trait.

    Examples
    --------
    >>> traits_text((("logic", 1.0),)), traits_text((("logic", 0.75), ("algebra", 0.25)))
    (" on 'logic'", " on the mean of 'logic' (75%), 'algebra' (25%)")
    """
    if len(traits) < 2:
        return "".join(f" on {name!r}" for name, _ in traits)
    return " on the mean of " + ", ".join(f"{name!r} ({weight:.0%})" for name, weight in traits)


def _limits(name: str, interval: Interval | None) -> dict[str, float | None]:
    values = (None,) * 3 if interval is None else (interval.mean, interval.lower, interval.upper)
    return dict(zip((name, f"{name}_lower", f"{name}_upper"), values, strict=True))


def _percent(share: float) -> str:
    return f"{100 * share:.1f}%"
