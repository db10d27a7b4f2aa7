"""`Posterior`: labels and dims, gauge per draw, summary, provenance, and the way to the disk and back."""

import dataclasses
import json

import numpy as np
import pytest

from bayes_irt import posterior as posterior_module
from bayes_irt.errors import RunDirectoryError
from bayes_irt.inference.nuts import Sampler, fit_nuts
from bayes_irt.parameters import Parameters, logits
from bayes_irt.posterior import Posterior, posterior_from_draws
from bayes_irt.provenance import Provenance, package_versions

SAMPLER = Sampler(num_chains=2, num_warmup=100, num_draws=100)
LABELS = (("gpt-4o", "Qwen 2.5 (7B)", "модель", "01"), ("ß/π", "1", "item 3"))


def made_up_draws(seed=0, shape=(2, 5)):
    rng = np.random.default_rng(seed)
    return {
        "ability": 3.0 + 2.0 * rng.normal(size=(*shape, 4, 1)),
        "discrimination": rng.random((*shape, 3, 1)),
        "easiness": rng.normal(size=(*shape, 3)),
        "easiness_scale": rng.random(shape),
    }


def made_up(seed=0, stats=True):
    rng = np.random.default_rng(seed)
    sample_stats = {"energy": rng.normal(size=(2, 5)), "diverging": np.zeros((2, 5), bool)} if stats else {}
    provenance = Provenance("nuts", {"sampler": {"num_draws": 5}}, "9f0c", 7)
    return posterior_from_draws(made_up_draws(seed), sample_stats, LABELS, provenance)


def assert_gauged(ability):
    np.testing.assert_allclose(ability.mean("llm"), 0, atol=1e-9)
    np.testing.assert_allclose(ability.std("llm"), 1, atol=1e-9)


def test_dims_and_labels():
    posterior = made_up()
    assert posterior.ability.dims == ("chain", "draw", "llm")
    assert posterior.draws["discrimination"].dims == ("chain", "draw", "item")
    assert posterior.draws["easiness"].dims == ("chain", "draw", "item")
    assert posterior.draws["easiness_scale"].dims == ("chain", "draw")
    assert (posterior.llms, posterior.items) == LABELS
    assert posterior.num_draws == 10
    assert set(posterior.tree.children) == {"posterior", "sample_stats"}
    assert set(made_up(stats=False).tree.children) == {"posterior"}
    assert repr(posterior) == "Posterior: 4 LLMs x 3 items by nuts, 2 chains x 5 draws"


def test_the_gauge_is_applied_to_each_draw():
    draws, posterior = made_up_draws(), made_up()
    assert_gauged(posterior.ability)
    pooled = (draws["ability"] - draws["ability"].mean()) / draws["ability"].std()
    with pytest.raises(AssertionError):  # one gauge for all draws would not do
        assert_gauged(posterior.ability.copy(data=pooled[..., 0]))
    given = Parameters(draws["ability"], draws["discrimination"], draws["easiness"])
    held = Parameters(
        posterior.ability.to_numpy()[..., None],
        posterior.draws["discrimination"].to_numpy()[..., None],
        posterior.draws["easiness"].to_numpy(),
    )
    np.testing.assert_allclose(logits(held), logits(given), rtol=1e-4, atol=1e-5)
    np.testing.assert_array_equal(posterior.draws["easiness_scale"], draws["easiness_scale"])


def test_several_traits_keep_their_dim():
    rng = np.random.default_rng(0)
    draws = {
        "ability": rng.normal(size=(1, 3, 4, 2)),
        "discrimination": rng.random((1, 3, 3, 2)),
        "easiness": rng.normal(size=(1, 3, 3)),
    }
    posterior = posterior_from_draws(draws, {}, LABELS, Provenance("laplace", {}, "0"))
    assert posterior.ability.dims == ("chain", "draw", "llm", "trait")
    assert posterior.draws["discrimination"].dims == ("chain", "draw", "item", "trait")
    assert_gauged(posterior.ability)


def test_what_is_loaded_equals_what_was_saved(tmp_path):
    posterior = made_up()
    posterior.save(tmp_path / "runs" / "one")
    loaded = Posterior.load(tmp_path / "runs" / "one")
    assert loaded == posterior
    assert (loaded.llms, loaded.items) == LABELS
    assert loaded.provenance == posterior.provenance
    assert [path.name for path in (tmp_path / "runs").iterdir()] == ["one"]
    files = sorted(path.name for path in (tmp_path / "runs/one").iterdir())
    assert files == ["posterior.json", "posterior.nc"]
    assert loaded.save(tmp_path / "again") is None
    assert Posterior.load(tmp_path / "again") == posterior


def test_every_field_counts_in_a_comparison():
    posterior = made_up()
    assert posterior == made_up()
    assert posterior != made_up(seed=1)
    assert posterior != made_up(stats=False)
    assert posterior != dataclasses.replace(posterior, provenance=Provenance("nuts", {}, "9f0c"))
    assert posterior != "a posterior"


def test_an_existing_directory_is_refused_and_left_alone(tmp_path):
    made_up().save(tmp_path / "run")
    with pytest.raises(RunDirectoryError, match="exists already"):
        made_up(seed=1).save(tmp_path / "run")
    assert Posterior.load(tmp_path / "run") == made_up()
    made_up(seed=1).save(tmp_path / "run", force=True)
    assert Posterior.load(tmp_path / "run") == made_up(seed=1)


def test_a_save_that_fails_leaves_nothing(tmp_path, monkeypatch):
    def fail(*_):
        raise OSError("disk full")

    monkeypatch.setattr(posterior_module, "write_json", fail)
    with pytest.raises(OSError, match="disk full"):
        made_up().save(tmp_path / "run")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("damage", ["no directory", "no draws", "bad draws", "no provenance", "bad json"])
def test_what_is_no_posterior_is_refused(damage, tmp_path):
    run = tmp_path / "run"
    made_up().save(run)
    if damage == "no directory":
        run = tmp_path / "absent"
    elif damage == "no draws":
        (run / "posterior.nc").unlink()
    elif damage == "bad draws":
        (run / "posterior.nc").write_bytes(b"not netCDF" * 100)
    else:
        (run / "posterior.json").write_text("{}" if damage == "no provenance" else "{")
    with pytest.raises(RunDirectoryError, match=run.name):
        Posterior.load(run)


def test_the_summary_has_intervals(small_fit):
    posterior = small_fit[2]
    table = posterior.summary(["ability", "easiness_scale"], prob=0.8)
    assert len(table) == 7
    assert {"mean", "sd", "r_hat", "ess_bulk", "ess_tail"} <= set(table.columns)
    lower, upper = (next(name for name in table.columns if name.endswith(end)) for end in ("_lb", "_ub"))
    assert "80" in lower
    draws = posterior.ability.stack(sample=("chain", "draw")).to_numpy()
    wanted = np.quantile(draws, [0.1, 0.9], axis=1)
    np.testing.assert_allclose(table[[lower, upper]].to_numpy()[:6].T, wanted, atol=0.02)
    assert list(posterior.summary(["ability"], kind="stats").index[:1]) == ["ability[llm-001]"]


def test_a_fit_says_what_made_it(small_fit):
    responses, _, posterior = small_fit
    provenance = posterior.provenance
    assert (provenance.method, provenance.seed) == ("nuts", 0)
    assert provenance.data_digest == responses.digest
    assert provenance.versions == package_versions()
    assert provenance.configuration["sampler"]["num_warmup"] == 100
    assert provenance.configuration["spec"]["priors"]["discrimination"]["type"] == "HalfNormal"
    assert json.loads(json.dumps(dataclasses.asdict(provenance))) == dataclasses.asdict(provenance)


def test_a_fit_is_gauged_labelled_and_survives_the_disk(small_fit, tmp_path):
    responses, _, posterior = small_fit
    assert_gauged(posterior.ability)
    assert posterior.ability.dtype == np.float64
    assert (posterior.llms, posterior.items) == (responses.llms, responses.items)
    assert (posterior.draws["discrimination"] >= 0).all()
    sites = {"ability", "discrimination", "easiness"}
    assert set(posterior.draws) == sites | {"discrimination_scale", "easiness_location", "easiness_scale"}
    stats = set(posterior.tree["sample_stats"].data_vars)
    assert {"diverging", "energy", "tree_depth", "lp", "n_steps", "acceptance_rate", "step_size"} == stats
    posterior.save(tmp_path / "run")
    assert Posterior.load(tmp_path / "run") == posterior


def test_the_seed_decides_the_draws(small_fit):
    responses, estimate, posterior = small_fit
    assert fit_nuts(responses, estimate=estimate, sampler=SAMPLER, seed=0) == posterior
    other = fit_nuts(responses, estimate=estimate, sampler=SAMPLER, seed=1)
    assert abs(other.ability - posterior.ability).min() > 0
    assert other.provenance.seed == 1


def test_chains_differ(small_fit):
    ability = small_fit[2].ability
    assert abs(ability[0] - ability[1]).min() > 0
