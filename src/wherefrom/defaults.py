"""What is taken where nothing is named. Imports nothing, so that the command line can say it before torch is loaded."""

DEFAULT_MODEL = "wherefrom/sentiment"
SPEAKER = "wherefrom/lm"  # where something is to be said
DEFAULT_METHOD = "auto"  # resolved by wherefrom/pipeline/auto.py:
TOWARDS = ("deeplift", "attcat")  # where something is predicted; the second where the first cannot answer
UNMAPPED = ("integrated-gradients", "gradient-x-input")  # the same of models whose blocks are not known
MAPS = ("alti",)  # where nothing is predicted, or a map is asked for
HEADS = ("attention-rollout",)  # where one head is asked for
# Side by side, methods that differ in kind: differences, gradients, what tokens give, attention alone.
COMPARED = ("deeplift", "attcat", "alti", "attention-rollout")
COMPARED_MAPS = ("alti", "value-zeroing", "globenc", "attention-rollout")
