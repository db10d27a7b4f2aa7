"""A check of items that belong together: whether answers to them agree beyond what abilities explain.

References
----------
Yen, W. M. (1984). Effects of local item dependence on the fit and equating performance of the three-parameter logistic
model. Applied Psychological Measurement 8, 125-145.
Wainer, H., Bradlow, E. T. & Wang, X. (2007). Testlet Response Theory and Its Applications. Cambridge.
"""

from __future__ import annotations

import math

import numpy as np
from jaxtyping import Float

from bayes_irt.arguments import require_whole
from bayes_irt.checks import Check, CheckReport, Outcome
from bayes_irt.errors import InvalidConfigurationError
from bayes_irt.item_law import ItemGroups, item_groups
from bayes_irt.posterior import Posterior
from bayes_irt.provenance import require_same_data
from bayes_irt.responses import Responses

#: Level of the permutation test.
LEVEL = 0.01

_DRAWS = 20
_PERMUTATIONS = 199
_MOST_CELLS = 2_000_000
_MOST_COLUMNS = 3


def check_item_groups(
    posterior: Posterior, responses: Responses, column: str, *, seed: int = 0
) -> CheckReport:
    """Check whether an LLM's answers within groups of items agree more than its ability explains.

    Residuals are summed by LLM and group, and their squares compared with those of groups whose items are drawn at
    random: what the model misses elsewhere is in both.

    Parameters
    ----------
    posterior
        Draws of abilities and items.
    responses
        The data that were fitted.
    column
        Column of the items' metadata that says which items belong together.
    seed
        Seed of the permutations.

    Returns
    -------
    CheckReport
        One check, "items of one group", which fails at level .01. It says how large, about, the effects of groups on
        an LLM's logits are.

    Raises
    ------
    InvalidConfigurationError
        If the responses are not those fitted, the column is absent or tells no items apart, or the seed is out of
        range.

    Examples
    --------
    >>> import pandas as pd
    >>> from bayes_irt import Responses, fit_laplace, simulate_suite
    >>> dataset = simulate_suite(30, 60).responses.dataset
    >>> responses = Responses(dataset.assign_coords(topic=("item", ["a", "b", "c"] * 20)))
    >>> print(check_item_groups(fit_laplace(responses), responses, "topic"))
    pass: items of one group. ...
    """
    require_same_data(posterior.provenance, responses.digest, "posterior")
    require_whole("seed", seed, 0)
    groups = item_groups(responses.item_metadata, column)
    name = "items of one group"
    residual, variance = _residuals(posterior, responses)
    observed = _statistic(residual, variance, groups.number, len(groups.labels))
    rng = np.random.default_rng(seed)
    permuted = np.array(
        [
            _statistic(residual, variance, rng.permutation(groups.number), len(groups.labels))
            for _ in range(_PERMUTATIONS)
        ]
    )
    p_value = (1 + np.count_nonzero(permuted[:, 0] >= observed[0])) / (1 + _PERMUTATIONS)
    spread = math.sqrt(max(observed[0] - permuted[:, 0].mean(), 0.0) / observed[1])
    text = (
        f"Of {len(groups.labels):,} groups by {column!r}, p = {p_value:.3f}; the effects of groups on an LLM's logits "
        f"have an sd of about {spread:.2f}"
    )
    if p_value > LEVEL:
        return CheckReport((Check(name, Outcome.PASS, f"{text}."),))
    if column in (posterior.spec.item_groups, posterior.spec.traits):
        advice = ", although the model has them."
    elif posterior.traits:
        advice = ": intervals are too narrow. Effects of groups are not fitted beside several traits."
    else:
        advice = f": intervals are too narrow. Fit with item_groups={column!r} (NUTS; --item-group)."
    return CheckReport((Check(name, Outcome.FAIL, text + advice),))


def dependent_items(posterior: Posterior, responses: Responses) -> CheckReport:
    """Check the groups that the items' metadata know.

    Parameters
    ----------
    posterior
        Draws of abilities and items.
    responses
        The data that were fitted.

    Returns
    -------
    CheckReport
        One check for each of the first three columns of `grouping_columns`; none for suites of more than 2 million
        cells.

    Raises
    ------
    InvalidConfigurationError
        If the responses are not those fitted.
    """
    if responses.num_llms * responses.num_items > _MOST_CELLS:
        return CheckReport(())
    columns = grouping_columns(responses)[:_MOST_COLUMNS]
    return CheckReport(
        tuple(check for column in columns for check in check_item_groups(posterior, responses, column))
    )


def grouping_columns(responses: Responses) -> tuple[str, ...]:
    """Return the columns of the items' metadata that could group items: of words, few enough to repeat.

    Parameters
    ----------
    responses
        The data.

    Returns
    -------
    tuple of str
        Their names.
    """
    found = []
    for name, column in responses.item_metadata.items():
        words = column.dropna().map(lambda value: isinstance(value, str)).all()
        if not words or column.nunique() > responses.num_items / 2:
            continue
        try:
            groups: ItemGroups = item_groups(responses.item_metadata, str(name))
        except InvalidConfigurationError:
            continue
        if len(groups.labels) > 1:
            found.append(str(name))
    return tuple(found)


def _residuals(
    posterior: Posterior, responses: Responses
) -> tuple[Float[np.ndarray, "llm item"], Float[np.ndarray, "llm item"]]:
    """Return right answers less those expected, and the variance expected."""
    attempts = responses.attempts.astype(np.float64)
    laws, mean, variance = posterior.laws, np.zeros(attempts.shape), np.zeros(attempts.shape)
    kept = np.linspace(0, posterior.num_draws - 1, min(_DRAWS, posterior.num_draws)).astype(int)
    for draw in kept.tolist():
        law = laws.at(draw)
        chance = law.chances(slice(None)).astype(np.float64)
        mean += attempts * chance / len(kept)
        variance += attempts * chance * (1.0 - chance) * law.inflation(attempts) / len(kept)
    return responses.successes - mean, variance


def _statistic(
    residual: Float[np.ndarray, "llm item"],
    variance: Float[np.ndarray, "llm item"],
    number: np.ndarray,
    num_groups: int,
) -> Float[np.ndarray, " 2"]:
    """Return the sum of squared sums of residuals less their variances, and of squared variances."""
    member = np.zeros((len(number), num_groups))
    inside = np.flatnonzero(number >= 0)
    member[inside, number[inside]] = 1.0
    sums, spread = residual @ member, variance @ member
    return np.array([np.sum(sums**2 - spread), np.sum(spread**2)])
