"""`explain`, `compare` and `capture`: text in, explanations out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from whence.comparison import Comparison
from whence.errors import WhenceError
from whence.explanation import Explanation
from whence.jobs import AUTO, Question, run, settle_job, settle_questions, settle_reach
from whence.method import lookup
from whence.model import Opened, Reader, Trace, collate, open_model
from whence.model import capture as capture_batch

DEFAULT_MODEL = "whence/sentiment"
DEFAULT_METHOD = "attention-rollout"
DEFAULT_METHODS = ("raw-attention", "attention-rollout")


def explain(
    inputs: Any,
    model: Any = DEFAULT_MODEL,
    tokenizer: Any | None = None,
    method: str = DEFAULT_METHOD,
    *,
    aggregate: str | None = AUTO,
    target: Any = None,
    foil: Any = None,
    position: Any = None,
    head: int | str | None = None,
    layers: tuple[int | None, int | None] | None = None,
    receptive_field: bool = False,
    rows: str = "all",
    drop_self: bool = False,
    estimate: bool = False,
    batch_size: int = 16,
    truncate: bool = False,
    task: str | None = None,
    device: Any = None,
    dtype: Any = None,
    model_kwargs: Mapping[str, Any] | None = None,
    tokenizer_kwargs: Mapping[str, Any] | None = None,
    **options: Any,
) -> Any:
    """Say which input tokens an output is made of. One input gives one `Explanation`, a list gives a list.

    inputs: a text, a pair of texts (a tuple), token ids, an encoding with `input_ids`, or a list of these.
    model: a shipped model ("whence/sentiment"), a hub id, a folder, or a loaded model with its `tokenizer`
        (token ids need none).
    method: a name or symbol listed by `whence.methods()`; further keyword arguments are its options.
    aggregate: how layer maps become one; "rollout" unless the method's name says otherwise, None leaves them.
    target, foil: which number is explained: a class id or label, a word at a mask, "start", "end" or
        "answer" (both) of an answer, the next token; the predicted one if none is given. With a foil, the
        difference to it. "all" explains every class from one pass and gives a `Comparison` by label.
    position: the row that answers: a token index, "first", "last", "mean" or "mask"; what the head reads if
        none is given. target, foil and position may be lists, one entry per input.
    head: one head, counted from 0, instead of the mean over all (the layers below stay averaged, Abnar &
        Zuidema A.1); "all" adds every head's layer maps as `head_maps`.
    layers: (start, end), as in a slice: the blocks from `start` up to but not including `end`, so that the
        answer reaches from block end - 1 down to the input of block `start` (their equation 1 with j = start).
    receptive_field: for causal models, rollout and flow relative to an even reader (whence/aggregate/receptive.py).
    drop_self: set what the answering token gives itself to 0, as AttCAT's code does.
    rows: "all", or "reading" for the row that answers alone, as `layer_scores`: what makes flow fast.
    estimate: run nothing and say how long it would take and how much memory (an `Estimate`).
    tokenizer_kwargs go to the tokenizer's call, model_kwargs to `from_pretrained`.
    """
    lookup(method)  # a misspelt name is said before a model is loaded
    opened = open_model(model, tokenizer, task=task, device=device, dtype=dtype, model_kwargs=model_kwargs)
    sentences, single = reader(opened, truncate, tokenizer_kwargs).read(inputs)
    questions = settle_questions(len(sentences), single, target, foil, position)
    reach = settle_reach(opened, aggregate, layers, receptive_field, rows)
    job = settle_job(method, reach, head, options, drop_self)
    if estimate:
        from whence.estimating import estimate_job

        return estimate_job(opened, sentences, job, batch_size)
    found = run(opened, sentences, questions, [job], batch_size)
    results = [
        _by_target(row[0]) if _asks_all(question) else row[0][0] for row, question in zip(found, questions, strict=True)
    ]
    return results[0] if single else results


def compare(
    inputs: Any,
    model: Any = DEFAULT_MODEL,
    tokenizer: Any | None = None,
    methods: Sequence[str] = DEFAULT_METHODS,
    *,
    aggregate: str | None = AUTO,
    target: Any = None,
    foil: Any = None,
    position: Any = None,
    head: int | str | None = None,
    layers: tuple[int | None, int | None] | None = None,
    receptive_field: bool = False,
    rows: str = "all",
    drop_self: bool = False,
    batch_size: int = 16,
    truncate: bool = False,
    task: str | None = None,
    device: Any = None,
    dtype: Any = None,
    model_kwargs: Mapping[str, Any] | None = None,
    tokenizer_kwargs: Mapping[str, Any] | None = None,
) -> Comparison | list[Comparison]:
    """Explain by several methods on one captured pass. Arguments as in `explain`."""
    if isinstance(methods, str):
        methods = [methods]
    if not methods:
        raise WhenceError("no methods to compare; expected at least one name from whence.methods()")
    if len(set(methods)) < len(methods):
        raise WhenceError(f"a method is named twice in {', '.join(methods)}; expected each once")
    for name in methods:
        lookup(name)
    opened = open_model(model, tokenizer, task=task, device=device, dtype=dtype, model_kwargs=model_kwargs)
    sentences, single = reader(opened, truncate, tokenizer_kwargs).read(inputs)
    questions = settle_questions(len(sentences), single, target, foil, position)
    reach = settle_reach(opened, aggregate, layers, receptive_field, rows)
    jobs = [settle_job(name, reach, head, {}, drop_self) for name in methods]
    found = run(opened, sentences, questions, jobs, batch_size)
    results = [Comparison(_by_method(methods, row)) for row in found]
    return results[0] if single else results


def capture(
    inputs: Any,
    model: Any = DEFAULT_MODEL,
    tokenizer: Any | None = None,
    *,
    grad: bool = False,
    truncate: bool = False,
    task: str | None = None,
    device: Any = None,
    dtype: Any = None,
    model_kwargs: Mapping[str, Any] | None = None,
    tokenizer_kwargs: Mapping[str, Any] | None = None,
) -> Trace:
    """One forward pass with everything it did: the material for a method of your own (CONTRIBUTING.md)."""
    opened = open_model(model, tokenizer, task=task, device=device, dtype=dtype, model_kwargs=model_kwargs)
    sentences, _ = reader(opened, truncate, tokenizer_kwargs).read(inputs)
    return capture_batch(opened, collate(sentences, opened.pad_id), grad=grad)


def reader(opened: Opened, truncate: bool, tokenizer_kwargs: Mapping[str, Any] | None) -> Reader:
    return Reader(
        opened.tokenizer,
        opened.vocabulary_size,
        opened.pad_id,
        opened.max_length,
        truncate=truncate,
        tokenizer_kwargs=tokenizer_kwargs,
    )


def _asks_all(question: Question) -> bool:
    return isinstance(question.target, str) and question.target == "all"


def _by_target(found: list[Explanation]) -> Comparison:
    return Comparison({_target_name(each): each for each in found})


def _target_name(found: Explanation) -> str:
    """A class by its label, the parts of an answer by what they are."""
    return str(found.target.label) if found.target.kind in ("class", "token") else found.target.kind


def _by_method(methods: Sequence[str], row: list[list[Explanation]]) -> dict[str, Explanation]:
    """By the name asked for; where every target was asked for, by name and label."""
    named: dict[str, Explanation] = {}
    for name, found in zip(methods, row, strict=True):
        for each in found:
            named[name if len(found) == 1 else f"{name}: {_target_name(each)}"] = each
    return named
