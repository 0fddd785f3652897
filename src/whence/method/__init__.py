"""One module per idea; importing this room registers them all."""

from whence.method import ablation as ablation
from whence.method import alti as alti
from whence.method import attention as attention
from whence.method import attention_gradients as attention_gradients
from whence.method import cat as cat
from whence.method import deeplift as deeplift
from whence.method import gradients as gradients
from whence.method import hta as hta
from whence.method import integrated_gradients as integrated_gradients
from whence.method import norms as norms
from whence.method import random as random
from whence.method import relevance as relevance
from whence.method import value_zeroing as value_zeroing
from whence.method.registry import Chosen, Method, Preset, Scores, choose, list_of_names, lookup, methods, presets

__all__ = ["Chosen", "Method", "Preset", "Scores", "choose", "list_of_names", "lookup", "methods", "presets"]
