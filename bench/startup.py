"""How long `import wherefrom` and `wherefrom --help` take, beside a bare Python and beside what they must import.

python bench/startup.py
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import time

RUNS = 7
COMMANDS = {
    "python -c pass": ["-c", "pass"],
    "import wherefrom": ["-c", "import wherefrom"],
    "import typer, rich": ["-c", "import typer, rich.console"],
    "wherefrom --help": ["-m", "wherefrom", "--help"],
    "import torch": ["-c", "import torch"],
    "import torch, transformers": ["-c", "import torch, transformers.modeling_utils"],
    "wherefrom methods": ["-m", "wherefrom", "methods"],
}


def seconds(arguments: list[str]) -> float:
    begin = time.perf_counter()
    subprocess.run([sys.executable, *arguments], check=True, stdout=subprocess.DEVNULL)
    return time.perf_counter() - begin


def main() -> None:
    times: dict[str, list[float]] = {name: [] for name in COMMANDS}
    for _ in range(RUNS):  # interleaved, so that a busy moment falls on all of them
        for name, arguments in COMMANDS.items():
            times[name].append(seconds(arguments))
    bare = statistics.median(times["python -c pass"])
    print(f"| command | seconds (median of {RUNS}) | beyond a bare Python |")
    print("|---|---|---|")
    for name, values in times.items():
        median = statistics.median(values)
        print(f"| `{name}` | {median:.2f} | {median - bare:.2f} |")


if __name__ == "__main__":
    main()
