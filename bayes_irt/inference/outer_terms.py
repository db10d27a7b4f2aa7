"""What items say about all that is neither LLM nor item, expected over the items' posterior: the terms of EM."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from itertools import product
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from bayes_irt.inference.item_coordinates import log_hyper, log_regauged_prior, regauged_hyper
from bayes_irt.model_spec import ModelSpec

# Gauss-Hermite quadrature for a standard normal
_NODES, _WEIGHTS = (-math.sqrt(3.0), 0.0, math.sqrt(3.0)), (1 / 6, 2 / 3, 1 / 6)
_MOST_IN_GRID = 3


def item_points(
    items: Float[Array, "item place"], covariance: Float[Array, "item place place"]
) -> tuple[Float[Array, "point item place"], Float[Array, " point"]]:
    """Return the points and weights of a quadrature over each item's posterior.

    Parameters
    ----------
    items
        Modes of the items.
    covariance
        Their posterior covariances.

    Returns
    -------
    tuple of jax.Array
        Points of every item, and their weights: Gauss and Hermite's 3 along each of up to 3 coordinates; beyond, two
        along each, of equal weights, which are exact for cubics.
    """
    factor, size = jnp.linalg.cholesky(covariance), items.shape[1]
    if size <= _MOST_IN_GRID:
        moves = np.array(list(product(_NODES, repeat=size)))
        weights = np.prod(list(product(_WEIGHTS, repeat=size)), axis=1)
    else:
        moves = math.sqrt(size) * np.concatenate([np.eye(size), -np.eye(size)])
        weights = np.full(2 * size, 0.5 / size)
    return items + jnp.einsum("jkl,pl->pjk", factor, jnp.asarray(moves)), jnp.asarray(weights)


class OuterTerms(NamedTuple):
    """What items say about the abilities' scale and location and about the hyperparameters, expected over the items.

    Attributes
    ----------
    score
        Derivative of the expected log density.
    precision
        Minus its second derivative: the information as if items were known.
    unknown
        Covariance of the score over the items' posterior: the information that is lost since they are not.
    """

    score: Float[Array, " outer"]
    precision: Float[Array, "outer outer"]
    unknown: Float[Array, "outer outer"]


@partial(jax.jit, static_argnames="spec")
def outer_terms(
    spec: ModelSpec,
    items: Float[Array, "item 2"],
    unit: Float[Array, " item"],
    covariance: Float[Array, "item 2 2"],
    hyper: Float[Array, " hyper"],
) -> OuterTerms:
    """Return score and information of log s, m and the hyperparameters, expected over the items' posterior.

    The expectation over an item's posterior, its variance included, is Gauss-Hermite quadrature at 3 x 3 points: the M
    step of EM must not take the items' modes for the items, or the scales collapse.

    Parameters
    ----------
    spec
        The model.
    items, unit
        Modes of the items.
    covariance
        Their posterior covariances.
    hyper
        Locations and log scales.

    Returns
    -------
    OuterTerms
        Score and information at s = 1 and m = 0, the hyperpriors' included.

    References
    ----------
    Louis, T. A. (1982). Finding the observed information matrix when using the EM algorithm. Journal of the Royal
    Statistical Society B 44, 226-233.
    """
    points, weights = item_points(items, covariance)
    outer = jnp.concatenate([jnp.zeros(2), hyper])
    over = jax.vmap(jax.vmap(partial(log_regauged_prior, spec), (0, 0, None)), (0, None, None))
    return terms_over(
        lambda at: over(points, unit, at),
        lambda at: log_hyper(spec, regauged_hyper(spec, at)),
        weights,
        outer,
    )


def terms_over(
    log_priors: Callable[[Float[Array, " outer"]], Float[Array, "point item"]],
    own: Callable[[Float[Array, " outer"]], Float[Array, ""]],
    weights: Float[Array, " point"],
    outer: Float[Array, " outer"],
) -> OuterTerms:
    """Return score and information, expected over points of every item.

    Parameters
    ----------
    log_priors
        Log prior of every item at each of its points.
    own
        What depends on no item.
    weights
        Those of the points.
    outer
        Where.

    Returns
    -------
    OuterTerms
        Score and information.
    """

    def expected(at: Float[Array, " outer"]) -> Float[Array, ""]:
        return weights @ log_priors(at).sum(axis=1) + own(at)

    by_item = jax.jacfwd(log_priors)(outer)
    apart = by_item - jnp.einsum("p,pjh->jh", weights, by_item)
    unknown = jnp.einsum("p,pjh,pjg->hg", weights, apart, apart)
    return OuterTerms(jax.grad(expected)(outer), -jax.hessian(expected)(outer), unknown)
