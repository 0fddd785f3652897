// A language model speaks: a prompt or a chat, the answer as it is said, then where each of its words comes from.

import { get, post, stream } from "./api.js";
import { save } from "./share.js";
import { make } from "/viewer/dom.js";
import { mount } from "/viewer/generation.js";

const by = (id) => document.getElementById(id);
const capital = (text) => text.charAt(0).toUpperCase() + text.slice(1);
const GROUPS = [["Towards what was said", true], ["How tokens mix, whatever was said", false]];
const FIRST = "alti-logit";

let running = null; // the AbortController of the answer under way
let shown = null; // { payload, title } of the answer on the page
let viewer = null;
let state; // what was chosen in it
let turns = []; // of the chat, so far

function complain(text) {
  by("error").textContent = text ? capital(text) : "";
  by("error").hidden = !text;
}

function busy(is) {
  by("cancel").hidden = !is;
  by("explain").disabled = is;
  by("stream").setAttribute("aria-busy", String(is));
}

function lists(models, methods) {
  by("model").replaceChildren(...models.map((each) => make("option", { value: each.name }, each.name)));
  const fit = () => {
    const model = models.find((each) => each.name === by("model").value);
    const before = by("method").value || FIRST;
    const there = methods.filter((each) => !model.undefined[each.name]);
    by("method").replaceChildren(...GROUPS.map(([label, towards]) => make("optgroup", { label },
      ...there.filter((each) => each.class_specific === towards).map((each) =>
        make("option", { value: each.name, title: each.summary }, each.name)))));
    by("method").value = there.some((each) => each.name === before) ? before : there.find((each) => each.class_specific)?.name;
    by("text-label").textContent = model.chat ? "Message" : "Prompt";
    by("text").placeholder = model.chat ? "Ask something" : "Alice gave the book to Bob because";
    by("explain").textContent = model.chat ? "Send" : "Go on";
    anew();
  };
  by("model").addEventListener("change", fit);
  fit();
}

function anew() {
  turns = [];
  by("anew").hidden = true;
}

/** What is asked for; a sentence about what is wrong with the form is thrown. */
function asked(models, limits) {
  const text = by("text").value;
  const model = models.find((each) => each.name === by("model").value);
  if (!text.trim()) throw new Error(`there is no ${model.chat ? "message" : "prompt"} yet: type or paste one.`);
  const tokens = Number(by("tokens").value);
  if (!Number.isInteger(tokens) || tokens < 1 || tokens > limits.said) throw new Error(`a model says from 1 to ${limits.said} tokens here; “${by("tokens").value}” is none of these.`);
  const input = model.chat ? { chat: [...turns, { role: "user", content: text }] } : { prompt: text };
  return { ...input, model: model.name, method: by("method").value, max_new_tokens: tokens, form: "viewer",
    ...(by("how").value ? { temperature: Number(by("how").value) } : {}) };
}

/** Why a token of the answer was said rather than another. */
function asker({ ids, start }, { model, method }) {
  return (step, foil) => post("/api/why-not", { ids: ids.slice(0, start + step), target: ids[start + step], foil, model, method });
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

function clear(question) {
  if (viewer) {
    const { unit, map, theme } = viewer.state();
    state = { unit, map, theme };
    viewer.destroy();
    history.replaceState(null, "", location.pathname);
  }
  viewer = shown = null;
  by("panels").replaceChildren();
  by("results").hidden = by("stream").hidden = false;
  by("share").disabled = true;
  by("before").textContent = question.prompt ?? `${question.chat.at(-1).content}\n`;
  by("said").textContent = "";
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
  clear(question);
  busy(true);
  by("status").textContent = "Waiting for the server";
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
    if (question.chat) {
      turns = [...question.chat, { role: "assistant", content: by("said").textContent.trim() }];
      by("anew").hidden = false;
      by("text").value = "";
    }
  } catch (error) {
    if (running !== mine) return; // another answer has taken its place
    by("status").textContent = error.name === "AbortError" ? "Cancelled" : "";
    if (error.name !== "AbortError") complain(error.message);
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
  const speaking = models.filter((each) => each.says);
  if (!speaking.length) throw new Error("no model here says anything: name a language model at the start, wherefrom serve --model …");
  lists(speaking, methods);
  by("text").maxLength = limits.characters;
  const go = () => speak(speaking, limits, css);
  by("ask").addEventListener("submit", (event) => {
    event.preventDefault();
    go();
  });
  by("text").addEventListener("keydown", (event) => {
    if (event.key !== "Enter" || event.isComposing || event.shiftKey) return;
    event.preventDefault(); // a new line is Shift and Enter, as in other chats
    if (!by("explain").disabled) go();
  });
  by("cancel").addEventListener("click", () => running?.abort());
  by("anew").addEventListener("click", () => (anew(), by("text").focus()));
  by("share").addEventListener("click", () => save(shown, [], "/generation.html").catch((error) => complain(error.message)));
  document.documentElement.dataset.ready = "";
}

start().catch((error) => {
  complain(error.message);
  by("explain").disabled = true;
  document.documentElement.dataset.ready = "";
});
