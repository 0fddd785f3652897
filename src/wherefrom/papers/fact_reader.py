"""A small language model that looks values up: trained on planted facts, for the experiment on the default method.

A Llama of 4 blocks and 128 dimensions with the vocabulary of `wherefrom/lm`. A training text holds facts among real
sentences and asks for each of them once more; the loss is on the tokens of the answers asked for. Texts grow from 128
to 1,024 tokens, because looking up is learned on short ones first.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from hashlib import sha256
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy
from transformers import set_seed

from wherefrom.training import checkpoints

if TYPE_CHECKING:
    from wherefrom.papers.recipe import RecipeCall

READER = "fact-reader"
STAGES = ((0.5, 128, 32), (0.3, 384, 10), (0.2, 1024, 4))  # share of the steps, tokens, texts in a batch
LEARNING_RATE = 2e-3
IGNORED = -100  # a label that has no part in the loss


def train_once(call: RecipeCall, sentences: Sequence[str]) -> str:
    """The folder of the reader, trained at the first call."""
    steps = call.train_limit or call.options["steps"]
    key = sha256(f"{steps} {call.seed} {len(sentences)} {sentences[:100]}".encode()).hexdigest()[:12]
    folder = call.work / "models" / f"{READER}-{key}"
    if (folder / "tokenizer_config.json").is_file():  # written last
        return str(folder)
    tokenizer: Any = checkpoints.tokenizer("wherefrom/lm")
    model = train_reader(tokenizer, sentences, steps, call.seed, call.device)
    model.cpu().save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return str(folder)


def build_reader(vocabulary: int) -> Any:
    """The untrained model."""
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(
        vocab_size=vocabulary,
        hidden_size=128,
        intermediate_size=384,
        num_hidden_layers=4,
        num_attention_heads=4,
        num_key_value_heads=4,
        max_position_embeddings=1280,
        tie_word_embeddings=True,
    )
    return LlamaForCausalLM(config)


def train_reader(tokenizer: Any, sentences: Sequence[str], steps: int, seed: int, device: str | None = None) -> Any:
    """The model after `steps` updates."""
    set_seed(seed)
    model = build_reader(len(tokenizer)).to(device or "cpu").train()
    optimizer = torch.optim.AdamW(model.parameters(), LEARNING_RATE, weight_decay=0.01)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, LEARNING_RATE, total_steps=steps, pct_start=0.1)
    encoded = [tokenizer(f" {sentence}", add_special_tokens=False)["input_ids"] for sentence in sentences]
    rng = random.Random(seed)
    for length, batch in (
        (length, batch) for share, length, batch in STAGES for _ in range(max(1, round(share * steps)))
    ):
        ids, labels = (part.to(model.device) for part in draw_batch(tokenizer, encoded, length, batch, rng))
        states, following = model.model(ids).last_hidden_state[:, :-1], labels[:, 1:]
        answers = following != IGNORED  # the head over the vocabulary is most of the work: only where it counts
        loss = cross_entropy(model.lm_head(states[answers]), following[answers])
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        if schedule.last_epoch < steps - 1:
            schedule.step()
    return model.eval()


def draw_batch(
    tokenizer: Any, encoded: Sequence[list[int]], length: int, batch: int, rng: random.Random
) -> tuple[Tensor, Tensor]:
    """Token ids and labels [batch, length]: facts among sentences, then a question for each fact, with its answer."""
    from wherefrom.papers.planted_facts import FACTS, NAMES, draw_value

    start = [tokenizer.bos_token_id] if tokenizer.bos_token_id is not None else []
    ids = torch.zeros(batch, length, dtype=torch.long)
    labels = torch.full((batch, length), IGNORED)
    for row in range(batch):
        subject, kind = rng.choice(FACTS)
        questions, answers = [], []
        for name in rng.sample(NAMES, 4):
            value = draw_value(kind, rng)
            questions.append(tokenizer(" " + subject.format(name=name), add_special_tokens=False)["input_ids"])
            answers.append(tokenizer(f" {value}.", add_special_tokens=False)["input_ids"])
        stated = [question + answer for question, answer in zip(questions, answers, strict=True)]
        room = length - len(start) - 2 * sum(map(len, stated))
        parts = list(stated)
        while room > 0:
            sentence = rng.choice(encoded)[:room]
            parts.append(sentence)
            room -= len(sentence)
        rng.shuffle(parts)
        text = start + [token for part in parts for token in part]
        marks = [IGNORED] * len(text)
        for i in rng.sample(range(len(stated)), len(stated)):
            text += questions[i] + answers[i]
            marks += [IGNORED] * len(questions[i]) + answers[i]
        ids[row], labels[row] = torch.tensor(text[:length]), torch.tensor(marks[:length])
    return ids, labels
