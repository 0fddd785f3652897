"""`wherefrom methods recommend`: the leaderboard's answer for a model, a question and a budget."""

from __future__ import annotations

SHOWN = 6


def show_recommended(model: str, question: str, budget: float | None) -> None:
    """The recommended method, those beside it, and how far that can be believed."""
    from rich.console import Console
    from rich.table import Table

    import wherefrom
    from wherefrom.board.recommending import ASKED, recommend, shipped
    from wherefrom.cli.prose import fitted

    opened = wherefrom.open_model(model)
    found = recommend(opened, question, budget)
    first, console = found[0], Console()
    table = Table(box=None, padding=(0, 2, 0, 0))
    for name in ("method", "beats", "forward passes", ""):
        table.add_column(name, no_wrap=name == "method")
    for each in found[:SHOWN]:
        passes = "–" if each.passes is None else f"{each.passes:g}"
        beside = "recommended" if each is first else "not told apart" if each.method in first.alike else ""
        table.add_row(each.method, f"{each.beaten:.0%}", passes, beside)
    console.print(f"{ASKED[question][2]}, on {opened.name}:", markup=False, highlight=False)
    console.print(table)
    said = (
        f"beats: of the other methods, on an average of {shipped()['examples']} examples of {len(shipped()['tables'])} "
        f"pairs of model and data (docs/leaderboard.md). Of methods not told apart the cheapest is recommended. "
        f"Your model was not among them: wherefrom benchmark --model {model} --data YOURS --out runs/mine measures it."
    )
    console.print(fitted(said, console.width), markup=False, highlight=False, soft_wrap=True)
