from collections.abc import Callable
from typing import Any

import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

BUILD = {"pandas": pd.DataFrame, "polars": pl.DataFrame, "pyarrow": pa.table}


@pytest.fixture(params=BUILD)
def backend(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture
def build(backend: str) -> Callable[[dict[str, Any]], Any]:
    """Build a data frame from columns, once per library."""
    return BUILD[backend]
