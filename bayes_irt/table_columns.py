"""Which column of a table holds what: named by the user, or found by common names."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import pandas as pd

from bayes_irt.errors import InvalidResponsesError, some
from bayes_irt.scores import ScoreRule

LLM_NAMES = (
    *(
        "llm",
        "llm_id",
        "llm_name",
        "model",
        "model_name",
        "model_id",
        "system",
        "agent",
        "subject",
        "subject_id",
    ),
    *("respondent", "person", "person_id", "participant", "id"),
)
ITEM_NAMES = (
    *("item", "item_id", "item_name", "question_id", "question", "task_id", "instance_id", "problem_id"),
    *("sample_id", "doc_id"),
)
ROLE_NAMES = {
    "llm": LLM_NAMES,
    "item": ITEM_NAMES,
    "score": ("score", "correct", "is_correct", "resp", "response", "outcome", "passed", "resolved"),
    "attempt": ("attempt", "epoch", "trial", "wave", "repeat", "run"),
    "successes": ("successes", "num_successes", "n_successes", "n_correct", "num_correct"),
    "attempts": ("attempts", "num_attempts", "n_attempts", "n_total", "num_total", "trials"),
}
UNNAMED = ("", "unnamed:_0", "__index_level_0__")


@dataclass(frozen=True, slots=True)
class TableColumns:
    """Say which column of a table holds what; a role left open is found by common names.

    Parameters
    ----------
    llm, item, score, attempt
        The columns of a long table; `llm` also names the label column of a wide one, and `item` that of a
        wide table with items in rows.
    successes, attempts
        The columns of a long table that holds counts instead of scores.
    llm_columns
        Columns that describe the LLM: metadata, not items.
    ignore
        Columns to leave out.
    layout
        "long" or "wide" where the column names do not tell.
    scores
        How to read fractional scores: `ScoreThreshold` or `ScoreParts`; None to refuse them.

    Examples
    --------
    >>> TableColumns(llm="who", llm_columns=("size",)).llm
    'who'
    """

    llm: str | None = None
    item: str | None = None
    score: str | None = None
    attempt: str | None = None
    successes: str | None = None
    attempts: str | None = None
    llm_columns: tuple[str, ...] = ()
    ignore: tuple[str, ...] = ()
    layout: Literal["long", "wide"] | None = None
    scores: ScoreRule | None = None


def find_roles(frame: pd.DataFrame, columns: TableColumns) -> dict[str, str]:
    """Return which column plays which role in a long table.

    Parameters
    ----------
    frame
        The table.
    columns
        Columns named by the user.

    Returns
    -------
    dict
        From role (a field of `TableColumns`) to column; roles that no column plays are absent.

    Raises
    ------
    InvalidResponsesError
        If a column that was named does not exist.

    Examples
    --------
    >>> find_roles(pd.DataFrame(columns=["Model", "task_id", "correct", "x"]), TableColumns())
    {'llm': 'Model', 'item': 'task_id', 'score': 'correct'}
    """
    names = [str(name) for name in frame.columns]
    given = {role: getattr(columns, role) for role in ROLE_NAMES}
    named = [name for name in (*given.values(), *columns.llm_columns, *columns.ignore) if name is not None]
    unknown = [name for name in named if name not in names]
    if unknown:
        raise InvalidResponsesError(
            f"The table has no column {some(unknown)}. Its columns are {some(names, 8)}."
        )
    free = [name for name in names if name not in named]
    found = {role: given[role] or _first_named(free, common) for role, common in ROLE_NAMES.items()}
    if columns.score is not None and columns.successes is None and columns.attempts is None:
        found["successes"] = found["attempts"] = None
    return {role: name for role, name in found.items() if name is not None}


def find_layout(frame: pd.DataFrame, columns: TableColumns) -> Literal["long", "wide"]:
    """Say whether a table is long (one row per LLM and item) or wide (one row or column per item).

    Parameters
    ----------
    frame
        The table.
    columns
        Columns named by the user.

    Returns
    -------
    str
        "long" or "wide".

    Examples
    --------
    >>> find_layout(pd.DataFrame({"model": ["a"], "q1": [1], "q2": [0]}), TableColumns())
    'wide'
    """
    if columns.layout is not None:
        return columns.layout
    roles = find_roles(frame, columns)
    has_result = "score" in roles or {"successes", "attempts"} <= roles.keys()
    if "item" in roles and (has_result or "llm" in roles):
        return "long"
    # One LLM in many rows cannot be a wide table; counts_from_long says which column is lacking.
    if has_result and "llm" in roles and bool(frame[roles["llm"]].duplicated().any()):
        return "long"
    return "wide"


def check_roles(roles: dict[str, str], names: list[str], num_rows: int) -> None:
    """Refuse a long table that lacks a column, or has only one of two that belong together.

    Parameters
    ----------
    roles
        As `find_roles` returns them.
    names
        All columns of the table.
    num_rows
        How many rows it has.

    Raises
    ------
    InvalidResponsesError
        If there is no LLM, item or score column, one of successes and attempts alone, or both scores and counts.

    Examples
    --------
    >>> check_roles({"llm": "llm", "item": "item", "score": "score"}, ["llm", "item", "score"], 4)
    """
    lacking = [role for role in ("llm", "item") if role not in roles]
    if lacking:
        words = " and no ".join({"llm": "LLM", "item": "item"}[role] for role in lacking)
        usual = "; ".join(f"{role}: {', '.join(ROLE_NAMES[role][:6])}, ..." for role in lacking)
        raise InvalidResponsesError(
            f"The long table has no {words} column. Its columns are {some(names, 8)}. Name the one "
            f"that holds it ({', '.join(f'--{role}' for role in lacking)}), or call it by a common name "
            f"({usual})."
        )
    counts = [role for role in ("successes", "attempts") if role in roles]
    if len(counts) == 1:
        raise InvalidResponsesError(
            f"The table has a column {roles[counts[0]]!r} but not its partner: counts need both "
            f"successes and attempts. Name the other one, or leave this one out "
            f"(--ignore {roles[counts[0]]})."
        )
    if "score" in roles and counts:
        raise InvalidResponsesError(
            f"The table has a score column {roles['score']!r} and counts ({roles['successes']!r}, "
            f"{roles['attempts']!r}). Leave the score out (--ignore {roles['score']}), or name it (--score "
            f"{roles['score']}) to use it alone."
        )
    if "score" not in roles and not counts:
        raise InvalidResponsesError(
            f"The long table of {num_rows:,} rows has no score column. Its columns are {some(names, 8)}. "
            f"Name it (--score), or call it by a common name ({', '.join(ROLE_NAMES['score'][:5])}, ...)."
        )


def _first_named(names: Sequence[str], common: tuple[str, ...]) -> str | None:
    """Return the column with the most usual of the common names."""
    plain = {plain_name(name): name for name in reversed(names)}
    return next((plain[name] for name in common if name in plain), None)


def plain_name(name: str) -> str:
    """Return a column name without capitals and blanks, for comparison with common names.

    Parameters
    ----------
    name
        As written.

    Returns
    -------
    str
        In lower case, with underscores.

    Examples
    --------
    >>> plain_name("Model Name")
    'model_name'
    """
    return name.strip().lower().replace(" ", "_").replace("-", "_")
