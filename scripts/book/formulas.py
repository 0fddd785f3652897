"""The formulas of the docstrings as MathML, which browsers draw by themselves: no script, no font to fetch.

Docstrings write a formula as one reads it, `C_ij = mean_h α^h_ij ‖v^h_j‖`: scripts of several letters need no braces,
and what stands two blanks apart is a column of its own.
"""

from __future__ import annotations

import re
import unicodedata
from html import escape

BIG = {"Σ": "∑", "Π": "∏", "∫": "∫"}  # as operators
BLANK = '<mspace width="0.28em"/>'
UNDER = {"∑", "∏", "max", "min", "argmin", "mean"}  # their subscript stands below them
TOKEN = re.compile(
    r"(?P<space> +)|(?P<number>\d+e-\d+|[\d.,]*\d|[½¼¾])|(?P<word>[^\W\d_]+(?:-[^\W\d_]{2,})*'*)"
    r"|(?P<script>[_^])|(?P<other>.)"
)
SCRIPT = re.compile(r"\{(?P<braced>[^{}]*(?:\{[^{}]*\}[^{}]*)*)\}|(?P<bare>[^\W_]+)|(?P<one>.)")
RAISED, LOWERED = re.compile("[²³¹⁰⁴-⁹⁺⁻ᵀ]+"), re.compile("[₀-₉]+")
EQUATION = re.compile(r"^(\S+) +(=|∝) +")
INDENTED = " " * 6
PROSE = re.compile(r"^[^=_^‖Σ|⟨√→∂∫]*$")


def table(block: str) -> str:
    """A block of a docstring: a row for each line, a cell for each of its columns."""
    lines = [line for line in block.splitlines() if line.strip()]
    equations = all(EQUATION.match(line.strip()) or line.startswith(INDENTED) for line in lines)
    starts = [] if equations else _starts(lines)
    rows = [_columns(line, equations, starts) for line in lines]
    width = max(len(row) for row in rows)
    body = "".join(
        "<tr>" + "".join(f"<td>{_cell(part)}</td>" for part in row + [""] * (width - len(row))) + "</tr>"
        for row in rows
    )
    return f'<div class="formula"><table class="lines">{body}</table></div>'


def _starts(lines: list[str]) -> list[int]:
    """Where the columns begin in the first line that is not indented."""
    first = next((line for line in lines if not line.startswith(INDENTED)), lines[0])
    return [found.start(1) for found in re.finditer(r"(?:^| ) *(\S+(?: \S+)*)", first)]


def _columns(line: str, equations: bool, starts: list[int]) -> list[str]:
    """Two blanks part columns, and in a list of equations the first equals sign.

    An indented line goes on, in the third column of an equation, elsewhere below the column that begins where it does.
    """
    indent = len(line) - len(line.lstrip())
    goes_on = [""] * (2 if equations else sum(start < indent for start in starts)) if line.startswith(INDENTED) else []
    if equations:
        line = EQUATION.sub(r"\1  \2  ", line.strip())
    return goes_on + re.split(r" {2,}", line.strip())


def _cell(part: str) -> str:
    words = re.findall(r"(?<![\w_^])[A-Za-z]{3,}(?![\w_^(])", part)
    if PROSE.match(part) and words and len(re.findall(r"[⊙ΔαβγερτφΦ∇]", part)) == 0:
        return f'<span class="said">{escape(part)}</span>'
    return f'<math displaystyle="true">{math(part)}</math>' if part else ""


def math(text: str) -> str:
    """A formula on one line as the inside of a `<math>` element."""
    text = RAISED.sub(lambda found: f"^{{{unicodedata.normalize('NFKC', found.group())}}}", text)
    text = LOWERED.sub(lambda found: f"_{{{unicodedata.normalize('NFKC', found.group())}}}", text)
    made: list[str] = []
    base, subscript, superscript = "", "", ""
    rest, gap = text, ""

    def close() -> None:
        nonlocal base, subscript, superscript
        if base:
            made.append(_scripted(base, subscript, superscript))
        base, subscript, superscript = "", "", ""

    while rest:
        found = TOKEN.match(rest)
        assert found is not None
        rest = rest[found.end() :]
        kind, said = found.lastgroup, found.group()
        if kind == "script" and base:
            inner = SCRIPT.match(rest)
            if inner is not None:
                rest = rest[inner.end() :]
                drawn = _row(inner["braced"] if inner["braced"] is not None else inner.group(), inner["bare"])
                subscript, superscript = (drawn, superscript) if said == "_" else (subscript, drawn)
            continue
        close()
        if kind == "space":
            gap = BLANK if made and not made[-1].endswith("</mo>") else ""  # operators have their own
            continue
        base = gap * (kind in ("word", "number") or said in "([") + _leaf(said, kind or "")
        gap = ""
    close()
    return "".join(made)


def _row(inside: str, bare: str | None) -> str:
    """What stands in a script: letters are indices, one beside the other, a longer name is a name."""
    if bare and (len(bare) > 3 or bare.isdigit() or (len(bare) == 3 and bare.istitle())):
        return _leaf(bare, "number" if bare.isdigit() else "word")
    if bare:
        return "<mrow>" + "".join(f"<mn>{c}</mn>" if c.isdigit() else f"<mi>{c}</mi>" for c in bare) + "</mrow>"
    return f"<mrow>{math(inside)}</mrow>"


def _leaf(said: str, kind: str) -> str:
    if kind == "number":
        return f"<mn>{said}</mn>"
    if said in BIG:
        return f"<mo>{BIG[said]}</mo>"
    if kind == "word":
        name = said.rstrip("'")
        primes = "<mo>′</mo>" * (len(said) - len(name))
        return f"<mrow><mi>{escape(name)}</mi>{primes}</mrow>" if primes else f"<mi>{escape(name)}</mi>"
    return f'<mo stretchy="false">{escape(said)}</mo>'


def _scripted(base: str, subscript: str, superscript: str) -> str:
    """The base with its scripts; blanks before it stay outside."""
    gap, drawn = (base[: -len(rest)], rest) if (rest := re.sub(r"^(<mspace[^>]*>)+", "", base)) != base else ("", base)
    name = re.sub(r"<[^>]*>", "", drawn)
    below = "munder" if name in UNDER and not superscript else "msub"
    if subscript and superscript:
        return f"{gap}<msubsup>{drawn}{subscript}{superscript}</msubsup>"
    if subscript:
        return f"{gap}<{below}>{drawn}{subscript}</{below}>"
    return f"{gap}<msup>{drawn}{superscript}</msup>" if superscript else gap + drawn
