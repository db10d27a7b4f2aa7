"""Figures and tables as text."""

from __future__ import annotations

import math
import re

import pandas as pd


def markdown_table(table: pd.DataFrame, *, marked: bool = False) -> str:
    r"""Return a table of text as Markdown.

    Parameters
    ----------
    table
        The cells; the index is left out.
    marked
        Whether cells are Markdown already, such as bold figures; else they are text, and escaped by `markdown_text`.

    Returns
    -------
    str
        The table.

    Examples
    --------
    >>> print(markdown_table(pd.DataFrame({"LLM": ["a|b"]})))
    | LLM |
    | --- |
    | a\|b |
    <BLANKLINE>
    """
    rows = [list(table.columns), ["---"] * len(table.columns), *table.to_numpy().tolist()]
    lines = [
        "| " + " | ".join(str(cell) if marked else markdown_text(str(cell)) for cell in row) + " |"
        for row in rows
    ]
    return "\n".join(lines) + "\n"


def markdown_text(text: str) -> str:
    r"""Return a text, such as a name from data, so that Markdown shows it as it is.

    Parameters
    ----------
    text
        Any text.

    Returns
    -------
    str
        On one line; pipes, backslashes, emphasis, links and entities are escaped, and no tag can start in it.

    Examples
    --------
    >>> print(markdown_text("a|b <script>"), markdown_text("P < .001"))
    a\|b &lt;script> P < .001
    """
    line = re.sub(r"&(?=#?\w+;)", "&amp;", " ".join(text.split()))
    line = re.sub(r"([\\|*`~\[\]]|(?<!\w)_|_(?!\w))", r"\\\1", line)
    return re.sub(r"<(?=[A-Za-z/!?])", "&lt;", line)


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


def coverage_text(prob: float) -> str:
    """Return the sentence that stands under every board: what its intervals cover.

    Parameters
    ----------
    prob
        Probability of the intervals.

    Returns
    -------
    str
        One sentence.

    Examples
    --------
    >>> coverage_text(0.9)[:45]
    '90% intervals cover run-to-run noise and the '
    """
    return (
        f"{percent_text(prob)} intervals cover run-to-run noise and the choice of items like these; they do "
        "not cover prompts, the evaluation harness or contamination."
    )


def p_value_text(value: float) -> str:
    """Return a p-value with its sign of relation.

    Parameters
    ----------
    value
        The p-value.

    Returns
    -------
    str
        Three decimals.

    Examples
    --------
    >>> p_value_text(0.0412), p_value_text(1e-9)
    ('= 0.041', '< 0.001')
    """
    return f"= {value:.3f}" if value >= 0.001 else "< 0.001"


def standard_error_text(value: float) -> str:
    """Return a standard error of a share, n/a where it cannot be estimated.

    Parameters
    ----------
    value
        The standard error, or NaN.

    Returns
    -------
    str
        Three decimals.

    Examples
    --------
    >>> standard_error_text(0.0123), standard_error_text(float('nan'))
    ('0.012', 'n/a')
    """
    return "n/a" if math.isnan(value) else f"{value:.3f}"


def probability_relation(value: float) -> str:
    """Return a probability for a sentence, with its sign of relation.

    Parameters
    ----------
    value
        Between 0 and 1, from draws: no number of them makes sure.

    Returns
    -------
    str
        Three decimals.

    Examples
    --------
    >>> probability_relation(0.51), probability_relation(0.0001), probability_relation(1.0)
    ('= .510', '< .001', '> .999')
    """
    if value < 0.001:
        return "< .001"
    return "> .999" if value > 0.999 else f"= {value:.3f}".replace("0.", ".")


def probability_text(value: float) -> str:
    """Return a probability as a board shows it.

    Parameters
    ----------
    value
        Between 0 and 1.

    Returns
    -------
    str
        Three decimals without the leading zero.

    Examples
    --------
    >>> probability_text(0.51), probability_text(0.0001), probability_text(1.0)
    ('.510', '< .001', '1.000')
    """
    return "< .001" if value < 0.001 else f"{value:.3f}".removeprefix("0")
