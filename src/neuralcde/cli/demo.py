"""`neuralcde demo`: fit, report and predict on a synthetic table, through the same commands that a user would type."""

from __future__ import annotations

import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import polars
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from ..datasets import LABS, VITALS, icu_table
from .errors import report_errors
from .tables import read_table, write_table

STAYS, NEW = 2000, 50


@report_errors
def demo(*, out: Path = Path("demo"), stays: int = STAYS, seed: int = 0, debug: bool = False) -> None:
    """Generate an ICU-like table, train on it, write a report, predict for new stays, and compare with two baselines.

    Parameters
    ----------
    out
        Folder for the tables, the model and its report.
    stays
        Number of series in the table.
    seed
        Seed of the generated table.
    debug
        Show the traceback of an error.
    """
    begun = time.perf_counter()
    out.mkdir(parents=True, exist_ok=True)
    table, new, model = out / "vitals.csv", out / "new_stays.csv", out / "model"
    frame = icu_table(stays, seed)
    write_table(frame, table)
    write_table(icu_table(NEW, seed + 1, first=stays).drop("outcome"), new)
    print(f"{table}: {stays} synthetic stays in an intensive care unit, {frame.height:,} rows\n{frame.head(4)}")
    names = ("--id", "stay", "--time", "hour", "--label", "outcome", "--static", "age")
    again = ("--force",) if model.exists() else ()
    _run("fit", table, *names, "--out", model, *again)
    _run("report", model)
    _run("predict", model, new, "--out", out / "risk.csv")
    print(f"\n{read_table(out / 'risk.csv').head(4)}\n\nTest AUROC, on the same held-out stays:")
    for name, area in _compare(frame, read_table(model / "test_predictions.csv")).items():
        print(f"  {area:.3f}  {name}")
    print(f"\nOpen {model / 'report.html'}. All of this took {time.perf_counter() - begun:.0f} seconds.")


def _run(*arguments: str | Path) -> None:
    """Print and run a command as a user would type it.

    Ctrl-C reaches the command, which says what it has written. The demo ends after it.
    """
    words = [str(argument) for argument in arguments]
    print(f"\n$ neuralcde {shlex.join(words)}", flush=True)
    interrupted: list[int] = []
    before = signal.signal(signal.SIGINT, lambda number, _: interrupted.append(number))
    try:
        done = subprocess.run([sys.executable, "-m", "neuralcde", *words])
    finally:
        signal.signal(signal.SIGINT, before)
    if done.returncode or interrupted:
        sys.exit(done.returncode or 1)


def _compare(frame: polars.DataFrame, tested: polars.DataFrame) -> dict[str, float]:
    """Test AUROC of the Neural CDE and of two baselines, which are fitted on the same training stays."""
    channels = [*VITALS, *LABS]
    age = polars.col("age").first()
    last = [polars.col(name).drop_nulls().last() for name in channels]
    statistics = [
        statistic.name.suffix(suffix)
        for name in channels
        for suffix, statistic in {
            " mean": polars.col(name).mean(),
            " deviation": polars.col(name).std(),
            " least": polars.col(name).min(),
            " most": polars.col(name).max(),
            " first": polars.col(name).drop_nulls().first(),
            " last": polars.col(name).drop_nulls().last(),
            " trend": polars.cov(name, "hour"),
            " count": polars.col(name).count(),
        }.items()
    ]
    stays = frame.group_by("stay", maintain_order=True)
    died = (stays.agg(polars.col("outcome").first())["outcome"] == "died").to_numpy()
    held_out = stays.agg()["stay"].is_in(tested["stay"].to_list()).to_numpy()
    areas = {"Neural CDE": float(roc_auc_score(tested["true_outcome"] == "died", tested["p_died"]))}
    for name, features, model in (
        (
            "summary statistics, gradient boosting",
            [*statistics, polars.col("hour").max(), age],
            HistGradientBoostingClassifier(random_state=0),
        ),
        (
            "last values carried forward, logistic regression",
            [*last, age],
            make_pipeline(SimpleImputer(), StandardScaler(), LogisticRegression(max_iter=1000)),
        ),
    ):
        table = stays.agg(features).drop("stay").to_numpy().astype(np.float64)
        model.fit(table[~held_out], died[~held_out])
        areas[name] = float(roc_auc_score(died[held_out], model.predict_proba(table[held_out])[:, 1]))
    return areas
