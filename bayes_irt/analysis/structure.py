"""Structure of the list of LLMs: copies of one run, near-identical LLMs, groups of related ones.

The model takes the outcomes of different LLMs as independent, given abilities and items. Copies count one run's
evidence on the items several times, so that intervals are too narrow, and take several places on the board.
"""

from __future__ import annotations

import math

import numpy as np
import pandas as pd
from jaxtyping import Float

from bayes_irt.analysis.leaderboard import Leaderboard
from bayes_irt.analysis.row_agreement import RowAgreement, row_agreement
from bayes_irt.arguments import require_number, require_whole
from bayes_irt.checks import Check, CheckReport, Outcome
from bayes_irt.data_checks import identical_rows
from bayes_irt.errors import InvalidConfigurationError
from bayes_irt.formatting import percent_text
from bayes_irt.llm_groups import NO_GROUP, group_labels
from bayes_irt.metadata import counted
from bayes_irt.posterior import Posterior
from bayes_irt.responses import Responses

#: Excess agreement from which a pair counts as near-identical.
LEAST_EXCESS = 0.5
#: False-alarm rate of each check.
LEVEL = 0.01
_SHUFFLES = 999
_COMPARED = (
    "position",
    "ability",
    "rank_lower",
    "rank_upper",
    "p_best",
    "tie_group",
    "expected_accuracy",
)


def without_duplicates(responses: Responses) -> Responses:
    """Return the responses with one LLM of each group of identical rows, the first.

    Parameters
    ----------
    responses
        The data.

    Returns
    -------
    Responses
        The same where no two LLMs are identical; `identical_rows` names those. LLMs that are all right or all wrong
        stay.

    Examples
    --------
    >>> responses = Responses.from_arrays([[1, 0, 1], [1, 1, 0], [1, 0, 1]])
    >>> without_duplicates(responses).llms
    ('llm-001', 'llm-002')
    """
    copies = [llm for group in identical_rows(responses) for llm in group[1:]]
    return responses.drop(llms=copies) if copies else responses


def related_llms(
    posterior: Posterior,
    responses: Responses,
    *,
    least_excess: float = LEAST_EXCESS,
    false_alarm_rate: float = LEVEL,
) -> pd.DataFrame:
    """Find pairs of LLMs that agree far more than the model explains: copies, reruns, light fine-tunes.

    Parameters
    ----------
    posterior
        Draws of abilities and items.
    responses
        The data that were fitted.
    least_excess
        A pair is named where its excess agreement is at least this: they disagree on at most 1 minus that of the items
        on which two independent LLMs with their chances would.
    false_alarm_rate
        Probability that any pair is named though all are independent given abilities and items, at most.

    Returns
    -------
    pandas.DataFrame
        One row per pair, closest first: ``first``, ``second``, ``items_shared``, ``disagreements`` (on how many items
        they differ; for several attempts, the sum of squared differences of shares), ``expected`` (under
        independence), ``excess``, ``identical``.

    Raises
    ------
    InvalidConfigurationError
        If the responses are not those fitted, or an option is out of range.

    Examples
    --------
    >>> from bayes_irt import Sampler, fit_nuts, simulate_suite
    >>> responses = simulate_suite(6, 20).responses
    >>> sampler = Sampler(num_chains=2, num_warmup=100, num_draws=100)
    >>> len(related_llms(fit_nuts(responses, sampler=sampler), responses))
    0
    """
    require_number("least_excess", least_excess, 1e-6, 1)
    require_number("false_alarm_rate", false_alarm_rate, 1e-12, 0.5)
    found = row_agreement(posterior, responses)
    return _related(found, responses, least_excess, false_alarm_rate)


def _related(found: RowAgreement, responses: Responses, least: float, rate: float) -> pd.DataFrame:
    first, second = np.triu_indices(responses.num_llms, 1)
    excess, log_tail = found.excess[first, second], found.log_tail[first, second]
    with np.errstate(invalid="ignore"):
        named = np.flatnonzero((excess >= least) & (log_tail <= math.log(rate / len(first))))
    named = named[np.argsort(-excess[named], kind="stable")]
    first, second = first[named], second[named]
    labels = np.array(responses.llms, dtype=object)
    counts = (responses.successes, responses.attempts)
    same = [
        all(np.array_equal(values[one], values[other]) for values in counts)
        for one, other in zip(first, second, strict=True)
    ]
    return pd.DataFrame(
        {
            "first": labels[first],
            "second": labels[second],
            "items_shared": found.shared[first, second].astype(int),
            "disagreements": found.observed[first, second],
            "expected": found.expected[first, second],
            "excess": excess[named],
            "identical": np.array(same, dtype=bool),
        }
    )


def check_structure(
    posterior: Posterior, responses: Responses, *, group: str | None = None, seed: int = 0
) -> CheckReport:
    """Check whether LLMs are as independent as the model takes them to be.

    Parameters
    ----------
    posterior
        Draws of abilities and items.
    responses
        The data that were fitted.
    group
        A column of the LLMs' metadata that says who is related (family, base LLM); None for none.
    seed
        Seed of the permutations of groups.

    Returns
    -------
    CheckReport
        "near-identical LLMs" fails where pairs agree far more than the model explains (`related_llms`). With a group,
        "related LLMs" fails where LLMs of one group agree more than LLMs of different groups do, by a permutation test
        at level .01.

    Raises
    ------
    InvalidConfigurationError
        If the responses are not those fitted, the column is absent or tells nobody apart, or the seed is out of range.

    Examples
    --------
    >>> from bayes_irt import Sampler, fit_nuts, simulate_suite
    >>> responses = simulate_suite(6, 20).responses
    >>> sampler = Sampler(num_chains=2, num_warmup=100, num_draws=100)
    >>> print(check_structure(fit_nuts(responses, sampler=sampler), responses))
    pass: near-identical LLMs. Of 6 LLMs, no two agree far more than the model explains.
    """
    return pairs_and_checks(posterior, responses, group=group, seed=seed)[1]


def pairs_and_checks(
    posterior: Posterior, responses: Responses, *, group: str | None, seed: int
) -> tuple[pd.DataFrame, CheckReport]:
    """Return what `related_llms` and `check_structure` do, from one pass over the pairs.

    Parameters
    ----------
    posterior, responses, group, seed
        As `check_structure` takes them.

    Returns
    -------
    tuple
        Pairs and checks.

    Raises
    ------
    InvalidConfigurationError
        As `check_structure` does.
    """
    require_whole("seed", seed, 0)
    labels = None if group is None else group_labels(responses.llm_metadata, group)
    found = row_agreement(posterior, responses)
    related = _related(found, responses, LEAST_EXCESS, LEVEL)
    checks = [_check_pairs(related, responses.num_llms)]
    if labels is not None:
        checks.append(_check_groups(found.excess, labels, str(group), np.random.default_rng(seed)))
    return related, CheckReport(tuple(checks))


def board_changes(before: Leaderboard, after: Leaderboard) -> pd.DataFrame:
    """Set two boards beside each other: what dropping copies, for one, changes for the LLMs that stay.

    Parameters
    ----------
    before, after
        The boards.

    Returns
    -------
    pandas.DataFrame
        One row per LLM of both boards, in the order of the second: ``position``, ``ability``, ``rank_lower``,
        ``rank_upper``, ``p_best``, ``tie_group``, ``expected_accuracy`` and ``width`` (of the interval of ability),
        each with ``_before`` and ``_after``. Positions and ranks are those on each board: without copies there are
        fewer.

    Raises
    ------
    InvalidConfigurationError
        If the boards have no LLM in common, or intervals of different probability.

    Examples
    --------
    >>> from bayes_irt import Priors, Sampler, fit_cbmm, fit_nuts, rank_llms, simulate_suite
    >>> responses = simulate_suite(6, 20).responses
    >>> sampler = Sampler(num_chains=2, num_warmup=100, num_draws=100)
    >>> estimate = fit_cbmm(responses, penalty=Priors())
    >>> board = rank_llms(fit_nuts(responses, sampler=sampler), estimate, responses)
    >>> changes = board_changes(board, board)
    >>> bool((changes["width_before"] == changes["width_after"]).all())
    True
    """
    if before.prob != after.prob:
        raise InvalidConfigurationError(
            f"The boards have {percent_text(before.prob)} and {percent_text(after.prob)} intervals. Rank both with one "
            "prob."
        )
    common = [llm for llm in after.table.index if llm in before.table.index]
    if not common:
        raise InvalidConfigurationError("The boards have no LLM in common. Compare boards of one suite.")
    parts = []
    for board, word in ((before, "before"), (after, "after")):
        table = board.table.loc[common]
        width = table["ability_upper"] - table["ability_lower"]
        parts.append(table[list(_COMPARED)].assign(width=width).add_suffix(f"_{word}"))
    columns = [f"{name}_{word}" for name in (*_COMPARED, "width") for word in ("before", "after")]
    return pd.concat(parts, axis=1)[columns]


def _check_pairs(related: pd.DataFrame, num_llms: int) -> Check:
    name, of_all = "near-identical LLMs", f"Of {counted(num_llms, 'LLM')},"
    if related.empty:
        return Check(name, Outcome.PASS, f"{of_all} no two agree far more than the model explains.")
    row = related.iloc[0]
    same = int(related["identical"].sum())
    labels = tuple(
        dict.fromkeys(
            label for pair in zip(related["first"], related["second"], strict=True) for label in pair
        )
    )
    return Check(
        name,
        Outcome.FAIL,
        f"{of_all} {counted(len(related), 'pair')} agree far more than the model explains, {same:,} of them throughout "
        f"(closest: {row['first']!r} and {row['second']!r} disagree on {row['disagreements']:.4g} of "
        f"{counted(row['items_shared'], 'item')}, {row['expected']:.0f} expected). Their evidence on the items counts "
        "several times, so that intervals are too narrow: keep one of each (without_duplicates, drop).",
        labels,
    )


def _check_groups(
    excess: Float[np.ndarray, "llm llm"], labels: np.ndarray, group: str, rng: np.random.Generator
) -> Check:
    """Compare the excess agreement within groups with that of groups dealt at random."""
    first, second = np.triu_indices(len(labels), 1)
    together = (labels[first] == labels[second]) & (labels[first] != NO_GROUP)
    known = np.isfinite(excess[first, second])
    inside, outside = excess[first, second][together & known], excess[first, second][~together & known]
    name = f"related LLMs ({group})"
    if not len(inside) or not len(outside):
        return Check(name, Outcome.NOT_APPLICABLE, "No two LLMs of one group, or of two, share items.")
    one, other = first[together], second[together]
    shuffles = (rng.permutation(len(labels)) for _ in range(_SHUFFLES))
    dealt = np.array([np.nanmean(excess[order[one], order[other]]) for order in shuffles])
    p_value = (1 + np.count_nonzero(dealt >= inside.mean())) / (1 + _SHUFFLES)
    means = f"{inside.mean():.2f} within groups, {outside.mean():.2f} between"
    message = f"Mean excess agreement {means} (p = {p_value:.3f})."
    if p_value > LEVEL:
        return Check(name, Outcome.PASS, message)
    sizes = pd.Series(labels[labels != NO_GROUP]).value_counts()
    return Check(
        name,
        Outcome.FAIL,
        f"{message} LLMs of one {group} make the same mistakes, so that they count as more evidence than they are and "
        f"intervals are too narrow: keep one of each group, or model groups (ModelSpec(llm_groups={group!r})). Largest "
        "groups:",
        tuple(str(label) for label in sizes[sizes > 1].index),
    )
