"""whence: where a Transformer's answer comes from.

    import whence
    whence.explain("a deep and meaningful film .", model="path/or/hub-id")

Importing the package costs next to nothing: torch and transformers are loaded by the first call.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from whence.progress import quiet_tqdm

__version__ = "0.1.0"

# Public name -> the module that holds it (PEP 562: resolved on first use).
_HOMES = {
    "explain": "whence.explaining",
    "explain_stream": "whence.explaining",
    "compare": "whence.explaining",
    "methods": "whence.method",
    "Explanation": "whence.explanation",
    "Explanations": "whence.results",
    "Comparison": "whence.comparison",
    "Trace": "whence.model",
    "LayerTrace": "whence.model",
    "capture": "whence.explaining",
    "estimate": "whence.estimating",
    "evaluate": "whence.run",
    "Run": "whence.run",
    "metrics": "whence.evidence.registry",
    "reproduce": "whence.papers",
    "Estimate": "whence.estimating",
    "open_model": "whence.model",
    "mixing_ratios": "whence.analysis",
    "anisotropy": "whence.analysis",
    "norm_outliers": "whence.analysis",
    "WhenceError": "whence.errors",
    "WhenceWarning": "whence.errors",
}

_ROOMS = ("data",)  # whole modules: whence.data.read(...)

__all__ = [
    "Comparison",
    "Estimate",
    "Explanation",
    "Explanations",
    "LayerTrace",
    "Run",
    "Trace",
    "WhenceError",
    "WhenceWarning",
    "__version__",
    "anisotropy",
    "capture",
    "compare",
    "estimate",
    "evaluate",
    "explain",
    "explain_stream",
    "methods",
    "metrics",
    "mixing_ratios",
    "norm_outliers",
    "open_model",
    "reproduce",
]

if TYPE_CHECKING:
    from whence.analysis import anisotropy, mixing_ratios, norm_outliers
    from whence.comparison import Comparison
    from whence.errors import WhenceError, WhenceWarning
    from whence.estimating import Estimate, estimate
    from whence.evidence.registry import metrics
    from whence.explaining import capture, compare, explain, explain_stream
    from whence.explanation import Explanation
    from whence.method import methods
    from whence.model import LayerTrace, Trace, open_model
    from whence.papers import reproduce
    from whence.results import Explanations
    from whence.run import Run, evaluate


def __getattr__(name: str) -> Any:
    if name in _ROOMS:
        return import_module(f"whence.{name}")
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'whence' has no attribute {name!r}")
    quiet_tqdm()
    value = getattr(import_module(home), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(set(globals()) | set(__all__))
