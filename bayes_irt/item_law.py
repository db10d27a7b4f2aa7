"""What a model says of single items, read from their metadata: floors, dispersion groups, testlets, traits."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd
from jaxtyping import Bool, Float, Integer

from bayes_irt.errors import InvalidConfigurationError, some
from bayes_irt.metadata import counted
from bayes_irt.model_spec import GENERAL, ModelSpec
from bayes_irt.priors import LearnedShare
from bayes_irt.responses import Responses

_FEWEST_ITEMS = 3


@dataclass(frozen=True, slots=True)
class ItemGroups:
    """Hold which items belong together.

    Parameters
    ----------
    labels
        Name of each group.
    number
        Position of each item's group among the labels; -1 for an item that belongs to none.

    Examples
    --------
    >>> groups = ItemGroups(("django", "sympy"), np.array([0, 0, 1, -1]))
    >>> groups.of_items()
    ('django', 'django', 'sympy', '')
    """

    labels: tuple[str, ...]
    number: Integer[np.ndarray, " item"]

    def of_items(self) -> tuple[str, ...]:
        """Return each item's label, empty where it has none.

        Returns
        -------
        tuple of str
            In the items' order.
        """
        return tuple(self.labels[place] if place >= 0 else "" for place in self.number)


@dataclass(frozen=True, slots=True)
class ItemTraits:
    """Hold which items load on which trait.

    Parameters
    ----------
    labels
        Names of the traits.
    loads
        Whether an item loads on a trait.
    exploratory
        Whether the traits have neither names nor order of their own, every item may load on all of them.

    Examples
    --------
    >>> ItemTraits(("algebra", "logic"), np.array([[True, False], [False, True]])).num_traits
    2
    """

    labels: tuple[str, ...]
    loads: Bool[np.ndarray, "item trait"]
    exploratory: bool = False

    @property
    def num_traits(self) -> int:
        """Number of traits."""
        return len(self.labels)


@dataclass(frozen=True, slots=True)
class ItemLaw:
    """Hold what a model says of single items.

    Parameters
    ----------
    floor
        Probability of a right guess; None where the model has no floor, the prior mean where floors are learned.
    dispersion
        Groups with a dispersion each, every item in one; None where attempts are independent.
    testlets
        Items that belong together; None where none do.
    traits
        Which items load on which trait; None for one trait.
    """

    floor: Float[np.ndarray, " item"] | None
    dispersion: ItemGroups | None
    testlets: ItemGroups | None
    traits: ItemTraits | None = None


def item_law(spec: ModelSpec, responses: Responses) -> ItemLaw:
    """Read what a model says of the items of some responses.

    Parameters
    ----------
    spec
        The model, its observation settled.
    responses
        The data, with the columns that the model names.

    Returns
    -------
    ItemLaw
        Floors and groups.

    Raises
    ------
    InvalidConfigurationError
        If a column is absent, holds what cannot be a floor, or its groups tell no items apart.

    Examples
    --------
    >>> items = pd.DataFrame({"options": [4, 5, None]}, index=["q1", "q2", "q3"])
    >>> responses = Responses.from_arrays([[1, 0, 1], [1, 1, 0]], items=list(items.index), item_metadata=items)
    >>> item_law(ModelSpec(floor="options"), responses).floor.tolist()
    [0.25, 0.2, 0.0]
    """
    return law_of_items(spec, responses.item_metadata, responses.num_items)


def law_of_items(spec: ModelSpec, metadata: pd.DataFrame, number: int) -> ItemLaw:
    """Read what a model says of items from their metadata.

    Parameters
    ----------
    spec
        The model, its observation settled.
    metadata
        One row per item.
    number
        Number of items.

    Returns
    -------
    ItemLaw
        Floors and groups.

    Raises
    ------
    InvalidConfigurationError
        As `item_law` does.
    """
    if len(metadata) != number:
        raise InvalidConfigurationError(
            f"The items' metadata have {len(metadata):,} rows for {number:,} items; one row per item is wanted."
        )
    floor, dispersion, testlets = None, None, None
    if isinstance(spec.floor, str):
        floor = _floors(_column(metadata, spec.floor, "floor"), spec.floor)
    elif spec.floor is not None:
        share = spec.floor.mean if isinstance(spec.floor, LearnedShare) else spec.floor
        floor = np.full(number, float(share))
    if spec.dispersed:
        dispersion = ItemGroups(("",), np.zeros(number, dtype=np.int32))
        if spec.dispersion_groups is not None:
            dispersion = item_groups(metadata, spec.dispersion_groups, "dispersion_groups", all_of_them=True)
    if spec.item_groups is not None:
        testlets = item_groups(metadata, spec.item_groups, "item_groups")
    traits = None if spec.traits is None else _traits(metadata, spec.traits, general=spec.general)
    return ItemLaw(floor, dispersion, testlets, traits)


def _traits(metadata: pd.DataFrame, columns: str | tuple[str, ...] | int, *, general: bool) -> ItemTraits:
    """Read which items load on which trait."""
    if isinstance(columns, int):
        if len(metadata) < _FEWEST_ITEMS * columns:
            raise InvalidConfigurationError(
                f"{counted(len(metadata), 'item')} for {columns} traits; at least {_FEWEST_ITEMS} per trait are needed."
            )
        labels = tuple(f"trait {number + 1}" for number in range(columns))
        return ItemTraits(labels, np.ones((len(metadata), columns), dtype=bool), exploratory=True)
    if isinstance(columns, str):
        texts = _texts(_column(metadata, columns, "traits"))
        labels = tuple(str(name) for name in np.unique(texts) if name != "")
        loads = texts[:, None] == np.array(labels, dtype=object)
    else:
        labels, loads = columns, np.column_stack([_loads(metadata, column) for column in columns])
    few = [label for label, number in zip(labels, loads.sum(axis=0), strict=True) if number < _FEWEST_ITEMS]
    if few:
        raise InvalidConfigurationError(
            f"Fewer than {_FEWEST_ITEMS} items load on {some(few)}: too few to tell a trait. Merge or leave out."
        )
    if general:
        if GENERAL in labels:
            raise InvalidConfigurationError(f"A trait is called {GENERAL!r} already. Rename it.")
        return ItemTraits((GENERAL, *labels), np.column_stack([np.ones(len(loads), dtype=bool), loads]))
    idle = [str(item) for item in metadata.index[~loads.any(axis=1)]]
    if idle:
        raise InvalidConfigurationError(
            f"{counted(len(idle), 'item')} without a trait ({some(idle)}). Name a trait for each, or let all load on a "
            "general one (general=True, --general)."
        )
    if len(labels) == 1:
        raise InvalidConfigurationError(
            f"All items are of one trait, {labels[0]!r}. Leave traits out, or name another column."
        )
    return ItemTraits(tuple(labels), loads)


def _loads(metadata: pd.DataFrame, column: str) -> Bool[np.ndarray, " item"]:
    """Return a column of 0 and 1 as truth values."""
    numbers = pd.to_numeric(_column(metadata, column, "traits"), errors="coerce")
    if not numbers.isin([0, 1]).all():
        raise InvalidConfigurationError(
            f"The column {column!r} says whether an item loads on a trait, and must hold 0 and 1 alone. A column that "
            "names the trait of each item is given alone, as one text."
        )
    return np.asarray(numbers.to_numpy(np.float64) == 1)


def item_groups(
    metadata: pd.DataFrame, column: str, option: str = "item_groups", *, all_of_them: bool = False
) -> ItemGroups:
    """Read groups of items from a column of their metadata.

    Parameters
    ----------
    metadata
        One row per item.
    column
        Name of the column.
    option
        What the column was named by, for messages.
    all_of_them
        Whether items without an entry make up a group of their own, and single items count as groups.

    Returns
    -------
    ItemGroups
        Groups in alphabetical order; of single items none, unless asked for.

    Raises
    ------
    InvalidConfigurationError
        If the column is absent, no two items share a group, or all do.
    """
    texts = _texts(_column(metadata, column, option))
    names, counts = np.unique(texts, return_counts=True)
    kept = names if all_of_them else names[(counts > 1) & (names != "")]
    if not len(kept) or (counts.max() == 1 and not all_of_them):
        raise InvalidConfigurationError(
            f"No two items share a group in the column {column!r}. Name another column by {option}, or leave it out."
        )
    if len(names) == 1:
        raise InvalidConfigurationError(
            f"All items are in one group in the column {column!r} ({some([str(names[0])])}), which tells none apart. "
            f"Name another column by {option}, or leave it out."
        )
    places = {str(name): place for place, name in enumerate(kept)}
    number = np.array([places.get(str(text), -1) for text in texts], dtype=np.int32)
    return ItemGroups(tuple(places), number)


def _texts(values: pd.Series) -> np.ndarray:
    """Return a column as text, empty where it has no entry."""
    return np.array(["" if gap else str(value) for value, gap in zip(values, values.isna(), strict=True)])


def _column(metadata: pd.DataFrame, column: str, option: str) -> pd.Series:
    if column not in metadata:
        known = f"there are {some(list(metadata.columns))}" if len(metadata.columns) else "there is none"
        raise InvalidConfigurationError(
            f"The items' metadata have no column {column!r}; {known}. Name the column by {option}, or add it to the "
            "responses (item_metadata)."
        )
    return metadata[column]


def _floors(values: pd.Series, column: str) -> Float[np.ndarray, " item"]:
    """Return floors from probabilities, or from numbers of options."""
    numbers = pd.to_numeric(values, errors="coerce")
    if (numbers.isna() & values.notna()).any():
        wrong = values[numbers.isna() & values.notna()].astype(str)
        raise InvalidConfigurationError(
            f"The column {column!r} holds {some(list(wrong.unique()))}, which is no number: floors are probabilities, "
            "or numbers of options."
        )
    known = numbers.dropna().to_numpy(np.float64)
    if not len(known) or not np.isfinite(known).all():
        raise InvalidConfigurationError(
            f"The column {column!r} holds {'infinite floors' if len(known) else 'no floor at all'}. Name a column of "
            "probabilities or of numbers of options."
        )
    options = bool(np.all((known >= 2) & (known == np.round(known))))
    if not options and not np.all((known >= 0) & (known < 1)):
        raise InvalidConfigurationError(
            f"The column {column!r} holds neither probabilities from 0 to below 1 nor whole numbers of options from 2; "
            f"its values run from {known.min():g} to {known.max():g}."
        )
    found = numbers.to_numpy(np.float64)
    if options:
        found = 1.0 / found
    return np.where(np.isnan(found), 0.0, found)
