"""An experiment: configuration, data, and the settings of a run."""

from __future__ import annotations

import copy
import hashlib
import json
import tomllib
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

import neuralcde as nc
from neuralcde.tasks import Task
from neuralcde.train import TrainingSettings

HERE = Path(__file__).parent
Settings = dict[str, Any]  # settings of a run: the tables "data", "path", "model" and "training"
# Training options that a line of results may lack, because it is older than the option, with the value that it had
# then.
OLD_DEFAULTS = {
    "readout_lr_scale": 1.0,
    "weight_decay": 0.0,
    "gradient_clip": None,
    "plateau_factor": 0.1,
    "plateau_patience": 10,
    "ema_decay": 0.0,
    "channel_dropout": 0.0,
    "channel_jitter": 0.0,
    "row_dropout": 0.0,
    "auxiliary_weight": 0.5,
    "average_epochs": 1,
    "monitor": "metric",
    "rescale_outputs": False,
    "skipped_in_a_row": 5,
}
# Options that recorded lines know by an earlier name.
RENAMED = {"average": "ema_decay", "clip": "gradient_clip", "readout_rate": "readout_lr_scale"}


def names() -> list[str]:
    """The names of all experiments: the folders with a run.py."""
    return sorted(file.parent.name for file in HERE.glob("*/run.py"))


@dataclass(frozen=True)
class Run:
    """A run: model, column of the table, seed, and settings. Two runs with the same values are the same run."""

    model: str
    column: Any
    seed: int
    settings: Settings

    @property
    def key(self) -> str:
        """The identity of the run, as JSON."""
        return json.dumps([self.model, self.column, self.seed, complete(self.settings)], sort_keys=True)

    @property
    def name(self) -> str:
        """A name for folders and messages."""
        return f"{self.model}-{self.column}-{self.seed}-{hashlib.sha256(self.key.encode()).hexdigest()[:8]}"


@dataclass(frozen=True)
class Parts:
    """The data of an experiment, split and prepared for the models; `digest` identifies their source."""

    digest: str
    task: Task
    training: nc.PathDataset
    validation: nc.PathDataset
    test: nc.PathDataset

    @property
    def shape(self) -> dict[str, int]:
        """The sizes of a model for these data."""
        static = self.training.series.static.shape[1]
        return {"channels": self.training.source.channels, "outputs": self.task.outputs, "static": static}


@dataclass(frozen=True)
class Experiment:
    """One of the paper's experiments.

    Parameters
    ----------
    name
        Name of its folder. Its `run.py` has a function `prepare(config, data_folder, column, settings)` that returns
        `Parts`.
    config_file, config
        The configuration file, by default the experiment's config.toml, and its content.
    folder
        Folder for results and checkpoints.
    """

    name: str
    config_file: Path
    folder: Path
    config: dict[str, Any]

    @classmethod
    def find(cls, name: str, config: Path | None = None, out: Path | None = None) -> Experiment:
        """The experiment of this name; `config` and `out` replace its configuration file and its results folder."""
        file = (config or HERE / name / "config.toml").resolve()
        return cls(name, file, (out or HERE / name).resolve(), tomllib.loads(file.read_text()))

    def prepare(self, data: Path, run: Run) -> Parts:
        """Read, check, split and prepare the data for a run."""
        module = import_module(f"experiments.{self.name}.run")
        parts: Parts = module.prepare(self.config, data, run.column, run.settings)
        return parts

    @property
    def models(self) -> list[str]:
        """The names of the models that the harness trains: the paper's, then those beside them."""
        return [*self.config["models"], *self.config.get("more_models", {})]

    def runs(self, model: str) -> int:
        """How many runs (seeds) of a model there are in each column."""
        return int(self.config.get("runs_of", {}).get(model, self.config["runs"]))

    def shape(self, column: Any = None) -> dict[str, int]:
        """The sizes of the data in a column: channels, outputs, static features."""
        return {**self.config["shape"], **self._of_column(column).get("shape", {})}

    def settings(
        self,
        model: str,
        changes: Mapping[str, Mapping[str, Any]] | None = None,
        *,
        column: Any = None,
        variant: str | None = None,
    ) -> Settings:
        """The settings of a model, with changes to single entries.

        `column` is a column of the table, in which settings may differ; `variant` names a variant of the experiment.

        Raises
        ------
        ValueError
            If the configuration has a training option that does not exist.
        """
        training = {
            name: value for name, value in asdict(TrainingSettings()).items() if name not in ("seed", "verbose")
        }
        tables = merged({"training": training}, self.config["settings"])
        of_column = self._of_column(column)
        tables = merged(tables, of_column.get("settings", {}))
        if model in self.config["models"]:
            tables = merged(tables, {"model": self.config["models"][model]})
        else:
            own = self.config["more_models"][model]
            tables = merged(tables, {name: table for name, table in own.items() if isinstance(table, dict)})
            tables["model"] = dict(own["model"])  # other models do not have the options of the paper's
        tables = merged(tables, {"model": of_column.get("models", {}).get(model, {})})
        if variant is not None:
            other = self.config["variants"][variant]
            tables = merged(tables, other["settings"])
            tables = merged(tables, {"model": other["models"].get(model, {})})
        tables = merged(tables, changes or {})
        unknown = sorted(set(tables["training"]) - set(training))
        if unknown:
            raise ValueError(
                f"{self.config_file}: training has no option {', '.join(unknown)}; there are {', '.join(training)}."
            )
        return tables

    def _of_column(self, column: Any) -> dict[str, Any]:
        found: dict[str, Any] = self.config.get("per_column", {}).get(str(column), {})
        return found

    def file(self, kind: str) -> Path:
        """The file with results of a kind: "results", "search", "ablations", "contestants", "memory", "speed", ..."""
        return self.folder / f"{kind}.jsonl"

    def paper(self, model: str, column: Any) -> float | None:
        """The paper's metric of a model in a column, as a fraction of 1 if in %; None if the paper has none."""
        row = self.config["paper"].get(model)
        values = None if row is None else row[self.config["metric"]]
        if values is None or column not in self.config["columns"]:
            return None
        found = values[self.config["columns"].index(column)]
        if not found:  # the paper does not have this column
            return None
        return float(found[0]) / 100 if self.percent else float(found[0])

    @property
    def percent(self) -> bool:
        """Whether the paper states its metric in %."""
        return bool(self.config["metric"] == "accuracy")


def complete(settings: Settings) -> Settings:
    """The settings of a line of results, with the defaults of newer options, and options by their present names."""
    training = {RENAMED.get(name, name): value for name, value in settings.get("training", {}).items()}
    return merged({"training": OLD_DEFAULTS}, {**settings, "training": training})


def same(one: Settings, other: Settings) -> bool:
    """Whether two settings describe the same training."""
    return complete(one) == complete(other)


def merged(tables: Mapping[str, Mapping[str, Any]], changes: Mapping[str, Mapping[str, Any]]) -> Settings:
    """A copy of the tables of settings with single entries changed."""
    result = copy.deepcopy({name: dict(table) for name, table in tables.items()})
    for name, table in changes.items():
        result.setdefault(name, {}).update(table)
    return result
