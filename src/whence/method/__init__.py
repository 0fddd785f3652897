"""One module per idea; importing this room registers them all."""

from whence.method import attention as attention
from whence.method.registry import Method, Preset, lookup, methods, presets

__all__ = ["Method", "Preset", "lookup", "methods", "presets"]
