// The page: form, run, panel and what is kept, put together.

import { get } from "./api.js";
import { form } from "./form.js";
import { forget, keep, kept, latest, remember, remembered } from "./keep.js";
import { panel } from "./panel.js";
import { lacks, newRun, perform } from "./run.js";
import { save } from "./share.js";
import { make, prose } from "/viewer/dom.js";

const by = (id) => document.getElementById(id);
const capital = (text) => text.charAt(0).toUpperCase() + text.slice(1);
const sentence = (text) => capital(text.trim()).replace(/([^.!?…])$/, "$1.");

const HELD = 500; // ms between two writes of a run that grows

let running = null; // the AbortController of the run under way
let shown = null; // the run on the page

function themed(theme) {
  if (theme === "auto") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = theme;
}

/** Says what is wrong, with buttons where there is something to do about it. */
function complain(text, ...buttons) {
  by("error").replaceChildren(...prose(text ? sentence(text) : ""), ...buttons.flatMap((button) => [" ", button]));
  by("error").hidden = !text;
  if (text && !running) by("status").textContent = ""; // it told of an earlier question
}

/** A text that is too long may be cut or read in windows, which is said in the page's words instead of the program's. */
function tooLong(asked, models, again) {
  const read = models.filter(({ name }) => name === asked.model || (asked.compare === "model" && name === asked.otherModel));
  const most = Math.min(...read.map((each) => each.max_length ?? Infinity));
  const ways = [["truncate", "Explain its beginning"]];
  if (!asked.pair && read.every((each) => each.windows)) ways.push(["windows", "Explain all of it, in overlapping windows"]);
  complain(`the text is too long: the model reads at most ${most} tokens at once`,
    ...ways.map(([long, label]) => make("button", { type: "button", onclick: () => again(long) }, label)));
}

function busy(is) {
  by("cancel").hidden = by("progress").hidden = !is;
  by("explain").disabled = is;
  by("results").setAttribute("aria-busy", String(is));
  if (!is) by("progress").value = 0;
}

function tell({ waiting, share, doing }) {
  if (waiting !== undefined) by("status").textContent = waiting ? `Waiting: ${waiting} before this one` : "Waiting for the server";
  if (share !== undefined) by("progress").value = share;
  if (doing) by("status").textContent = doing;
}

function show(run, view) {
  shown = run;
  remember(run);
  by("results").hidden = !run.payload;
  by("results-title").textContent = run.asked.compare === "text" ? "Two texts" : run.asked.compare === "model" ? "Two models" : "Explanations";
  by("share").disabled = !run.payload;
  view.show(run);
}

/** Where the results begin below the screen, as on a phone: there. */
function reveal() {
  if (by("results").getBoundingClientRect().top < 0.75 * innerHeight) return;
  const calm = matchMedia("(prefers-reduced-motion: reduce)").matches;
  by("results").scrollIntoView({ block: "start", behavior: calm ? "auto" : "smooth" });
}

/** Keeps what has come of a run, at most once in HELD ms; what comes in between, when they are over. */
function keptAsItGrows(run, listed) {
  let [last, waiting] = [null, null];
  const write = () => {
    const written = keep(run);
    if (last === null) written.then(listed);
    [last, waiting] = [performance.now(), null];
  };
  return {
    more() {
      if (last === null) write();
      else waiting ??= setTimeout(write, Math.max(0, HELD - (performance.now() - last)));
    },
    end: () => clearTimeout(waiting),
  };
}

async function explain(asks, view, models, long = "error") {
  const asked = { ...asks.read(), long };
  complain(lacks(asked));
  if (!by("error").hidden) {
    if (running) return;
    view.reset(); // of an earlier question, which is among the recent ones
    by("results").hidden = true;
    return;
  }
  running?.abort();
  const mine = (running = new AbortController());
  const run = newRun(asked);
  view.reset();
  show(run, view);
  busy(true);
  by("status").textContent = "Waiting for the server";
  const begin = performance.now();
  const growing = keptAsItGrows(run, () => listKept(asks, view));
  try {
    await perform(run, {
      tell,
      signal: mine.signal,
      changed(what) {
        const first = by("results").hidden;
        if (["evidence", "agreement"].includes(what)) view.support(run);
        else show(run, view);
        if (first && run.payload) reveal();
        if (run.payload) growing.more();
      },
    });
    const took = ((performance.now() - begin) / 1000).toFixed(1);
    by("status").textContent = run.payload ? `Done in ${took} s` : "";
    if (!run.payload) complain(run.failed.map(({ detail }) => detail).join("; "));
    asks.suggest(Object.keys(run.payload?.explanations[0]?.record.probabilities ?? {}));
    growing.end();
    if (run.payload) await keep(run);
    await listKept(asks, view);
  } catch (error) {
    run.stopped = true;
    growing.end();
    if (run.payload) await keep(run);
    if (running !== mine) return void (await listKept(asks, view)); // another run has taken its place
    show(run, view);
    await listKept(asks, view);
    by("status").textContent = error.name === "AbortError" ? "Cancelled" : "";
    if (error.code === "too-long") tooLong(asked, models, (way) => explain(asks, view, models, way));
    else if (error.name !== "AbortError") complain(error.message);
  } finally {
    if (running === mine) {
      running = null;
      busy(false);
    }
  }
}

function reopen(run, asks, view) {
  asks.fill(run.asked);
  run.stopped = !run.complete; // the page was left while it ran
  view.reset();
  complain(null);
  try {
    show(run, view);
  } catch {
    complain("this was kept by another release of wherefrom and cannot be shown; explain the text again");
  }
  by("status").textContent = "";
}

async function listKept(asks, view) {
  const runs = await kept();
  by("kept").hidden = !runs.length;
  by("history").replaceChildren(...runs.map((run) => {
    const { target, foil, long } = run.asked;
    const about = [run.asked.model, target && `towards ${target}`, foil && `rather than ${foil}`,
      { windows: "in windows", truncate: "its beginning" }[long], run.asked.compare && `compared with another ${run.asked.compare}`, `${run.asked.methods.length} ${run.asked.methods.length === 1 ? "method" : "methods"}`,
      new Date(run.when).toLocaleString([], { dateStyle: "medium", timeStyle: "short" })].filter(Boolean);
    const open = async () => {
      running?.abort();
      running = null; // it does not come back to the page
      busy(false);
      const now = await latest(run);
      if (running) return; // asked meanwhile
      reopen(now, asks, view);
      by("results").scrollIntoView({ block: "start" });
    };
    return make("li", {}, make("button", { type: "button", class: "run", onclick: open }, make("b", {}, run.title), make("span", { class: "hint" }, about.join(" · "))),
      make("button", { type: "button", class: "quiet", "aria-label": `Forget “${run.title}”`, onclick: async () => (await forget(run), listKept(asks, view)) }, "×"));
  }));
  return runs;
}

async function start() {
  const [{ models, limits }, { methods }, { examples }, css] = await Promise.all([
    get("/api/models"), get("/api/methods"), get("/api/examples"), fetch("/viewer/viewer.css").then((found) => found.text())]);
  by("ways").hidden = !models.some((each) => each.says);
  const asks = form({ models, methods, examples, limits }, complain);
  const view = panel(by("panels"), css, themed);
  by("ask").addEventListener("submit", (event) => {
    event.preventDefault();
    explain(asks, view, models);
  });
  by("ask").addEventListener("keydown", (event) => {
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey) && !running) explain(asks, view, models);
  });
  by("cancel").addEventListener("click", () => running?.abort());
  by("share").addEventListener("click", () => save(shown, view.extras()).catch((error) => complain(error.message)));
  by("forget").addEventListener("click", async () => (await forget(), listKept(asks, view)));
  const runs = await listKept(asks, view);
  const last = remembered(); // a reload, or back from another page
  const before = last && runs.find((run) => run.when === last.when);
  if (before) reopen(before, asks, view);
  else if (last?.asked) asks.fill(last.asked); // nothing had come yet
  by("explain").disabled = false; // until now nothing was there to ask
  document.documentElement.dataset.ready = "";
}

start().catch((error) => complain(error.message));
