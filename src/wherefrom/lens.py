"""The logit lens: what a model would have said after each of its layers.

    p^l  =  softmax(head(norm(x^l)))  at the row where the answer is read        x^0 the embeddings, x^L the last output

The state after layer l stands in place of the last block's output, and the rest of the model, its closing norm and its
head as they are, makes of it what it makes of that one: defined for every head, and the last row is the answer.

nostalgebraist (2020), interpreting GPT: the logit lens.
https://www.lesswrong.com/posts/AcKRB8wDpdaN6v6ru/interpreting-gpt-the-logit-lens
"""

from __future__ import annotations

from typing import Annotated, Any

from torch import Tensor

from wherefrom.defaults import DEFAULT_MODEL
from wherefrom.errors import InvalidInput, InvalidTarget, Unsuited
from wherefrom.model import LayerTrace, Model, ModelLike, OneInput, TokenizerLike, answer, collate, open_model, stream
from wherefrom.model.chat import Chat, Tools, given_or_chat, with_tools
from wherefrom.model.output import choices, explained
from wherefrom.model.rerun import from_layer
from wherefrom.model.target import no_number, regression
from wherefrom.model.undo import without_gradients
from wherefrom.options import DeviceLike, DtypeLike, Keywords
from wherefrom.pipeline.phrases import with_phrases
from wherefrom.pipeline.resolution import Question
from wherefrom.result.answer import Answer
from wherefrom.result.by_layer import LogitLens, Said
from wherefrom.result.explanation import Explanation
from wherefrom.result.words import as_written
from wherefrom.typecheck import checks_arguments, least


@checks_arguments
def logit_lens(
    inputs: OneInput | Explanation | Chat | None = None,
    model: ModelLike = DEFAULT_MODEL,
    tokenizer: TokenizerLike = None,
    *,
    chat: Chat | None = None,
    tools: Tools | None = None,
    target: int | str | None = None,
    foil: int | str | None = None,
    position: int | str | None = None,
    top: Annotated[int, least(1)] = 5,
    task: str | None = None,
    device: DeviceLike = None,
    dtype: DtypeLike = None,
    prove: bool = True,
    model_kwargs: Keywords = None,
    tokenizer_kwargs: Keywords = None,
) -> LogitLens:
    """What each layer of a model would have said: the likeliest words (or classes) after every block.

    inputs: one input as in `explain`, or an `Explanation`, whose question is asked again: `logit_lens(g[3], model=m)`.
    target, foil: what is followed through the layers with its probability and rank; the model's own answer if None.
    top: how many words are listed of each layer. The rest as in `explain`.

    >>> lens = wherefrom.logit_lens("Paris is the capital of", model="wherefrom/lm", target=" France")
    >>> len(lens)  # the embeddings, and what nine blocks made of them
    10
    """
    if isinstance(inputs, Explanation):
        asked = inputs.arguments
        inputs, tokenizer_kwargs = asked.get("inputs"), asked.get("tokenizer_kwargs", tokenizer_kwargs)
        target, foil, position = (
            asked.get(name) if given is None else given
            for name, given in (("target", target), ("foil", foil), ("position", position))
        )
    opened = open_model(model, tokenizer, task=task, device=device, dtype=dtype, prove=prove, model_kwargs=model_kwargs)
    opened.need_blocks("the logit lens")
    if opened.two_streams:
        raise Unsuited(
            f"the logit lens reads the state of every layer as if it were the last, and the encoder of {opened.name} "
            f"is followed by no head; expected a model of one stream of tokens"
        )
    if opened.task == "encoder":  # whose target would be a number of an embedding, which no head reads
        raise no_number(opened, explained=False)
    read, single = opened.reader(tokenizer_kwargs=with_tools(tokenizer_kwargs, tools)).read(given_or_chat(inputs, chat))
    if not single:
        raise InvalidInput(f"{len(read)} inputs were given; the logit lens takes one at a time")
    sentence, other = with_phrases(opened, read[0], Question(target, foil, position))
    if other is not None:
        raise InvalidTarget(
            "target or foil has several tokens, so that each has rows of its own; ask for one at a time"
        )
    return _seen(opened, sentence, (target, foil, position), top)


def _seen(opened: Model, sentence: Any, question: tuple[Any, Any, Any], top: int) -> LogitLens:
    return without_gradients(lambda: _read_layers(opened, sentence, question, top))


def _read_layers(opened: Model, sentence: Any, question: tuple[Any, Any, Any], top: int) -> LogitLens:
    states: list[Tensor] = []

    def keep(layer: LayerTrace) -> None:
        states.append(layer.raw["x"])
        if layer.index == opened.depth - 1:
            states.append(layer.raw["output"])

    batch = collate([sentence], opened.pad_id)
    trace = stream(opened, batch, keep)
    final = answer(opened, sentence, trace.output, 0, *question)
    if not final.target.towards:
        raise no_number(opened, explained=False)
    place = states[-1].device
    made = (from_layer(opened, batch, opened.depth, each.to(place), tuples=trace.tuples) for each in states)
    found = [_said(opened, sentence, output, layer, final, question[2], top) for layer, output in enumerate(made)]
    places = zip(sentence.tokens, sentence.spans, strict=True)
    pieces = [as_written(token, sentence.texts, span) for token, span in places]
    return LogitLens(sentence.tokens, final.target, final.readout, found, pieces)


def _said(opened: Model, sentence: Any, output: Any, layer: int, final: Answer, position: Any, top: int) -> Said:
    own = answer(opened, sentence, output, 0, None, None, position)
    likely = sorted(own.probabilities.items(), key=lambda each: -each[1])[:top]
    n = len(sentence)
    if regression(opened):
        return Said(layer, own.prediction, {}, None, None)
    chosen = list(choices(opened, output, 0, final, n))
    rank = 1 + int((chosen[0][0] > chosen[0][0][chosen[0][1]]).sum()) if len(chosen) == 1 else None
    share = float(explained(opened, output, [final], [n], "probability"))
    return Said(layer, own.prediction, dict(likely), share, rank)
