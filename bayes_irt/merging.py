"""Unite two sets of labelled counts and their metadata."""

from __future__ import annotations

import numpy as np
import pandas as pd
import xarray as xr
from jaxtyping import UInt

from bayes_irt.counts import COUNTS, label_counts, refuse_cells
from bayes_irt.errors import InvalidResponsesError
from bayes_irt.metadata import DIMS, WORDS, counted, metadata_table


def merged_dataset(mine: xr.Dataset, theirs: xr.Dataset, *, add: bool) -> xr.Dataset:
    """Return the union of two sets of counts, not yet checked as a whole.

    Parameters
    ----------
    mine, theirs
        As returned by `canonical_dataset`.
    add
        Whether to add the attempts of a cell that both have.

    Returns
    -------
    xarray.Dataset
        The LLMs and items of the first, then those that only the second has.

    Raises
    ------
    InvalidResponsesError
        If both have an answer in one cell and `add` is not set, or if metadata contradict each other.

    Examples
    --------
    >>> from bayes_irt.counts import canonical_dataset
    >>> one = canonical_dataset(label_counts(np.array([[0, 1], [1, 0]]), None, None, None))
    >>> merged_dataset(one, one, add=True)["attempts"].values.tolist()
    [[2, 2], [2, 2]]
    """
    labels = {dim: list(dict.fromkeys([*mine[dim].values, *theirs[dim].values])) for dim in DIMS}
    parts = [{name: _spread(part, name, labels) for name in COUNTS} for part in (mine, theirs)]
    both = (parts[0]["attempts"] > 0) & (parts[1]["attempts"] > 0)
    if not add:
        remedy = "Leave one side out by drop, or add the attempts: repeats='add'."
        refuse_cells(both, labels, "answers on both sides", remedy)
    successes, attempts = (parts[0][name] + parts[1][name] for name in COUNTS)
    described = [
        united(metadata_table(mine, dim), metadata_table(theirs, dim), labels[dim], dim) for dim in DIMS
    ]
    return label_counts(successes, attempts, labels["llm"], labels["item"], described[0], described[1])


def united(mine: pd.DataFrame, theirs: pd.DataFrame, labels: list[str], dim: str) -> pd.DataFrame:
    """Return metadata of two sources over all labels.

    Parameters
    ----------
    mine, theirs
        Indexed by label.
    labels
        The labels that are wanted.
    dim
        "llm" or "item", for messages.

    Returns
    -------
    pandas.DataFrame
        Each value from the source that has it.

    Raises
    ------
    InvalidResponsesError
        If both have a value and the two differ.

    Examples
    --------
    >>> frames = pd.DataFrame({"x": [1]}, ["a"]), pd.DataFrame({"x": [2]}, ["b"])
    >>> united(*frames, ["a", "b"], "llm")["x"].tolist()
    [1, 2]
    """
    mine, theirs = (frame.astype(object).reindex(labels) for frame in (mine, theirs))
    for name in mine.columns.intersection(theirs.columns):
        conflict = mine[name].notna() & theirs[name].notna() & (mine[name] != theirs[name])
        if conflict.any():
            label = labels[int(conflict.to_numpy().argmax())]
            raise InvalidResponsesError(
                f"The metadata of {counted(int(conflict.sum()), WORDS[dim])} differ in column {name!r} "
                f"(first: {label!r}, {mine.loc[label, name]!r} against {theirs.loc[label, name]!r}). "
                "Make them agree first."
            )
        mine[name] = mine[name].where(mine[name].notna(), theirs[name])
    return mine.join(theirs[theirs.columns.difference(mine.columns, sort=False)])


def _spread(part: xr.Dataset, name: str, labels: dict[str, list[str]]) -> UInt[np.ndarray, "llm item"]:
    """Return counts laid out over more labels, 0 where there are none."""
    values = np.zeros([len(labels[dim]) for dim in DIMS], np.uint64)
    where = [pd.Index(labels[dim], dtype=object).get_indexer(part.indexes[dim]) for dim in DIMS]
    values[np.ix_(*where)] = part[name].values
    return values
