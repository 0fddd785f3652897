"""What is taken where nothing is named. Imports nothing, so that the command line can say it before torch is loaded."""

DEFAULT_MODEL = "wherefrom/sentiment"
SPEAKER = "wherefrom/lm"  # where something is to be said
TRANSLATOR = "wherefrom/translate"  # where a source is to be read beside what is said
PICTURED = "wherefrom/picture"  # which reads pictures
DEFAULT_METHOD = "auto"  # resolved by wherefrom/pipeline/auto.py, each where those before it cannot answer:
# Where something is predicted: the first on the leaderboard of all that cost few passes, then those that need less.
TOWARDS = ("cp-lrp", "deeplift", "attcat")
MASKED = ("deeplift", "cp-lrp", "attcat")  # the same of a word at a mask, where the second is told apart as the better
PICTURES = MASKED  # the same of what a picture shows
PHRASES = MASKED  # the same of several tokens: their log-probability, where `cp-lrp` has but a sum of logits
TRANSLATED = ("attn-lrp", "cp-lrp", "alti")  # the same of what a decoder writes after a source
UNMAPPED = ("integrated-gradients", "gradient-x-input", "ablation")  # the same of models whose blocks are not known
MAPS = ("alti",)  # where nothing is predicted, or a map is asked for
HEADS = ("attention-rollout",)  # where one head is asked for
# All of them: which options a call that names no method may have.
CHOSEN = (*TOWARDS, *MASKED, *PICTURES, *PHRASES, *TRANSLATED, *UNMAPPED, *MAPS, *HEADS)
# Side by side, the best of methods that differ in kind: relevance, differences, what tokens give, attention alone.
COMPARED = ("cp-lrp", "deeplift", "alti", "attention-rollout")
COMPARED_MAPS = ("alti", "value-zeroing", "globenc", "attention-rollout")
