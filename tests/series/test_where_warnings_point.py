"""Warnings point at the user's line. Checked in a new process, because checks of annotations add stack frames."""

from fresh_python import fresh_python


def test_the_warning_about_columns_left_out_points_at_the_caller():
    done = fresh_python("""
        import warnings
        import pandas as pd
        import neuralcde as nc

        frame = pd.DataFrame({"stay": ["a", "a"], "hour": [0.0, 1.0], "pulse": [70.0, 71.0], "note": [[1], [2]]})
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            nc.IrregularSeries.from_long(frame, id="stay", time="hour")
        (one,) = caught
        assert "note" in str(one.message)
        assert one.filename == "<string>", one.filename
    """)
    assert done.returncode == 0, done.stderr
