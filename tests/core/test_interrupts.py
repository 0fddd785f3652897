"""Interrupts at any instruction: the model comes back as it was, and the next capture finds everything free.

An exception from outside (Ctrl-C, a signal, one set on the thread) is put where it hurts by a trace function: at the
k-th event of wherefrom's own code, for every k. The slow tests add signals, other methods and other layers of code.
"""

from __future__ import annotations

import gc
import os
import random
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import tiny
import wherefrom
from wherefrom.errors import WherefromError
from wherefrom.model import open_model, undo
from wherefrom.model.capture import _RECORDER, attention_forward
from wherefrom.model.known_padding import telling
from wherefrom.model.undo import attending, borrowed, evaluating, hook
from wherefrom.testing import awkward, state

IDS = tiny.ids(5)
METHODS = ("attention-rollout", "gradient-x-input", "ablation", "deeplift", "full-lrp", "value-zeroing")


class Interrupt(BaseException):
    """Comes from nowhere."""


@contextmanager
def interrupted(at: int, within: Callable[[str], bool], opcodes: bool = False) -> Iterator[list[str]]:
    """Raise at the `at`-th event (0: never) of code in the files chosen by `within`; says where each was."""
    seen: list[str] = []

    def event(frame: Any, name: str, _argument: Any) -> Any:
        seen.append(f"{frame.f_code.co_name}:{frame.f_lineno}, {name} {frame.f_lasti if opcodes else ''}")
        if len(seen) == at:
            raise Interrupt
        return event

    def enters(frame: Any, name: str, argument: Any) -> Any:
        if not within(frame.f_code.co_filename):
            return None
        frame.f_trace_opcodes = opcodes
        return event(frame, name, argument)

    before = sys.gettrace()
    sys.settrace(enters)
    try:
        yield seen
    finally:
        sys.settrace(before)


def strike(call: Callable[[], Any], at: int, within: Callable[[str], bool], opcodes: bool = False) -> None:
    """Interrupt a call. It runs in a generator, which has its own record of the exception being handled: one raised
    at the very end of a handler would stay in the thread's, as the cause of every later one."""

    def alone() -> Iterator[None]:
        with interrupted(at, within, opcodes), suppress(Interrupt):
            call()
        yield

    next(alone())


def everywhere(call: Callable[[], Any], within: Callable[[str], bool], opcodes: bool = False) -> dict[int, str]:
    """Where a call can be interrupted: every place, at the first and at the last time that it is reached."""
    with interrupted(0, within, opcodes) as seen:
        call()
    first = {place: at for at, place in reversed(list(enumerate(seen, 1)))}
    last = {place: at for at, place in enumerate(seen, 1)}
    return {at: place for place in first for at in (first[place], last[place])}


def own(file: str) -> bool:
    return file == undo.__file__


def capturing(file: str) -> bool:
    return Path(file).parent.name == "model" and Path(file).stem in ("borrowing", "capture")


@pytest.fixture(autouse=True)
def _nothing_is_left_in_the_air() -> Iterator[None]:
    """An exception that nobody handles any more must not become the cause of every later one in this process."""
    before = sys.exc_info()[1]
    yield
    assert sys.exc_info()[1] is before


class Watch:
    """A model and what must be true of it after every interrupt."""

    def __init__(self, model: Any) -> None:
        self.model = model
        self.before = self.state()
        self.neighbour = ThreadPoolExecutor(1)

    def state(self) -> Any:
        recorder = _RECORDER.get()
        return state(self.model), torch.is_grad_enabled(), torch.is_inference_mode_enabled(), recorder is None

    def unharmed(self) -> bool:
        return self.state() == self.before and not undo._JOURNAL and self.neighbour.submit(_free).result()


def _free() -> bool:
    """From another thread: whether the lock can be had."""
    if not undo._LOCK.acquire(timeout=5):
        return False
    undo._LOCK.release()
    return True


def explain(model: Any, method: str = "attention-rollout") -> Any:
    options: dict[str, Any] = {"ablation": {"by": 4}, "deeplift": {"baseline": 4}}.get(method, {})
    return wherefrom.explain(IDS, model, method=method, **options).scores


def small() -> Any:
    """One block, in a state that a careless library would spoil."""
    return awkward(tiny.model("bert", num_hidden_layers=1))


# In the suite ---------------------------------------------------------------------------------------------


def test_an_interrupt_at_any_instruction_of_taking_and_giving_back() -> None:
    watch = Watch(small())
    part = watch.model.bert.embeddings

    def body() -> None:
        evaluating(watch.model)
        telling()
        attending(watch.model, attention_forward)
        hook(part, lambda *_: None)
        hook(part, lambda *_: None, before=True)

    places = everywhere(partial(borrowed, body), own, opcodes=True)
    assert len(places) > 100  # of lines and instructions: from Python 3.12 on, instructions are traced in part
    for at, place in places.items():
        strike(partial(borrowed, body), at, own, opcodes=True)
        assert watch.unharmed(), place


def test_an_interrupt_at_any_line_of_a_capture() -> None:
    watch = Watch(small())
    expected = explain(watch.model)
    for at, place in everywhere(partial(explain, watch.model), capturing).items():
        strike(partial(explain, watch.model), at, capturing)
        assert watch.unharmed(), place
    assert (explain(watch.model) == expected).all()


def test_a_capture_inside_a_capture_is_interrupted() -> None:
    outer, inner = Watch(small()), Watch(awkward(tiny.model("gpt2", n_layer=1)))
    opened = open_model(outer.model)

    def both() -> None:
        def body() -> None:
            evaluating(opened.model)
            hook(opened.model, lambda *_: None)
            with suppress(Interrupt):  # swallowed by the outer one, which goes on
                explain(inner.model)
            assert not opened.model.training

        borrowed(body)

    for at, place in everywhere(both, own).items():
        strike(both, at, own)
        assert outer.unharmed(), place
        assert inner.unharmed(), place


def test_what_two_interrupts_leave_is_repaired_by_the_next_capture(monkeypatch: pytest.MonkeyPatch) -> None:
    """The second one hits both undoings: whatever is left is on record."""
    watch = Watch(small())
    expected = explain(watch.model)

    def cut_short(_start: int) -> None:
        raise Interrupt

    def left() -> None:
        def body() -> None:
            evaluating(watch.model)
            hook(watch.model, lambda *_: None, before=True)
            monkeypatch.setattr(undo, "_undo", cut_short)
            raise Interrupt

        with pytest.raises(Interrupt):
            borrowed(body)
        monkeypatch.undo()

    for thread in (False, True):  # the next capture may come in another thread
        left()
        assert not watch.model.training
        assert undo._JOURNAL
        again = watch.neighbour.submit(explain, watch.model).result() if thread else explain(watch.model)
        assert (again == expected).all()
        assert watch.unharmed()


def test_the_double_precision_twin_shares_no_hook_and_no_parameter() -> None:
    """Relevance propagation runs a twin of the model; interrupted at any line, the model has seen nothing of it."""
    watch = Watch(small())
    weights = [parameter.clone() for parameter in watch.model.parameters()]

    def twins(file: str) -> bool:
        return file.endswith("double_twin.py")

    for at, place in everywhere(partial(explain, watch.model, "full-lrp"), twins).items():
        strike(partial(explain, watch.model, "full-lrp"), at, twins)
        assert watch.unharmed(), place
    assert all(torch.equal(a, b) for a, b in zip(weights, watch.model.parameters(), strict=True))


@pytest.mark.parametrize("method", ["gradient-x-input", "value-zeroing"])
def test_grad_mode_comes_back_after_an_interrupt_inside_of_torchs_own_switches(method: str) -> None:
    watch = Watch(small())

    def switches(file: str) -> bool:
        return file.endswith("grad_mode.py")

    for at, place in everywhere(partial(explain, watch.model, method), switches).items():
        strike(partial(explain, watch.model, method), at, switches)
        assert watch.unharmed(), place  # by now the traceback is gone, with every guard that it kept


# 2,000 faults ---------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("method", METHODS)
def test_two_hundred_interrupts_at_any_line_of_wherefrom_torch_or_transformers(method: str) -> None:
    watch = Watch(small())
    expected = explain(watch.model, method)
    packages = [str(Path(module.__file__ or "").parent) for module in (wherefrom, torch, sys.modules["transformers"])]
    for name, count in zip(packages, (120, 40, 40), strict=True):

        def within(file: str, name: str = name) -> bool:
            return file.startswith(name)

        with interrupted(0, within, opcodes=True) as seen:
            explain(watch.model, method)
        for at in random.Random(0).sample(range(1, len(seen) + 1), min(count, len(seen))):
            strike(partial(explain, watch.model, method), at, within, opcodes=True)
            assert watch.unharmed(), seen[at - 1]
            np.testing.assert_array_equal(explain(watch.model, method), expected)


def _exits(*_: Any) -> None:
    raise SystemExit(1)


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="this system has no interval timers")
@pytest.mark.parametrize("kind", ["ctrl-c", "exit"])
def test_three_hundred_signals_at_any_moment(kind: str) -> None:
    watch = Watch(small())
    method = "gradient-x-input"
    expected = explain(watch.model, method)
    begin = time.perf_counter()
    for _ in range(10):
        explain(watch.model, method)
    lasts = (time.perf_counter() - begin) / 10
    handler = signal.default_int_handler if kind == "ctrl-c" else _exits
    number = signal.SIGALRM
    before = signal.signal(number, handler)
    moments, struck = random.Random(1), 0
    try:
        for _ in range(300):
            try:
                try:
                    signal.setitimer(signal.ITIMER_REAL, max(1e-6, moments.random() * lasts))
                    explain(watch.model, method)
                finally:
                    signal.setitimer(signal.ITIMER_REAL, 0)
            except (KeyboardInterrupt, SystemExit):
                struck += 1
            assert watch.unharmed()
            np.testing.assert_array_equal(explain(watch.model, method), expected)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(number, before)
    assert struck > 50


@pytest.mark.slow
@pytest.mark.usefixtures("ctrl_c")
def test_a_hundred_real_interrupts_sent_by_another_thread() -> None:
    """Ctrl-C as the terminal sends it, with Python's own handler."""
    watch = Watch(small())
    expected = explain(watch.model)
    moments = random.Random(2)
    for _ in range(100):
        sender = threading.Timer(moments.random() * 0.01, os.kill, (os.getpid(), signal.SIGINT))
        try:
            sender.start()
            for _ in range(1000):
                explain(watch.model)
                if not sender.is_alive():
                    break
            sender.join()
            time.sleep(0.01)
        except KeyboardInterrupt:
            sender.join()
        assert watch.unharmed()
    np.testing.assert_array_equal(explain(watch.model), expected)


@pytest.mark.slow
@pytest.mark.parametrize("error", [RuntimeError, MemoryError, KeyboardInterrupt, WherefromError])
def test_a_hundred_exceptions_from_hooks_and_torch(error: type[BaseException], monkeypatch: pytest.MonkeyPatch) -> None:
    watch = Watch(small())
    expected = {method: explain(watch.model, method) for method in METHODS}
    modules = list(watch.model.modules())
    functions = [(torch.nn.functional, "linear"), (torch.nn.functional, "layer_norm"), (torch, "softmax")]
    functions += [(torch.Tensor, "softmax"), (torch.Tensor, "detach"), (torch.autograd, "grad"), (torch, "einsum")]
    drawn = random.Random(3)

    def fails(*_: Any, **__: Any) -> Any:
        raise error("injected")

    for trial in range(100):
        method = drawn.choice(METHODS)
        if trial % 2:
            handle = drawn.choice(modules).register_forward_hook(fails)
            with suppress(error, WherefromError):  # too little memory is told in a sentence
                explain(watch.model, method)
            handle.remove()
        else:
            with monkeypatch.context() as patch, suppress(error, WherefromError):
                patch.setattr(*drawn.choice(functions), fails)
                explain(watch.model, method)
        assert watch.unharmed()
        np.testing.assert_allclose(explain(watch.model, method), expected[method], rtol=1e-6)
    gc.collect()
