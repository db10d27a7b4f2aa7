"""The answer of a check, whatever is checked: data, a fit or a posterior.

A check never changes anything. It says pass or fail, or that the question does not apply, or that the data
cannot tell; and it names the labels concerned.
"""

from __future__ import annotations

import enum
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from bayes_irt.errors import some

if TYPE_CHECKING:
    import pandas as pd


class Outcome(enum.StrEnum):
    """The four answers a check can give."""

    PASS = "pass"
    FAIL = "fail"
    NOT_APPLICABLE = "not applicable"
    CANNOT_TELL = "cannot tell"


@dataclass(frozen=True, slots=True)
class Check:
    """State one answer.

    Parameters
    ----------
    name
        What was checked, in a few words.
    outcome
        The answer.
    message
        One sentence with the figures behind the answer and, on failure, what to do.
    labels
        The LLMs, items or parameters concerned; empty where the check concerns none in particular.

    Examples
    --------
    >>> print(Check("constant items", Outcome.FAIL, "1 item has only wrong answers.", ("q7",)))
    fail: constant items. 1 item has only wrong answers. ('q7')
    """

    name: str
    outcome: Outcome
    message: str
    labels: tuple[str, ...] = ()

    def __str__(self) -> str:
        named = f" ({some(self.labels)})" if self.labels else ""
        return f"{self.outcome}: {self.name}. {self.message}{named}"


@dataclass(frozen=True, slots=True)
class CheckReport:
    """Hold several checks in the order in which they were made.

    Parameters
    ----------
    checks
        The answers.

    Examples
    --------
    >>> report = CheckReport((Check("few LLMs", Outcome.PASS, "30 LLMs."),))
    >>> report.passed, report["few LLMs"].message
    (True, '30 LLMs.')
    """

    checks: tuple[Check, ...]

    @property
    def passed(self) -> bool:
        """Say whether no check failed; "cannot tell" and "not applicable" are no failures."""
        return not self.failures

    @property
    def failures(self) -> tuple[Check, ...]:
        """Return the checks that failed."""
        return tuple(check for check in self.checks if check.outcome is Outcome.FAIL)

    def __iter__(self) -> Iterator[Check]:
        return iter(self.checks)

    def __getitem__(self, name: str) -> Check:
        for check in self.checks:
            if check.name == name:
                return check
        raise KeyError(f"no check named {name!r}; there are: {[c.name for c in self.checks]}")

    def __str__(self) -> str:
        return "\n".join(str(check) for check in self.checks)

    def to_frame(self) -> pd.DataFrame:
        """Return one row per check: name, outcome, message, number of labels, labels.

        Returns
        -------
        pandas.DataFrame
            Columns ``check``, ``outcome``, ``message``, ``num_labels`` and ``labels`` (a list of strings).
        """
        import pandas as pd

        rows = [(c.name, str(c.outcome), c.message, len(c.labels), list(c.labels)) for c in self.checks]
        return pd.DataFrame(rows, columns=["check", "outcome", "message", "num_labels", "labels"])
