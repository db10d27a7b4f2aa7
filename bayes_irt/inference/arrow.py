"""The Gaussian around the mode: its precision is an arrow, dense only across.

The core is all abilities and the hyperparameters of the item priors; given it, items are independent. With P_j the
2 x 2 precision of an item and C_j its coupling to the core, the core's precision is the Schur complement
``A - sum_j C_j P_j^-1 C_j'``: the exact covariance of all abilities costs N^2 J multiply-adds and no matrix of the
items' size. Items follow given the core.

Abilities move in a plane, along which their mean and mean square stay as they are when weighted by information: what
is drawn there is brought to the sphere of mean 0 and standard deviation 1 by the gauge, and items compensate. An LLM
about which little is known then moves without moving the others. The density is that of the model in these coordinates,
volume included.

References
----------
Rue, H., Martino, S. & Chopin, N. (2009). Approximate Bayesian inference for latent Gaussian models by using integrated
nested Laplace approximations. Journal of the Royal Statistical Society B 71, 319-392.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float
from scipy import linalg

from bayes_irt.inference.item_coordinates import (
    inverse_of_pairs,
    item_terms,
    link_of,
    log_hyper,
    log_regauged_prior,
    regauged_hyper,
    units_at,
)
from bayes_irt.inference.mode import Mode, all_outer_terms, fisher_sums, parameters_at
from bayes_irt.inference.place import Place, parameters_of
from bayes_irt.inference.shared import observed_at, shared_couplings, shared_places
from bayes_irt.likelihood import Cells, Sums, log_likelihood
from bayes_irt.model_spec import ModelSpec

#: Beyond this many cells couplings are kept in float32.
MOST_EXACT_CELLS = 4_000_000
_LEAST_SHARE = 1e-6


class GaussianFactors(ABC):
    """A Gaussian by the factors of its precision, which is an arrow; positions are relative to its centre."""

    __slots__ = ()

    # LAPACK takes its transpose, an upper factor in columns, without copying
    core_factor: Float[np.ndarray, "core core"]

    @property
    @abstractmethod
    def item_sd(self) -> Float[np.ndarray, "item place"]:
        """Standard deviations of items, given the core and those of their coordinates that come after."""

    @property
    @abstractmethod
    def _normals(self) -> Float[np.ndarray, "core normal"]:
        """Orthonormal directions that the core cannot move along."""

    def _held(self, core: Float[np.ndarray, "core draw"]) -> Float[np.ndarray, "core draw"]:
        """Take out what leaves the plane."""
        normals = self._normals
        return np.asarray(core - normals @ (normals.T @ core))

    @abstractmethod
    def _white_items(self, rng: np.random.Generator, number: int) -> np.ndarray:
        """Draw standard normal numbers for all items, the draws along the last axis."""

    @abstractmethod
    def _to_items(self, core: Float[np.ndarray, "core draw"]) -> np.ndarray:
        """Return what items in their own scale follow of the core, in the coupling's precision."""

    @abstractmethod
    def _to_core(self, white: np.ndarray) -> Float[np.ndarray, "core draw"]:
        """Return what the core is coupled with of items in their own scale."""

    @abstractmethod
    def _scaled(self, item_score: Float[np.ndarray, "item place"]) -> np.ndarray:
        """Return a score of the items by their own scale: L_j^-1 of each."""

    @abstractmethod
    def _items(self, white: np.ndarray) -> Float[np.ndarray, "draw item place"]:
        """Undo the items' scaling: L_j^-T of each."""

    def draw(
        self, rng: np.random.Generator, number: int, *, matched: bool = False
    ) -> tuple[Float[np.ndarray, "draw core"], Float[np.ndarray, "draw item place"]]:
        """Draw deviations from the centre.

        Parameters
        ----------
        rng
            Where randomness comes from.
        number
            How many.
        matched
            Whether the draws' mean squares are made those of the Gaussian: for averages of few draws.

        Returns
        -------
        tuple of numpy.ndarray
            Of the core (abilities, then hyperparameters) and of the items.
        """
        normal = rng.standard_normal((len(self.core_factor), number))
        white = self._white_items(rng, number)
        if matched:
            normal /= np.sqrt(np.mean(normal**2, axis=-1, keepdims=True))
            white /= np.sqrt(np.mean(white**2, axis=-1, keepdims=True))
        core = self._core(normal)
        white -= self._to_items(core)
        return core.T, self._items(white)

    def draw_core(self, rng: np.random.Generator, number: int) -> Float[np.ndarray, "draw core"]:
        """Draw deviations of the core alone.

        Parameters
        ----------
        rng
            Where randomness comes from.
        number
            How many.

        Returns
        -------
        numpy.ndarray
            Of abilities, then hyperparameters.
        """
        return self._core(rng.standard_normal((len(self.core_factor), number))).T

    def _core(self, normal: Float[np.ndarray, "core draw"]) -> Float[np.ndarray, "core draw"]:
        return self._held(linalg.solve_triangular(self.core_factor.T, normal, check_finite=False))

    def newton_step(
        self, core_score: Float[np.ndarray, " core"], item_score: Float[np.ndarray, "item place"]
    ) -> tuple[Float[np.ndarray, " core"], Float[np.ndarray, "item place"]]:
        """Multiply a score by the covariance.

        Parameters
        ----------
        core_score, item_score
            Derivatives of a log density.

        Returns
        -------
        tuple of numpy.ndarray
            The step of the core and of the items.
        """
        white = self._scaled(item_score)[..., None]
        right = self._held(core_score[:, None] - self._to_core(white))
        core = self._held(linalg.cho_solve((self.core_factor.T, False), right, check_finite=False))
        return core[:, 0], self._items(white - self._to_items(core))[0]

    def core_sd(self) -> Float[np.ndarray, " core"]:
        """Return standard deviations of abilities and hyperparameters.

        Returns
        -------
        numpy.ndarray
            Abilities first.
        """
        inverse, failed = linalg.lapack.dtrtri(self.core_factor.T, lower=0)
        assert not failed  # a Cholesky factor's diagonal is positive
        root, normals = inverse.T, self._normals
        # of each column of L^-1 (1 - F F'), with F the normals, the square
        out = root @ normals
        square = np.einsum("ij,ij->j", root, root) - 2.0 * np.sum((root.T @ out) * normals, axis=1)
        square += np.sum((normals @ (out.T @ out)) * normals, axis=1)
        return np.asarray(np.sqrt(np.maximum(square, 0.0)))


@dataclass(frozen=True, slots=True)
class Arrow(GaussianFactors):
    """Hold the Gaussian with one trait.

    Parameters
    ----------
    core_factor
        Lower Cholesky factor of the core's precision; directions that cannot move have a precision of their own there.
    coupling
        Couplings of abilities to items in the items' own scale: ``C_j L_j^-T``, easinesses after discriminations.
    hyper_coupling
        The same of the hyperparameters.
    item_factor
        Lower Cholesky factors L_j of the items' precisions: the first, the mixed and the last entry.
    fixed
        Orthonormal directions of the abilities that cannot move: those of the plane's normals.
    information
        Precision of each ability given all else.
    repaired
        Whether the core's precision had to be made positive.
    """

    core_factor: Float[np.ndarray, "core core"]
    coupling: Float[np.ndarray, "llm two_items"]
    hyper_coupling: Float[np.ndarray, "hyper two_items"]
    item_factor: Float[np.ndarray, "3 item"]
    fixed: Float[np.ndarray, "llm 2"]
    information: Float[np.ndarray, " llm"]
    repaired: bool

    @property
    def item_sd(self) -> Float[np.ndarray, "item 2"]:
        """Standard deviations of items, given the core and those of their coordinates that come after."""
        return np.stack([1.0 / self.item_factor[0], 1.0 / self.item_factor[2]], axis=1)

    @property
    def _normals(self) -> Float[np.ndarray, "core 2"]:
        return np.pad(self.fixed, ((0, len(self.core_factor) - len(self.fixed)), (0, 0)))

    def _white_items(self, rng: np.random.Generator, number: int) -> Float[np.ndarray, "two_items draw"]:
        return rng.standard_normal((self.coupling.shape[1], number), dtype=self.coupling.dtype.type)

    def _to_items(self, core: Float[np.ndarray, "core draw"]) -> Float[np.ndarray, "two_items draw"]:
        num_llms, kind = len(self.fixed), self.coupling.dtype
        followed = self.coupling.T @ core[:num_llms].astype(kind)
        followed += (self.hyper_coupling.T @ core[num_llms:]).astype(kind)
        return np.asarray(followed)

    def _to_core(self, white: Float[np.ndarray, "two_items draw"]) -> Float[np.ndarray, "core draw"]:
        by_llm = self.coupling @ white.astype(self.coupling.dtype)
        return np.concatenate([by_llm, self.hyper_coupling @ white])

    def _scaled(self, item_score: Float[np.ndarray, "item 2"]) -> Float[np.ndarray, " two_items"]:
        first, mixed, last = self.item_factor
        slope = item_score[:, 0] / first
        return np.concatenate([slope, (item_score[:, 1] - mixed * slope) / last])

    def _items(self, white: Float[np.ndarray, "two_items draw"]) -> Float[np.ndarray, "draw item 2"]:
        first, mixed, last = self.item_factor[:, :, None].astype(white.dtype)
        slope, easiness = np.split(white, 2)
        easiness = easiness / last
        return np.stack([((slope - mixed * easiness) / first).T, easiness.T], axis=-1)


def build_arrow(spec: ModelSpec, mode: Mode, cells: Cells) -> Arrow:
    """Return the Gaussian around a mode.

    Parameters
    ----------
    spec
        The model.
    mode
        The mode.
    cells
        The data.

    Returns
    -------
    Arrow
        Its factors. Items have their exact second derivatives. Second derivatives by the hyperparameters, and by scale
        and location of the abilities, are expected over the items, as in EM.
    """
    ability, data = np.asarray(mode.place.ability), cells
    cells = observed_at(spec, cells, jnp.asarray(mode.place.hyper))
    exact = len(ability) * len(mode.place.items) <= MOST_EXACT_CELLS
    parameters = parameters_at(spec, mode.place, mode.unit)
    sums = fisher_sums(parameters, cells)
    covariance, *parts = _parts(spec, mode.place, mode.unit, sums, cells, exact=exact)
    terms = jax.device_get(all_outer_terms(spec, mode.place, mode.unit, covariance, data))
    coupling, outer_coupling, factor = jax.device_get(parts)
    across_likelihood = np.zeros((len(ability), len(terms.score) - 2))
    unknown = np.array(terms.unknown)
    places = shared_places(spec, data)
    if len(places):
        own_coupling, by_llm = jax.device_get(_shared_parts(spec, mode.place, mode.unit, data, factor))
        outer_coupling = np.array(outer_coupling)
        outer_coupling[2 + places] += own_coupling
        across_likelihood[:, places] = by_llm
        # of what cells share nothing is lost but what the couplings say
        coupled = outer_coupling @ outer_coupling.T
        unknown[2 + places], unknown[:, 2 + places] = coupled[2 + places], coupled[:, 2 + places]
    diagonal = np.asarray(sums.llm_curvature)[:, 0, 0]
    # what is lost by not knowing the items: as much as quadrature says, of which the couplings know the linear part
    outer_precision = terms.precision - unknown + outer_coupling @ outer_coupling.T
    num_llms = len(ability)
    # by how much volume and item priors together pull abilities inwards
    pull = (num_llms - 1.0 - terms.score[0]) / num_llms
    lift = np.stack([ability, np.ones(num_llms)], axis=1) / num_llms  # derivatives of log s and m
    normals = (1.0 + diagonal)[:, None] * lift
    fixed = np.linalg.qr(normals)[0]
    bend = (
        np.eye(num_llms) / num_llms
        - np.outer(lift[:, 1], lift[:, 1])
        - 2.0 * np.outer(lift[:, 0], lift[:, 0])
    )
    own = np.diag(diagonal) + num_llms * pull * bend + lift @ outer_precision[:2, :2] @ lift.T
    across = lift @ outer_precision[:2, 2:] + across_likelihood
    hyper_coupling = outer_coupling[2:]
    across = across - coupling @ hyper_coupling.T.astype(coupling.dtype)
    core = np.block([[own, across], [across.T, outer_precision[2:, 2:] - hyper_coupling @ hyper_coupling.T]])
    core[:num_llms, :num_llms] -= coupling @ coupling.T
    core[:num_llms] -= fixed @ (fixed.T @ core[:num_llms])
    core[:, :num_llms] -= (core[:, :num_llms] @ fixed) @ fixed.T
    core[:num_llms, :num_llms] += np.mean(diagonal + 1.0) * (fixed @ fixed.T)
    core_factor, repaired = factor_or_repaired(core)
    return Arrow(core_factor, coupling, hyper_coupling, factor, fixed, 1.0 + diagonal, repaired)


def factor_or_repaired(core: Float[np.ndarray, "core core"]) -> tuple[Float[np.ndarray, "core core"], bool]:
    """Return the Cholesky factor, of a nearby positive matrix where there is none.

    Parameters
    ----------
    core
        A symmetric matrix.

    Returns
    -------
    tuple
        The lower factor, and whether the matrix had to be made positive.
    """
    try:
        return np.linalg.cholesky(core), False
    except linalg.LinAlgError:
        scale = np.sqrt(np.maximum(np.abs(np.diag(core)), _LEAST_SHARE))
        values, vectors = linalg.eigh(core / np.outer(scale, scale))
        held = (vectors * np.maximum(np.abs(values), 0.05)) @ vectors.T
        return np.linalg.cholesky(held * np.outer(scale, scale)), True


@partial(jax.jit, static_argnames=("spec", "exact"))
def _parts(
    spec: ModelSpec, place: Place, unit: Float[Array, " item"], sums: Sums, cells: Cells, *, exact: bool
) -> tuple[Array, ...]:
    """Return covariances of items, couplings of abilities and of log s, m and hyperparameters, and item factors."""
    parameters = parameters_of(spec, place, unit)
    precision = _positive_precision(spec, place, unit, sums)
    first = jnp.sqrt(precision[:, 0, 0])
    mixed = precision[:, 0, 1] / first
    last = jnp.sqrt(precision[:, 1, 1] - mixed**2)
    factor = jnp.stack([first, mixed, last])
    prior = partial(log_regauged_prior, spec)
    outer = jnp.concatenate([jnp.zeros(2), place.hyper])
    cross = jax.vmap(jax.jacfwd(jax.grad(prior), 2), (0, 0, None))(place.items, unit, outer)
    outer_coupling = _whitened(-cross[:, 0].T, -cross[:, 1].T, factor)
    num_llms = len(place.ability)
    slope, easiness, rise, factors, by_gauge = jax.tree.map(
        lambda leaf: leaf.astype(cells.cell_type),
        (
            parameters.discrimination[:, 0],
            place.items[:, 1],
            units_at(spec, unit, place.hyper) * link_of(spec).rise(place.items[:, 0]),
            factor,
            outer_coupling[:2] / num_llms,
        ),
    )

    def visit(_: None, tile: tuple[Any, ...]) -> tuple[None, Array]:
        theta, *counts = tile
        terms = cells.terms(theta * slope + easiness, tuple(counts), "fisher")
        assert terms.weight is not None
        by_slope = (terms.weight * theta * slope - terms.score) * rise
        coupled = _whitened(by_slope, terms.weight * slope, factors) + theta * by_gauge[0] + by_gauge[1]
        return None, coupled.astype(jnp.float64 if exact else jnp.float32)

    tiles, rows, _ = cells.counts[0].shape
    padded = jnp.pad(place.ability.astype(cells.cell_type), (0, tiles * rows - num_llms))
    padded = padded.reshape(tiles, rows, 1)
    _, coupling = jax.lax.scan(visit, None, (padded, *cells.counts))
    coupling = coupling.reshape(tiles * rows, -1)[:num_llms]
    return inverse_of_pairs(precision), coupling, outer_coupling, factor


@partial(jax.jit, static_argnames="spec")
def _shared_parts(
    spec: ModelSpec, place: Place, unit: Float[Array, " item"], cells: Cells, factor: Float[Array, "3 item"]
) -> tuple[Array, Array]:
    """Return couplings of what cells share to items, in their own scale, and to abilities."""
    by_item, by_llm = shared_couplings(spec, place, unit, cells)
    return _whitened(by_item[..., 0], by_item[..., 1], factor), by_llm


def _positive_precision(
    spec: ModelSpec, place: Place, unit: Float[Array, " item"], sums: Sums
) -> Float[Array, "item 2 2"]:
    """Return the items' exact precisions; the safe one where a point is no maximum."""
    _, exact = item_terms(spec, place.items, unit, place.hyper, sums, exact=True)
    _, safe = item_terms(spec, place.items, unit, place.hyper, sums)
    determinant = exact[:, 0, 0] * exact[:, 1, 1] - exact[:, 0, 1] ** 2
    least = 1e-3 * safe[:, 0, 0] * exact[:, 1, 1]
    good = (exact[:, 0, 0] > 0.0) & (determinant > least)
    return jnp.where(good[:, None, None], exact, safe)


def _whitened(
    slope: Float[Array, "row item"], easiness: Float[Array, "row item"], factor: Float[Array, "3 item"]
) -> Float[Array, "row two_items"]:
    """Return couplings in the items' own scale: ``C_j L_j^-T``."""
    first, mixed, last = factor
    scaled = slope / first
    return jnp.concatenate([scaled, (easiness - mixed * scaled) / last], axis=1)


def log_density(spec: ModelSpec, place: Place, unit: Float[Array, " item"], cells: Cells) -> Float[Array, ""]:
    """Return the log density of the model's posterior in the arrow's coordinates, up to a constant.

    Parameters
    ----------
    spec
        The model.
    place
        Abilities in the plane, items and hyperparameters.
    unit
        The items' units.
    cells
        The data.

    Returns
    -------
    jax.Array
        That of the parameters in the canonical gauge, times the volume of the map to it.
    """
    parameters = parameters_of(spec, place, unit)
    shaped = observed_at(spec, cells, place.hyper)
    return log_likelihood(parameters, shaped) + log_prior_density(spec, place, unit)


def log_prior_density(spec: ModelSpec, place: Place, unit: Float[Array, " item"]) -> Float[Array, ""]:
    """Return the part of the log density that does not depend on data.

    Parameters
    ----------
    spec
        The model.
    place
        Abilities of any location and scale, items and hyperparameters.
    unit
        The items' units.

    Returns
    -------
    jax.Array
        Log prior in the canonical gauge, plus the volume of the map to it. What location and scale of the abilities
        are has no law of its own.
    """
    location = place.ability.mean()
    log_spread = jnp.log(jnp.mean((place.ability - location) ** 2)) / 2
    outer = jnp.concatenate([jnp.stack([log_spread, location]), place.hyper])
    items = jax.vmap(partial(log_regauged_prior, spec), (0, 0, None))(place.items, unit, outer)
    volume = -(len(place.ability) - 1.0) * log_spread
    return items.sum() + log_hyper(spec, regauged_hyper(spec, outer)) + volume
