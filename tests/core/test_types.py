"""What a type checker tells somebody who uses the library."""

from __future__ import annotations

import inspect
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import wherefrom

SCRIPT = """
from typing import reveal_type

import wherefrom

text, texts = "a good film", ["a good film", "a bad one"]
reveal_type(wherefrom.explain(text))  #: Explanation
reveal_type(wherefrom.explain(("who is it", "it is a film")))  #: Explanation
reveal_type(wherefrom.explain(text, method="integrated-gradients", n_steps=20))  #: Explanation
reveal_type(wherefrom.explain(texts, batch_size=4))  #: Explanations[Explanation]
reveal_type(wherefrom.explain(texts)[0].top())  #: list[tuple[int, str, float]]
reveal_type(wherefrom.explain([101, 7, 102]))  #: Explanation
reveal_type(wherefrom.explain(text, target="all"))  #: Comparison
reveal_type(wherefrom.explain(texts, target="all"))  #: Explanations[Comparison]
reveal_type(wherefrom.explain(text, estimate=True))  #: Estimate
reveal_type(wherefrom.estimate(text).seconds)  #: float
reveal_type(wherefrom.compare(text, methods=["alti", "deeplift"]))  #: Comparison
reveal_type(wherefrom.compare(texts, rows="readout"))  #: Explanations[Comparison]
reveal_type(next(wherefrom.explain_stream(texts)))  #: Explanation
reveal_type(wherefrom.capture(text))  #: Trace
reveal_type(wherefrom.open_model("wherefrom/sentiment").labels)  #: dict[int, str]
reveal_type(wherefrom.evaluate(texts, methods="alti"))  #: Run
wherefrom.explain(text, batch_size="four")  #! No overload
wherefrom.compare(text, rows="some")  #! No overload
wherefrom.evaluate(texts, batch_sise=4)  #! Unexpected keyword argument "batch_sise"
"""
# The large libraries are not looked into: that would take most of a minute, and is not what is asked.
SETTINGS = """
[mypy]
follow_imports = silent
ignore_missing_imports = True
[mypy-transformers.*,scipy.*,pandas.*,pyarrow.*,matplotlib.*,huggingface_hub.*,safetensors.*,rich.*,typer.*]
follow_imports = skip
"""
STUBS = {  # of torch, the types that signatures name
    "torch/__init__.pyi": "class Tensor: ...\nclass device: ...\nclass dtype: ...\ndef __getattr__(name: str): ...\n",
    "torch/nn/__init__.pyi": "class Module: ...\ndef __getattr__(name: str): ...\n",
    "torch/nn/functional.pyi": "def __getattr__(name: str): ...\n",
}


def test_a_user_sees_useful_types(tmp_path: Path, pytestconfig: pytest.Config) -> None:
    pytest.importorskip("mypy")
    script = tmp_path / "script.py"
    script.write_text(SCRIPT, encoding="utf-8")
    source = Path(wherefrom.__file__).parents[1]
    for name, content in {**STUBS, "mypy.ini": SETTINGS}.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(content, encoding="utf-8")
    kept = getattr(pytestconfig, "cache", None)  # pytest may run without its cache
    cache = kept.mkdir("mypy") if kept else tmp_path  # what was read stays from run to run
    command = [sys.executable, "-m", "mypy", "--config-file", "mypy.ini", "--cache-dir", str(cache), "script.py"]
    paths = {"MYPYPATH": f"{tmp_path}{os.pathsep}{source}"}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=paths, cwd=tmp_path)
    said: dict[int, str] = {}
    for number, text in re.findall(r"script\.py:(\d+): (?:note|error): (.*)", done.stdout):
        said.setdefault(int(number), text)  # what follows explains it
    for number, line in enumerate(SCRIPT.splitlines(), 1):
        if "#:" in line:
            revealed = re.sub(r"\b(?:\w+\.)+", "", said[number])
            assert revealed == f'Revealed type is "{line.partition("#: ")[2]}"', line
        elif "#!" in line:
            assert line.partition("#! ")[2] in said[number], line
        else:
            assert number not in said, said[number]


def _public() -> Iterator[tuple[str, Callable[..., object]]]:
    """Public functions, and the public methods of public classes."""
    for name in wherefrom.__all__:
        found = getattr(wherefrom, name)
        if inspect.isfunction(found):
            yield name, found
        elif inspect.isclass(found) and not issubclass(found, Exception):
            own = {key: each for key, each in vars(found).items() if not key.startswith("_") or key == "__getitem__"}
            for key, each in own.items():
                function = each.fget if isinstance(each, property) else getattr(each, "__func__", each)
                if inspect.isfunction(function):
                    yield f"{name}.{key}", function


def test_no_public_signature_says_any() -> None:
    vague = [
        f"{name}: {each.name}"
        for name, function in _public()
        for each in (*inspect.signature(function).parameters.values(), _returned(function))
        if {"Any", "Any | None"} & {each.annotation}
    ]
    assert not vague


def _returned(function: Callable[..., object]) -> inspect.Parameter:
    found = inspect.signature(function).return_annotation
    return inspect.Parameter("what_it_returns", inspect.Parameter.KEYWORD_ONLY, annotation=found)
