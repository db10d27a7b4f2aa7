"""The labelled LLM x item matrix of counts that every analysis starts from.

Each cell has `successes` out of `attempts`; 0 attempts mean a missing outcome. Metadata of LLMs and items
ride along as coordinates. A `Responses` never changes: every method returns a new one.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
import numpy.typing as npt
import pandas as pd
import xarray as xr
from jaxtyping import UInt

from bayes_irt.counts import canonical_dataset, described, drop_empty_labels, label_counts, label_positions
from bayes_irt.merging import merged_dataset
from bayes_irt.metadata import DIMS, metadata_table
from bayes_irt.response_files import load_dataset, save_dataset
from bayes_irt.table_columns import TableColumns
from bayes_irt.tables import counts_from_long, counts_from_wide, labelled_dataset


@dataclass(frozen=True, slots=True, init=False, repr=False, eq=False)
class Responses:
    """Hold how often each LLM solved each item.

    Usually built by `read_responses`, `from_long`, `from_wide` or `from_arrays`.

    Parameters
    ----------
    dataset
        Variables `successes` and `attempts` with dims llm and item, one string label each, and metadata as
        further coordinates on one of the two dims.

    Raises
    ------
    InvalidResponsesError
        If a count is negative, not whole or above its attempts; if labels repeat; if there are fewer than
        two LLMs or items; or if an LLM or item has no answer.

    Examples
    --------
    >>> responses = Responses.from_arrays([[1, 0, 1], [1, 1, 0]], llms=["opus", "flash"])
    >>> responses
    Responses: 2 LLMs x 3 items, 6 attempts (1 per cell), 0.0 % missing, accuracy .67 to .67
    """

    _dataset: xr.Dataset

    def __init__(self, dataset: xr.Dataset) -> None:
        object.__setattr__(self, "_dataset", canonical_dataset(dataset))

    @classmethod
    def from_arrays(
        cls,
        successes: npt.ArrayLike,
        attempts: npt.ArrayLike | None = None,
        *,
        llms: Iterable[str] | None = None,
        items: Iterable[str] | None = None,
        llm_metadata: pd.DataFrame | None = None,
        item_metadata: pd.DataFrame | None = None,
    ) -> Responses:
        """Build responses from a matrix of counts, or of 0/1 scores.

        Parameters
        ----------
        successes
            LLMs in rows, items in columns. Without `attempts`, NaN marks a missing cell.
        attempts
            The same shape, 0 where missing; without it, 1 in every other cell.
        llms, items
            Labels; by default "llm-001" and "item-0001" onwards.
        llm_metadata, item_metadata
            One row per label in the index, one column per property. A label without a row gets missing
            values; rows of other labels are left aside.

        Raises
        ------
        InvalidResponsesError
            If shapes disagree or the counts break a rule of the class.

        Examples
        --------
        >>> Responses.from_arrays([[3, 0], [4, 2]], [[4, 4], [4, 4]]).attempts.dtype
        dtype('uint8')
        """
        tried = None if attempts is None else np.asarray(attempts)
        return cls(label_counts(np.asarray(successes), tried, llms, items, llm_metadata, item_metadata))

    @classmethod
    def from_long(
        cls,
        frame: pd.DataFrame,
        columns: TableColumns | None = None,
        *,
        llm_metadata: pd.DataFrame | None = None,
        item_metadata: pd.DataFrame | None = None,
        drop_empty: bool = False,
    ) -> Responses:
        """Build responses from a table with one row per LLM, item and attempt.

        Scores are 0/1, -1/1 or true/false; NaN, null and empty text mean missing. A pair of LLM and item that
        has no row is missing too. LLMs and items keep the order of their first appearance. A further column
        becomes metadata where it is constant within every item, or else every LLM; others are left aside.

        Parameters
        ----------
        frame
            The table.
        columns
            Which column holds what; what is not named is found by common names.
        llm_metadata, item_metadata
            One row per label in the index; preferred to a column of the same name in the table.
        drop_empty
            Leave out LLMs and items without an answer, with a warning that names them.

        Raises
        ------
        InvalidResponsesError
            If a column is lacking, a row is repeated, or a score lies outside the coding.

        Examples
        --------
        >>> frame = pd.DataFrame({"model": list("aabb"), "item": list("xyxy"), "score": [1, 0, 1, 1]})
        >>> Responses.from_long(frame).successes.tolist()
        [[1, 0], [1, 1]]
        """
        counts = counts_from_long(frame, columns or TableColumns())
        return cls(labelled_dataset(counts, llm_metadata, item_metadata, drop_empty=drop_empty))

    @classmethod
    def from_wide(
        cls,
        frame: pd.DataFrame,
        columns: TableColumns | None = None,
        *,
        llm_metadata: pd.DataFrame | None = None,
        item_metadata: pd.DataFrame | None = None,
        drop_empty: bool = False,
    ) -> Responses:
        """Build responses from a table with one row per LLM and one column per item.

        Scores as in `from_long`. The labels of the LLMs stand in the column that `columns` names, in one with
        a common name such as `model`, in an unnamed one, or in a first column of text; without any of
        these, in the index if it holds text, else they are numbered. A table whose first column is called
        `item` has items in rows, and is turned.

        Parameters
        ----------
        frame
            The table.
        columns
            Which column holds the labels, which describe the LLM and which to leave out.
        llm_metadata, item_metadata
            One row per label in the index; preferred to a column of the same name in the table.
        drop_empty
            Leave out LLMs and items without an answer, with a warning that names them.

        Raises
        ------
        InvalidResponsesError
            If a column holds text, labels repeat, or a score lies outside the coding.

        Examples
        --------
        >>> frame = pd.DataFrame({"model": ["a", "b"], "q1": [1, 0], "q2": [1, 1], "size": ["7B", "9B"]})
        >>> responses = Responses.from_wide(frame, TableColumns(llm_columns=("size",)))
        >>> responses.items, responses.llm_metadata["size"].tolist()
        (('q1', 'q2'), ['7B', '9B'])
        """
        counts = counts_from_wide(frame, columns or TableColumns())
        return cls(labelled_dataset(counts, llm_metadata, item_metadata, drop_empty=drop_empty))

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Responses:
        """Read responses that `save` wrote.

        Parameters
        ----------
        path
            The file.

        Raises
        ------
        InvalidResponsesError
            If the file cannot be read or holds something else.

        Examples
        --------
        >>> Responses.load("absent.nc")
        Traceback (most recent call last):
        bayes_irt.errors.InvalidResponsesError: absent.nc cannot be read as saved responses: ...
        """
        return cls(load_dataset(Path(path)))

    @property
    def dataset(self) -> xr.Dataset:
        """Return the data as xarray; what is assigned to it does not reach these responses."""
        return self._dataset.copy(deep=False)

    @property
    def llms(self) -> tuple[str, ...]:
        """Return the labels of the LLMs."""
        return tuple(str(label) for label in self._dataset["llm"].values)

    @property
    def items(self) -> tuple[str, ...]:
        """Return the labels of the items."""
        return tuple(str(label) for label in self._dataset["item"].values)

    @property
    def num_llms(self) -> int:
        """Return the number of LLMs."""
        return self._dataset.sizes["llm"]

    @property
    def num_items(self) -> int:
        """Return the number of items."""
        return self._dataset.sizes["item"]

    @property
    def successes(self) -> UInt[np.ndarray, "llm item"]:
        """Return how often each LLM solved each item, read-only."""
        values: np.ndarray = self._dataset["successes"].values
        return values

    @property
    def attempts(self) -> UInt[np.ndarray, "llm item"]:
        """Return how often each LLM tried each item, 0 where the outcome is missing; read-only."""
        values: np.ndarray = self._dataset["attempts"].values
        return values

    @property
    def num_observed(self) -> int:
        """Return the number of cells with at least one attempt."""
        return int(np.count_nonzero(self.attempts))

    @property
    def num_attempts(self) -> int:
        """Return the number of attempts in all cells together."""
        return int(self.attempts.sum(dtype=np.int64))

    @property
    def is_binary(self) -> bool:
        """Say whether no cell has more than one attempt."""
        return int(self.attempts.max()) <= 1

    @property
    def llm_metadata(self) -> pd.DataFrame:
        """Return what is known about each LLM, one row per LLM, indexed by label."""
        return metadata_table(self._dataset, "llm")

    @property
    def item_metadata(self) -> pd.DataFrame:
        """Return what is known about each item, one row per item, indexed by label."""
        return metadata_table(self._dataset, "item")

    @property
    def digest(self) -> str:
        """Return a SHA-256 of labels and counts; their order counts, metadata and memory layout do not."""
        labels = json.dumps([self.llms, self.items, list(self.attempts.shape)])
        digest = hashlib.sha256(labels.encode())
        for values in (self.successes, self.attempts):
            digest.update(np.ascontiguousarray(values.astype(values.dtype.newbyteorder("<"))).data)
        return digest.hexdigest()

    def subset(
        self,
        llms: Iterable[str] | None = None,
        items: Iterable[str] | None = None,
        *,
        drop_empty: bool = False,
    ) -> Responses:
        """Return some of the LLMs and items, in the order given.

        Parameters
        ----------
        llms, items
            Labels to keep; all where not given.
        drop_empty
            Leave out LLMs and items that the choice leaves without an answer, with a warning.

        Raises
        ------
        InvalidResponsesError
            If a label is unknown, or an LLM or item is left without an answer.

        Examples
        --------
        >>> responses = Responses.from_arrays([[1, 0, 1], [1, 1, 0], [0, 0, 1]])
        >>> responses.subset(llms=["llm-003", "llm-001"]).successes.tolist()
        [[0, 0, 1], [1, 0, 1]]
        """
        chosen = {
            dim: label_positions(self._dataset, dim, labels)
            for dim, labels in (("llm", llms), ("item", items))
            if labels is not None
        }
        dataset = self._dataset.isel(chosen)
        return Responses(drop_empty_labels(dataset) if drop_empty else dataset)

    def drop(
        self, llms: Iterable[str] = (), items: Iterable[str] = (), *, drop_empty: bool = False
    ) -> Responses:
        """Return the responses without some LLMs and items.

        Parameters
        ----------
        llms, items
            Labels to leave out.
        drop_empty
            Leave out, with a warning, LLMs and items that lose their last answer.

        Raises
        ------
        InvalidResponsesError
            If a label is unknown, or an LLM or item is left without an answer.

        Examples
        --------
        >>> Responses.from_arrays([[1, 0, 1], [1, 1, 0]]).drop(items=["item-0002"]).items
        ('item-0001', 'item-0003')
        """
        gone = {
            "llm": label_positions(self._dataset, "llm", llms),
            "item": label_positions(self._dataset, "item", items),
        }
        dataset = self._dataset.isel(
            {dim: np.delete(np.arange(self._dataset.sizes[dim]), gone[dim]) for dim in DIMS}
        )
        return Responses(drop_empty_labels(dataset) if drop_empty else dataset)

    def merge(self, other: Responses, *, repeats: Literal["raise", "add"] = "raise") -> Responses:
        """Return the union of two sets of responses, metadata included: these labels first, then new ones.

        Parameters
        ----------
        other
            Further LLMs, further items, or other cells of the same.
        repeats
            What to do with a cell that both have: refuse it, or add the attempts.

        Raises
        ------
        InvalidResponsesError
            If both have an answer in one cell and `repeats` is "raise", or if metadata contradict each other.

        Examples
        --------
        >>> first = Responses.from_arrays([[1, 0], [1, 1]], llms=["a", "b"])
        >>> second = Responses.from_arrays([[0, 0], [1, 0]], llms=["c", "d"])
        >>> first.merge(second).llms
        ('a', 'b', 'c', 'd')
        """
        return Responses(merged_dataset(self._dataset, other._dataset, add=repeats == "add"))

    def save(self, path: str | os.PathLike[str], *, force: bool = False) -> None:
        """Write the responses to one netCDF file, all or nothing.

        Parameters
        ----------
        path
            The file to write.
        force
            Replace a file that exists.

        Raises
        ------
        RunDirectoryError
            If the file exists and `force` is not set, or its folder does not exist.

        Examples
        --------
        >>> import tempfile
        >>> responses = Responses.from_arrays([[1, 0], [1, 1]])
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     responses.save(f"{folder}/responses.nc")
        ...     print(Responses.load(f"{folder}/responses.nc") == responses)
        True
        """
        save_dataset(self._dataset, Path(path), force=force)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Responses):
            return NotImplemented
        return self._dataset.equals(other._dataset)

    def __hash__(self) -> int:
        return hash(self.digest)

    def __repr__(self) -> str:
        return f"Responses: {described(self._dataset)}"
