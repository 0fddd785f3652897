r"""The metrics by name, as `wherefrom evaluate` takes them:

    NAME[(OPTION=VALUE, …)][:REFERENCE][@WHERE]

    aopc    aopc(by=mask)    aopc(by=pad, protocol=attcat-code)    comprehensiveness(shares=[0.1,0.2])
    spearman:saliency    spearman(protocol=dense):ablation@layers    pearson:hta-x-input    precision@20
    consistency(model=FOLDER)    randomisation(independent=true)    stability(against=padding)    compression(of=group)

REFERENCE is another method, explained beside the measured one. WHERE says what of the explanation is measured: `scores`
(the answer), `layers` (the readout row of everything aggregated up to each layer) or `maps` (each layer by itself);
for precision it is K. A metric of one example is a few numbers, each with its layer or none; where it has no value it
says why. What a metric needs of the data is stated, so that a dataset without it is refused before anything is run.
Some metrics need more than the explanation: the model once more without tokens (`way`) or disturbed in another way
(`rerun`), the example explained once more by a changed model (`again`), or every example's vectors (`probe`, a metric
of the model on the whole dataset). What they share with each other is computed once.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from wherefrom.display import Listed
from wherefrom.errors import InvalidOption
from wherefrom.metric import builtin, source_recall  # noqa: F401 (they register themselves)
from wherefrom.metric.base import METRICS, NEEDS, Metric, MetricSpec, chosen_by
from wherefrom.spec import apart, checked_options, parse


def metrics() -> list[Metric]:
    """Every metric of one example that `wherefrom evaluate` knows by name.

    >>> "aopc" in [metric.name for metric in wherefrom.metrics()]
    True
    """
    columns: dict[str, Callable[[Metric], str]] = {
        "metric": lambda each: each.name,
        "better": lambda each: each.better,
        "what it is": lambda each: each.summary,
    }
    return Listed(METRICS.values(), columns)


def lookup(text: str) -> MetricSpec:
    """The metric of a name such as `spearman:saliency@layers`, or an error that says what is known."""
    (_, head), *rest = apart(text, ":@")
    signs = dict(rest)
    reference, where = signs.get(":", ""), signs.get("@", "")
    name, written = parse(head)
    found = METRICS.find(name)
    options = checked_options(name, written, found.options, found.kinds)
    if found.reference and not reference:
        raise InvalidOption(f"'{name}' compares with another method; say which, e.g. {name}:saliency")
    if reference and not found.reference:
        raise InvalidOption(f"'{name}' compares with no other method; leave ':{reference}' out")
    if where and where not in found.where and not ("K" in found.where and where.isdecimal() and int(where) > 0):
        expected = f"one of @{', @'.join(found.where)}" if found.where else "nothing after it"
        raise InvalidOption(f"'{name}' cannot be taken at '@{where}'; expected {expected}")
    if found.map_protocols and options.get("protocol") in found.map_protocols and where not in ("", "maps"):
        raise InvalidOption(f"'{name}' by {options['protocol']} compares whole maps; leave '@{where}' out")
    if missing := [option for option in found.requires if option not in options]:
        raise InvalidOption(f"'{name}' must be told its {missing[0]}; write {name}({missing[0]}=…)")
    way, again, rerun, probe = (_resolved(each, options) for each in (found.way, found.again, found.rerun, found.probe))
    return MetricSpec(text.strip(), found, options, reference or None, where, way, again, rerun, probe)


def _resolved(default: Any, options: dict[str, Any]) -> Any:
    """The way, change, rerun or probe that the options choose, which are taken out."""
    chosen = {key: options.pop(key) for key in chosen_by(default) if key in options}
    return None if default is None else replace(default, **chosen)


def metric_of(metric: str) -> Metric:
    """The metric that a number was written under: `special-rank [CLS]`, `aopc(by=mask)`."""
    return METRICS[_bare(metric)]


def _bare(text: str) -> str:
    """The name alone, without options, reference and place."""
    return re.split(r"[(:@ \[]", text)[0]


def described(text: str) -> list[str]:
    """What is known of a metric, in paragraphs."""
    found = METRICS.find(_bare(text))
    places = [f"@{where}" for where in found.where]
    needs = [*found.needs, *([found.probe.of] if found.probe else [])]
    options = ", ".join(f"{option}={default!r}" for option, default in found.options.items())
    return [
        f"{found.name}: {inspect.getdoc(found.run)}",
        f"better: {found.better or 'neither higher nor lower'}",
        f"needs of the data: {', '.join(NEEDS[need] for need in needs) or 'nothing but inputs'}",
        *([f"compares with another method: {found.name}:METHOD"] if found.reference else []),
        *([f"taken at: {', '.join(places)}"] if places else []),
        f"options: {options or 'none'}",
        "formula, and what it does not tell: docs/evidence.md",
    ]
