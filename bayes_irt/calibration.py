"""Simulation-based calibration: whether an engine's posteriors are in the right place and of the right width.

Suites are drawn from the very model that is fitted, hyperpriors and standardised abilities included. Given its data,
a true parameter is then distributed like a posterior draw, so that its rank among independent draws is uniform: that is
tested by `rank_scores`. The log-likelihood is ranked too: an engine that ignores the data and returns the prior has
uniform ranks of all parameters, but not of that.

References
----------
Talts, S. et al. (2018). Validating Bayesian inference algorithms with simulation-based calibration. arXiv 1804.06788.
Modrák, M. et al. (2023). Simulation-based calibration checking for Bayesian computation: the choice of test
quantities shapes sensitivity. arXiv 2211.02383.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pandas as pd
from jaxtyping import Float

from bayes_irt.arguments import require_number, require_whole
from bayes_irt.cell_laws import Laws
from bayes_irt.cell_lists import observed_cells
from bayes_irt.checks import Check, CheckReport, Outcome
from bayes_irt.errors import InvalidConfigurationError, NumericalError
from bayes_irt.model_spec import ModelSpec
from bayes_irt.posterior import Posterior
from bayes_irt.prior_simulation import simulate_from_prior
from bayes_irt.rank_scores import LIKELIHOOD, judge_scores, score_draws
from bayes_irt.responses import Responses
from bayes_irt.simulate import SimulatedSuite

#: Responses, model and seed to posterior.
Engine = Callable[[Responses, ModelSpec, int], Posterior]

#: By how much the control is too narrow.
CONTROL_NARROWED_BY = 0.15

_LARGEST_AUTOCORRELATION = 0.25
_FEWEST_DATA_SETS = 50


@dataclass(frozen=True, slots=True)
class CalibrationPlan:
    """State how an engine is calibrated.

    Parameters
    ----------
    num_datasets
        Number of simulated data sets, at least 50: the tests' false-alarm rate is wrong with fewer.
    num_draws
        Number of draws kept of each posterior, evenly spaced, among which the truth is ranked. Draws of a chain should
        be nearly independent at this spacing.
    attempts
        Attempts per cell.
    false_alarm_rate
        Probability that an exact engine fails, over all tests of one report. In simulations it was within 1.5 times
        what is stated here.
    groups
        Label of each LLM's group, empty for none; wanted where the model has groups.

    Raises
    ------
    InvalidConfigurationError
        If a value is out of range.

    Examples
    --------
    >>> CalibrationPlan(num_datasets=200).num_draws
    63
    """

    num_datasets: int = 100
    num_draws: int = 63
    attempts: int = 1
    false_alarm_rate: float = 0.01
    groups: tuple[str, ...] | None = None

    def __post_init__(self) -> None:
        require_whole("num_datasets", self.num_datasets, _FEWEST_DATA_SETS)
        require_whole("num_draws", self.num_draws, 7)
        require_whole("attempts", self.attempts, 1)
        require_number("false_alarm_rate", self.false_alarm_rate, 1e-6, 0.5)


@dataclass(frozen=True, slots=True, eq=False)
class CalibrationReport:
    """Hold the calibration of an engine, beside a control that must fail.

    Parameters
    ----------
    engine
        Name of the engine, from its posteriors.
    scores
        One row per data set and kind of parameter: ``dataset``, ``kind``, ``mean_square`` and ``mean`` of the normal
        scores, ``autocorrelation`` of neighbouring draws.
    control
        The same of draws that were moved 15 % towards their mean.
    size
        Number of LLMs and of items.
    spec
        The model.
    plan
        How it was done.
    seed
        Seed of all data sets.
    failed
        Positions of the data sets on which the engine raised `NumericalError`; `dataset_seeds` has their seeds.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> def made_up(width):
    ...     sets = [({"x": rng.normal(size=9)}, {"x": width * rng.normal(size=(63, 9))}) for _ in range(50)]
    ...     return pd.concat([score_draws(*one, rng) for one in sets]).reset_index()
    >>> plan = CalibrationPlan(num_datasets=50)
    >>> report = CalibrationReport("exact", made_up(1.0), made_up(0.85), (8, 10), ModelSpec(), plan, 0)
    >>> report.passed
    True
    """

    engine: str
    scores: pd.DataFrame
    control: pd.DataFrame
    size: tuple[int, int]
    spec: ModelSpec
    plan: CalibrationPlan
    seed: int
    failed: tuple[int, ...] = ()

    @property
    def table(self) -> pd.DataFrame:
        """The tests of the engine, as `judge_scores` returns them."""
        return judge_scores(self.scores, self.plan.num_draws, self.plan.false_alarm_rate)

    @property
    def control_table(self) -> pd.DataFrame:
        """The same tests of the control."""
        return judge_scores(self.control, self.plan.num_draws, self.plan.false_alarm_rate)

    @property
    def checks(self) -> CheckReport:
        """One check per kind of parameter, and whether the test could have failed at all."""
        kinds = [
            _kind_check(str(kind), tests) for kind, tests in self.table.groupby(level="kind", sort=False)
        ]
        return CheckReport((*kinds, self._control_check(), self._independence_check(), self._fits_check()))

    @property
    def passed(self) -> bool:
        """Say whether the engine passed all tests and the control did not."""
        return self.checks.passed

    def _control_check(self) -> Check:
        noticed = ~self.control_table["passed"]
        message = (
            f"Draws moved {CONTROL_NARROWED_BY:.0%} towards their mean fail {noticed.sum()} of {len(noticed)} tests "
            f"with {self.plan.num_datasets} data sets."
        )
        if noticed.any():
            return Check("control", Outcome.PASS, message)
        return Check("control", Outcome.FAIL, message + " They must fail one: take more data sets.")

    def _independence_check(self) -> Check:
        highest = self.scores.groupby("kind")["autocorrelation"].mean()
        worst = str(highest.idxmax())
        message = f"The highest mean autocorrelation of neighbours is {highest.max():.2f}, of {worst}"
        if highest.max() <= _LARGEST_AUTOCORRELATION:
            return Check("independent draws", Outcome.PASS, message + ".")
        advice = f" (limit {_LARGEST_AUTOCORRELATION}): take more draws, or keep fewer."
        return Check("independent draws", Outcome.CANNOT_TELL, message + advice, (worst,))

    def _fits_check(self) -> Check:
        if not self.failed:
            return Check("fits", Outcome.PASS, "The engine gave a posterior of every data set.")
        message = f"The engine raised an error on {len(self.failed)} of {self.plan.num_datasets} data sets."
        return Check("fits", Outcome.FAIL, message, tuple(str(number) for number in self.failed))

    def __str__(self) -> str:
        verdict = "passed" if self.passed else "failed"
        return (
            f"Calibration of {self.engine}, {self.plan.num_datasets} data sets of {self.size[0]} LLMs x {self.size[1]} "
            f"items, false-alarm rate {self.plan.false_alarm_rate:g}: {verdict}\n{self.checks}"
        )


def check_calibration(
    engine: Engine,
    num_llms: int,
    num_items: int,
    *,
    spec: ModelSpec | None = None,
    plan: CalibrationPlan | None = None,
    item_metadata: pd.DataFrame | None = None,
    seed: int = 0,
) -> CalibrationReport:
    """Check an engine by simulation-based calibration.

    Parameters
    ----------
    engine
        Function of responses, model and seed that returns a `Posterior`.
    num_llms, num_items
        Size of the data sets, at least 2 each.
    spec
        The model; None for the default.
    plan
        How many data sets and draws; None for the defaults.
    item_metadata
        One row per item with the columns of floors and groups of items that the model names; None where it names none.
    seed
        Seed of all data sets and fits.

    Returns
    -------
    CalibrationReport
        Tests by kind of parameter, and those of a control.

    Raises
    ------
    InvalidConfigurationError
        If a posterior lacks draws or a parameter, or a number is out of range.
    NumericalError
        If the engine raised it on all data sets; on some, the report names them, and fails.

    References
    ----------
    Talts, S. et al. (2018). Validating Bayesian inference algorithms with simulation-based calibration. arXiv
    1804.06788.

    Examples
    --------
    >>> from bayes_irt.posterior import posterior_from_draws
    >>> from bayes_irt.prior_simulation import prior_predictive
    >>> from bayes_irt.provenance import Provenance
    >>> def prior_engine(responses, spec, seed):
    ...     sets = prior_predictive(spec, responses.num_llms, responses.num_items, num_draws=63, seed=seed).draws
    ...     draws = {name: array.to_numpy()[None] for name, array in sets.items() if "accuracy" not in name}
    ...     draws |= {name: draws[name][..., None] for name in ("ability", "discrimination")}
    ...     labels = responses.llms, responses.items
    ...     return posterior_from_draws(draws, {}, labels, Provenance("prior", {}, responses.digest, seed))

    An engine that returns the prior is right about each parameter, but its draws fit the data too badly:

    >>> report = check_calibration(prior_engine, 6, 20)
    >>> [check.name for check in report.checks.failures]
    ['log likelihood']
    """
    spec = ModelSpec() if spec is None else spec
    plan = CalibrationPlan() if plan is None else plan
    require_whole("seed", seed, 0)
    scores: list[pd.DataFrame] = []
    control: list[pd.DataFrame] = []
    failed, name = [], ""
    for number in range(plan.num_datasets):
        suite_seed, fit_seed, rank_seed = dataset_seeds(seed, number)
        suite = simulate_from_prior(
            spec,
            num_llms,
            num_items,
            attempts=plan.attempts,
            seed=suite_seed,
            groups=plan.groups,
            item_metadata=item_metadata,
        )
        try:
            posterior = engine(suite.responses, spec, fit_seed)
        except NumericalError:
            failed.append(number)
            continue
        name = posterior.provenance.method
        laws = posterior.laws
        truth, draws = true_values(suite, laws), thinned(posterior, plan.num_draws)
        there = truth["discrimination"] > 0  # where items load, of several traits
        truth["discrimination"] = truth["discrimination"][there]
        for narrowed_by, into in ((0.0, scores), (CONTROL_NARROWED_BY, control)):
            moved = {kind: _narrowed(values, narrowed_by) for kind, values in draws.items()}
            ranked = moved | {LIKELIHOOD: _log_likelihoods(suite.responses, moved, laws)}
            ranked["discrimination"] = ranked["discrimination"][:, there]
            table = score_draws(truth, ranked, np.random.default_rng(rank_seed))
            into.append(table.assign(dataset=number))
    if not scores:
        raise NumericalError(f"The engine gave no posterior of any of {plan.num_datasets} data sets.")
    return CalibrationReport(
        engine=name,
        scores=pd.concat(scores).reset_index(),
        control=pd.concat(control).reset_index(),
        size=(num_llms, num_items),
        spec=spec,
        plan=plan,
        seed=int(seed),
        failed=tuple(failed),
    )


def dataset_seeds(seed: int, number: int) -> tuple[int, int, int]:
    """Return independent seeds for the suite, the fit and the ranks of one data set.

    Parameters
    ----------
    seed
        Seed of all data sets.
    number
        Position of the data set.

    Returns
    -------
    tuple of int
        Seeds below 2^31.

    Examples
    --------
    >>> dataset_seeds(0, 1) == dataset_seeds(0, 2)
    False
    """
    first, second, third = np.random.SeedSequence([int(seed), number]).generate_state(3) >> 1
    return int(first), int(second), int(third)


def true_values(suite: SimulatedSuite, laws: Laws) -> dict[str, Float[np.ndarray, " parameter"]]:
    """Return the true value of everything that is ranked.

    Parameters
    ----------
    suite
        Responses with known truth, in the canonical gauge like every posterior.
    laws
        Those of a posterior of the same data, which know fixed floors and groups of items.

    Returns
    -------
    dict
        Kind of parameter to values: abilities, items, hyperparameters, whatever else the model learns, and the
        log-likelihood of the data.
    """
    truth = suite.truth
    values: dict[str, np.ndarray] = {
        "ability": np.asarray(truth.ability).ravel(),
        "discrimination": np.asarray(truth.discrimination).ravel(),
        "easiness": np.asarray(truth.easiness),
    }
    values |= {name: np.array([value]) for name, value in suite.hyperparameters.items()}
    values |= {name: value.ravel() for name, value in suite.further.items()}
    single = {name: value[None] for name, value in values.items()}
    return values | {LIKELIHOOD: _log_likelihoods(suite.responses, single, laws)[0]}


def thinned(posterior: Posterior, num_draws: int) -> dict[str, Float[np.ndarray, "draw parameter"]]:
    """Return evenly spaced draws of every parameter, all chains in a row.

    Parameters
    ----------
    posterior
        The draws.
    num_draws
        How many to keep.

    Returns
    -------
    dict
        Name to draws.

    Raises
    ------
    InvalidConfigurationError
        If the posterior has fewer draws.
    """
    if posterior.num_draws < num_draws:
        raise InvalidConfigurationError(
            f"The posterior has {posterior.num_draws} draws, and {num_draws} are to be kept. Draw more or keep fewer."
        )
    kept = ((np.arange(num_draws) + 0.5) * posterior.num_draws / num_draws).astype(int)
    arrays = {str(name): array.transpose("chain", "draw", ...) for name, array in posterior.draws.items()}
    return {name: array.to_numpy().reshape(posterior.num_draws, -1)[kept] for name, array in arrays.items()}


def _kind_check(kind: str, tests: pd.DataFrame) -> Check:
    by_statistic = tests.droplevel("kind")
    square = by_statistic.loc["mean_square"]
    message = f"Mean squared score {square['value']:.3f} ± {square['error']:.3f} ({square['expected']:.3f} expected)"
    faults = []
    if not square["passed"]:
        faults.append("too narrow" if square["value"] > square["expected"] else "too wide")
    if "mean" in by_statistic.index:
        mean = by_statistic.loc["mean"]
        message += f", mean score {mean['value']:+.3f} ± {mean['error']:.3f}"
        if not mean["passed"]:
            faults.append("too low" if mean["value"] > 0 else "too high")
    message += f", p = {tests['p_value'].min():.2g} (limit {square['limit']:.2g})."
    if not faults:
        return Check(kind, Outcome.PASS, message)
    return Check(kind, Outcome.FAIL, f"{message} The posteriors are {' and '.join(faults)}.")


def _narrowed(
    draws: Float[np.ndarray, "draw parameter"], share: float
) -> Float[np.ndarray, "draw parameter"]:
    return np.asarray(draws + share * (draws.mean(axis=0) - draws))


def _log_likelihoods(
    responses: Responses, draws: dict[str, Float[np.ndarray, "draw parameter"]], laws: Laws
) -> Float[np.ndarray, "draw 1"]:
    """Return each draw's log-likelihood, up to a constant of the data; one draw's cells at a time."""
    cells = observed_cells(responses)
    totals = [
        laws.with_values({name: values[draw] for name, values in draws.items()}).log_probability(cells).sum()
        for draw in range(len(draws["ability"]))
    ]
    return np.array(totals)[:, None]
