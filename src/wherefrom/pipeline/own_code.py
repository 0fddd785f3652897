"""What fails in a model's own code, in a sentence.

Of a model whose blocks are not known no more was tried than that it runs: Reformer asserts that nobody differentiates
it outside of training, Funnel does not read a single token.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from traceback import walk_tb

from wherefrom.errors import Unsuited, WherefromError

MODELS = "transformers.models."
ELSEWHERE = ("memory", "nference tensor")  # what execution.py has a sentence for


@contextmanager
def own_code_in_a_sentence(what: str) -> Iterator[None]:
    """An exception that comes from the code of a model, while `what` was done, is an error of ours."""
    try:
        yield
    except (WherefromError, MemoryError):
        raise
    except Exception as error:
        where = [str(frame.f_globals.get("__name__")) for frame, _ in walk_tb(error.__traceback__)]
        own = [name for name in where if name.startswith(MODELS)]
        theirs = where[-1].partition(".")[0] in ("transformers", "torch")  # not a hook's, of ours or of the user's
        if not own or not theirs or any(word in str(error) for word in ELSEWHERE):
            raise
        said = f"{type(error).__name__}: {error}".splitlines()[0]
        raise Unsuited(
            f"{what}: the model's own code ({own[-1].removeprefix('transformers.')}) fails there ({said}); choose "
            f"another method, or another text"
        ) from error
