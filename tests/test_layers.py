"""The package's outline: import order, what an import loads, exports, and who may print or set JAX flags."""

import ast
import inspect
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import bayes_irt

ROOT = Path(bayes_irt.__file__).parent

# A file imports only from files above it.
ORDER = (
    "errors",
    "files",
    "arguments",
    "checks",
    "formatting",
    "metadata",
    "provenance",
    "counts",
    "scores",
    "table_columns",
    "tables",
    "merging",
    "response_files",
    "parameters",
    "priors",
    "model_spec",
    "llm_groups",
    "prior_densities",
    "responses",
    "correlations",
    "item_law",
    "united_suites",
    "identify",
    "trait_matching",
    "trait_loads",
    "cell_lists",
    "cell_laws",
    "data_checks",
    "readers.table_files",
    "readers.table",
    "readers",
    "simulate",
    "suites",
    "datasets",
    "prior_simulation",
    "rank_scores",
    "cell_functions",
    "beta_binomial",
    "likelihood",
    "mixing",
    "nnls",
    "estimate",
    "estimate_checks",
    "compilation",
    "blocks",
    "solvers",
    "newton",
    "paper_cycle",
    "cbmm",
    "models",
    "posterior",
    "inference",
    "inference.engine",
    "inference.item_coordinates",
    "inference.outer_terms",
    "inference.place",
    "inference.shared",
    "inference.mode",
    "inference.arrow",
    "inference.trait_place",
    "inference.trait_items",
    "inference.trait_mode",
    "inference.trait_arrow",
    "inference.ability_coordinates",
    "approximation_checks",
    "inference.centre",
    "inference.laplace",
    "inference.guide_coordinates",
    "inference.svi_record",
    "inference.related",
    "inference.start",
    "inference.trait_start",
    "inference.further",
    "inference.directions",
    "inference.density",
    "inference.named_sites",
    "inference.white_guide",
    "inference.svi",
    "inference.nuts",
    "diagnostics",
    "replication",
    "predictive",
    "held_out",
    "row_likelihood",
    "left_out",
    "model_comparison",
    "baselines",
    "analysis",
    "analysis.ranks",
    "analysis.reliability",
    "analysis.traits",
    "analysis.exploration",
    "analysis.accuracy",
    "analysis.paired_test",
    "analysis.pair",
    "analysis.leaderboard",
    "analysis.ranking",
    "analysis.agreement",
    "analysis.moves",
    "analysis.movers",
    "analysis.comparison",
    "analysis.explained",
    "analysis.heterogeneity",
    "analysis.pairs",
    "analysis.row_agreement",
    "analysis.structure",
    "analysis.item_dependence",
    "analysis.items",
    "planning",
    "calibration",
    "coverage",
    "pair_calibration",
    "runs",
    "fitting",
    "plot_parts",
    "plot_labels",
    "plots",
    "comparison_plots",
    "ranking_plots",
    "trait_plots",
    "predictive_plots",
    "prior_plots",
    "sensitivity",
    "relations",
    "report_sections",
    "trait_sections",
    "report",
    "cli_options",
    "cli_plans",
    "cli_output",
    "cli_questions",
    "cli",
)
HEAVY = ("jax", "numpyro", "arviz", "matplotlib", "pandas", "numpy")


def module_name(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


FILES = {module_name(path): path for path in sorted(ROOT.rglob("*.py"))}
FILES.pop("")  # the package's own __init__ names everything, lazily


def imported_modules(source: str) -> Iterator[str]:
    """Yield the modules of the package that a file imports, those in functions and TYPE_CHECKING blocks included.

    A type in a signature is a dependency too: a file that names a later file's class cannot be understood first.
    """
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            names = ["." * node.level + (node.module or "")]
        else:
            continue
        for name in names:
            if name.startswith((".", "bayes_irt")):
                yield name


def out_of_order(module: str, source: str) -> list[str]:
    """Return the imports of a file that do not come from above it; relative and package-wide ones count."""
    above = {f"bayes_irt.{name}" for name in ORDER[: ORDER.index(module)]}
    return [name for name in imported_modules(source) if name not in above]


def test_every_file_has_its_place():
    assert len(set(ORDER)) == len(ORDER)
    assert set(ORDER) == set(FILES)


@pytest.mark.parametrize("module", ORDER)
def test_a_file_imports_only_from_files_above_it(module):
    assert out_of_order(module, FILES[module].read_text(encoding="utf-8")) == []


@pytest.mark.parametrize(
    "line",
    [
        "from bayes_irt.cli import app",
        "import bayes_irt.plots",
        "from . import errors",
        "from bayes_irt import Responses",
        "def f():\n    from bayes_irt.runs import Run",
        "if TYPE_CHECKING:\n    from bayes_irt.runs import Run",
    ],
)
def test_an_import_from_below_is_noticed(line):
    assert out_of_order("posterior", f"from bayes_irt.errors import some\n{line}\n") != []


def calls(tree: ast.Module) -> set[str]:
    return {ast.unparse(node.func) for node in ast.walk(tree) if isinstance(node, ast.Call)}


@pytest.mark.parametrize("module", [*ORDER, ""])
def test_only_the_command_line_prints_and_sets_flags(module):
    path = FILES.get(module, ROOT / "__init__.py")
    source = path.read_text(encoding="utf-8")
    found = calls(ast.parse(source)) & {"print", "jax.config.update", "sys.exit"}
    found |= {flag for flag in ("XLA_FLAGS", "jax.config.update", "os.environ[") if flag in source}
    if module == "cli":
        assert {"sys.exit", "XLA_FLAGS"} <= found
    elif module == "cli_output":
        assert found == {"print"}
    else:
        assert found == set()


def in_fresh_process(program: str) -> str:
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=300)
    assert run.returncode == 0, run.stderr
    return run.stdout


def test_importing_loads_nothing_heavy():
    program = f"import sys, bayes_irt.cli\nprint([name for name in {HEAVY!r} if name in sys.modules])"
    assert in_fresh_process(program).strip() == "[]"
    assert in_fresh_process(program.replace("cli", "posterior")).strip() != "[]"


TRACE = """
import jax, numpy, numpyro
from bayes_irt.likelihood import tile_cells
from bayes_irt.model_spec import ModelSpec
from bayes_irt.models import response_model
from bayes_irt.priors import LogNormal, Priors
from numpyro.infer.util import initialize_model
counts = numpy.eye(3, 4, dtype=numpy.uint8)
for priors in (Priors(), Priors(discrimination=LogNormal())):
    arguments = (ModelSpec(priors), 3, 4, tile_cells(counts, numpy.ones_like(counts)))
    initialize_model(jax.random.key(0), response_model, model_args=arguments)
print("fine")
"""


@pytest.mark.parametrize(
    "touched",
    [
        "import bayes_irt; bayes_irt.check_posterior; bayes_irt.fit_nuts; import numpyro; numpyro.infer.util",
        "import arviz, bayes_irt; bayes_irt.check_posterior; bayes_irt.fit_nuts",
    ],
)
def test_the_model_works_although_arviz_is_loaded_first(touched):
    """ArviZ 1.3 loads NumPyro lazily, which leaves it incomplete if one of its submodules is imported next."""
    assert in_fresh_process(touched + TRACE).strip() == "fine"


def test_exports_agree():
    assert bayes_irt.__all__ == sorted(bayes_irt.__all__)
    homes = [name for names in bayes_irt._HOME.values() for name in names]
    assert sorted(homes) == bayes_irt.__all__ == dir(bayes_irt)
    source = (ROOT / "__init__.py").read_text(encoding="utf-8")
    typed = {
        (node.module, alias.name)
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
        if (node.module or "").startswith("bayes_irt.")
    }
    assert typed == {(f"bayes_irt.{home}", name) for home, names in bayes_irt._HOME.items() for name in names}


def test_no_export_is_hidden_by_a_file():
    """Importing ``bayes_irt.x`` makes ``x`` an attribute of the package: a function of that name would be gone."""
    assert not set(bayes_irt.__all__) & set(ORDER)


@pytest.mark.parametrize("name", bayes_irt.__all__)
def test_an_export_resolves_and_shows_how_it_is_used(name):
    exported = getattr(bayes_irt, name)
    assert exported.__name__ == name
    documented = inspect.getdoc(exported) or ""
    assert "Examples\n--------\n>>> " in documented


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="has no attribute 'fit_magic'"):
        bayes_irt.fit_magic  # noqa: B018
    assert not hasattr(bayes_irt, "np")
