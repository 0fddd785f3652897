"""A user's model, borrowed for the length of one call and given back as it was.

`borrowed(body)` runs `body`, which changes the model only through the functions below: `evaluating`, `attending`,
`hook`, `stand_in` and `computing_under`. Each writes down how to undo a change before it makes it, so that there is no
moment at which a change is made and not on record.

What holds, for an exception at any instruction, also one that comes from outside (Ctrl-C, a signal handler that
raises, an exception set on the thread):

- When `borrowed` returns or raises, the attention implementation of every config, transformers' registries, hooks,
  train/eval flags and torch's grad mode are as they were, and the lock is free. Parameters and their gradients are
  never touched.
- A second exception from outside that hits in the middle of the undoing, a fraction of a millisecond, can cut it
  short. The record then stays, and the next capture of any model begins by undoing it.

Every undoing may run twice and stands twice: an exception inside the first is followed by the second. Callers hand in a
function because a `with` of theirs would not do: Python may raise between a manager's `__enter__` and the block, and
before the first line of its `__exit__`.

One call at a time borrows (one lock for the process), because configs and hooks may be shared by models and threads.
A call inside a call, in the same thread, is part of it.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Sequence
from functools import lru_cache, partial, wraps
from typing import Any, ParamSpec, TypeVar

import torch
from torch import nn
from torch.nn.modules import module as torch_modules
from torch.overrides import TorchFunctionMode, _get_current_function_mode_stack, _pop_mode
from transformers import AttentionInterface, PreTrainedConfig

T = TypeVar("T")
WATCHED = "_output_capturing_hooks_installed"  # transformers' mark on a model with hooks of its own, ...
WATCHER = "transformers.utils.output_capturing"  # ... which come from here
# By RWKV and RecurrentGemma on themselves; and by Qwen-VL, how far the pictures of its last text have moved positions.
WRITTEN = ("layers_are_rescaled", "recurrent_states", "conv1d_state", "rope_deltas")
EAGER = "eager_attention_forward"  # in every modeling file of transformers whose attention can be chosen
INSIDE = "_wherefrom_eager"
CASTING = ("cpu", "cuda")  # devices that autocast may be on for
P = ParamSpec("P")
_LOCK = threading.RLock()
_JOURNAL: list[Callable[[], object]] = []  # how to undo what was done, oldest first; each may run more than once


def borrowed(body: Callable[[], T]) -> T:
    """What `body` returns; every change that it put on record is undone, whether it returns or raises."""
    outermost = not _inside()
    try:
        return _locked(body, outermost)
    finally:
        if outermost:
            _release()


def _locked(body: Callable[[], T], outermost: bool) -> T:
    with _LOCK:
        start = 0 if outermost else len(_JOURNAL)
        return _undone(start, partial(_undone, start, partial(_begun, start, body)))


# One `try` to a function: Python leaves the first instruction of a `try` within a `try` without any handler.
def _undone(start: int, body: Callable[[], T]) -> T:
    try:
        return body()
    finally:
        _undo(start)


def _begun(start: int, body: Callable[[], T]) -> T:
    _undo(start)  # of the outermost: what an undoing that was cut short has left
    _keep_grad_mode()
    return body()


def _inside() -> bool:
    """Whether this thread is borrowing already. Read from the stack, which an interrupt cannot leave out of date."""
    frame = sys._getframe(1).f_back
    while frame is not None:
        if frame.f_code is borrowed.__code__:
            return True
        frame = frame.f_back
    return False


def _undo(start: int) -> None:
    while len(_JOURNAL) > start:
        _JOURNAL[-1]()
        _JOURNAL.pop()  # only now: cut short, it is undone once more


def _release() -> None:
    """Let go of the lock however often this thread holds it."""
    try:
        while True:
            _LOCK.release()
    except RuntimeError:  # it does not
        return


def _keep_grad_mode() -> None:
    owner, mode = threading.get_ident(), torch.is_grad_enabled()

    def undo() -> None:
        if threading.get_ident() == owner:  # every thread has its own
            torch.set_grad_enabled(mode)

    _JOURNAL.append(undo)


# torch's modes, which belong to the caller's thread -------------------------------------------------------


def own_modes(function: Callable[P, T]) -> Callable[P, T]:
    """The function run with gradients on, whatever mode the caller is in, which comes back, also after an interrupt."""

    @wraps(function)
    def run(*args: P.args, **kwargs: P.kwargs) -> T:
        mode = torch.is_grad_enabled()
        body = partial(_with_gradients, partial(function, *args, **kwargs))
        return _then_grad_mode(mode, partial(_then_grad_mode, mode, body))  # twice, as with the undoing

    return run


def _with_gradients(body: Callable[[], T]) -> T:
    torch.set_grad_enabled(True)
    return outside_inference_mode(body)


def _then_grad_mode(mode: bool, body: Callable[[], T]) -> T:
    try:
        return body()
    finally:
        torch.set_grad_enabled(mode)


def outside_inference_mode(body: Callable[[], T]) -> T:
    """A caller in inference mode may ask for gradients all the same, now or of a model that is kept until then."""
    # Only where it is on: torch's guard, interrupted, lives as long as the traceback and then puts back the grad mode
    # of the moment at which it was made.
    if not torch.is_inference_mode_enabled():
        return without_autocast(body)
    with torch.inference_mode(False):
        return without_autocast(body)


def without_autocast(body: Callable[[], T]) -> T:
    """A caller under autocast has the model explained as it is: our sums over bfloat16 would be of another one."""
    for device in CASTING:
        if torch.is_autocast_enabled(device):
            with torch.autocast(device, enabled=False):
                return without_autocast(body)
    return body()


def without_gradients(body: Callable[[], T]) -> T:
    """What `body` returns, computed with gradients off; the mode comes back with all else that is borrowed."""

    def run() -> T:
        torch.set_grad_enabled(False)  # here, since leaving inference mode turns gradients on
        return body()

    return borrowed(lambda: outside_inference_mode(run))


# What may be changed, inside of `borrowed` ----------------------------------------------------------------


def on_leaving(undo: Callable[[], object]) -> None:
    """Put on record how to undo a change that comes next. It may run more than once, in any thread."""
    _JOURNAL.append(undo)


def evaluating(model: nn.Module, parts: Sequence[nn.Module] | None = None) -> None:
    """Eval mode, and nothing compiled: a compiled part would not see our hooks. `parts`, if known, are the model's."""
    _uncompiled()
    training = [module for module in (parts_of(model) if parts is None else parts) if module.training]
    if not training:  # to set what is set takes milliseconds in a large model
        return

    def undo() -> None:
        for module in training:
            module.training = True

    on_leaving(undo)
    model.eval()


def written_on(model: nn.Module) -> list[nn.Module]:
    """The parts on which the model's own forward pass writes what it goes on from in the next one."""
    return [part for part in parts_of(model) if any(name in vars(part) for name in WRITTEN)]


def keeping_written(parts: Sequence[nn.Module]) -> None:
    """What a pass writes on these is as it was; RWKV, which halves weights of its own before its first, does not.

    No pass of ours goes on from a text with pictures.
    """
    before = [(part, name, vars(part)[name]) for part in parts for name in WRITTEN if name in vars(part)]
    unscaled: list[Any] = [part.config for part in parts if vars(part).get("layers_are_rescaled") is False]
    halving = [(config, config.rescale_every) for config in unscaled]

    def undo() -> None:
        for part, name, value in before:
            vars(part)[name] = value
        for config, every in halving:
            config.rescale_every = every

    on_leaving(undo)
    for part, name, _ in before:
        if name == "rope_deltas":
            vars(part)[name] = None
    for config, _ in halving:
        config.rescale_every = 0


def _uncompiled() -> None:
    dynamo: Any = sys.modules.get("torch._dynamo.eval_frame")  # which whatever has been compiled has imported
    if dynamo is None:
        return
    before = dynamo._stance

    def undo() -> None:
        dynamo._stance = before

    on_leaving(undo)
    dynamo._stance = dynamo.DynamoStance("force_eager")


def attending(model: nn.Module, attention: Callable[..., Any], parts: Sequence[nn.Module] | None = None) -> None:
    """Point every config of the model at eager attention, and have `attention` called in the place of that function.

    `attention` gets the modeling file's own eager function first, then what that is called with. No implementation of
    ours is registered: models branch on the name "eager" (DeepSeek-V3.2 puts its indexer's choice into the mask there).
    """
    parts = parts_of(model) if parts is None else parts
    kinds: set[Any] = {*map(type, parts)}
    names = {name for kind in kinds for name in _files_with_eager(kind)}
    files = [(vars(sys.modules[name]), vars(sys.modules[name])[EAGER]) for name in names]

    def undo() -> None:
        for file, function in files:
            file[EAGER] = function

    own = {id(config): config._attn_implementation_internal for config in configs(model, parts)}
    owner = threading.get_ident()

    def wrapped(function: Callable[..., Any]) -> Callable[..., Any]:
        eager = eager_inside(function)

        def attends(module: nn.Module, *args: Any, **more: Any) -> Any:
            """Ours; of another model its own, and of another thread, whose mask may be from before, the model's own."""
            config = id(getattr(module, "config", None))
            if config in own and threading.get_ident() == owner:
                return attention(eager, module, *args, **more)
            return AttentionInterface._global_mapping.get(own.get(config), function)(module, *args, **more)

        vars(attends)[INSIDE] = eager
        return attends

    on_leaving(undo)
    for file, function in files:
        file[EAGER] = wrapped(function)
    computing_attention_by(model, "eager", parts)
    for part in parts:  # GPT-2's option for half precision, which is a method of its own
        kind: Any = type(part)
        if getattr(part, "reorder_and_upcast_attn", False) and (beside := _files_with_eager(kind)):
            eager = partial(vars(sys.modules[beside[0]])[EAGER], part, scaling=part.scaling)
            stand_in(part, eager, "_upcast_and_reordered_attn")


def computing_attention_by(model: nn.Module, name: str, parts: Sequence[nn.Module] | None = None) -> None:
    """Point every config of the model at an implementation of attention."""
    # The private attribute, because the public setter would spread one value over all sub-configs, and
    # `set_attn_implementation` guesses from source code whether a class may be switched.
    before = [(config, config._attn_implementation_internal) for config in configs(model, parts)]

    def undo() -> None:
        for config, implementation in before:
            config._attn_implementation_internal = implementation

    on_leaving(undo)
    for config, _ in before:
        config._attn_implementation_internal = name


@lru_cache(maxsize=1024)
def _files_with_eager(kind: Any) -> tuple[str, ...]:
    """Names of the Python modules that hold a class, or one that it is derived from, and an eager attention beside."""
    modules = dict.fromkeys(cls.__module__ for cls in kind.__mro__)
    return tuple(name for name in modules if name in sys.modules and EAGER in vars(sys.modules[name]))


def eager_inside(function: Callable[..., Any]) -> Callable[..., Any]:
    """The eager function of a modeling file, also while `attending` has another in its place."""
    found: Callable[..., Any] = getattr(function, INSIDE, function)
    return found


def attending_eagerly(model: nn.Module) -> None:
    """Point every config at the model's own eager attention, and have modules return their weights."""
    before = [(config, config._attn_implementation_internal, config._output_attentions) for config in configs(model)]
    watched = [module for module in model.modules() if WATCHED in module.__dict__]

    def undo() -> None:
        for config, implementation, returned in before:
            config._attn_implementation_internal, config._output_attentions = implementation, returned
        if not watched:
            _unwatch(model)

    on_leaving(undo)
    for config, _, _ in before:
        config._attn_implementation_internal, config._output_attentions = "eager", True


def routing_eagerly(model: nn.Module) -> None:
    """Have experts run one after another: the other ways refuse float64, and round otherwise."""
    name = "_experts_implementation_internal"
    before = [
        (each, getattr(each, name)) for each in configs(model) if getattr(each, name, None) not in (None, "eager")
    ]

    def undo() -> None:
        for config, implementation in before:
            setattr(config, name, implementation)

    on_leaving(undo)
    for config, _ in before:
        setattr(config, name, "eager")


def _unwatch(model: nn.Module) -> None:
    """Take off what transformers hooks to a model, for good, when it is first asked for attention weights."""
    for module in model.modules():
        module.__dict__.pop(WATCHED, None)
        for each in [hook for hook in module._forward_hooks.values() if hook.__module__ == WATCHER]:
            _unhook(module._forward_hooks, module._forward_hooks_with_kwargs, each)


def configs(model: nn.Module, parts: Sequence[nn.Module] | None = None) -> list[PreTrainedConfig]:
    """Every config object in use anywhere in the model, sub-configs included, each once."""
    found: dict[int, PreTrainedConfig] = {}
    parts = parts_of(model) if parts is None else parts
    # Looked for where it may be: torch takes longer to say that a module has none than all else here takes.
    having = {kind for kind in {*map(type, parts)} if hasattr(kind, "config")}
    pending: list[Any] = [
        getattr(each, "config", None) for each in parts if "config" in vars(each) or type(each) in having
    ]
    while pending:
        config = pending.pop()
        if isinstance(config, PreTrainedConfig) and id(config) not in found:
            found[id(config)] = config
            pending += [getattr(config, name, None) for name in config.sub_configs]
    return list(found.values())


def parts_of(model: nn.Module) -> list[nn.Module]:
    """As `model.modules()`, each once, but in a fraction of the time: a pass of few tokens is not much longer."""
    found, known = [model], {id(model)}
    for module in found:  # which grows
        for part in module._modules.values():
            if part is not None and id(part) not in known:
                known.add(id(part))
                found.append(part)
    return found


def hook(module: nn.Module, function: Callable[..., Any], *, before: bool = False) -> None:
    """A forward hook, or one before the module's forward, which is given keyword arguments too.

    It sits on the module, for all threads; a pass of another's is not ours to look at, nor to change.
    """
    owner = threading.get_ident()

    def ours(*args: Any) -> Any:
        return function(*args) if threading.get_ident() == owner else None

    hooks, with_kwargs = (
        (module._forward_pre_hooks, module._forward_pre_hooks_with_kwargs)
        if before
        else (module._forward_hooks, module._forward_hooks_with_kwargs)
    )
    on_leaving(partial(_unhook, hooks, with_kwargs, ours))
    if before:
        module.register_forward_pre_hook(ours, with_kwargs=True)
    else:
        module.register_forward_hook(ours)


def hook_everywhere(function: Callable[..., Any]) -> None:
    """A forward hook of every module there is, and of those that a pass makes on its way."""
    on_leaving(partial(_unhook, torch_modules._global_forward_hooks, {}, function))
    torch_modules.register_module_forward_hook(function)


def stand_in(module: nn.Module, function: Callable[..., Any], name: str = "forward") -> None:
    """Another function in the place of the module's forward, whose hooks still run, or of another of its methods; for
    this thread alone.
    """
    own, owner = module.__dict__.get(name), threading.get_ident()  # own: somebody else's, put there before us
    before = getattr(module, name)

    def ours(*args: Any, **kwargs: Any) -> Any:
        return (function if threading.get_ident() == owner else before)(*args, **kwargs)

    def undo() -> None:
        if own is None:
            module.__dict__.pop(name, None)
        else:
            module.__dict__[name] = own

    on_leaving(undo)
    module.__dict__[name] = ours


def computing_under(mode: TorchFunctionMode) -> None:
    """A mode of torch's that sees every function this thread calls."""
    owner = threading.get_ident()

    def undo() -> None:
        if threading.get_ident() == owner:  # every thread has its own modes
            while mode in _get_current_function_mode_stack():  # type: ignore[no-untyped-call]
                _pop_mode()  # type: ignore[no-untyped-call]

    on_leaving(undo)
    mode.__enter__()  # type: ignore[no-untyped-call]


def _unhook(hooks: dict[int, Any], with_kwargs: dict[int, Any], function: Callable[..., Any]) -> None:
    """By the function: of a registration that was cut short there is no handle."""
    for number in [number for number, each in list(hooks.items()) if each is function]:
        with_kwargs.pop(number, None)
        hooks.pop(number, None)
