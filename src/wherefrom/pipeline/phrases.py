"""Targets of several tokens: the inputs that are read for them, and what is left of two explanations' difference.

A phrase is read in one pass with its prompt (model/phrase.py). A foil of several tokens is another text, read in a pass
of its own: after the prompt the two have nothing in common. What a method with signs says of a difference is the
difference of what it says of the two:

    prompt    score of the target − score of the foil
    answer    score of the target        foil    − score of the foil
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from wherefrom.errors import InvalidTarget, Unsuited, WherefromError
from wherefrom.model import Model, Sentence
from wherefrom.model.paired import paired
from wherefrom.model.phrase import continued, phrase_of
from wherefrom.model.target import OF_WORDS
from wherefrom.model.two_streams import TARGET
from wherefrom.model.vocabulary_words import token_id
from wherefrom.options import other_text
from wherefrom.pipeline.outcome import Outcome, Outcomes
from wherefrom.pipeline.resolution import Question
from wherefrom.result.answer import Readout
from wherefrom.result.explanation import Array, Explanation

FOIL = "foil"


def with_phrases(opened: Model, sentence: Sentence, question: Question) -> tuple[Sentence, Sentence | None]:
    """The sentence as it is read for what is asked of it; and for a foil that is read by itself, another."""
    similar = next(filter(None, map(other_text, (question.target, question.foil))), None)
    if similar is not None and opened.task in OF_WORDS:
        raise InvalidTarget(
            f"similarity to {similar!r} is of a sentence embedder, and {opened.name} predicts words; name one of these"
        )
    if opened.two_streams and TARGET in sentence.segments:  # with what was written so far: one token is asked about
        return sentence, None
    if opened.two_streams:
        foil_too = None if question.foil is None else paired(opened, sentence, question.foil)
        return paired(opened, sentence, question.target), foil_too
    if question.target is None and question.foil is None:
        return sentence, None
    target, foil = (phrase_of(opened, sentence, each) for each in (question.target, question.foil))
    if target is None and foil is None:
        return sentence, None
    if question.foil is None and target is not None:
        return continued(opened, sentence, target), None
    if question.target is None:
        raise InvalidTarget(
            "a foil of several tokens needs a target= beside it, which a prediction of one token is not"
        )
    sides = [
        [token_id(opened, wanted, sentence)] if phrase is None else phrase
        for phrase, wanted in ((target, question.target), (foil, question.foil))
    ]
    if sides[0] == sides[1]:
        raise InvalidTarget(f"target and foil are the same phrase, '{question.target}'; expected two different ones")
    room = max(map(len, sides))
    return continued(opened, sentence, sides[0], room=room), continued(opened, sentence, sides[1], FOIL, room)


def contrasted(target: Outcomes, foil: Outcomes, prompt: int) -> Outcomes | WherefromError:
    """Method by method the difference of what is said of a target and of its foil, after a prompt of so many tokens.

    The first error, where no method has a difference to say.
    """
    found = {name: _outcome(each, foil[name], prompt) for name, each in target.items()}
    errors = [each.error for each in found.values() if each.error is not None]
    return errors[0] if len(errors) == len(found) else found


def _outcome(target: Outcome, foil: Outcome, prompt: int) -> Outcome:
    error = target.error or foil.error
    if error is None:
        try:
            both = zip(target.explanations, foil.explanations, strict=True)
            return replace(target, explanations=tuple(_difference(*each, prompt) for each in both))
        except WherefromError as raised:
            error = raised
    return replace(target, explanations=(), error=error)


def _difference(target: Explanation, foil: Explanation, prompt: int) -> Explanation:
    if not (target.signed and target.target.towards):
        raise Unsuited(
            f"{target.method} has no signs, so that it says nothing of the difference of two phrases; leave the foil "
            f"out, or choose a method that has, such as gradient-x-input or ablation"
        )

    def less(ours: Array | None, theirs: Array | None) -> Array | None:
        if ours is None or theirs is None:
            return None
        shared = ours[..., :prompt] - theirs[..., :prompt]
        found: Array = np.concatenate([shared, ours[..., prompt:], -theirs[..., prompt:]], -1)
        return found

    scores = less(target.scores, foil.scores)
    assert scores is not None
    texts = (*target.texts, *(foil.texts[-1:] if len(foil) > prompt else ()))
    spans = [span and (len(texts) - 1, *span[1:]) for span in foil.spans[prompt:]]
    ours, theirs = target.target, foil.target
    return replace(
        target.without_maps(),
        tokens=[*target.tokens, *foil.tokens[prompt:]],
        scores=scores,
        layer_scores=less(target.layer_scores, foil.layer_scores),
        texts=texts,
        spans=[*target.spans, *spans],
        special=[*target.special, *foil.special[prompt:]],
        unknown=[*target.unknown, *foil.unknown[prompt:]],
        segments=[*target.segments, *[FOIL] * (len(foil) - prompt)],
        word_ids=None,
        delta=None if target.delta is None or foil.delta is None else target.delta - foil.delta,
        arrived=None,
        surrogate=None,
        target=replace(ours, foil=theirs.index, foil_label=theirs.label, foil_tokens=theirs.tokens),
        readout=Readout(None, "end of the prompt and of each token said, for target and foil"),
        probabilities={**target.probabilities, **foil.probabilities},
        log_probabilities={**target.log_probabilities, **foil.log_probabilities},
        seconds=target.seconds + foil.seconds,
    )
