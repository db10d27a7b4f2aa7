"""`PointEstimate`: what a point estimator returns, complete and labelled."""

from __future__ import annotations

import enum
import math
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import xarray as xr

from bayes_irt.errors import RunDirectoryError
from bayes_irt.parameters import DIMS, Parameters
from bayes_irt.provenance import Provenance, new_directory, read_json, write_json


class Status(enum.StrEnum):
    """How a fit ended; `advice` says what to do about it.

    Examples
    --------
    >>> Status.CONVERGED.advice
    'The stop rule was met.'
    """

    CONVERGED = "converged"
    LOSS_SETTLED = "loss settled"
    CYCLE_LIMIT = "cycle limit"

    @property
    def advice(self) -> str:
        """One sentence for the user."""
        return _ADVICE[self]


_ADVICE = {
    Status.CONVERGED: "The stop rule was met.",
    Status.LOSS_SETTLED: (
        "The loss hardly falls any more, but the parameters do not meet the stop rule. Without a penalty some may have "
        "no finite estimate: give one. With one, the data hardly tell some of them, or cells in float32 tell no more: "
        "try a larger tolerance or precision='float64'."
    ),
    Status.CYCLE_LIMIT: (
        "The limit of cycles came before the stop rule. Raise max_cycles; or, where items or LLMs are separated, "
        "give a penalty, since without one they have no finite estimate."
    ),
}


@dataclass(frozen=True, slots=True)
class Timing:
    """State how long a fit took.

    Parameters
    ----------
    compile_seconds
        Tracing and compiling; 0 where a program of the same shape was at hand.
    total_seconds
        The whole fit, compiling included.
    """

    compile_seconds: float
    total_seconds: float


@dataclass(frozen=True, slots=True, eq=False)
class PointEstimate:
    """Hold a point estimate.

    Parameters
    ----------
    dataset
        Labelled arrays: ``ability``, ``discrimination``, ``easiness`` in the canonical gauge (abilities with mean 0
        and sd 1 over the LLMs; items in logits times sigma); the same with ``raw_`` as the algorithm left them;
        ``loss_trace`` by cycle, penalty included; ``separated_item`` and ``separated_llm``, true where no finite
        unpenalised estimate exists; by start, ``start_loss`` and ``start_agreement``, the rank correlation of the LLMs'
        expected scores with those of the best start.
    status
        How the fit ended.
    change
        Largest change of a canonical parameter in the last cycle, in sds of ability or logits.
    kkt_residual
        Largest first-order residual: the derivative of the loss (where a discrimination is 0, only its pull to the
        inside counts), divided by the attempts it sums over. 0 at an optimum.
    num_passes
        Passes over the data, of all starts.
    timing
        How long it took; two estimates that differ in this alone are equal.
    provenance
        What made it.

    Examples
    --------
    >>> from bayes_irt import Priors, fit_cbmm, simulate_suite
    >>> estimate = fit_cbmm(simulate_suite(6, 20).responses, penalty=Priors())
    >>> estimate.parameters.num_items, str(estimate.status)
    (20, 'converged')
    """

    dataset: xr.Dataset
    status: Status
    change: float
    kkt_residual: float
    num_passes: int
    timing: Timing
    provenance: Provenance

    @property
    def parameters(self) -> Parameters:
        """Estimates in the canonical gauge."""
        return self._parameters("")

    @property
    def raw_parameters(self) -> Parameters:
        """Estimates in the gauge in which the algorithm left them."""
        return self._parameters("raw_")

    @property
    def num_cycles(self) -> int:
        """Number of cycles run."""
        return int(self.dataset.sizes["cycle"])

    @property
    def loss(self) -> float:
        """Loss at the end, penalty included; NaN if no cycle was run."""
        return float(self.dataset["loss_trace"][-1]) if self.num_cycles else float("nan")

    @property
    def loss_trace(self) -> np.ndarray:
        """Loss after each cycle."""
        return self.dataset["loss_trace"].to_numpy()

    @property
    def llms(self) -> tuple[str, ...]:
        """Labels of the LLMs."""
        return tuple(self.dataset["llm"].to_numpy().tolist())

    @property
    def items(self) -> tuple[str, ...]:
        """Labels of the items."""
        return tuple(self.dataset["item"].to_numpy().tolist())

    @property
    def separated_items(self) -> tuple[str, ...]:
        """Items without a finite unpenalised estimate at these abilities."""
        return tuple(self.dataset["item"].to_numpy()[self.dataset["separated_item"].to_numpy()].tolist())

    @property
    def separated_llms(self) -> tuple[str, ...]:
        """LLMs without a finite unpenalised ability."""
        return tuple(self.dataset["llm"].to_numpy()[self.dataset["separated_llm"].to_numpy()].tolist())

    def _parameters(self, prefix: str) -> Parameters:
        arrays = {}
        for name in ("ability", "discrimination", "easiness"):
            array = self.dataset[prefix + name].to_numpy()
            arrays[name] = array[..., None] if array.ndim < len(DIMS[name]) else array
        return Parameters(**arrays)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, PointEstimate):
            return NotImplemented
        mine = (self.status, self.change, self.kkt_residual, self.num_passes, self.provenance)
        theirs = (other.status, other.change, other.kkt_residual, other.num_passes, other.provenance)
        return mine == theirs and self.dataset.identical(other.dataset)

    def __repr__(self) -> str:
        separated = f", {len(self.separated_items)} separated items" if self.separated_items else ""
        return (
            f"PointEstimate: {len(self.llms)} LLMs x {len(self.items)} items by {self.provenance.method}, "
            f"{self.status} after {self.num_cycles} cycles, loss {self.loss:.2f}{separated}"
        )

    def save(self, path: str | Path, *, force: bool = False) -> None:
        """Write the estimate to a directory of its own.

        Parameters
        ----------
        path
            Directory to make; it appears whole or not at all.
        force
            Whether an existing one may be replaced.

        Raises
        ------
        RunDirectoryError
            If the directory exists and `force` is not given.
        """
        with new_directory(path, force=force) as folder:
            self.dataset.to_netcdf(folder / "estimate.nc", engine="h5netcdf")
            outcome = {
                "status": str(self.status),
                "change": self.change if math.isfinite(self.change) else None,
                "kkt_residual": self.kkt_residual,
                "num_passes": self.num_passes,
                "timing": asdict(self.timing),
            }
            write_json(folder / "estimate.json", {**outcome, "provenance": asdict(self.provenance)})

    @classmethod
    def load(cls, path: str | Path) -> PointEstimate:
        """Read an estimate that `save` wrote; it equals the one saved.

        Parameters
        ----------
        path
            The directory.

        Returns
        -------
        PointEstimate
            The estimate.

        Raises
        ------
        RunDirectoryError
            If the directory does not hold an estimate.
        """
        folder = Path(path)
        described = read_json(folder / "estimate.json")
        try:
            dataset = xr.load_dataset(folder / "estimate.nc", engine="h5netcdf")
            provenance = Provenance(**described["provenance"])
            change = math.inf if described["change"] is None else described["change"]
            outcome = (
                Status(described["status"]),
                change,
                described["kkt_residual"],
                described["num_passes"],
                Timing(**described["timing"]),
            )
        except (OSError, KeyError, TypeError, ValueError) as error:
            raise RunDirectoryError(f"{str(folder)!r} holds no point estimate ({error}).") from error
        return cls(dataset, *outcome, provenance)


def estimate_dataset(
    canonical: Parameters,
    raw: Parameters,
    loss_trace: np.ndarray,
    labels: tuple[tuple[str, ...], tuple[str, ...]],
    separated: tuple[np.ndarray, np.ndarray],
) -> xr.Dataset:
    """Label the arrays of a point estimate.

    Parameters
    ----------
    canonical, raw
        Parameters in the canonical gauge and as the algorithm left them.
    loss_trace
        Loss after each cycle.
    labels
        Labels of the LLMs and of the items.
    separated
        Flags of the separated LLMs and items.

    Returns
    -------
    xarray.Dataset
        As `PointEstimate` holds it; the trait dim is dropped where there is one trait.
    """
    variables: dict[str, tuple[tuple[str, ...], np.ndarray]] = {}
    for prefix, parameters in (("", canonical), ("raw_", raw)):
        for name in ("ability", "discrimination", "easiness"):
            dims, array = DIMS[name], np.asarray(getattr(parameters, name), dtype=np.float64)
            if "trait" in dims and parameters.num_traits == 1:
                dims, array = dims[:-1], array[..., 0]
            variables[prefix + name] = (dims, array)
    variables["loss_trace"] = (("cycle",), loss_trace)
    variables["separated_llm"] = (("llm",), separated[0])
    variables["separated_item"] = (("item",), separated[1])
    coords = {
        "llm": np.array(labels[0], dtype=object),
        "item": np.array(labels[1], dtype=object),
        "cycle": np.arange(1, len(loss_trace) + 1),
    }
    return xr.Dataset(variables, coords=coords)
