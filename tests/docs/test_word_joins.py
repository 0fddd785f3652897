"""The page on words names the methods whose pieces are averaged."""

from __future__ import annotations

import re

import pytest
from pages import DOCS

import wherefrom

pytestmark = pytest.mark.skipif(not (DOCS / "methods.md").exists(), reason="the documentation is not beside the tests")


def test_methods_averaged_over_words_are_those_that_do_not_add_up() -> None:
    section = (DOCS / "methods.md").read_text(encoding="utf-8").split("## Over words")[1].split("\n## ")[0]
    sentence = re.search(r"there it is the mean \(([^)]*)\)", section)
    assert sentence is not None
    named = re.findall(r"`([a-z-]+)`", sentence[1])
    assert named == sorted(each.name for each in wherefrom.methods() if not each.additive)
