"""A small model, and services of it in this process."""

import asyncio

import numpy as np
import pandas as pd

import neuralcde as nc
from neuralcde.serve import Limits, Service, make_app

QUICK = {"max_epochs": 1, "hidden": 5, "width": 6, "depth": 1, "validation_fraction": 0, "random_state": 0}


def fitted(**options):
    rng = np.random.default_rng(0)
    stays = np.repeat(np.arange(30), 4)
    frame = pd.DataFrame(
        {
            "stay": stays,
            "hour": np.tile([0.0, 1.0, 2.5, 4.0], 30),
            "pulse": rng.normal(80, 10, 120),
            "ascites": rng.choice(["Yes", "No"], 120),
            "age": np.repeat(rng.normal(60, 5, 30), 4),
        }
    )
    frame.loc[rng.random(120) < 0.4, "pulse"] = np.nan
    series = nc.IrregularSeries.from_long(frame, id="stay", time="hour", static=["age"])
    return nc.NeuralCDEClassifier(**QUICK, **options).fit(series, np.where(np.arange(30) % 2, "ill", "well"))


CLF = fitted()


def service(folder, clf=CLF, **limits):
    return Service(clf, folder, Limits(**limits))


def app(folder, clf=CLF, token=None, **limits):
    return make_app(service(folder, clf, **limits), token=token)


def pushed(folder, rows, *, clf=CLF, end=False, **limits):
    """Push rows, then stop: regularly, or as if killed. Gives the service."""
    made = service(folder, clf, **limits)

    async def work():
        made.open()
        for id, t, values in rows:
            await made.push(id, {"t": t, "values": values})
            await made.compact_if_long()
        if end:
            await made.close()
        else:
            made.log.close()

    asyncio.run(work())
    return made
