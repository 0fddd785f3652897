"""What each layer would have said: the answer of a logit lens."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from wherefrom.display import view
from wherefrom.extras import need
from wherefrom.result.answer import Readout, Target

if TYPE_CHECKING:
    from pandas import DataFrame


@dataclass(frozen=True)
class Said:
    """What the head makes of the state after one layer."""

    layer: int  # 0 is the embeddings, l the output of block l, counted from 1
    prediction: str | None
    probabilities: dict[str, float]  # of the likeliest words, or of the classes; the likeliest first
    target: float | None  # the target's probability; with a foil, that of the target among the two. None: a regression
    rank: int | None  # the target's place, 1 the likeliest; None where several choices make it


@dataclass(frozen=True)
class LogitLens:
    """What a model would have said after each layer, at the row where its answer is read; the last is its answer."""

    tokens: list[str]
    target: Target  # what is followed through the layers: what was asked for, or what the model says in the end
    readout: Readout
    layers: list[Said]  # L + 1: the embeddings first
    pieces: list[str]  # the tokens as they stand in the text

    def __len__(self) -> int:
        return len(self.layers)

    def __getitem__(self, layer: int) -> Said:
        return self.layers[layer]

    @property
    def settled(self) -> int:
        """From which layer on the prediction is the last one's."""
        last = self.layers[-1].prediction
        others = [each.layer for each in self.layers if each.prediction != last]
        return max(others, default=-1) + 1

    @property
    def title(self) -> str:
        where = self.readout.position
        at = self.readout.why if where is None else f"token {where} '{self.pieces[where]}'"
        return f"logit lens at {at}, {self.target}"

    @property
    def columns(self) -> tuple[str, ...]:
        """The names of what `rows` has."""
        foil = "" if self.target.foil_label is None else f" rather than {self.target.foil_label}"
        return "layer", "would have said", f"{self.target.label}{foil}", "rank"

    def rows(self) -> list[tuple[str, str, str, str]]:
        """The table in words, the last layer first: layer, words with their probabilities, target, rank."""
        return [
            (
                "embeddings" if each.layer == 0 else str(each.layer),
                "  ".join(f"{word} {_written(p)}" for word, p in each.probabilities.items()) or str(each.prediction),
                "" if each.target is None else _written(each.target),
                "" if each.rank is None else str(each.rank),
            )
            for each in reversed(self.layers)
        ]

    def to_dict(self) -> dict[str, Any]:
        """Everything as plain lists, numbers and strings, ready for JSON."""
        return asdict(self)

    def to_dataframe(self) -> DataFrame:
        """A pandas DataFrame (the extra `pandas`): a row for each layer and each word that is likely there."""
        pandas = need("pandas", "pandas")
        found: DataFrame = pandas.DataFrame(
            {"layer": each.layer, "word": word, "probability": p, "target": each.target, "rank": each.rank}
            for each in self.layers
            for word, p in each.probabilities.items()
        )
        return found

    def show(self) -> None:
        """A table in the terminal, the last layer on top."""
        view("terminal-table")(self.columns, self.rows(), self.title)

    def _repr_html_(self) -> str:
        return str(view("html-table")(self.columns, self.rows(), self.title))

    def __repr__(self) -> str:
        return f"<LogitLens of {len(self) - 1} layers: {self.layers[-1].prediction!r} from layer {self.settled} on>"


def _written(p: float) -> str:
    """A probability in three digits, or as a power of ten.

    >>> _written(0.25), _written(0.00002)
    ('0.250', '2e-05')
    """
    return f"{p:.3f}" if p >= 0.001 or p == 0 else f"{p:.0e}"
