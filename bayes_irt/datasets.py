"""Public suites by name: looked for in a folder, else downloaded once and checked against a pinned SHA-256.

`names` lists them, `describe` gives licence, citation and hash. The pinned addresses could not be tried where this
was written, for want of a network (the hashes are the authors'): should one have moved, the error says what to do.
"""

from __future__ import annotations

import os
from pathlib import Path

import pooch
import requests

from bayes_irt.errors import DatasetError
from bayes_irt.readers import read_responses
from bayes_irt.responses import Responses
from bayes_irt.suites import Conversion, Dataset, describe, names
from bayes_irt.table_columns import TableColumns

__all__ = ["Conversion", "Dataset", "describe", "load", "names"]

FOLDER = "BAYES_IRT_DATA"
CACHE = "BAYES_IRT_CACHE"
TIMEOUT = 30.0  # seconds without a byte


def load(suite: str | Dataset, *, cache: str | os.PathLike[str] | None = None) -> Responses:
    r"""Return the responses of a public suite, downloaded at first use.

    The places looked at, in this order: (1) the folder that the environment variable BAYES_IRT_DATA names, for the
    suite's own file (`Dataset.file_name`) and then for its conversion; (2) the cache: the folder `cache`, or
    else the one that BAYES_IRT_CACHE names, or else the user's cache folder, ``pooch.os_cache("bayes_irt")``;
    (3) the suite's address, from which the file goes into the cache. Whatever is found is checked against the
    pinned hash. A download that breaks off leaves nothing that a later call could take for the whole file, and
    is begun anew by the next call; a damaged file in the cache is replaced.

    Parameters
    ----------
    suite
        One of `names`, or a data set of your own.
    cache
        Folder for downloads, made when it is needed.

    Returns
    -------
    Responses
        In the order of the file. Items that the file only numbers are labelled by suite and number, such as
        math500_007. Licence and citation: see `describe`.

    Raises
    ------
    InvalidConfigurationError
        If no suite has this name.
    DatasetError
        If the file cannot be downloaded or kept, or is not the one that was pinned, or BAYES_IRT_DATA names no folder.

    Examples
    --------
    >>> import hashlib, tempfile
    >>> table = b"model,0,1\nopus,1,0\nflash,1,1\n"
    >>> pinned = hashlib.sha256(table).hexdigest()
    >>> address = "https://example.org/toy.csv"
    >>> toy = Dataset(name="toy", title="Toy", address=address, sha256=pinned, num_llms=2, num_items=2)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder) / "toy" / "toy.csv"  # as if it had been downloaded before
    ...     path.parent.mkdir()
    ...     _ = path.write_bytes(table)
    ...     load(toy, cache=folder).items
    ('toy_0', 'toy_1')
    """
    dataset = suite if isinstance(suite, Dataset) else describe(suite)
    folder = os.environ.get(FOLDER)
    if folder and not Path(folder).is_dir():
        raise DatasetError(
            f"The environment variable {FOLDER} names {folder!r}, which is no folder. Mend or unset it."
        )
    path = _own_file(dataset, Path(folder)) if folder else None
    if path is None and folder and dataset.conversion is not None:
        converted = Path(folder) / dataset.conversion.file_name
        if converted.is_file():
            return _converted(dataset.conversion, converted)
    return _read(dataset, path or _cached_file(dataset, cache))


def _own_file(dataset: Dataset, folder: Path) -> Path | None:
    """Return the suite's own file in a folder, None if there is none."""
    path = folder / dataset.file_name
    if not path.is_file():
        return None
    found = pooch.file_hash(str(path), alg="sha256")
    if found != dataset.sha256:
        raise DatasetError(
            f"{path} is not the file of {dataset.name!r}: its sha256 is {found}, pinned is {dataset.sha256}. "
            f"Replace it by the file from {dataset.address}, or move it out of the folder that {FOLDER} names."
        )
    return path


def _converted(conversion: Conversion, path: Path) -> Responses:
    """Return the responses of a conversion, checked by their digest."""
    responses = read_responses(path)
    if responses.digest != conversion.digest:
        raise DatasetError(
            f"{path} does not hold what it should: the digest of its responses is {responses.digest}, pinned is "
            f"{conversion.digest}. Restore it, or move it out of the folder that {FOLDER} names."
        )
    return responses


def _cached_file(dataset: Dataset, cache: str | os.PathLike[str] | None) -> Path:
    """Return the suite's file in the cache, downloaded into it if it is not there as a whole."""
    root = Path(cache or os.environ.get(CACHE) or pooch.os_cache("bayes_irt")).expanduser()
    try:
        # Written under a temporary name, hashed, and only then given its own.
        path = pooch.retrieve(
            dataset.address,
            known_hash=f"sha256:{dataset.sha256}",
            fname=dataset.file_name,
            path=root / dataset.name,
            downloader=pooch.HTTPDownloader(timeout=TIMEOUT, chunk_size=2**16),
        )
    except requests.RequestException as error:
        raise DatasetError(_network_message(dataset, error)) from error
    except ValueError as error:
        raise DatasetError(
            f"What {dataset.address} sent is not the file of {dataset.name!r}: its sha256 is not the pinned "
            f"{dataset.sha256}. Nothing was kept. Try again, in case the network changed it; if that does not "
            f"help, the file has moved or been replaced. {_by_hand(dataset)}"
        ) from error
    except OSError as error:
        raise DatasetError(
            f"{dataset.name!r} cannot be kept in {root / dataset.name}: {error.strerror or error}. Name a folder "
            f"that can be written to by cache= or by the environment variable {CACHE}."
        ) from error
    return Path(path)


def _network_message(dataset: Dataset, error: requests.RequestException) -> str:
    """Say why a download failed and what to do."""
    if isinstance(error, requests.HTTPError) and error.response is not None:
        status = error.response.status_code
        return (
            f"{dataset.name!r} cannot be downloaded: {dataset.address} answered {status} "
            f"({error.response.reason}). Try again later, in case the server is out of order; if that does not "
            f"help, the file has moved. {_by_hand(dataset)}"
        )
    if isinstance(error, requests.ConnectionError | requests.Timeout):
        problem = "cannot be reached, or does not answer. Check the network (and the proxy, if there is one)"
    else:
        problem = "broke off before the file was whole. Nothing was kept; call again to begin anew"
    return f"{dataset.name!r} cannot be downloaded: {dataset.address} {problem}. {_by_hand(dataset)} Reason: {error}"


def _by_hand(dataset: Dataset) -> str:
    return (
        f"Without a download: put {dataset.file_name} into a folder and name the folder by the environment "
        f"variable {FOLDER}."
    )


def _read(dataset: Dataset, path: Path) -> Responses:
    """Return the responses of a wide table whose first column names the LLMs."""
    responses = read_responses(path, columns=TableColumns(layout="wide"))
    shape = (responses.num_llms, responses.num_items)
    if shape != (dataset.num_llms, dataset.num_items):
        raise DatasetError(
            f"{path} was read as {shape[0]:,} LLMs x {shape[1]:,} items, but {dataset.name!r} must have "
            f"{dataset.num_llms:,} x {dataset.num_items:,}. Correct the Dataset if it is your own; else report "
            "this as an error of the package."
        )
    if not all(label.isdecimal() for label in responses.items):
        return responses
    width = max(map(len, responses.items))
    labels = [f"{dataset.name}_{label:0>{width}}" for label in responses.items]
    return Responses(responses.dataset.assign_coords(item=labels))
