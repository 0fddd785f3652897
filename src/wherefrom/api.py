"""`explain`, `compare` and `capture`: text in, explanations out."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Literal, TypeAlias, Unpack, overload

from wherefrom.defaults import DEFAULT_METHOD, DEFAULT_MODEL
from wherefrom.errors import warn
from wherefrom.method import MethodLike, MethodSpec, choose, choose_each, list_of_names
from wherefrom.model import (
    Encoded,
    Inputs,
    ManyInputs,
    Model,
    ModelLike,
    OneInput,
    TokenizerLike,
    Trace,
    collate,
    open_model,
)
from wherefrom.model import capture as capture_batch
from wherefrom.model.chat import Chat, Tools, given_or_chat, with_tools
from wherefrom.model.target import asks_all
from wherefrom.model.undo import outside_inference_mode
from wherefrom.options import (
    BatchSize,
    DeviceLike,
    DtypeLike,
    ExplainOptions,
    HeadLike,
    Kept,
    Keywords,
    LayerRange,
    LongText,
    OnError,
    Overlap,
    RowsKept,
    Sink,
    TargetLike,
)
from wherefrom.pipeline import auto
from wherefrom.pipeline.auto import is_default
from wherefrom.pipeline.bulk import ByInput, Given, How, beside_phrases, explained, followed, read
from wherefrom.pipeline.outcome import by_name, by_target
from wherefrom.pipeline.resolution import (
    AUTO,
    Question,
    Wanted,
    refuse_misspelt,
    refuse_unseen_targets,
    resolve_job,
    resolve_jobs,
    resolve_questions,
)
from wherefrom.pipeline.windows import as_read
from wherefrom.result.comparison import Comparison
from wherefrom.result.explanation import Explanation
from wherefrom.result.explanations import Explanations
from wherefrom.typecheck import checks_arguments

if TYPE_CHECKING:
    from wherefrom.cost import Estimate

Explained: TypeAlias = Explanation | Comparison | Explanations[Explanation] | Explanations[Comparison]


# One overload for each kind of result; what they have in common is ExplainOptions (wherefrom/options.py). They overlap,
# since a text is itself a sequence of texts, and "all" a target: the first that fits is meant.
# fmt: off
@overload
def explain(  # type: ignore[overload-overlap]
    inputs: OneInput = ..., model: ModelLike = ..., tokenizer: TokenizerLike = ..., method: MethodLike = ..., *,
    chat: Chat | None = ..., tools: Tools | None = ...,
    target: Literal["all"], foil: TargetLike = ..., position: TargetLike = ...,
    estimate: Literal[False] = ..., aggregate: str | None = ..., layers: LayerRange = ...,
    receptive_field: bool = ..., rows: RowsKept = ...,
    head: HeadLike = ..., drop_self: bool = ..., sink: Sink = ..., keep: Kept = ...,
    batch_size: BatchSize = ..., long: LongText = ..., overlap: Overlap = ..., truncate: bool = ...,
    on_error: OnError = ..., progress: bool | None = ...,
    task: str | None = ..., device: DeviceLike = ..., dtype: DtypeLike = ..., prove: bool = ...,
    model_kwargs: Keywords = ..., tokenizer_kwargs: Keywords = ..., **options: object,
) -> Comparison: ...
@overload
def explain(  # type: ignore[overload-overlap]
    inputs: Encoded, model: ModelLike = ..., tokenizer: TokenizerLike = ..., method: MethodLike = ..., *,
    chat: None = ..., tools: None = ..., target: TargetLike = ..., foil: TargetLike = ..., position: TargetLike = ...,
    estimate: Literal[False] = ..., aggregate: str | None = ..., layers: LayerRange = ...,
    receptive_field: bool = ..., rows: RowsKept = ...,
    head: HeadLike = ..., drop_self: bool = ..., sink: Sink = ..., keep: Kept = ...,
    batch_size: BatchSize = ..., long: LongText = ..., overlap: Overlap = ..., truncate: bool = ...,
    on_error: OnError = ..., progress: bool | None = ...,
    task: str | None = ..., device: DeviceLike = ..., dtype: DtypeLike = ..., prove: bool = ...,
    model_kwargs: Keywords = ..., tokenizer_kwargs: Keywords = ..., **options: object,
) -> Explanation | Comparison | Explanations[Explanation] | Explanations[Comparison]: ...
@overload
def explain(  # type: ignore[overload-overlap]
    inputs: ManyInputs, model: ModelLike = ..., tokenizer: TokenizerLike = ..., method: MethodLike = ..., *,
    chat: None = ..., tools: None = ..., target: Literal["all"], foil: TargetLike = ..., position: TargetLike = ...,
    estimate: Literal[False] = ..., aggregate: str | None = ..., layers: LayerRange = ...,
    receptive_field: bool = ..., rows: RowsKept = ...,
    head: HeadLike = ..., drop_self: bool = ..., sink: Sink = ..., keep: Kept = ...,
    batch_size: BatchSize = ..., long: LongText = ..., overlap: Overlap = ..., truncate: bool = ...,
    on_error: OnError = ..., progress: bool | None = ...,
    task: str | None = ..., device: DeviceLike = ..., dtype: DtypeLike = ..., prove: bool = ...,
    model_kwargs: Keywords = ..., tokenizer_kwargs: Keywords = ..., **options: object,
) -> Explanations[Comparison]: ...
@overload
def explain(  # type: ignore[overload-overlap]
    inputs: OneInput = ..., model: ModelLike = ..., tokenizer: TokenizerLike = ..., method: MethodLike = ..., *,
    chat: Chat | None = ..., tools: Tools | None = ...,
    target: TargetLike = ..., foil: TargetLike = ..., position: TargetLike = ...,
    estimate: Literal[False] = ..., aggregate: str | None = ..., layers: LayerRange = ...,
    receptive_field: bool = ..., rows: RowsKept = ...,
    head: HeadLike = ..., drop_self: bool = ..., sink: Sink = ..., keep: Kept = ...,
    batch_size: BatchSize = ..., long: LongText = ..., overlap: Overlap = ..., truncate: bool = ...,
    on_error: OnError = ..., progress: bool | None = ...,
    task: str | None = ..., device: DeviceLike = ..., dtype: DtypeLike = ..., prove: bool = ...,
    model_kwargs: Keywords = ..., tokenizer_kwargs: Keywords = ..., **options: object,
) -> Explanation: ...
@overload
def explain(
    inputs: ManyInputs, model: ModelLike = ..., tokenizer: TokenizerLike = ..., method: MethodLike = ..., *,
    chat: None = ..., tools: None = ..., target: TargetLike = ..., foil: TargetLike = ..., position: TargetLike = ...,
    estimate: Literal[False] = ..., aggregate: str | None = ..., layers: LayerRange = ...,
    receptive_field: bool = ..., rows: RowsKept = ...,
    head: HeadLike = ..., drop_self: bool = ..., sink: Sink = ..., keep: Kept = ...,
    batch_size: BatchSize = ..., long: LongText = ..., overlap: Overlap = ..., truncate: bool = ...,
    on_error: OnError = ..., progress: bool | None = ...,
    task: str | None = ..., device: DeviceLike = ..., dtype: DtypeLike = ..., prove: bool = ...,
    model_kwargs: Keywords = ..., tokenizer_kwargs: Keywords = ..., **options: object,
) -> Explanations[Explanation]: ...
@overload
def explain(
    inputs: Inputs = ..., model: ModelLike = ..., tokenizer: TokenizerLike = ..., method: MethodLike = ..., *,
    chat: Chat | None = ..., tools: Tools | None = ...,
    target: TargetLike = ..., foil: TargetLike = ..., position: TargetLike = ...,
    estimate: Literal[True], aggregate: str | None = ..., layers: LayerRange = ...,
    receptive_field: bool = ..., rows: RowsKept = ...,
    head: HeadLike = ..., drop_self: bool = ..., sink: Sink = ..., keep: Kept = ...,
    batch_size: BatchSize = ..., long: LongText = ..., overlap: Overlap = ..., truncate: bool = ...,
    on_error: OnError = ..., progress: bool | None = ...,
    task: str | None = ..., device: DeviceLike = ..., dtype: DtypeLike = ..., prove: bool = ...,
    model_kwargs: Keywords = ..., tokenizer_kwargs: Keywords = ..., **options: object,
) -> Estimate: ...
# fmt: on
@checks_arguments
def explain(
    inputs: Inputs | None = None,
    model: ModelLike = DEFAULT_MODEL,
    tokenizer: TokenizerLike = None,
    method: MethodLike = DEFAULT_METHOD,
    *,
    chat: Chat | None = None,
    tools: Tools | None = None,
    target: TargetLike = None,
    foil: TargetLike = None,
    position: TargetLike = None,
    aggregate: str | None = AUTO,
    layers: LayerRange = None,
    receptive_field: bool = False,
    rows: RowsKept = "all",
    head: HeadLike = None,
    drop_self: bool = False,
    sink: Sink = "keep",
    keep: Kept = None,
    batch_size: BatchSize = 16,
    long: LongText = "error",
    overlap: Overlap = None,
    truncate: bool = False,
    on_error: OnError = "raise",
    progress: bool | None = None,
    task: str | None = None,
    device: DeviceLike = None,
    dtype: DtypeLike = None,
    prove: bool = True,
    model_kwargs: Keywords = None,
    tokenizer_kwargs: Keywords = None,
    estimate: bool = False,
    **options: object,
) -> Explained | Estimate:
    """Say which input tokens an output is made of. One input gives one `Explanation`, several give `Explanations`.

    inputs: one input is a text, a pair of texts (a tuple of two), token ids, an encoding with `input_ids`, a row
        with a "text" (and "text_pair"), or a chat: a list of turns with "role" and "content". Several are a list of
        these, or anything else that has an order: a generator, a pandas Series, a numpy array of texts, a column of a
        dataset or a tokenised dataset. Texts split into words are lists of words, with
        tokenizer_kwargs={"is_split_into_words": True}. See docs/inputs.md.
    chat: a chat in place of `inputs`.
    tools: what the chat's template describes to the model, as in `apply_chat_template`; other arguments of the template
        (documents, enable_thinking) go into tokenizer_kwargs.
    model: a shipped model ("wherefrom/sentiment"), a hub id, a folder, or a loaded model with its `tokenizer`
        (token ids need none).
    method: a name or symbol listed by `wherefrom.methods()`; further keyword arguments are its options. They may also
        stand in the name: "integrated-gradients(n_steps=20)". "auto" is alti-logit for a causal language model,
        deeplift for classifiers, words at a mask and pictures, alti for an encoder with a decoder, for a model that
        predicts nothing and for maps (docs/methods.md has the lists); the result's `method` says which it was.
    aggregate: the aggregation of layer maps: as the method has it ("rollout", mostly); None for none.
    target, foil: which number is explained: a class id or label, a word at a mask, "start", "end" or
        "answer" (both) of an answer, the next token or several, the text that a decoder writes; of a bare encoder
        `wherefrom.similarity("another text")` or a dimension of its embedding; the predicted one if none is given.
        With a foil, the difference to it. "all" explains every class from one pass and gives a `Comparison` by label.
        Methods that say what a representation is made of look at no target and refuse one.
    position: the readout position: a token index, a word that stands once in the text, "first", "last", "mean" or
        "mask"; what the head reads if none is given. target, foil and position may be lists, one entry per input.
    head: one head, counted from 0, instead of the mean over all (the layers below stay averaged, Abnar &
        Zuidema A.1); "all" adds every head's layer maps as `head_maps`.
    layers: (start, end), as in a slice: the blocks from `start` up to but not including `end`, so that the
        answer reaches from block end - 1 down to the input of block `start` (their equation 1 with j = start).
        Negative numbers count from the end: (-3, None) is the last three blocks.
    receptive_field: for causal models, rollout and flow relative to an even reader (wherefrom/aggregate/receptive.py).
    drop_self: set what the readout token gives itself to 0, as AttCAT's code does.
    sink: "drop" leaves the first token that is seen out of every layer map and shares out what it had over the rest of
        its row, since the maps of decoders pile up on it; "keep" shows it (wherefrom/pipeline/sinks.py).
    rows: "all", or "readout" for the readout row alone, as `layer_scores`: what makes flow fast.
    keep: "maps" for everything a method computes; "row" for the readout row of every layer (`layer_scores`) and the
        scores; "scores" for these alone. What is not kept is not held either: without maps, memory does not grow
        with the layers (wherefrom/pipeline/readout_rows.py). "maps" unless rows="readout", and then "row".
    long: what becomes of a text longer than the model reads: "error", "truncate" (also truncate=True), or "windows":
        overlapping windows, by `overlap` tokens (a quarter, if None), each explained towards the same class, a token's
        score the mean over its windows (wherefrom/pipeline/windows.py).
    on_error: "skip" goes on without the inputs that fail: None stands in their place, and `skipped` says why.
    progress: a bar on stderr or in the notebook; None shows it where somebody looks and there is more than a batch.
    estimate: run nothing and say how long it would take and how much memory (an `Estimate`).
    tokenizer_kwargs go to the tokenizer's call, model_kwargs to `from_pretrained`; prove=False opens the model without
        the proof that its blocks are understood and without comparing outputs (`wherefrom.open_model`).

    >>> wherefrom.explain("a deep and meaningful film .").words().top(1, special=False)[0][1]
    'meaningful'
    """
    refuse_misspelt(explain, options)
    named = None if is_default(method) else [choose(method, options)]  # a misspelt name is said at once
    how = How(batch_size, on_error, progress, overlap)
    opened = open_model(model, tokenizer, task=task, device=device, dtype=dtype, prove=prove, model_kwargs=model_kwargs)
    given = read(
        opened.reader(truncate=truncate, tokenizer_kwargs=with_tools(tokenizer_kwargs, tools), long=long),
        given_or_chat(inputs, chat),
        how,
    )
    if not given.sentences:  # a part of a stream in which no input can be read
        none: Explained = ByInput(given, {}, given.failed).gathered({})
        return none
    given, questions = _asked(opened, given, target, foil, position)
    wanted = Wanted(aggregate, layers, receptive_field, rows, head, drop_self, sink, keep)
    sentences = list(given.sentences.values())
    choices = named or auto.candidates(opened, sentences, questions, wanted, options)
    if estimate:
        from wherefrom.cost import estimate_job

        job = resolve_job(opened, choices[0], wanted)
        every = as_read(opened, [*sentences, *given.foils.values()], overlap)
        return estimate_job(opened, every, job, batch_size)

    def by(chosen: MethodSpec) -> Explained:
        job = resolve_job(opened, chosen, wanted)
        refuse_unseen_targets(opened, beside_phrases(given, questions), [chosen])
        done = explained(opened, given, questions, {chosen.asked: job}, how)
        every = {row: outcomes[chosen.asked].explanations for row, outcomes in done.outcomes.items()}
        all_targets = asks_all(opened, questions[0].target)
        result: Explained = done.gathered(
            {row: by_target(each) if all_targets else each[0] for row, each in every.items()}
        )
        return result

    return auto.first_suited(choices, by)


@overload
def compare(  # type: ignore[overload-overlap]
    inputs: OneInput = ...,
    model: ModelLike = ...,
    tokenizer: TokenizerLike = ...,
    methods: str | Iterable[str] = ...,
    *,
    chat: Chat | None = ...,
    tools: Tools | None = ...,
    **options: Unpack[ExplainOptions],
) -> Comparison: ...
@overload
def compare(  # type: ignore[overload-overlap]
    inputs: Encoded,
    model: ModelLike = ...,
    tokenizer: TokenizerLike = ...,
    methods: str | Iterable[str] = ...,
    **options: Unpack[ExplainOptions],
) -> Comparison | Explanations[Comparison]: ...
@overload
def compare(
    inputs: ManyInputs,
    model: ModelLike = ...,
    tokenizer: TokenizerLike = ...,
    methods: str | Iterable[str] = ...,
    **options: Unpack[ExplainOptions],
) -> Explanations[Comparison]: ...
@checks_arguments
def compare(
    inputs: Inputs | None = None,
    model: ModelLike = DEFAULT_MODEL,
    tokenizer: TokenizerLike = None,
    methods: str | Iterable[str] = DEFAULT_METHOD,
    *,
    chat: Chat | None = None,
    tools: Tools | None = None,
    target: TargetLike = None,
    foil: TargetLike = None,
    position: TargetLike = None,
    aggregate: str | None = AUTO,
    layers: LayerRange = None,
    receptive_field: bool = False,
    rows: RowsKept = "all",
    head: HeadLike = None,
    drop_self: bool = False,
    sink: Sink = "keep",
    keep: Kept = None,
    batch_size: BatchSize = 16,
    long: LongText = "error",
    overlap: Overlap = None,
    truncate: bool = False,
    on_error: OnError = "raise",
    progress: bool | None = None,
    task: str | None = None,
    device: DeviceLike = None,
    dtype: DtypeLike = None,
    prove: bool = True,
    model_kwargs: Keywords = None,
    tokenizer_kwargs: Keywords = None,
) -> Comparison | Explanations[Comparison]:
    """Explain by several methods on one captured pass: a `Comparison`, for several inputs `Explanations` of them.

    Arguments as in `explain`; options stand in the names of the methods. Methods that look at a target and methods that
    do not stand side by side; each result says what it explains. "auto" takes the first two default methods of the
    model's kind, ALTI and attention rollout (wherefrom/defaults.py). A method that fails does not take the others with
    it: `Comparison.failed` says why it is missing, and so does a warning.

    >>> list(wherefrom.compare("a deep film .", methods=["integrated-gradients(n_steps=20)", "ablation(of=logit)"]))
    ['integrated-gradients(n_steps=20)', 'ablation(of=logit)']
    """
    names = list_of_names(methods)
    unnamed = names == [DEFAULT_METHOD]
    chosen = {} if unnamed else choose_each(names)
    how = How(batch_size, on_error, progress, overlap)
    opened = open_model(model, tokenizer, task=task, device=device, dtype=dtype, prove=prove, model_kwargs=model_kwargs)
    given = read(
        opened.reader(truncate=truncate, tokenizer_kwargs=with_tools(tokenizer_kwargs, tools), long=long),
        given_or_chat(inputs, chat),
        how,
    )
    given, questions = _asked(opened, given, target, foil, position)
    wanted = Wanted(aggregate, layers, receptive_field, rows, head, drop_self, sink, keep)
    if unnamed:
        usual = auto.compared(opened, list(given.sentences.values()), questions, wanted)
        chosen = choose_each(usual)
    refuse_unseen_targets(opened, beside_phrases(given, questions), list(chosen.values()))
    jobs, failed = resolve_jobs(opened, chosen, wanted)
    done = explained(opened, given, questions, jobs, how)
    results = {row: by_name(list(chosen), outcomes, failed) for row, outcomes in done.outcomes.items()}
    _warn_of_failures(results.values())
    gathered: Comparison | Explanations[Comparison] = done.gathered(results)
    return gathered


@checks_arguments
def capture(
    inputs: Inputs,
    model: ModelLike = DEFAULT_MODEL,
    tokenizer: TokenizerLike = None,
    *,
    grad: bool = False,
    truncate: bool = False,
    task: str | None = None,
    device: DeviceLike = None,
    dtype: DtypeLike = None,
    prove: bool = True,
    model_kwargs: Keywords = None,
    tokenizer_kwargs: Keywords = None,
) -> Trace:
    """One forward pass with everything it did: the material for a method of your own (CONTRIBUTING.md).

    >>> wherefrom.capture("a deep and meaningful film .").layers[0].attention.shape  # batch, heads, tokens, tokens
    torch.Size([1, 8, 9, 9])
    """
    opened = open_model(model, tokenizer, task=task, device=device, dtype=dtype, prove=prove, model_kwargs=model_kwargs)
    opened.need_blocks("a capture")
    sentences, _ = opened.reader(truncate=truncate, tokenizer_kwargs=tokenizer_kwargs).read(inputs)
    return outside_inference_mode(lambda: capture_batch(opened, collate(sentences, opened.pad_id), grad=grad))


def _asked(opened: Model, given: Given, *asked: TargetLike) -> tuple[Given, list[Question]]:
    """What is asked of each sentence, and the sentences followed by the phrases that are asked for.

    Lists have an entry for every input, also for one that could not be read.
    """
    every = resolve_questions(given.count, given.single, *asked)
    questions = [every[row] for row in given.sentences]
    return followed(opened, given, questions), questions


def _warn_of_failures(results: Iterable[Comparison]) -> None:
    failed = {name: detail for each in results for name, detail in each.failed.items()}
    for name, detail in failed.items():
        warn(f"{name} is missing from the comparison: {detail}")
