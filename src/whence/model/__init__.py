"""Opening a model and following one forward pass. The only room that knows Hugging Face modules."""

from whence.answer import Answer, Reading, Target
from whence.model.capture import LayerTrace, Trace, capture, stream
from whence.model.inputs import Batch, Reader, Sentence, collate
from whence.model.opening import Opened, open_model
from whence.model.output import Gradients, OutputTrace
from whence.model.target import answer, answers

__all__ = [
    "Answer",
    "Batch",
    "Gradients",
    "LayerTrace",
    "Opened",
    "OutputTrace",
    "Reader",
    "Reading",
    "Sentence",
    "Target",
    "Trace",
    "answer",
    "answers",
    "capture",
    "collate",
    "open_model",
    "stream",
]
