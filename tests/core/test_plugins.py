"""A package of somebody else's that adds a method and a metric by entry points, and one that is broken."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

POINTS = """\
[wherefrom.methods]
received = outside:received
lost = outside_broken

[wherefrom.metrics]
top = outside:top
"""
OUTSIDE = '''
"""Attention that a token receives."""
from wherefrom.method import method
from wherefrom.method.citations import ABNAR_2020
from wherefrom.metric.base import Case, MetricSpec, Part, metric
from wherefrom.work import Work


@method(
    "received",
    idea="of another package",
    paper=ABNAR_2020,
    needs={"attention"},
    checks={"batch-equals-single"},
    cost=lambda s, _: Work(moved=s.pairs),
)
def received(layer, *, power: float = 1.0):
    """Attention, to a power."""
    return layer.attention.mean(1) ** power


@metric("top")
def top(case: Case, asked: MetricSpec):
    """The largest score."""
    yield Part(None, float(case.explanation.scores.max()))
'''
SCRIPT = """
import warnings
from typer.testing import CliRunner
import wherefrom
from wherefrom.cli import app

with warnings.catch_warnings(record=True) as seen:
    warnings.simplefilter("always")
    listed = CliRunner().invoke(app, ["methods"]).output
assert ["the method 'lost' of outside is left out" in str(each.message) for each in seen] == [True], seen
assert "of another package" in listed, listed
assert "top" in CliRunner().invoke(app, ["metrics"]).output
assert wherefrom.explain("a deep film .", method="received(power=2)").maps is not None
wherefrom.testing.check_method("received")
data = wherefrom.data.read("grammar", limit=2)
run = wherefrom.evaluate(data, "wherefrom/agreement", methods=["received"], metrics=["top"])
assert {key.metric for key in run.summary} == {"top"}
"""


def test_a_package_adds_a_method_and_a_metric(tmp_path: Path) -> None:
    (tmp_path / "outside-1.0.dist-info").mkdir()
    for name, text in {
        "outside-1.0.dist-info/METADATA": "Metadata-Version: 2.1\nName: outside\nVersion: 1.0\n",
        "outside-1.0.dist-info/entry_points.txt": POINTS,
        "outside.py": OUTSIDE,
        "outside_broken.py": "import no_such_module\n",
    }.items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    paths = os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")]).rstrip(os.pathsep)
    ran = subprocess.run(
        [sys.executable, "-c", SCRIPT], env={**os.environ, "PYTHONPATH": paths}, capture_output=True, text=True
    )
    assert ran.returncode == 0, ran.stderr
