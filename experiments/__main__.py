"""The command line of the experiments.

`python -m experiments NAME [ACTION] ...` works on one experiment,
`python -m experiments tables` prints the tables of all.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from benchmarks.data import folder

from .baseline import measure_baseline
from .contestants import measure_contestants
from .documents import documents
from .experiment import Experiment, Run, names
from .memory import measure_memory
from .runs import ablation_runs, carry_out, cores, search_runs, table_runs
from .speed import measure_speed
from .tables import tables

ACTIONS = {
    "run": "the runs of the paper's table (the default); results in results.jsonl",
    "search": "the paper's grid search; results in search.jsonl",
    "ablations": "one changed setting at a time, cross-validated without the test series; results in ablations.jsonl",
    "contestants": "what people would use instead, on the same split; results in contestants.jsonl",
    "memory": "peak memory of a training step; results in memory.jsonl",
    "speed": "seconds per epoch compared with torchcde; results in speed.jsonl",
    "baseline": "gradient boosting on summary statistics; results in baseline.jsonl",
    "tables": "the results next to the paper's figures",
}
RUNS = {"run": ("results", table_runs), "search": ("search", search_runs), "ablations": ("ablations", ablation_runs)}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit status."""
    given = _parser().parse_intermixed_args(arguments)
    try:
        _check_options(given)
        if given.name == "tables":
            for name in names():
                _show_tables(Experiment.find(name), write=given.write)
            return 0
        return _act(Experiment.find(given.name, given.config, given.out), given)
    except (FileNotFoundError, ValueError, RuntimeError) as reason:
        print(f"error: {reason}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("interrupted; run the same command again to continue.", file=sys.stderr)
        return 130


def _act(experiment: Experiment, given: argparse.Namespace) -> int:
    if given.action in ("search", "ablations", "contestants", "baseline") and given.action not in experiment.config:
        raise ValueError(f"{experiment.config_file} has no table [{given.action}], so there is nothing to run.")
    models = given.model or _models(experiment, given.action)
    unknown = [name for name in models if name not in experiment.models]
    if unknown:
        raise ValueError(f"--model {unknown[0]} is not one of {', '.join(experiment.models)}.")
    if given.action == "contestants":
        names = given.contestant or list(experiment.config.get("contestants", {}))
        return 1 if measure_contestants(experiment, given.data, names, given.runs) else 0
    if given.action == "tables":
        _show_tables(experiment, write=given.write)
    elif given.action == "memory":
        measure_memory(experiment, models)
    elif given.action == "baseline":
        measure_baseline(experiment, given.data)
    elif given.action == "speed":
        return 0 if measure_speed(experiment, given.data) else 1
    else:
        return _run(experiment, models, given)
    return 0


def _run(experiment: Experiment, models: list[str], given: argparse.Namespace) -> int:
    kind, plan = RUNS[given.action]
    known = experiment.config.get("variants", {})
    if given.variant is not None and given.variant not in known:
        raise ValueError(f"--variant {given.variant} is not one of {', '.join(known)}.")
    more = {"variant": given.variant} if given.action == "run" else {}
    runs = _chosen(experiment, plan(experiment, models, given.runs, given.epochs, **more), given.only)
    failures = carry_out(experiment, runs, kind, data=given.data, workers=given.workers, test=given.action != "search")
    if failures:
        print(f"{failures} of {len(runs)} runs failed; run the same command again to retry them.", file=sys.stderr)
    return 1 if failures else 0


def _check_options(given: argparse.Namespace) -> None:
    """Raise `ValueError` for options that have no effect.

    Except for `NAME tables`, to which `make reproduce` passes the options of its runs.
    """
    if given.name == "tables":
        others = ("out", "config", "model", "runs", "epochs", "only", "variant", "contestant")
        if given.action != "run" or any(getattr(given, name) for name in others):
            raise ValueError(
                "`tables` alone shows the recorded results of all experiments and takes no option but --write; for "
                "another folder or configuration: python -m experiments NAME tables --out DIR."
            )
        return
    if given.action == "tables":
        return
    of_runs = {name: list(RUNS) for name in ("epochs", "only")}
    of_runs |= {"runs": [*RUNS, "contestants"], "contestant": ["contestants"]}
    for name, actions in {"model": [*RUNS, "memory"], **of_runs, "variant": ["run"], "write": ["tables"]}.items():
        if getattr(given, name) and given.action not in actions:
            raise ValueError(f"--{name} has no effect on {given.action}; it is for {', '.join(actions)}.")


def _show_tables(experiment: Experiment, *, write: bool) -> None:
    texts = [table.markdown() for table in tables(experiment)]
    nothing = f"no results in {experiment.folder} yet; run: python -m experiments {experiment.name}"
    if write:
        for file, text in documents(experiment).items():
            file.write_text(text)
    print("\n".join(texts) or nothing)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m experiments",
        description="The paper's experiments. Finished runs are not repeated; interrupted runs are resumed.",
        epilog="\n".join(f"  {name:10} {what}" for name, what in ACTIONS.items()),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("name", choices=[*names(), "tables"], help="an experiment; or tables, for those of all")
    parser.add_argument("action", nargs="?", default="run", choices=list(ACTIONS), help="what to do, see below")
    parser.add_argument("--model", nargs="+", help="models to run; all by default")
    parser.add_argument("--contestant", nargs="+", help="contestants to measure; all by default")
    parser.add_argument("--runs", type=_positive, help="number of runs per cell (seeds 0, 1, ...)")
    parser.add_argument("--epochs", type=_positive, help="maximum number of epochs per run")
    parser.add_argument(
        "--only", nargs="+", default=[], metavar="KEY=VALUE", help="only runs with dropped=0.3, hidden=32, ..."
    )
    parser.add_argument("--variant", help="a variant of the table: one of [variants] in config.toml")
    parser.add_argument("--workers", type=_positive, default=cores(), help="number of parallel runs")
    parser.add_argument("--data", type=Path, default=folder(), help="folder of the data (or NEURALCDE_DATA)")
    parser.add_argument("--config", type=Path, help="another file in place of the experiment's config.toml")
    parser.add_argument("--out", type=Path, help="another folder for results and checkpoints")
    parser.add_argument("--write", action="store_true", help="also write RESULTS.md and docs/experiments.md")
    return parser


def _positive(text: str) -> int:
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"{value} is not at least 1")
    return value


def _models(experiment: Experiment, action: str) -> list[str]:
    if action in ("search", "ablations"):
        return [experiment.config[action]["model"]]
    return experiment.models if action == "run" else list(experiment.config["models"])


def _chosen(experiment: Experiment, runs: list[Run], only: list[str]) -> list[Run]:
    """The runs that have all the settings of `--only`."""
    wanted = [text.partition("=")[::2] for text in only]

    def has(run: Run, name: str, value: str) -> bool:
        known = {}
        for table in run.settings.values():
            known |= table
        known |= {experiment.config["column"]: run.column, "seed": run.seed}
        return str(known.get(name)) == value

    chosen = [run for run in runs if all(has(run, name, value) for name, value in wanted)]
    if not chosen:
        raise ValueError(f"no run has {' '.join(only)}; settings are named as in {experiment.config_file}.")
    return chosen


if __name__ == "__main__":
    sys.exit(main())
