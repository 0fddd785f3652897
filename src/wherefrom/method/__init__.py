"""One module per idea; importing this room registers them all, in the order in which `wherefrom methods` lists them."""

# isort: off
from wherefrom.method import attention as attention
from wherefrom.method import attention_fused as attention_fused
from wherefrom.method import norms as norms
from wherefrom.method import norm_ffn as norm_ffn
from wherefrom.method import alti as alti
from wherefrom.method import information_flow as information_flow
from wherefrom.method import value_zeroing as value_zeroing
from wherefrom.method import hta as hta
from wherefrom.method import random as random
from wherefrom.method import deeplift as deeplift
from wherefrom.method import gradients as gradients
from wherefrom.method import integrated_gradients as integrated_gradients
from wherefrom.method import attention_gradients as attention_gradients
from wherefrom.method import grad_eclip as grad_eclip
from wherefrom.method import cat as cat
from wherefrom.method import relevance as relevance
from wherefrom.method import attn_lrp as attn_lrp
from wherefrom.method import decompx as decompx
from wherefrom.method import alti_logit as alti_logit
from wherefrom.method import ablation as ablation
from wherefrom.method import context_cite as context_cite

# isort: on
from wherefrom.method.base import (
    Method,
    MethodLike,
    MethodSpec,
    Preset,
    Scores,
    choose,
    choose_each,
    list_of_names,
    lookup,
    method,
    methods,
    name_of,
    preset,
    presets,
)

__all__ = [
    "Method",
    "MethodLike",
    "MethodSpec",
    "Preset",
    "Scores",
    "choose",
    "choose_each",
    "list_of_names",
    "lookup",
    "method",
    "methods",
    "name_of",
    "preset",
    "presets",
]
