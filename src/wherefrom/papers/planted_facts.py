"""Planted facts: does a method find the one sentence of a long prompt that the answer comes from?

    The river rises in the hills. … The secret code of Alice is 7341. … The secret code of Alice is → 7341

A prompt is real sentences in random order, one sentence that states a fact, and the beginning of that sentence once
more. It is kept if the fact is read there: deleting the sentence lowers log p(answer) by at least 1 nat. A method's
score of a sentence is the sum over its tokens; recall@1 is the share of prompts whose highest sentence, the question
left out, is the one with the fact.

Two language models read them: `wherefrom/lm`, and a small one that is trained here to look values up among several
facts (wherefrom/papers/fact_reader.py). docs/methods.md takes the default method of language models from this table.
"""

from __future__ import annotations

import json
import random
import re
import time
from collections.abc import Sequence
from dataclasses import replace
from hashlib import sha256
from typing import Any

import numpy as np
import torch

from wherefrom.api import explain
from wherefrom.data import MASK, Dataset, Example
from wherefrom.errors import InvalidInput
from wherefrom.files import write
from wherefrom.model import Model, open_model
from wherefrom.papers.fact_reader import train_once
from wherefrom.papers.figures import bar_picture
from wherefrom.papers.recipe import Place, RecipeCall, Table, number, overall, recipe, used

ROWS = {
    "DeepLift": "deeplift",
    "ALTI-Logit": "alti-logit",
    "AttCAT": "attcat",
    "gradient × input": "gradient-x-input",
    "IG, 5 points": "integrated-gradients(n_steps=5)",
    "CP-LRP": "cp-lrp",
    "AttnLRP": "attn-lrp",
    "Random": "random",
}
RELEVANCE = {
    f"r with {name}": f"pearson(signs=both):{method}@scores"
    for name, method in (("CP-LRP", "cp-lrp"), ("AttnLRP", "attn-lrp"))
}
RECALL = "source-recall"
PROMPTS: dict[str, Any] = {"data": ("squad_v1",), "spare": "grammar:distractor", "limit": 200}
LONGEST_ANSWER = 4  # tokens
SMALLEST_DROP = 1.0  # nats of log p(answer), without the sentence that states the fact
TRIES = 4  # prompts drawn for each that is wanted
COST_LENGTH, COST_REPEATS = 256, 3  # tokens and repetitions of the measurement of cost

FACTS = (
    ("The secret code of {name} is", "number"),
    ("The secret word of {name} is", "word"),
    ("The best friend of {name} is", "name"),
)
# fmt: off
NAMES = ("Alice", "Bob", "Carol", "David", "Emma", "Frank", "Grace", "Henry", "Irene", "Jack", "Karen", "Louis",
         "Maria", "Nora", "Oscar", "Peter", "Ruth", "Simon", "Tom", "Walter")
WORDS = ("copper", "violin", "harbor", "marble", "falcon", "lantern", "orchid", "saddle", "thunder", "velvet", "walnut",
         "anchor", "bishop", "castle", "dragon", "engine", "forest", "garden", "hammer", "island")
# fmt: on
SENTENCE = re.compile(r"[A-Z][^.!?\n]{30,180}[.!?](?=\s|$)")


def draw_value(kind: str, rng: random.Random) -> str:
    """The value of a fact: a number, a word or a name."""
    if kind == "number":
        return str(rng.randrange(10, 10_000))
    return rng.choice(WORDS if kind == "word" else NAMES)


def read_sentences(data: Dataset) -> tuple[str, ...]:
    """The sentences of a dataset's texts, in order, each once; a masked word filled in."""
    texts = (
        (each.text[1] if isinstance(each.text, tuple) else each.text).replace(MASK, each.target or "") for each in data
    )
    sentences = dict.fromkeys(
        sentence for text in dict.fromkeys(texts) for sentence in SENTENCE.findall(_capitalize(text))
    )
    if len(sentences) < 100:
        raise InvalidInput(f"{data.name} has {len(sentences)} sentences of 30 to 180 letters; a prompt needs 100")
    return tuple(sentences)


def _capitalize(text: str) -> str:
    return text[:1].upper() + text[1:]


def draw_prompt(
    id: str, length: int, tokenizer: Any, sentences: Sequence[str], rng: random.Random, facts: int = 1
) -> Example | None:
    """A prompt of at most `length` tokens with its answer; None where the answer has too many tokens.

    `facts` of them are stated, and the last sentence asks for the first; `cues` is the place of the sentence with it.
    """
    names = rng.sample(NAMES, facts)
    subject, kind = rng.choice(FACTS)
    stated = [(subject.format(name=name), draw_value(kind, rng)) for name in names]
    question, answer = stated[0]

    def count(text: str) -> int:
        return len(tokenizer(text, add_special_tokens=False)["input_ids"])

    if count(f" {answer}") > LONGEST_ANSWER:
        return None
    lines = [f"{question} {value}." for question, value in stated]
    room = length - count(" ".join([*lines, question, answer])) - 2
    while room > 0:
        sentence = rng.choice(sentences)
        room -= count(f" {sentence}")
        if room > 0 and sentence not in lines:
            lines.append(sentence)
    rng.shuffle(lines)
    text = " ".join([*lines, question])
    start = text.index(f"{question} {answer}.")
    return Example(id, text, target=f" {answer}", cues=((start, start + len(question) + len(answer) + 2),))


@torch.no_grad()
def log_probability(opened: Model, text: str, answer: str) -> float:
    """log p of an answer after a text, from one plain forward pass."""
    tokenizer: Any = opened.tokenizer
    prompt = tokenizer(text)["input_ids"]
    target = tokenizer(answer, add_special_tokens=False)["input_ids"]
    ids = torch.tensor([[*prompt, *target]], device=opened.device)
    logits = opened.pretrained(ids).logits[0, len(prompt) - 1 : -1].double()
    return float(logits.log_softmax(-1)[range(len(target)), target].sum())


def without_source(example: Example) -> str:
    """The prompt without the sentence that states the fact."""
    ((start, end),) = example.cues
    text = str(example.text)
    return text[:start] + text[end:].removeprefix(" ")


def keep_prompts(
    call: RecipeCall, model: str, length: int, sentences: Sequence[str], facts: int
) -> tuple[Dataset, int]:
    """`call.limit` prompts in which the fact is read, and the number of those that were dropped.

    They are written to a file as they are found, where the next call goes on after a kill.
    """
    key = sha256(json.dumps([model, length, call.limit, call.seed, facts, sentences[:100]]).encode()).hexdigest()[:12]
    path = call.work / "prompts" / f"{key}.jsonl"
    rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()] if path.is_file() else []
    opened = open_model(model, device=call.device)
    while sum(row["kept"] for row in rows) < call.limit and len(rows) < TRIES * call.limit:
        id = f"{length}:{len(rows) + 1}"
        example = draw_prompt(id, length, opened.tokenizer, sentences, random.Random(f"{call.seed} {id}"), facts)
        row: dict[str, Any] = {"id": id, "kept": False}
        if example is not None:
            answer = str(example.target)
            drop = log_probability(opened, str(example.text), answer) - log_probability(
                opened, without_source(example), answer
            )
            row |= {
                "text": example.text,
                "target": answer,
                "cues": example.cues,
                "drop": drop,
                "kept": drop >= SMALLEST_DROP,
            }
        rows.append(row)
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("a", encoding="utf-8") as stream:
            stream.write(json.dumps(row) + "\n")
    examples = [
        Example(row["id"], row["text"], target=row["target"], cues=tuple(map(tuple, row["cues"])))
        for row in rows
        if row["kept"]
    ]
    if not examples:
        raise InvalidInput(f"{model} reads the fact in none of {len(rows)} prompts of {length} tokens; train it longer")
    dropped = sum("drop" in row and not row["kept"] for row in rows)
    return Dataset(f"planted facts, {length} tokens", "", lambda: iter(examples)), dropped


def measure_passes(opened: Model, example: Example) -> dict[str, float]:
    """The time of `explain` in plain forward passes of the same prompt: the median of repetitions, by row."""
    text, target = str(example.text), str(example.target)

    def seconds(run: Any) -> float:
        times = []
        for _ in range(COST_REPEATS + 1):
            start = time.perf_counter()
            run()
            times.append(time.perf_counter() - start)
        return float(np.median(times[1:]))  # the first warms up

    forward = seconds(lambda: log_probability(opened, text, target))
    return {
        row: seconds(lambda method=method: explain(text, opened, target=target, method=method)) / forward
        for row, method in ROWS.items()
    }


def cost_once(call: RecipeCall, example: Example) -> dict[str, float]:
    """The costs of the rows, measured once and kept in the folder of the call."""
    path = call.work / "prompts" / "passes.json"
    if not path.is_file():
        path.parent.mkdir(parents=True, exist_ok=True)
        write(path, json.dumps(measure_passes(open_model(call.model, device=call.device), example)) + "\n")
    costs: dict[str, float] = json.loads(path.read_text(encoding="utf-8"))
    return costs


def recall_table(call: RecipeCall, model: str, lengths: Sequence[int], sentences: Sequence[str], facts: int) -> Table:
    """Recall@1 by length, and how like the scores are to those of relevance propagation."""
    ours: dict[Place, Any] = {}
    sources: dict[str, str] = {}
    for length in lengths:
        data, dropped = keep_prompts(call, model, length, sentences, facts)
        run = call.evaluate(data, ROWS.values(), [RECALL, *RELEVANCE.values()], model=model)
        column = f"{length} tokens"
        ours |= overall(run, ROWS, RECALL, column)
        sources[column] = f"{used(run)}, {dropped} dropped"
        for name, metric in RELEVANCE.items():
            ours |= overall(run, ROWS, metric, f"{column}, {name}")
    columns = [*sources, *(f"{column}, {name}" for column in sources for name in RELEVANCE)]
    notes = [
        "A prompt is kept if deleting the sentence with the fact lowers log p(answer) by 1 nat or more. "
        "r: mean Pearson correlation per prompt with the scores of relevance propagation."
    ]
    pictures = {"": bar_picture(ours, list(ROWS), columns[0])}
    of = "Recall@1 of the sentence with the fact"
    return Table(list(ROWS), columns, ours, of, list(sources.values()), notes, pictures)


@recipe(
    "planted-facts/lm",
    "How often wherefrom/lm's answer is traced to the sentence that states the fact (recall@1), and the cost.",
    samples="no paper; the experiment behind the default method, on 200 kept prompts for each length",
    model="wherefrom/lm",
    **PROMPTS,
)
def lm(call: RecipeCall) -> Table:
    sentences = read_sentences(call.read())
    table = recall_table(call, call.model, (COST_LENGTH, 500), sentences, facts=1)
    example = next(iter(keep_prompts(call, call.model, COST_LENGTH, sentences, facts=1)[0]))
    costs = {(row, "passes"): number(cost, COST_REPEATS) for row, cost in cost_once(call, example).items()}
    notes = [*table.notes, f"Passes: the time of explain in plain forward passes, at {COST_LENGTH} tokens."]
    return replace(table, columns=[*table.columns, "passes"], ours={**table.ours, **costs}, notes=notes)


@recipe(
    "planted-facts/reader",
    "The same question to a small model trained to look values up among four facts.",
    samples="no paper; the experiment behind the default method, on 200 kept prompts for each length",
    options={"steps": 1500},
    **PROMPTS,
)
def reader(call: RecipeCall) -> Table:
    """`--model` takes a reader that is trained already."""
    sentences = read_sentences(call.read())
    trained = call.model != call.recipe.model
    folder = call.model if trained else train_once(call, sentences)
    return recall_table(call, folder, (256, 512, 1024), sentences, facts=4)
