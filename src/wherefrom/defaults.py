"""Default models and methods. Imports nothing, so that the command line can show them before torch is loaded."""

DEFAULT_MODEL = "wherefrom/sentiment"
SPEAKER = "wherefrom/lm"  # where something is to be said
TRANSLATOR = "wherefrom/translate"  # where a source is to be read beside what is said
PICTURED = "wherefrom/picture"  # which reads pictures
DEFAULT_METHOD = "auto"  # the first method of a list below that can answer (wherefrom/pipeline/auto.py)
# By kind of model, for targets of any length; docs/methods.md has the measurements.
DEFAULT_METHODS: dict[str, tuple[str, ...]] = {
    "causal-lm": ("alti-logit", "deeplift", "gradient-x-input"),
    "classification": ("deeplift", "alti-logit", "attcat"),  # also taggers, question answering, similarity
    "masked-lm": ("deeplift", "attcat"),
    "seq2seq": ("alti", "generic-attention", "ablation", "gradient-x-input"),
    "image": ("deeplift", "alti-logit", "attcat"),
    "unknown-blocks": ("integrated-gradients", "gradient-x-input", "ablation"),
    "map": ("alti",),  # nothing is predicted, or a map is requested
    "head": ("attention-rollout",),  # a map of one head
}
# `compare` without names: the first two of the model's list beside two kinds of maps; or maps alone.
COMPARED_BESIDE = ("alti", "attention-rollout")
COMPARED_MAPS = ("alti", "value-zeroing", "globenc", "attention-rollout")
