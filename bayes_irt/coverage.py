"""Coverage of intervals: how many true abilities, differences, item parameters and ranks they hold.

Suites are simulated from designs that are not the model's prior: locations and scales are fixed, discriminations
half-normal or log-normal, half of the cells missing in blocks, one LLM with few answers. The parameters of one suite
depend on each other, so errors are over suites.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
import pandas as pd
from jaxtyping import Bool, Float, Integer
from scipy.stats import t as student

from bayes_irt.analysis.ranks import rank_intervals, ranks_by_draw
from bayes_irt.arguments import require_number, require_whole
from bayes_irt.calibration import Engine, dataset_seeds
from bayes_irt.checks import Check, CheckReport, Outcome
from bayes_irt.errors import InvalidConfigurationError
from bayes_irt.formatting import percent_text
from bayes_irt.model_spec import ModelSpec
from bayes_irt.posterior import Posterior
from bayes_irt.responses import Responses
from bayes_irt.simulate import CONSTANT_EASINESS, SimulatedSuite, SuiteDesign, simulate_suite

_BLOCKS = 4
_MOST_PAIRS = 200


@dataclass(frozen=True, slots=True)
class CoverageCase:
    """State a kind of suite whose intervals are counted.

    Parameters
    ----------
    name
        What to call it.
    num_llms, num_items
        Size, at least 4 LLMs and 4 items.
    design
        How truth and cells are drawn.
    spec
        The model that is fitted.
    missing_blocks
        Whether half of the cells are taken away in blocks; see `block_pattern`.
    few_answers
        Number of answers that the first LLM keeps; None for all. Its ability is counted by itself too.

    Raises
    ------
    InvalidConfigurationError
        If a size is too small, `few_answers` not below the number of answers an LLM has, or the model has groups of
        LLMs, which these suites have not.

    Examples
    --------
    >>> CoverageCase("small", 8, 40, few_answers=10).missing_blocks
    False
    """

    name: str
    num_llms: int
    num_items: int
    design: SuiteDesign = field(default_factory=SuiteDesign)
    spec: ModelSpec = field(default_factory=ModelSpec)
    missing_blocks: bool = False
    few_answers: int | None = None

    def __post_init__(self) -> None:
        require_whole("num_llms", self.num_llms, _BLOCKS)
        require_whole("num_items", self.num_items, _BLOCKS)
        if self.spec.llm_groups is not None:
            raise InvalidConfigurationError(
                f"The model has LLM groups ({self.spec.llm_groups!r}); these suites have none. Use check_calibration."
            )
        if self.few_answers is not None:
            require_whole("few_answers", self.few_answers, 1)
            if self.few_answers >= self.num_items // (2 if self.missing_blocks else 1):
                raise InvalidConfigurationError(
                    f"few_answers is {self.few_answers}; an LLM has no more than that."
                )


_LOG_NORMAL = SuiteDesign(discrimination="log-normal", discrimination_scale=0.5)

#: The grid: sizes, truths, missing cells.
COVERAGE_CASES = (
    CoverageCase("8 x 40", 8, 40),
    CoverageCase("8 x 40, log-normal", 8, 40, _LOG_NORMAL),
    CoverageCase("30 x 200", 30, 200),
    CoverageCase("30 x 200, log-normal", 30, 200, _LOG_NORMAL),
    CoverageCase("30 x 200, half missing in blocks", 30, 200, missing_blocks=True),
    CoverageCase("30 x 200, one LLM with 10 answers", 30, 200, few_answers=10),
    CoverageCase("29 x 2,000", 29, 2000),
    CoverageCase("29 x 2,000, log-normal", 29, 2000, _LOG_NORMAL),
    CoverageCase("29 x 2,000, one LLM with 10 answers", 29, 2000, few_answers=10),
    CoverageCase("150 x 15", 150, 15),
    CoverageCase("140 x 500", 140, 500),
    CoverageCase("140 x 500, log-normal", 140, 500, _LOG_NORMAL),
    CoverageCase("140 x 500, half missing in blocks", 140, 500, missing_blocks=True),
    CoverageCase("140 x 500, one LLM with 10 answers", 140, 500, few_answers=10),
)

#: Kinds on which other programs fail: few LLMs and many items, some of them constant, and long suites.
HARD_CASES = (
    CoverageCase("40 x 400, 2 % constant", 40, 400, SuiteDesign(constant_share=0.02)),
    CoverageCase("100 x 4,000, 2 % constant", 100, 4000, SuiteDesign(constant_share=0.02)),
    CoverageCase("2,000 x 500, log-normal .3", 2000, 500, SuiteDesign("log-normal", 0.3, easiness_scale=1.0)),
)


def measure_coverage(
    engine: Engine,
    cases: Sequence[CoverageCase] = COVERAGE_CASES,
    *,
    num_suites: int = 20,
    probs: tuple[float, ...] = (0.5, 0.8, 0.9),
    seed: int = 0,
) -> pd.DataFrame:
    """Count how many true values an engine's equal-tailed intervals hold.

    Parameters
    ----------
    engine
        Function of responses, model and seed that returns a `Posterior`.
    cases
        Kinds of suites.
    num_suites
        Number of suites of each kind, at least 2.
    probs
        Probabilities of the intervals.
    seed
        Seed of all suites and fits.

    Returns
    -------
    pandas.DataFrame
        One row per case, kind of parameter and probability: ``case``, ``engine``, ``kind`` ("ability", "ability
        difference" over pairs of LLMs, "discrimination", "easiness", "rank", and "ability, few answers" where one
        LLM has few), ``prob``, ``covered`` (share of true values held), ``error`` (its standard error over suites),
        ``width`` (mean, in the parameter's unit; for ranks the highest minus the lowest), ``num_suites``,
        ``num_parameters`` (per suite) and ``seed``.

    Raises
    ------
    InvalidConfigurationError
        If `num_suites` is below 2, or a probability does not lie between 0 and 1.

    Examples
    --------
    >>> from bayes_irt import Sampler, fit_nuts
    >>> sampler = Sampler(num_chains=2, num_warmup=100, num_draws=100)
    >>> def nuts(responses, spec, seed):
    ...     return fit_nuts(responses, spec=spec, sampler=sampler, seed=seed)
    >>> table = measure_coverage(nuts, [CoverageCase("6 x 20", 6, 20)], num_suites=2)
    >>> table.shape, bool(table["covered"].between(0, 1).all())
    ((15, 10), True)
    """
    require_whole("num_suites", num_suites, 2)
    require_whole("seed", seed, 0)
    for prob in probs:
        require_number("probs", prob, 1e-6, 1 - 1e-6)
    tables = [_measure_case(engine, case, num_suites, probs, seed) for case in cases]
    return pd.concat(tables, ignore_index=True)


def _measure_case(
    engine: Engine, case: CoverageCase, num_suites: int, probs: tuple[float, ...], seed: int
) -> pd.DataFrame:
    rows, name = [], ""
    for number in range(num_suites):
        suite_seed, fit_seed, pair_seed = dataset_seeds(seed, number)
        suite = simulate_case(case, seed=suite_seed)
        posterior = engine(suite.responses, case.spec, fit_seed)
        name = posterior.provenance.method
        rng = np.random.default_rng(pair_seed)
        rows += list(_count_suite(case, suite, posterior, probs, rng))
    columns = ["kind", "prob", "covered", "width", "num_parameters"]
    by_suite = pd.DataFrame(rows, columns=columns).groupby(["kind", "prob"], sort=False)
    table = by_suite[["covered", "width", "num_parameters"]].mean()
    table.insert(1, "error", by_suite["covered"].std() / np.sqrt(num_suites))
    table.insert(3, "num_suites", num_suites)
    table["num_parameters"] = table["num_parameters"].astype(int)
    table = table.reset_index()
    table.insert(0, "case", case.name)
    table.insert(1, "engine", name)
    return table.assign(seed=seed)


def _count_suite(
    case: CoverageCase,
    suite: SimulatedSuite,
    posterior: Posterior,
    probs: tuple[float, ...],
    rng: np.random.Generator,
) -> Iterator[tuple[str, float, float, float, int]]:
    """Yield kind, probability, share covered, mean width and number of parameters."""
    truth, drawn = suite.truth, posterior.parameters
    ability, abilities = np.asarray(truth.ability[:, 0]), np.asarray(drawn.ability[..., 0])
    one, other = _pairs(len(ability), rng)
    usual = np.abs(truth.easiness) < CONSTANT_EASINESS  # not those made constant, which follow no prior
    kinds = {
        "ability": (ability, abilities),
        "ability difference": (ability[one] - ability[other], abilities[:, one] - abilities[:, other]),
        "discrimination": (
            truth.discrimination[usual, 0],
            np.asarray(drawn.discrimination[..., 0])[:, usual],
        ),
        "easiness": (truth.easiness[usual], np.asarray(drawn.easiness)[:, usual]),
    }
    if case.few_answers is not None:
        kinds["ability, few answers"] = (ability[:1], abilities[:, :1])
    for kind, (true, draws) in kinds.items():
        for prob, held, width in zip(probs, *count_intervals(true, draws, probs), strict=True):
            yield kind, prob, float(held.mean()), float(width.mean()), len(true)
    true_ranks, ranks = ranks_by_draw(ability[None])[0], ranks_by_draw(abilities)
    for prob in probs:
        lower, upper = rank_intervals(ranks, prob)
        held = (lower <= true_ranks) & (true_ranks <= upper)
        yield "rank", prob, float(held.mean()), float((upper - lower).mean()), len(ability)


def count_intervals(
    truth: Float[np.ndarray, " parameter"],
    draws: Float[np.ndarray, "draw parameter"],
    probs: tuple[float, ...],
) -> tuple[Bool[np.ndarray, "prob parameter"], Float[np.ndarray, "prob parameter"]]:
    """Say which true values lie in equal-tailed intervals, and how wide these are.

    Parameters
    ----------
    truth
        True values.
    draws
        Draws of each.
    probs
        Probabilities of the intervals.

    Returns
    -------
    tuple of numpy.ndarray
        True where the interval holds the true value; width of the interval.

    Examples
    --------
    >>> draws = np.linspace(0.0, 1.0, 101)[:, None]
    >>> held, width = count_intervals(np.array([0.9]), draws, (0.5, 0.9))
    >>> held.ravel(), width.ravel()
    (array([False,  True]), array([0.5, 0.9]))
    """
    tails = np.array([((1 - prob) / 2, (1 + prob) / 2) for prob in probs])
    lower, upper = np.moveaxis(np.quantile(draws, tails, axis=0), 1, 0)
    return (lower <= truth) & (truth <= upper), upper - lower


def _pairs(
    num_llms: int, rng: np.random.Generator
) -> tuple[Integer[np.ndarray, " pair"], Integer[np.ndarray, " pair"]]:
    """Draw pairs of different LLMs, each pair at most once."""
    first, second = np.triu_indices(num_llms, 1)
    chosen = rng.permutation(len(first))[:_MOST_PAIRS]
    return first[chosen], second[chosen]


def simulate_case(case: CoverageCase, *, seed: int = 0) -> SimulatedSuite:
    """Draw a suite of a kind.

    Parameters
    ----------
    case
        The kind.
    seed
        Seed of NumPy's generator.

    Returns
    -------
    SimulatedSuite
        Responses and truth. Every LLM keeps an answer; an item that loses its last one keeps it after all.

    Examples
    --------
    >>> suite = simulate_case(CoverageCase("few", 8, 40, few_answers=10))
    >>> int(suite.responses.attempts[0].sum()), int(suite.responses.attempts[1].sum())
    (10, 40)
    """
    suite = simulate_suite(case.num_llms, case.num_items, design=case.design, seed=seed)
    attempts, successes = suite.responses.attempts.copy(), suite.responses.successes.copy()
    if case.missing_blocks:
        attempts[~block_pattern(case.num_llms, case.num_items)] = 0
    if case.few_answers is not None:
        seen = np.random.default_rng([seed, 1]).permutation(np.flatnonzero(attempts[0]))
        attempts[0, seen[case.few_answers :]] = 0
    lost = ~attempts.any(axis=0)
    attempts[:, lost] = suite.responses.attempts[:, lost]
    successes = np.where(attempts > 0, successes, 0)
    return SimulatedSuite(Responses.from_arrays(successes, attempts), suite.truth, suite.hyperparameters)


def block_pattern(num_llms: int, num_items: int) -> Bool[np.ndarray, "llm item"]:
    """Say which cells are observed where half are missing in blocks, and all LLMs are still linked.

    LLMs fall into four groups, items into four blocks in a ring; each group sees two neighbouring blocks, so that
    neighbouring groups share one block and opposite groups none.

    Parameters
    ----------
    num_llms, num_items
        Size.

    Returns
    -------
    numpy.ndarray
        True where observed.

    Examples
    --------
    >>> block_pattern(4, 4).astype(int)
    array([[1, 1, 0, 0],
           [0, 1, 1, 0],
           [0, 0, 1, 1],
           [1, 0, 0, 1]])
    """
    group = np.arange(num_llms)[:, None] % _BLOCKS
    block = np.arange(num_items)[None, :] * _BLOCKS // num_items
    return np.asarray((block - group) % _BLOCKS < 2)


def check_coverage(
    table: pd.DataFrame, *, slack: float = 0.02, false_alarm_rate: float = 0.01
) -> CheckReport:
    """Check that intervals hold at least their probability less a slack.

    Parameters
    ----------
    table
        What `measure_coverage` returns.
    slack
        How much less than the probability is accepted.
    false_alarm_rate
        Probability of any failure where all intervals hold just enough, over the whole table.

    Returns
    -------
    CheckReport
        One check per row: it fails where fewer are held by more than chance allows (a t test over suites, with the
        error at least that of independent parameters), and cannot tell where fewer are held but chance allows it.

    Examples
    --------
    >>> row = {"case": "a", "engine": "x", "kind": "rank", "prob": 0.9, "covered": 0.5, "error": 0.01,
    ...        "width": 3.0, "num_suites": 20, "num_parameters": 30}
    >>> print(check_coverage(pd.DataFrame([row])))
    fail: a, x, rank, 90%. 50.0% ± 1.0% held, at least 88% wanted.
    """
    checks = []
    for row in table.to_dict("records"):
        wanted = row["prob"] - slack
        least_error = np.sqrt(wanted * (1 - wanted) / (row["num_suites"] * row["num_parameters"]))
        limit = student.ppf(1 - false_alarm_rate / len(table), row["num_suites"] - 1)
        short = wanted - row["covered"]
        outcome = Outcome.PASS if short <= 0 else Outcome.CANNOT_TELL
        if short > limit * max(row["error"], least_error):
            outcome = Outcome.FAIL
        name = f"{row['case']}, {row['engine']}, {row['kind']}, {percent_text(row['prob'])}"
        message = f"{row['covered']:.1%} ± {row['error']:.1%} held, at least {percent_text(wanted)} wanted."
        checks.append(Check(name, outcome, message))
    return CheckReport(tuple(checks))
