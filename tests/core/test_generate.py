"""What a language model says after a prompt: each token explained, and all of them as one."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
from transformers import GenerationConfig, LogitsProcessorList
from typer.testing import CliRunner

import pairs
import tiny
import wherefrom
from wherefrom.cli import app
from wherefrom.errors import DamagedFile, InvalidInput, InvalidOption, TooLong
from wherefrom.generating import rather_than

PROMPT = "the cat is not very good . the dog"


@pytest.fixture(scope="module")
def model() -> Any:
    tokenizer = tiny.tokenizer()
    tokenizer.backend_tokenizer.post_processor = None
    found = tiny.model("llama", "causal-lm", dtype=torch.float64, num_hidden_layers=2, eos_token_id=None)
    return wherefrom.open_model(found, tokenizer)


METHODS = [
    "alti-logit",
    "gradient-x-input",
    "ablation(by=attention)",
    "attn-lrp",
    "alti",
    "information-flow",
    "saliency",
]


@pytest.mark.parametrize("method", METHODS)
def test_each_token_is_explained_as_by_itself(model: Any, method: str) -> None:
    found = wherefrom.generate(PROMPT, model, method=method, max_new_tokens=4, do_sample=False)
    assert found.scores.shape == (4, found.start + 4)
    assert len(found) == len(found.tokens) == 4
    for step in range(4):
        n = found.start + step
        assert not found.scores[step, n:].any()
        one = found[step]
        assert (one.scores == found.scores[step, :n]).all()
        again = wherefrom.explain(model=model, **one.arguments)  # the token after what stands before it
        assert np.allclose(again.scores, one.scores, atol=1e-9)
        assert one.arrived == (None if again.arrived is None else pytest.approx(again.arrived))
        assert one.measured.index == found.ids[n]
        assert one.target.towards == (method not in ("alti", "information-flow"))
        assert one.position == n - 1


OTHERWISE = {"attention-fused", "random", "context-cite"}  # docs/generation.md says how


def test_no_token_depends_on_what_is_said_after_it(model: Any) -> None:
    tried = 0
    for name in (*(each.name for each in wherefrom.methods()), "attcat(join=rollout)"):
        try:
            found = wherefrom.generate(PROMPT, model, method=name, max_new_tokens=3, do_sample=False)
        except wherefrom.WherefromError:
            continue  # not defined here
        for step in range(3 if name not in OTHERWISE else 0):
            again = wherefrom.explain(model=model, **found[step].arguments)
            scale = np.abs(again.scores).max()
            np.testing.assert_allclose(found[step].scores, again.scores, atol=1e-8 * scale, rtol=0, err_msg=name)
        tried += 1
    assert tried > 25


def test_the_token_that_a_map_is_of_is_named_as_explain_names_it() -> None:
    found = wherefrom.generate("The keys to", "wherefrom/lm", max_new_tokens=2, method="attention", do_sample=False)
    alone = wherefrom.explain("The keys to", "wherefrom/lm", method="attention")
    assert found[0].explained == alone.explained == "what 'to' is made of, not towards a class or word"
    assert found[1].explained == f"what '{found.tokens[0].strip()}' is made of, not towards a class or word"


def test_the_answer_as_one_is_the_phrase(model: Any) -> None:
    """After a prompt whose answer, as a text, is read back as the same tokens."""
    for prompt in ("the cat", "a dog is", "good film and", "the keys to", "not very", "deep", "was", "the bad film"):
        found = wherefrom.generate(prompt, model, method="alti", max_new_tokens=3, do_sample=False)
        if model.tokenizer(found.text, add_special_tokens=False)["input_ids"] == found.ids[found.start :]:
            break
    else:
        raise AssertionError("no answer is read back as the same tokens")
    for method in ("gradient-x-input", "ablation(by=attention)", "alti-logit", "alti"):
        found = wherefrom.generate(prompt, model, method=method, max_new_tokens=3, do_sample=False)
        alone = wherefrom.explain(prompt, model, method=method, target=found.text)
        assert np.allclose(found[:].scores, alone.scores, atol=1e-9)
        assert found[:].arrived == (None if alone.arrived is None else pytest.approx(alone.arrived))
        assert found[:].notes == (alone.notes if method == "alti-logit" else [])
        over = found.over("prompt")
        if over.arrived is not None:
            assert over.arrived / alone.arrived == pytest.approx(over.scores.sum() / alone.scores.sum())
        assert np.allclose(over.scores, alone.scores[: found.start], atol=1e-9)
        assert set(over.segments) == {"prompt"}
        assert over.words(how="sum").scores.sum() == pytest.approx(over.scores.sum())
        assert over.readout.rows == (found.start - 1,)
    assert found.over("answer").tokens == found.whole.tokens[found.start : -1]
    with pytest.raises(InvalidOption, match="token 'a' of what was said; expected a number, or a slice"):
        found["a"]  # type: ignore[index]
    with pytest.raises(InvalidOption, match="unknown segment"):
        found.over("question")


@pytest.mark.parametrize("method", ["alti-logit", "gradient-x-input", "alti"])
def test_a_prompt_padded_on_the_left_is_the_prompt(model: Any, method: str) -> None:
    how: Any = {"method": method, "max_new_tokens": 3, "do_sample": False}
    ids = model.tokenizer(PROMPT)["input_ids"]
    padded = {"input_ids": [0, 0, *ids], "attention_mask": [0, 0, *[1] * len(ids)]}
    alone, other = wherefrom.generate(ids, model, **how), wherefrom.generate(padded, model, **how)
    assert other.tokens == alone.tokens
    assert other.log_probabilities == pytest.approx(alone.log_probabilities)
    assert np.allclose(other.scores, alone.scores, atol=1e-9)


def test_an_answer_of_one_token(model: Any) -> None:
    found = wherefrom.generate(PROMPT, model, max_new_tokens=1, do_sample=False)
    assert found.whole.texts == (PROMPT, found.text)
    assert (found[:].scores == found[0].scores).all()
    assert found.prompt == PROMPT
    assert found.method == found[0].method == found.whole.method


def test_one_pass_explains_all_tokens(model: Any) -> None:
    passes: list[int] = []
    hook = model.model.register_forward_hook(lambda *_: passes.append(1))
    try:
        wherefrom.generate(PROMPT, model, method="gradient-x-input", max_new_tokens=5, do_sample=False)
    finally:
        hook.remove()
    assert len(passes) == 5 + 1


def test_sampling_is_recorded_and_repeated(model: Any) -> None:
    how: dict[str, Any] = {"method": "attention-rollout", "max_new_tokens": 6, "do_sample": True, "temperature": 2.0}
    state = torch.random.get_rng_state()
    first = wherefrom.generate(PROMPT, model, seed=3, **how)
    assert (torch.random.get_rng_state() == state).all()
    assert wherefrom.generate(PROMPT, model, seed=3, **how).ids == first.ids
    drawn = wherefrom.generate(PROMPT, model, **how)
    assert drawn.seed is not None
    assert wherefrom.generate(PROMPT, model, seed=drawn.seed, **how).ids == drawn.ids
    assert first.sampling == {"max_new_tokens": 6, "do_sample": True, "temperature": 2.0}
    with pytest.raises(InvalidOption, match="num_return_sequences"):
        wherefrom.generate(PROMPT, model, num_return_sequences=2)


@pytest.mark.parametrize("kind", ["causal", "translator"])
def test_what_a_configuration_sets_is_followed(model: Any, kind: str, tmp_path: Path) -> None:
    """Its length, and that the answer is drawn: that is made again by its seed. The configuration stays as it is."""
    opened = model if kind == "causal" else wherefrom.open_model(pairs.model("bart", vocab_size=60), tiny.tokenizer())
    config = GenerationConfig(max_new_tokens=3, do_sample=True, temperature=2.0, num_return_sequences=2)
    before = config.to_dict()
    found = wherefrom.generate(PROMPT, opened, method="attention", generation_config=config)
    assert config.to_dict() == before
    assert len(found) <= 3
    assert found.seed is not None
    again = wherefrom.generate(PROMPT, opened, method="attention", generation_config=config, seed=found.seed)
    assert again.ids == found.ids
    assert found.sampling["generation_config"]["temperature"] == 2.0
    assert wherefrom.Generation.load(found.save(tmp_path / "said.json")).sampling == found.sampling
    assert len(wherefrom.generate(PROMPT, opened, method="attention", generation_config=config, max_new_tokens=2)) <= 2


def test_no_temperature_is_none(model: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    for do_sample in (None, True, False):
        asked = {} if do_sample is None else {"do_sample": do_sample}
        with pytest.raises(InvalidOption, match=r"temperature=0; expected a number above 0 .* each time leave it out"):
            wherefrom.generate(PROMPT, model, max_new_tokens=2, temperature=0, **asked)
    monkeypatch.setattr(model.model.generation_config, "do_sample", True)
    with pytest.raises(InvalidOption, match="say do_sample=False and leave the temperature out"):
        wherefrom.generate(PROMPT, model, max_new_tokens=2, temperature=0.0)
    assert wherefrom.generate(PROMPT, model, max_new_tokens=2, do_sample=False).seed is None


def test_a_models_own_sampling_has_a_seed(model: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(model.model.generation_config, "do_sample", True)
    found = wherefrom.generate(PROMPT, model, method="attention", max_new_tokens=6)
    assert found.seed is not None
    assert wherefrom.generate(PROMPT, model, method="attention", max_new_tokens=6, seed=found.seed).ids == found.ids
    assert wherefrom.generate(PROMPT, model, method="attention", max_new_tokens=2, do_sample=False).seed is None


def test_an_answer_stops_at_a_word(model: Any, tmp_path: Path) -> None:
    whole = wherefrom.generate(PROMPT, model, method="attention", max_new_tokens=6, do_sample=False)
    word = whole.tokens[2].strip()
    found = wherefrom.generate(PROMPT, model, method="attention", max_new_tokens=6, do_sample=False, stop_strings=word)
    assert found.ids == whole.ids[: len(found.ids)]
    assert found.text.endswith(word)
    heard = LogitsProcessorList()
    silent = wherefrom.generate(PROMPT, model, method="attention", max_new_tokens=2, logits_processor=heard)
    assert wherefrom.Generation.load(silent.save(tmp_path / "said.json")).sampling["logits_processor"] == []
    with pytest.raises(InvalidOption, match="generation_config is a dict; expected a GenerationConfig"):
        wherefrom.generate(PROMPT, model, generation_config={"max_new_tokens": 3})
    with pytest.raises(InvalidOption, match="say max_new_tokens"):
        wherefrom.generate(PROMPT, model, max_length=30)


def test_it_is_saved_tabled_and_read_again(model: Any, tmp_path: Path) -> None:
    found = wherefrom.generate(PROMPT, model, method="alti-logit", max_new_tokens=3, do_sample=False)
    for name in ("said.json", "said.npz"):
        back = wherefrom.Generation.load(found.save(tmp_path / name))
        assert (back.scores == found.scores).all()
        assert back.scores.dtype == found.scores.dtype
        assert (back.text, back.steps, back.sampling, back.seed) == (found.text, found.steps, found.sampling, None)
        assert back[1].explained == found[1].explained
    with pytest.raises(DamagedFile, match="no generation"):
        wherefrom.Generation.from_dict({"format": "wherefrom.explanation"})
    with pytest.raises(DamagedFile, match="damaged"):
        wherefrom.Generation.from_dict({**found.to_dict(), "ids": [1]})
    with pytest.raises(InvalidOption, match=r"\.npz"):
        found.save(tmp_path / "said.txt")
    with pytest.raises(InvalidOption, match="dark: only pictures have options"):
        found.save(tmp_path / "said.json", dark=True)
    pytest.importorskip("pandas", reason="tables need the extra `pandas`")
    table = found.to_dataframe()
    assert len(table) == sum(found.start + step for step in range(3))
    assert table.score.sum() == pytest.approx(found.scores.sum())


def test_an_answer_as_one_takes_one_way_back(model: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The gradient of a sum is the sum of the gradients, and its product with the input likewise."""
    answer, backward = " is not good . the film", torch.autograd.grad
    by_token = wherefrom.generate(PROMPT, model, method="gradient-x-input", target=answer)
    taken = []
    monkeypatch.setattr(torch.autograd, "grad", lambda *a, **k: taken.append(1) or backward(*a, **k))
    whole = wherefrom.explain(PROMPT, model, method="gradient-x-input", of="log-probability", target=answer)
    assert len(taken) == 1
    assert np.allclose(whole.scores[: by_token.start], by_token.over("prompt").scores, rtol=0, atol=1e-10)


def test_the_heatmap_is_a_picture(model: Any, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib", reason="pictures need the extra `plot`")
    found = wherefrom.generate(PROMPT, model, method="alti", max_new_tokens=3, do_sample=False)
    assert found.save(tmp_path / "said.svg", dark=True).read_bytes()[:5] == b"<?xml"
    picture = found.plot(width=5)
    written = [each.get_text().strip() for axes in picture.axes for each in axes.texts]
    written += [each.get_text().strip() for each in picture.texts]
    assert {piece.strip() for piece in (*found.tokens, *found.whole.pieces[:-1])} <= set(written)


@pytest.mark.parametrize("method", ["alti-logit", "gradient-x-input", "saliency"])
def test_a_token_is_explained_rather_than_the_likeliest_others(model: Any, method: str, tmp_path: Path) -> None:
    plain = wherefrom.generate(PROMPT, model, method=method, max_new_tokens=3, do_sample=False)
    found = wherefrom.generate(PROMPT, model, method=method, max_new_tokens=3, do_sample=False, alternatives=2)
    assert np.allclose(found.scores, plain.scores, atol=1e-9)
    assert found.foil_scores is not None
    assert found.foil_scores.shape == (3, 2, len(found.ids))
    step = found.steps[1]
    likeliest = sorted(set(step.probabilities) - {step.target.label}, key=lambda name: -step.probabilities[name])
    assert [each.foil_label for each in step.foils] == likeliest[:2]
    contrast = found.why_not(1, likeliest[1])
    again = wherefrom.explain(model=model, **contrast.arguments)
    assert np.allclose(contrast.scores, again.scores, atol=1e-9)
    assert contrast.explained == again.explained
    assert np.allclose(rather_than(plain, 1, step.candidates[likeliest[1]], model).scores, contrast.scores, atol=1e-9)
    back = wherefrom.Generation.load(found.save(tmp_path / "said.npz"))
    assert (back.why_not(1, likeliest[1]).scores == contrast.scores).all()
    with pytest.raises(InvalidOption, match="there are none"):
        plain.why_not(1, likeliest[0])
    for said in (found.ids[found.start + 1], step.target.label):
        with pytest.raises(InvalidOption, match="is what was said as token 1; expected another"):
            found.why_not(1, said)
    with pytest.raises(InvalidOption, match="is what was said as token -2"):
        found.why_not(-2, step.target.index)


def test_some_of_what_was_said_is_explained_as_that_phrase_is(model: Any) -> None:
    found = wherefrom.generate(PROMPT, model, method="alti-logit", max_new_tokens=5, do_sample=False)
    some, before = found[2:4], found[2]
    assert some.prediction == before.prediction
    assert some.candidates == before.candidates
    label = str(some.target.label)
    assert some.probabilities == {
        **before.probabilities,
        label: pytest.approx(np.exp(found.log_probabilities[2:4].sum())),
    }
    assert some.probabilities[label] != found[:].probabilities.get(label)


def test_what_looks_at_no_output_has_no_foils(model: Any) -> None:
    found = wherefrom.generate(PROMPT, model, method="alti", max_new_tokens=2, do_sample=False, alternatives=2)
    assert found.foil_scores is None
    with pytest.raises(InvalidOption, match="there are none"):
        found.why_not(0, "cat")


def test_a_streamer_hears_every_token_and_is_not_recorded(model: Any) -> None:
    class Heard:
        ids: ClassVar[list[int]] = []

        def put(self, value: Any) -> None:
            self.ids.extend(value.flatten().tolist())

        def end(self) -> None: ...

    found = wherefrom.generate(PROMPT, model, max_new_tokens=3, do_sample=False, streamer=Heard())
    assert Heard.ids == found.ids
    assert found.sampling == {"max_new_tokens": 3, "do_sample": False}


def test_units_add_up(model: Any) -> None:
    found = wherefrom.generate(PROMPT, model, method="alti-logit", max_new_tokens=2, do_sample=False)
    sentences = found[0].by("sentence")
    assert sentences.tokens == ["the cat is not very good .", "the dog"]
    assert sentences.scores.sum() == pytest.approx(found[0].scores.sum())
    assert found.by("turn").tokens[0] == PROMPT
    assert found[0].by([(4, 7)]).tokens[1] == "cat"
    with pytest.raises(InvalidOption, match="unknown unit 'page'"):
        found.by("page")


def test_documents_of_a_prompt_are_units(model: Any) -> None:
    """Parted by empty lines, by a mark of one's own, or given as spans: one document, one score."""
    documents = ["the cat is good .", "the film is bad . the film", "a dog and a cat"]
    empty, marked = "\n\n".join([*documents, "the dog"]), " ! ".join([*documents, "the dog"])
    ends = np.cumsum([len(each) + 3 for each in documents]).tolist()
    spans = list(zip([0, *ends[:-1]], ends, strict=True))
    for prompt, unit in ((empty, "document"), (marked, re.compile(" ! ")), (marked, spans)):
        plain = wherefrom.explain(prompt, model, method="alti-logit", target="good")
        found = plain.by(unit)
        assert [each.removesuffix(" !") for each in found.tokens[:3]] == documents
        assert found.scores.sum() == pytest.approx(plain.scores.sum())
        tokens = len(model.tokenizer(documents[0])["input_ids"]) + (prompt == marked)
        assert found.scores[0] == pytest.approx(plain.scores[:tokens].sum())


@pytest.mark.parametrize("unit", ["sentence", "document", re.compile(r" ! ")], ids=str)
def test_what_the_answer_says_itself_is_no_source(model: Any, unit: Any) -> None:
    """The first pieces of an answer are named so, and `top` lists the units of the prompt."""
    prompt = "the cat is good .\n\nthe film is bad"
    whole = wherefrom.explain(prompt, model, method="gradient-x-input", target="not very good")
    found = whole.by(unit)
    assert found.tokens[-1] == found.pieces[-1] == "[answer so far: not very]"
    assert found.segments.count("answer") == 1
    assert found.scores.sum() == pytest.approx(whole.scores.sum())
    listed = [place for place, _, _ in found.top(len(found))]
    assert sorted(listed) == list(range(len(found) - 1))
    assert len(whole.words().top(50)) == len(whole.words())  # among words they are words
    again = type(found).from_dict(json.loads(json.dumps(found.to_dict())))
    assert again.pieces == found.pieces


def test_what_says_nothing_is_refused(model: Any) -> None:
    with pytest.raises(InvalidOption, match="says nothing"):
        wherefrom.generate("the cat", tiny.model(), tiny.tokenizer())
    with pytest.raises(InvalidInput, match="one at a time"):
        wherefrom.generate([[5, 6], [7, 8]], model)


@pytest.mark.parametrize(
    ("how", "said"),
    [
        ({"temperature": 0.0, "do_sample": True}, "temperature=0; expected a number above 0"),
        ({"temperature": 0.7, "top_p": 0.9}, "temperature, top_p is of a sampled answer; say do_sample=True"),
        ({"seed": 1}, "seed is of a sampled answer"),
        ({"bogus": 2}, "does not generate so: .*bogus"),
        ({"max_new_tokens": 0}, "max_new_tokens=0; expected .* 1"),
    ],
)
def test_what_transformers_refuses_is_an_error_of_ours(model: Any, how: dict[str, Any], said: str) -> None:
    with pytest.raises(InvalidOption, match=said):
        wherefrom.generate(PROMPT, model, **how)


def test_beside_a_target_nothing_is_left_unread(model: Any) -> None:
    """A misspelt argument would give another method without a word."""
    wrong: tuple[tuple[dict[str, Any], str], ...] = (
        ({"metod": "attn-lrp"}, "no argument 'metod'; did you mean 'method'"),
        ({"max_new_tokens": 3, "do_sample": True}, "leave max_new_tokens and do_sample out"),
        ({"seed": 3}, "leave seed out"),
        ({"foo": 1}, "leave foo out"),
    )
    for unread, told in wrong:
        with pytest.raises(wherefrom.WherefromError, match=told):
            wherefrom.generate("the cat", model, target=" is", **unread)


def test_nothing_is_generated_that_cannot_be_explained(model: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    longest = model.max_length
    monkeypatch.setattr(model.model, "generate", lambda **_: pytest.fail("generated"))
    with pytest.raises(TooLong, match=f"reads at most {longest}; expected max_new_tokens of at most"):
        wherefrom.generate(PROMPT, model, max_new_tokens=longest)
    for refused in (wherefrom.generate, wherefrom.logit_lens):
        with pytest.raises(TooLong, match=f"at most {longest}; shorten it$"):
            refused("the cat sat " * longest, model)
    with pytest.raises(TooLong, match="shorten it; truncate=True keeps its beginning"):
        wherefrom.explain("the cat sat " * longest, model)


def test_the_command_shows_the_sources_of_a_token(model: Any, tmp_path: Path) -> None:
    model.model.save_pretrained(tmp_path / "lm")
    model.tokenizer.save_pretrained(tmp_path / "lm")
    asked = ["generate", PROMPT, "--model", str(tmp_path / "lm"), "--max-new-tokens", "3", "--token", "1"]
    said = CliRunner().invoke(app, [*asked, "--save", str(tmp_path / "said.json")])
    assert said.exit_code == 0, said.output
    found = wherefrom.Generation.load(tmp_path / "said.json")
    assert all(f"{step}:{piece.strip()}" in said.output for step, piece in enumerate(found.tokens))
    assert f"explained: {found[1].explained}" in said.output
    label = str(found.steps[1].target.label)
    other = next(name for name, p in found.steps[1].probabilities.items() if name != label)
    assert f"{other} {found.steps[1].probabilities[other]:.3f}" in said.output
    asked += ["--foil", other, "--unit", "turn", "--out", str(tmp_path / "said.html")]
    said = CliRunner().invoke(app, asked)
    assert said.exit_code == 0, said.output
    assert f"rather than '{other}'" in " ".join(said.output.split())
    assert (tmp_path / "said.html").read_text(encoding="utf-8").startswith("<!doctype html>")
    assert CliRunner().invoke(app, [*asked[:4], "--foil", other]).exit_code != 0


TEMPLATE = (
    "{% for turn in messages %}[CLS] {{ turn['role'] }} {{ turn['content'] }} [SEP] {% endfor %}"
    "{% if add_generation_prompt %}[CLS] {% endif %}"
)
CHAT = [
    {"role": "a", "content": "the film is good"},
    {"role": "dog", "content": "is it ?"},
    {"role": "a", "content": "not very deep"},
]


def test_a_chat_is_an_input_and_its_turns_are_segments(model: Any) -> None:
    tokenizer = tiny.tokenizer()
    with pytest.raises(InvalidInput, match="has no chat template"):
        wherefrom.explain(CHAT, model.model, tokenizer, method="alti-logit")
    tokenizer.chat_template = TEMPLATE
    found = wherefrom.explain(CHAT, model.model, tokenizer, method="alti-logit", target="very good")
    assert list(dict.fromkeys(found.segments)) == ["a 1", "dog", "a 2", "template", "answer"]
    assert [found.segments[i] for i, token in enumerate(found.tokens) if token == "film"] == ["a 1"]
    assert found.tokens[:3] == ["[CLS]", "a", "the"]
    again = wherefrom.explain(model=model.model, tokenizer=tokenizer, **found.arguments)
    assert np.allclose(again.scores, found.scores)
    turns = found.by("turn")
    assert len(turns) == 5
    assert found.special[0]
    assert not any(turns.special[:3])  # though each begins with a special token
    assert turns.scores.sum() == pytest.approx(found.scores.sum())
    several = wherefrom.explain([CHAT, CHAT[:1]], model.model, tokenizer, method="alti-logit")
    assert len(several) == 2
    said = wherefrom.generate(CHAT, model.model, tokenizer, max_new_tokens=2, do_sample=False)
    assert said.over("dog").segments == ["dog"] * found.segments.count("dog")
    assert set(said.over("prompt").segments) == {"a 1", "dog", "a 2", "template"}
    given = wherefrom.explain([*CHAT, {"role": "assistant", "content": "good"}], model.model, tokenizer, method="alti")
    assert given.segments[-1] == "assistant"


def test_the_command_takes_a_chat(model: Any, tmp_path: Path) -> None:
    tokenizer = tiny.tokenizer()
    tokenizer.chat_template = TEMPLATE
    model.model.save_pretrained(tmp_path / "lm")
    tokenizer.save_pretrained(tmp_path / "lm")
    asked = ["--chat", "--model", str(tmp_path / "lm"), "--max-new-tokens", "2", "--json"]

    def said(text: str) -> Any:
        return CliRunner().invoke(app, ["generate", text, *asked])

    found = wherefrom.Generation.from_dict(json.loads(said("the film").output))
    assert set(found.whole.segments) == {"user", "template", "answer"}
    (tmp_path / "turns.json").write_text(json.dumps(CHAT), encoding="utf-8")
    found = wherefrom.Generation.from_dict(json.loads(said(str(tmp_path / "turns.json")).output))
    assert set(found.whole.segments) == {"a 1", "dog", "a 2", "template", "answer"}
    (tmp_path / "turns.json").write_text("{}", encoding="utf-8")
    assert "is no chat" in str(said(str(tmp_path / "turns.json")).exception)
    assert "cannot read the chat" in str(said("nowhere.json").exception)


def test_a_chat_may_be_given_by_its_name(model: Any) -> None:
    tokenizer = tiny.tokenizer()
    tokenizer.chat_template = TEMPLATE
    how: Any = {"model": model.model, "tokenizer": tokenizer, "method": "alti-logit"}
    named, plain = wherefrom.explain(chat=CHAT, **how), wherefrom.explain(CHAT, **how)
    assert named.segments == plain.segments
    assert np.allclose(named.scores, plain.scores)
    said = wherefrom.generate(chat=CHAT, max_new_tokens=2, do_sample=False, **how)
    assert set(said.over("prompt").segments) == {"a 1", "dog", "a 2", "template"}
    both = wherefrom.compare(chat=CHAT, model=model.model, tokenizer=tokenizer, methods=["alti-logit", "alti"])
    assert list(both) == ["alti-logit", "alti"]
    with pytest.raises(InvalidInput, match="inputs and a chat were both given; expected one of them"):
        wherefrom.explain("the film", chat=CHAT, **how)
    with pytest.raises(InvalidInput, match="neither inputs nor a chat were given"):
        wherefrom.explain(**how)
    with pytest.raises(InvalidInput, match="chat='hello'; expected turns"):
        wherefrom.generate(chat="hello", **how)


def test_a_batch_of_one_prompt_is_one_prompt(model: Any) -> None:
    one = wherefrom.generate(PROMPT, model, max_new_tokens=2, do_sample=False)
    encoded = {"input_ids": [one.ids[: one.start]], "attention_mask": [[1] * one.start]}
    assert wherefrom.generate(encoded, model, max_new_tokens=2, do_sample=False).ids == one.ids
    with pytest.raises(InvalidInput, match="2 prompts were given; generate takes one at a time"):
        wherefrom.generate([PROMPT, PROMPT], model)
