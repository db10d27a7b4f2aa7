"""Save the counts and metadata of `Responses` to one netCDF file, and read them back unchanged."""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np
import pandas as pd
import xarray as xr

from bayes_irt.counts import COUNTS
from bayes_irt.errors import InvalidResponsesError, RunDirectoryError
from bayes_irt.metadata import DIMS

FORMAT = "bayes_irt responses 1"


def save_dataset(dataset: xr.Dataset, path: Path, *, force: bool) -> None:
    """Write a dataset of counts under a temporary name in the same folder, then rename it.

    Parameters
    ----------
    dataset
        As returned by `bayes_irt.counts.canonical_dataset`.
    path
        The file to write.
    force
        Whether an existing file may be replaced.

    Raises
    ------
    RunDirectoryError
        If the file exists and `force` is not set, or its folder does not exist.

    Examples
    --------
    >>> from bayes_irt.counts import canonical_dataset, label_counts
    >>> dataset = canonical_dataset(label_counts(np.array([[0, 1], [1, 0]]), None, None, None))
    >>> folder = tempfile.TemporaryDirectory()
    >>> save_dataset(dataset, Path(folder.name) / "r.nc", force=False)
    >>> load_dataset(Path(folder.name) / "r.nc").equals(dataset)
    True
    >>> folder.cleanup()
    """
    if path.exists() and not force:
        raise RunDirectoryError(f"{path} exists already. Choose another name, or replace it with force=True.")
    if not path.parent.is_dir():
        raise RunDirectoryError(f"The folder {path.parent} does not exist. Create it first.")
    encoding = {name: {"zlib": True, "complevel": 4} for name in COUNTS}
    with tempfile.TemporaryDirectory(prefix=f".{path.name}-", dir=path.parent) as folder:
        temporary = Path(folder) / "responses.nc"
        _encoded(dataset).to_netcdf(temporary, engine="h5netcdf", encoding=encoding)
        temporary.replace(path)


def load_dataset(path: Path) -> xr.Dataset:
    """Read a dataset that `save_dataset` wrote.

    Parameters
    ----------
    path
        The file.

    Returns
    -------
    xarray.Dataset
        Counts, labels and metadata as they were saved.

    Raises
    ------
    InvalidResponsesError
        If the file cannot be read or holds something else.

    Examples
    --------
    >>> load_dataset(Path("absent.nc"))
    Traceback (most recent call last):
    bayes_irt.errors.InvalidResponsesError: absent.nc cannot be read as saved responses: ...
    """
    try:
        dataset = xr.load_dataset(path, engine="h5netcdf", decode_times=False)
    except (OSError, ValueError) as error:
        raise InvalidResponsesError(
            f"{path} cannot be read as saved responses: {str(error).splitlines()[0]}. "
            "Name a file that Responses.save wrote; tables are read by read_responses."
        ) from error
    if dataset.attrs.get("format") != FORMAT:
        raise InvalidResponsesError(
            f"{path} does not hold saved responses: its attribute 'format' is "
            f"{dataset.attrs.get('format')!r}, {FORMAT!r} is required. Name a file that Responses.save wrote."
        )
    return _decoded(dataset)


def _encoded(dataset: xr.Dataset) -> xr.Dataset:
    """Return the dataset in types that netCDF holds, with the kind of every metadata column as attribute."""
    coordinates: dict[str, xr.Variable] = {}
    for name, coordinate in dataset.coords.items():
        values, kind = _encoded_values(coordinate.values)
        attributes = {} if name in DIMS else {"kind": kind}
        coordinates[_file_name(str(name))] = xr.Variable(coordinate.dims, values, attributes)
    counts = {name: (DIMS, dataset[name].values) for name in COUNTS}
    return xr.Dataset(counts, coords=coordinates, attrs={"format": FORMAT})


def _encoded_values(values: np.ndarray) -> tuple[np.ndarray, str]:
    """Return an array that netCDF can hold, and what it stood for."""
    if values.dtype.kind == "b":
        return values.astype(np.int8), "bool"
    if values.dtype.kind == "M":
        return values.astype("datetime64[ns]").view(np.int64), "date"
    if values.dtype.kind != "O":
        return values, "number"
    missing = pd.isna(values)
    if isinstance(values[~missing][0], bool):
        return np.where(missing, -1, values).astype(np.int8), "bool"
    # A mark in front keeps a missing string apart from an empty one.
    return np.array(["-" if gap else f"+{value}" for value, gap in zip(values, missing, strict=True)]), "text"


def _decoded(dataset: xr.Dataset) -> xr.Dataset:
    """Undo `_encoded`."""
    coordinates: dict[str, tuple[tuple[object, ...], np.ndarray]] = {}
    for name, coordinate in dataset.coords.items():
        values = _decoded_values(coordinate.values, coordinate.attrs.get("kind", "text"))
        coordinates[_true_name(str(name))] = (coordinate.dims, values)
    return xr.Dataset({name: (DIMS, dataset[name].values) for name in COUNTS}, coords=coordinates)


def _decoded_values(values: np.ndarray, kind: str) -> np.ndarray:
    """Undo `_encoded_values`."""
    if kind == "number":
        return values
    if kind == "date":
        return values.astype(np.int64).view("datetime64[ns]")
    if kind == "bool" and (values >= 0).all():
        return values.astype(bool)
    decoded = np.empty(len(values), dtype=object)
    if kind == "bool":
        decoded[:] = [np.nan if value < 0 else bool(value) for value in values]
    else:
        decoded[:] = [np.nan if value == "-" else value[1:] for value in values.tolist()]
    return decoded


def _file_name(name: str) -> str:
    """Return a name that netCDF accepts: a slash would open a group there, a space separates names."""
    return name.replace("%", "%25").replace("/", "%2F").replace(" ", "%20")


def _true_name(name: str) -> str:
    """Undo `_file_name`."""
    return name.replace("%20", " ").replace("%2F", "/").replace("%25", "%")
