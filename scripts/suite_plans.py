"""What `fit_suites.py` is to fit: the suites of a folder or of a TOML file, every option checked before any is read."""

from __future__ import annotations

import dataclasses
import difflib
import tomllib
from collections.abc import Mapping
from enum import StrEnum
from pathlib import Path
from typing import Any

from bayes_irt.arguments import require_probability, require_whole
from bayes_irt.cli_options import (
    Algorithm,
    ChainMethod,
    Discrimination,
    GuideName,
    Method,
    Model,
    ObservationName,
)
from bayes_irt.cli_plans import METHODS_OF, plan_of, score_rule, solver_of, spec_of
from bayes_irt.datasets import describe, load
from bayes_irt.errors import InvalidConfigurationError, some
from bayes_irt.fitting import FitPlan
from bayes_irt.readers import read_responses
from bayes_irt.readers.table import COMPANIONS
from bayes_irt.readers.table_files import ENDINGS
from bayes_irt.responses import Responses
from bayes_irt.table_columns import TableColumns

ENUMS: dict[str, type[StrEnum]] = {
    "method": Method,
    "discrimination": Discrimination,
    "model": Model,
    "observation": ObservationName,
    "algorithm": Algorithm,
    "chain_method": ChainMethod,
    "guide": GuideName,
}
LEAST = {
    "seed": 0,
    "draws": 4,
    "starts": 1,
    "chains": 2,
    "warmup": 20,
    "thinning": 1,
    "batch_size": 4,
    "parts": 2,
}
TEXTS = ("path", "dataset", "items", "llms", "group", "floor", "item_group")
SWITCHES = ("drop_empty", "penalty")
READING = ("columns", "items", "llms", "drop_empty", "threshold", "parts")
OPTIONS = (*TEXTS, *SWITCHES, *ENUMS, *LEAST, "target_accept", "columns", "threshold")
SAMPLER = {
    "chains": "num_chains",
    "warmup": "num_warmup",
    "target_accept": "target_accept",
    "thinning": "thinning",
    "chain_method": "chain_method",
}


@dataclasses.dataclass(frozen=True)
class SuitePlan:
    """State one suite: its name, where it is read from, and what is fitted.

    Parameters
    ----------
    name
        Name of its run directory.
    source
        A public suite by name where `path` is None; else the file.
    path
        The file.
    fit
        What is fitted.
    columns, items, llms, drop_empty
        How the file is read, as `read_responses` takes it.
    """

    name: str
    source: str
    path: Path | None
    fit: FitPlan
    columns: TableColumns = dataclasses.field(default_factory=TableColumns)
    items: Path | None = None
    llms: Path | None = None
    drop_empty: bool = False

    def read(self) -> Responses:
        """Return the responses."""
        if self.path is None:
            return load(self.source)
        return read_responses(
            self.path,
            columns=self.columns,
            items_path=self.items,
            llms_path=self.llms,
            drop_empty=self.drop_empty,
        )


def plans_of_folder(folder: Path, options: Mapping[str, Any]) -> list[SuitePlan]:
    """Return a plan for every table of a folder, companions with metadata left out, all with the same options."""
    _check("The command line", options, ("method", "discrimination", "seed"))
    files = {path: _stem(path) for path in sorted(folder.iterdir()) if path.is_file() and _stem(path)}
    stems, words = set(files.values()), [word for known in COMPANIONS.values() for word in known]
    companions = {f"{stem}_{word}" for stem in stems for word in words}
    suites = {path: stem for path, stem in files.items() if stem not in companions}
    if not suites:
        raise InvalidConfigurationError(
            f"{folder} holds no table of responses. Their names end in {', '.join(ENDINGS)}."
        )
    names = list(suites.values())
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise InvalidConfigurationError(
            f"Several files of {folder} are called {some(twice)} but for their ending, and their runs would be too. "
            "Remove one of them, or name the suites in a TOML file."
        )
    return [_suite_plan(name, {**options, "path": str(path)}, Path()) for path, name in suites.items()]


def plans_of_file(path: Path) -> list[SuitePlan]:
    """Return the plans that a TOML file states: a table [suites.NAME] each, on top of [defaults]."""
    try:
        content = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise InvalidConfigurationError(
            f"{path} cannot be read as TOML ({error}). Give a folder of tables, or a file with [suites.NAME] tables."
        ) from error
    _refuse_unknown(str(path), content, ("defaults", "suites"))
    defaults, suites = (_table(f"{key} of {path}", content.get(key, {})) for key in ("defaults", "suites"))
    if not suites:
        raise InvalidConfigurationError(
            f"{path} names no suite. Add a table [suites.NAME] with path or dataset."
        )
    _check(f"[defaults] of {path}", defaults, tuple(name for name in OPTIONS if name not in TEXTS[:4]))
    plans = []
    for name, entry in suites.items():
        where = f"[suites.{name}] of {path}"
        own = _table(where, entry)
        _check(where, own, OPTIONS)
        method = Method(own.get("method", defaults.get("method", Method.LAPLACE)))
        inherited = {option: value for option, value in defaults.items() if _has(method, option, value)}
        if "dataset" in own:
            inherited = {option: value for option, value in inherited.items() if option not in READING}
        try:
            plans.append(_suite_plan(name, inherited | own, path.parent))
        except InvalidConfigurationError as error:
            raise InvalidConfigurationError(f"{where}: {error}") from error
    _refuse_idle_defaults(path, defaults, plans)
    return plans


def _stem(path: Path) -> str:
    """Return a table's name without ending; empty for hidden files and what is no table."""
    name = path.name.lower()
    ending = next((known for known in ENDINGS if name.endswith(known)), "")
    return "" if not ending or name.startswith(".") else path.name[: -len(ending)]


def _suite_plan(name: str, options: Mapping[str, Any], folder: Path) -> SuitePlan:
    """Return the plan of one suite; its options have the right types."""
    if name in ("", "summary.csv", "summary.md") or name.startswith(".") or Path(name).name != name:
        raise InvalidConfigurationError(
            f"The suite's name {name!r} cannot be that of a directory. Choose another."
        )
    if ("path" in options) == ("dataset" in options):
        raise InvalidConfigurationError("A suite has either a path, or the dataset's name.")
    method = Method(options.get("method", Method.LAPLACE))
    for option, value in options.items():
        if not _has(method, option, value):
            named = " or ".join(METHODS_OF[_flag(option)])
            raise InvalidConfigurationError(
                f"{option} is for method {named}; with {method} it would do nothing."
            )
    if "dataset" in options:
        idle = [option for option in READING if option in options]
        if idle:
            raise InvalidConfigurationError(f"{some(idle)} say how a file is read; a dataset has none.")
        return SuitePlan(name, describe(options["dataset"]).name, None, _fit_plan(method, options))
    path, items, llms = (
        folder / options[key] if key in options else None for key in ("path", "items", "llms")
    )
    return SuitePlan(
        name,
        str(path),
        path,
        _fit_plan(method, options),
        columns=dataclasses.replace(
            _columns(options.get("columns", {})),
            scores=score_rule(options.get("threshold"), options.get("parts")),
        ),
        items=items,
        llms=llms,
        drop_empty=options.get("drop_empty", False),
    )


def _fit_plan(method: Method, options: Mapping[str, Any]) -> FitPlan:
    """Return what is fitted, exactly as `bayes-irt fit` plans it with the same options."""
    seed, algorithm = options.get("seed", 0), options.get("algorithm")
    solver = solver_of(
        penalise=options.get("penalty", True),
        algorithm=None if algorithm is None else Algorithm(algorithm),
        starts=options.get("starts", 1),
        seed=seed,
    )
    chosen: dict[str, Any] = {
        name: ENUMS[name](options[name])
        for name in ("model", "discrimination", "observation")
        if name in options
    }
    spec = spec_of(
        **chosen,
        floor=options.get("floor"),
        llm_groups=options.get("group"),
        item_groups=options.get("item_group"),
    )
    engine = {field: options.get(option) for option, field in SAMPLER.items()}
    if method is Method.SVI:
        engine = {option: options.get(option) for option in ("guide", "batch_size")}
    return plan_of(
        method,
        seed,
        spec=spec,
        draws=options.get("draws"),
        solver=solver,
        engine=engine,
    )


def _columns(given: Mapping[str, Any]) -> TableColumns:
    named: dict[str, Any] = {
        role: tuple(name) if isinstance(name, list) else name for role, name in given.items()
    }
    return TableColumns(**named)


def _flag(option: str) -> str:
    return "--no-penalty" if option == "penalty" else f"--{option.replace('_', '-')}"


def _has(method: Method, option: str, value: object) -> bool:
    """Say whether a method has an option; a penalty asked for is what all have."""
    if option == "penalty" and value is True:
        return True
    return method in METHODS_OF.get(_flag(option), tuple(Method))


def _refuse_idle_defaults(path: Path, defaults: Mapping[str, Any], plans: list[SuitePlan]) -> None:
    methods = {Method(plan.fit.method) for plan in plans}
    idle = [name for name, value in defaults.items() if not any(_has(m, name, value) for m in methods)]
    if idle:
        raise InvalidConfigurationError(
            f"[defaults] of {path}: {some(idle)} would do nothing, as no suite has a method with it."
        )


def _table(where: str, value: object) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise InvalidConfigurationError(f"{where} is {value!r}; it must be a table.")
    return value


def _refuse_unknown(where: str, found: Mapping[str, Any], known: tuple[str, ...]) -> None:
    for name in found:
        if name not in known:
            close = difflib.get_close_matches(name, known, 2)
            hint = f"did you mean {some(close)}?" if close else f"it may have {some(known, len(known))}."
            raise InvalidConfigurationError(f"{where} has the unknown key {name!r}; {hint}")


def _check(where: str, options: Mapping[str, Any], known: tuple[str, ...]) -> None:
    """Refuse keys that do not exist and values of the wrong kind."""
    _refuse_unknown(where, options, known)
    for name, value in options.items():
        try:
            _check_value(name, value)
        except InvalidConfigurationError as error:
            raise InvalidConfigurationError(f"{where}: {error}") from error


def _check_value(name: str, value: Any) -> None:
    if name in ENUMS:
        choices = [str(choice) for choice in ENUMS[name]]
        if value not in choices:
            raise InvalidConfigurationError(
                f"{name} is {value!r}; it must be one of {some(choices, len(choices))}."
            )
    elif name in LEAST:
        require_whole(name, value, LEAST[name])
    elif name == "target_accept":
        require_probability(name, value)
    elif name == "threshold":
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise InvalidConfigurationError(f"threshold is {value!r}; it must be a number.")
    elif name == "columns":
        _check_columns(_table(name, value))
    elif not isinstance(value, str if name in TEXTS else bool) or value == "":
        kind = "text" if name in TEXTS else "true or false"
        raise InvalidConfigurationError(f"{name} is {value!r}; it must be {kind}.")


def _check_columns(columns: Mapping[str, Any]) -> None:
    roles = [field.name for field in dataclasses.fields(TableColumns) if field.name != "scores"]
    _refuse_unknown("columns", columns, tuple(roles))
    for role, name in columns.items():
        several = role in ("llm_columns", "ignore")
        fine = (
            isinstance(name, list) and all(isinstance(n, str) for n in name)
            if several
            else isinstance(name, str)
        )
        if not fine or (role == "layout" and name not in ("long", "wide")):
            wanted = "'long' or 'wide'" if role == "layout" else "a list of names" if several else "a name"
            raise InvalidConfigurationError(f"columns.{role} is {name!r}; it must be {wanted}.")
