"""wherefrom: where a Transformer's answer comes from.

    import wherefrom
    wherefrom.explain("a deep and meaningful film .", model="path/or/hub-id")

Importing the package costs next to nothing: torch and transformers are loaded by the first call.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from wherefrom.progress import quiet_tqdm
from wherefrom.version import __version__

# Public name -> the module that holds it (PEP 562: resolved on first use).
_HOMES = {
    "explain": "wherefrom.api",
    "explain_stream": "wherefrom.streaming",
    "compare": "wherefrom.api",
    "generate": "wherefrom.generating",
    "align": "wherefrom.aligning",
    "Alignment": "wherefrom.result.alignment",
    "Generation": "wherefrom.result.generation",
    "methods": "wherefrom.method",
    "presets": "wherefrom.method",
    "Explanation": "wherefrom.result.explanation",
    "Explanations": "wherefrom.result.explanations",
    "Comparison": "wherefrom.result.comparison",
    "Trace": "wherefrom.model",
    "LayerTrace": "wherefrom.model",
    "capture": "wherefrom.api",
    "doctor": "wherefrom.diagnosis",
    "Diagnosis": "wherefrom.diagnosis",
    "estimate": "wherefrom.cost",
    "evaluate": "wherefrom.evaluation",
    "Run": "wherefrom.evaluation",
    "metrics": "wherefrom.metric.names",
    "reproduce": "wherefrom.papers",
    "Estimate": "wherefrom.cost",
    "open_model": "wherefrom.model",
    "similarity": "wherefrom.options",
    "mixing_ratios": "wherefrom.analysis",
    "anisotropy": "wherefrom.analysis",
    "norm_outliers": "wherefrom.analysis",
    "logit_lens": "wherefrom.lens",
    "LogitLens": "wherefrom.result.by_layer",
    "routes": "wherefrom.paths",
    "Routes": "wherefrom.result.routes",
    "WherefromError": "wherefrom.errors",
    "WherefromWarning": "wherefrom.errors",
}

_ROOMS = ("data", "errors", "testing")  # whole modules: wherefrom.data.read(...), wherefrom.errors.TooLong

__all__ = [
    "Alignment",
    "Comparison",
    "Diagnosis",
    "Estimate",
    "Explanation",
    "Explanations",
    "Generation",
    "LayerTrace",
    "LogitLens",
    "Routes",
    "Run",
    "Trace",
    "WherefromError",
    "WherefromWarning",
    "__version__",
    "align",
    "anisotropy",
    "capture",
    "compare",
    "doctor",
    "estimate",
    "evaluate",
    "explain",
    "explain_stream",
    "generate",
    "logit_lens",
    "methods",
    "metrics",
    "mixing_ratios",
    "norm_outliers",
    "open_model",
    "presets",
    "reproduce",
    "routes",
    "similarity",
]

if TYPE_CHECKING:
    from wherefrom import data as data
    from wherefrom import errors as errors
    from wherefrom.aligning import align
    from wherefrom.analysis import anisotropy, mixing_ratios, norm_outliers
    from wherefrom.api import capture, compare, explain
    from wherefrom.cost import Estimate, estimate
    from wherefrom.diagnosis import Diagnosis, doctor
    from wherefrom.errors import WherefromError, WherefromWarning
    from wherefrom.evaluation import Run, evaluate
    from wherefrom.generating import generate
    from wherefrom.lens import logit_lens
    from wherefrom.method import methods, presets
    from wherefrom.metric.names import metrics
    from wherefrom.model import LayerTrace, Trace, open_model
    from wherefrom.options import similarity
    from wherefrom.papers import reproduce
    from wherefrom.paths import routes
    from wherefrom.result.alignment import Alignment
    from wherefrom.result.by_layer import LogitLens
    from wherefrom.result.comparison import Comparison
    from wherefrom.result.explanation import Explanation
    from wherefrom.result.explanations import Explanations
    from wherefrom.result.generation import Generation
    from wherefrom.result.routes import Routes
    from wherefrom.streaming import explain_stream


def __getattr__(name: str) -> Any:
    if name in _ROOMS:
        return import_module(f"wherefrom.{name}")
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'wherefrom' has no attribute {name!r}")
    quiet_tqdm()
    value = getattr(import_module(home), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted((*__all__, *_ROOMS))
