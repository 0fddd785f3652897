"""Time and memory of explaining an answer, token by token, beside Inseq, Captum and LXT.

    python bench/generation.py [--threads 2] [--device cuda] [--peer-python PATH] [--write]

A Llama of 135 M with random weights; 64 tokens that were said after a prompt of 192, given to all, so that nobody
generates. Ours is `wherefrom.generate` after that: one pass, and every token of the answer explained. The peers run in
a process of their own, of `--peer-python` where they want other versions (`pip install inseq==0.7.0 captum lxt
"transformers<5.10"`), on a model of the same shape and the same tokens; what is not installed is left out with a line.
They take one token after the other, so that a few tokens are timed after a prompt as long as the average one has
before it, and multiplied; Captum's ablation has the whole answer for each token of the prompt, of which one is timed.
Inseq reads attention for all tokens of the answer in one step, which is timed whole (its Value Zeroing does not run on
this Llama with transformers 5).
With one thread CPU time is taken, of which other work on the machine takes little. Memory is what a fresh process holds
at its peak beyond the model; on a GPU, what torch's allocator does, and times are of second calls, after kernels were
compiled.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

import lxt_peer
import torch
import transformers
from memory import peak
from written import put

SHAPE = {
    "hidden_size": 576,
    "num_hidden_layers": 30,
    "num_attention_heads": 9,
    "num_key_value_heads": 3,
    "intermediate_size": 1536,
    "vocab_size": 49152,
    "tie_word_embeddings": True,
}
PROMPT, SAID = 192, 64
BLANK = 0  # the token that stands in for one that is taken away
AS_ONE = ", the answer as one"  # one number, and one way back from it
# What is explained how: ours, and what peers call the same.
METHODS = {
    "saliency": ["inseq saliency"],
    "gradient-x-input": ["inseq input_x_gradient", "captum gradient"],
    f"gradient-x-input{AS_ONE}": ["captum gradient"],  # whose sum over the answer's tokens (`seq_attr`) is this
    "attn-lrp": ["lxt"],
    f"ablation(by={BLANK})": ["inseq occlusion", "captum ablation", "captum ablation-by-sequence"],
    "raw-attention": ["inseq attention"],
    "attention-rollout": ["inseq attention"],
    "alti": [],
    "decompx": [],
}
WANTED = {
    "saliency": 10,
    "gradient-x-input": 10,
    f"ablation(by={BLANK})": 10,
    "raw-attention": 20,
}
AT_ONCE = "inseq attention"  # which is read for all tokens in one step
SHORT = ("raw-attention", "attention-rollout", "alti")  # of ours: the first call is mostly what a process does once


def llama(layers: int, device: str, attention: str = "sdpa") -> Any:
    torch.manual_seed(0)
    config = transformers.LlamaConfig(**{**SHAPE, "num_hidden_layers": layers}, attn_implementation=attention)
    return transformers.LlamaForCausalLM(config).eval().requires_grad_(False).to(device)


def tokens(count: int, seed: int) -> list[int]:
    return torch.randint(3, SHAPE["vocab_size"], (count,), generator=torch.Generator().manual_seed(seed)).tolist()


# Ours -----------------------------------------------------------------------------------------------------


def ours(method: str, layers: int, device: str) -> tuple[Callable[[], Any], float]:
    """The call, and the number of answers like ours that it has explained."""
    import wherefrom

    prompt, said = tokens(PROMPT, 1), tokens(SAID, 2)
    if method.endswith(AS_ONE):
        read = wherefrom.open_model(llama(layers, device), tokenizer(), prove=False)
        asked = {"method": f"{method.removesuffix(AS_ONE)}(of=log-probability)", "target": f" {spelt(said)}"}
        return lambda: wherefrom.explain(spelt(prompt), read, **asked), 1.0
    opened = wherefrom.open_model(llama(layers, device), prove=False)
    opened.model.generate = lambda **_: torch.tensor([prompt + said], device=device)
    return lambda: wherefrom.generate(prompt, opened, method=method, max_new_tokens=SAID), 1.0


def forward(layers: int, device: str) -> tuple[Callable[[], Any], float]:
    model, ids = llama(layers, device), torch.tensor([tokens(PROMPT + SAID - 1, 1)], device=device)
    return lambda: model(ids), 1.0


# Theirs ---------------------------------------------------------------------------------------------------


def spelt(ids: list[int]) -> str:
    return " ".join(f"w{i}" for i in ids)


def tokenizer() -> Any:
    """A word for each token: peers take texts."""
    from tokenizers import Tokenizer, models, pre_tokenizers

    own = ["<pad>", "<s>", "</s>"]
    words = own + [f"w{i}" for i in range(len(own), SHAPE["vocab_size"])]
    made = Tokenizer(models.WordLevel({word: i for i, word in enumerate(words)}, unk_token=own[0]))
    made.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    names = dict(zip(("pad_token", "bos_token", "eos_token"), own, strict=True))
    return transformers.PreTrainedTokenizerFast(tokenizer_object=made, unk_token=own[0], **names)


def theirs(peer: str, layers: int, device: str, count: int) -> tuple[Callable[[], Any], float]:
    """The same for a peer: `count` tokens of the answer, or of the prompt where those take the time."""
    name, _, method = peer.partition(" ")
    before = PROMPT if count == SAID else PROMPT + (SAID - 1) // 2  # what a token has before it on the average
    prompt, said = tokens(before, 1), tokens(count, 2)
    model = llama(layers, device, "eager" if peer == AT_ONCE else "sdpa")
    if name == "inseq":
        import inseq

        read = inseq.load_model(model, method, tokenizer=tokenizer(), device=device)
        texts = spelt(prompt), spelt(prompt + said)
        return lambda: read.attribute(*texts, show_progress=False), count / SAID
    if name == "lxt":
        return lxt_peer.attn_lrp(model, torch.tensor([prompt], device=device)), 1 / SAID
    return captum(model, method, prompt, count)


def captum(model: Any, method: str, prompt: list[int], count: int) -> tuple[Callable[[], Any], float]:
    from captum.attr import (
        FeatureAblation,
        LayerGradientXActivation,
        LLMAttribution,
        LLMGradientAttribution,
        TextTokenInput,
    )

    words = tokenizer()
    if method == "gradient":
        of_gradients = LLMGradientAttribution(LayerGradientXActivation(model, model.model.embed_tokens), words)
        given, said = TextTokenInput(spelt(prompt), words), torch.tensor(tokens(count, 2))
        return lambda: of_gradients.attribute(given, target=said), count / SAID
    ablated = LLMAttribution(FeatureAblation(model), words)
    prompt, said = tokens(PROMPT, 1), torch.tensor(tokens(SAID, 2))
    skipped = torch.tensor(prompt[count:])  # tokens of the prompt that stay
    given = TextTokenInput(spelt(prompt), words, skip_tokens=skipped.tolist())
    # One pass more than tokens that are taken away, for the whole.
    step_by_step = method == "ablation"  # its default: the answer's tokens one after the other, for every change
    go = partial(ablated.attribute, given, target=said, num_trials=1, forward_in_tokens=step_by_step)
    return go, (count + 1) / (PROMPT + 1)


# The run --------------------------------------------------------------------------------------------------


def measured(options: Any) -> dict[str, float]:
    """In a process of its own: the seconds of a whole answer, and megabytes."""
    name = options.measure
    where = options.layers, options.device
    if name in PEERS:
        go, part = theirs(name, *where, options.count)
    else:
        go, part = forward(*where) if name == "forward" else ours(name, *where)
    on_gpu = options.device != "cpu"
    clock = time.process_time if options.threads == 1 and not on_gpu else time.perf_counter
    torch.randn(64, 64) @ torch.randn(64, 64)  # MKL's own buffers
    seconds = []

    def timed() -> None:
        begin = clock()
        go()
        if on_gpu:
            torch.cuda.synchronize()
        seconds.append(clock() - begin)

    token_by_token = name in METHODS and not name.endswith(AS_ONE) and name not in SHORT
    long = not on_gpu and (token_by_token or "occlusion" in name)  # which is its own warm-up
    # Of the first call: what a process once had it keeps.
    held = peak_of_gpu(go) if on_gpu else peak(timed if long else go)
    for _ in range(options.runs - long):
        timed()
    return {"seconds": min(seconds) / part, "mb": held, "transformers": version("transformers")}


def peak_of_gpu(go: Callable[[], Any]) -> float:
    """Megabytes of torch's allocator beyond what it holds now."""
    before = torch.cuda.memory_allocated()
    go()
    torch.cuda.synchronize()
    return (torch.cuda.max_memory_allocated() - before) / 2**20


PEERS = sorted({peer for peers in METHODS.values() for peer in peers})


def child(name: str, options: Any) -> dict[str, Any] | None:
    """What is measured of one contestant; None with a line where it does not run."""
    python = options.peer_python if name in PEERS else sys.executable
    more = {key: getattr(options, key) for key in ("threads", "layers", "runs", "device")}
    count = 1 if "occlusion" in name or "ablation" in name else SAID if name == AT_ONCE else options.count
    command = [python, __file__, "--measure", name, "--count", str(count)]
    command += [part for key, value in more.items() for part in (f"--{key}", str(value))]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        print(f"left out: {name} ({done.stderr.strip().splitlines()[-1][:200]})", flush=True)
        return None
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    print(json.dumps({"what": name, **found}), flush=True)
    return found


def table(options: Any) -> str:
    known = read(options.known) if options.known else {}
    known["forward"] = known.get("forward") or child("forward", options)
    rows = []
    for method, all_peers in METHODS.items():
        if options.only and method not in options.only:
            continue
        peers = [peer for peer in all_peers if peer not in options.without]
        for name in (method, *peers):
            known[name] = known.get(name) or child(name, options)
        mine, once = known[method], known["forward"]
        assert mine is not None, "ours does not run"
        assert once is not None
        head = f"| {method} | {in_seconds(mine)} | {mine['seconds'] / once['seconds']:.1f} × | {mine['mb']:.0f} |"
        beside = [(peer, found) for peer in peers if (found := known[peer]) is not None]
        for peer, found in beside:
            ratio = found["seconds"] / mine["seconds"]
            wanted = f" ({WANTED[method]} × wanted)" if method in WANTED else ""
            rows.append(f"{head} {peer} | {in_seconds(found)} | **{ratio:.1f} ×**{wanted} | {found['mb']:.0f} |")
        if not beside:
            rows.append(f"{head} – | | | |")
    return "\n".join([*said_of(options), *rows])


def read(log: Path) -> dict[str, Any]:
    """What an earlier run printed: its contestants are not run again."""
    lines = [line for line in log.read_text(encoding="utf-8").splitlines() if line.startswith("{")]
    return {each.pop("what"): each for each in map(json.loads, lines)}


def in_seconds(found: dict[str, Any]) -> str:
    return f"{found['seconds']:.3g} s"


def floors(layers: int) -> tuple[float, float, float]:
    """Multiplications by weights, in forward passes over the whole text.

    Of gradients by one pass and a way back through the blocks for each token; by a forward and a backward pass for each
    token and what stands before it; and of each token taken away once, read from there on, the answer's logits alone.
    """
    d, units, heads = SHAPE["hidden_size"], SHAPE["intermediate_size"], SHAPE["num_attention_heads"]
    shared = SHAPE["num_key_value_heads"] / heads
    blocks, head = layers * (2 * d * d * (1 + shared) + 3 * d * units), SHAPE["vocab_size"] * d
    n = PROMPT + SAID - 1
    once = n * (blocks + head)
    prefixes = sum(range(PROMPT, n + 1))
    taken_away = blocks * n * (n + 1) / 2 + head * sum(min(SAID, n - i) for i in range(n))
    return 1 + SAID * n * blocks / once, 2 * prefixes * (blocks + head) / once, taken_away / once


def said_of(options: Any) -> list[str]:
    clock = "CPU seconds of one thread" if options.threads == 1 else f"{options.threads} threads"
    if options.device != "cpu":
        clock = torch.cuda.get_device_name()
    layers = "" if options.layers == SHAPE["num_hidden_layers"] else f" with {options.layers} of its layers"
    given = "" if options.device == "cpu" else f"--device {options.device} "
    together, one_by_one, away = floors(options.layers)
    return [
        f"## An answer, token by token (`python bench/generation.py {given}--peer-python PATH --write`)",
        "",
        f"A Llama of 135 M{layers}, random weights, float32, {clock}, torch {torch.__version__}; {SAID} tokens said "
        f"after {PROMPT}, given to all. Peers: {options.count} tokens timed and multiplied (occlusion: one; attention, "
        f"which Inseq reads for all tokens in one pass: all). Captum "
        f"explains by the prompt's tokens alone, ours and the others by the answer's, too. In multiplications "
        f"by weights: gradients of all tokens {together:.0f} forward passes of one graph, {one_by_one:.0f} with a pass "
        f"for each token, so that {one_by_one / together:.1f} × is all that there is to win where multiplying takes "
        f"the time; each token taken away once, {away:.0f}.",
        "",
        "| method | all tokens | in forward passes | peak MB | peer | its time | slower than ours | its peak MB |",
        "|---|---|---|---|---|---|---|---|",
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--runs", type=int, default=1)
    parser.add_argument("--layers", type=int, default=SHAPE["num_hidden_layers"], help="fewer, to try it")
    parser.add_argument("--count", type=int, default=4, help="tokens that are timed of peers")
    parser.add_argument("--only", nargs="+", metavar="METHOD", help="these methods of ours, and their peers")
    parser.add_argument("--without", nargs="+", default=[], metavar="PEER", help="peers that take too long here")
    parser.add_argument("--known", type=Path, metavar="LOG", help="what a run that was cut off has printed")
    parser.add_argument("--peer-python", default=sys.executable, metavar="PATH", help="where the peers are installed")
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--measure", help=argparse.SUPPRESS)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    if options.measure:
        print(json.dumps(measured(options)))
        return
    text = table(options)
    print(text)
    if options.write:
        put("generation" if options.device == "cpu" else "generation-gpu", text)


if __name__ == "__main__":
    main()
