"""What a user may hand in, read into sentences (sentences.py).

A string; a pair of strings (a tuple); token ids (a list, an array or a tensor with one axis); an encoding
(anything with `input_ids`); a row with a `text`; a chat (a list of turns, chat.py). A list of these or another
container (containers.py), an array with two axes or an encoding with a batch axis is several inputs. Where the
tokenizer is told `is_split_into_words`, a list of words stands for a string.

Padding is taken off whatever comes in, on either side.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import inf
from pathlib import Path
from typing import Any, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from wherefrom.errors import InvalidInput, InvalidOption, TooLong, WherefromError, warn
from wherefrom.model.chat import is_chat, read_chat, refuse_chat_arguments
from wherefrom.model.containers import (
    TEXTS,
    are_ints,
    as_ints,
    is_stream,
    missing,
    refuse_mapping,
    refuse_tuple,
    several,
    text_of,
)
from wherefrom.model.encoding import check_texts, encoded, encoded_together, is_fast, options
from wherefrom.model.offsets import (
    TokenNames,
    names_by,
    offsets,
    places_of_words,
    searched,
    special_ids,
    unknown_id,
    with_accents,
    word_of,
)
from wherefrom.model.pictures import Preparing, is_picture
from wherefrom.model.sentences import Sentence
from wherefrom.model.sound import FEATURES, heard
from wherefrom.model.two_streams import prefixed
from wherefrom.model.unread_inputs import WORKS, OtherInputs, refuse_placeholders, refuse_unread
from wherefrom.result.words import Span
from wherefrom.typecheck import shown

T = TypeVar("T")
DECODER = "decoder_input_ids"
COLUMNS = ("input_ids", "attention_mask", "token_type_ids")
NAMED = 5  # inputs that an error names one by one


TextInput: TypeAlias = str | tuple[str, str]  # a text, or a pair of texts
OneInput: TypeAlias = TextInput | Path | Sequence[int] | Sentence  # a path: of an image
Encoded: TypeAlias = Mapping[str, Any] | Tensor | NDArray[Any]  # one input, or several by a batch axis
ManyInputs: TypeAlias = Iterable[OneInput | Encoded | Sequence[str]]
Inputs: TypeAlias = OneInput | Encoded | ManyInputs


@dataclass(frozen=True)
class Reader:
    """Turns inputs into sentences, for one model and its tokenizer."""

    tokenizer: Any | None
    vocabulary_size: int
    pad_id: int | None
    max_length: int | None
    truncate: bool = False
    tokenizer_kwargs: Mapping[str, Any] | None = None
    any_length: bool = False  # longer texts are left whole, for windows
    type_count: int | None = None  # how many kinds of token_type_ids the model has
    two_streams: bool = False  # whether a decoder reads ids of its own
    pictures: Preparing | None = None  # of a model that reads pictures and no text
    shorten: str = "shorten it"  # what to do with a longer text
    fills: str | None = None  # the mask, of a model that says what stands there
    others: OtherInputs | None = None  # what the model takes beside a text

    def read(self, inputs: Any) -> tuple[list[Sentence], bool]:
        """The sentences, and whether the caller handed in just one."""
        found, single = self.read_each(inputs)
        if bad := {row: each for row, each in enumerate(found) if isinstance(each, WherefromError)}:
            raise refused(bad, len(found))
        return [each for each in found if isinstance(each, Sentence)], single

    def read_each(self, inputs: Any, first: int = 0) -> tuple[list[Sentence | WherefromError], bool]:
        """As `read`, but where one of several cannot be read stands the error that says why, counted from `first`."""
        if self.pictures is not None:
            return self.pictures.read_each(inputs, first)
        if is_picture(inputs):
            if self.others is not None and self.others.media:
                raise InvalidInput(f"an image cannot be explained with {self.others.name}: {WORKS}; give it a text")
            raise InvalidInput("this model reads text, and an image was given; open a model of images (docs/models.md)")
        if (one := self._single(inputs)) is not None:
            return [one], True
        if isinstance(inputs, Mapping):
            return self._encoding(inputs)
        if isinstance(inputs, Tensor | np.ndarray) and (isinstance(inputs, Tensor) or inputs.dtype.kind not in "UOT"):
            if inputs.ndim not in (1, 2):
                raise InvalidInput(f"token ids have {inputs.ndim} axes; expected one, or two for a batch")
            return self._array(_lists(inputs))
        if (items := several(inputs)) is None:
            raise InvalidInput(
                f"cannot read inputs of type {type(inputs).__name__}; expected a text, a pair of texts, token ids, "
                f"an encoding with input_ids, or a list of these"
            )
        try:
            items = list(items)
        except UnicodeDecodeError as error:  # an open file
            raise InvalidInput(
                f"the inputs are not {error.encoding}: {error.reason}; open the file as what it is"
            ) from error
        if not items:
            raise InvalidInput("nothing to explain: the list of inputs is empty; expected at least one text")
        if not is_stream(inputs) and are_ints(items):
            return [self._ids(items)], True
        if not is_stream(inputs) and self.in_words and all(isinstance(item, str) for item in items):
            return [self.text(items)], True
        return [self._one(item, row) for row, item in enumerate(items, first)], False

    @property
    def in_words(self) -> bool:
        """Whether texts come as lists of words."""
        return bool((self.tokenizer_kwargs or {}).get("is_split_into_words"))

    def _single(self, inputs: Any) -> Sentence | None:
        """A text, a pair, a row with a text, a chat, or a sentence that was read before; None of something else."""
        if isinstance(inputs, Sentence):
            return inputs
        if is_chat(inputs):
            return read_chat(self, inputs)
        if isinstance(inputs, Mapping) and "input_ids" not in inputs:
            if (found := text_of(inputs)) is not None:
                refuse_unread(inputs, {name for names in TEXTS for name in names}, self.others, row=True)
            inputs = inputs if found is None else found
        if isinstance(inputs, str):
            if self.in_words:
                raise InvalidInput("a text was given with is_split_into_words; expected a list of words")
            return self.text(inputs)
        if not isinstance(inputs, tuple):
            return None
        kinds = _is_words if self.in_words else _is_str
        if len(inputs) == 2 and all(kinds(part) for part in inputs):
            return self.text(*inputs)
        if inputs and are_ints(inputs):
            return self._ids(inputs)
        raise refuse_tuple(inputs)

    def _one(self, item: Any, row: int) -> Sentence | WherefromError:
        try:
            if isinstance(item, list) and item and (ids := as_ints(item)) is not None:
                return self._of_ints(ids)
            if isinstance(item, InvalidInput):  # whoever made the inputs says why this is none
                raise item
            if missing(item):
                raise InvalidInput("the cell is empty; expected a text")
            if not self.in_words and isinstance(item, list) and len(item) == 2 and all(map(_is_str, item)):
                item = tuple(item)
            found, single = self.read_each(item)
            if not single:
                raise InvalidInput(
                    "it is itself a list of inputs; expected one text or one list of ids (for texts split into words: "
                    "tokenizer_kwargs={'is_split_into_words': True})"
                )
        except WherefromError as error:
            return _placed(row, error)
        return found[0]

    def text(self, *given: str | Sequence[str], encoding: Any = None) -> Sentence:
        """A text or a pair, tokenised; or encoded already, by `together`."""
        if self.tokenizer is None:
            raise InvalidOption("a text was given but no tokenizer; pass tokenizer=, or token ids instead of the text")
        texts = tuple(each if isinstance(each, str) else " ".join(each) for each in given)
        check_texts(texts)
        told, fast = self._told, is_fast(self.tokenizer)
        refuse_chat_arguments(self.tokenizer_kwargs or {})
        if encoding is None:
            encoding = encoded(self.tokenizer, given, told, chosen=bool(self.tokenizer_kwargs))
        ids = [*map(int, encoding["input_ids"])]
        added = [*map(bool, encoding["special_tokens_mask"])]
        if all(added):
            raise InvalidInput(f"the tokenizer makes no tokens of {' / '.join(map(repr, texts))}")
        if self.truncate and self.fills and self.tokenizer.mask_token_id not in ids and self.fills in " ".join(texts):
            raise InvalidInput(
                f"{self.fills} stands behind the {len(ids)} tokens that are read; shorten what stands before it"
            )
        words = [] if not self.in_words else [places_of_words(each) for each in given]
        spans = offsets(encoding, words) if fast else searched(self.tokenizer, texts, ids, added)
        spans = with_accents(spans, texts)
        self._check(ids)
        own, unknown = self._own_ids
        return Sentence(
            ids,
            self._names.of(ids),
            [flag or i in own for i, flag in zip(ids, added, strict=True)],
            spans,
            texts,
            types=_ints(encoding.get("token_type_ids")),
            word_ids=[word_of(span, words) for span in spans] if words else None,
            unknown=[i == unknown for i in ids],
            may_be_cut=self.truncate,
            read_by={
                **({"tokenizer_kwargs": plain} if (plain := _recordable(self.tokenizer_kwargs or {})) else {}),
                **({"long": "truncate"} if self.truncate and len(ids) >= (told["max_length"] or inf) else {}),
            },
        )

    def together(self, texts: Sequence[str]) -> dict[str, Any]:
        """By text its encoding, all of them made at once; nothing where each must be read by itself."""
        plain = self.tokenizer is not None and self.pictures is None and not self.tokenizer_kwargs
        return encoded_together(self.tokenizer, texts, self._told) if plain else {}

    @property
    def _told(self) -> dict[str, Any]:
        return options(self.tokenizer, self.tokenizer_kwargs or {}, self.truncate, self.max_length)

    @cached_property
    def _names(self) -> TokenNames:
        return names_by(self.tokenizer)

    @cached_property
    def _own_ids(self) -> tuple[set[int], int | None]:
        """The tokenizer's own tokens, and [UNK], if any: to ask for them takes as long as to read a text."""
        return set() if self.tokenizer is None else special_ids(self.tokenizer), unknown_id(self.tokenizer)

    def _encoding(self, encoding: Mapping[str, Any]) -> tuple[list[Sentence | WherefromError], bool]:
        if encoding.get("position_ids") is not None:
            raise InvalidInput("position_ids are not supported: a sentence's positions count from its first token")
        columns = {name: _lists(encoding[name]) for name in COLUMNS if encoding.get(name) is not None}
        decoder = None if encoding.get(DECODER) is None else _lists(encoding[DECODER])
        if decoder is not None and not self.two_streams:
            raise InvalidInput(f"{DECODER} were given to a model of one stream of tokens; expected input_ids alone")
        sound = self.two_streams and encoding.get(FEATURES) is not None
        if sound or "input_ids" in columns:
            refuse_unread(encoding, (*COLUMNS, *((DECODER, FEATURES) * self.two_streams)), self.others, row=False)
        if sound:
            sources, single = heard(encoding)
            return self._prefixed(sources, [decoder] if single else decoder) if decoder else [*sources], single
        if "input_ids" not in columns:
            raise refuse_mapping(encoding)
        single = are_ints(columns["input_ids"])
        if single:
            columns = {name: [column] for name, column in columns.items()}
            decoder = None if decoder is None else [decoder]
        rows: list[Sentence | WherefromError] = [self._row(columns, row) for row in range(len(columns["input_ids"]))]
        if not rows:
            raise InvalidInput("nothing to explain: the encoding has no rows")
        return (rows if decoder is None else self._prefixed(rows, decoder)), single

    def _prefixed(self, rows: Sequence[Any], decoder: Sequence[list[int]]) -> list[Sentence | WherefromError]:
        """Each row with what its decoder reads; padding, which stands at the right, taken off."""
        if len(decoder) != len(rows):
            raise InvalidInput(f"{len(decoder)} rows of {DECODER} for {len(rows)} of input_ids; expected one each")
        found: list[Sentence | WherefromError] = []
        for row, ids in zip(rows, decoder, strict=True):
            real = list(ids)
            while len(real) > 1 and real[-1] == self.pad_id:
                real.pop()
            read = self._ids(real)
            found.append(prefixed(row, read.ids, read.tokens, read.special))
        return found

    def _array(self, ids: list[Any]) -> tuple[list[Sentence | WherefromError], bool]:
        if not ids or not isinstance(ids[0], list):
            return [self._ids(ids)], True
        if self.pad_id is not None and len(ids) > 1 and any(self.pad_id in row[:1] + row[-1:] for row in ids):
            warn(
                "the batch of ids contains padding but no attention_mask came with it, so padding is read as "
                "text; pass the whole encoding instead"
            )
        return [self._ids(row) for row in ids], False

    def _row(self, columns: Mapping[str, list[Any]], row: int) -> Sentence:
        """One row of an encoding, its padding taken off at both ends."""
        cells: dict[str, list[int]] = {name: column[row] for name, column in columns.items()}
        ids, mask, types = (cells.get(name) for name in COLUMNS)
        assert ids is not None
        for name, cell in cells.items():
            if not isinstance(cell, list) or len(cell) != len(ids):
                raise InvalidInput(f"row {row} of {name} does not fit input_ids; expected one number per token")
        if types is not None:
            self._check_types(types)
        if mask is None:
            return self._ids(ids, types)
        if any(isinstance(value, list) for value in mask):
            raise InvalidInput("attention_mask has more axes than input_ids; expected one 0 or 1 for each token")
        if not all(value in (0, 1) for value in mask):
            raise InvalidInput("attention_mask holds values other than 0 and 1; expected a mask over the tokens")
        if not any(mask):
            raise InvalidInput("the attention mask hides every token; expected at least one 1 in each row")
        # A token that is masked but is not the padding token is a real one that attention may not see.
        real = [
            position
            for position, (i, seen) in enumerate(zip(ids, mask, strict=True))
            if seen or (self.pad_id is not None and i != self.pad_id)
        ]
        part = slice(real[0], real[-1] + 1)
        visible = [int(value) for value in mask[part]]
        return self._ids(ids[part], None if types is None else types[part], None if all(visible) else visible)

    def _check_types(self, types: list[int]) -> None:
        most = "" if self.type_count is None else f" below {self.type_count}"
        fits = are_ints(types) and min(types, default=0) >= 0
        if not fits or (self.type_count is not None and max(types, default=0) >= self.type_count):
            raise InvalidInput(f"token_type_ids holds values that are not types; expected whole numbers from 0{most}")

    def _ids(self, given: Sequence[Any], types: list[int] | None = None, visible: list[int] | None = None) -> Sentence:
        if not len(given):
            raise InvalidInput("the list of token ids is empty; expected at least one")
        if (ids := as_ints(given)) is None:
            raise InvalidInput("token ids must be whole numbers")
        return self._of_ints(ids, types, visible)

    def _of_ints(self, ids: list[int], types: list[int] | None = None, visible: list[int] | None = None) -> Sentence:
        self._check(ids, "; token ids you must cut yourself")
        special, spans, texts = self._aligned(ids)
        names = self._names.of(ids)
        given = {name: cell for name, cell in zip(COLUMNS, (ids, visible, types), strict=True) if cell is not None}
        unread = self._own_ids[1]
        unknown = [False] * len(ids) if unread is None else [i == unread for i in ids]
        return Sentence(ids, names, special, spans, texts, types, visible, unknown=unknown, given=given)

    def _aligned(self, ids: list[int]) -> tuple[list[bool], list[Span | None], tuple[str, ...]]:
        """Text and offsets for bare ids: decode each run between special tokens and see that it encodes back."""
        spans: list[Span | None] = [None] * len(ids)
        if self.tokenizer is None:
            return [False] * len(ids), spans, ()
        own = self._own_ids[0]
        special = [i in own for i in ids]
        texts: list[str] = []
        for start, end in _runs(special):
            if found := self._spelt(ids[start:end]):
                text, places = found
                spans[start:end] = [(len(texts), a, b) if b > a else None for a, b in places]
                texts.append(text)
        return special, spans, tuple(texts)

    def _spelt(self, ids: list[int]) -> tuple[str, list[tuple[int, int]]] | None:
        """The text of these tokens and the place of each in it, if the text encodes back to them."""
        if not getattr(self.tokenizer, "is_fast", False):
            return None
        text = self.tokenizer.decode(ids, clean_up_tokenization_spaces=False)  # type: ignore[union-attr]
        back = self.tokenizer(text, add_special_tokens=False, return_offsets_mapping=True, verbose=False)  # type: ignore[misc]
        return (text, back["offset_mapping"]) if back["input_ids"] == ids else None

    def _check(self, ids: list[int], also: str = "") -> None:
        refuse_placeholders(ids, self.others)
        if ids and not 0 <= min(ids) <= max(ids) < self.vocabulary_size:
            outside = [i for i in ids if not 0 <= i < self.vocabulary_size]
            raise InvalidInput(
                f"token id {outside[0]} is outside the model's vocabulary of {self.vocabulary_size}; "
                f"expected ids of the tokenizer that belongs to the model"
            )
        if self.max_length is not None and len(ids) > self.max_length and not self.any_length:
            raise TooLong(
                f"the text has {len(ids)} tokens but the model reads at most {self.max_length}; {self.shorten}{also}"
            )


def _runs(breaks: Sequence[bool]) -> Iterator[tuple[int, int]]:
    """Start and end of every stretch without a break."""
    start = 0
    for end, broken in enumerate([*breaks, True]):
        if broken:
            if end > start:
                yield start, end
            start = end + 1


def refused(bad: Mapping[int, WherefromError], count: int, hint: str = "") -> WherefromError:
    """The error for a list of which some inputs cannot be read: which ones, and why."""
    said = [str(error) for error in bad.values()]
    if len(said) > 1:
        more = f" … and {len(said) - NAMED} more" if len(said) > NAMED else ""
        said = [f"{len(said)} of {count} inputs cannot be read: {'; '.join(said[:NAMED])}{more}"]
    kinds = {type(error) for error in bad.values()}
    return (kinds.pop() if len(kinds) == 1 else InvalidInput)(said[0] + hint)


def _placed(row: int, error: WherefromError) -> WherefromError:
    placed = type(error)(f"input {row}: {error}")
    placed.__cause__ = error
    return placed


def _is_str(value: Any) -> bool:
    return isinstance(value, str)


def _is_words(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and all(map(_is_str, value))


def _lists(column: Any) -> list[Any]:
    if isinstance(column, Tensor) and column.is_meta:
        raise InvalidInput("token ids in a tensor on the device 'meta', which holds no values; expected numbers")
    try:
        found = column.tolist() if isinstance(column, Tensor | np.ndarray) else column
        return list(found)
    except TypeError:
        raise InvalidInput(f"the encoding holds {shown(column)}; expected lists of whole numbers") from None


def _recordable(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Those that a file can hold."""
    return {name: each for name, each in arguments.items() if isinstance(each, str | int | float)}


def _ints(values: Any) -> list[int] | None:
    return None if values is None else [int(value) for value in values]
