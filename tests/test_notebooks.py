"""The notebooks run, and what is stored of their outputs is fit to be read by others."""

import base64
import runpy
import subprocess
import sys
from copy import deepcopy
from pathlib import Path

import nbformat
import pytest
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook, new_output

ROOT = Path(__file__).parents[1]
SCRIPT = ROOT / "scripts" / "run_notebooks.py"
NAMES = ["01_error_bars.ipynb", "02_mm_vs_posterior.ipynb", "03_many_abilities.ipynb"]


@pytest.fixture(scope="module")
def script():
    """The names of the script."""
    return runpy.run_path(str(SCRIPT))


@pytest.fixture
def stored():
    return nbformat.read(ROOT / "notebooks" / NAMES[0], as_version=4)


def run_script(*arguments):
    return subprocess.run([sys.executable, SCRIPT, *arguments], capture_output=True, text=True, check=False)


def picture(size):
    content = base64.b64encode(bytes(size)).decode()
    return new_output("display_data", {"image/png": content, "text/plain": "<Figure>"})


def test_no_notebook_is_forgotten():
    assert sorted(path.name for path in (ROOT / "notebooks").glob("*.ipynb")) == NAMES


@pytest.mark.parametrize("name", NAMES)
def test_what_is_stored_is_complete_and_clean(name, script):
    notebook = nbformat.read(ROOT / "notebooks" / name, as_version=4)
    nbformat.validate(notebook)
    assert script["find_faults"](notebook) == []
    shown = [
        kind
        for cell in script["code_cells"](notebook)
        for out in cell.outputs
        for kind in out.get("data", ())
    ]
    assert shown.count("image/png") >= 5


@pytest.mark.parametrize("name", NAMES)
def test_notebooks_run_and_show_what_is_stored(name, data_dir):
    run = run_script("--check", name)
    assert run.returncode == 0, run.stderr
    assert f"{name}: ran in " in run.stdout


@pytest.mark.parametrize(
    ("outputs", "wanted"),
    [
        (
            [new_output("error", ename="ValueError", evalue="no", traceback=[])],
            "ended in an error: ValueError",
        ),
        ([new_output("stream", name="stderr", text="careful")], "wrote to the error stream"),
        (
            [new_output("stream", name="stdout", text="see /home/someone/file.csv")],
            "(/home/someone/file.csv)",
        ),
        ([new_output("execute_result", {"text/html": r"<b>C:\Users\x</b>"})], r"(C:\Users)"),
        ([picture(150_001)], "has a figure of 150,001 bytes (at most 150,000)"),
        ([new_output("display_data", {"text/plain": "1"}, metadata={"x": 1})], "has an output with metadata"),
    ],
)
def test_outputs_that_must_not_be_stored_are_named(outputs, wanted, script, stored):
    place = next(place for place, cell in enumerate(stored.cells) if cell.cell_type == "code")
    stored.cells[place].outputs += outputs
    faults = script["find_faults"](stored)
    assert len(faults) == 1
    assert faults[0].startswith(f"Cell {place + 1} ")
    assert wanted in faults[0]


@pytest.mark.parametrize(
    "text",
    ["see https://example.org/a/b/c.csv", "text/plain and 3/4/5", "<td>a</td>", "~/one/two"],
)
def test_what_only_looks_like_an_absolute_path_may_be_stored(text, script, stored):
    cell = script["code_cells"](stored)[0]
    cell.outputs += [new_output("stream", name="stdout", text=text), picture(150_000)]
    assert script["find_faults"](stored) == []


def test_notebooks_without_outputs_or_with_traces_of_a_run_are_named(script, stored):
    find_faults = script["find_faults"]
    bare, moved, timed = (deepcopy(stored) for _ in range(3))
    for cell in script["code_cells"](bare):
        cell.outputs, cell.execution_count = [], None
    assert find_faults(bare) == ["Not every cell was run, in order.", "There are no outputs."]
    script["code_cells"](moved)[2].execution_count = 40
    assert find_faults(moved) == ["Not every cell was run, in order."]
    timed.cells[1].metadata["execution"] = {"iopub.execute_input": "2026-01-01T00:00:00Z"}
    timed.metadata["language_info"]["version"] = "3.13.0"
    assert find_faults(timed) == [
        "The notebook's metadata are not those this script writes.",
        "Cell 2 has metadata.",
    ]


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("Some 12 % of them", True),
        ("tau is .96 here", True),
        ("at 0.5 sd", True),
        ("MATH-500, `x = 0.5`", False),
    ],
)
def test_figures_are_computed_not_quoted_in_prose(text, found, script):
    notebook = new_notebook(cells=[new_markdown_cell(text)], metadata=script["METADATA"])
    faults = [fault for fault in script["find_faults"](notebook) if "quotes a figure" in fault]
    assert bool(faults) == found


def test_outputs_of_another_kind_or_number_are_stale(script, stored):
    find_differences, fresh = script["find_differences"], deepcopy(stored)
    assert find_differences(stored, fresh) == []
    place = next(place for place, cell in enumerate(fresh.cells) if cell.get("outputs"))
    fresh.cells[place].outputs.append(picture(10))
    differences = find_differences(stored, fresh)
    assert len(differences) == 1
    assert differences[0].startswith(f"Cell {place + 1} stores ")


def test_a_run_stores_outputs_without_traces_and_a_failing_cell_is_named(script, tmp_path):
    path = tmp_path / "small.ipynb"
    cells = [new_markdown_cell("A sum."), new_code_cell("print('a'); print('b')"), new_code_cell("1 + 1")]
    nbformat.write(new_notebook(cells=cells, metadata={"author": "x"}), path)
    run = run_script(path)
    assert run.returncode == 0, run.stderr
    found = nbformat.read(path, as_version=4)
    assert found.metadata == script["METADATA"]
    assert script["find_faults"](found) == []
    assert found.cells[1].outputs == [{"name": "stdout", "output_type": "stream", "text": "a\nb\n"}]
    assert found.cells[2].outputs[0]["data"] == {"text/plain": "2"}

    found.cells[2].source = "1 / 0"
    nbformat.write(found, path)
    before = path.read_bytes()
    run = run_script("--check", path)
    assert run.returncode == 1
    assert "small.ipynb: It does not run: " in run.stderr
    assert "ZeroDivisionError" in run.stderr
    assert path.read_bytes() == before
