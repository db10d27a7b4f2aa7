"""Draws as a posterior names them, from the unconstrained sites of the NumPyro model; abilities are standardised."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jaxtyping import Array

from bayes_irt.correlations import cholesky_of
from bayes_irt.identify import standardise
from bayes_irt.inference.start import Start
from bayes_irt.inference.trait_start import TraitStart
from bayes_irt.model_spec import DISPERSION, SHARE, TESTLET_SCALE, TRAIT_CORRELATION, ModelSpec, hyperpriors
from bayes_irt.models import FLOOR, TESTLET, TRAIT_CHOLESKY
from bayes_irt.priors import LearnedScale


def named_sites(spec: ModelSpec, sites: dict[str, Array], start: Start | TraitStart) -> dict[str, Array]:
    """Return a draw's sites under a posterior's names, in the ranges of the model.

    Parameters
    ----------
    spec
        The model.
    sites
        Unconstrained values.
    start
        What says which items load on which trait.

    Returns
    -------
    dict
        Site name to value. Abilities and discriminations have an axis for traits, also for one.
    """
    sites = dict(sites)
    scales = [name for name, prior in hyperpriors(spec).items() if isinstance(prior, LearnedScale)]
    scales += [TESTLET_SCALE] if TESTLET_SCALE in sites else []
    sites |= {name: jnp.exp(sites[name]) for name in scales}
    shares = [name for name in (SHARE, DISPERSION, FLOOR) if name in sites]
    sites |= {name: jax.nn.sigmoid(sites[name]) for name in shares}
    if "discrimination" in sites:
        slopes = jnp.exp(sites.pop("discrimination"))
    else:
        slopes = jnp.exp(sites["discrimination_location"]) * jnp.ones_like(sites["easiness"])
    if isinstance(start, TraitStart):
        slopes = start.frame.loads.dense(slopes, sites["easiness"].shape[0])
    else:
        slopes = slopes[:, None]
    raw = sites.pop("ability_raw")
    ability = standardise(raw.reshape(raw.shape[0], -1).T).T
    if TRAIT_CHOLESKY in sites:
        factor = cholesky_of(sites.pop(TRAIT_CHOLESKY))
        sites[TRAIT_CORRELATION] = (factor @ factor.T)[jnp.triu_indices(ability.shape[1], 1)]
    if TESTLET in sites:
        sites[TESTLET] = sites[TESTLET_SCALE] * sites[TESTLET]
    return {"ability": ability, "discrimination": slopes, **sites}
