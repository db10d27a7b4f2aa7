"""Where a result comes from, and how results reach the disk whole or not at all."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import shutil
import tempfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

from bayes_irt.errors import InvalidConfigurationError, RunDirectoryError

# All that a result directory may hold.
_RESULT_NAMES = {
    *("run.json", "responses.nc", "leaderboard.csv", "leaderboard.png"),
    *("report.html", "report.md", "tables"),
    *("estimate", "estimate.nc", "estimate.json", "posterior", "posterior.nc", "posterior.json"),
}
_PACKAGES = ("bayes_irt", "jax", "numpyro", "arviz", "numpy", "pandas", "xarray")


def package_versions() -> dict[str, str]:
    """Return the versions of the packages that decide a result, without importing them.

    Returns
    -------
    dict
        Package name to version.

    Examples
    --------
    >>> "jax" in package_versions()
    True
    """
    return dict(_versions())


@cache
def _versions() -> tuple[tuple[str, str], ...]:
    return tuple((name, version(name)) for name in _PACKAGES)


@dataclass(frozen=True, slots=True)
class Provenance:
    """State what made a result.

    Parameters
    ----------
    method
        The method, such as "cbmm" or "nuts".
    configuration
        Every option that was in force, as plain data (JSON).
    data_digest
        The digest of the responses.
    seed
        The seed, or None for a method that draws nothing.
    versions
        Versions of the packages involved.

    Examples
    --------
    >>> Provenance("cbmm", {"sigma": 1.0}, "9f0c").seed is None
    True
    """

    method: str
    configuration: dict[str, Any]
    data_digest: str
    seed: int | None = None
    versions: dict[str, str] = field(default_factory=package_versions)


def plain(value: object) -> Any:
    """Return a configuration as plain data that JSON can hold; dataclasses name their type.

    Parameters
    ----------
    value
        A dataclass, a mapping, a sequence, or a scalar.

    Returns
    -------
    object
        Dictionaries, lists and scalars.

    Examples
    --------
    >>> from bayes_irt.priors import LearnedScale
    >>> plain(LearnedScale())
    {'type': 'LearnedScale', 'median': 1.5, 'log_sd': 1.0}
    """
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = {f.name: plain(getattr(value, f.name)) for f in dataclasses.fields(value)}
        return {"type": type(value).__name__, **fields}
    if isinstance(value, dict):
        return {str(key): plain(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [plain(entry) for entry in value]
    return value.item() if isinstance(value, np.generic) else value


def restored(described: object, types: Iterable[type]) -> Any:
    """Return the dataclasses that `plain` described.

    Parameters
    ----------
    described
        What `plain` returned, also after a way through JSON.
    types
        The dataclasses that may occur.

    Returns
    -------
    object
        The same value; lists come back as tuples, which dataclasses can hash.

    Raises
    ------
    InvalidConfigurationError
        If another type occurs.

    Examples
    --------
    >>> from bayes_irt.priors import LearnedScale
    >>> restored(plain(LearnedScale(2.0)), [LearnedScale])
    LearnedScale(median=2.0, log_sd=1.0)
    """
    known = {entry.__name__: entry for entry in types}
    if isinstance(described, list | tuple):
        return tuple(restored(entry, known.values()) for entry in described)
    if not isinstance(described, dict):
        return described
    fields = {key: restored(entry, known.values()) for key, entry in described.items() if key != "type"}
    if "type" not in described:
        return fields
    if described["type"] not in known:
        raise InvalidConfigurationError(
            f"The configuration holds a {described['type']!r}; known are {sorted(known)}."
        )
    return known[described["type"]](**fields)


@contextlib.contextmanager
def new_directory(path: str | Path, *, force: bool = False) -> Iterator[Path]:
    """Fill a directory under a temporary name and rename it when the block ends without error.

    Parameters
    ----------
    path
        The directory to make.
    force
        Whether an existing directory may be replaced.

    Yields
    ------
    pathlib.Path
        The temporary directory to write to, beside the final one.

    Raises
    ------
    RunDirectoryError
        If the path exists and `force` is not given, or is a file.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     with new_directory(Path(folder) / "run") as run:
    ...         _ = (run / "a.txt").write_text("x")
    ...     (Path(folder) / "run" / "a.txt").read_text()
    'x'
    """
    target = Path(path)
    require_free(target, force=force)
    target.parent.mkdir(parents=True, exist_ok=True)
    temporary = Path(tempfile.mkdtemp(prefix=f".{target.name[:100]}.", dir=target.parent))
    replaced = temporary.with_name(f"{temporary.name}.old")
    try:
        yield temporary
        temporary.chmod(0o755)
        if target.exists():
            target.rename(replaced)
        temporary.rename(target)
    finally:
        for leftover in (temporary, replaced):
            if leftover.exists():
                shutil.rmtree(leftover)


def require_same_data(provenance: Provenance, digest: str, name: str) -> None:
    """Make sure that a fit is about the responses at hand: the digest covers labels and counts.

    Parameters
    ----------
    provenance
        The fit's.
    digest
        Digest of the responses.
    name
        What to call the fit.

    Raises
    ------
    InvalidConfigurationError
        If it was fitted to other responses.
    """
    if provenance.data_digest != digest:
        raise InvalidConfigurationError(
            f"The {name} is about other LLMs, items or outcomes than the responses. Fit it to these responses."
        )


def require_free(path: str | Path, *, force: bool = False) -> None:
    """Raise if a result must not be written to this path.

    Parameters
    ----------
    path
        The directory to be made.
    force
        Whether an existing result directory may be replaced.

    Raises
    ------
    RunDirectoryError
        If something is there that must not be replaced: anything without `force`; with it, a file or a directory
        that holds no result of this package. Or if nothing can be made there.
    """
    target = Path(path)
    try:
        taken = os.path.lexists(target)
        if not taken:
            target.stat()  # raises for names that can never exist
    except (FileNotFoundError, NotADirectoryError):
        taken = False
    except (OSError, ValueError) as error:
        raise RunDirectoryError(f"No directory can be named {str(target)[:80]!r} ({error}).") from error
    if not taken:
        _require_writable(target)
        return
    if not force:
        raise RunDirectoryError(
            f"{str(target)!r} exists already. Choose another name, or allow with force (--force)."
        )
    if target.is_symlink() or not target.is_dir() or not _holds_results(target):
        raise RunDirectoryError(
            f"{str(target)!r} is not a result directory (or holds other files too), so it is not replaced. "
            "Choose another."
        )


def _holds_results(folder: Path) -> bool:
    """Say whether a directory is empty, or holds results of this package and nothing else."""
    names = {entry.name for entry in folder.iterdir()}
    marked = False
    for name, key in (
        ("run.json", "format"),
        ("estimate.json", "provenance"),
        ("posterior.json", "provenance"),
    ):
        with contextlib.suppress(RunDirectoryError):
            marked = marked or key in read_json(folder / name)
    return not names or (marked and names <= _RESULT_NAMES)


def _require_writable(target: Path) -> None:
    """Raise if the directory to be made cannot be, before hours of sampling are spent."""
    above = next(parent for parent in target.absolute().parents if parent.exists())
    if not (above.is_dir() and os.access(above, os.W_OK)):
        raise RunDirectoryError(
            f"{str(target)!r} cannot be made: {str(above)!r} is no directory that can be written to. Choose another."
        )


def write_json(path: Path, content: dict[str, Any]) -> None:
    """Write plain data as JSON, keys in order.

    Parameters
    ----------
    path
        The file.
    content
        What to write.
    """
    path.write_text(
        json.dumps(content, indent=2, ensure_ascii=False, allow_nan=False) + "\n", encoding="utf-8"
    )


def read_json(path: Path) -> dict[str, Any]:
    """Read what `write_json` wrote.

    Parameters
    ----------
    path
        The file.

    Returns
    -------
    dict
        The content.

    Raises
    ------
    RunDirectoryError
        If the file is absent or no JSON object.
    """
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise RunDirectoryError(
            f"{str(path)!r} cannot be read ({error}). Is this a result directory?"
        ) from error
    if not isinstance(content, dict):
        raise RunDirectoryError(f"{str(path)!r} holds no JSON object. Is this a result directory?")
    return content
