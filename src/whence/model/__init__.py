"""Opening a model and following one forward pass. The only room that knows Hugging Face modules."""

from whence.answer import Answer, Reading, Target
from whence.model.capture import LayerTrace, Trace, capture, stream
from whence.model.inputs import Batch, Reader, Sentence, collate
from whence.model.opening import Opened, open_model
from whence.model.target import answer

__all__ = [
    "Answer",
    "Batch",
    "LayerTrace",
    "Opened",
    "Reader",
    "Reading",
    "Sentence",
    "Target",
    "Trace",
    "answer",
    "capture",
    "collate",
    "open_model",
    "stream",
]
