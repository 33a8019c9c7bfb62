"""A warning points at the user's line. In a new Python: the checks of annotations put frames in between."""

from fresh_python import fresh_python


def test_columns_that_are_left_out():
    done = fresh_python("""
        import warnings
        import pandas as pd
        import neuralcde as nc

        frame = pd.DataFrame({"stay": ["a", "a"], "hour": [0.0, 1.0], "pulse": [70.0, 71.0], "note": ["x", "y"]})
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            nc.IrregularSeries.from_long(frame, id="stay", time="hour")
        (one,) = caught
        assert "note" in str(one.message)
        assert one.filename == "<string>", one.filename
    """)
    assert done.returncode == 0, done.stderr
