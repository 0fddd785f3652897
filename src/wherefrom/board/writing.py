"""The leaderboard as a page in Markdown, a picture beside it, and a record for programs: from saved results alone."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from math import isnan
from pathlib import Path

from wherefrom.board.choosing import CUES, FAITHFUL, PAINTED, PLAUSIBLE
from wherefrom.board.reading import Board, BoardTable
from wherefrom.board.recommending import CHANCE
from wherefrom.defaults import DEFAULT_METHODS
from wherefrom.files import write
from wherefrom.metric.standings import LEVEL, Standings

CHEAP = 10.0  # forward passes
PICTURES, TRANSLATIONS = "pictures", "translations"  # kinds of tables that a board may lack
GOING = {PICTURES: "of a picture its patches", TRANSLATIONS: "of a translation those of its source"}
BY = {PAINTED: "painting patches with the mean colour"}
ABOUT = {
    "faithful": (
        "Is it what the model uses?",
        "Tokens{} go in the order of the scores, and the probability is read again: AOPC, log-odds, comprehensiveness, "
        "sufficiency, and the area between the least and the most relevant tokens going first.",
    ),
    "plausible": ("Is it what people marked?", "Area under precision and recall, and token F1, against rationales."),
    "cues": (
        "Is it the word that decides the grammar?",
        "Average precision and reciprocal rank of the cue words of a minimal pair.",
    ),
}
CANNOT = (
    "**Your model.** These are the models in the tables below; the order of methods on another one, and on a larger "
    "one above all, may be another. `wherefrom benchmark --model YOURS --data YOURS` asks it.",
    "**Truth.** Nobody knows the reasons of a model. Erasure feeds it inputs it never learnt from, and a method that "
    "is built on erasing tokens (`ablation`) or on a blank baseline (`deeplift`, `integrated-gradients`) asks almost "
    "the question by which it is judged here.",
    "**Maps.** Methods that look at no output say what a representation is made of. They are judged here by a question "
    "that they do not ask, and stand lower for it; for a map of every layer the others are no answer at all.",
    "**A sum.** Erasure looks at the order of tokens. Whether scores add up to the output, or by how much one token "
    "weighs more than another, is not in it.",
    "**People.** What people marked is what persuades them, not what the model used.",
    "**Small differences.** A bar joins methods that these examples do not tell apart; with more examples some would "
    "be. Tests are over examples: they say that a difference holds for other examples of the same data and model.",
)


def write_page(board: Board, page: Path, record: Path | None = None) -> None:
    """Write the page, a picture of each standing beside it under img/, and the record where it is wanted."""
    from wherefrom.view import plot

    pictures = page.parent / "img"
    pictures.mkdir(parents=True, exist_ok=True)
    drawn = {}
    for question, found in board.standings.items():
        drawn[question] = f"img/leaderboard-{question}.svg"
        plot.save(plot.critical(found.methods, found.ranks, found.alike), page.parent / drawn[question])
    text = "\n\n".join(_page(board, drawn)) + "\n"
    if not (page.parent / "methods.md").is_file():  # it does not stand in the book, and its links would lead nowhere
        text = re.sub(r"(?<!!)\[([^\]]+)\]\([\w-]+\.md[^)]*\)", r"\1", text)
    write(page, text)
    if record is not None:
        write_record(board, record)


def write_record(board: Board, record: Path) -> None:
    """Write the numbers of every method."""
    write(record, json.dumps(board.record(), indent=1, ensure_ascii=False) + "\n")


def _page(board: Board, drawn: dict[str, str]) -> Iterator[str]:
    yield "# Which method should I trust?"
    yield "<!-- written by `wherefrom leaderboard`; do not edit -->"
    yield _opening(board)
    for question, found in board.standings.items():
        title, about = ABOUT[question]
        yield f"## {title}"
        yield f"{about.format(_going(board))} {_counted(found)}"
        yield f"![Mean ranks of {len(found.methods)} methods; bars join those alike]({drawn[question]})"
        yield from _winners(found)
    yield "## Every method"
    yield _columns(board)
    yield _methods(board)
    yield "## Table by table"
    yield _AGREEING.format(_number(board.agreement)) if board.agreement is not None else ""
    yield _by_table(board.standings["faithful"])
    yield "## What this cannot tell"
    yield "\n".join(f"- {each}" for each in (*CANNOT[:3], *_absent(board), *CANNOT[3:]))
    yield "## How it was measured"
    yield "\n".join(
        _rows(
            ("model on data", "rows", "rows of the sanity checks", "tokens go by", "device"), map(_table, board.tables)
        )
    )
    lacking = [f"{table.name} lacks {_listed(names)}" for table in board.tables if (names := board.lacking(table))]
    if lacking:
        why = "Not every method is defined on every model, or cheap enough for a CPU or a long text"
        yield f"{why}: {'; '.join(lacking)}."
    if board.left_out:
        yield "Left out: " + "; ".join(f"`{name}` ({why})" for name, why in board.left_out.items()) + "."
    if board.unfinished:
        yield f"Not finished, and not counted: {', '.join(board.unfinished)}."
    yield _MADE


_COLUMNS = f"""Means over the tables{{}}, in the order of the first standing.
A star: only so many of the tables have the method; its means, over these alone, do not compare with the rest.
*Beats*: the share of the other methods that it beats on an average example. AOPC, comprehensiveness, LeRF − MoRF:
higher is better; log-odds, sufficiency: lower. *Randomised*: rank correlation with the scores after all weights were
drawn anew; near 1 the scores do not depend on what was learnt. *Padding*: the largest change of a score beside a
longer text, relative to the largest score. *bfloat16*: rank correlation with the scores of the model in bfloat16.
*Passes*: time (on a CPU, processor time) in forward passes of the model over the same batch.
Told apart is what has p < {LEVEL:g}."""
_AGREEING = """The share of the other methods that each beats, model by model. The tables order the methods alike with
a mean rank correlation of {}: the further below 1, the less an order says about the next model."""
_MADE = """```sh
wherefrom benchmark --out FOLDER --model MODEL --data DATA --rows ROWS --sane-rows ROWS      # for every table above
wherefrom leaderboard FOLDER --page PAGE.md
```

The first command resumes after a kill; the second needs neither models nor data, so that the first may run elsewhere.
The definitions stand in [what a metric tells](evidence.md)."""


def _kinds(board: Board) -> set[str]:
    """Of the kinds that not every board has, those that this one has."""
    return {
        kind
        for table in board.tables
        for kind, there in ((PICTURES, table.pictures), (TRANSLATIONS, table.task == "seq2seq"))
        if there
    }


def _going(board: Board) -> str:
    """What the tokens are that go, where they are not those of a text alone."""
    there = [said for kind, said in GOING.items() if kind in _kinds(board)]
    return f" ({', '.join(there)})" if there else ""


def _absent(board: Board) -> Iterator[str]:
    """What no table is of."""
    there = _kinds(board)
    if not there:
        yield "**Pictures and translations.** Every table is of texts and of encoders and decoders by themselves."
    elif PICTURES not in there:
        yield "**Pictures.** Every table is of texts."
    elif TRANSLATIONS not in there:
        yield "**Translations.** Every table is of encoders or of decoders by themselves."


def _columns(board: Board) -> str:
    """What the columns mean. Numbers of erasure are no one number where tokens go in different ways."""
    some = len(board.comparable) < len(board.tables)
    return _COLUMNS.format(", of erasure over those of classifiers of texts" if some else "")


def _opening(board: Board) -> str:
    found = board.standings["faithful"]
    best = found.methods[0]
    share = found.beaten[0]
    alike = [each for each in found.methods[1:] if not found.told_apart(best, each)]
    also = f"; {_listed(alike)} {'is' if len(alike) == 1 else 'are'} not told apart from it" if alike else ""
    measure = (
        "[`wherefrom benchmark`](evaluate.md#every-method-at-once) asks your model; and there are things that "
        "[no table can tell](#what-this-cannot-tell)."
    )
    if CHANCE in alike:
        return (
            f"{found.examples} examples do not tell the first of these methods, `{best}`, from chance: measure more of "
            f"them before you choose. {measure}"
        )
    pairs = f"{len(board.tables)} pair{'s' * (len(board.tables) > 1)} of model and data"
    return (
        f"If you have to choose without measuring: `{best}`. On {found.examples} examples of {pairs} it beats "
        f"{share:.0%} of the other {len(found.methods) - 1} methods on an average example, by erasure{also}. "
        f"{_cheap(board, found)}{_default(found)}If you can measure, do: {measure}"
    )


def _default(found: Standings) -> str:
    """The place of the default method of classifiers."""
    default = DEFAULT_METHODS["classification"][0]
    if default not in found.methods:
        return ""
    share = found.beaten[found.methods.index(default)]
    return f"The default of classifiers is `{default}` ({share:.0%}; [why](methods.md#the-default)). "


def _cheap(board: Board, found: Standings) -> str:
    """The best of those that cost few passes, where the best of all costs more."""
    known = {method: passes for method in found.methods if (passes := board.passes(method)) is not None}
    cheap = next((method for method in found.methods if known.get(method, CHEAP + 1) <= CHEAP), None)
    if cheap is None or known.get(found.methods[0], 0.0) <= CHEAP:
        return ""
    share, dear = found.beaten[found.methods.index(cheap)], known[found.methods[0]]
    return (
        f"It costs {dear:.0f} forward passes; of those that cost {CHEAP:g} at most, `{cheap}` is first ({share:.0%}). "
    )


def _counted(found: Standings) -> str:
    return (
        f"{found.examples} examples, {len(found.tables)} table{'s' * (len(found.tables) > 1)}; paired tests over "
        f"examples, corrected by Holm for {len(found.methods) * (len(found.methods) - 1) // 2} pairs."
    )


def _winners(found: Standings) -> Iterator[str]:
    """What the picture says in words: the first, and those that chance is not told apart from."""
    if CHANCE not in found.methods:
        return
    at = found.methods.index(CHANCE)
    worse = [each for each in found.methods[at + 1 :] if found.told_apart(CHANCE, each)]
    level = [each for each in found.methods if each != CHANCE and not found.told_apart(CHANCE, each)]
    said = []
    if level:
        said.append(f"Not told apart from chance: {_listed(level)}.")
    if worse:
        said.append(f"Worse than chance: {_listed(worse)}.")
    yield " ".join(said) or "Every method is told apart from chance, and better."


def _listed(names: Sequence[str]) -> str:
    shown = [f"`{each}`" for each in names]
    return shown[0] if len(shown) == 1 else f"{', '.join(shown[:-1])} and {shown[-1]}"


def _methods(board: Board) -> str:
    found = board.standings["faithful"]
    others = {question: each for question, each in board.standings.items() if question != "faithful"}
    metrics = [
        each for each in (*FAITHFUL, *PLAUSIBLE[:1], *CUES[:1]) if board.mean(found.methods[0], each) is not None
    ]
    head = ["method", "rank", "beats", *(f"beats, {each}" for each in others), *metrics]
    rows = []
    for at, method in enumerate(found.methods):
        shares = [
            each.beaten[each.methods.index(method)] if method in each.methods else None for each in others.values()
        ]
        sane = [
            board.mean(method, each)
            for each in ("randomisation embeddings", "stability padding", "stability bfloat16 rho")
        ]
        cells = [
            f"{found.ranks[at]:.1f}",
            f"{found.beaten[at]:.0%}",
            *("–" if each is None else f"{each:.0%}" for each in shares),
        ]
        cells += [_number(board.mean(method, metric)) for metric in metrics]
        having = sum(not isnan(each[at]) for each in found.tables.values())
        star = rf" \* ({having} of {len(found.tables)})" if having < len(found.tables) else ""
        rows.append(
            [
                f"[`{method}`](methods.md){star}",
                *cells,
                _number(sane[0], 2),
                _small(sane[1]),
                _number(sane[2], 2),
                _cost(board.passes(method)),
            ]
        )
    return "\n".join(_rows((*head, "randomised", "padding", "bfloat16", "passes"), rows))


def _by_table(found: Standings) -> str:
    names = list(found.tables)
    rows = [
        [f"`{method}`", *(_share(found.tables[name][at]) for name in names)] for at, method in enumerate(found.methods)
    ]
    return "\n".join(_rows(("method", *names), rows))


def _table(table: BoardTable) -> list[str]:
    told, named = table.about["model"], re.search(r"by=(\w+)", " ".join(table.about["asked"]["metrics"]))
    by = "deletion" if named is None else BY.get(named[1], named[1])
    by = f"{by}, of the source" if table.task == "seq2seq" else by
    rows, few = (
        max((len(v) for each in found.values() for v in each.values()), default=0)
        for found in (table.values, table.sane)
    )
    checked = f"{few}, of a second training" if table.retrained else str(few or "–")
    return [table.name, str(rows), checked, by, f"{told['device']}, {told['dtype']}"]


def _rows(head: Sequence[str], rows: object) -> Iterator[str]:
    yield f"| {' | '.join(head)} |"
    yield f"|{'---|' * len(head)}"
    for row in rows:  # type: ignore[attr-defined]
        yield f"| {' | '.join(row)} |"


def _share(value: float) -> str:
    return "–" if value != value else f"{value:.0%}"


def _number(value: float | None, digits: int = 3) -> str:
    return "–" if value is None else f"{value:.{digits}f}"


def _small(value: float | None) -> str:
    return "–" if value is None else "0" if not value else f"{value:.0e}"


def _cost(value: float | None) -> str:
    return "–" if value is None else f"{value:.1f}" if value < 10 else f"{value:.0f}"
