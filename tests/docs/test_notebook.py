"""The notebook of the examples runs from top to bottom, and its results show themselves."""

import ast
import datetime
import json
import sys
import types
from html.parser import HTMLParser

import numpy as np
import polars as pl
import pytest
from page_runs import ROOT

import neuralcde as nc

NOTEBOOK = ROOT / "examples" / "notebook.ipynb"


class Shell:
    """What a notebook does with a cell: run it, and show the value of its last line."""

    def __init__(self):
        self.names, self.shown = {"__name__": "__main__"}, []

    def run(self, source):
        tree = ast.parse(source)
        last = tree.body.pop() if isinstance(tree.body[-1], ast.Expr) else None
        exec(compile(tree, "cell", "exec"), self.names)
        if last is not None:
            value = eval(compile(ast.Expression(last.value), "cell", "eval"), self.names)
            self.shown.append((value, html_of(value)))


def html_of(value):
    """The HTML that a notebook shows for a value; None if it has text only."""
    if hasattr(value, "_repr_mimebundle_"):
        return value._repr_mimebundle_().get("text/html")
    return value._repr_html_() if hasattr(value, "_repr_html_") else None


@pytest.fixture
def displayed(monkeypatch):
    """A stand-in for the part of IPython that shows things; the list of what it has shown."""
    from matplotlib import pyplot

    pyplot.switch_backend("agg")  # choosing a backend later would look for more of IPython
    pages = []

    class Handle:
        def update(self, thing):
            pages.append(thing.data)

    def display(thing, *, display_id):
        pages.append(thing.data)
        return Handle()

    shell = type("ZMQInteractiveShell", (), {})()
    ipython = types.ModuleType("IPython")
    ipython.get_ipython = lambda: shell
    ipython.version_info = (9, 0, 0)
    ipython.display = types.ModuleType("IPython.display")
    ipython.display.HTML = type("HTML", (), {"__init__": lambda self, data: setattr(self, "data", data)})
    ipython.display.display = display
    monkeypatch.setitem(sys.modules, "IPython", ipython)
    monkeypatch.setitem(sys.modules, "IPython.display", ipython.display)
    return pages


def test_the_notebook_runs(displayed, capsys):
    from matplotlib import pyplot

    shell, document = Shell(), json.loads(NOTEBOOK.read_text())
    assert document["nbformat"] == 4
    for cell in document["cells"]:
        if cell["cell_type"] == "code":
            assert cell["outputs"] == []
            shell.run("".join(cell["source"]))
    pyplot.close("all")
    series, checks, observed, path, clf, risk, account, important = shell.shown
    assert "<strong>IrregularSeries</strong>" in series[1]
    assert "<svg" in series[1]
    assert checks[0] == []
    assert [panel.get_title(loc="left") for panel in observed[0]] == ["pulse", "pressure", "lactate"]
    assert len(path[0]) == 6
    assert "fitted on</th><td>76 series, 6 channels" in clf[1]  # and 14 for validation
    assert "<svg" in clf[1]
    assert risk[0].get_ylim()[1] == pytest.approx(1.03)
    assert account[0].get_title()
    assert len(important[0]) == 3
    assert capsys.readouterr().err == ""  # the bar is shown in the notebook, not on stderr
    assert displayed[-1].count('value="3"') == 1
    assert 'max="3"' in displayed[-1]
    assert "epoch 3/3" in displayed[-1]


class Closed(HTMLParser):
    """Check that all tags are closed, and collect them."""

    def __init__(self, text):
        super().__init__()
        self.stack, self.tags = [], set()
        self.feed(text)
        assert not self.stack

    def handle_starttag(self, tag, attributes):
        self.tags.add(tag)
        self.stack.append(tag)

    def handle_endtag(self, tag):
        assert self.stack.pop() == tag

    def handle_startendtag(self, tag, attributes):
        self.tags.add(tag)


NASTY = "<script>alert(1)</script>"


def nasty(count=12):
    rng = np.random.default_rng(0)
    pairs = [(np.arange(4.0), rng.normal(size=(4, 2))) for _ in range(count)]
    return nc.IrregularSeries.from_list(pairs, ids=[f"{NASTY}{k}" for k in range(count)], channels=[NASTY, "b"])


def test_names_are_shown_as_text():
    series = nasty()
    text = series._repr_html_()
    assert NASTY not in text
    assert "&lt;script&gt;" in text
    assert Closed(text).tags <= {"div", "strong", "table", "tr", "th", "td", "svg", "polyline", "circle"}
    empty = series[:0]._repr_html_()
    assert "<td>0</td>" in empty
    many = nc.IrregularSeries.from_padded(np.full((2, 3, 9), np.nan), lengths=[3, 3])._repr_html_()
    assert "3 more" in many
    assert "not observed" in many


def test_unknown_ids_and_channels_are_refused():
    series = nasty()
    with pytest.raises(ValueError, match=r"id: no series has the id 'x'; the ids are '<script>"):
        series.plot("x")
    with pytest.raises(ValueError, match=r"channels: there is no channel 'c'"):
        series.plot(series.ids[0], channels=["c"])
    with pytest.raises(ValueError, match=r"axes are 1, but there are 2 panels"):
        series.plot(series.ids[0], axes=[None])


@pytest.mark.parametrize("kind", ["classes", "numbers", "labels"])
def test_the_risk_of_every_kind_of_task_is_plotted(kind):
    from matplotlib import pyplot

    series, place = nasty(), np.arange(12)
    y = {"classes": place % 3, "numbers": place * 1.0, "labels": np.stack([place % 2, place // 6], 1)}[kind]
    make = nc.NeuralCDERegressor if kind == "numbers" else nc.NeuralCDEClassifier
    axes = make(max_epochs=1, hidden=4, width=4).fit(series, y).plot_risk(series, series.ids[3])
    assert len(axes.get_lines()) == {"classes": 6, "numbers": 2, "labels": 4}[kind]
    pyplot.close("all")


def dated():
    """Two stays on one day, with times in seconds since 1970."""
    at = [datetime.datetime(2026, 1, 1, hour) for hour in (6, 9, 18)]
    frame = pl.DataFrame({"stay": list("aaabbb"), "at": at * 2, "pulse": [0.94, 2, 3, 4, 5, 7]})
    return nc.IrregularSeries.from_long(frame.with_columns(lactate=pl.col("pulse") * 2), id="stay", time="at")


def test_plots_of_dates_count_hours_since_the_start():
    from matplotlib import pyplot

    series = dated()
    clf = nc.NeuralCDEClassifier(max_epochs=1, hidden=4, width=4).fit(series, [0, 1])
    panels = [series.plot("b")[-1], clf.plot_risk(series, "b"), nc.linear(series).plot("b")[-1]]
    for panel in panels:
        assert panel.get_xlabel() == "hours since start"
        np.testing.assert_allclose(panel.get_lines()[-1].get_xdata(), [0, 3, 12])
    scaled = nc.SeriesScaler().fit(series).transform(series)
    assert nc.linear(scaled).plot("b")[-1].get_xlabel() == "time"  # of no unit
    assert {term.time[:11] for term in clf.explain(series[:1]).top(0, 99)} == {"2026-01-01T"}
    pyplot.close("all")


def test_a_channel_is_plotted_by_its_name():
    from matplotlib import pyplot

    (panel,) = dated().plot("a", channels="pulse")
    assert panel.get_title(loc="left") == "pulse"
    pyplot.close("all")


def test_explanations_have_the_values_of_the_table():
    """0.94 in float32 is 0.9399999976158142."""
    series = dated()
    explanation = nc.NeuralCDEClassifier(max_epochs=1, hidden=4, width=4).fit(series, [0, 1]).explain(series)
    assert 0.94 in {term.value for term in explanation.top(0, 99)}
    assert 0.94 in explanation.to_long()["value"].to_list()


def test_functions_for_arrays_are_refused_with_one_sentence():
    from sklearn.ensemble import BaggingClassifier
    from sklearn.inspection import permutation_importance

    series, y = nasty(), np.arange(12) % 2
    clf = nc.NeuralCDEClassifier(max_epochs=1, hidden=4, width=4).fit(series, y)
    with pytest.raises(TypeError, match=r"permutation_importance .*estimator\.explain\(series\)"):
        permutation_importance(clf, series, y)
    with pytest.raises(TypeError, match=r"BaggingClassifier .*members=5"):
        BaggingClassifier(clf, n_estimators=2).fit(series, y)
    with pytest.raises(TypeError, match=r"to_padded\(\)"):
        np.asarray(series)
