"""What every dataset becomes: examples one after another, and the rows that could not become one."""

from __future__ import annotations

import hashlib
import heapq
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, fields, replace
from functools import cached_property, partial
from operator import attrgetter

from wherefrom.data.tables import first_few
from wherefrom.errors import InvalidInput, InvalidOption

MASK = "[MASK]"
KEPT = 2**25  # characters of texts: some tens of megabytes
MOST = 2**31 - 1  # attractors: what a column of 32 bits holds
Spans = tuple[tuple[int, int], ...]  # (start, end) in characters


@dataclass(frozen=True)
class Example:
    """One row as it is explained and measured.

    Spans are places in `text`; where the text is a pair, in its second part (SQuAD's context).
    """

    id: str  # stable within the dataset: "validation:17", the split and the row counted from 1
    text: str | tuple[str, str]  # what `explain` takes; a masked word stands as [MASK]
    label: str | int | None = None  # the gold class
    target: str | None = None  # the word wanted at the mask, or what comes after the text,
    foil: str | None = None  # and the one that does not belong there
    cues: Spans = ()  # what decides between them
    rationale: Spans = ()  # what humans marked
    answer: Spans = ()  # every gold answer; none where the question has no answer
    attractors: int | None = None  # how many nouns between cue and mask have the other number
    group: str | None = None  # paradigm, category, ...
    image: bytes | str | None = None  # a picture, in the place of the text: an image file's bytes, or its path
    region: bytes | None = None  # where its object is: the bytes of an image that is not black there
    prefix: str | None = None  # what a decoder has written of the text; what it writes next is explained, or `target`

    @property
    def content(self) -> str:
        """A short hash of everything but the id."""
        return hashlib.sha256(_written(self, named=False)).hexdigest()[:16]

    def with_mask(self, mask: str) -> Example:
        """The same with a model's own mask token for [MASK]; spans behind it move along.

        >>> moved = Example("1", "all [MASK] well", cues=((11, 15),)).with_mask("<m>")
        >>> moved.text, moved.cues
        ('all <m> well', ((8, 12),))
        """
        if mask == MASK or not any(MASK in text for text in ([self.text] if isinstance(self.text, str) else self.text)):
            return self
        last = self.text if isinstance(self.text, str) else self.text[1]  # the one that spans are places in
        at = [i for i in range(len(last)) if last.startswith(MASK, i)]

        def moved(spans: Spans) -> Spans:
            by = len(mask) - len(MASK)
            return tuple((a + by * sum(i < a for i in at), b + by * sum(i < b for i in at)) for a, b in spans)

        cues, rationale, answer = moved(self.cues), moved(self.rationale), moved(self.answer)
        text = last.replace(MASK, mask)
        both = text if isinstance(self.text, str) else (self.text[0].replace(MASK, mask), text)
        return replace(self, text=both, cues=cues, rationale=rationale, answer=answer)


def unfit(example: Example) -> str | None:
    """Why an example cannot be kept in a table, if it cannot: halves of characters, counts without end."""
    for name in ("id", "label", "target", "foil", "group", "prefix"):
        value = getattr(example, name)
        if isinstance(value, str) and not value.isascii() and any("\ud800" <= letter <= "\udfff" for letter in value):
            return f"its {name} {value!r} holds half of a surrogate pair, which is not a character"
    if example.attractors is not None and not 0 <= example.attractors <= MOST:
        return f"its attractors are {example.attractors}; expected a count from 0 to {MOST}"
    return None


def titled(name: str, split: str) -> str:
    """A dataset in a heading: its name and its split, which a single file has only by its own name."""
    return name if split in ("", name.partition(".")[0]) else f"{name} {split}"


@dataclass(frozen=True)
class Dropped:
    """A row that could not be used, by its number counted from 1."""

    row: int
    reason: str


@dataclass(frozen=True)
class _Survey:
    count: int
    dropped: list[Dropped]
    fingerprint: str


@dataclass(frozen=True)
class Dataset:
    """Examples read anew at each iteration, so that memory does not grow with them.

    `len`, `dropped` and `fingerprint` take one pass of their own, the first time one of them is asked for.
    """

    name: str
    split: str
    make: Callable[[], Iterator[Example | Dropped]] = field(repr=False)
    labels: tuple[str, ...] = ()  # the classes by id, where the dataset names them
    about: str = ""  # what the examples are, and the choices that were made

    def __iter__(self) -> Iterator[Example]:
        return (item for item in self._items() if isinstance(item, Example))

    def _items(self) -> Iterator[Example | Dropped]:
        """Examples and dropped rows; an error where there is no example at all."""
        found = False
        dropped: list[tuple[int, str]] = []
        for item in self.make():
            if isinstance(item, Example):
                found = True
            elif not found:
                dropped.append((item.row, item.reason))
            yield item
        if not found:
            why = f"all {len(dropped)} rows are broken: {first_few(dropped)}" if dropped else "it has no rows"
            split = f" ({self.split})" if self.split else ""
            raise InvalidInput(f"{self.name}{split}: nothing to read: {why}")

    def surveyed(self) -> Iterator[Example]:
        """The examples. Gone through to the end, `len`, `dropped` and `fingerprint` are known without another pass."""
        count, dropped, digest = 0, list[Dropped](), hashlib.sha256()
        for item in self._items():
            digest.update(_written(item))
            if isinstance(item, Dropped):
                dropped.append(item)
            else:
                count += 1
                yield item
        self.__dict__["_survey"] = _Survey(count, dropped, digest.hexdigest())  # where the cached property looks

    @cached_property
    def _survey(self) -> _Survey:
        for _ in self.surveyed():
            pass
        found: _Survey = self.__dict__["_survey"]
        return found

    def __len__(self) -> int:
        return self._survey.count

    def __bool__(self) -> bool:
        return True  # there is at least one example, or an error; no pass is needed to know

    @property
    def dropped(self) -> list[Dropped]:
        """The rows that could not be used, each with its number and the reason."""
        return self._survey.dropped

    @property
    def fingerprint(self) -> str:
        """A hash of every example and every dropped row."""
        return self._survey.fingerprint


def first(data: Dataset, limit: int) -> Dataset:
    """The first `limit` examples, and the rows dropped among them."""
    return replace(data, make=partial(_first, data.make, limit))


def _first(make: Callable[[], Iterator[Example | Dropped]], limit: int) -> Iterator[Example | Dropped]:
    left = limit
    for item in make():
        yield item
        left -= isinstance(item, Example)
        if not left:
            return


def drawn(data: Dataset, limit: int, seed: int) -> Dataset:
    """`limit` examples drawn by a hash of the seed and their id, in the order of the dataset; dropped rows stay so."""
    if limit < 1:
        raise InvalidOption(f"limit is {limit}; expected at least one row")
    chosen, found = _lots(data, limit, seed)

    def make() -> Iterator[Example | Dropped]:
        if found is not None:
            yield from found
            return
        for place, item in enumerate(data.make()):
            if isinstance(item, Dropped) or place in chosen:
                yield item

    return replace(data, make=make)


def _lots(data: Dataset, limit: int, seed: int) -> tuple[set[int], list[Example | Dropped] | None]:
    """The places of those drawn, in one pass; and they themselves with the dropped rows, unless they are too large."""
    lots: list[tuple[int, int]] = []  # (-lot, -place): on top the one that goes when a lower lot comes
    held: dict[int, Example | Dropped] = {}
    size, fits = 0, True
    for place, item in enumerate(data._items()):
        if fits:
            held[place] = item
        if isinstance(item, Dropped):
            continue
        size += _size(item)
        mine = (-int.from_bytes(lot(item.id, seed)), -place)
        if len(lots) < limit:
            heapq.heappush(lots, mine)
        else:
            gone = held.pop(-heapq.heappushpop(lots, mine)[1], None)
            size -= 0 if gone is None else _size(gone)
        if size > KEPT:
            fits = False
            held.clear()
    return {-place for _, place in lots}, list(held.values()) if fits else None


def lot(id: str, seed: int) -> bytes:
    """The number that an example draws: the same on every machine, whatever its place."""
    return hashlib.sha256(f"{seed}:{id}".encode()).digest()


def balance_labels(data: Dataset, group: str) -> Dataset:
    """Leave out examples of `group`, drawn by a hash of their ids, until it has as many of each label."""

    def make() -> Iterator[Example | Dropped]:
        labels: dict[str | int | None, list[str]] = {}
        for example in data:
            if example.group == group:
                labels.setdefault(example.label, []).append(example.id)
        fewest = min(map(len, labels.values()), default=0)
        chosen = {id for ids in labels.values() for id in heapq.nsmallest(fewest, ids, key=lambda id: lot(id, 0))}
        return (item for item in data.make() if isinstance(item, Dropped) or item.group != group or item.id in chosen)

    return replace(data, make=make)


def kept(data: Dataset, most: int | None = None) -> Dataset:
    """The same, kept in memory by whoever goes through it first, if its texts have no more than `most` characters."""
    most = KEPT if most is None else most
    memory: list[Example | Dropped] = []
    whole = False

    def make() -> Iterator[Example | Dropped]:
        nonlocal whole
        if whole:
            yield from memory
            return
        seen, size = list[Example | Dropped](), 0
        for item in data.make():
            size += _size(item)
            if size <= most:
                seen.append(item)
            yield item
        if size <= most and not whole:  # gone through to the end
            memory[:], whole = seen, True

    return replace(data, make=make)


def up_to_mask(data: Dataset) -> Dataset:
    """What stands before the mask, for a model that reads so far and no further; where nothing does, a dropped row."""

    def make() -> Iterator[Example | Dropped]:
        for row, item in enumerate(data.make(), 1):
            if isinstance(item, Dropped) or MASK not in item.text:
                yield item
            elif words := str(item.text).partition(MASK)[0].strip():
                yield replace(item, text=words, target=None, foil=None, cues=(), rationale=(), answer=())
            else:
                yield Dropped(row, f"nothing stands before the mask of {item.id}")

    return replace(data, name=f"{data.name} up to the mask", make=make)


def _written(item: Example | Dropped, *, named: bool = True) -> bytes:
    """What a hash is taken of, with the id or without; field by field, as it must not depend on how Python prints."""
    if isinstance(item, Dropped):
        return _JSON.encode([item.row, item.reason]).encode() + b"\n"
    text = _OF_TEXT(item) if item.image is None else _OF_PICTURE(item)
    prefix = () if item.prefix is None else (item.prefix,)
    return _JSON.encode([item.id if named else "", *text, *prefix]).encode() + b"\n"


def _digest(image: bytes) -> str:
    return hashlib.sha256(image).hexdigest()


_JSON = json.JSONEncoder(ensure_ascii=True, default=_digest)  # one for all: json.dumps would make one each time
# Without a prefix, and for texts without what only pictures have: their hashes are older than these.
_AFTER_ID = [each.name for each in fields(Example)][1:-1]
_OF_PICTURE = attrgetter(*_AFTER_ID)
_OF_TEXT = attrgetter(*_AFTER_ID[:-2])


def _size(item: Example | Dropped) -> int:
    """What is to be kept in memory of it, in characters or bytes."""
    return len(str(item.text)) + len(item.image or "") + len(item.region or "") if isinstance(item, Example) else 0
