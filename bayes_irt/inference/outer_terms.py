"""What items say about all that is neither LLM nor item, expected over the items' posterior: the terms of EM."""

from __future__ import annotations

import math
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from bayes_irt.inference.item_coordinates import log_hyper, log_regauged_prior, regauged_hyper
from bayes_irt.model_spec import ModelSpec

# Gauss-Hermite quadrature for a standard normal
_NODES, _WEIGHTS = (-math.sqrt(3.0), 0.0, math.sqrt(3.0)), (1 / 6, 2 / 3, 1 / 6)


def item_points(
    items: Float[Array, "item 2"], covariance: Float[Array, "item 2 2"]
) -> tuple[Float[Array, "point item 2"], Float[Array, " point"]]:
    """Return the points and weights of a Gauss-Hermite quadrature over each item's posterior.

    Parameters
    ----------
    items
        Modes of the items.
    covariance
        Their posterior covariances.

    Returns
    -------
    tuple of jax.Array
        3 x 3 points of every item, and their weights.
    """
    first = jnp.sqrt(covariance[:, 0, 0])
    mixed = covariance[:, 0, 1] / first
    last = jnp.sqrt(covariance[:, 1, 1] - mixed**2)
    moves = [jnp.stack([u * first, u * mixed + v * last], axis=1) for u in _NODES for v in _NODES]
    weights = jnp.asarray([p * q for p in _WEIGHTS for q in _WEIGHTS])
    return items + jnp.stack(moves), weights


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
    prior = partial(log_regauged_prior, spec)
    over = jax.vmap(jax.vmap(prior, (0, 0, None)), (0, None, None))

    def expected(at: Float[Array, " outer"]) -> Float[Array, ""]:
        return weights @ over(points, unit, at).sum(axis=1) + log_hyper(spec, regauged_hyper(spec, at))

    by_item = jax.jacfwd(lambda at: over(points, unit, at))(outer)
    apart = by_item - jnp.einsum("p,pjh->jh", weights, by_item)
    unknown = jnp.einsum("p,pjh,pjg->hg", weights, apart, apart)
    return OuterTerms(jax.grad(expected)(outer), -jax.hessian(expected)(outer), unknown)
