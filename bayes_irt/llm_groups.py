"""Groups of related LLMs: who belongs together, and precision matrices that say so.

LLMs of one group have equicorrelated abilities. Every precision matrix needed is then diagonal less a constant in each
group's block, so that products, solutions, factors and determinants take a few sums within groups.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
from jaxtyping import Array, Float, Integer

from bayes_irt.errors import InvalidConfigurationError, some

#: Stands for the group of an LLM that is related to nobody.
NO_GROUP = ""


@jax.tree_util.register_dataclass
@dataclass(frozen=True, slots=True)
class LLMGroups:
    """Hold which LLMs are related.

    Parameters
    ----------
    number
        Number of each LLM's group, below the number of LLMs.
    size
        Number of LLMs in each LLM's group.

    Examples
    --------
    >>> groups = groups_from_labels(["a", "b", "a"])
    >>> groups.number.tolist(), groups.size.tolist(), groups.totals(jnp.array([1.0, 2.0, 4.0])).tolist()
    ([0, 1, 0], [2.0, 1.0, 2.0], [5.0, 2.0, 5.0])
    """

    number: Integer[Array | np.ndarray, " llm"]
    size: Float[Array | np.ndarray, " llm"]

    def totals(self, values: Float[Array, "*batch llm"]) -> Float[Array, "*batch llm"]:
        """Return, for each LLM, the sum over its group.

        Parameters
        ----------
        values
            One value per LLM.

        Returns
        -------
        jax.Array
            The same number for all LLMs of a group.
        """
        return jnp.zeros_like(values).at[..., self.number].add(values)[..., self.number]


@dataclass(frozen=True, slots=True)
class GroupPrecision:
    """Hold a precision matrix that is diagonal less a constant in each group's block: E - c 11'.

    Parameters
    ----------
    own
        The diagonal matrix E.
    shared
        The constant c of each LLM's group.
    groups
        Who is related.
    """

    own: Float[Array, "*batch llm"]
    shared: Float[Array, "*batch llm"]
    groups: LLMGroups

    @property
    def _left(self) -> Float[Array, "*batch llm"]:
        """1 - c 1'E^-1 1 of each LLM's group: what the determinant of a block is multiplied by."""
        return 1.0 - self.shared * self.groups.totals(1.0 / self.own)

    def times(self, values: Float[Array, "*batch llm"]) -> Float[Array, "*batch llm"]:
        """Multiply the matrix with a vector.

        Parameters
        ----------
        values
            The vector.

        Returns
        -------
        jax.Array
            The product.
        """
        return self.own * values - self.shared * self.groups.totals(values)

    def solve(self, values: Float[Array, "*batch llm"]) -> Float[Array, "*batch llm"]:
        """Multiply the inverse, the covariance, with a vector.

        Parameters
        ----------
        values
            The vector.

        Returns
        -------
        jax.Array
            The product.
        """
        alone = values / self.own
        return alone + self.shared / self._left * self.groups.totals(alone) / self.own

    def spread(self, white: Float[Array, "*batch llm"]) -> Float[Array, "*batch llm"]:
        """Map independent standard normals to normals with this precision.

        With v = E^(-1/2) 1 the inverse is ``E^(-1/2) (I + b v v')^2 E^(-1/2)`` for the right b.

        Parameters
        ----------
        white
            The standard normals.

        Returns
        -------
        jax.Array
            The normals; the map is linear.
        """
        sd = 1.0 / jnp.sqrt(self.own)
        stretch = (1.0 / jnp.sqrt(self._left) - 1.0) / self.groups.totals(sd**2)
        return sd * (white + stretch * sd * self.groups.totals(sd * white))

    def log_determinant(self) -> Float[Array, "*batch"]:
        """Return the log determinant.

        Returns
        -------
        jax.Array
            One number per matrix.
        """
        return jnp.sum(jnp.log(self.own) + jnp.log(self._left) / self.groups.size, axis=-1)


def ability_precision(share: Float[Array, "*batch"], groups: LLMGroups) -> GroupPrecision:
    """Return the precision of abilities of variance 1 that correlate by the share within groups.

    Parameters
    ----------
    share
        Share of the variance that lies between groups.
    groups
        Who is related.

    Returns
    -------
    GroupPrecision
        The inverse of the matrix with 1 on the diagonal and the share elsewhere in each block.

    Examples
    --------
    >>> groups = groups_from_labels(["a", "b", "a"])
    >>> covariance = jnp.array([[1.0, 0.0, 0.5], [0.0, 1.0, 0.0], [0.5, 0.0, 1.0]])
    >>> ability_precision(jnp.array(0.5), groups).times(covariance[0]).round(6).tolist()
    [1.0, 0.0, 0.0]
    """
    share = jnp.asarray(share)[..., None]
    own = 1.0 / (1.0 - share)
    shared = own * share / (1.0 + (groups.size - 1.0) * share)
    return GroupPrecision(jnp.broadcast_to(own, shared.shape), shared, groups)


def group_labels(metadata: pd.DataFrame, column: str) -> np.ndarray:
    """Read each LLM's group from the metadata.

    Parameters
    ----------
    metadata
        One row per LLM.
    column
        Name of the column.

    Returns
    -------
    numpy.ndarray
        Strings; empty where the entry is missing.

    Raises
    ------
    InvalidConfigurationError
        If the column is absent, or its groups do not tell related LLMs from others: no two LLMs share one, or all do.

    Examples
    --------
    >>> group_labels(pd.DataFrame({"family": ["a", "b", "a", None]}), "family").tolist()
    ['a', 'b', 'a', '']
    """
    if column not in metadata:
        known = f"there are {some(list(metadata.columns))}" if len(metadata.columns) else "there is none"
        raise InvalidConfigurationError(
            f"The LLMs' metadata have no column {column!r}; {known}. Name the column of the groups with llm_groups, or "
            "add it to the responses (llm_metadata)."
        )
    values = metadata[column]
    labels = np.array(
        [NO_GROUP if gap else str(value) for value, gap in zip(values, values.isna(), strict=True)],
        dtype=object,
    )
    counts = pd.Series(labels[labels != NO_GROUP], dtype=object).value_counts()
    if not (counts > 1).any():
        raise InvalidConfigurationError(
            f"No two of the {len(labels):,} LLMs share a group in the column {column!r}. Groups need several LLMs: "
            "name another column, or fit without groups."
        )
    if counts.iloc[0] == len(labels):
        raise InvalidConfigurationError(
            f"All {len(labels):,} LLMs are in one group in the column {column!r} ({some([str(counts.index[0])])}). Two "
            "groups or more are needed: name another column, or fit without groups."
        )
    return labels


def groups_from_labels(labels: Sequence[str] | np.ndarray) -> LLMGroups:
    """Return who is related from the label of each LLM's group.

    Parameters
    ----------
    labels
        Strings; an empty one is a group of its own.

    Returns
    -------
    LLMGroups
        The groups, numbered by their first LLM's position among the groups.

    Examples
    --------
    >>> groups_from_labels(["", "a", "", "a"]).number.tolist()
    [0, 1, 2, 1]
    """
    named = [str(label) if label else (position,) for position, label in enumerate(labels)]
    number = pd.factorize(pd.Series(named, dtype=object))[0]
    return LLMGroups(number.astype(np.int32), np.bincount(number)[number].astype(np.float64))
