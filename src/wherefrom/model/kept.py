"""What is made once and kept: with a pass, or of a block with the model."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property, partial
from typing import Any, Generic, TypeVar

from wherefrom.model.undo import outside_inference_mode

T = TypeVar("T")


def kept(read: Callable[[Any], T]) -> cached_property[T]:
    """Read once and kept with the model: never as an inference tensor, of no use to any gradient later."""
    return cached_property(lambda block: outside_inference_mode(partial(read, block)))


def once_in(shared: dict[str, Any], key: str, make: Callable[[], T]) -> T:
    """What is kept under that name, made where it is not there yet."""
    if key not in shared:
        shared[key] = make()
    found: T = shared[key]
    return found


class Matrix(Generic[T]):
    """A matrix of a block, read once and kept where it is the model's own memory.

    In half precision it is a copy, twice as large: with all of them kept, a model would take three times its memory.
    """

    def __init__(self, read: Callable[[Any], T]) -> None:
        self.read, self.__doc__ = read, read.__doc__

    def __set_name__(self, _owner: type, name: str) -> None:
        self.name = name

    def __get__(self, block: Any, _owner: Any = None) -> T:
        found = outside_inference_mode(partial(self.read, block))
        if not block.half:
            block.__dict__[self.name] = found  # which from now on is found first
        return found
