r"""A source text and the target text that a decoder writes, as one sentence.

    ids      source, then what the decoder reads: its start token, and the target but for its last token
    said     the target, each of whose tokens is read at the one before it: T numbers of one pass

which is a prompt and its answer (phrase.py), but that the prompt ends in the start token, and that each of the two is
read by a stack of its own (two_streams.py).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch

from wherefrom.errors import InvalidTarget, TooLong
from wherefrom.model.model import Model
from wherefrom.model.offsets import special_ids, token_names
from wherefrom.model.phrase import continued
from wherefrom.model.sentences import Sentence
from wherefrom.model.two_streams import TARGET, prefixed


def paired(opened: Model, sentence: Sentence, wanted: object) -> Sentence:
    """A source sentence with a target text after it."""
    if not isinstance(wanted, str) or not wanted.strip():
        raise InvalidTarget(
            f"{opened.name} is an encoder with a decoder, which is asked about a text that it writes; give that text "
            f"(target='…'), or let the model write it with `generate`"
        )
    if opened.tokenizer is None:
        raise InvalidTarget("a target text was given but no tokenizer to read it; pass tokenizer=")
    labels = [int(i) for i in opened.tokenizer(text_target=wanted)["input_ids"]]
    if labels[-2:] == [opened.tokenizer.eos_token_id] * 2:  # a text that has its end in writing, as what was generated
        labels.pop()
    return followed_by(opened, sentence, start_of(opened, labels), labels)


def begun(opened: Model, sentence: Sentence, prefix: str) -> Sentence:
    """A source sentence with what the decoder has written of its target, after which one token more is asked for."""
    if opened.tokenizer is None:
        raise InvalidTarget("a prefix was given but no tokenizer to read it; pass tokenizer=")
    labels = [int(i) for i in opened.tokenizer(text_target=prefix)["input_ids"]]
    own, start = special_ids(opened.tokenizer), start_of(opened, labels)
    while labels and labels[-1] in own:  # the end of the text, which is not written yet
        labels.pop()
    read = [start, *labels]
    if opened.max_length is not None and len(read) > opened.max_length:
        raise TooLong(f"the prefix has {len(read)} tokens but the model reads at most {opened.max_length}")
    return prefixed(sentence, read, token_names(opened.tokenizer, read), [i in own for i in read])


def start_of(opened: Model, labels: Sequence[int]) -> int:
    """What the decoder reads before the first token of a target: for mBART its language, for others one for all."""
    shift = getattr(opened.model, "prepare_decoder_input_ids_from_labels", None)
    if shift is None:  # M2M100
        return int(opened.config.decoder_start_token_id)
    return int(shift(labels=torch.tensor([list(labels)]))[0, 0])


def followed_by(opened: Model, source: Sentence, start: int, said: Sequence[int]) -> Sentence:
    """The source, the start token, and what the decoder says after it."""
    own = set() if opened.tokenizer is None else special_ids(opened.tokenizer)
    begun = prefixed(source, [start], token_names(opened.tokenizer, [start]), [start in own])
    return replace(continued(opened, begun, said, TARGET), given=source.given)
