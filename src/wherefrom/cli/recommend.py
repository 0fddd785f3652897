"""`wherefrom methods recommend`: the leaderboard's answer for a model, a question and a budget."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from wherefrom.board.recommending import Recommended
    from wherefrom.model import Model

SHOWN = 6


def show_recommended(model: str, question: str, budget: float | None) -> None:
    """The recommended method, those beside it, and how far that can be believed."""
    from rich.console import Console
    from rich.table import Table

    import wherefrom
    from wherefrom.board.recommending import ASKED, question_called, recommend
    from wherefrom.cli.prose import fitted

    question, opened = question_called(question), wherefrom.open_model(model)
    found = recommend(opened, question, budget)
    first, best, console = found[0], max(found, key=lambda each: each.beaten), Console()
    table = Table(box=None, padding=(0, 2, 0, 0))
    for name in ("method", "beats", "forward passes", ""):
        table.add_column(name, no_wrap=name == "method")
    for each in found[:SHOWN]:
        passes = "–" if each.passes is None else f"{each.passes:g}"
        alike = "not told apart" if each.method in best.alike else ""
        beside = "recommended" if each is first else "the best" if each is best else alike
        table.add_row(each.method, f"{each.beaten:.0%}", passes, beside)
    console.print(f"{ASKED[question][2]}, on {opened.name}:", markup=False, highlight=False)
    console.print(table)
    within = "" if budget is None else " within the budget"
    own = _measured(opened, model, question, [each.method for each in found], within)
    said = (
        f"beats: of the other methods, {_resting(opened, question)} (docs/leaderboard.md). {_rule(opened, question)}"
        f"{_patented(found[:SHOWN])}"
        f"Forward passes are those of the leaderboard's GPU; on a CPU most take fewer (docs/methods.md). {own}"
    )
    console.print(fitted(said, console.width), markup=False, highlight=False, soft_wrap=True)


def _patented(shown: Sequence[Recommended]) -> str:
    """The reason why relevance propagation is in the list and never recommended."""
    from wherefrom.board.recommending import is_patented
    from wherefrom.patents import PATENT_NOTE

    if any(is_patented(each.method) for each in shown):
        return f"{PATENT_NOTE[0].upper()}{PATENT_NOTE[1:]}; it is not recommended. "
    return ""


def _resting(opened: Model, question: str) -> str:
    """On how many examples the answer rests."""
    from wherefrom.board.recommending import resting_on

    tables = resting_on(question, opened)
    pairs = "1 pair" if len(tables) == 1 else f"{len(tables)} pairs"
    return f"on an average one of {sum(tables.values())} examples of {pairs} of model and data"


def _rule(opened: Model, question: str) -> str:
    from wherefrom.board.recommending import tested_together

    return (
        "Of methods that are not told apart from the best, on as many tables, the cheapest is recommended. "
        if tested_together(question, opened)
        else ""
    )


def _measured(opened: Model, model: str, question: str, names: list[str], within: str) -> str:
    """Whether the model is one of those measured, and which method is first on it; how it can be where it is not."""
    from wherefrom import zoo
    from wherefrom.board.choosing import MEASURED
    from wherefrom.board.recommending import PICTURES, resting_on, table_kind

    tables = resting_on(question, opened)
    own = [name for name in tables if model in zoo.names() and name.startswith(f"{Path(model).name} on ")]
    if own:
        return f"{opened.name} is among them: {'; '.join(_first_on(table, question, names, within) for table in own)}."
    if opened.task in MEASURED:
        advice = f"wherefrom benchmark --model {model} --data YOURS --out runs/mine measures it"
    else:
        advice = "wherefrom evaluate measures methods on it (docs/evaluate.md)"
    texts = opened.images and not any(table_kind(name) == PICTURES for name in tables)
    reads = "reads pictures, and these were models of text" if texts else "was not among them"
    return f"{opened.name} {reads}: {advice}."


def _first_on(table: str, question: str, names: list[str], within: str) -> str:
    """Which method is first on one table, and where the recommended one stands there."""
    from wherefrom.board.recommending import best_on, is_patented

    name, share = best_on(table, question, names)
    said = f"{table}, where {name} is first{within} ({share:.0%}"
    if name == names[0]:
        return f"{said})"
    why = "relevance propagation is not recommended" if is_patented(name) else "one table tells less than all of them"
    return f"{said}; {names[0]} {best_on(table, question, names[:1])[1]:.0%}: {why})"
