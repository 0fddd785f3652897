"""Opening a model and following one forward pass. The only room that knows Hugging Face modules."""

from wherefrom.model.capture import capture, stream
from wherefrom.model.inputs import Encoded, Inputs, ManyInputs, OneInput, Reader, TextInput
from wherefrom.model.model import Model
from wherefrom.model.opening import ModelLike, TokenizerLike, open_model
from wherefrom.model.output import Gradients, OutputTrace
from wherefrom.model.sentences import Batch, Sentence, collate
from wherefrom.model.target import answer, answers, foreseen
from wherefrom.model.trace import LayerTrace, Trace
from wherefrom.result.answer import Answer, Readout, Target

__all__ = [
    "Answer",
    "Batch",
    "Encoded",
    "Gradients",
    "Inputs",
    "LayerTrace",
    "ManyInputs",
    "Model",
    "ModelLike",
    "OneInput",
    "OutputTrace",
    "Reader",
    "Readout",
    "Sentence",
    "Target",
    "TextInput",
    "TokenizerLike",
    "Trace",
    "answer",
    "answers",
    "capture",
    "collate",
    "foreseen",
    "open_model",
    "stream",
]
