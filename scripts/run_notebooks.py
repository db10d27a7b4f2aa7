"""Run the notebooks from top to bottom and store their outputs, without what changes from run to run.

``uv run python scripts/run_notebooks.py`` runs all of them in place; names or paths choose some. With ``--check``
nothing is written: it fails where a notebook does not run, where its stored outputs are not those of its cells
(in kind and number), or where they hold what does not belong into a repository.
"""

from __future__ import annotations

import argparse
import base64
import os
import re
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import nbformat
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError, CellTimeoutError, DeadKernelError

FOLDER = Path(__file__).parents[1] / "notebooks"
METADATA = {
    "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
    "language_info": {"name": "python"},
}
LARGEST_FIGURE = 150_000  # bytes
SECONDS_PER_CELL = 300
ABSOLUTE_PATH = re.compile(r"(?<![\w:/.<>~])/(?:[\w.-]+/)+[\w.-]+|\b[A-Za-z]:\\\w+")
FIGURES_IN_PROSE = re.compile(r"\d\s?%|(?<![\w.-])\d*\.\d+")
CODE_OR_MATHS = re.compile(r"`[^`]*`|\$\$.*?\$\$|\$[^$]*\$", re.DOTALL)


def run(notebook: Any) -> Any:
    """Run all cells of a copy, and return it without what changes from run to run."""
    fresh = nbformat.from_dict(notebook)
    for cell in code_cells(fresh):
        cell.outputs, cell.execution_count = [], None
    client = NotebookClient(
        fresh,
        timeout=SECONDS_PER_CELL,
        kernel_name="python3",
        resources={"metadata": {"path": str(FOLDER)}},
        record_timing=False,
        coalesce_streams=True,
    )
    client.execute()
    fresh.metadata = nbformat.from_dict(METADATA)
    for cell in fresh.cells:
        cell.metadata = nbformat.from_dict({})
        for output in cell.get("outputs", []):
            if "metadata" in output:
                output.metadata = nbformat.from_dict({})
    return fresh


def code_cells(notebook: Any) -> list[Any]:
    """Return the cells that hold code."""
    return [cell for cell in notebook.cells if cell.cell_type == "code"]


def find_faults(notebook: Any) -> list[str]:
    """Say what a notebook holds that must not be committed, one sentence each."""
    faults = []
    if notebook.metadata != METADATA:
        faults.append("The notebook's metadata are not those this script writes.")
    cells = code_cells(notebook)
    if [cell.execution_count for cell in cells] != list(range(1, len(cells) + 1)):
        faults.append("Not every cell was run, in order.")
    if not any(cell.outputs for cell in cells):
        faults.append("There are no outputs.")
    for number, cell in enumerate(notebook.cells, 1):
        faults += [f"Cell {number} {fault}" for fault in _faults_of_cell(cell)]
    return faults


def _faults_of_cell(cell: Any) -> Iterator[str]:
    if cell.metadata:
        yield "has metadata."
    if cell.cell_type == "markdown":
        for figure in FIGURES_IN_PROSE.findall(CODE_OR_MATHS.sub("", cell.source)):
            yield f"quotes a figure in prose ({figure.strip()}), which no test holds to the outputs: compute it."
    for output in cell.get("outputs", []):
        yield from _faults_of_output(output)


def _faults_of_output(output: Any) -> Iterator[str]:
    if output.output_type == "error":
        yield f"ended in an error: {output.ename}."
        return
    if output.get("name") == "stderr":
        yield "wrote to the error stream (a warning?)."
    if output.get("metadata"):
        yield "has an output with metadata."
    data = output.get("data", {"text/plain": output.get("text", "")})
    for kind, content in data.items():
        if kind.startswith("image/"):
            size = len(base64.b64decode(content)) if kind == "image/png" else len(content)
            if size > LARGEST_FIGURE:
                yield f"has a figure of {size:,} bytes (at most {LARGEST_FIGURE:,})."
        elif path := ABSOLUTE_PATH.search(content):
            yield f"shows an absolute path ({path.group()})."


def find_differences(stored: Any, fresh: Any) -> list[str]:
    """Say where stored outputs are of another kind or number than those of a run just made."""
    return [
        f"Cell {number} stores {_kinds(old)}, and now shows {_kinds(new)}: run it again."
        for number, (old, new) in enumerate(zip(stored.cells, fresh.cells, strict=True), 1)
        if _kinds(old) != _kinds(new)
    ]


def _kinds(cell: Any) -> list[str]:
    outputs = cell.get("outputs", [])
    return [", ".join(sorted(output.get("data", {output.get("name", "error"): ""}))) for output in outputs]


def handle(path: Path, *, check: bool) -> list[str]:
    """Run one notebook, store it unless it is only checked, and return what is wrong with it."""
    stored = nbformat.read(path, as_version=4)
    faults = find_faults(stored) if check else []
    began = time.perf_counter()
    try:
        fresh = run(stored)
    except (CellExecutionError, CellTimeoutError, DeadKernelError) as error:
        return [*faults, f"It does not run: {error}"]
    print(f"{path.name}: ran in {time.perf_counter() - began:.0f} s", flush=True)
    if check:
        return faults + find_faults(fresh) + find_differences(stored, fresh)
    nbformat.write(fresh, path)
    return find_faults(fresh)


def main() -> int:
    """Handle the notebooks asked for and return how many have faults."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("notebooks", nargs="*", help="names in notebooks/, or paths; all if none is given")
    parser.add_argument("--check", action="store_true", help="write nothing")
    options = parser.parse_args()
    os.environ.pop("MPLBACKEND", None)  # notebooks show figures, whatever the caller draws with
    paths = [FOLDER / name for name in options.notebooks] or sorted(FOLDER.glob("*.ipynb"))
    faulty = 0
    for path in paths:
        faults = handle(path, check=options.check)
        faulty += bool(faults)
        for fault in faults:
            print(f"{path.name}: {fault}", file=sys.stderr)
    return faulty


if __name__ == "__main__":
    sys.exit(main())
