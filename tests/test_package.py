"""The package as a whole: its names, the order of its folders, its command line, its build."""

import ast
import os
import re
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest

import neuralcde
from neuralcde.cli import main
from neuralcde.tasks import Task

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "neuralcde"
COMMAND = str(Path(sys.executable).parent / "neuralcde")

# in the order of the data flow: a folder imports only from folders before it
FOLDERS = [
    "_native",
    "contracts",
    "system",
    "figures",
    "datasets",
    "series",
    "paths",
    "fields",
    "engine",
    "solve",
    "models",
    "tasks",
    "train",
    "explanations",
    "estimators",
    "report",
    "serve",
    "cli",
]


def run(*command: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, capture_output=True, text=True, timeout=120, env={**os.environ, **environment})


def test_contributing_names_every_folder():
    table = (ROOT / "CONTRIBUTING.md").read_text().split("## How we write")[0]
    assert [line.split("`")[1] for line in table.splitlines() if line.startswith("| `")] == FOLDERS


def test_public_names_are_complete():
    assert neuralcde.__all__ == [
        "IrregularSeries",
        "SeriesScaler",
        "ControlPath",
        "natural_cubic",
        "hermite",
        "linear",
        "rectilinear",
        "smoothing",
        "PathScheme",
        "NaturalCubic",
        "Hermite",
        "Linear",
        "Rectilinear",
        "Smoothing",
        "PathDataset",
        "VectorField",
        "MLPField",
        "LowRankField",
        "as_cde",
        "solve_cde",
        "AtKnots",
        "FixedSteps",
        "Adaptive",
        "Checkpoint",
        "Backprop",
        "Backsolve",
        "Reversible",
        "Tableau",
        "Solution",
        "SolveError",
        "Status",
        "signature",
        "logsignature",
        "logsignature_windows",
        "channel_contributions",
        "NeuralCDE",
        "GRUODE",
        "GRUDeltaT",
        "GRUD",
        "ODERNN",
        "RowMLP",
        "SummaryReadout",
        "PiecewiseLinearEncoding",
        "NeuralCDEClassifier",
        "NeuralCDERegressor",
        "load",
        "check_data",
    ]
    for name in neuralcde.__all__:
        assert getattr(neuralcde, name).__doc__, name
        assert name in dir(neuralcde)
    with pytest.raises(AttributeError, match="no attribute 'NeuralCDF'"):
        neuralcde.NeuralCDF  # noqa: B018


def test_the_version_is_the_same_everywhere():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert project["version"] == neuralcde.__version__
    assert f"version: {neuralcde.__version__}" in (ROOT / "CITATION.cff").read_text()
    assert neuralcde.__version__ in (ROOT / "CHANGELOG.md").read_text()


def imported_folders(file: Path) -> set[str]:
    """The top-level folders of neuralcde that a file imports from."""
    package = ("neuralcde", *file.relative_to(SOURCE).parts[:-1])
    found = set()
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else ()
            parts = (*base, *(node.module.split(".") if node.module else ()))
            names = [parts] if len(parts) > 1 else [(*parts, alias.name) for alias in node.names]
        elif isinstance(node, ast.Import):
            names = [tuple(alias.name.split(".")) for alias in node.names]
        else:
            continue
        found |= {parts[1] for parts in names if parts[0] == "neuralcde" and len(parts) > 1}
    return found & set(FOLDERS)


def test_a_folder_imports_only_folders_before_it():
    files = [file for file in SOURCE.rglob("*.py") if file.parent != SOURCE]
    assert {file.relative_to(SOURCE).parts[0] for file in files} <= set(FOLDERS)
    for file in files:
        own = file.relative_to(SOURCE).parts[0]
        allowed = set(FOLDERS[: FOLDERS.index(own) + 1])
        assert imported_folders(file) <= allowed, file
        if own not in ("_native", "series", "paths", "engine"):
            assert "_native" not in imported_folders(file), file


def private_attributes(file: Path) -> list[str]:
    """Private attributes of other objects that a file uses, such as `estimator._outputs`."""
    own = {"self", "cls", "os"}  # os._exit is public despite its name
    public = {"_replace", "_asdict", "_fields"}  # of named tuples
    return [
        f"{file.name}:{node.lineno} {ast.unparse(node)}"
        for node in ast.walk(ast.parse(file.read_text()))
        if isinstance(node, ast.Attribute)
        and node.attr.startswith("_")
        and not node.attr.startswith("__")
        and node.attr not in public
        and not (isinstance(node.value, ast.Name) and node.value.id in own)
    ]


def test_private_methods_of_estimators_are_not_called_elsewhere(tmp_path):
    files = [file for folder in ("src/neuralcde/report", "src/neuralcde/cli") for file in (ROOT / folder).glob("*.py")]
    files += [file for folder in ("experiments", "benchmarks", "examples") for file in (ROOT / folder).rglob("*.py")]
    assert len(files) > 50
    assert not [found for file in files for found in private_attributes(file)]
    (tmp_path / "wrong.py").write_text("x = run.estimator._outputs(series)\nself._x = os._exit\n")
    assert private_attributes(tmp_path / "wrong.py") == ["wrong.py:1 run.estimator._outputs"]


def lines_with(pattern: str) -> dict[str, list[str]]:
    """Lines of the Python and C++ sources that match a pattern, by file."""
    found = {}
    for file in [*SOURCE.rglob("*.py"), *(ROOT / "native").glob("*.?pp")]:
        lines = [line.strip() for line in file.read_text().splitlines() if re.search(pattern, line)]
        if lines:
            found[file.relative_to(SOURCE if file.is_relative_to(SOURCE) else ROOT).as_posix()] = lines
    return found


def test_the_stages_of_a_runge_kutta_step_are_summed_in_one_place():
    assert lines_with(r"tableau\.a\[stage\]") == {
        "solve/solvers/tableau.py": ["stages.append(increment(stage, _plus(state, tableau.a[stage], stages)))"]
    }


def test_only_terms_know_whether_they_are_driven_by_the_path_or_by_time():
    prose = r"\bcontrolled differential|time-controlled|steps controlled"
    uses = {
        file: [line for line in lines if not re.search(prose, line)]
        for file, lines in lines_with(r"\bcontrolled\b").items()
    }
    assert {file for file, lines in uses.items() if lines} == {"native/term.hpp"}


def test_only_tasks_depend_on_the_kind_of_task():
    kinds = {kind for name in Task.registry for kind in Task.registry[name].__mro__ if issubclass(kind, Task)}
    names = "|".join(kind.__name__ for kind in kinds - {Task})
    asked = rf"isinstance\([^)]*\b({names})\b|\.kind == \"(binary|multiclass|multilabel|regression)"
    assert {file for file in lines_with(asked) if not file.startswith("tasks/")} == set()


def test_no_file_has_a_vague_name():
    vague = {"utils", "util", "misc", "common", "helpers", "helper"}
    assert not [file for file in ROOT.glob("[!.]*/**/*.py") if file.stem in vague and ".venv" not in file.parts]


def test_help_does_not_import_torch():
    script = """
import contextlib, sys
from neuralcde.cli import main
for command in ([], ["predict"], ["serve"], ["report"], ["info"], ["demo"]):
    with contextlib.suppress(SystemExit):
        main([*command, "--help"])
assert "torch" not in sys.modules
"""
    done = run(sys.executable, "-c", script)
    assert done.returncode == 0, done.stderr
    assert "Predict with a saved model" in done.stdout
    assert "Folder of the model" in done.stdout


def test_info_names_the_version_and_the_engine(tmp_path):
    done = run(COMMAND, "info", NEURALCDE_ISA="none")
    assert done.returncode == 0, done.stderr
    assert neuralcde.__version__ in done.stdout
    assert "plain torch" in done.stdout
    assert "threads" in done.stdout
    assert "plain torch (" in run(COMMAND, "info", NEURALCDE_ENGINE="torch").stdout


def test_the_demo_runs_fit_report_and_predict(tmp_path, capfd):
    """The demo starts the three commands as processes."""
    with pytest.raises(SystemExit) as end:
        main(["demo", "--out", str(tmp_path / "new"), "--stays", "40"])
    assert not end.value.code
    said = capfd.readouterr().out
    for line in ("$ neuralcde fit", "$ neuralcde report", "$ neuralcde predict", "Test AUROC", "gradient boosting"):
        assert line in said
    assert (tmp_path / "new" / "model" / "report.html").exists()
    assert len((tmp_path / "new" / "risk.csv").read_text().splitlines()) == 51


def test_unknown_commands_exit_with_2():
    done = run(COMMAND, "nonsense")
    assert done.returncode == 2
    assert "nonsense" in done.stdout + done.stderr


def test_the_build_configures_without_a_compiler(tmp_path):
    """On a machine with no C++ compiler the build installs no kernels and does not fail."""
    tools = Path(sys.executable).parent
    if not (tools / "cmake").exists():
        pytest.skip("cmake is not installed beside this Python (make test puts it there)")
    environment = {"PATH": str(tools), "CXX": "", "CC": ""}
    command = [str(tools / "cmake"), "-S", str(ROOT), "-B", str(tmp_path), "-G", "Ninja"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, env=environment)
    assert done.returncode == 0, done.stderr
    assert "without its native kernels" in done.stderr


def test_the_wheel_says_that_the_package_is_typed(tmp_path):
    """PEP 561: without `py.typed` type checkers ignore the annotations of an installed package."""
    pytest.importorskip("scikit_build_core", reason="the build tools are not installed (make test installs them)")
    script = """
import sys
from scikit_build_core.build import build_wheel
print(build_wheel(sys.argv[1], {"wheel.cmake": "false"}))
"""
    command = [sys.executable, "-c", script, str(tmp_path)]  # without the kernels, which take minutes to compile
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    (wheel,) = tmp_path.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
    assert "neuralcde/py.typed" in names
    assert "neuralcde/__init__.py" in names
