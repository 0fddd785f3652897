"""Pages that promise exactness state the tolerances that hold."""

from __future__ import annotations

import pytest
from pages import DOCS

from wherefrom.method.exact_sum import HALF_SUM_TOLERANCE, SUM_TOLERANCE
from wherefrom.model.proof import TOLERANCE

pytestmark = pytest.mark.skipif(not (DOCS / "methods.md").exists(), reason="the documentation is not beside the tests")


def short(tolerance: float) -> str:
    """1e-05 as pages write it."""
    return f"{tolerance:.0e}".replace("e-0", "e-")


@pytest.mark.parametrize("page", ["methods.md", "models.md"])
def test_tolerances_of_the_proof_are_stated(page: str) -> None:
    text = " ".join((DOCS / page).read_text(encoding="utf-8").split())
    for dtype, tolerance in TOLERANCE.items():
        name = str(dtype).removeprefix("torch.")
        assert f"{short(tolerance)} in {name}" in text or f"{short(tolerance)} of the largest number in {name}" in text


def test_tolerances_of_exact_sums_are_stated() -> None:
    text = " ".join((DOCS / "methods.md").read_text(encoding="utf-8").split())
    assert f"within {short(SUM_TOLERANCE)} of the number, in half precision within {short(HALF_SUM_TOLERANCE)}" in text
