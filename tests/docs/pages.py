"""The pages of the book, their blocks of code, and what a reader has at hand when reading them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PAGES = {path.relative_to(ROOT).as_posix(): path for path in sorted([ROOT / "README.md", *DOCS.rglob("*.md")])}
# `<!-- not run: why -->` on the line above a block leaves it out.
BLOCK = re.compile(
    r"(?:^<!-- not run: (?P<why>[^>]*?) -->\n)?^```(?P<language>python|sh)\n(?P<source>.*?)^```$",
    re.MULTILINE | re.DOTALL,
)

# What the blocks of a page take as known: a model, a text, a file.
SENTENCE = 'import wherefrom\ntext = "a deep and meaningful film ."\n'
LANGUAGE_MODEL = """
import re
import wherefrom
from transformers import AutoModelForCausalLM, AutoTokenizer
from wherefrom import zoo

tokenizer = AutoTokenizer.from_pretrained(zoo.path("wherefrom/lm"))
tokenizer.chat_template = (
    "{% for turn in messages %}{{ turn.role }}: {{ turn.content }}\\n{% endfor %}"
    "{% if add_generation_prompt %}assistant: {% endif %}"
)
m = wherefrom.open_model(AutoModelForCausalLM.from_pretrained(zoo.path("wherefrom/lm")), tokenizer)
prompt = "The keys to the cabinet were lost.\\n\\nThe doctor asked.\\n---\\nHe said that the keys to the cabinet"
e = wherefrom.explain(prompt, m, target=" are", method="attn-lrp")
"""
TABLES = """
import pandas

texts = ["a deep and meaningful film .", "it is dull and long ."]
frame = pandas.DataFrame({"review": texts})


class Dataset(list):  # rows, or a column by its name, as `datasets` has it
    def __getitem__(self, key):
        return [row[key] for row in self] if isinstance(key, str) else list.__getitem__(self, key)


dataset = Dataset({"text": text} for text in texts)
open("texts.txt", "w").write("\\n".join(texts))
wherefrom.explain(text).save("film.json")
review = "a deep and meaningful film . " * 60
"""
OWN_MODEL = """
from transformers import AutoModelForSequenceClassification, AutoTokenizer
from wherefrom import zoo

folder = zoo.path("wherefrom/sentiment")
my_model = AutoModelForSequenceClassification.from_pretrained(folder)
my_tokenizer = AutoTokenizer.from_pretrained(folder)
"""
SCORED = """
model, tokenizer = my_model, my_tokenizer
texts = ["a deep and meaningful film .", "it is dull , slow and far too long ."]
scored = [(each.tokens, each.scores) for each in wherefrom.explain(texts, method="saliency")]
"""
VISION = """
import numpy
import torch
from PIL import Image
from transformers import ViTConfig, ViTForImageClassification, ViTImageProcessorPil
import wherefrom

torch.manual_seed(0)
small = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 16, "image_size": 16}
config = ViTConfig(**small, patch_size=4, id2label={0: "dog", 1: "tabby, tabby cat"}, label2id={})
sized = ViTImageProcessorPil(size={"height": 16, "width": 16})
unseen = wherefrom.open_model(ViTForImageClassification(config).eval(), processor=sized)
Image.fromarray(numpy.random.default_rng(0).integers(0, 256, (24, 20, 3), dtype=numpy.uint8)).save("photo.jpg")
"""
BEFORE = {
    "README.md": SENTENCE + OWN_MODEL,
    "docs/errors.md": SENTENCE,
    "docs/evaluate.md": SENTENCE + OWN_MODEL + SCORED,
    "docs/evidence.md": SENTENCE + "texts = [text, 'it is dull , slow and far too long .']\n",
    "docs/generation.md": LANGUAGE_MODEL,
    "docs/inputs.md": SENTENCE + TABLES,
    "docs/methods.md": SENTENCE + LANGUAGE_MODEL,
    "docs/pictures.md": VISION,
    "docs/viewer.md": SENTENCE + LANGUAGE_MODEL + "ex = wherefrom.explain(text)\n",
    "docs/guide/dataset.md": "open('texts.txt', 'w').write('a deep film .\\nit is dull .\\n')\n",
}
# What a block names and a test cannot fetch, and what ships inside and stands for it.
STANDS_FOR = {
    "textattack/bert-base-uncased-SST-2": "wherefrom/sentiment",
    "path/to/another": "wherefrom/sentiment",
    "[(0, 812), (812, 1530)]": "[(0, 34), (34, 52)]",  # documents of a shorter prompt
    'wherefrom.open_model("google/vit-base-patch16-224")': "unseen",
    'why_not(3, "she")': "why_not(3, g.steps[3].foils[0].foil_label)",
    'wherefrom.evaluate("sst2"': "wherefrom.evaluate(texts",
}
COMMANDS_RUN = ("docs/guide/", "docs/start.md", "docs/viewer.md")  # elsewhere they are read: they name models and data


class Block(NamedTuple):
    page: str
    line: int
    language: str
    source: str
    why: str | None  # it is not run


def blocks(page: str, language: str) -> Iterator[Block]:
    text = PAGES[page].read_text(encoding="utf-8")
    for found in BLOCK.finditer(text):
        if found["language"] == language:
            line = text.count("\n", 0, found.start("source")) + 1
            yield Block(page, line, language, found["source"], found["why"])


def commands(source: str) -> Iterator[str]:
    """The commands of wherefrom in a block of the shell: one a line, several where wide gaps part them."""
    for line in source.replace("\\\n", " ").splitlines():
        for part in re.split(r"\s{2,}(?=wherefrom )|\| ", line.partition(" #")[0]):
            if part.strip().startswith("wherefrom "):
                yield part.strip()
