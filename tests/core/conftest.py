"""What several tests of the core begin with."""

from __future__ import annotations

import pytest

import tiny


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A classifier and its tokenizer on disk."""
    path = tmp_path_factory.mktemp("model")
    tiny.model().save_pretrained(path)
    tiny.tokenizer().save_pretrained(path)
    return str(path)
