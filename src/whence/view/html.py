"""Explanations as HTML: the text, coloured, each piece with its score on hover. Every token is escaped."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from whence.explanation import Explanation
from whence.view.colour import hexadecimal, ink, intensities, shade
from whence.view.terminal import gaps, title

STYLE = """
.whence{font:15px/1.9 system-ui,sans-serif}
.whence .w-head{font-size:13px;opacity:.75}
.whence .w-method{font-weight:600;font-size:13px}
.whence span[title]{border-radius:3px;padding:1px 2px;white-space:pre-wrap}
"""


def fragment(explanations: Sequence[Explanation]) -> str:
    """A piece of HTML for a notebook cell."""
    first = explanations[0]
    head = f"explained: {first.target}; read at: {first.reading.why}; model: {first.model}"
    if first.prediction is not None:
        p = first.probabilities.get(first.prediction)
        head = f"predicts {first.prediction}" + (f" ({p:.3f})" if p is not None else "") + f"; {head}"
    rows = "".join(
        f'<p><span class="w-method">{escape(title(each) + _apart(each, first))}</span><br>{_text(each)}</p>'
        for each in explanations
    )
    return f'<div class="whence"><style>{STYLE}</style><p class="w-head">{escape(head)}</p>{rows}</div>'


def _apart(explanation: Explanation, first: Explanation) -> str:
    """What this one explains, where that differs from the first; and by how much its scores miss their sum."""
    towards = "" if explanation.target == first.target else f" · explained: {explanation.target}"
    return towards + ("" if explanation.delta is None else f" · delta {explanation.delta:+.2g}")


def document(explanations: Sequence[Explanation]) -> str:
    """A page of its own, with no reference to anything outside it."""
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8"><title>whence</title>'
        '<meta name="viewport" content="width=device-width,initial-scale=1">'
        '<meta name="color-scheme" content="light dark"></head>'
        f"<body>{fragment(explanations)}</body></html>\n"
    )


def _text(explanation: Explanation) -> str:
    parts = []
    strength = intensities(explanation.scores, explanation.signed, explanation.position)
    rows = zip(explanation.pieces, gaps(explanation), explanation.scores, strength, strict=True)
    for piece, gap, score, value in rows:
        style = ""
        if abs(value) >= 0.02:
            ground = shade(float(value), explanation.signed)
            style = f' style="background:{hexadecimal(ground)};color:{ink(ground)}"'
        parts.append(f'{escape(gap)}<span title="{score:.6g}"{style}>{escape(piece)}</span>')
    return "".join(parts)
