"""What recipes draw: the explanations of single sentences, token by token, and metrics layer by layer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from wherefrom.api import compare
from wherefrom.papers.recipe import RecipeCall, Table, by_layer, called, layers, number, used, with_last
from wherefrom.result.comparison import Comparison
from wherefrom.result.explanation import Explanation

if TYPE_CHECKING:
    from wherefrom.evaluation import Run
    from wherefrom.metric.correlation import Summary
    from wherefrom.papers.recipe import Draw, Place, Reported, Text
    from wherefrom.view.plot import Picture


def explained(
    asked: RecipeCall, text: Any, methods: Sequence[str], model: str = "", **question: Any
) -> dict[str, Explanation]:
    """Explain one text by several methods."""
    found = compare(text, model or asked.model, methods=list(methods), device=asked.device, **question)
    assert isinstance(found, Comparison)
    return dict(found)


def picture(named: Mapping[str, Explanation], kind: str, **options: Any) -> Draw:
    """The drawing of explanations, to be made when it is wanted."""

    def draw(_: Table) -> Picture:
        from wherefrom.view.plot import draw as drawn

        return drawn(named, kind, **options)

    return draw


def curve_picture(table: Mapping[Place, Summary], rows: Sequence[str], columns: Sequence[str], **options: Any) -> Any:
    """Layer curves with their intervals, to be drawn when they are wanted."""

    def draw(_: Table) -> Picture:
        from wherefrom.view.plot import Series, curves

        known = [row for row in rows if all((row, column) in table for column in columns)]
        return curves({row: Series.of(table[row, column] for column in columns) for row in known}, **options)

    return draw


def layer_curves(
    run: Run, rows: Mapping[str, str], metric: str, of: str, told: Mapping[Place, Reported] | None = None, **drawn: str
) -> Table:
    """A metric layer by layer, as a table and as curves; `told` are the paper's layers, which may be fewer."""
    ours = by_layer(run, rows, metric)
    pictures = {"": curve_picture(ours, list(rows), layers(ours), **drawn)}
    columns = with_last(ours, told or {})
    return Table(list(rows), columns, ours, f"Mean ± standard deviation of {of}", [used(run)], pictures=pictures)


def bar_picture(table: Mapping[Place, Summary], rows: Sequence[str], column: str) -> Draw:
    """One bar a row, with its interval, to be drawn when it is wanted."""

    def draw(_: Table) -> Picture:
        from wherefrom.view.plot import Series, bars

        return bars({column: Series.of(table[row, column] for row in rows)}, list(rows), y_label=column, written=True)

    return draw


def quote(text: Text) -> str:
    """A text, or both texts of a pair, in quotation marks."""
    return f"“{text}”" if isinstance(text, str) else f"“{text[0]}” / “{text[1]}”"


def token_rows(pieces: Sequence[str], prefix: str = "") -> list[str]:
    """A row for each token; a repeated token gets a number."""
    seen: dict[str, int] = {}
    rows = []
    for piece in pieces:
        seen[piece] = seen.get(piece, 0) + 1
        rows.append(prefix + piece + (f" ({seen[piece]})" if seen[piece] > 1 else ""))
    return rows


def token_layer_table(
    call: RecipeCall,
    texts: Sequence[Text],
    methods: Mapping[str, str],
    of: str,
    *,
    shares: bool = False,
    kind: str = "layers",
    model: str = "",
    **options: Any,
) -> Table:
    """The scores of every token up to every layer, a column for each method and layer, and a picture of each text.

    shares: of each layer's sum, for methods whose scores grow from layer to layer. options: of the picture.
    """
    ours: dict[Place, Summary] = {}
    rows, used, pictures = [], [], {}
    predictions: dict[Text, str | None] = {}
    columns: dict[str, None] = {}
    for place, text in enumerate(texts, 1):
        named = dict(zip(methods, explained(call, text, list(methods.values()), model=model).values(), strict=True))
        first = next(iter(named.values()))
        names = token_rows(first.pieces, f"{place}. " if len(texts) > 1 else "")
        rows += names
        for method, explanation in named.items():
            assert explanation.readout_rows is not None
            for layer, scores in enumerate(explanation.readout_rows, 1):
                column = f"{method} L{layer}" if len(methods) > 1 else f"L{layer}"
                columns[column] = None
                scale = scores.sum() if shares else 1.0
                ours |= {(row, column): number(score / scale, 1) for row, score in zip(names, scores, strict=True)}
        predictions[text] = first.prediction
        used.append(f"{called(model or call.model)} on {quote(text)}, which it calls {first.prediction}")
        pictures[f"-{place}" if len(texts) > 1 else ""] = picture(named, kind, **options)
    return Table(rows, list(columns), ours, of, used, pictures=pictures, predictions=predictions)


def token_table(
    asked: RecipeCall,
    texts: Sequence[Any],
    methods: Mapping[str, str],
    kind: str,
    of: str = "",
    *,
    shares: bool = False,
    question: Mapping[str, Any] | None = None,
    **options: Any,
) -> Table:
    """Every token's score by every method (a column each), and a picture of each sentence. As `shares` of their sum
    where scores have no scale of their own. `question` is what of the output is explained (target, position).
    """
    ours: dict[Place, Summary] = {}
    rows, said, pictures = [], [], {}
    for place, text in enumerate(texts, 1):
        found = explained(asked, text, list(methods.values()), **(question or {}))
        named = dict(zip(methods, found.values(), strict=True))
        first = next(iter(named.values()))
        rows += (names := token_rows(first.pieces, f"{place}. " if len(texts) > 1 else ""))
        for name, each in named.items():
            scale = each.scores.sum() if shares else 1.0
            ours |= {(row, name): number(score / scale, 1) for row, score in zip(names, each.scores, strict=True)}
        said.append(f"{called(asked.model)} on {quote(text)}, which it calls {first.prediction}")
        pictures[f"-{place}" if len(texts) > 1 else ""] = picture(named, kind, **options)
    what = of or "What the readout token draws on in the last layer"
    return Table(rows, list(methods), ours, what, said, pictures=pictures)
