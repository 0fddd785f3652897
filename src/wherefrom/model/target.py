"""Which number is explained, and which row it is read from.

The *target* is one entry of the model's output: the logit of a class, of a word at a mask, of the start or end of an
answer, of the next token; or several tokens that follow, one after the other (model/phrase.py); with a foil, the
difference of two; of a bare encoder a number of its sentence embedding (embedding.py). The *position* is the token
whose representation that entry is read from, so the row of a map that is its readout row.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import exp
from typing import Any, NamedTuple

import torch
from torch import Tensor

from wherefrom.errors import InvalidTarget, NotDefined, Unsuited, WherefromError
from wherefrom.model.embedding import KINDS as EMBEDDED
from wherefrom.model.embedding import embedding, embedding_number, embedding_target
from wherefrom.model.model import Model
from wherefrom.model.parts import promote
from wherefrom.model.position import last_token, readout_at, span_text
from wherefrom.model.sentences import Sentence
from wherefrom.model.two_streams import SOURCE
from wherefrom.model.vocabulary_words import by_name, ids_by_name, likeliest, token_id, token_name
from wherefrom.options import other_text
from wherefrom.result.answer import Answer, Readout, Target, finite

OF_WORDS = ("masked-lm", "causal-lm", "seq2seq")  # tasks that choose from a vocabulary

EDGES = ("start", "end", "answer")
PHRASE = "mean over the tokens that are read, one before each of the phrase's"
MARK = "_wherefrom_classes"
EACH = "each"  # as a target's kind: every token of what was said after a prompt, one by one, and so many foils of each


@torch.no_grad()
def answer(
    opened: Model,
    sentence: Sentence,
    output: Any,
    row: int,
    target: int | str | Target | None = None,
    foil: int | str | None = None,
    position: int | str | None = None,
) -> Answer:
    """Read the model's output for row `row` of a batch and decide what is explained."""
    resolve = {
        "classification": _classification,
        "masked-lm": _language,
        "causal-lm": _language,
        "seq2seq": _language,
        "token-classification": _tagging,
        "question-answering": _answering,
        "encoder": _encoder,
    }[opened.task]
    found = resolve(opened, sentence, output, row, target, foil, position)
    asked = target is not None or foil is not None
    if not asked or found.target.kind not in ("class", "token") or regression(opened):
        return found
    return replace(found, predicted=resolve(opened, sentence, output, row, None, None, position).target)


def foreseen(opened: Model, sentence: Sentence, target: Any, foil: Any, position: Any) -> Readout | None:
    """Where the output will be read, as `answer` will say; None where that depends on what the model says."""
    if is_each(target) or (opened.task == "question-answering" and position is None):
        return None
    default = opened.reads
    if opened.task == "encoder":
        default = opened.pooling or ("last" if opened.causal else default)
    elif opened.task in ("causal-lm", "seq2seq"):
        if sentence.said:
            return Readout(None, PHRASE, after_prompt(sentence))
        default = "last"
    elif opened.task == "masked-lm" and (target is not None or foil is not None or opened.mask_id in sentence.ids):
        default = "mask"
    return readout_at(opened, sentence, position, default=default)


def is_each(target: Any) -> bool:
    return isinstance(target, Target) and target.kind == EACH


def asks_all(opened: Model, target: Any) -> bool:
    """Whether every class is asked for; of a vocabulary "all" is a word."""
    return isinstance(target, str) and target == "all" and opened.task not in OF_WORDS


def answers(
    opened: Model,
    sentence: Sentence,
    output: Any,
    row: int,
    target: int | str | Target | None = None,
    foil: int | str | None = None,
    position: int | str | None = None,
) -> list[Answer]:
    """The answer; for target="all" one for every class (for an extracted answer: start, end and both)."""
    if isinstance(target, Target) and is_each(target):
        steps = range(len(sentence.said))
        return [each for step in steps for each in _said(opened, sentence, output, row, step, target.index or 0)]
    if not asks_all(opened, target):
        return [answer(opened, sentence, output, row, target, foil, position)]
    if foil is not None:
        raise InvalidTarget("target='all' explains every class by itself; leave the foil out")
    if opened.task == "question-answering":
        every: list[int | str] = list(EDGES)
    elif opened.task in ("classification", "token-classification"):
        every = list(opened.labels)
    else:
        raise InvalidTarget(f"target='all' is for classifiers; {opened.name} has no classes")
    return [answer(opened, sentence, output, row, each, foil, position) for each in every]


def logit(opened: Model, output: Any, row: int, found: Answer, n: int | None = None, *, frozen: bool = False) -> Tensor:
    """The explained number of row `row` as a scalar of the model's own graph: a logit or a difference of two.

    n is how many tokens the sentence has, where it may be padded; `frozen`: scales are constants on the way back.
    Half precision is left first: what two of its numbers add up to is seldom one of its numbers.
    """
    target, where = found.target, found.readout.position
    if target.kind in EMBEDDED:
        return embedding_number(opened, output, row, target, found.readout, n, frozen=frozen)
    if target.kind == "none" or target.index is None:
        raise no_number(opened)
    if target.kind == "phrase":
        each = zip(found.readout.rows, target.tokens, strict=True)
        return torch.stack([promote(output.logits[row, place, token]) for place, token in each]).sum()
    if target.kind == "answer":
        both: Tensor = promote(output.start_logits[row, target.index]) + promote(output.end_logits[row, target.end])
        return both
    if target.kind in ("start", "end"):
        scores: Tensor = getattr(output, f"{target.kind}_logits")[row]
    else:
        scores = output.logits[row]
        if opened.task != "classification":
            scores = scores[where]
    number = promote(scores[target.index])
    return number if target.foil is None else number - promote(scores[target.foil])


def regression(opened: Model) -> bool:
    """Whether a classifier's outputs are numbers, one or several, rather than classes to choose from."""
    classes = opened.task in ("classification", "token-classification")
    return classes and (len(opened.labels) == 1 or opened.config.problem_type == "regression")


def multi_label(opened: Model) -> bool:
    """Whether a classifier's labels are there or not, each by itself, rather than classes to choose from."""
    return bool(opened.config.problem_type == "multi_label_classification")


class Term(NamedTuple):
    """One entry of the output, `sign` times which the explained number has."""

    sign: int
    position: int  # the token whose last hidden state it is read from
    column: int  # which output of the head's last linear layer


def terms(opened: Model, sentence: Sentence, found: Answer) -> list[Term]:
    """The entries that `logit` adds up."""
    target, where = found.target, found.readout.position
    if target.kind in EMBEDDED:
        raise Unsuited(
            f"this method starts at an output of a linear layer, and a {target.kind} of a sentence embedding is none; "
            f"choose another: integrated-gradients, attcat, ablation"
        )
    if target.kind == "none" or target.index is None:
        raise no_number(opened)
    if target.kind == "phrase":
        return [Term(1, *each) for each in zip(found.readout.rows, target.tokens, strict=True)]
    if target.kind == "answer":
        assert target.end is not None
        return [Term(1, target.index, 0), Term(1, target.end, 1)]
    if target.kind in ("start", "end"):
        return [Term(1, target.index, 0 if target.kind == "start" else 1)]
    if opened.task == "classification":  # whatever row of the maps is read, the head reads its own token
        if opened.reads not in ("first", "last"):
            raise Unsuited(
                f"relevance starts at the one token that a head reads, and the head of {opened.name} reads several "
                f"({opened.reads}); choose another method: deeplift, integrated-gradients"
            )
        where = 0 if opened.reads == "first" else last_token(opened, sentence)
    assert where is not None
    against = [] if target.foil is None else [Term(-1, where, target.foil)]
    return [Term(1, where, target.index), *against]


def no_number(opened: Model, *, explained: bool = True) -> WherefromError:
    """What is missing for there to be a number; each kind of model lacks something else. `explained` by a method, of
    which some need none.
    """
    mask = getattr(opened.tokenizer, "mask_token", None) or "a mask"
    lacks = {
        "masked-lm": f"the text has no masked word; write {mask} for the word that the model should predict, or say "
        f"with position= which token is meant",
        "token-classification": "a token classifier gives a label to every token; say with position= (on the page: "
        "At token number) which one is meant: its index, or the word itself",
        "seq2seq": f"at a token of the source {opened.name} predicts nothing; let position= name one of what the "
        f"decoder has read, or leave it out for the last of these",
    }
    usual = f"{opened.name} predicts nothing; use a model with a head"
    maps = ", or choose a method that says what a token is made of, under that heading in `wherefrom methods` (alti, …)"
    if not explained:
        return NotDefined(f"there is nothing to follow through the layers: {lacks.get(opened.task, usual)}")
    lacking = lacks.get(opened.task, usual + _instead(opened)) + (maps if opened.family.mapped else "")
    return NotDefined(f"there is no number to explain: {lacking}")


def _instead(opened: Model) -> str:
    """What can be explained of a representation."""
    if opened.images and opened.both is None:
        return ", or explain one dimension of what represents the picture (target=0)"
    one, other = ("picture", "a text") if opened.images else ("text", "another")
    return f", or explain how similar the {one} is to {other} (target=wherefrom.similarity('another text'))"


# One function per head ------------------------------------------------------------------------------------


def _classification(
    opened: Model, sentence: Sentence, output: Any, row: int, target: Any, foil: Any, position: Any
) -> Answer:
    batch = _of_batch(opened, output)
    chosen = _class(batch.labels, batch.best[row], target, foil)
    readout = readout_at(opened, sentence, position, default=batch.reads)
    if not batch.probabilities:  # a regression predicts a number
        return Answer(chosen, readout, f"{float(output.logits[row, chosen.index]):.4g}", {})
    return Answer(chosen, readout, batch.labels[batch.best[row]], {**batch.probabilities[row]})


class _OfBatch(NamedTuple):
    """What a classifier says of a whole batch."""

    labels: dict[int, str]
    reads: str  # where
    best: list[int]  # by sentence
    probabilities: list[dict[str, float]]  # none for a regression


def _of_batch(opened: Model, output: Any) -> _OfBatch:
    """Looked up once, and noted on the output: each look at a number takes longer than all else in an answer."""
    if not hasattr(output, MARK):
        labels, logits = opened.labels, output.logits
        listed = [] if regression(opened) else _class_probabilities(opened, labels, logits)
        found = _OfBatch(labels, opened.reads, logits.argmax(-1).tolist(), listed)
        object.__setattr__(output, MARK, found)  # transformers' own looks for a field of that name
    noted: _OfBatch = getattr(output, MARK)
    return noted


def _tagging(opened: Model, sentence: Sentence, output: Any, row: int, target: Any, foil: Any, position: Any) -> Answer:
    if position is None:
        if target is not None or foil is not None:
            raise InvalidTarget(
                "a token classifier gives a label to every token; say which token is explained with position="
            )
        return _nothing(opened, sentence)
    readout = readout_at(opened, sentence, position)
    if readout.position is None:
        raise InvalidTarget("a token classifier reads one token; position='mean' means nothing here")
    logits, labels = output.logits[row, readout.position], opened.labels
    best = int(logits.argmax())
    listed = {} if regression(opened) else _class_probabilities(opened, labels, logits[None])[0]
    return Answer(_class(labels, best, target, foil), readout, labels[best], listed)


def _language(
    opened: Model, sentence: Sentence, output: Any, row: int, target: Any, foil: Any, position: Any
) -> Answer:
    if sentence.said:
        return _phrase(opened, sentence, output, row, position)
    asked = target is not None or foil is not None
    default = "mask" if opened.task == "masked-lm" else "last"
    if position is None and default == "mask" and not asked and opened.mask_id not in sentence.ids:
        return _nothing(opened, sentence)
    readout = readout_at(opened, sentence, position, default=default)
    if readout.position is None:
        raise InvalidTarget("a language model reads one token; position='mean' means nothing here")
    if sentence.segments and sentence.segments[readout.position] == SOURCE:
        if asked:
            raise no_number(opened)
        return Answer(Target("none"), readout, None, {})
    logs = output.logits[row, readout.position].float().log_softmax(-1)
    best = int(logs.argmax())
    index = best if target is None else token_id(opened, target, sentence)
    against = None if foil is None else token_id(opened, foil, sentence)
    if against == index:
        raise InvalidTarget(f"target and foil are the same token, '{token_name(opened, index)}'; expected two")
    names = likeliest(opened, logs, best, index, against, after=sentence)
    label = None if against is None else names[against]
    chosen = Target("token", index, names[index], foil=against, foil_label=label)
    return _among(names, logs, chosen, readout, names[best])


def _among(names: Mapping[int, str], logs: Tensor, chosen: Target, readout: Readout, best: str) -> Answer:
    """One token that is explained, among the likeliest: they by their probabilities, it by its logarithm too."""
    listed = by_name(names, logs)
    own = {name: listed[name] for name in (chosen.label, chosen.foil_label) if name is not None}
    return Answer(chosen, readout, best, _probable(listed), ids_by_name(names), log_probabilities=finite(own))


def _probable(logs: Mapping[str, float]) -> dict[str, float]:
    return {name: exp(log) for name, log in logs.items()}


def _phrase(opened: Model, sentence: Sentence, output: Any, row: int, position: Any) -> Answer:
    """Several tokens after the prompt, each read at the token before it."""
    if position is not None:
        each = "call `generate` with this target, which explains each of its tokens"
        instead = each if opened.two_streams else "give a target that is one token"
        raise InvalidTarget(f"a phrase is read where each of its tokens is predicted; leave position out, or {instead}")
    said, rows = sentence.said, after_prompt(sentence)
    logs = output.logits[row, list(rows)].float().log_softmax(-1)
    names = likeliest(opened, logs[0], after=sentence)
    label = _text_of(opened, said)
    whole = float(logs[range(len(said)), list(said)].double().sum())
    chosen, read = Target("phrase", said[0], label, tokens=said), Readout(None, PHRASE, rows)
    likely = _probable({**by_name(names, logs[0]), label: whole})
    return Answer(chosen, read, next(iter(names.values())), likely, log_probabilities=finite({label: whole}))


@torch.no_grad()
def _said(opened: Model, sentence: Sentence, output: Any, row: int, step: int, foils: int) -> list[Answer]:
    """One token of what was said, read at the token before it; and it rather than each of the likeliest others."""
    place, token = after_prompt(sentence)[step], sentence.said[step]
    logs = output.logits[row, place].float().log_softmax(-1)
    names = likeliest(opened, logs, token, most=foils + 1)
    said, read = Target("token", token, names[token]), Readout(place, "token before it")
    alone = _among(names, logs, said, read, next(iter(names.values())))
    others = [replace(said, foil=i, foil_label=name) for i, name in names.items() if i != token]
    return [replace(alone, target=each) for each in (said, *others[:foils])]


def after_prompt(sentence: Sentence) -> tuple[int, ...]:
    """Where each token of what was said is read: the end of the prompt, and the tokens said before it."""
    return tuple(range(len(sentence) - len(sentence.said), len(sentence)))


def _text_of(opened: Model, ids: Sequence[int]) -> str:
    return " ".join(map(str, ids)) if opened.tokenizer is None else str(opened.tokenizer.decode(list(ids))).strip()


def _answering(
    opened: Model, sentence: Sentence, output: Any, row: int, target: Any, foil: Any, position: Any
) -> Answer:
    if foil is not None:
        raise InvalidTarget(f"question answering has no foil; target is one of {', '.join(EDGES)}")
    settled = target if isinstance(target, Target) else None  # an answer that another model has chosen
    kind = settled.kind if settled else "start" if target is None else target
    if kind not in EDGES:
        raise InvalidTarget(
            f"unknown target {target!r} for question answering; expected one of {', '.join(EDGES)} "
            f"(and position= for a token other than the predicted one)"
        )
    n = len(sentence)
    logits = {edge: getattr(output, f"{edge}_logits")[row, :n].float() for edge in ("start", "end")}
    start = int(logits["start"].argmax())
    end = start + int(logits["end"][start:].argmax())
    predicted = end if kind == "end" else start
    best = Readout(predicted, f"predicted {kind}")
    readout = best if position is None else readout_at(opened, sentence, position)
    if readout.position is None:
        raise InvalidTarget("an answer starts and ends at one token; position='mean' means nothing here")
    probabilities = {
        f"start {sentence.tokens[start]}": float(logits["start"].softmax(-1)[start]),
        f"end {sentence.tokens[end]}": float(logits["end"].softmax(-1)[end]),
    }
    if kind == "answer":
        start = readout.position
        end = settled.end if settled and settled.end is not None else start + int(logits["end"][start:].argmax())
        found = Target(kind, start, repr(span_text(sentence, start, end)), end=end)
        return Answer(found, readout, span_text(sentence, start, end), probabilities)
    chosen = Target(kind, readout.position, f"at token {readout.position} '{sentence.tokens[readout.position]}'")
    return Answer(chosen, readout, span_text(sentence, start, end), probabilities)


def _encoder(opened: Model, sentence: Sentence, output: Any, row: int, target: Any, foil: Any, position: Any) -> Answer:
    default = opened.pooling or ("last" if opened.causal else opened.reads)
    readout = readout_at(opened, sentence, position, default=default)
    if target is None and foil is None:
        return Answer(Target("none"), readout, None, {})
    width = embedding(opened, output, row, readout, len(sentence)).shape[-1]
    chosen = embedding_target(opened, target, foil, readout, width)
    number = embedding_number(opened, output, row, chosen, readout, len(sentence))
    return Answer(chosen, readout, f"{float(number):.4g}", {})


def _nothing(opened: Model, sentence: Sentence) -> Answer:
    """Nothing was asked and nothing is predicted by itself: the maps stand, read from the default row."""
    return Answer(Target("none"), readout_at(opened, sentence, None, default=opened.family.reads), None, {})


# What they share ------------------------------------------------------------------------------------------


def _class(labels: Mapping[int, str], best: int, target: Any, foil: Any) -> Target:
    """The class that is explained: the one asked for, or the `best`."""
    index = best if target is None else class_index(labels, target, "target")
    if foil is None:
        return Target("class", index, labels[index])
    against = class_index(labels, foil, "foil")
    if against == index:
        expected = "expected two different ones" if len(labels) > 1 else "the model has no other; leave foil out"
        if target is None and len(labels) > 1:
            raise InvalidTarget(f"the foil is the class that is predicted, '{labels[index]}'; expected another one")
        raise InvalidTarget(f"target and foil are the same class, '{labels[index]}'; {expected}")
    return Target("class", index, labels[index], foil=against, foil_label=labels[against])


def class_index(labels: Mapping[int, str], wanted: int | str, what: str) -> int:
    """The class of a label or an id, or an error that says which there are."""
    if isinstance(wanted, str):
        exact = [index for index, label in labels.items() if label == wanted]
        loose = [index for index, label in labels.items() if label.casefold() == wanted.casefold()]
        if exact or loose:
            return (exact or loose)[0]
        if wanted.isascii() and wanted.isdecimal():  # a class id typed on the command line
            wanted = int(wanted)
    if isinstance(wanted, int) and not isinstance(wanted, bool) and wanted in labels:
        return wanted
    shown = ", ".join(f"{index} '{label}'" for index, label in list(labels.items())[:20])
    if (other := other_text(wanted)) is not None:
        raise InvalidTarget(
            f"similarity to {other!r} is of a sentence embedder, and this model predicts a class; name one: {shown}"
        )
    raise InvalidTarget(f"unknown {what} {wanted!r}; the classes of this model are {shown}")


def _class_probabilities(opened: Model, labels: Mapping[int, str], logits: Tensor) -> list[dict[str, float]]:
    """By label, for each row of logits."""
    several = multi_label(opened)
    p = torch.sigmoid(logits.float()) if several else logits.float().softmax(-1)
    return [{labels[i]: each for i, each in enumerate(row)} for row in p.tolist()]
