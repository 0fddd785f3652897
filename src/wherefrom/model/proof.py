"""The proof on opening: every block, rebuilt from the parts that its row names, gives the model's own numbers.

    v^h_j = N(x_j) W_V^h + b_V        u_i = x_i + P(Σ_h Σ_j α^h_ij v^h_j W_O^h + b_O)        o_i from u_i (parts.py)

On a short probe each side of each line is computed twice, by the model and from the parts. A wrong path, a swapped
norm, a missing bias or a factor that the row does not know gives a gap. So does anything between two blocks that
changes the stream: each block must be given the output of the one before. And the model's output is compared, followed
and left alone: some compute another thing when they are asked for their attention weights. A model with a gap is
refused, never explained wrong.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn

from wherefrom.errors import Unsuited, UnsupportedModel
from wherefrom.model.attended import by_head
from wherefrom.model.families import has_row
from wherefrom.model.keys import known_scores, linear_keys, plain_softmax
from wherefrom.model.linear import HALF, promote
from wherefrom.model.narrow import with_narrow_windows
from wherefrom.model.plain_pass import OUTPUTS, output_gap, plain_output
from wherefrom.model.sentences import Batch, Sentence, collate
from wherefrom.model.sound import STRIDE, recording
from wherefrom.model.stock import attention_of, hooked, shape, stock
from wherefrom.model.two_streams import SOURCE, TARGET, prefixed
from wherefrom.model.undo import (
    borrowed,
    configs,
    evaluating,
    hook,
    outside_inference_mode,
    routing_eagerly,
    without_gradients,
)

if TYPE_CHECKING:
    from wherefrom.model.model import Model
    from wherefrom.model.trace import LayerTrace

LOOSER = 0.2  # a gap of the output, in half precision, as it counts beside those of single blocks
LENGTH = 5  # tokens in the probe
# How far the two may lie apart, as a share of the largest number. transformers computes some norms and the softmax in
# float32 whatever the model's dtype.
TOLERANCE = {torch.float64: 1e-5, torch.float32: 1e-4, torch.float16: 2e-2, torch.bfloat16: 6e-2}


class Gap(NamedTuple):
    """How far one part of one block lies from the model's own."""

    block: int
    part: str  # "input", "values", "attention", "FFN", or of the whole model, beyond its last block, the "output"
    size: float  # as a share of the largest number there
    between: str = ""  # the module that changes the stream before the block, where that is the part


@dataclass(frozen=True)
class Proof:
    """What rebuilding the blocks gave."""

    gaps: tuple[Gap, ...]
    tolerance: float
    # What was seen of attention on the way, in every block:
    linear_keys: bool  # keys are a linear map of what it reads
    plain_softmax: bool  # its weights are the softmax of q·k
    sinks: bool  # in some block a part of it goes to no token
    known_scores: bool  # its scores come of what it reads by the rules of keys.py

    @property
    def worst(self) -> Gap:
        return max(self.gaps, key=lambda gap: gap.size)

    @property
    def holds(self) -> bool:
        return self.worst.size <= self.tolerance

    def __str__(self) -> str:
        block, part, size, between = self.worst
        if self.holds:
            return (
                f"every block rebuilt from its parts gives the model's own numbers (largest gap {size:.1e}, allowed: "
                f"{self.tolerance:.0e})"
            )
        if part == "output":
            return (
                f"the model's output changes while it is followed: by {size:.1e} of the largest number (allowed: "
                f"{self.tolerance:.0e}): its attention computes another thing than its eager form, which is what is "
                f"followed; load it with attn_implementation='eager' to explain that"
            )
        if part == "input":
            return (
                f"{between or 'something'} changes the stream between block {block - 1} and block {block}, by "
                f"{size:.1e} of the largest number (allowed: {self.tolerance:.0e}), which no map of a block says"
            )
        return (
            f"block {block} rebuilt from its parts does not give the model's own numbers; {part}: "
            f"off by {size:.1e} of the largest number (allowed: {self.tolerance:.0e})"
        )


_BY_CLASS: dict[Hashable, Proof] = {}
_BY_MODEL: WeakKeyDictionary[nn.Module, dict[Hashable, Proof]] = WeakKeyDictionary()


def proved(opened: Model) -> Proof:
    """The proof of a model, found once for all that are alike.

    Two models of one class, configuration, precision and kind of attention are, where nothing but transformers decides
    what they compute (stock.py) and the row is of their own architecture, which the tests prove with weights of every
    kind. A shape that others share may fit by the weights (a bias that is 0): such a proof is for these weights. Any
    other model is proved each time.
    """
    model = opened.model
    if not stock(model):
        return outside_inference_mode(lambda: prove(opened))
    key: tuple[Hashable, ...] = (
        opened.dtype,
        opened.family,
        opened.config.to_json_string(use_diff=False),
        shape(model),
        *map(attention_of, configs(model)),  # which no configuration writes down
    )
    found = _BY_CLASS
    if not has_row(opened.family.name, pair=opened.two_streams):
        key = (*key, *map(_stamp, model.parameters()))
        found = _BY_MODEL.setdefault(model, {})
    if key not in found:
        found[key] = outside_inference_mode(lambda: prove(opened))
    return found[key]


def _stamp(weight: Tensor) -> tuple[int, int]:
    """Another one after the weight was changed."""
    where = weight.data_ptr() if type(weight) is nn.Parameter else id(weight)  # packed weights have no address
    return where, 0 if weight.is_inference() else weight._version


def prove(opened: Model) -> Proof:
    """Run the probe and compare."""
    keys, softmax, left, known = [], [], [], []

    def look(layer: LayerTrace) -> None:
        if layer.step is not None:
            return
        keys.append(linear_keys(layer))
        softmax.append(plain_softmax(layer))
        left.append(float(1 - layer.attention.sum(-1).min()))
        known.append(known_scores(layer))

    gaps = _gaps_of_pass(opened, look)
    if (narrowed := with_narrow_windows(opened, LENGTH)) is not None:
        gaps += _gaps_of_pass(narrowed, lambda _layer: None)
    seen = bool(keys)  # of an encoder with a decoder nothing is asked of this, and nothing claimed
    return Proof(
        tuple(gaps),
        _tolerance(opened),
        seen and all(keys),
        seen and all(softmax),
        max(left, default=0.0) > 0.02,
        seen and all(known),
    )


def _gaps_of_pass(opened: Model, look: Callable[[LayerTrace], None]) -> list[Gap]:
    """Run the probe captured and plain: the gaps of each block, rebuilt from its parts, and of the output."""
    from wherefrom.model.capture import stream

    gaps: list[Gap] = []
    before: list[LayerTrace] = []  # the block that ran last
    probe = probe_of(opened)

    def note(layer: LayerTrace) -> None:
        gaps.extend(_gaps(layer))
        if before and not _begins_stack(layer, before[0]):
            size = _apart(_own(layer)["x"], _own(before[0])["output"].to(layer.device))
            gaps.append(Gap(layer.index, "input", size))
        before[:] = [layer]
        look(layer)

    captured = stream(opened, probe, note, compare=False).output
    gaps = [
        gap._replace(between=_module_between(opened, probe, gap.block))
        if gap.part == "input" and gap.size > _tolerance(opened)
        else gap
        for gap in gaps
    ]
    share = LOOSER if opened.pretrained.dtype in HALF else 1  # another attention rounds otherwise, block by block
    gap = output_gap(opened, probe, captured, plain_output(opened, probe))
    return [*gaps, Gap(opened.depth, "output", share * gap)]


def _tolerance(opened: Model) -> float:
    return TOLERANCE.get(opened.pretrained.dtype, TOLERANCE[torch.bfloat16])


def _own(layer: LayerTrace) -> dict[str, Tensor]:
    """What passed through the block itself, of an encoder with a decoder without the other's tokens."""
    own: dict[str, Tensor] = layer.raw if layer.step is None else layer.step.own
    return own


def _begins_stack(layer: LayerTrace, before: LayerTrace) -> bool:
    """Whether the decoder of a pair begins here, which reads embeddings of its own."""
    of_decoder = [each.step is not None and (each.causal or each.step.crosses) for each in (before, layer)]
    return of_decoder == [False, True]


def _module_between(opened: Model, probe: Batch, index: int) -> str:
    """The module that runs between two blocks, by its path and class; "" where none does."""
    blocks = [block.module for block in opened.blocks]
    inside = {id(part) for block in blocks for part in block.modules()}
    around = {id(part) for part in opened.model.modules() if any(id(each) in inside for each in part.modules())}
    ran: list[tuple[int, str]] = []  # how many blocks had run, and the module
    done = [0]

    def count(*_: Any) -> None:
        done[0] += 1

    def note(name: str, *_: Any) -> None:
        ran.append((done[0], name))

    def run() -> None:
        evaluating(opened.model)
        for last in dict.fromkeys(block.last for block in opened.blocks):
            hook(last, count)
        for name, part in opened.model.named_modules():
            if id(part) not in inside | around:
                hook(part, partial(note, f"{name} ({type(part).__name__})"))
        outside_inference_mode(lambda: without_gradients(lambda: opened.forward(probe)))

    borrowed(run)
    return next((name for blocks_run, name in reversed(ran) if blocks_run == index), "")


def refuse_broken(opened: Model) -> None:
    """Say so where the model fails by itself, with nobody looking: then its row is not to blame."""
    probe = probe_of(opened)

    def run() -> None:
        evaluating(opened.model)
        routing_eagerly(opened.model)  # transformers' other ways to run experts refuse float64
        outside_inference_mode(lambda: without_gradients(lambda: opened.forward(probe)))

    try:
        borrowed(run)
    except Exception as error:  # whatever the model raises
        hooks = "the hooks that are registered on it, which run with it" if hooked(opened.pretrained) else ""
        raise UnsupportedModel(
            f"{type(opened.pretrained).__name__}: the model's own forward pass fails, with or without wherefrom "
            f"({type(error).__name__}: {error}). Check "
            f"{hooks or 'its configuration, such as num_labels and the sizes of its heads'}"
        ) from error


def embeds_otherwise(opened: Model) -> bool:
    """Whether tokens are embedded in another order than the batch's (XLNet) or with others behind them (Longformer)."""
    probe = probe_of(opened)
    shapes: list[torch.Size] = []

    def seen(_module: nn.Module, _args: Any, output: Tensor) -> None:
        shapes.append(output.shape[:2])

    def run() -> None:
        evaluating(opened.model)
        hook(opened.words, seen)
        outside_inference_mode(lambda: without_gradients(lambda: opened.forward(probe)))

    try:
        borrowed(run)
    except Exception:  # whatever the model raises: a pass that is asked for will say so
        return False
    return any(each != probe.ids.shape for each in shapes)


def follows_head(opened: Model) -> bool:
    """Whether the head is a chain that a decomposition can follow (head.py), seen on the probe."""
    from wherefrom.model.capture import capture
    from wherefrom.model.head import head

    probe = probe_of(opened)
    row = 0 if opened.task == "classification" and opened.reads == "first" else probe.ids.shape[1] - 1
    try:
        head(outside_inference_mode(lambda: capture(opened, probe, compare=False)), torch.tensor([[row]]))
    except Unsuited:
        return False
    return True


def refuses_gradients(opened: Model) -> bool:
    """Whether its own code cannot be gone back through: Reformer's asserts that it is in training."""
    probe = probe_of(opened)
    leaves: list[Tensor] = []

    def embedded(_module: nn.Module, _args: Any, output: Tensor) -> Tensor:
        leaves.append(output.detach().requires_grad_())
        return leaves[-1].clone()

    def run() -> None:
        evaluating(opened.model)
        for module in opened.embedders:
            hook(module, embedded)
        torch.set_grad_enabled(True)
        output = opened.forward(probe)
        torch.autograd.grad(next(output[name] for name in OUTPUTS if name in output).sum(), leaves, allow_unused=True)

    try:
        outside_inference_mode(lambda: borrowed(run))
    except Exception:  # whatever the model raises
        return True
    return False


def probe_of(opened: Model) -> Batch:
    """The batch of the proof: one short text, picture or recording."""
    return collate([_tried(opened)], opened.pad_id)


def _tried(opened: Model) -> Sentence:
    """A few tokens from all over the vocabulary, none of them padding; of a model of pictures one of random colours."""
    if opened.images:
        side, drawn = opened.sizes.image_size, torch.Generator().manual_seed(0)
        shape = (opened.sizes.num_channels, *((side, side) if isinstance(side, int) else side))
        return opened.preparing.sentence(torch.randn(shape, generator=drawn))
    if opened.hears:
        bins, frames = opened.config.num_mel_bins, STRIDE * opened.config.max_source_positions
        sound = torch.randn(bins, frames, generator=torch.Generator().manual_seed(0))
        return prefixed(recording(sound), [1, 2, 3], [""] * 3, [False] * 3)
    size, piece = opened.vocabulary_size, getattr(opened.config, "chunk_size_feed_forward", 0) or 1
    n = -(-LENGTH // piece) * piece  # an FFN that takes its tokens in pieces takes no half of one
    ids = [(size * (2 * i + 1)) // (2 * n) for i in range(n)]
    ids = [(each + 1) % size if each == opened.pad_id else each for each in ids]
    if opened.two_streams:
        segments = [SOURCE] * (n // 2) + [TARGET] * (n - n // 2)
        return Sentence(ids, [""] * n, [False] * n, [None] * n, (), segments=segments)
    return Sentence(ids, [""] * n, [False] * n, [None] * n, ())


def _gaps(layer: LayerTrace) -> list[Gap]:
    block = layer.block
    own = _own(layer)
    x, output = (promote(own[name]).to(layer.device) for name in ("x", "output"))
    u = promote(block.joined(own["x"], own["added"]))
    attention, value = promote(own["attention"]), promote(by_head(own["value"], block.heads))
    found = {
        "attention": (block.mix(x, attention, value), u),
        "FFN": (block.finish(u, x), output),
    }
    if not block.latent:
        read = promote(own["read"]) if block.family.crosses else block.source(x)
        projected = block.projections()[2](read)
        made = projected.view(*projected.shape[:2], block.groups, -1).transpose(1, 2)
        found["values"] = (by_head(made, block.heads), value)
    if block.family.crosses:  # which Value Zeroing computes again
        given = zip(block.projections(), (block.source(x), promote(own["read"])), strict=False)
        query, key = (linear(t).unflatten(-1, (block.heads, -1)).transpose(1, 2) for linear, t in given)  # type: ignore[no-untyped-call]
        found["attention weights"] = ((query @ key.mT * block.scaling).softmax(-1), attention)
    routed = block.opaque and own["x"].dtype in HALF
    return [Gap(layer.index, part, _apart(*pair, routed and part == "FFN")) for part, pair in found.items()]


def _apart(ours: Tensor, theirs: Tensor, routed: bool = False) -> float:
    """The largest gap, as a share of the largest number.

    `routed`: of the token in the middle. In half precision a router may send a token to another expert, of two that it
    likes alike, when its input is rounded otherwise; a wrong row is wrong for all tokens.
    """
    ours, theirs = promote(ours), promote(theirs)
    if ours.shape != theirs.shape:
        return float("inf")
    apart = (ours - theirs).abs() / theirs.abs().max().clamp(min=1e-30)
    gap = float(apart.amax(-1).median() if routed else apart.max())
    return gap if gap == gap else float("inf")
