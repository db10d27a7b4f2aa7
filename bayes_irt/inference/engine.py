"""What every engine does before it starts: check its arguments and find the estimate to start from."""

from __future__ import annotations

import warnings

import numpy as np

from bayes_irt.arguments import require_whole
from bayes_irt.cbmm import default_start, draw_start, fit_cbmm
from bayes_irt.errors import ConvergenceWarning, InvalidConfigurationError
from bayes_irt.estimate import PointEstimate
from bayes_irt.item_law import ItemTraits
from bayes_irt.model_spec import ModelSpec
from bayes_irt.priors import HalfNormal, LearnedShare, Penalty, Priors
from bayes_irt.provenance import require_same_data
from bayes_irt.responses import Responses
from bayes_irt.solvers import Solver

# Of a start drawn at random: more of them would all end at the penalty's one optimum.
_FEW_CYCLES = 10


def first_estimate(
    responses: Responses,
    spec: ModelSpec,
    estimate: PointEstimate | None,
    seed: int,
    traits: ItemTraits | None = None,
) -> PointEstimate:
    """Check an engine's arguments and return the point estimate that it starts from.

    Parameters
    ----------
    responses
        The data.
    spec
        The model.
    estimate
        A penalised estimate of the same responses; None to compute it.
    seed
        Seed of the engine's draws.
    traits
        Which items load on which trait; None for one trait.

    Returns
    -------
    PointEstimate
        The estimate.

    Raises
    ------
    InvalidConfigurationError
        If the estimate belongs to other data, has no penalty or other traits than the model, or the seed is out of
        range.
    """
    require_whole("seed", seed, 0)
    loads = None if traits is None else traits.loads
    if estimate is None:
        return fit_cbmm(responses, penalty=start_penalty(spec), loads=loads)
    require_same_data(estimate.provenance, responses.digest, "estimate")
    if estimate.provenance.configuration.get("penalty") is None:
        raise InvalidConfigurationError(
            "The estimate is not penalised, so that some of its items may lie at infinity. Fit it with a penalty: "
            "fit_cbmm(responses, penalty=Priors())."
        )
    found, wanted = estimate.parameters.num_traits, 1 if traits is None else traits.num_traits
    if found != wanted:
        raise InvalidConfigurationError(
            f"The estimate has {found} traits, the model has {wanted}; refit it with {wanted}."
        )
    if loads is not None and np.asarray(estimate.parameters.discrimination)[~loads].any():
        raise InvalidConfigurationError(
            "In the estimate items load on other traits than in the model; fit it with the same loads."
        )
    return estimate


def further_estimates(
    responses: Responses, spec: ModelSpec, first: PointEstimate, number: int, seed: int
) -> list[PointEstimate]:
    """Return rough estimates from other starts, for models whose traits are explored.

    Parameters
    ----------
    responses
        The data.
    spec
        The model.
    first
        The estimate from the usual start.
    number
        How many are wanted.
    seed
        Seed of the starts.

    Returns
    -------
    list of PointEstimate
        A few cycles from starts drawn at random: where these lead, their traits decide, not the penalty's.
    """
    loads = np.ones(np.shape(first.parameters.discrimination), dtype=bool)
    usual = default_start(responses, loads.shape[1])
    found = []
    for place in range(1, number + 1):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            found.append(
                fit_cbmm(
                    responses,
                    penalty=start_penalty(spec),
                    num_traits=loads.shape[1],
                    start=draw_start(usual, loads, seed, place),
                    solver=Solver(max_cycles=_FEW_CYCLES),
                )
            )
    return found


def start_penalty(spec: ModelSpec) -> Penalty | Priors:
    """Return the penalty of the point estimate from which an engine starts.

    Parameters
    ----------
    spec
        The model.

    Returns
    -------
    Penalty or Priors
        That of the priors; where discriminations are not half-normal, the default half-normal one stands in.
    """
    if isinstance(spec.priors.discrimination, HalfNormal):
        return spec.priors
    return Priors(easiness=spec.priors.easiness)


def settled_spec(responses: Responses, spec: ModelSpec | None) -> ModelSpec:
    """Return the model for some data.

    Parameters
    ----------
    responses
        The data.
    spec
        The model; None for the 2PL under the default priors.

    Returns
    -------
    ModelSpec
        The observation decided.
    """
    return (ModelSpec() if spec is None else spec).settled(int(responses.attempts.max(initial=0)))


def require_gaussian(spec: ModelSpec, engine: str) -> None:
    """Refuse models that Laplace does not fit: with related LLMs, testlets or learned floors.

    Parameters
    ----------
    spec
        The model.
    engine
        Name of the engine.

    Raises
    ------
    InvalidConfigurationError
        If the model is one of those.
    """
    unfit = {
        f"groups of LLMs (llm_groups={spec.llm_groups!r})": spec.related,
        f"testlets (item_groups={spec.item_groups!r})": spec.item_groups is not None,
        f"learned floors (floor={spec.floor!r})": isinstance(spec.floor, LearnedShare),
    }
    for what, there in unfit.items():
        if there:
            raise InvalidConfigurationError(
                f"{engine} cannot fit the {what} that the model has. Use fit_nuts or fit_svi (--method nuts or svi), "
                "or leave them out."
            )


def require_all_llms(spec: ModelSpec, batch_size: int | None) -> None:
    """Refuse minibatches of LLMs for models that are fitted in the coordinates of NUTS.

    Parameters
    ----------
    spec
        The model.
    batch_size
        Number of LLMs in a minibatch; None for all of them.

    Raises
    ------
    InvalidConfigurationError
        If there are minibatches and the model is one of those.
    """
    if batch_size is not None and spec.beyond_mode:
        raise InvalidConfigurationError(
            f"batch_size is {batch_size}, but with related LLMs, testlets, learned floors or several traits every step "
            "takes all LLMs. Leave batch_size (--batch-size) out."
        )
