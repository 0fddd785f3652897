"""What `explain` and `compare` are asked over HTTP, under the names that they have in Python."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from wherefrom.defaults import DEFAULT_METHOD
from wherefrom.errors import InvalidInput, OverLimit
from wherefrom.options import ExplainOptions
from wherefrom.pipeline.resolution import AUTO
from wherefrom.result.picture import decoded
from wherefrom.server.limits import Limits

Text = Annotated[str, Field(max_length=100_000)]
Name = Annotated[str, Field(min_length=1, max_length=64)]
MethodName = Annotated[str, Field(min_length=1, max_length=200)]  # options may stand in it
Whole = Annotated[int, Field(strict=True, ge=-1_000_000, le=1_000_000)]  # true is no class, nor 1.0
Choice = Annotated[str, Field(max_length=200)] | Whole
Phrase = Annotated[str, Field(max_length=2000)] | Whole
LARGEST = 1000  # number in an option: each step of integrated gradients is a pass
Number = Annotated[int, Field(ge=-LARGEST, le=LARGEST)] | Annotated[float, Field(ge=-LARGEST, le=LARGEST)]


class ImageBody(BaseModel):
    """An image, as Python takes it in a row: {"image": …}"""

    model_config = ConfigDict(extra="forbid")

    image: Annotated[str, Field(max_length=10_000_000)] = Field(
        description="The bytes of a PNG, JPEG or other image file in base64, also as a data URL."
    )

    def pixels(self, limits: Limits) -> dict[str, Any]:
        """The image as `explain` takes it."""
        try:
            found = base64.b64decode(self.image.rpartition(",")[2], validate=True)
        except ValueError as error:
            raise InvalidInput(f"the image is not in base64 ({error}); expected the bytes of an image file") from error
        return {"image": decoded(found, limits.pixels)}


class Body(BaseModel):
    """What `explain` and `compare` have in common; the names and meanings are Python's."""

    model_config = ConfigDict(extra="forbid", protected_namespaces=())

    inputs: Text | ImageBody | list[Text | tuple[Text, Text] | ImageBody] = Field(
        description='A text, an image {"image": …}, or a list of texts, of pairs [text, text] or of images.',
        examples=["a deep and meaningful film ."],
    )
    pair: Text | None = Field(None, description="A second text that goes with a single one (question, hypothesis, …).")
    model: Annotated[str, Field(max_length=300)] | None = Field(
        None, description="One of /api/models (default: the first of them)."
    )
    aggregate: Name | None = Field(AUTO, description="auto, rollout, flow, sum, mean, last, or null.")
    target: Phrase | None = Field(
        None,
        description="A class (or all), a word at the mask, start or end (default: the prediction); a phrase that a "
        "language model says next; of a translator, the text that it writes.",
    )
    foil: Phrase | None = Field(None, description="Explain the difference to this class, word or phrase.")
    position: Choice | None = Field(None, description="The readout position: an index, first, last, mean or mask.")
    head: Annotated[int, Field(ge=0, le=1000)] | Literal["all"] | None = Field(None, description="One head, or all.")
    layers: tuple[int | None, int | None] | None = Field(None, description="(start, end), as in a slice.")
    receptive_field: bool = False
    rows: Literal["all", "readout"] = "all"
    drop_self: bool = False
    sink: Literal["keep", "drop"] = Field("keep", description="Drop the first token that a decoder sees from its maps.")
    truncate: bool = Field(False, description="Cut a text that is longer than the model reads.")
    long: Literal["error", "truncate", "windows"] = Field(
        "error", description="A text longer than the model reads: an error, cut, or explained in overlapping windows."
    )
    overlap: Annotated[int, Field(ge=0, le=100_000)] | None = Field(
        None, description="Tokens that two windows share: up to half of what the model reads (default: a quarter)."
    )
    maps: bool = Field(True, description="Give the layer maps too; without them the answer is small.")
    evidence: bool = Field(False, description="Check each explanation by erasing words of this text.")

    @property
    def single(self) -> bool:
        return not isinstance(self.inputs, list)

    def texts(self, limits: Limits) -> list[Any]:
        """The inputs as `explain` takes them, within the limits."""
        if self.pair is not None and not isinstance(self.inputs, str):
            raise InvalidInput("pair goes with a single text; in a list, write a pair as [text, text]")
        every: Sequence[Any] = self.inputs if isinstance(self.inputs, list) else [self.inputs]
        if self.pair is not None:
            every = [(self.inputs, self.pair)]
        if not every:
            raise InvalidInput("nothing to explain: the list of inputs is empty; expected at least one text")
        if len(every) > limits.inputs:
            raise OverLimit(f"{len(every)} inputs in one request; this server takes at most {limits.inputs}")
        for each in (each for each in every if not isinstance(each, ImageBody)):
            size = len(each) if isinstance(each, str) else sum(map(len, each))
            if size > limits.characters:
                raise OverLimit(
                    f"a text of {size:,} characters; this server takes at most {limits.characters:,}: shorten it"
                )
        return [each.pixels(limits) if isinstance(each, ImageBody) else each for each in every]

    def arguments(self) -> dict[str, Any]:
        """What `explain` and `compare` take by name, apart from the method."""
        shared = {
            name: getattr(self, name) for name in ExplainOptions.__annotations__ if name in type(self).model_fields
        }
        return {**shared, "keep": "maps" if self.maps else None}


class ExplainBody(Body):
    """`wherefrom.explain`"""

    method: MethodName = Field(
        DEFAULT_METHOD, description="One of /api/methods, or auto; with options: name(option=value)."
    )
    options: dict[Name, bool | Number | Name | None] = Field(
        default_factory=dict,
        max_length=16,
        description='Options of the method, e.g. {"n_steps": 50} of integrated-gradients.',
    )


class CompareBody(Body):
    """`wherefrom.compare`"""

    methods: list[MethodName] = Field(
        [DEFAULT_METHOD],
        description="Names from /api/methods, e.g. integrated-gradients(n_steps=50); auto: those that suit the model.",
        min_length=1,
    )
    form: Literal["explanation", "viewer"] = Field(
        "explanation", description="In a stream: whole explanations, or the viewer's packed payloads."
    )
    heads: bool = Field(False, description="In a stream: also the maps of single heads, where methods have them.")
