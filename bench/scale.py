"""An evaluation by Ray actors, one of which is killed in the middle: rows a second, bytes a row, the driver's memory.

    pip install -e '.[eval,ray]'
    python bench/scale.py [--rows 1000 10000] [--workers 2] [--shard 64]

A small random classifier with the tokenizer of wherefrom/sentiment, on texts of random words in a file; two methods,
AOPC and log-odds. The driver is a process of its own, whose largest memory is taken down. After its third shard one
actor's process is killed; the tables must have the bytes of a run without Ray. RAY_ADDRESS names a cluster, else Ray is
started here.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import random
import resource
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

METHODS, METRICS = ("attention-rollout", "random"), ("aopc", "log-odds")
MARK = "WHEREFROM_SCALE"  # by which our actors are known from others
TABLES = ("examples.parquet", "records.parquet", "curves.parquet", "summary.parquet")


def prepare(folder: Path, rows: int) -> None:
    """The model and a file of texts."""
    import torch
    import transformers

    import wherefrom

    tokenizer = wherefrom.open_model("wherefrom/sentiment").tokenizer
    sizes = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 32}
    torch.manual_seed(0)
    config = transformers.BertConfig(vocab_size=len(tokenizer), **sizes)
    transformers.BertForSequenceClassification(config).save_pretrained(folder / "model")
    tokenizer.save_pretrained(folder / "model")
    words = [word for word in tokenizer.get_vocab() if word.isalpha()]
    draw = random.Random(0)
    with (folder / f"{rows}.jsonl").open("w", encoding="utf-8") as file:
        for _ in range(rows):
            file.write(json.dumps({"text": " ".join(draw.choices(words, k=draw.randint(4, 24)))}) + "\n")


def drive(arguments: argparse.Namespace) -> None:
    """One evaluation, in this process; says what it took."""
    import wherefrom
    from wherefrom.evaluation import store

    killed: list[int] = []
    own = store.put

    def put(folder: Path, name: str, content: bytes) -> Path:
        path = own(folder, name, content)
        if arguments.kill and not killed and len(list(folder.glob("*.parquet"))) == 3:
            killed.extend(_actors()[:1])
            for each in killed:
                os.kill(each, signal.SIGKILL)
        return path

    store.put = put
    begin = time.perf_counter()
    ray = {"engine": "ray", "workers": arguments.workers} if arguments.engine == "ray" else {}
    wherefrom.evaluate(
        arguments.folder / f"{arguments.size}.jsonl",
        str(arguments.folder / "model"),
        methods=METHODS,
        metrics=METRICS,
        out=arguments.folder / f"{arguments.engine}-{arguments.size}",
        shard=arguments.shard,
        threads=1,
        **ray,
    )
    seconds = time.perf_counter() - begin
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3
    print(json.dumps({"seconds": seconds, "memory": most, "killed": len(killed)}))


def _actors() -> list[int]:
    """The processes of our actors on this machine."""
    found = []
    for each in Path("/proc").iterdir():
        try:
            ours = b"ray::Actor" in (each / "cmdline").read_bytes() and MARK.encode() in (each / "environ").read_bytes()
        except OSError:
            continue
        if ours and each.name.isdigit():
            found.append(int(each.name))
    return found


def run(folder: Path, size: int, engine: str, arguments: argparse.Namespace) -> dict[str, Any]:
    command = [sys.executable, __file__, "--drive", "--folder", str(folder), "--size", str(size), "--engine", engine]
    command += ["--workers", str(arguments.workers), "--shard", str(arguments.shard), *["--kill"] * (engine == "ray")]
    found = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, env={**os.environ, MARK: "1"})
    answer: dict[str, Any] = json.loads(found.stdout.splitlines()[-1])
    return answer


def hashes(folder: Path) -> list[str]:
    return [hashlib.sha256((folder / name).read_bytes()).hexdigest() for name in TABLES]


def report(arguments: argparse.Namespace) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for size in arguments.rows:
            prepare(folder, size)
            found = run(folder, size, "ray", arguments)
            shards = sum(each.stat().st_size for each in (folder / f"ray-{size}" / "shards").iterdir())
            rate = size / found["seconds"]
            print(
                f"{size} rows, {arguments.workers} actors, {found['killed']} killed: {found['seconds']:.1f} s, "
                f"{rate:.0f} rows/s, {shards / size:.0f} bytes a row, driver at most {found['memory']:.0f} MB",
                flush=True,
            )
            run(folder, size, "local", arguments)
            same = hashes(folder / f"ray-{size}") == hashes(folder / f"local-{size}")
            print(f"the tables are {'' if same else 'NOT '}those of a run without Ray, byte by byte", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, nargs="+", default=[1000, 10000])
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--shard", type=int, default=64)
    for name in ("drive", "kill"):
        parser.add_argument(f"--{name}", action="store_true", help="used by this program itself")
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--size", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--engine", default="ray", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    (drive if arguments.drive else report)(arguments)


if __name__ == "__main__":
    main()
