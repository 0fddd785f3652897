// A language model speaks: a prompt or a chat, the answer as it is said, then where each of its words comes from. Or a
// translator: a source, and the target that it writes or that is given.

import { get, post, stream } from "./api.js";
import * as kept from "./keep.js";
import { save } from "./share.js";
import { make, prose } from "/viewer/dom.js";
import { mount } from "/viewer/generation.js";

const by = (id) => document.getElementById(id);
const capital = (text) => text.charAt(0).toUpperCase() + text.slice(1);
const GROUPS = [["Towards what was said", true], ["How tokens mix, whatever was said", false]];
const FIRST = ["alti-logit", "alti"]; // the method to begin with: the first that the model has
// What the form says, by what the model does.
const KINDS = {
  prompt: { label: "Prompt", hint: "Alice gave the book to Bob because", go: "Go on", answer: "Answer" },
  chat: { label: "Message", hint: "Ask something", go: "Send", answer: "Answer" },
  source: { label: "Source", hint: "A text to translate or to sum up", go: "Write", answer: "Target" },
};
const kindOf = (model) => (model.translates ? "source" : model.chat ? "chat" : "prompt");

let running = null; // the AbortController of the answer under way
let shown = null; // { payload, title } of the answer on the page
let viewer = null;
let state; // what was chosen in it
let turns = []; // of the chat, so far
let last = null; // { question, payload, said } of the last answer
let picked = null; // the method that somebody chose, for the next model too

function complain(text) {
  by("error").replaceChildren(...prose(text ? capital(text) : ""));
  by("error").hidden = !text;
  if (text && !running) by("status").textContent = ""; // it told of an earlier answer
}

function busy(is) {
  by("cancel").hidden = !is;
  by("explain").disabled = is;
  by("stream").setAttribute("aria-busy", String(is));
}

function lists(models, methods) {
  by("model").replaceChildren(...models.map((each) => make("option", { value: each.name }, each.name)));
  const fit = () => {
    complain(null); // what was wrong with what another model was asked
    const model = models.find((each) => each.name === by("model").value);
    const there = methods.filter((each) => !model.undefined[each.name]);
    const wanted = [picked, ...FIRST];
    by("method").replaceChildren(...GROUPS.map(([label, towards]) => make("optgroup", { label },
      ...there.filter((each) => each.class_specific === towards).map((each) =>
        make("option", { value: each.name, title: each.summary.replaceAll("`", "") }, each.name)))));
    by("method").value = wanted.find((name) => there.some((each) => each.name === name)) ?? there[0].name;
    const { label, hint, go } = KINDS[kindOf(model)];
    by("text-label").textContent = label;
    by("text").placeholder = hint;
    by("explain").textContent = go;
    by("given-field").hidden = !model.translates;
    written();
    anew();
  };
  by("model").addEventListener("change", fit);
  by("method").addEventListener("change", () => (picked = by("method").value));
  by("given").addEventListener("input", written);
  fit();
}

/** Where the target is given, nothing is generated. */
function written() {
  const given = !by("given-field").hidden && by("given").value.trim();
  for (const id of ["tokens", "how"]) by(id).disabled = Boolean(given);
  if (!by("given-field").hidden) by("explain").textContent = given ? "Explain" : KINDS.source.go;
}

function anew() {
  turns = [];
  by("anew").hidden = true;
}

/** What is asked for; a sentence about what is wrong with the form is thrown. */
function asked(models, limits) {
  const text = by("text").value;
  const model = models.find((each) => each.name === by("model").value);
  const kind = kindOf(model);
  if (!text.trim()) throw new Error(`there is no ${kind === "chat" ? "message" : kind} yet: type or paste one.`);
  const about = { model: model.name, method: by("method").value, form: "viewer" };
  if (model.translates && by("given").value.trim()) return { ...about, prompt: text, target: by("given").value };
  const tokens = Number(by("tokens").value);
  if (!Number.isInteger(tokens) || tokens < 1 || tokens > limits.said) throw new Error(`a model says from 1 to ${limits.said} tokens here; “${by("tokens").value}” is none of these.`);
  const input = model.chat ? { chat: [...turns, { role: "user", content: text }] } : { prompt: text };
  return { ...about, ...input, max_new_tokens: tokens,
    ...(by("how").value ? { temperature: Number(by("how").value) } : {}) };
}

/** Why a token of the answer was said rather than another. */
function asker({ ids, start, source }, { model, method }) {
  const before = (end) => (source ? { ids: ids.slice(0, source), decoder_ids: ids.slice(source, end) } : { ids: ids.slice(0, end) });
  return (step, foil) => post("/api/why-not", { ...before(start + step), target: ids[start + step], foil, model, method });
}

/** The light or dark chosen inside the viewer is the page's too. */
function follow() {
  setTimeout(() => {
    const theme = viewer?.state().theme ?? "auto";
    if (theme === "auto") delete document.documentElement.dataset.theme;
    else document.documentElement.dataset.theme = theme;
  });
}

function show(payload, question, css) {
  shown = { payload, title: payload.title.replace(/\s+/g, " ").slice(0, 120) };
  const host = make("div", { class: "viewer" });
  by("panels").replaceChildren(host);
  viewer = mount(host, payload, { css, hash: true, keys: "focus", ask: asker(payload, question), state });
  follow();
  host.addEventListener("click", follow);
  host.addEventListener("keydown", follow);
  by("stream").hidden = true;
  by("share").disabled = false;
}

/** Takes the answer off the page. */
function clear() {
  if (viewer) {
    const { unit, map, theme } = viewer.state();
    state = { map, theme, ...(shown.payload.units.word ? { unit } : {}) }; // where words are tokens, nobody chose tokens
    viewer.destroy();
    history.replaceState(null, "", location.pathname);
  }
  viewer = shown = null;
  by("panels").replaceChildren();
  by("share").disabled = true;
}

/** Above what is said stands what was asked. */
function announce(question, kind) {
  by("results").hidden = by("stream").hidden = false;
  by("unexplained").hidden = true;
  by("results-title").textContent = KINDS[kind].answer;
  const before = question.prompt ?? question.chat.at(-1).content;
  by("before").textContent = kind === "prompt" ? before : `${before}\n`;
  by("said").textContent = question.target ?? "";
}

/** A chat goes on after its answer. */
function goOn({ chat }, said) {
  turns = [...chat, { role: "assistant", content: said }];
  by("anew").hidden = false;
}

/** After a reload, or back from another page: the last answer, and the question that had none yet, if their models are
 * still there.
 */
function reopen(models, css) {
  const there = (asked) => models.some((each) => each.name === asked?.model);
  const [waiting, said] = [kept.question.get(), kept.answer.get()];
  const question = waiting ?? said?.question;
  if (there(question)) {
    by("model").value = question.model;
    picked = question.method;
    by("model").dispatchEvent(new Event("change"));
    by("text").value = question.prompt ?? "";
    by("given").value = question.target ?? "";
    by("tokens").value = question.max_new_tokens ?? by("tokens").value;
    by("how").value = question.temperature ?? "";
    written();
    if (waiting) unanswered(waiting);
    else if (question.chat && !said.ends) goOn(question, said.said);
  }
  if (there(said?.question)) answered(said, models, css);
}

/** The page as it is after an answer. */
function answered(answer, models, css) {
  last = answer;
  announce(answer.question, kindOf(models.find((each) => each.name === answer.question.model)));
  show(answer.payload, answer.question, css);
}

/** A question that has no answer stands in the form, to be asked again. */
function unanswered({ chat }) {
  if (!chat) return;
  turns = chat.slice(0, -1);
  by("anew").hidden = !turns.length;
  by("text").value = chat.at(-1).content;
}

/** What had been said of an answer that did not come, above the answer before it. */
function halfway(prompt, said) {
  by("before").textContent = prompt;
  by("said").textContent = said;
  by("stream").hidden = by("unexplained").hidden = false;
}

async function speak(models, limits, css) {
  let question;
  try {
    question = asked(models, limits);
    complain(null);
  } catch (error) {
    complain(error.message);
    return;
  }
  running?.abort();
  const mine = (running = new AbortController());
  const before = turns; // another array where a chat was begun anew meanwhile, or another model chosen
  if (question.chat) by("text").value = "";
  clear();
  announce(question, kindOf(models.find((each) => each.name === question.model)));
  busy(true);
  by("status").textContent = "Waiting for the server";
  kept.question.put(question);
  const finish = () => {
    last = { question, payload: shown.payload, said: by("said").textContent, ends: turns !== before };
    kept.answer.put(last);
    kept.question.put(null);
    if (question.chat && !last.ends) goOn(question, last.said);
  };
  try {
    await stream("/api/generate", question, (event) => {
      if (event.event === "waiting") by("status").textContent = event.ahead ? `Waiting: ${event.ahead} before this one` : "Waiting for the server";
      else if (event.event === "said") {
        by("said").append(event.text);
        by("status").textContent = "The model speaks";
      } else if (event.event === "progress") by("status").textContent = capital(event.doing);
      else if (event.event === "generation") show(event.payload, question, css);
      else if (event.event === "done") by("status").textContent = `Done in ${event.seconds.toFixed(1)} s`;
    }, mine.signal);
    finish();
  } catch (error) {
    if (running !== mine) return; // another answer has taken its place
    const cancelled = error.name === "AbortError";
    by("status").textContent = cancelled ? "Cancelled" : "";
    if (!cancelled) complain(error.message);
    if (viewer) return finish(); // it had come
    if (question.chat && turns === before) by("text").value ||= question.chat.at(-1).content; // to be sent again
    const [prompt, said] = ["before", "said"].map((id) => by(id).textContent);
    const some = said !== (question.target ?? "");
    if (last) answered(last, models, css); // as it stood
    else by("results").hidden = !some;
    if (some) halfway(prompt, said);
  } finally {
    if (running === mine) {
      running = null;
      busy(false);
    }
  }
}

async function start() {
  const [{ models, limits }, { methods }, css] = await Promise.all([
    get("/api/models"), get("/api/methods"), fetch("/viewer/viewer.css").then((found) => found.text())]);
  by("ways").hidden = false;
  const speaking = models.filter((each) => each.says);
  if (!speaking.length) throw new Error("no model here says anything: name a language model or a translator at the start, wherefrom serve --model …");
  lists(speaking, methods);
  const go = () => speak(speaking, limits, css);
  by("ask").addEventListener("submit", (event) => {
    event.preventDefault();
    go();
  });
  for (const id of ["text", "given"]) by(id).addEventListener("keydown", (event) => {
    if (event.key !== "Enter" || event.isComposing || event.shiftKey) return;
    event.preventDefault(); // a new line is Shift and Enter, as in other chats
    if (!by("explain").disabled) go();
  });
  by("cancel").addEventListener("click", () => running?.abort());
  by("anew").addEventListener("click", () => {
    anew();
    kept.answer.put(null); // a reload does not go on with the old one
    kept.question.put(null);
    last = null;
    if (!running) {
      clear();
      by("results").hidden = true;
      by("status").textContent = "";
    }
    by("text").focus();
  });
  by("share").addEventListener("click", () => save(shown, [], "/generation.html").catch((error) => complain(error.message)));
  reopen(speaking, css);
  by("explain").disabled = false; // until now nothing was there to ask
  document.documentElement.dataset.ready = "";
}

start().catch((error) => {
  complain(error.message);
  document.documentElement.dataset.ready = "";
});
