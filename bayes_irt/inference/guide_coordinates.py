"""The space in which SVI's guide is normal: the map to parameters, where the guide starts, the log density there."""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.linalg import solve_triangular
from jaxtyping import Array, Float, Integer

from bayes_irt.inference.arrow import Arrow, log_prior_density
from bayes_irt.inference.centre import Gaussian
from bayes_irt.inference.place import Place, parameters_of
from bayes_irt.inference.shared import observed_at
from bayes_irt.likelihood import Cells, log_likelihood
from bayes_irt.model_spec import ModelSpec
from bayes_irt.parameters import Parameters

_SUBSPACE_ROUNDS = 8


class GuideCoordinates(NamedTuple):
    """Hold the data and the map from a guide's space to parameters; one argument of the compiled step."""

    cells: Cells
    unit: Float[Array, " item"]
    centre: Place
    fixed: Float[Array, "llm 2"]
    holding: Float[Array, ""]
    core_factor: Float[Array, "core core"] | None
    coupling: Float[Array, "llm two_items"] | None
    hyper_coupling: Float[Array, "hyper two_items"] | None
    item_factor: Float[Array, "3 item"]
    core_sd: Float[Array, " core"]
    log_volume: Float[Array, ""]

    @property
    def size(self) -> int:
        """Number of coordinates."""
        return len(self.core_sd) + 2 * self.num_items

    @property
    def num_llms(self) -> int:
        """Number of LLMs."""
        return len(self.centre.ability)

    @property
    def num_items(self) -> int:
        """Number of items."""
        return int(self.item_factor.shape[1])


def guide_coordinates(gaussian: Gaussian, cells: Cells, whole: bool) -> GuideCoordinates:
    """Return the map of a guide, centred where Laplace is.

    Parameters
    ----------
    gaussian
        Laplace's approximation.
    cells
        The data.
    whole
        Whether the guide's axes are those of the whole arrow, or of abilities and items one by one.

    Returns
    -------
    GuideCoordinates
        Map and data.
    """
    arrow, mode = gaussian.arrow, gaussian.mode
    assert isinstance(arrow, Arrow)  # that of one trait
    num_llms = len(arrow.information)
    hyper_precision = np.einsum("hj,hj->h", arrow.hyper_coupling, arrow.hyper_coupling)
    hyper_precision += np.square(arrow.core_factor[num_llms:]).sum(axis=1)
    core_sd = 1.0 / np.sqrt(np.concatenate([arrow.information, hyper_precision]))
    first, mixed, last = arrow.item_factor
    if whole:
        log_volume = -np.log(np.diag(arrow.core_factor)).sum() - np.log(first * last).sum()
    else:
        log_volume = np.log(core_sd).sum() - np.log(first * np.hypot(mixed, last)).sum()
    return GuideCoordinates(
        cells=cells,
        unit=jnp.asarray(mode.unit),
        centre=jax.tree.map(jnp.asarray, gaussian.centre),
        fixed=jnp.asarray(arrow.fixed),
        holding=jnp.mean(arrow.information),
        core_factor=jnp.asarray(arrow.core_factor) if whole else None,
        coupling=jnp.asarray(arrow.coupling) if whole else None,
        hyper_coupling=jnp.asarray(arrow.hyper_coupling) if whole else None,
        item_factor=jnp.asarray(arrow.item_factor),
        core_sd=jnp.asarray(core_sd),
        log_volume=jnp.asarray(log_volume),
    )


def first_guide(arrow: Arrow, at: GuideCoordinates, rank: int | None) -> dict[str, Array]:
    """Return what a guide starts from.

    Parameters
    ----------
    arrow
        Laplace's precision.
    at
        The map.
    rank
        Number of common directions, None for a guide without; they are those along which Laplace is widest.

    Returns
    -------
    dict of str to jax.Array
        NumPyro's parameters of the guide.
    """
    size = at.size
    first: dict[str, Array] = {"auto_loc": jnp.zeros(size), "auto_scale": jnp.ones(size)}
    if rank is None:
        return first
    core_sd, (slope, mixed, last) = np.asarray(at.core_sd), arrow.item_factor
    item_sd = 1.0 / np.stack([slope, np.hypot(mixed, last)], axis=1)

    def spread(vector: Float[np.ndarray, " size"]) -> Float[np.ndarray, " size"]:
        core, items = np.split(vector, [len(core_sd)])
        core, items = arrow.newton_step(core / core_sd, items.reshape(2, -1).T / item_sd)
        return np.concatenate([core / core_sd, (items / item_sd).T.ravel()])

    basis = np.random.default_rng(0).standard_normal((size, min(rank, size)))
    for _ in range(_SUBSPACE_ROUNDS):
        basis = np.linalg.qr(np.stack([spread(vector) for vector in basis.T], axis=1))[0]
    image = np.stack([spread(vector) for vector in basis.T], axis=1)
    variances, mixture = np.linalg.eigh(basis.T @ image)
    first["auto_cov_factor"] = jnp.asarray(basis @ mixture * np.sqrt(np.maximum(variances - 1.0, 0.0)))
    return first


def place_at(white: Float[Array, " size"], at: GuideCoordinates) -> tuple[Place, Float[Array, ""]]:
    """Map a point of the guide's space to a place.

    Parameters
    ----------
    white
        The point.
    at
        The map.

    Returns
    -------
    tuple
        The place, and what the map adds to the log density: its volume, so that ELBOs of different guides compare, and
        a normal law for location and scale of the abilities, which have none in the model.
    """
    num_llms, num_core = len(at.centre.ability), len(at.core_sd)
    slope, easiness = jnp.split(white[num_core:], 2)
    first, mixed, last = at.item_factor
    if at.core_factor is None or at.coupling is None or at.hyper_coupling is None:
        core = at.core_sd * white[:num_core]
        slope, easiness = slope / first, easiness / jnp.hypot(mixed, last)
    else:
        core = solve_triangular(at.core_factor, white[:num_core], lower=True, trans=1)
        held = core[:num_llms] - at.fixed @ (at.fixed.T @ core[:num_llms])
        coupled = (held.astype(at.coupling.dtype) @ at.coupling).astype(held.dtype)
        followed = jnp.split(coupled + core[num_llms:] @ at.hyper_coupling, 2)
        easiness = (easiness - followed[1]) / last
        slope = (slope - followed[0] - mixed * easiness) / first
    free = at.fixed.T @ core[:num_llms]
    place = Place(
        at.centre.ability + core[:num_llms],
        at.centre.items + jnp.stack([slope, easiness], axis=1),
        at.centre.hyper + core[num_llms:],
    )
    return place, at.log_volume - 0.5 * at.holding * jnp.sum(free**2)


def log_density_at(
    spec: ModelSpec,
    white: Float[Array, " size"],
    at: GuideCoordinates,
    rows: Integer[Array, " row"] | None = None,
) -> Float[Array, ""]:
    """Return the log density of a point.

    Parameters
    ----------
    spec
        The model.
    white
        A point of the guide's space.
    at
        The map and the data.
    rows
        The LLMs whose likelihood stands for all; None for all of them.

    Returns
    -------
    jax.Array
        In nats, without a constant.
    """
    place, own = place_at(white, at)
    parameters, share = parameters_of(spec, place, at.unit), 1.0
    cells = observed_at(spec, at.cells, place.hyper)
    if rows is not None:
        share = len(place.ability) / len(rows)
        counts = tuple(count.reshape(-1, count.shape[-1])[rows][None] for count in cells.counts)
        cells = replace(cells, counts=counts)
        parameters = Parameters(parameters.ability[rows], parameters.discrimination, parameters.easiness)
    return share * log_likelihood(parameters, cells) + log_prior_density(spec, place, at.unit) + own
