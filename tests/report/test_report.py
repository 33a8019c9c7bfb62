"""The report: made by the installed command and opened in a browser."""

import base64
import dataclasses
import hashlib
import html
import json
import re
import shutil
import subprocess
import sys
import warnings
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import polars as pl
import pytest
import torch
from markupsafe import escape
from report_runs import NASTY, fitted, series_of, targets_of

import neuralcde as nc
from neuralcde import NeuralCDEClassifier
from neuralcde.figures import score
from neuralcde.report import record_run, write_report
from neuralcde.report.examples import example_figures, telling_channels
from neuralcde.report.explained import explanation_of_examples
from neuralcde.report.learning import learning_curves
from neuralcde.report.run import read_run

pytestmark = pytest.mark.xdist_group("report")  # these tests share slow fixtures

COMMAND = str(Path(sys.executable).parent / "neuralcde")
CHROMIUM = shutil.which("chromium")
WIDTHS = (320, 400, 1200)  # a small phone, a phone, a desk
LONGEST = 5000  # pixels of a page on a phone, with its sections folded
POLICY = re.compile(r'<meta http-equiv="Content-Security-Policy"[^>]*>')
FIGURES = {"binary": 13, "multiclass": 12, "regression": 13}

# Added to a report: moves its sliders, opens its sections, and sends what it finds to the enclosing page.
PROBE = """<script>addEventListener("load", () => {
  const all = (what) => [...document.querySelectorAll(what)];
  const found = {frame: name, folded: document.documentElement.scrollHeight, given: innerWidth};
  found.open = all("details.section").map(section => section.open);
  found.sliders = all(".slider").map(box => {
    const slider = box.querySelector("input"), seen = [];
    for (const place of [0, slider.max]) {
      slider.value = place;
      slider.dispatchEvent(new Event("input"));
      seen.push([...box.querySelectorAll("output")].map(cell => cell.textContent)); }
    return {seen, hidden: box.hidden, rows: JSON.parse(box.dataset.rows)}; });
  all("details").forEach(section => { section.open = true; });
  found.needed = document.documentElement.scrollWidth;
  found.figures = all("figure svg").map(svg => {
    const box = svg.getBoundingClientRect(), label = svg.getAttribute("aria-label");
    return {width: box.width, height: box.height, label, drawn: svg.querySelectorAll("path, use").length}; });
  found.scripts = all("script").length - 1;
  found.text = document.body.innerText;
  parent.postMessage(found, "*"); })</script>"""
# The enclosing page, to which one frame per width is added.
FRAMES = """<!DOCTYPE html><pre id="found"></pre><script>
console.error("this one is heard");
const found = {};
addEventListener("message", event => {
  found[event.data.frame] = event.data;
  document.getElementById("found").textContent = JSON.stringify(found); });
</script>"""


def run(*arguments):
    return subprocess.run([COMMAND, *map(str, arguments)], capture_output=True, text=True, timeout=120)


class Pages(dict):
    """One page per kind of task, made on first use; the binary one by the installed command."""

    def __init__(self, root):
        self.root = root

    def __missing__(self, kind):
        folder = self.root / kind
        if kind == "binary":
            self[kind] = page_by_command(folder)
        else:
            fitted(kind, folder, count=80, path="rectilinear" if kind == "multiclass" else "linear")
            self[kind] = write_report(folder)
        return self[kind]


def page_by_command(folder):
    """Fit and report as a user does; the table is deleted before the report is made."""
    series = series_of(44)
    labels = pl.DataFrame({"id": series.ids.tolist(), "out come": targets_of("binary", series).tolist()})
    table = folder.with_suffix(".csv")
    series.to_long("polars").join(labels, on="id").write_csv(table)
    names = ["--id", "id", "--time", "time", "--label", "out come", "--static", "age", "--static", "unit"]
    small = ["--max-epochs", 3, "--hidden", 4, "--width", 4, "--verbose", 0]
    done = run("fit", table, *names, "--out", folder, *small)
    assert done.returncode == 0, done.stderr
    table.unlink()
    done = run("report", folder)
    assert done.returncode == 0, done.stderr
    assert f"report: {folder / 'report.html'}" in done.stdout
    return folder / "report.html"


@pytest.fixture(scope="module")
def pages(tmp_path_factory):
    return Pages(tmp_path_factory.mktemp("reports"))


class Tags(HTMLParser):
    """Collect the opening tags, and check that each is closed in the right order."""

    def __init__(self, text):
        super().__init__()
        self.opened, self.links, self.stack = [], [], []
        self.feed(text)
        assert not self.stack

    def handle_starttag(self, tag, attributes):
        self.opened.append(tag)
        self.links += [value for name, value in attributes if name in ("href", "src", "xlink:href", "srcset")]
        if tag not in ("meta", "br", "input"):
            self.stack.append(tag)

    def handle_endtag(self, tag):
        assert self.stack.pop() == tag

    def handle_startendtag(self, tag, attributes):
        self.handle_starttag(tag, attributes)
        self.stack.pop()


@pytest.mark.parametrize("kind", FIGURES)
def test_the_page_loads_nothing_from_elsewhere(pages, kind):
    text = pages[kind].read_text()
    tags = Tags(text)
    assert not {"link", "img", "iframe", "object", "base", "form"} & set(tags.opened)
    scripts = re.findall(r"<script>(.*?)</script>", text, re.DOTALL)
    assert tags.opened.count("script") == len(scripts) == 1
    digest = base64.b64encode(hashlib.sha256(scripts[0].encode()).digest()).decode()
    policy = html.unescape(re.search(r'Content-Security-Policy" content="([^"]*)"', text)[1])
    assert policy.startswith(f"default-src 'none'; script-src 'sha256-{digest}';")
    assert all(link.startswith("#") for link in tags.links)
    assert not re.search(r"https?://|@import|url\((?!#)", text)
    assert tags.opened.count("figure") == tags.opened.count("svg") == FIGURES[kind]
    ids = re.findall(r'<[^>]* id="([^"]+)"', text)
    assert len(ids) == len(set(ids))
    assert {link[1:] for link in tags.links} <= set(ids)


@pytest.mark.parametrize("kind", ["binary", "multiclass"])
def test_names_are_escaped(pages, kind):
    text = pages[kind].read_text()
    assert text.count("<script") == 1  # our own
    assert "<b>" not in text.replace("<b>0.", "").replace("<b>1.", "")  # the headline is the only bold number
    assert escape(NASTY) in text
    assert "&lt;b&gt;" in text


def test_the_headline_is_the_test_metric(pages):
    for kind, name in (("binary", "AUROC"), ("multiclass", "Accuracy"), ("regression", "R²")):
        found = read_run(pages[kind].parent)
        value = found.estimator.task_.metrics(found.outputs, found.targets)[found.estimator.task_.metric]
        assert f"<b>{score(value)}</b> <span>{name} on " in pages[kind].read_text()
    metrics = json.loads((pages["binary"].parent / "metrics.json").read_text())
    assert f"{metrics['test']['auroc']:.3f}" in pages["binary"].read_text()
    assert f"{metrics['cost']['parameters']:,}" in pages["binary"].read_text()


def test_missing_parts_are_stated(pages):
    assert "There was no validation set" in pages["binary"].read_text()  # 35 series are too few
    assert "There was no validation set" not in pages["multiclass"].read_text()
    assert "not measured" in pages["multiclass"].read_text()  # fitted in Python
    assert "not measured" not in pages["binary"].read_text()


def test_the_same_run_gives_the_same_page(pages):
    before = pages["regression"].read_bytes()
    assert write_report(pages["regression"].parent).read_bytes() == before


@pytest.mark.skipif(CHROMIUM is None, reason="chromium is not installed: apt-get install chromium")
@pytest.mark.parametrize("kind", FIGURES)
def test_the_page_renders_in_a_browser_at_every_width(pages, kind, tmp_path):
    """Figures have a size, nothing is wider than the window, and the console has no messages."""
    page = POLICY.sub("", pages[kind].read_text())  # it would not let the probe run
    (tmp_path / "copy.html").write_text(page.replace("</body>", f"{PROBE}</body>"))
    frames = [
        f'<iframe name="w{w}" src="copy.html" style="width:{w}px;height:900px;border:0"></iframe>' for w in WIDTHS
    ]
    (tmp_path / "frames.html").write_text(FRAMES + "".join(frames))
    shown, said = in_browser(tmp_path / "frames.html", tmp_path)
    assert len(said) == 1, said
    assert "this one is heard" in said[0]
    found = json.loads(html.unescape(re.search(r'<pre id="found">(.*?)</pre>', shown, re.DOTALL)[1]))
    assert set(found) == {f"w{w}" for w in WIDTHS}
    for width in WIDTHS:
        page = found[f"w{width}"]
        assert page["given"] == width
        assert page["needed"] <= width
        assert page["scripts"] == 1
        assert set(page["open"]) == {width > 800}
        assert width > 800 or page["folded"] <= LONGEST
        assert len(page["figures"]) == FIGURES[kind]
        for figure in page["figures"]:
            assert figure["width"] > 250, figure
            assert figure["height"] > 150, figure
            assert figure["drawn"] > 5, figure
            assert figure["label"]
        assert "Examples" in page["text"]
        assert len(page["sliders"]) == (kind == "binary")
        for slider in page["sliders"]:
            assert not slider["hidden"]
            assert slider["seen"] == [slider["rows"][0], slider["rows"][-1]]
    if kind == "binary":
        assert NASTY.split(" & ")[0] in found["w1200"]["text"]


def in_browser(file, folder):
    """The document as a browser has it after running its scripts, and what it says on the console."""
    options = ["--headless=new", "--no-sandbox", "--disable-gpu", "--enable-logging=stderr", "--v=0"]
    options += [f"--user-data-dir={folder / 'profile'}", "--virtual-time-budget=5000", "--dump-dom"]
    done = subprocess.run([CHROMIUM, *options, file.as_uri()], capture_output=True, text=True, timeout=120)
    return done.stdout, [line for line in done.stderr.splitlines() if "CONSOLE" in line]


@pytest.mark.skipif(CHROMIUM is None, reason="chromium is not installed: apt-get install chromium")
def test_the_page_runs_its_own_script_and_no_other(pages, tmp_path):
    other = "<script>document.title = 'taken over'</script><p onclick='1'>"
    (tmp_path / "page.html").write_text(pages["binary"].read_text().replace("<main>", f"<main>{other}"))
    shown, said = in_browser(tmp_path / "page.html", tmp_path)
    assert "<title>taken over" not in shown
    assert sum("Content Security Policy" in line for line in said) >= 1
    assert re.search(r'<div class="slider"[^>]*>', shown)[0].count("hidden") == 0  # its own script has shown it


def test_a_page_without_javascript_has_the_table_of_alarms(pages):
    text = pages["binary"].read_text()
    assert re.search(r'<div class="slider" hidden', text)
    table = text[text.index('id="alarms"') :]
    assert not re.search(r"<details", text[: text.index('id="alarms"')])  # it is not folded
    rows = re.findall(r"<tr>((?:<td class=\"n\">[^<]*</td>){6})</tr>", table)
    assert 3 <= len(rows) <= 7
    written = json.loads(html.unescape(re.search(r"data-rows='([^']*)'", text)[1]))
    assert all(re.findall(r">([^<]+)<", row) in written for row in rows)


@pytest.mark.parametrize(("kind", "figures"), [("labels", 10), ("targets", 15), ("rows", 13)])
def test_reports_cover_every_kind_of_target(kind, figures, tmp_path):
    """Several labels, several numbers, one label per row."""
    fitted(kind, tmp_path, pool="mean" if kind == "targets" else "last")
    text = write_report(tmp_path).read_text()
    assert Tags(text).opened.count("svg") == figures
    assert ("rows of 15 test series" in text) == (kind == "rows")
    assert ("read off the mean state" in text) == (kind == "targets")


def test_curves_of_a_calibrated_model_say_what_they_show(tmp_path):
    """Chances for parts of series are not calibrated, beside a verdict that is; those per row are."""
    fitted("binary", tmp_path / "series", count=40, calibrate="temperature")
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # nobody asked for predictions at times
        page = write_report(tmp_path / "series").read_text()
    assert page.count(", before calibration") >= 3
    fitted("rows", tmp_path / "rows", count=40, calibrate="temperature")
    run = read_run(tmp_path / "rows")
    for drawing in example_figures(run, explanation_of_examples(run.estimator, run.examples, run.label)):
        assert "before calibration" not in drawing.svg


def test_all_parts_of_a_page_call_a_class_by_the_same_name(tmp_path):
    """A class that is a number has the name of its column before it, in explanations too."""
    fitted("rows", tmp_path)
    (tmp_path / "config.toml").write_text('label = "sepsis"\n')
    text = write_report(tmp_path).read_text()
    assert text.count("predicted chance of sepsis 1") >= 6
    assert "target 1" not in text


def test_the_channels_of_an_example_are_those_of_its_explanation(tmp_path):
    """One text column counts as one channel, the category that varies most."""
    series = series_of(60, channels=["a", "b", "c", "d", "e", "f"])
    fitted("regression", tmp_path, series=series)
    run = read_run(tmp_path)
    explanation = explanation_of_examples(run.estimator, run.examples, run.label)
    moved = {item.column: item.moved for item in explanation.importances() if item.kind == "channel"}
    chosen = [series.channel_names[k] for k in telling_channels(run, explanation)]
    assert sorted(moved, key=moved.get)[-4:] == sorted(chosen, key=moved.get)
    assert chosen == sorted(chosen)
    assert len(telling_channels(run, None)) == 4


def test_the_learning_curve_tells_which_weights_were_kept(tmp_path):
    estimator, *_ = fitted("binary", tmp_path, count=80, max_epochs=3)
    member = estimator.members_[0]
    for averaged, word in (([], "kept"), ([1, 3], "best")):
        estimator.members_ = [dataclasses.replace(member, averaged_epochs=averaged)]
        drawing = learning_curves(estimator)[-1]
        assert f"{word}: epoch {estimator.best_epoch_}" in drawing.svg
        assert ("The average of the weights of the best epochs is kept" in drawing.see) == bool(averaged)


def test_a_test_of_one_class_has_no_curves(tmp_path):
    series = series_of(24)
    estimator, *_ = fitted("binary", tmp_path, series=series)
    targets = targets_of("binary", series)
    record_run(tmp_path, estimator, series, targets, test=np.flatnonzero(targets == "well")[:5])
    text = write_report(tmp_path).read_text()
    assert "There are no figures for this test" in text
    assert "<strong>ROC curve" not in text


def test_rare_classes_are_grouped_in_the_confusion_matrix(tmp_path):
    series = series_of(160)
    targets = np.arange(160) % 40
    estimator = NeuralCDEClassifier(max_epochs=1, hidden=4, width=4, random_state=0).fit(series, targets)
    estimator.save(tmp_path)
    record_run(tmp_path, estimator, series, targets, test=np.arange(0, 160, 3))
    assert "17 others" in write_report(tmp_path).read_text()


@pytest.mark.parametrize("name", ["config.json", "data.json", "test_outputs.safetensors", "examples.safetensors"])
def test_missing_and_damaged_files_are_named(pages, name, tmp_path):
    folder = tmp_path / "model"
    shutil.copytree(pages["regression"].parent, folder)
    (folder / name).write_bytes(b"{")
    with pytest.raises(ValueError, match="damaged"):
        read_run(folder)
    (folder / name).unlink()
    with pytest.raises(FileNotFoundError, match=re.escape(name)):
        read_run(folder)


def test_files_of_two_runs_are_not_mixed(pages, tmp_path):
    shutil.copytree(pages["regression"].parent, tmp_path, dirs_exist_ok=True)
    shutil.copy(pages["multiclass"].parent / "test_outputs.safetensors", tmp_path)
    with pytest.raises(ValueError, match="different runs"):
        read_run(tmp_path)


def test_a_new_model_is_not_reported_with_the_outputs_of_the_old_one(pages, tmp_path):
    shutil.copytree(pages["regression"].parent, tmp_path, dirs_exist_ok=True)
    other = nc.load(tmp_path)
    with torch.no_grad():
        other.module_.readout.linear.bias += 1.0
    other.save(tmp_path)
    with pytest.raises(ValueError, match="different runs"):
        read_run(tmp_path)


def test_a_folder_without_a_record_exits_with_2_and_a_clear_message(pages, tmp_path):
    folder = tmp_path / "model"
    shutil.copytree(pages["regression"].parent, folder)
    (folder / "data.json").unlink()
    (folder / "report.html").unlink()
    done = run("report", folder)
    assert done.returncode == 2
    assert "data.json is not there" in " ".join(done.stderr.split())
    assert "Traceback" not in done.stderr
    assert not (folder / "report.html").exists()
    with pytest.raises(FileNotFoundError, match="was not written by neuralcde"):
        write_report(tmp_path / "nowhere")
