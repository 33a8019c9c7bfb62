"""The paper's tables with our figures next to them, from the lines of results."""

from __future__ import annotations

import statistics
from collections.abc import Iterator
from importlib import import_module
from typing import Any, NamedTuple

from neuralcde.models import PathModel

from .contestants import contestant_settings
from .experiment import Experiment, Settings, same
from .lines import Line, read_lines
from .memory import GRADIENTS
from .runs import capped, changed

KINDS = ("results", "memory", "speed", "search")
NOTHING = "No results are recorded yet.\n"


class Table(NamedTuple):
    """A table whose cells are text."""

    title: str
    names: list[str]
    rows: list[list[str]]

    def markdown(self) -> str:
        """The table as Markdown, with its title."""
        lines = [self.names, ["---"] * len(self.names), *self.rows]
        return "\n".join([self.title, "", *(f"| {' | '.join(cells)} |" for cells in lines), ""])


def tables(experiment: Experiment) -> Iterator[Table]:
    """All tables that there are results for."""
    lines = {kind: read_lines(experiment.file(kind)) for kind in KINDS}
    main = main_table(experiment)
    if main is not None:
        yield main
    ours = configured(lines["results"], experiment)
    if ours:
        yield costs(experiment, ours)
    for variant, other in experiment.config.get("variants", {}).items():
        runs = configured(lines["results"], experiment, variant)
        if runs:
            yield scores(experiment, other["title"], runs)
    for kind, table in (("memory", memory), ("speed", speed), ("search", search)):
        if lines[kind]:
            yield table(experiment, lines[kind])
    yield from ablation_tables(experiment)
    yield from extra_tables(experiment)


def ablation_tables(experiment: Experiment) -> Iterator[Table]:
    """A table of one change at a time for every model that has lines of them."""
    lines = read_lines(experiment.file("ablations"))
    for model in experiment.models:
        own = [line for line in lines if line["model"] == model]
        if own:
            yield ablations(experiment, model, own)


def extra_tables(experiment: Experiment) -> Iterator[Table]:
    """The tables that only this experiment has: those of the module that its configuration names as `extra`."""
    if "extra" in experiment.config:
        yield from import_module(f"experiments.{experiment.name}.{experiment.config['extra']}").tables(experiment)


def main_table(experiment: Experiment) -> Table | None:
    """The paper's table with our figures, its memory columns, and what was measured beside the paper's models."""
    runs = configured(read_lines(experiment.file("results")), experiment)
    contestants = read_lines(experiment.file("contestants"))
    if not runs and not contestants:
        return None
    config, metric = experiment.config, experiment.config["metric"]
    table = scores(experiment, config["title"], runs)
    memories = memory_columns(experiment)
    for model, row in zip(config["paper"], table.rows, strict=True):
        row += [cell for column in memories for cell in column.cells(model, config["settings"]["model"]["gradient"])]
    blank = ["" for _ in memories for _ in range(2)]
    for title, measured in beside(experiment, runs, contestants):
        cells = [cell for value in config["columns"] for cell in ("", spread(experiment, measured.get(value, [])))]
        table.rows.append([title, *cells, *blank])
    boosted = {
        line[config["column"]]: text(experiment, line[f"test_{metric}"])
        for line in read_lines(experiment.file("baseline"))
    }
    if boosted:
        whole = f" ({boosted[0.0]} with nothing dropped)" if 0.0 in boosted else ""
        name = f"gradient boosting on summary statistics{whole}"
        cells = [cell for value in config["columns"] for cell in ("", boosted.get(value, ""))]
        table.rows.append([name, *cells, *blank])
    names = [name for column in memories for name in (f"{column.title}, paper", "ours")]
    return Table(table.title, [*table.names, *names], table.rows)


class MemoryColumn(NamedTuple):
    """A column of memory: its title, the paper's figures by model, and ours by model and gradient method."""

    title: str
    paper: dict[str, str]
    ours: dict[tuple[str, str], float]

    def cells(self, model: str, gradient: str) -> list[str]:
        """The paper's figure of a model and ours."""
        ours = self.ours.get((model, gradient))
        return [self.paper[model], "" if ours is None else f"{ours:.1f}"]


def memory_columns(experiment: Experiment) -> list[MemoryColumn]:
    """One column of memory; or one per column of the table, where the sizes of the data differ between these."""
    config, found = experiment.config, read_lines(experiment.file("memory"))
    if not isinstance(config.get("memory"), dict):
        paper = {model: str(row["memory_mb"]) for model, row in config["paper"].items()}
        return [MemoryColumn("memory, MB", paper, {(x["model"], x["gradient"]): x["memory_mb"] for x in found})]
    columns = []
    for place, (value, title) in enumerate(zip(config["columns"], config["column_titles"], strict=True)):
        paper = {model: str(row["memory_mb"][place]) for model, row in config["paper"].items()}
        own = [line for line in found if line[config["column"]] == value]
        ours = {(line["model"], line["gradient"]): line["memory_mb"] for line in own}
        columns.append(MemoryColumn(f"memory, MB, {title}", paper, ours))
    return columns


def beside(
    experiment: Experiment, runs: list[Line], contestants: list[Line]
) -> Iterator[tuple[str, dict[Any, list[float]]]]:
    """Title and test metrics by column of everything that the paper does not have, in the order of the configuration.

    These are the other models that the harness trained, and the contestants. A contestant's lines count only if their
    settings are those of the configuration.
    """
    config, metric = experiment.config, f"test_{experiment.config['metric']}"

    def by_column(lines: list[Line]) -> dict[Any, list[float]]:
        return {
            value: [line[metric] for line in lines if line[config["column"]] == value] for value in config["columns"]
        }

    for name, table in config.get("more_models", {}).items():
        own = [line for line in runs if line["model"] == name]
        if own:
            yield table["title"], by_column(own)
    for name, table in config.get("contestants", {}).items():
        own = [
            line
            for line in contestants
            if line["contestant"] == name and line["settings"] == contestant_settings(table)
        ]
        if own:
            yield table["title"], by_column(own)


def configured(lines: list[Line], experiment: Experiment, variant: str | None = None) -> list[Line]:
    """The lines with the settings of a variant, except for the cap on epochs; of several caps the largest is taken.

    Only the configured seeds count. Additional seeds of one cell, run after seeing its result, would bias it.
    """

    def plan_of(line: Line) -> Settings:
        return experiment.settings(line["model"], column=line[experiment.config["column"]], variant=variant)

    def with_cap(cap: int) -> list[Line]:
        return [
            line
            for line in lines
            if line["model"] in experiment.models
            and line["seed"] < experiment.runs(line["model"])
            and same(line["settings"], capped(plan_of(line), cap))
        ]

    caps = sorted({line["settings"]["training"]["max_epochs"] for line in lines}, reverse=True)
    return next((found for cap in caps if (found := with_cap(cap))), [])


def scores(experiment: Experiment, title: str, runs: list[Line]) -> Table:
    """The paper's metrics with ours next to them."""
    config, metric = experiment.config, experiment.config["metric"]
    unit = 100 if experiment.percent else 1
    names, rows = ["model"], []
    for column in config["column_titles"]:
        names += [f"{column}, paper", "ours"]
    for model, paper in config["paper"].items():
        row = [_title(model)]
        for value, published in zip(config["columns"], paper[metric], strict=True):
            row += [text(experiment, *(number / unit for number in published)) if published else ""]
            row += [spread(experiment, [line[f"test_{metric}"] for line in _cell(experiment, runs, model, value)])]
        rows.append(row)
    caps = [line["settings"]["training"]["max_epochs"] for line in runs if line["model"] in config["paper"]]
    most = f"; at most {max(caps)} epochs per run" if caps else ""
    return Table(f"{title}: test {metric}, mean ± standard deviation (runs){most}", names, rows)


def costs(experiment: Experiment, runs: list[Line]) -> Table:
    """Cost of the runs, and the time until their validation metric reached the paper's metric."""
    config, rows = experiment.config, []
    others = config.get("more_models", {})
    for model in [*config["paper"], *(name for name in others if any(line["model"] == name for line in runs))]:
        own = [line for line in runs if line["model"] == model]
        row = [_name(experiment, model), ", ".join(map(str, sorted({line["parameters"] for line in own})))]
        row += [_mean(own, "epochs", 0), _mean(own, "seconds_per_epoch", 2), _mean(own, "seconds", 0)]
        row += [_mean(own, "cpu_seconds", 0), _mean(own, "peak_memory_mb", 1)]
        row.append(str(sum(line["epochs"] == line["settings"]["training"]["max_epochs"] for line in own)))
        for value in config["columns"]:
            cell = _cell(experiment, runs, model, value)
            there = [line for line in cell if line["seconds_to_paper"] is not None]
            row.append(f"{_mean(there, 'seconds_to_paper', 0) or '-'} ({len(there)} of {len(cell)})")
        rows.append(row)
    hours = sum(line["wall_seconds"] / line["at_once"] for line in runs) / 3600
    machines = "; ".join(
        sorted({f"{line['at_once']} at a time on {line['machine']} ({line['kernels']})" for line in runs})
    )
    title = (
        f"Cost of the {len(runs)} runs, {machines}: {hours:.2f} hours including their set-up, without the start of "
        "Python. Means over runs"
    )
    names = ["model", "parameters", "epochs", "s per epoch", "s per run", "CPU s per run", "peak MB of a run"]
    names.append("runs that reached the maximum number of epochs")
    names += [
        f"s until validation {config['metric']} reached the paper's, {title}" for title in config["column_titles"]
    ]
    return Table(title, names, rows)


def memory(experiment: Experiment, lines: list[Line]) -> Table:
    """The latest figure for every model and gradient method."""
    columns, rows = memory_columns(experiment), []
    for model in experiment.config["paper"]:
        of_column = [[column.paper[model], *(column.cells(model, way)[1] for way in GRADIENTS)] for column in columns]
        rows.append([_title(model), *(cell for cells in of_column for cell in cells)])
    title = (
        "Memory, MB. Paper: GPU memory during a whole training. Ours: peak of a forward and backward pass in addition "
        "to model and path, by gradient method"
    )
    names = ["paper", *GRADIENTS]
    if len(columns) > 1:
        titles = experiment.config["column_titles"]
        names = [f"{title}, {name}" if name == "paper" else name for title in titles for name in names]
    return Table(title, ["model", *names], rows)


def speed(experiment: Experiment, lines: list[Line]) -> Table:
    """The latest comparison with torchcde in each column."""
    config = experiment.config
    last = {line[config["column"]]: line for line in lines}
    rows = []
    for value, title in zip(config["columns"], config["column_titles"], strict=True):
        if value in last:
            ours, knots, theirs = (last[value][f"{name}seconds_per_epoch"] for name in ("", "knots_", "torchcde_"))
            row = [f"{theirs:.1f}", f"{ours:.2f}", f"{theirs / ours:.0f}", f"{knots:.2f}", f"{theirs / knots:.0f}"]
            rows.append([title, *row])
    about = lines[-1]
    title = (
        f"Neural CDE and torchcde {about['torchcde']} (rk4, unit steps, adjoint): seconds per epoch of forward and "
        f"backward passes and Adam steps, mean over {about['epochs']:g} epochs, taking training steps in turn, "
        f"{about['threads']} thread(s), {about['machine']}, {about['date']}"
    )
    return Table(title, ["", "torchcde", "ours", "times faster", "ours, knot to knot", "times faster"], rows)


def search(experiment: Experiment, lines: list[Line]) -> Table:
    """The results of the grid search, best first: the lines whose settings differ from the plan only in the sizes."""
    metric, sizes = f"validation_{experiment.config['metric']}", ("hidden", "width", "depth")
    plan = experiment.config["search"]

    def but_for_sizes(settings: Settings) -> Settings:
        return {**settings, "model": {name: value for name, value in settings["model"].items() if name not in sizes}}

    found: dict[tuple[str, ...], list[Line]] = {}
    for line in (line for line in lines if line[experiment.config["column"]] == plan["column"]):
        cap = line["settings"]["training"]["max_epochs"]
        planned = capped(experiment.settings(line["model"], plan["common"], column=plan["column"]), cap)
        if same(but_for_sizes(line["settings"]), but_for_sizes(planned)):
            row = (_title(line["model"]), *(str(line["settings"]["model"].get(name, "")) for name in sizes))
            found.setdefault((*row, str(line["parameters"]), str(cap)), []).append(line)
    best = sorted(found.items(), key=lambda item: -statistics.mean(line[metric] for line in item[1]))
    rows = [
        [*row[:-1], spread(experiment, [line[metric] for line in own]), _mean(own, "epochs", 0), row[-1]]
        for row, own in best
    ]
    title = f"Search over sizes, {experiment.config['column']} {plan['column']}, {plan['what']}, best first"
    names = ["model", *sizes, "parameters", f"{metric.replace('_', ' ')} (runs)", "epochs", "at most"]
    return Table(title, names, rows)


def ablations(experiment: Experiment, model: str, lines: list[Line]) -> Table:
    """One change at a time: the metric on held-out folds, and the differences to unchanged runs on the same folds."""
    config, plan = experiment.config, experiment.config["ablations"]
    metric = f"held_out_{config['metric']}"
    cap = max(line["settings"]["training"]["max_epochs"] for line in lines)
    own = {
        change: [
            line
            for line in lines
            if same(line["settings"], changed(experiment, model, change, line["seed"], cap, line[config["column"]]))
        ]
        for change in plan["changes"]
    }
    (unchanged,) = (change for change, changes in plan["changes"].items() if not changes)
    rows = []
    for change in (change for change in own if own[change]):
        row = [change]
        for value in plan["columns"]:
            cell, base = (
                {line["seed"]: line[metric] for line in _cell(experiment, own[name], model, value)}
                for name in (change, unchanged)
            )
            pairs = [cell[seed] - base[seed] for seed in cell if seed in base] if change != unchanged else []
            row += [spread(experiment, list(cell.values())), spread(experiment, pairs, difference=True)]
        rows.append([*row, _mean(own[change], "best_epoch", 0)])
    titles = [config["column_titles"][config["columns"].index(value)] for value in plan["columns"]]
    title = (
        f"One change at a time, {_name(experiment, model)}, {plan['what']}, at most {cap} epochs: {config['metric']} "
        "on folds of the training and validation series, mean ± standard deviation (folds), and mean difference on the "
        "same folds ± its standard error"
    )
    pairs_of = [name for title in titles for name in (title, "difference")]
    return Table(title, ["change", *pairs_of, "best epoch"], rows)


def spread(experiment: Experiment, values: list[float], *, difference: bool = False) -> str:
    """Mean ± sample standard deviation (number of values); for differences, mean ± standard error."""
    if not values:
        return ""
    deviation = statistics.stdev(values) if len(values) > 1 else None
    if difference:
        error = None if deviation is None else deviation / len(values) ** 0.5
        return text(experiment, statistics.mean(values), error, sign="+")
    return f"{text(experiment, statistics.mean(values), deviation)} ({len(values)})"


def text(experiment: Experiment, mean: float, deviation: float | None = None, *, sign: str = "") -> str:
    """A metric as the paper writes it."""
    unit, digits = (100, 1) if experiment.percent else (1, 3)
    after = "" if deviation is None else f" ± {unit * deviation:.{digits}f}"
    return f"{unit * mean:{sign}.{digits}f}{after}"


def _cell(experiment: Experiment, lines: list[Line], model: str, value: object) -> list[Line]:
    return [line for line in lines if line["model"] == model and line[experiment.config["column"]] == value]


def _mean(lines: list[Line], name: str, digits: int) -> str:
    values = [line[name] for line in lines if line[name] is not None]
    return f"{statistics.mean(values):.{digits}f}" if values else ""


def _title(model: str) -> str:
    """Name of one of the paper's models in a table."""
    return PathModel.registry[model].title


def _name(experiment: Experiment, model: str) -> str:
    """Name of any model of the experiment in a table."""
    others = experiment.config.get("more_models", {})
    return str(others[model]["title"]) if model in others else _title(model)
