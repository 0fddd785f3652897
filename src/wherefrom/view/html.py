"""Explanations as HTML: one viewer for a file, a notebook cell and the web page (`wherefrom serve`).

`payload` is the data, `viewer/viewer.js` draws it: `mount(element, payload, options)`. Data and script lie in the
document; nothing is fetched. Text is data: the viewer puts it in as text content only, and the static version, for
where no script runs, escapes it.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from html import escape
from typing import Any

from wherefrom.result.explanation import Explanation
from wherefrom.view.bundle import script, style
from wherefrom.view.colour import hexadecimal, ink, shade, strengths
from wherefrom.view.overlay import data_uri, overlay
from wherefrom.view.payload import payload
from wherefrom.view.terminal import arrival, by_input, explained_by_all, gaps, labels, predicted, remarks_of_all

__all__ = ["document", "fragment", "payload"]

NONE: Mapping[str, str] = {}
PAGE = "html{color-scheme:light dark}body{margin:0}main{--wherefrom-height:100vh}"
START = """
for (const element of document.querySelectorAll('[data-wherefrom="{key}"]')) {{
  if (element.shadowRoot) continue;
  const data = JSON.parse(element.querySelector("script[type='application/json']").textContent);
  mount(element, data, {{ ...{options}, css }});
}}
"""


def document(
    explanations: Mapping[str, Explanation], title: str | None = None, *, failed: Mapping[str, str] = NONE
) -> str:
    """A page of its own, with no reference to anything outside it, that may not fetch anything either.

    `failed` says why a method that was asked for is not among the explanations.
    """
    return page(payload(explanations, title, failed=failed), _static(explanations, failed))


def fragment(explanations: Mapping[str, Explanation], *, failed: Mapping[str, str] = NONE) -> str:
    """A piece of HTML for a notebook cell. Its styles stay within it, and any number of them share a page."""
    return cell(payload(explanations, failed=failed), _static(explanations, failed))


def page(data: Mapping[str, Any], static: str, entry: str = "viewer") -> str:
    """The document of a module of the viewer with its data, and what stands there where no script runs."""
    code = _start("page", {"hash": True, "keys": "page"}, entry)
    policy = (
        f"default-src 'none'; script-src {_hash(code)}; style-src {_hash(PAGE)}; style-src-attr 'unsafe-inline'; "
        f"img-src data: blob:; base-uri 'none'; form-action 'none'"
    )
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">'
        f"<title>{escaped(data['title'])} · wherefrom</title>"
        '<meta name="viewport" content="width=device-width,initial-scale=1">'
        '<meta name="color-scheme" content="light dark"><link rel="icon" href="data:,">'
        f"<style>{PAGE}</style></head>\n"
        f'<body><main data-wherefrom="page">{_data(data)}{static}</main>\n'
        f"<script>{code}</script></body></html>\n"
    )


def cell(data: Mapping[str, Any], static: str, entry: str = "viewer") -> str:
    """The same as a piece of HTML."""
    content = _data(data) + static
    key = hashlib.sha256(content.encode()).hexdigest()[:16]  # the same explanation twice makes the same cell twice
    code = _start(key, {"hash": False, "keys": "focus"}, entry)
    return f'<div data-wherefrom="{key}">{content}</div><script>{code}</script>'


def _start(key: str, options: dict[str, Any], entry: str) -> str:
    """The script: the modules, and a call of `mount` on each element of this name."""
    start = START.format(key=key, options=json.dumps(options))
    return f"{{\nconst mount = {script(entry)};\nconst css = {_json(style())};{start}}}"


def _data(data: Any) -> str:
    return f'<script type="application/json">{_json(data)}</script>'


def _json(data: Any) -> str:
    """JSON that no parser of HTML takes for markup: U+2028 and all else beyond ASCII is escaped too."""
    text = json.dumps(data, allow_nan=False, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _hash(source: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(source.encode()).digest()).decode()}'"


# Where no script runs (an untrusted notebook, a mail) --------------------------------------------------------


def _static(explanations: Mapping[str, Explanation], failed: Mapping[str, str]) -> str:
    """The text, coloured, each piece with its score on hover."""
    every = list(explanations.values())
    called = iter(labels(list(explanations), every))
    parts = [_static_part(alike, called) for alike in by_input(every)]
    missing = "".join(f"<p>{escaped(f'{name}: {detail}')}</p>" for name, detail in failed.items())
    return "".join(parts) + missing


def _static_part(alike: Sequence[Explanation], called: Iterator[str]) -> str:
    """Explanations of one input under their heading."""
    first, common = alike[0], explained_by_all(alike)
    facts = {"explained: ": common, "": first.likelihood, "read at: ": first.read_at, "model: ": first.model}
    head = "; ".join(f"{name}{fact}" for name, fact in facts.items() if fact)
    if (said := predicted(first)) is not None:
        head = f"predicts {''.join(said)}; {head}"
    shared = remarks_of_all(alike)
    rows = "".join(
        f"<p><b>{escaped(next(called) + _apart(each, common))}</b>{_remarks(each.remarks, shared)}<br>{_seen(each)}</p>"
        for each in alike
    )
    return f"<p>{escaped(head)}{_remarks(shared)}</p>{rows}"


def _remarks(remarks: Sequence[str], said: Sequence[str] = ()) -> str:
    return "".join(f"<br><small>{escaped(remark)}</small>" for remark in remarks if remark not in said)


def _apart(explanation: Explanation, common: str | None) -> str:
    """What it explains, where the heading does not say it; and what its scores miss of their sum, or what that is."""
    towards = "" if explanation.explained == common else f" · explained: {explanation.explained}"
    fit = "".join(f" · {said}" for said in (arrival(explanation), explanation.fit, explanation.rounding) if said)
    return towards + ("" if explanation.delta is None else f" · delta {explanation.delta:+.2g}") + fit


def _seen(explanation: Explanation) -> str:
    """The picture with the scores over it, or the text."""
    if explanation.picture is None:
        return coloured(explanation)
    return f'<img width="320" alt="scores over the picture" src="{data_uri(overlay(explanation))}">'


def coloured(explanation: Explanation) -> str:
    """The text, each piece on a background as strong as its score."""
    parts = []
    columns = (explanation.pieces, gaps(explanation), explanation.scores, strengths(explanation), explanation.unknown)
    for piece, gap, score, value, unknown in zip(*columns, strict=True):
        look = ""
        if abs(value) >= 0.02:
            ground = shade(float(value), explanation.signed)
            look = f' style="background:{hexadecimal(ground)};color:{ink(ground)}"'
        parts.append(
            f'{escaped(gap)}<span title="{score:.6g}{", read as unknown" * unknown}"{look}>{escaped(piece)}</span>'
        )
    return "".join(parts)


def escaped(text: str) -> str:
    """Escaped, and without halves of surrogate pairs, which no file in UTF-8 can hold."""
    return escape(text.encode("utf-8", "replace").decode("utf-8"))
