"""`PointEstimate` on disk: equal after loading, whole or not at all; and provenance as plain data."""

import dataclasses
import json

import numpy as np
import pytest

from bayes_irt import estimate as estimate_module
from bayes_irt.errors import RunDirectoryError
from bayes_irt.estimate import PointEstimate, Status, Timing, estimate_dataset
from bayes_irt.identify import canonicalize
from bayes_irt.parameters import Parameters
from bayes_irt.priors import LearnedScale, Priors
from bayes_irt.provenance import Provenance, new_directory, package_versions, plain, read_json, require_free

LABELS = (("gpt-4o", "Qwen 2.5 (7B)", "модель"), ("01", "1", "ß/π", "item 4"))


def made_up(num_traits=1, cycles=5, seed=0):
    rng = np.random.default_rng(seed)
    raw = Parameters(rng.normal(size=(3, num_traits)), rng.random((4, num_traits)), rng.normal(size=4))
    separated = (np.array([False, True, False]), np.array([True, False, False, True]))
    return PointEstimate(
        dataset=estimate_dataset(canonicalize(raw), raw, -rng.random(cycles).cumsum(), LABELS, separated),
        status=Status.CYCLE_LIMIT,
        change=0.1 + 0.2,
        kkt_residual=1 / 3,
        num_passes=17,
        timing=Timing(1 / 7, 2 / 7),
        provenance=Provenance("cbmm", plain({"priors": Priors(), "shape": (1, 2)}), "9f0c"),
    )


@pytest.mark.parametrize(("num_traits", "cycles"), [(1, 5), (2, 5), (1, 0)])
def test_what_is_loaded_equals_what_was_saved(num_traits, cycles, tmp_path):
    estimate = made_up(num_traits, cycles)
    estimate.save(tmp_path / "runs" / "one")
    loaded = PointEstimate.load(tmp_path / "runs" / "one")
    assert loaded == estimate
    assert loaded.timing == estimate.timing
    assert loaded.status is Status.CYCLE_LIMIT
    assert (loaded.llms, loaded.items) == LABELS
    assert loaded.separated_items == ("01", "item 4")
    assert loaded.separated_llms == ("Qwen 2.5 (7B)",)
    assert loaded.parameters.ability.shape == (3, num_traits)
    np.testing.assert_array_equal(
        loaded.raw_parameters.discrimination, estimate.raw_parameters.discrimination
    )
    np.testing.assert_array_equal(loaded.loss_trace, estimate.loss_trace)
    assert loaded.loss_trace.dtype == np.float64
    assert sorted(path.name for path in (tmp_path / "runs").iterdir()) == ["one"]
    assert sorted(path.name for path in (tmp_path / "runs/one").iterdir()) == [
        "estimate.json",
        "estimate.nc",
    ]


def test_an_infinite_change_survives(tmp_path):
    """Without a cycle there is no change yet."""
    estimate = dataclasses.replace(made_up(cycles=0), change=float("inf"))
    estimate.save(tmp_path / "run")
    assert PointEstimate.load(tmp_path / "run") == estimate


@pytest.mark.parametrize(
    "change",
    [
        {"status": Status.CONVERGED},
        {"change": 0.3},
        {"kkt_residual": 0.3},
        {"provenance": Provenance("cbmm", {}, "9f0c")},
        {"dataset": made_up(seed=1).dataset},
    ],
)
def test_every_field_counts_in_a_comparison(change):
    assert dataclasses.replace(made_up(), **change) != made_up()
    assert made_up() == made_up()
    assert made_up() != "an estimate"


def test_an_existing_directory_is_refused_and_left_alone(tmp_path):
    made_up().save(tmp_path / "run")
    with pytest.raises(RunDirectoryError, match=r"run.*exists already.*force"):
        made_up(seed=1).save(tmp_path / "run")
    assert PointEstimate.load(tmp_path / "run") == made_up()


def test_force_replaces_a_result(tmp_path):
    made_up().save(tmp_path / "run")
    made_up(seed=1).save(tmp_path / "run", force=True)
    assert PointEstimate.load(tmp_path / "run") == made_up(seed=1)
    (tmp_path / "run" / "my notes.txt").touch()
    with pytest.raises(RunDirectoryError, match="holds other files"):
        made_up(seed=2).save(tmp_path / "run", force=True)
    assert PointEstimate.load(tmp_path / "run") == made_up(seed=1)
    assert (tmp_path / "run" / "my notes.txt").exists()


def test_force_spares_projects_with_json_files(tmp_path):
    (tmp_path / "project").mkdir()
    (tmp_path / "project" / "package.json").write_text("{}")
    with pytest.raises(RunDirectoryError, match="not a result directory"):
        made_up().save(tmp_path / "project", force=True)
    assert (tmp_path / "project" / "package.json").exists()


def test_force_replaces_nothing_that_is_no_result(tmp_path):
    folder = tmp_path / "thesis"
    folder.mkdir()
    (folder / "chapter.tex").write_text("years of work")
    file = tmp_path / "notes"
    file.write_text("more work")
    for path in (folder, file):
        with pytest.raises(RunDirectoryError, match="not a result directory"):
            made_up().save(path, force=True)
    assert (folder / "chapter.tex").read_text() == "years of work"
    assert file.read_text() == "more work"
    (tmp_path / "empty").mkdir()
    require_free(tmp_path / "empty", force=True)
    require_free(tmp_path / "absent")


@pytest.mark.parametrize("force", [False, True])
def test_a_failing_write_leaves_what_was_there(force, tmp_path, monkeypatch):
    if force:
        made_up().save(tmp_path / "run")

    def fail(path, content):
        assert path.parent.joinpath("estimate.nc").exists()
        raise OSError("disk full")

    monkeypatch.setattr(estimate_module, "write_json", fail)
    with pytest.raises(OSError, match="disk full"):
        made_up(seed=1).save(tmp_path / "run", force=force)
    assert [path.name for path in tmp_path.iterdir()] == (["run"] if force else [])
    if force:
        assert PointEstimate.load(tmp_path / "run") == made_up()


def test_a_directory_appears_only_when_it_is_whole(tmp_path):
    with new_directory(tmp_path / "run") as folder:
        (folder / "a.txt").write_text("x")
        assert not (tmp_path / "run").exists()
        assert folder.parent == tmp_path
    assert (tmp_path / "run" / "a.txt").read_text() == "x"


def spoil_status(content):
    content["status"] = "splendid"


def spoil_provenance(content):
    content["provenance"]["mood"] = "good"


@pytest.mark.parametrize("spoil", [spoil_status, spoil_provenance, lambda content: content.pop("change")])
def test_spoilt_descriptions_are_named(spoil, tmp_path):
    made_up().save(tmp_path / "run")
    file = tmp_path / "run" / "estimate.json"
    content = json.loads(file.read_text(encoding="utf-8"))
    spoil(content)
    file.write_text(json.dumps(content))
    with pytest.raises(RunDirectoryError, match=r"run.*holds no point estimate"):
        PointEstimate.load(tmp_path / "run")


def test_what_is_no_estimate_is_named(tmp_path):
    with pytest.raises(RunDirectoryError, match=r"absent.*result directory"):
        PointEstimate.load(tmp_path / "absent")
    for text in ("{", "[]"):
        (tmp_path / "estimate.json").write_text(text)
        with pytest.raises(RunDirectoryError, match=r"estimate\.json"):
            read_json(tmp_path / "estimate.json")
    made_up().save(tmp_path / "run")
    (tmp_path / "run" / "estimate.nc").write_bytes(b"not netCDF")
    with pytest.raises(RunDirectoryError, match="holds no point estimate"):
        PointEstimate.load(tmp_path / "run")


def test_figures_and_advice():
    estimate = made_up()
    assert estimate.num_cycles == 5
    assert estimate.loss == estimate.loss_trace[-1]
    assert np.isnan(made_up(cycles=0).loss)
    assert "3 LLMs x 4 items by cbmm, cycle limit after 5 cycles" in repr(estimate)
    assert "penalty" in Status.CYCLE_LIMIT.advice
    assert Status.CONVERGED.advice
    with pytest.raises(dataclasses.FrozenInstanceError):
        estimate.change = 0.0


def test_plain_is_what_json_gives_back():
    configuration = plain(
        {
            "scale": LearnedScale(),
            "nested": {1: (2, [None, True])},
            "from numpy": (np.float32(0.5), np.int64(3), np.bool_(True)),
        }
    )
    assert json.loads(json.dumps(configuration)) == configuration
    assert configuration["scale"] == {"type": "LearnedScale", "median": 1.5, "log_sd": 1.0}
    assert configuration["nested"] == {"1": [2, [None, True]]}
    assert configuration["from numpy"] == [0.5, 3, True]


def test_versions_name_the_packages_that_decide():
    versions = package_versions()
    assert {"bayes_irt", "jax", "numpyro", "numpy"} <= set(versions)
    assert Provenance("cbmm", {}, "0").versions == versions
