"""A run directory: data, estimate and posterior of one fit, written whole or not at all."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bayes_irt.errors import RunDirectoryError, some
from bayes_irt.estimate import PointEstimate
from bayes_irt.posterior import Posterior
from bayes_irt.provenance import read_json, write_json
from bayes_irt.responses import Responses

_FORMAT = 1


@dataclass(frozen=True, slots=True)
class Run:
    """Hold what a run directory holds.

    Parameters
    ----------
    responses
        The data.
    estimate
        The cBMM estimate.
    posterior
        The posterior; None where only the point estimate was asked for.
    converged
        Whether the fit met its stop rule, or the posterior passed `check_posterior`.
    source
        Where the responses came from, as the user named it.
    command
        The command line that made it; empty where it was made in Python.

    Examples
    --------
    >>> from bayes_irt import Priors, fit_cbmm, simulate_suite
    >>> responses = simulate_suite(6, 20).responses
    >>> Run(responses, fit_cbmm(responses, penalty=Priors()), None, True, "simulated").method
    'cbmm'
    """

    responses: Responses
    estimate: PointEstimate
    posterior: Posterior | None
    converged: bool
    source: str
    command: str = ""

    @property
    def method(self) -> str:
        """The method of the fit."""
        fitted = self.estimate if self.posterior is None else self.posterior
        return fitted.provenance.method

    def write(self, folder: Path) -> None:
        """Write the run into an empty directory, such as `new_directory` gives.

        Parameters
        ----------
        folder
            The directory.
        """
        self.responses.save(folder / "responses.nc")
        self.estimate.save(folder / "estimate")
        if self.posterior is not None:
            self.posterior.save(folder / "posterior")
        described: dict[str, Any] = {
            "format": _FORMAT,
            "method": self.method,
            "converged": self.converged,
            "source": self.source,
            "command": self.command,
            "data_digest": self.responses.digest,
        }
        write_json(folder / "run.json", described)

    @classmethod
    def load(cls, path: str | Path) -> Run:
        """Read a run directory.

        Parameters
        ----------
        path
            The directory.

        Returns
        -------
        Run
            Equal to the one written.

        Raises
        ------
        RunDirectoryError
            If the directory holds no run, or its parts are about different data.
        """
        folder = Path(path)
        if not folder.is_dir():
            raise RunDirectoryError(
                f"{str(folder)!r} is no directory. Make a run with: bayes-irt fit DATA -o RUN"
            )
        described = read_json(folder / "run.json")
        if described.get("format") != _FORMAT:
            raise RunDirectoryError(
                f"{str(folder)!r} has format {described.get('format')!r}; this version reads {_FORMAT}. Fit again."
            )
        lacking = [name for name in ("method", "converged", "source") if name not in described]
        if lacking:
            raise RunDirectoryError(f"{str(folder / 'run.json')!r} lacks {some(lacking)}. Fit again.")
        responses = Responses.load(folder / "responses.nc")
        estimate = PointEstimate.load(folder / "estimate")
        posterior = Posterior.load(folder / "posterior") if described["method"] != "cbmm" else None
        digests = {part.provenance.data_digest for part in (estimate, posterior) if part is not None}
        if digests != {responses.digest}:
            raise RunDirectoryError(f"The parts of {str(folder)!r} are about different data. Fit again.")
        command = described.get("command", "")
        run = cls(responses, estimate, posterior, described["converged"], described["source"], command)
        if run.method != described["method"]:
            raise RunDirectoryError(
                f"{str(folder)!r} says {described['method']!r} but holds {run.method!r}. Fit again."
            )
        return run
