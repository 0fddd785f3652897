"""`explain`, `explain_stream`, `compare` and `capture`: text in, explanations out."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from whence import choosing
from whence.comparison import Comparison
from whence.defaults import DEFAULT_METHOD, DEFAULT_MODEL
from whence.errors import WhenceError
from whence.explanation import Explanation
from whence.jobs import (
    AUTO,
    Question,
    check_batch_size,
    refuse_unseen_targets,
    settle_job,
    settle_questions,
    settle_reach,
)
from whence.many import Given, How, chunks, explained, read
from whence.method import lookup
from whence.model import Opened, Reader, Trace, collate, open_model
from whence.model import capture as capture_batch
from whence.progress import bar
from whence.windows import as_read

LONG = ("error", "truncate", "windows")
AHEAD = 16  # batches that a stream reads before it explains them, sentences of similar length together


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
    keep: str | None = None,
    long: str = "error",
    overlap: int | None = None,
    truncate: bool = False,
    on_error: str = "raise",
    progress: bool | None = None,
    task: str | None = None,
    device: Any = None,
    dtype: Any = None,
    model_kwargs: Mapping[str, Any] | None = None,
    tokenizer_kwargs: Mapping[str, Any] | None = None,
    **options: Any,
) -> Any:
    """Say which input tokens an output is made of. One input gives one `Explanation`, several give `Explanations`.

    inputs: one input is a text, a pair of texts (a tuple of two), token ids, an encoding with `input_ids`, or a row
        with a "text" (and "text_pair"). Several are a list of these, or anything else that has an order: a generator,
        a pandas Series, a numpy array of texts, a column of a dataset or a tokenised dataset. Texts split
        into words are lists of words, with tokenizer_kwargs={"is_split_into_words": True}. See docs/inputs.md.
    model: a shipped model ("whence/sentiment"), a hub id, a folder, or a loaded model with its `tokenizer`
        (token ids need none).
    method: a name or symbol listed by `whence.methods()`; further keyword arguments are its options. "auto" is deeplift
        where the model predicts something and alti where it does not or a map is asked for (whence/choosing.py); the
        result says which it was.
    aggregate: how layer maps become one; "rollout" unless the method's name says otherwise, None leaves them.
    target, foil: which number is explained: a class id or label, a word at a mask, "start", "end" or
        "answer" (both) of an answer, the next token; the predicted one if none is given. With a foil, the
        difference to it. "all" explains every class from one pass and gives a `Comparison` by label. Methods that say
        what a representation is made of look at no target and refuse one.
    position: the row that answers: a token index, "first", "last", "mean" or "mask"; what the head reads if
        none is given. target, foil and position may be lists, one entry per input.
    head: one head, counted from 0, instead of the mean over all (the layers below stay averaged, Abnar &
        Zuidema A.1); "all" adds every head's layer maps as `head_maps`.
    layers: (start, end), as in a slice: the blocks from `start` up to but not including `end`, so that the
        answer reaches from block end - 1 down to the input of block `start` (their equation 1 with j = start).
    receptive_field: for causal models, rollout and flow relative to an even reader (whence/aggregate/receptive.py).
    drop_self: set what the answering token gives itself to 0, as AttCAT's code does.
    rows: "all", or "reading" for the row that answers alone, as `layer_scores`: what makes flow fast.
    keep: "maps" for everything a method computes, or "scores" to let maps go as soon as they are read (a hundredth of
        the memory): `scores` and `layer_scores` stay. "maps" unless rows="reading".
    long: what becomes of a text longer than the model reads: "error", "truncate" (also truncate=True), or "windows":
        overlapping windows, by `overlap` tokens (a quarter, if None), each explained towards the same class, a token's
        score the mean over its windows (whence/windows.py).
    on_error: "skip" goes on without the inputs that fail: None stands in their place, and `skipped` says why.
    progress: a bar on stderr or in the notebook; None shows it where somebody looks and there is more than a batch.
    estimate: run nothing and say how long it would take and how much memory (an `Estimate`).
    tokenizer_kwargs go to the tokenizer's call, model_kwargs to `from_pretrained`.
    """
    _check_name(method)  # a misspelt name is said before a model is loaded
    how = How(batch_size, on_error, progress, overlap)
    opened = open_model(model, tokenizer, task=task, device=device, dtype=dtype, model_kwargs=model_kwargs)
    given = read(reader(opened, truncate, tokenizer_kwargs, long), inputs, how)
    questions = _questions(given, target, foil, position)
    reach = settle_reach(opened, aggregate, layers, receptive_field, rows)
    sentences = list(given.sentences.values())
    auto = method == DEFAULT_METHOD
    names = choosing.candidates(opened, sentences, questions, reach, head, options) if auto else (method,)
    if estimate:
        from whence.estimating import estimate_job

        job = settle_job(names[0], reach, head, options, drop_self, keep)
        return estimate_job(opened, as_read(opened, sentences, overlap), job, batch_size)

    def by(name: str) -> Any:
        job = settle_job(name, reach, head, options, drop_self, keep)
        refuse_unseen_targets(opened, questions, {name: job.method})
        mine = given.copy()
        found = explained(opened, mine, questions, [job], how)
        asks_all = _asks_all(questions[0])
        return mine.gathered([by_target(row[0]) if asks_all else row[0][0] for row in found])

    return choosing.first_suited(names, by)


def explain_stream(
    inputs: Any,
    model: Any = DEFAULT_MODEL,
    tokenizer: Any | None = None,
    method: str = DEFAULT_METHOD,
    *,
    batch_size: int = 16,
    progress: bool | None = None,
    task: str | None = None,
    device: Any = None,
    dtype: Any = None,
    model_kwargs: Mapping[str, Any] | None = None,
    **arguments: Any,
) -> Iterator[Any]:
    """Explain inputs as they come: an iterator that gives what `explain` would, in their order, and keeps nothing.

    `inputs` may be endless; a few batches of it are read ahead. Further arguments as in `explain`; target, foil and
    position are the same for all.
    """
    for name in ("target", "foil", "position"):
        if isinstance(arguments.get(name), list | tuple):
            raise WhenceError(f"{name} is a list; a stream asks the same of every input: leave it out, or use explain")
    if arguments.get("estimate"):
        raise WhenceError("the length of a stream is not known before it ends; estimate a few of its inputs by explain")
    _check_name(method)
    check_batch_size(batch_size)
    opened = open_model(model, tokenizer, task=task, device=device, dtype=dtype, model_kwargs=model_kwargs)
    parts = chunks(inputs, batch_size * AHEAD)
    total = len(inputs) if hasattr(inputs, "__len__") else None

    def stream() -> Iterator[Any]:
        with bar(total, progress, worth=total is None or total > batch_size) as advance:
            for part in parts:
                for each in explain(part, opened, None, method, batch_size=batch_size, progress=False, **arguments):
                    yield each
                    advance(1)

    return stream()


def compare(
    inputs: Any,
    model: Any = DEFAULT_MODEL,
    tokenizer: Any | None = None,
    methods: Sequence[str] | str = DEFAULT_METHOD,
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
    keep: str | None = None,
    long: str = "error",
    overlap: int | None = None,
    truncate: bool = False,
    on_error: str = "raise",
    progress: bool | None = None,
    task: str | None = None,
    device: Any = None,
    dtype: Any = None,
    model_kwargs: Mapping[str, Any] | None = None,
    tokenizer_kwargs: Mapping[str, Any] | None = None,
) -> Any:
    """Explain by several methods on one captured pass: a `Comparison`, for several inputs `Explanations` of them.

    Arguments as in `explain`. Methods that look at a target and methods that do not stand side by side; each result
    says what it explains. "auto" are four methods that differ in kind (whence/defaults.py).
    """
    auto = isinstance(methods, str) and methods == DEFAULT_METHOD
    methods = [methods] if isinstance(methods, str) else methods
    if not methods:
        raise WhenceError("no methods to compare; expected at least one name from whence.methods()")
    if len(set(methods)) < len(methods):
        raise WhenceError(f"a method is named twice in {', '.join(methods)}; expected each once")
    for name in methods:
        _check_name(name)
    how = How(batch_size, on_error, progress, overlap)
    opened = open_model(model, tokenizer, task=task, device=device, dtype=dtype, model_kwargs=model_kwargs)
    given = read(reader(opened, truncate, tokenizer_kwargs, long), inputs, how)
    questions = _questions(given, target, foil, position)
    reach = settle_reach(opened, aggregate, layers, receptive_field, rows)

    def by(names: tuple[str, ...]) -> Any:
        jobs = [settle_job(name, reach, head, {}, drop_self, keep) for name in names]
        refuse_unseen_targets(opened, questions, {name: lookup(name)[0] for name in names})
        mine = given.copy()
        found = explained(opened, mine, questions, jobs, how)
        return mine.gathered([Comparison(_by_method(names, row)) for row in found])

    sentences = list(given.sentences.values())
    return choosing.first_suited(
        choosing.compared(opened, sentences, questions, reach) if auto else (tuple(methods),), by
    )


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
    opened.need_blocks("a capture")
    sentences, _ = reader(opened, truncate, tokenizer_kwargs).read(inputs)
    return capture_batch(opened, collate(sentences, opened.pad_id), grad=grad)


def reader(opened: Opened, truncate: bool, tokenizer_kwargs: Mapping[str, Any] | None, long: str = "error") -> Reader:
    if long not in LONG:
        raise WhenceError(f"unknown long {long!r}; expected one of {', '.join(LONG)}")
    if truncate and long == "windows":
        raise WhenceError("truncate=True cuts a long text and long='windows' reads all of it; leave one of them out")
    return Reader(
        opened.tokenizer,
        opened.vocabulary_size,
        opened.pad_id,
        opened.max_length,
        truncate=truncate or long == "truncate",
        tokenizer_kwargs=tokenizer_kwargs,
        any_length=long == "windows",
    )


def _questions(given: Given, target: Any, foil: Any, position: Any) -> list[Question]:
    """What is asked of each sentence; lists have an entry for every input, also for one that could not be read."""
    every = settle_questions(given.count, given.single, target, foil, position)
    return [every[row] for row in given.sentences]


def _check_name(method: str) -> None:
    if method != DEFAULT_METHOD:
        lookup(method)


def _asks_all(question: Question) -> bool:
    return isinstance(question.target, str) and question.target == "all"


def by_target(found: list[Explanation]) -> Comparison:
    return Comparison({_target_name(each): each for each in found})


def _target_name(found: Explanation) -> str:
    """A class by its label, the parts of an answer by what they are."""
    measured = found.measured
    return str(measured.label) if measured.kind in ("class", "token") else measured.kind


def _by_method(methods: Sequence[str], row: list[list[Explanation]]) -> dict[str, Explanation]:
    """By the name asked for; where every target was asked for, by name and label."""
    named: dict[str, Explanation] = {}
    for name, every in zip(methods, row, strict=True):
        found = every[:1] if _alike(every) else every
        for each in found:
            named[name if len(found) == 1 else f"{name}: {_target_name(each)}"] = each
    return named


def _alike(found: list[Explanation]) -> bool:
    """Whether a method that looks at no target gave the same for each of them: the same row."""
    return all(each.target == found[0].target and each.target.kind == "none" for each in found)
