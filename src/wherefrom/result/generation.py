"""What a language model said after a prompt, and where each token of it comes from."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from wherefrom.display import view
from wherefrom.errors import DamagedFile, InvalidOption
from wherefrom.extras import need
from wherefrom.files import write
from wherefrom.result.answer import BEFORE_EACH, Readout, Target, finite
from wherefrom.result.explanation import Array, Explanation, Unit
from wherefrom.result.serialise import PICTURES, not_a, store, stored, target_of
from wherefrom.result.words import as_written

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from pandas import DataFrame

FORMAT, VERSION = "wherefrom.generation", 1
ANSWER, SOURCE = "answer", "source"


@dataclass(frozen=True, eq=False)
class Generation:
    """A prompt, what was said after it, and for each token of that the scores of all tokens before it.

    `g[3]` is the Explanation of the fourth token that was said, over the prompt and what was said before it; `g[2:5]`
    explains three tokens as one, and `g.over("prompt")` all of them, by what the prompt gives alone. Several tokens as
    one have the sum of their scores where these explain an output, and the mean of their rows where these are of a map.
    """

    whole: Explanation  # all that was said as one, over all n + k tokens
    scores: Array  # [k, n + k]: row s has the scores of what stands before token s of the answer, else 0
    ids: list[int]  # of all n + k tokens
    steps: list[Answered]
    sampling: dict[str, Any] = field(default_factory=dict)  # the arguments of `model.generate`
    seed: int | None = None  # of a sampled answer
    foil_scores: Array | None = None  # [k, a, n + k]: of token s rather than each of its `foils`

    def __post_init__(self) -> None:
        if self.scores.shape != (len(self.steps), len(self.whole)) or len(self.ids) != len(self.whole):
            raise InvalidOption(
                f"scores of shape {self.scores.shape} do not fit {len(self.steps)} tokens after a prompt"
            )
        foils = [len(each.foils) for each in self.steps]
        shape = None if self.foil_scores is None else self.foil_scores.shape
        if any(foils) and shape != (len(foils), max(foils), len(self.ids)):
            raise InvalidOption(f"foil_scores of shape {shape} do not fit {len(foils)} tokens with {max(foils)} foils")

    @property
    def text(self) -> str:
        """What was said, without the token that ends it."""
        if not self.whole.texts:
            return " ".join(self.tokens)
        text = self.whole.texts[-1]
        for special, span in zip(self.whole.special[: self.start - 1 : -1], self.whole.spans[::-1], strict=False):
            if not special or span is None:
                break
            text = text[: span[1]]
        return text

    @property
    def method(self) -> str:
        """The method that explained it."""
        return self.whole.method

    @property
    def prompt(self) -> str:
        return "".join(self.whole.texts[:-1])

    @property
    def start(self) -> int:
        """How many tokens the prompt has."""
        return len(self.ids) - len(self.steps)

    @property
    def tokens(self) -> list[str]:
        """The tokens that were said, as they stand in the text."""
        return self.whole.pieces[self.start :]

    @property
    def log_probabilities(self) -> Array:
        """Of each token that was said, given all before it: [k]."""
        return np.array([each.log_probability for each in self.steps])

    def __len__(self) -> int:
        return len(self.steps)

    def __iter__(self) -> Iterator[Explanation]:
        return (self[step] for step in range(len(self)))

    def __getitem__(self, key: int | slice) -> Explanation:
        if isinstance(key, slice):
            return self._as_one(list(range(len(self)))[key])
        if not isinstance(key, (int, np.integer)):
            raise InvalidOption(f"token {key!r} of what was said; expected a number, or a slice")
        if not -len(self) <= key < len(self):
            raise InvalidOption(f"token {key} is outside the {len(self)} tokens that were said")
        step = key % len(self)
        said, n, looks = self.steps[step], self.start + step, self.whole.target.towards
        found = replace(
            _first(self.whole, n, self.scores[step, :n]),
            target=said.target if looks else self._represented(n - 1),
            measured=said.target,
            prediction=said.prediction,
            probabilities=said.probabilities,
            candidates=said.candidates,
            log_probabilities=finite({str(said.target.label): said.log_probability}),
            given=self._given(n),
            readout=Readout(n - 1, "token before it"),
            arrived=said.arrived,
            notes=self.whole.notes,
        )
        return replace(found, options={**found.options, **({"target": self.ids[n]} if looks else {})})

    def _represented(self, place: int) -> Target:
        """What a method explains that does not look at what was said: the token before it."""
        whole = self.whole
        return Target("none", label=as_written(whole.tokens[place], whole.texts, whole.spans[place]))

    def _given(self, n: int) -> dict[str, list[int]]:
        """What the model read before a token: its first n ids, which of an encoder with a decoder are two streams."""
        source = self.whole.segments.count(SOURCE)
        streams = {"input_ids": self.ids[:source], "decoder_input_ids": self.ids[source:n]}
        return streams if source else {"input_ids": self.ids[:n]}

    @property
    def source_contribution(self) -> Array:
        """How much of each token comes from the source, of an encoder with a decoder: [k], from 0 to 1.

        The share of the source in a token's row. Where it is low, the decoder goes on by itself: a sign of
        hallucination (Ferrando et al. 2022; Dale et al. 2022). Of scores with signs, the share of their sizes; NaN
        where all are 0. A method that looks at the source alone says 1.
        """
        source = np.array([name == SOURCE for name in self.whole.segments])
        if not source.any():
            raise InvalidOption("there is no source: this was said by a model that has one stream of tokens")
        sizes = np.abs(self.scores)
        total = sizes.sum(1)
        found: Array = np.divide(sizes[:, source].sum(1), total, out=np.full_like(total, np.nan), where=total > 0)
        return found

    def why_not(self, token: int, foil: int | str) -> Explanation:
        """Why a token was said rather than another, which is one of those that `generate(…, alternatives=k)` took
        along: a word, or a token's id.
        """
        said = self[token]
        foils = self.steps[token].foils
        wanted = foil.strip() if isinstance(foil, str) else foil
        after_blank = [f"Ġ{wanted}", f"▁{wanted}"] if wanted != foil else []  # " -" is not "-"
        which = [i for i, each in enumerate(foils) if each.foil_label in after_blank]
        which = which or [i for i, each in enumerate(foils) if wanted in (each.foil, each.foil_label)]
        if wanted in (self.steps[token].target.index, self.steps[token].target.label):
            raise InvalidOption(f"{foil!r} is what was said as token {token}; expected another token")
        if not which or self.foil_scores is None:
            there = ", ".join(repr(each.foil_label) for each in foils) or "none (see generate's alternatives=)"
            raise InvalidOption(
                f"token {token} was not explained rather than {foil!r}; there are {there}; "
                f"wherefrom.explain(model=…, foil={foil!r}, **g[{token}].arguments) asks the model"
            )
        row, target = self.foil_scores[token, which[0], : len(said)], foils[which[0]]
        options = {**said.options, "foil": target.foil}
        return replace(said, scores=row, target=target, measured=target, arrived=None, options=options)

    def over(self, segment: str = "prompt", said: slice = slice(None)) -> Explanation:
        """All that was said as one (or the tokens of the slice `said`), with the sources of one segment alone:
        "prompt", "answer" or a turn of a chat; of a translation "source" and "target", which these two also name.
        """
        found = self[said]
        names = dict.fromkeys(found.segments)
        if SOURCE in names:
            segment = {"prompt": SOURCE, ANSWER: "target"}.get(segment, segment)
        inside = [i for i, name in enumerate(found.segments) if name == segment]
        if segment == "prompt" and not inside:  # a chat: everything that came before the answer
            inside = [i for i, name in enumerate(found.segments) if name != ANSWER]
        if not inside:
            raise InvalidOption(f"unknown segment {segment!r}; expected 'prompt' or one of {', '.join(names)}")
        part = _taken(found, inside)
        whole = float(found.scores.sum())
        arrived = found.arrived * float(part.scores.sum()) / whole if found.arrived and whole else None
        return replace(part, arrived=arrived)

    def by(self, unit: Unit) -> Explanation:
        """All that was said as one, over larger units (`Explanation.by`)."""
        return self[:].by(unit)

    def _as_one(self, steps: list[int]) -> Explanation:
        if not steps:
            raise InvalidOption("no token of what was said is meant; expected at least one")
        rows, n = self.scores[steps], self.start + steps[-1]
        adds = self.whole.target.towards
        tokens = tuple(self.ids[self.start + step] for step in steps)
        spans = dict.fromkeys(self.whole.spans[self.start + step] for step in steps)  # bytes of one character share one
        label = "".join(self.text[span[1] : span[2]] for span in spans if span).strip()
        label = label or "".join(self.tokens[step] for step in steps)
        phrase = Target("phrase", tokens[0], label, tokens=tokens) if adds else Target("none", label="the answer")
        read = Readout(None, BEFORE_EACH, tuple(self.start + step - 1 for step in steps))
        total = (rows.sum(0) if adds else rows.mean(0))[:n]
        known, first = finite({label: float(self.log_probabilities[steps].sum())}), self.steps[steps[0]]
        part = replace(
            _first(self.whole, n, total),
            prediction=first.prediction,
            probabilities={**first.probabilities, **{name: float(np.exp(log)) for name, log in known.items()}},
            candidates=first.candidates,
        )
        logits = adds and "of" not in self.whole.options and len(steps) > 1
        notes = [*self.whole.notes, *([f"the sum of the logits of {len(steps)} tokens"] if logits else [])]
        said = replace(part, target=phrase, measured=phrase, readout=read, log_probabilities=known)
        return replace(said, arrived=self._arrived(steps), notes=notes)

    def _arrived(self, steps: list[int]) -> float | None:
        """What part of the sum of several explained numbers the scores add up to, where that is known of each."""
        parts, sums = [self.steps[step].arrived for step in steps], self.scores[steps].sum(1)
        if not all(parts):
            return None
        numbers = [float(each) / part for each, part in zip(sums, parts, strict=True) if part]
        return float(sums.sum()) / sum(numbers) if sum(numbers) else None

    # Keeping and showing ----------------------------------------------------------------------------------

    def to_dict(self) -> dict[str, Any]:
        """Everything as plain lists, numbers and strings, ready for JSON."""
        return {
            "format": FORMAT,
            "version": VERSION,
            "whole": self.whole.to_dict(),
            **{name: array.tolist() for name, array in self._arrays().items()},
            "dtype": str(self.scores.dtype),
            "ids": self.ids,
            "steps": [each.to_dict() for each in self.steps],
            "sampling": self.sampling,
            "seed": self.seed,
        }

    def _arrays(self) -> dict[str, Array]:
        foils = {} if self.foil_scores is None else {"foil_scores": self.foil_scores}
        return {"scores": self.scores, **foils}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Generation:
        """The inverse of `to_dict`, also of what inseq saved; a WherefromError if the data is neither."""
        from wherefrom.result import foreign  # which makes generations

        if foreign.is_inseq(data):
            with read_as("file of inseq"):
                return foreign.inseq(data)
        if not isinstance(data, Mapping) or data.get("format") != FORMAT:
            raise not_a("generation", data)
        if data.get("version") != VERSION:
            raise DamagedFile(f"this generation has version {data.get('version')!r}; expected version {VERSION}")
        with read_as("generation"):
            arrays = {name: np.asarray(data[name], data["dtype"]) for name in ("scores", "foil_scores") if name in data}
            return cls(
                whole=Explanation.from_dict(data["whole"]),
                ids=list(data["ids"]),
                steps=[Answered.from_dict(each) for each in data["steps"]],
                sampling=dict(data["sampling"]),
                seed=data["seed"],
                **arrays,
            )

    def save(self, path: str | Path, **options: object) -> Path:
        """Write a .json, .npz or .html file (the viewer), the heatmap that `plot` draws (.png, .svg, .pdf), or a table
        (.csv) with a row for each token that was said and each source.
        """
        path = Path(path)
        if path.suffix in PICTURES:
            return Path(view("picture-file")(self.plot(**options), path))
        if options:
            raise InvalidOption(f"{', '.join(options)}: only pictures have options ({', '.join(PICTURES)})")
        if path.suffix == ".csv":
            return write(path, self.to_dataframe().to_csv(index=False))
        if path.suffix == ".html":
            return write(path, self.to_html())
        if path.suffix not in (".json", ".npz"):
            raise InvalidOption(
                f"cannot save to '{path.name}'; expected a name ending in .json, .npz, .html, .csv, or "
                f"{', '.join(PICTURES)} for the heatmap"
            )
        return store(path, self.to_dict(), self._arrays())

    @classmethod
    def load(cls, path: str | Path) -> Generation:
        """Read what `save` wrote as .json or .npz, or inseq's own .json; never unpickles anything."""
        return cls.from_dict(stored(Path(path), "generation"))

    def to_dataframe(self) -> DataFrame:
        """A pandas DataFrame (the extra `pandas`): a row for each token that was said and each token before it."""
        pandas = need("pandas", "pandas")
        rows = [
            {
                "step": step,
                "token": self.tokens[step],
                "log_probability": self.steps[step].log_probability,
                "source": place,
                "source_token": self.whole.pieces[place],
                "segment": self.whole.segments[place],
                "score": float(self.scores[step, place]),
            }
            for step in range(len(self))
            for place in range(self.start + step)
        ]
        found: DataFrame = pandas.DataFrame(rows)
        return found

    def show(self, token: int | None = None, *, foil: int | str | None = None, unit: Unit = "word") -> None:
        """In the terminal: what was said in a row, and the sources of one of its tokens (of all of them as one, if
        None), rather than a foil, over a unit ("token", "word", "sentence", "line", "turn"); and what else it might
        have said there.
        """
        view("terminal-generation")(self, token, foil=foil, unit=unit)

    def plot(self, **options: object) -> Figure:
        """The heatmap (the extra `plot`): tokens that were said downwards, all tokens before them across, each row by
        its largest score. width is "page", "column" or inches, dark=True for dark.
        """
        picture: Figure = view("picture-generation")(self, **options)
        return picture

    def to_html(self) -> str:
        """The viewer, in which one clicks a token that was said to see its sources: one HTML document that needs
        nothing beside it.
        """
        return str(view("html-generation-page")(self))

    def _repr_html_(self) -> str:
        return str(view("html-generation-cell")(self))

    def __repr__(self) -> str:
        count = f"{len(self)} token{'s' * (len(self) != 1)}"
        return f"<Generation by {self.whole.method}: {count} after {self.start}, {self.text!r}>"


@dataclass(frozen=True)
class Answered:
    """One token that was said, and what else might have been."""

    target: Target
    prediction: str | None
    probabilities: dict[str, float]
    log_probability: float  # NaN where it is not known
    candidates: dict[str, int] = field(default_factory=dict)  # the token that each of these words is
    foils: tuple[Target, ...] = ()  # the token rather than others, whose scores were taken along
    arrived: float | None = None  # what part of the explained number the scores add up to, as in Explanation

    def to_dict(self) -> dict[str, Any]:
        known = self.log_probability if np.isfinite(self.log_probability) else None  # JSON has no NaN
        return {**asdict(self), "log_probability": known}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Answered:
        foils = tuple(target_of(each) for each in data.get("foils", ()))
        known = float("nan") if data["log_probability"] is None else data["log_probability"]
        return cls(**{**data, "target": target_of(data["target"]), "log_probability": known, "foils": foils})


@contextmanager
def read_as(what: str) -> Iterator[None]:
    """Whatever is wrong inside is that the data is damaged."""
    try:
        yield
    except DamagedFile:
        raise
    except (KeyError, TypeError, ValueError, AttributeError, IndexError) as error:  # errors of ours are ValueErrors
        raise DamagedFile(f"this {what} is damaged: {type(error).__name__}: {error}") from error


def _first(whole: Explanation, n: int, scores: Array) -> Explanation:
    """The first n tokens."""
    return _taken(replace(whole, scores=np.concatenate([scores, np.zeros(len(whole) - n, scores.dtype)])), range(n))


def _taken(whole: Explanation, places: Any) -> Explanation:
    """An explanation without maps, over some of its tokens."""
    places = list(places)
    names = ("tokens", "spans", "special", "unknown", "segments")
    cut: dict[str, Any] = {name: [getattr(whole, name)[i] for i in places] for name in names}
    rows = tuple(places.index(row) for row in whole.readout.rows if row in places)
    readout = replace(whole.readout, rows=rows)
    return replace(whole, scores=whole.scores[places], word_ids=None, layer_scores=None, readout=readout, **cut)
