"""What the options of the command line amount to: models, rules for scores, and the plan of a fit."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import typer

from bayes_irt.cli_options import Algorithm, Discrimination, Method, Model, ObservationName

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from bayes_irt.fitting import FitPlan
    from bayes_irt.model_spec import ModelSpec
    from bayes_irt.responses import Responses
    from bayes_irt.scores import ScoreRule
    from bayes_irt.solvers import Solver

_ENGINES = (Method.LAPLACE, Method.SVI, Method.NUTS)
#: Options that only some methods have.
METHODS_OF = {
    "--no-penalty": (Method.CBMM,),
    "--algorithm": (Method.CBMM,),
    "--starts": (Method.CBMM,),
    "--discrimination": _ENGINES,
    "--model": _ENGINES,
    "--floor": _ENGINES,
    "--observation": _ENGINES,
    "--item-group": (Method.SVI, Method.NUTS),
    "--traits": _ENGINES,
    "--general": _ENGINES,
    "--draws": _ENGINES,
    "--guide": (Method.SVI,),
    "--batch-size": (Method.SVI,),
    "--chains": (Method.NUTS,),
    "--warmup": (Method.NUTS,),
    "--target-accept": (Method.NUTS,),
    "--thinning": (Method.NUTS,),
    "--chain-method": (Method.NUTS,),
    "--group": (Method.SVI, Method.NUTS),
}


def refuse_idle(method: Method, given: Mapping[str, object]) -> None:
    """Refuse options that the method does not have, before anything is read.

    Parameters
    ----------
    method
        The rung of the ladder.
    given
        Option to its value; None where it was not given.

    Raises
    ------
    typer.BadParameter
        If an option would do nothing.
    """
    for option, value in given.items():
        methods = METHODS_OF[option]
        if value is not None and method not in methods:
            named = " or ".join(methods)
            raise typer.BadParameter(f"{option} is for --method {named}; with {method} it would do nothing.")


def score_rule(threshold: float | None, parts: int | None) -> ScoreRule | None:
    """Return how fractional scores are read.

    Parameters
    ----------
    threshold
        The smallest score that is right.
    parts
        The number of parts that scores are shares of.

    Returns
    -------
    ScoreThreshold, ScoreParts or None
        The rule; None refuses fractional scores.

    Raises
    ------
    InvalidConfigurationError
        If both are given.
    """
    from bayes_irt.errors import InvalidConfigurationError
    from bayes_irt.scores import ScoreParts, ScoreThreshold

    if threshold is not None and parts is not None:
        raise InvalidConfigurationError(
            "A threshold and a number of parts are two rules for one score; give one."
        )
    if threshold is not None:
        return ScoreThreshold(threshold)
    return None if parts is None else ScoreParts(parts)


def trait_of(names: Sequence[str] | None, known: Sequence[str]) -> str | dict[str, float] | None:
    """Return the trait to rank on, or weights of several.

    Parameters
    ----------
    names
        Names, each with or without ``=WEIGHT``.
    known
        Names of the traits that there are; one of these is a name, whatever signs it holds.

    Returns
    -------
    str, dict or None
        None where there are no names.

    Raises
    ------
    InvalidConfigurationError
        If a weight is no number, or a trait is named twice.
    """
    from bayes_irt.errors import InvalidConfigurationError

    if not names:
        return None
    if len(names) == 1 and (names[0] in known or "=" not in names[0]):
        return names[0]
    weights: dict[str, float] = {}
    for entry in names:
        plain = entry in known or "=" not in entry
        name, _, weight = (entry, "", "") if plain else entry.rpartition("=")
        if name in weights:
            raise InvalidConfigurationError(f"The trait {name!r} is named twice.")
        try:
            weights[name] = float(weight or 1)
        except ValueError:
            raise InvalidConfigurationError(
                f"The weight of the trait {name!r} is {weight!r}; it must be a number."
            ) from None
    return weights


def solver_of(*, penalise: bool, algorithm: Algorithm | None, starts: int, seed: int) -> Solver:
    """Return how cBMM searches.

    Parameters
    ----------
    penalise
        Whether the estimate is penalised; without a penalty the paper's stop rule is in force.
    algorithm
        The algorithm; None for the accelerated one, or the paper's cycle without a penalty.
    starts
        Number of starts.
    seed
        Their seed.

    Returns
    -------
    Solver
        The options of `fit_cbmm`.
    """
    from bayes_irt.solvers import Solver

    if algorithm is None:
        algorithm = Algorithm.NEWTON if penalise else Algorithm.PAPER
    stop: Any = "parameters" if penalise else "relative loss"
    return Solver(algorithm=algorithm.value, stop=stop, starts=starts, seed=seed)


#: Prior of floors that are learned: about .2, such as of five options, with a weight of 22 answers.
LEARNED_FLOOR = (5.0, 17.0)


def spec_of(  # noqa: PLR0913  one per option
    *,
    model: Model | None = None,
    discrimination: Discrimination | None = None,
    floor: str | None = None,
    observation: ObservationName | None = None,
    llm_groups: str | None = None,
    item_groups: str | None = None,
    traits: Sequence[str] = (),
    general: bool = False,
) -> ModelSpec:
    """Return the model that options name.

    Parameters
    ----------
    model
        The chance of a right answer; None for the 2PL.
    discrimination
        Family of the discriminations' prior; None for the default.
    floor
        A number, a column, or "learned".
    observation
        How attempts hang together; None for "auto".
    llm_groups, item_groups
        Metadata columns of related LLMs and of items that belong together.
    traits, general
        Columns that say which trait an item loads on, or a number of traits to explore; and whether all load on a
        general one as well.

    Returns
    -------
    ModelSpec
        The model.

    Raises
    ------
    InvalidConfigurationError
        If options contradict each other.
    """
    from bayes_irt.errors import InvalidConfigurationError
    from bayes_irt.model_spec import ModelSpec
    from bayes_irt.priors import (
        Common,
        Exponential,
        Gamma,
        HalfNormal,
        LearnedShare,
        LogNormal,
        Priors,
        TruncatedNormal,
        sparse_priors,
    )

    if (floor is None) == (model is Model.GUESS):
        raise InvalidConfigurationError(
            "--model guess takes a --floor: a number, a column of the items' table, or 'learned'."
            if floor is None
            else f"--floor is for --model guess; with {model or Model.TWO} it would do nothing."
        )
    if model is Model.ONE and discrimination is not None:
        raise InvalidConfigurationError(
            "--discrimination is a prior of many; --model 1pl has one discrimination."
        )
    explored = int(traits[0]) if len(traits) == 1 and traits[0].isdecimal() else None
    usual = Discrimination.HALF_NORMAL if explored is None else Discrimination.SPARSE
    family: Any = {
        Discrimination.HALF_NORMAL: HalfNormal,
        Discrimination.LOG_NORMAL: LogNormal,
        Discrimination.GAMMA: Gamma,
        Discrimination.EXPONENTIAL: Exponential,
        Discrimination.TRUNCATED_NORMAL: TruncatedNormal,
        Discrimination.SPARSE: lambda: sparse_priors().discrimination,
    }[discrimination or usual]
    least: float | str | LearnedShare | None = floor
    if floor == "learned":
        least = LearnedShare(*LEARNED_FLOOR)
    elif floor is not None:
        try:
            least = float(floor)
        except ValueError:
            least = floor
    return ModelSpec(
        Priors(discrimination=Common() if model is Model.ONE else family()),
        floor=least,
        observation=(observation or ObservationName.AUTO).value,
        llm_groups=llm_groups,
        item_groups=item_groups,
        traits=explored or (traits[0] if len(traits) == 1 else tuple(traits) or None),
        general=general,
    )


def suites_as_one(paths: Sequence[Path], suites: Sequence[Responses]) -> Responses:
    """Return the responses of several tables as those of suites named by their files.

    Parameters
    ----------
    paths
        The tables.
    suites
        What was read of each.

    Returns
    -------
    Responses
        With a column ``suite`` of the items.

    Raises
    ------
    InvalidConfigurationError
        If two files have one name.
    """
    from bayes_irt.errors import InvalidConfigurationError, some
    from bayes_irt.united_suites import unite_suites

    names = [path.stem for path in paths]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise InvalidConfigurationError(
            f"Two tables are called {some(twice)}; their names are those of the suites."
        )
    return unite_suites(dict(zip(names, suites, strict=True)))


def plan_of(
    method: Method,
    seed: int,
    *,
    spec: ModelSpec | None = None,
    draws: int | None = None,
    solver: Solver | None = None,
    engine: dict[str, Any] | None = None,
) -> FitPlan:
    """Return what to fit; what only one engine needs is imported for it alone.

    Parameters
    ----------
    method
        The rung of the ladder.
    seed
        Seed of all draws.
    spec
        The model; None for the default.
    draws
        Number of draws, of each chain of NUTS; None for the default.
    solver
        How cBMM searches.
    engine
        Options of `Sampler` or `Optimizer`; those that are None keep their defaults.

    Returns
    -------
    FitPlan
        The plan.
    """
    from bayes_irt.fitting import FitPlan
    from bayes_irt.model_spec import ModelSpec

    given = {name: value for name, value in (engine or {}).items() if value is not None}
    options: dict[str, Any] = {}
    if method is Method.NUTS:
        from bayes_irt.inference.nuts import Sampler

        options["sampler"] = Sampler(**given if draws is None else {**given, "num_draws": draws})
    elif draws is not None:
        options["num_draws"] = draws
    if method is Method.SVI:
        from bayes_irt.inference.svi import Optimizer

        options["optimizer"] = Optimizer(**given)
    penalise = solver is None or solver.stop == "parameters"
    return FitPlan(method.value, spec or ModelSpec(), penalise=penalise, solver=solver, seed=seed, **options)
