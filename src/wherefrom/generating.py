"""`generate`: a prompt in, what a language model says after it out, and where each token of that comes from.

The answer is generated first, by the model's own `generate`. Then prompt and answer are read once more, in one pass
(model/phrase.py), from which every token is explained: maps have a row for each, gradients go back through one graph
side by side (model/backward.py), and of tokens taken away one pass has what every number loses.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Annotated, Any

import numpy as np
import torch

from wherefrom.api import explain
from wherefrom.defaults import DEFAULT_METHOD, SPEAKER
from wherefrom.errors import InvalidInput, InvalidOption, InvalidTarget, TooLong
from wherefrom.method import MethodLike, MethodSpec, choose
from wherefrom.model import Model, ModelLike, OneInput, Sentence, TokenizerLike, open_model
from wherefrom.model.capture import rerunning
from wherefrom.model.chat import Chat, Tools, given_or_chat, with_tools
from wherefrom.model.offsets import special_ids, token_names
from wherefrom.model.paired import followed_by, paired
from wherefrom.model.phrase import ANSWER, continued, phrase_of, spelt
from wherefrom.model.sound import FEATURES, features_of
from wherefrom.model.target import EACH
from wherefrom.model.two_streams import TARGET
from wherefrom.model.undo import keeping_written
from wherefrom.model.vocabulary_words import token_id
from wherefrom.options import DeviceLike, DtypeLike, Keywords, LayerRange, Sink
from wherefrom.pipeline.auto import default_methods, is_default, suited
from wherefrom.pipeline.remarks import SHARED_NOTES
from wherefrom.pipeline.resolution import AUTO, Question, Wanted, refuse_misspelt, resolve_job
from wherefrom.pipeline.windows import run_whole
from wherefrom.result.answer import BEFORE_EACH, Readout, Target, finite
from wherefrom.result.bytewise import part_of_a_character
from wherefrom.result.explanation import Explanation
from wherefrom.result.generation import Answered, Generation
from wherefrom.result.words import in_sight
from wherefrom.typecheck import checks_arguments, kind_of, least, shown

DRAWN = ("temperature", "top_k", "top_p", "min_p", "typical_p")  # what decides how an answer is drawn
SEEDS = 2**31
MOST_FOILS = 10  # of a token
USUAL_LENGTH = 20  # tokens of an answer
ONE = {"return_dict_in_generate": False, "num_return_sequences": 1}  # whatever a configuration says
OURS = ("input_ids", "attention_mask", "return_dict_in_generate", "num_return_sequences", "inputs_embeds")


@checks_arguments
def generate(
    prompt: OneInput | Mapping[str, Any] | Chat | None = None,
    model: ModelLike = SPEAKER,
    tokenizer: TokenizerLike = None,
    method: MethodLike = DEFAULT_METHOD,
    *,
    chat: Chat | None = None,
    tools: Tools | None = None,
    target: str | None = None,
    max_new_tokens: Annotated[int, least(1)] | None = None,
    seed: int | None = None,
    alternatives: Annotated[int, least(0, MOST_FOILS)] = 0,
    aggregate: str | None = AUTO,
    layers: LayerRange = None,
    sink: Sink = "keep",
    device: DeviceLike = None,
    dtype: DtypeLike = None,
    prove: bool = True,
    model_kwargs: Keywords = None,
    tokenizer_kwargs: Keywords = None,
    **sampling: object,
) -> Generation:
    """Let a language model go on after a prompt, and explain every token that it says: a `Generation`.

    prompt: a text, token ids, an encoding, or a chat: a list of turns, [{"role": "user", "content": …}, …].
    chat: a chat in place of a prompt.
    tools: what the chat's template describes to the model, as in `explain`.
    model: a causal language model, the shipped one by default; or an encoder with a decoder (BART, T5, Marian), which
        writes a target for a source: each token is then explained over the source and what was written before it.
    method: a name as in `explain`, its options inside: "gradient-x-input(at=word)". Methods with an option `of` explain
        log-probabilities unless it says otherwise, so that the tokens of an answer add up to the answer. "auto" is
        the default of `explain`: alti-logit, of an encoder with a decoder alti.
    target: a text that is taken as said, so that nothing is generated.
    sampling: whatever else `model.generate` takes: do_sample, temperature, top_p, num_beams, stop_strings, a
        generation_config, …; the result records it, what is no plain value in short.
    max_new_tokens: an answer that has so many tokens just stops there, of 20 where neither this nor a generation_config
        says how many. That holds for a translation, too: no end is written that the model did not choose
        (`forced_eos_token_id=` brings it back).
    seed: of a sampled answer; drawn and recorded if None.
    alternatives: explain each token also rather than each of so many others that were likeliest in its place
        (`g.why_not(3, "she")`; the viewer shows it). Methods that look at no output have nothing to say of that.
    aggregate, layers, sink, and how the model is opened: as in `explain`.

    >>> said = wherefrom.generate("Paris is the capital of", model="wherefrom/lm", max_new_tokens=3)
    >>> len(said), said.scores.shape[0]
    (3, 3)
    """
    if unfit := sorted(set(OURS) & set(sampling)):
        raise InvalidOption(f"generate cannot be given {', '.join(unfit)}: one prompt has one answer here")
    if "max_length" in sampling:
        raise InvalidOption("max_length counts the prompt's tokens, too; say max_new_tokens, which counts the answer's")
    config = sampling.get("generation_config")
    if config is not None and not hasattr(config, "to_diff_dict"):
        raise InvalidOption(f"generation_config is {kind_of(config)}; expected a GenerationConfig of transformers")
    given = {"max_new_tokens": max_new_tokens, "seed": seed, **sampling}
    if target is not None and (unread := [name for name, each in given.items() if each is not None]):
        refuse_misspelt(generate, sampling)
        raise InvalidOption(f"a target is taken as said, and nothing is generated; leave {' and '.join(unread)} out")
    opened = open_model(model, tokenizer, device=device, dtype=dtype, prove=prove, model_kwargs=model_kwargs)
    chosen = spoken_by(opened, method)
    refuse_silent(opened)
    read, single = opened.reader(tokenizer_kwargs=with_tools(tokenizer_kwargs, tools)).read(given_or_chat(prompt, chat))
    if not single and len(read) != 1:
        raise InvalidInput(f"{len(read)} prompts were given; generate takes one at a time")
    job = resolve_job(opened, chosen, Wanted(aggregate, layers, sink=sink, keep="scores"))
    most = max_new_tokens or getattr(config, "max_new_tokens", None) or USUAL_LENGTH
    if target is None:
        seed = _seed(opened, seed, sampling)
        _fits(opened, read[0], most)
        sentence = _said(opened, read[0], most, seed, sampling)
    else:
        sentence = followed(opened, read[0], target)
    foils = alternatives if chosen.method.class_specific else 0
    each = Question(Target(EACH, foils), None, None)
    outcome = run_whole(opened, [sentence], [each], {chosen.asked: job}, 1)[0][chosen.asked]
    if outcome.error is not None:
        raise outcome.error
    record = {"max_new_tokens": most, **sampling} if target is None else {}
    record.pop("streamer", None)  # which listens, and changes nothing
    return _gathered(
        opened, sentence, outcome.explanations, {name: _recorded(each) for name, each in record.items()}, seed
    )


def _seed(opened: Model, seed: int | None, sampling: Mapping[str, Any]) -> int | None:
    """The seed of a sampled answer. Any other has none, nor a temperature, which transformers would pass over."""
    heat = sampling.get("temperature")
    if isinstance(heat, int | float) and heat <= 0:
        samples = _set(opened, {"generation_config": sampling.get("generation_config")}, "do_sample")
        how = "say do_sample=False and leave the temperature out" if samples else "leave it out"
        raise InvalidOption(
            f"temperature={heat:g}; expected a number above 0 (for the likeliest token each time {how})"
        )
    if _set(opened, sampling, "do_sample"):
        return int(torch.randint(SEEDS, ())) if seed is None else seed
    drawn = [name for name in DRAWN if sampling.get(name) is not None] or ["seed"] * (seed is not None)
    if drawn:
        raise InvalidOption(f"{', '.join(drawn)} is of a sampled answer; say do_sample=True with it, or leave it out")
    return None


def _set(opened: Model, sampling: Mapping[str, Any], name: str) -> Any:
    """A setting of the model's `generate`: as it is asked for, of a configuration that is given, or the model's own."""
    own = (sampling.get("generation_config"), getattr(opened.model, "generation_config", None))
    every = (sampling.get(name), *(getattr(each, name, None) for each in own))
    return next((each for each in every if each is not None), None)


def _recorded(value: Any) -> Any:
    """What a record has of an argument: itself where JSON has it, what a configuration sets, else its name."""
    try:
        json.dumps(value, allow_nan=False)
    except (TypeError, ValueError):
        return _recorded(value.to_diff_dict()) if hasattr(value, "to_diff_dict") else shown(value)
    return value


def rather_than(generation: Generation, token: int, foil: int | str, model: ModelLike) -> Explanation:
    """Why a token was said rather than any other token, asked of the model that said it."""
    said = generation[token]
    found = explain(model=model, foil=foil, **said.arguments)
    refuse_phrase(found, len(said), foil)
    kept = ("scores", "target", "measured", "options", "probabilities", "log_probabilities", "candidates")
    return replace(said, **{name: getattr(found, name) for name in (*kept, "delta", "arrived")})


def refuse_phrase(found: Explanation, tokens: int, foil: int | str) -> None:
    """A foil of several tokens is read with tokens of its own, so that more are explained than were given."""
    if len(found) != tokens:
        raise InvalidTarget(f"{foil!r} is several tokens; expected a foil of one, as the token is that was said")


def refuse_silent(opened: Model) -> None:
    """A model that writes nothing."""
    if opened.task not in ("causal-lm", "seq2seq"):
        role = "a bare encoder" if opened.task == "encoder" else f"for {opened.task}"
        raise InvalidOption(
            f"{opened.name} is {role} and says nothing; expected a causal language model, or an encoder "
            f"with a decoder that writes text"
        )


def spoken_by(opened: Model, method: MethodLike) -> MethodSpec:
    """The method that explains what a model says, log-probabilities where nothing else was asked for."""
    defaults = default_methods(opened)
    chosen = choose((suited(opened, defaults) or defaults)[0] if is_default(method) else method)
    takes = chosen.method.class_specific and "of" in chosen.method.options
    return replace(chosen, options={"of": "log-probability", **chosen.options}) if takes else chosen


def followed(opened: Model, sentence: Sentence, target: str) -> Sentence:
    """A prompt and a text after it that is given."""
    if opened.two_streams:
        return paired(opened, sentence, target)
    said = phrase_of(opened, sentence, target)
    return continued(opened, sentence, [token_id(opened, target, sentence)] if said is None else said)


def _fits(opened: Model, sentence: Sentence, most: int) -> None:
    """Whether the model can read a prompt together with so many tokens more, the last of which it need not read."""
    longest = None if opened.two_streams else opened.max_length
    if longest is not None and (room := longest + 1 - len(sentence)) < most:
        raise TooLong(
            f"the prompt has {len(sentence)} tokens and {most} more were asked for, but {opened.name} reads at most "
            f"{longest}; expected max_new_tokens of at most {max(room, 1)}"
        )


def _settings(opened: Model, most: int, sampling: Mapping[str, Any]) -> dict[str, Any]:
    """What the model's `generate` is told. It takes a configuration or settings; these go into a copy of it."""
    config, others = copy.deepcopy(sampling.get("generation_config")), {**sampling}
    others.pop("generation_config", None)
    padding = {} if opened.pad_id is None else {"pad_token_id": opened.pad_id}
    # A translator's own configuration often has a max_length, beside which transformers warns of max_new_tokens.
    whole = opened.two_streams and not opened.hears
    length = {"max_length": most + 1, "max_new_tokens": None} if whole else {"max_new_tokens": most}
    # Many translators are told to end at the length limit; a token that was not chosen is none that the model said.
    free = {"forced_eos_token_id": None} if opened.two_streams else {}
    reads = {} if _set(opened, sampling, "stop_strings") is None else {"tokenizer": opened.tokenizer}
    told = {**padding, **length, **free, **ONE, **others}
    return {**told, **reads} if config is None else {**config.update(**told), **reads, "generation_config": config}


def _said(opened: Model, sentence: Sentence, most: int, seed: int | None, sampling: Mapping[str, Any]) -> Sentence:
    """The prompt and what the model says after it, by its own `generate`."""
    ids = torch.tensor([sentence.ids], device=opened.device)
    mask = torch.ones_like(ids) if sentence.visible is None else torch.tensor([sentence.visible], device=opened.device)
    given = {"input_ids": ids, "attention_mask": mask}
    if opened.hears:
        given = {FEATURES: features_of([sentence]).to(opened.device, opened.pretrained.dtype)}

    @torch.no_grad()
    def run() -> torch.Tensor:
        keeping_written(opened.written_on)
        with torch.random.fork_rng(enabled=seed is not None):
            if seed is not None:
                torch.manual_seed(seed)
            try:
                found: torch.Tensor = opened.model.generate(**given, **_settings(opened, most, sampling))
            except (TypeError, ValueError) as error:  # transformers' word on what it was given
                raise InvalidOption(f"{opened.name} does not generate so: {error}") from error
        return found

    every = [int(i) for i in rerunning(opened, run, own_attention=True)[0]]
    start, found = every[0], every[1:] if opened.two_streams else every[len(sentence) :]
    if not found:
        raise InvalidInput("the model said nothing after this prompt; expected at least one token")
    return followed_by(opened, sentence, start, found) if opened.two_streams else continued(opened, sentence, found)


def _gathered(
    opened: Model, sentence: Sentence, found: Sequence[Explanation], sampling: dict[str, Any], seed: int | None
) -> Generation:
    said = list(sentence.said)
    n, k = len(sentence) - len(said) + 1, len(said)
    every = len(found) // k  # of each token, and then of it rather than each of its foils
    rows = np.zeros((k, every, n + k), dtype=found[0].scores.dtype)
    for place, each in enumerate(found):
        step, which = divmod(place, every)
        rows[step, which, : n + step] = each.scores[: n + step]
    scores, foils = rows[:, 0].copy(), rows[:, 1:].copy() if every > 1 else None
    whole = _whole(opened, sentence, found[::every], scores)
    written = zip(whole.tokens[n:], whole.pieces[n:], strict=True)
    answered = (_answered(found[step * every : (step + 1) * every]) for step in range(k))
    steps = [_as_written(each, *names) for each, names in zip(answered, written, strict=True)]
    return Generation(whole, scores, [*sentence.ids, said[-1]], steps, sampling, seed, foils)


def _answered(found: Sequence[Explanation]) -> Answered:
    """One token: explained by itself, and then rather than others."""
    first, *foils = found
    said = first.measured
    contrasts = tuple(each.target for each in foils)
    known = (first.prediction, first.probabilities, _log(first), first.candidates)
    return Answered(said, *known, contrasts, first.arrived)


def _log(found: Explanation) -> float:
    """The log-probability of the token that was said."""
    return found.log_probabilities.get(str(found.measured.label), -np.inf)


def _as_written(said: Answered, token: str, piece: str) -> Answered:
    """A token that has its vocabulary's name by what stands in the text, unless another that was likely has that name.

    One that is part of a character keeps its bytes' ("<0x85>"): how likely it was is not how likely the character was.
    """
    text = in_sight(piece)
    if said.target.label != token or part_of_a_character(token) or not text or text in said.probabilities:
        return said

    def named(words: Mapping[str, Any]) -> dict[str, Any]:
        return {text if word == said.target.label else word: value for word, value in words.items()}

    return replace(
        said,
        target=replace(said.target, label=text),
        prediction=text if said.prediction == said.target.label else said.prediction,
        probabilities=named(said.probabilities),
        candidates=named(said.candidates),
        foils=tuple(replace(each, label=text) for each in said.foils),
    )


def _whole(opened: Model, sentence: Sentence, found: Sequence[Explanation], scores: Any) -> Explanation:
    """All that was said as one, over prompt and answer."""
    said, first = sentence.said, found[0]
    before = sentence.texts[:-1] if len(said) > 1 and opened.tokenizer is not None else sentence.texts
    text, spans = spelt(opened.tokenizer, said, len(before))
    towards = first.target.towards
    rows = tuple(range(len(sentence) - len(said), len(sentence)))
    phrase = Target("phrase", said[0], text.strip() or None, tokens=said)
    return replace(
        first,
        tokens=[*sentence.tokens, *token_names(opened.tokenizer, [said[-1]])],
        scores=scores.sum(0) if towards else scores.mean(0),
        layer_scores=None,
        texts=before if opened.tokenizer is None else (*before, text),
        spans=[*sentence.spans, spans[-1]],
        special=[*sentence.special, opened.tokenizer is not None and said[-1] in special_ids(opened.tokenizer)],
        unknown=[*sentence.unknown, False],
        segments=[*sentence.segments, TARGET if opened.two_streams else ANSWER],
        target=phrase if towards else Target("none", label="the answer"),
        measured=phrase,
        readout=Readout(None, BEFORE_EACH, rows),
        log_probabilities=finite({str(phrase.label): sum(map(_log, found))}),
        options={name: value for name, value in first.options.items() if name not in ("target", "keep")},
        delta=None,
        arrived=None,
        surrogate=None,
        notes=[note for note in first.notes if note in SHARED_NOTES],
        seconds=sum(each.seconds for each in found),
    )
