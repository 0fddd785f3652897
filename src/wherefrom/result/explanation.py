"""The result: one method's answer for one input. Numpy arrays and plain values, no model behind it."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import InitVar, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn, overload

import numpy as np
from numpy.typing import ArrayLike, NDArray

from wherefrom.display import view
from wherefrom.errors import InvalidInput, InvalidOption, NotDefined, UnknownName
from wherefrom.files import write
from wherefrom.result import serialise, tabular
from wherefrom.result.answer import BEFORE_EACH, Readout, Target
from wherefrom.result.cautions import left_out, surrogate_fit
from wherefrom.result.elsewhere import fields_of
from wherefrom.result.picture import Patches
from wherefrom.result.units import grouped
from wherefrom.result.words import Span, as_written, group, in_letters, spelt_by
from wherefrom.typecheck import checked, least

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from pandas import DataFrame

Array = NDArray[np.floating[Any]]
Unit = str | re.Pattern[str] | Sequence[tuple[int, int]]  # of a text: result/units.py
Place = int | str | slice  # a layer or a token, by its number; a token also by its name
NO_TARGET = Target("none")
NO_READOUT = Readout(None, "unknown")
SAID = ("answer", "foil", "target")  # segments that are no part of the input
UNREAD = 8  # unknown tokens that a remark names
ROUNDING = 8  # units in the last place of an output near 1, below which its parts are rounding errors


@dataclass(frozen=True, eq=False)
class Explanation:
    """Which input tokens an output is made of.

    Row i of a map is the token being built, column j the token it draws on; layer 0 is the first block.
    `maps` are the method's own layer maps, `aggregated` what the aggregation made of them up to each layer,
    `scores` the readout row (at `position`, stated with its reason in `readout`), `layer_scores` the readout row of
    every layer where no maps hold it (`readout_rows` finds it in either).
    """

    tokens: list[str]
    scores: Array  # [n]
    method: str
    maps: Array | None = None  # [L, n, n]
    aggregated: Array | None = None  # [L, n, n]
    head_maps: Array | None = None  # [L, H, n, n], on request
    layer_scores: Array | None = None  # [L, n]: see `readout_rows`
    texts: tuple[str, ...] = ()
    spans: list[Span | None] = field(default_factory=list)  # (which text, start, end) of each token
    special: list[bool] = field(default_factory=list)
    unknown: list[bool] = field(default_factory=list)  # the model read [UNK] for what the text says
    word_ids: list[int | None] | None = None  # the word of each token, where it is known by number
    segments: list[str] = field(default_factory=list)  # "prompt" or "answer", a turn: where there are several
    given: dict[str, Any] | None = None  # the ids, mask and types, or the file, where these came in and not a text
    picture: Patches | None = None  # of a picture: what the model saw of it, and where its patches lie
    aggregate: str | None = None
    options: dict[str, Any] = field(default_factory=dict)  # what the caller chose, by the names of `explain`,
    defaults: dict[str, Any] = field(default_factory=dict)  # and the method's options that were left as they are
    delta: float | None = None  # by how much the scores miss the sum they promise, for methods that promise one
    arrived: float | None = None  # what part of the explained number they add up to, for methods that promise no sum
    surrogate: dict[str, Any] | None = None  # weights with intervals, and fit, of a model that a method fitted
    signed: bool = False
    additive: bool = False  # the scores of a word's pieces add up to the word's
    target: Target = NO_TARGET  # what is explained,
    measured: Target = NO_TARGET  # and the output by which metrics judge it: the target; if it is none, the prediction
    readout: Readout = NO_READOUT
    prediction: str | None = None
    probabilities: dict[str, float] = field(default_factory=dict)
    candidates: dict[str, int] = field(default_factory=dict)  # of a language model: the token that each of them is
    log_probabilities: dict[str, float] = field(default_factory=dict)  # and of what is explained, however small
    model: str = ""
    seconds: float = 0.0
    granularity: str = "token"  # or another unit: "word", "sentence", …
    notes: list[str] = field(default_factory=list)  # what a reader must know of how it was made
    known_finite: InitVar[bool] = False  # no array holds NaN or infinite values: somebody has looked

    def __post_init__(self, known_finite: bool) -> None:
        n = len(self.tokens)
        if self.target.towards:
            object.__setattr__(self, "measured", self.target)
        if not self.spans:
            object.__setattr__(self, "spans", [None] * n)
        if not self.special:
            object.__setattr__(self, "special", [False] * n)
        if not self.unknown:
            object.__setattr__(self, "unknown", [False] * n)
        arrays = self._arrays()
        if wrong := self._unfit(n, arrays):
            raise InvalidInput(f"{', '.join(wrong)} do not fit the {n} tokens")
        numbers: dict[str, Any] = {**arrays, "delta": self.delta or 0, "arrived": self.arrived or 0}
        if not known_finite and (broken := [name for name in numbers if not np.isfinite(numbers[name]).all()]):
            raise InvalidInput(f"{', '.join(broken)} contain NaN or infinite values")

    def _unfit(self, n: int, arrays: Mapping[str, Array]) -> list[str]:
        """What has another length than the tokens. Thousands of explanations a second are looked at."""
        wrong = [] if self.scores.shape == (n,) else ["scores"]
        counts = (len(self.spans), len(self.special), len(self.unknown), len(self.word_ids or ()), len(self.segments))
        names = ("spans", "special", "unknown", "word_ids", "segments")
        wrong += [
            name for name, count in zip(names, counts, strict=True) if count != n and (count or name in names[:3])
        ]
        for name, array in arrays.items():
            shape = array.shape[1:] if name == "layer_scores" else array.shape[-2:]
            if name != "scores" and shape not in ((n,), (n, n)):
                wrong.append(name)
        return wrong

    def _arrays(self) -> dict[str, Array]:
        names = ("scores", "maps", "aggregated", "head_maps", "layer_scores")
        return {name: value for name in names if (value := getattr(self, name)) is not None}

    # Reading ----------------------------------------------------------------------------------------------

    @property
    def position(self) -> int | None:
        """The readout position; None when it is the mean over all tokens."""
        return self.readout.position

    @property
    def explained(self) -> str:
        """What is explained, in words."""
        if self.target == NO_TARGET and self.readout == NO_READOUT:
            return "scores made elsewhere"
        said = str(self.target)
        number = self.target.kind == "class" and self.prediction is not None and not self.probabilities
        return f"output{said.removeprefix('class')}" if number else said  # a regression has outputs and no classes

    @property
    def likelihood(self) -> str | None:
        """How likely the phrase that is explained is, in words: its logarithm where three digits show nothing of it."""
        log = self.log_probabilities.get(str(self.target.label)) if self.target.kind == "phrase" else None
        if log is None:
            return None
        return f"probability {p:.3f}" if (p := float(np.exp(log))) >= 0.001 else f"log-probability {log:.4g}"

    @property
    def read_at(self) -> str | None:
        """The readout in words; None of scores made elsewhere."""
        if self.readout == NO_READOUT:
            return None
        if (where := self.position) is None:
            return self.readout.why
        return f"{self.readout.why} {as_written(self.tokens[where], self.texts, self.spans[where])}"

    @property
    def readout_rows(self) -> Array | None:
        """The readout row at every layer, [L, n]; None for a method that says nothing about layers.

        The readout row of everything aggregated up to that layer, or of the layer's own map where nothing is
        aggregated; of a method without maps, its scores at that layer. `layer_scores` holds these rows where they do
        not stand in the maps: for such a method, and where maps were not computed (rows="readout") or kept
        (keep="scores").
        """
        if self.layer_scores is not None:
            return self.layer_scores
        maps = self.maps if self.aggregated is None else self.aggregated
        return None if maps is None else self.readout.row(maps)

    @property
    def arguments(self) -> dict[str, Any]:
        """What makes it again: `wherefrom.explain(model=…, **explanation.arguments)` gives the same arrays.

        The input, the method, the aggregation and the `options`. Model and tokenizer are the caller's to give, and so
        is an input that is not kept: a picture that came without a file, sound, scores made elsewhere without a text.
        """
        if self.readout.why == BEFORE_EACH:
            raise InvalidOption(
                "several tokens of a generation as one are added up, not asked of the model; "
                "wherefrom.generate(prompt, target=…) gives their generation again, g[i].arguments one of its tokens"
            )
        segments = self.segments or [""] * len(self)
        said = {span[0] for span, name in zip(self.spans, segments, strict=True) if span and name in SAID}
        texts: list[Any] = [text for which, text in enumerate(self.texts) if which not in said]
        if self.word_ids is not None:  # it came in words, which are joined by blanks
            texts = [text.split(" ") for text in texts]
        inputs = self.given or (texts[0] if len(texts) == 1 else tuple(texts))
        options = dict(self.options)
        if "layers" in options:
            options["layers"] = tuple(options["layers"])
        made = {"method": self.method, "aggregate": self.aggregate, **options}
        return {"inputs": inputs, **made} if inputs else made

    @property
    def pieces(self) -> list[str]:
        """Each token as it stands in the text; tokens that are not in it as their vocabulary writes them."""
        return [
            token if span is None or own else in_letters(self.texts[span[0]][span[1] : span[2]], token) or token
            for token, span, own in zip(self.tokens, self.spans, self._own_words, strict=True)
        ]

    @property
    def _own_words(self) -> list[bool]:
        """Which units are what the model had said itself, among larger ones than words."""
        larger = self.granularity not in ("token", "word", "turn")
        return [larger and name in SAID for name in self.segments or [""] * len(self)]

    @property
    def remarks(self) -> list[str]:
        """What a reader must know beside the scores: the notes, what was cut off, and what the model did not know."""
        unread = dict.fromkeys(piece for piece, unknown in zip(self.pieces, self.unknown, strict=True) if unknown)
        said = ", ".join([*unread][:UNREAD]) + (" …" if len(unread) > UNREAD else "")
        fit = [] if self.surrogate is None else [surrogate_fit(self.surrogate)]
        cut = (
            left_out(self.texts, self.tokens, self.spans, self.options)
            if self.options.get("long") == "truncate"
            else []
        )
        return [*self.notes, *cut, *fit, *([f"not in the vocabulary, read as unknown: {said}"] if unread else [])]

    @property
    def fit(self) -> str:
        """How well the surrogate of which the scores are weights foretells other runs, in short; else nothing."""
        rho = None if self.surrogate is None else self.surrogate["correlation"]
        return "" if rho is None else f"held-out ρ {rho:.2f}"

    @property
    def rounding(self) -> str:
        """That all scores are rounding errors, in words; else nothing.

        Known of methods that promise a sum: it is the difference of two outputs, and where every part of it lies below
        the precision of one, as of a picture that is its own baseline, there is no difference. A probability may be as
        small and still mean something, and so may a gradient.
        """
        of = {**self.defaults, **self.options}.get("of")
        if self.delta is None or of == "probability" or not len(self):
            return ""
        least = ROUNDING * float(np.finfo(self.scores.dtype).eps)
        return "" if np.abs(self.scores).max() > least else "all zero up to rounding"

    @property
    def groups(self) -> list[list[int]]:
        """The tokens of each word, in order: by the caller's own words where the text came in as words."""
        return group(self.texts, self.spans, self.word_ids)

    @property
    def magnitude(self) -> Array:
        """How much each token matters (the magnitude of AttCAT's Impact Score)."""
        magnitude: Array = np.abs(self.scores)
        return magnitude

    @property
    def direction(self) -> NDArray[np.int8]:
        """1 for the target, -1 against it, 0 neither (the directionality of AttCAT's Impact Score)."""
        return np.sign(self.scores).astype(np.int8)

    def __len__(self) -> int:
        return len(self.tokens)

    def __iter__(self) -> NoReturn:
        raise InvalidOption("over tokens or over layers? Go through zip(ex.tokens, ex.scores), or through ex.maps")

    @overload
    def __getitem__(self, key: int | slice) -> Array: ...
    @overload
    def __getitem__(self, key: tuple[int, int | str, int | str]) -> np.floating[Any]: ...
    @overload
    def __getitem__(self, key: tuple[Place, ...]) -> Array | np.floating[Any]: ...
    def __getitem__(self, key: Place | tuple[Place, ...]) -> Array | np.floating[Any]:
        """`ex[layer]` is that layer's map, `ex[layer, i]` what token i draws on, `ex[layer, i, j]` one number.

        Tokens may be named: `ex[-1, "[CLS]", "film"]`. For a method without maps, `ex[layer, i]` is one number.
        """
        keys: tuple[Any, ...] = key if isinstance(key, tuple) else (key,)
        array = self.maps if self.maps is not None else self.layer_scores
        if array is None:
            raise NotDefined(f"'{self.method}' has no layers to index; its answer is in scores")
        layers, *tokens = keys
        if isinstance(layers, int) and not -len(array) <= layers < len(array):
            raise InvalidOption(f"layer {layers} is outside the model's {len(array)} layers")
        try:
            found: Array | np.floating[Any] = array[(layers, *(self._token(token) for token in tokens))]
        except IndexError:  # of a key that is none, or of too many
            expected = f"[layer] or [layer, token{', token' * (array.ndim - 2)}]"
            raise InvalidOption(f"expected {expected}; got {key!r}") from None
        return found

    def _token(self, token: Any) -> Any:
        if not isinstance(token, str):
            if isinstance(token, int) and not -len(self) <= token < len(self):
                raise InvalidOption(f"token {token} is outside the {len(self)} tokens")
            return token
        found = [i for i, (t, p) in enumerate(zip(self.tokens, self.pieces, strict=True)) if token in (t, p)]
        if len(found) != 1:
            what = f"stands {len(found)} times" if found else "does not stand"
            raise UnknownName(f"'{token}' {what} among the tokens; use its index: {self.tokens}")
        return found[0]

    def top(self, k: int = 5, *, special: bool = True) -> list[tuple[int, str, float]]:
        """The k tokens with the largest scores (by magnitude where the method has signs): index, token, score.

        Of units larger than words (`by`), those of the input alone.
        """
        k = checked("k", k, Annotated[int, least(0)])
        weight = np.abs(self.scores) if self.signed else self.scores
        hidden = [own or (each and not special) for own, each in zip(self._own_words, self.special, strict=True)]
        order = [int(i) for i in np.argsort(-weight, kind="stable") if not hidden[i]]
        return [(i, self.pieces[i], float(self.scores[i])) for i in order[:k]]

    def without_maps(self) -> Explanation:
        """The same without what takes most of its memory."""
        scores = self.scores.copy()  # which may be a row of what is left out
        return replace(self, scores=scores, maps=None, aggregated=None, head_maps=None)

    # Words ------------------------------------------------------------------------------------------------

    def words(self, how: str | None = None, *, rows: str | None = None) -> Explanation:
        """The same explanation over the words of the text instead of the tokenizer's pieces.

        Where scores add up (`additive`: shares, contributions, gradient times input), a word gives the sum of what its
        pieces give, and takes the mean of what they take, so that sums stay as they are (Clark et al. 2019, What does
        BERT look at); elsewhere both are means. `how` joins the pieces in another way ("mean", "max", "sum", "first",
        "signed-max"), on both axes of the maps; `rows` sets one for the axis of the token being built. Special tokens
        stand for themselves; a line break counts to the word before it; no token is dropped.
        """
        return self._joined(self.groups, "word", how, rows)

    def by(self, unit: Unit, how: str | None = None, *, rows: str | None = None) -> Explanation:
        """The same over larger units: "word", "sentence", "line", "document" (parted by empty lines) or "turn" (of a
        chat; prompt and answer); what a regular expression parts, re.compile("\\n---\\n"); or given spans, a list of
        (start, end) in the characters of the text. Joined as in `words`. What the model had said itself before the
        token that is explained is named so, "[answer so far: …]", and is no source that `top` lists.
        """
        groups = grouped(unit, self.texts, self.spans, self.segments, self.word_ids)
        return self._joined(groups, unit if isinstance(unit, str) else "span", how, rows)

    def _joined(self, groups: list[list[int]], granularity: str, how: str | None, rows: str | None) -> Explanation:
        """The tokens of each group as one."""
        if how is None:
            how, rows = "sum" if self.additive else "mean", rows or "mean"
        join, join_rows = (_join(name, groups) for name in (how, rows or how))
        kept = how == "sum" or len(groups) == len(self)  # what the scores sum to
        spans = [_union([self.spans[i] for i in members]) for members in groups]
        home = {token: number for number, members in enumerate(groups) for token in members}
        read_at = Readout(
            None if self.position is None else home[self.position],
            self.readout.why,
            tuple(dict.fromkeys(home[token] for token in self.readout.rows)),
        )
        # The mean over the tokens that a phrase is read at is no mean over their words.
        by_layer = self.readout_rows if self.readout.rows else self.layer_scores
        words = self.word_ids or [None] * len(self)

        def both(array: Array | None) -> Array | None:
            return None if array is None else join_rows(join(array, -1), -2)

        joined = replace(
            self,
            tokens=[
                (span and self.texts[span[0]][span[1] : span[2]].strip())
                or spelt_by([self.tokens[i] for i in members], is_word=words[members[0]] is not None)
                for members, span in zip(groups, spans, strict=True)
            ],
            scores=join(self.scores, -1),
            maps=both(self.maps),
            aggregated=both(self.aggregated),
            head_maps=both(self.head_maps),
            layer_scores=None if by_layer is None else join(by_layer, -1),
            delta=self.delta if kept else None,
            arrived=self.arrived if kept else None,
            spans=spans,
            special=[all(self.special[i] for i in members) for members in groups],  # a turn may begin with one
            unknown=[any(self.unknown[i] for i in members) for members in groups],
            word_ids=None if self.word_ids is None else [self.word_ids[members[0]] for members in groups],
            segments=[self.segments[members[0]] for members in groups] if self.segments else [],
            readout=read_at,
            granularity=granularity,
        )
        named = list(joined.tokens)
        for i in np.flatnonzero(joined._own_words):
            named[i] = f"[{joined.segments[i]} so far: {named[i]}]"
        return replace(joined, tokens=named)

    # Making, keeping and showing --------------------------------------------------------------------------

    @classmethod
    def from_scores(
        cls, tokens: Sequence[str], scores: ArrayLike, method: str = "given", **fields: object
    ) -> Explanation:
        """Scores made elsewhere, as an Explanation: to show, save and evaluate beside wherefrom's own.

        >>> Explanation.from_scores(["good", "film"], [0.9, 0.1]).top(1)
        [(0, 'good', 0.9)]
        """
        return cls(method=method, **fields_of(tokens, scores, fields))

    def to_dict(self) -> dict[str, Any]:
        """Everything as plain lists, numbers and strings, ready for JSON."""
        return serialise.to_dict(self)

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Explanation:
        """The inverse of `to_dict`, also of plain {"tokens": […], "scores": […]}; else a WherefromError."""
        return serialise.from_dict(cls, data)

    def to_dataframe(self) -> DataFrame:
        """A pandas DataFrame (the extra `pandas`) with a row per token."""
        return tabular.dataframe([(0, self)])

    def save(self, path: str | Path, kind: str | None = None, **options: object) -> Path:
        """Write to a .json, .npz or .html file, as a picture (.png, .svg, .pdf) of a kind that `plot` knows, or as a
        table (.csv, .parquet, .jsonl)."""
        path = Path(path)
        if path.suffix in tabular.ENDINGS:
            return tabular.save([(0, self)], path)
        if path.suffix in serialise.PICTURES:
            return Path(view("picture-file")(self.plot(kind, **options), path))
        if path.suffix == ".html":
            return write(path, self.to_html())
        return serialise.save(self, path)

    @classmethod
    def load(cls, path: str | Path) -> Explanation:
        """Read what `save` wrote as .json or .npz, or a .json with "tokens" and "scores"; never unpickles anything."""
        return serialise.load(cls, Path(path))

    def show(self, *, layers: bool = False, pieces: bool = False) -> None:
        """Coloured words in the terminal, or the tokenizer's pieces; with `layers`, the row of every layer beneath."""
        view("terminal")([self], layers=layers, pieces=pieces)

    def plot(self, kind: str | None = None, **options: object) -> Figure:
        """A matplotlib figure (the extra `plot`): text, tokens, bars, layers, maps, map, graph, or image.

        "text" by itself, and of a picture "image": the scores over it (style="heat", "grid" or "contour").

        width is "column", "page" or inches, dark=True for a dark background; wherefrom.view.plot has each kind's own.
        """
        layerwise = options.get("own") or options.get("edges") == "paths"  # shows what was not aggregated
        title = view("title")(replace(self, aggregate=None) if layerwise else self)
        figure: Figure = view("picture")({title: self}, kind, **options)
        return figure

    def to_html(self) -> str:
        """The viewer with this explanation: one HTML document that needs nothing beside it."""
        return str(view("html-page")({self.method: self}))

    def _repr_html_(self) -> str:
        return str(view("html-cell")({self.method: self}))

    def __repr__(self) -> str:
        layers = "" if self.maps is None else f", {len(self.maps)} layers"
        return f"<Explanation by {self.method} of {self.explained}: {len(self)} {self.granularity}s{layers}>"

    def __str__(self) -> str:
        return str(view("plain-text")(self))


def known_to_fit(fields: dict[str, Any]) -> Explanation:
    """An explanation of fields that somebody has looked at, as evaluation makes thousands a second.

    Every list is given, and the target by which it is judged: nothing is filled in. The fields are its own from now on.
    """
    made = object.__new__(Explanation)
    object.__setattr__(made, "__dict__", fields)
    return made


def _join(how: str, groups: list[list[int]]) -> Callable[[Array, int], Array]:
    """A function that joins groups of entries along one axis of an array."""
    ways = {
        "mean": lambda part, axis: part.mean(axis),
        "sum": lambda part, axis: part.sum(axis),
        "max": lambda part, axis: part.max(axis),
        "first": lambda part, axis: part.take(0, axis),
        "signed-max": _signed_max,
    }
    if how not in ways:
        raise InvalidOption(f"unknown way to join pieces {how!r}; expected {', '.join(ways)}")

    def join(array: Array, axis: int) -> Array:
        return np.stack([ways[how](array.take(members, axis), axis) for members in groups], axis)

    return join


def _signed_max(part: Array, axis: int) -> Array:
    """The entry of largest magnitude, with its sign."""
    index = np.expand_dims(np.abs(part).argmax(axis), axis)
    return np.take_along_axis(part, index, axis).squeeze(axis)


def _union(spans: list[Span | None]) -> Span | None:
    known = [span for span in spans if span is not None]
    if not known:
        return None
    return (known[0][0], min(span[1] for span in known), max(span[2] for span in known))
