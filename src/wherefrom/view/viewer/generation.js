// mount(element, payload, options): the viewer of a generation, inside one element's shadow root as that of viewer.js.
//
// options:  css, sheet, hash, keys, state    as in viewer.js
//           ask      async (step, foil) => { token, name, probability, scores }: why a token was said rather than a foil
//                    (a token's id, or a word that somebody typed); without it there are only the foils of the payload

import { rampOf } from "./colour.js";
import { buttons, choice, helpDialog, saveDialog } from "./controls.js";
import { readable, short } from "./data.js";
import { inFrame, make, shadowOf } from "./dom.js";
import { copy, download, nested, table } from "./files.js";
import { othersPanel } from "./others.js";
import { picture } from "./picture.js";
import { chosenText, fromSource, percent, reading, rowOf, saidOf, sourcesOf, unitText } from "./said.js";
import { cellText, saidMap } from "./saidmap.js";
import { BEGIN, choiceFrom, choiceHash, fitChoice, SAID_KEYS, pressed } from "./saidstate.js";
import { saidText } from "./saidtext.js";
import { store } from "./state.js";
import { lookOf, watchTheme } from "./theme.js";

const NAMED = 6; // sources in words
const SAVED = [["json", "JSON", "everything; wherefrom.Generation loads it"], ["csv", "CSV", "a line for each token and source"]];
const HELP = "Click a word of the answer: what it comes from lights up before it, and what was said later is pale. Point at any " +
  "word: lines under the answer say what draws on it. The address keeps what you see.";

export function mount(element, payload, options = {}) {
  const said = saidOf(payload); // before anything is changed: a wrong payload leaves the page as it was
  const root = shadowOf(element, options.css);
  const start = { ...BEGIN, ...options.state };
  const chosen = store(fitChoice(options.hash ? choiceFrom(location.hash, start) : start, said));
  let look = null;
  let pointed = null; // the token under the pointer
  let cell = null; // and the cell of the heatmap
  let busy = false;
  let fading = 0;

  // What controls and keys ask for --------------------------------------------------------------------------------

  const set = (change) => chosen.set(fitChoice({ ...chosen.get(), ...change }, said));
  const to = {
    set,
    theme: () => set({ theme: look.dark ? "light" : "dark" }),
    open: (name) => dialogs[name].showModal(),
    opened: () => dialogs.help.open || dialogs.save.open,
    choose(step, extends_ = false) {
      const { from, to: last, foil } = chosen.get();
      if (extends_ && from !== null) set({ from: Math.min(from, step), to: Math.max(from, step), foil: null });
      else if (from === step && last === step && foil === null) set({ from: null, foil: null });
      else set({ from: step, to: step, foil: null });
    },
    all: () => set({ from: null, foil: null }),
    step(by, extends_) {
      const { from, to: last } = chosen.get();
      const next = from === null ? (by > 0 ? 0 : said.count - 1) : Math.max(0, Math.min(said.count - 1, last + by));
      if (extends_ && from !== null) set({ to: Math.max(from, next), foil: null });
      else set({ from: next, to: next, foil: null });
      if (text.element.contains(root.activeElement)) text.focus(chosen.get().to);
    },
    unit() {
      const names = Object.keys(said.units);
      set({ unit: names[(names.indexOf(chosen.get().unit) + 1) % names.length] });
    },
    map: () => set({ map: !chosen.get().map }),
    drawn: (target, dx, dy) => chosen.get().map && map.element.contains(target) && (map.step(dx, dy), true),
    chosen: () => cell && to.choose(cell.token),
    why(place) {
      const { from, to: last, foil } = chosen.get();
      const other = from !== null && from === last && panel.listed(from)[place];
      if (other) why(from, foil === other[0] ? null : other[0]);
    },
  };

  /** Why a token was said rather than another: known, or asked for. */
  const why = async (step, foil) => {
    if (foil === null || said.rows.has(`${step} ${foil}`)) return set({ from: step, to: step, foil });
    if (!options.ask || busy) return undefined;
    busy = true;
    refresh();
    try {
      const found = await options.ask(step, foil);
      const { others } = said.steps[step];
      if (!others.some(([token]) => token === found.token)) others.push([found.token, found.name, found.probability]);
      said.rows.set(`${step} ${found.token}`, Float64Array.from({ length: said.total }, (_, j) => found.scores[j] ?? 0));
      busy = false;
      set({ from: step, to: step, foil: found.token });
    } catch (error) {
      busy = false;
      announce(`That did not work: ${error.message}`, true);
      refresh();
    }
    return undefined;
  };

  const save = async (format, way) => {
    try {
      const content = { json: () => asJson(said), csv: () => asCsv(said) }[format]();
      if (way === "copy") await copy(content);
      else download(content, "wherefrom-generation", format);
      announce(`${format.toUpperCase()} ${way === "copy" ? "copied" : "downloaded"}`, true);
      dialogs.save.close();
    } catch (error) {
      announce(`That did not work: ${error.message}`, true);
    }
  };

  // What is on the page -------------------------------------------------------------------------------------------

  const live = make("p", { class: "live", role: "status", "aria-live": "polite" });
  const announce = (what, seen = false) => {
    live.textContent = what;
    live.classList.toggle("seen", seen);
    clearTimeout(fading); // an earlier word's time is not this one's
    if (seen) fading = setTimeout(() => live.classList.remove("seen"), 4000);
  };
  const dialogs = { help: helpDialog(SAID_KEYS, HELP), save: saveDialog(save, SAVED) };
  const text = saidText(said, { choose: to.choose, point: (token) => (pointed = token, repoint()) });
  const map = picture(saidMap, said, {
    hover: (found) => ((cell = found), repoint()), leave: () => ((cell = null), repoint()), pin: (token) => to.choose(token),
    look: () => look, state: chosen.get, focus: () => ({ ...cell, at: [chosen.get().from, chosen.get().to] }), announce,
  });
  const panel = othersPanel(said, { why, typed: why, canAsk: Boolean(options.ask) && said.towards });
  const title = make("h1", {});
  const words = make("p", { class: "readout" });
  const sides = said.source ? "Source and target" : said.segments.includes("prompt") ? "Prompt and answer" : "Turns";
  const unitName = (name) => (name === "turn" ? sides : `${name.charAt(0).toUpperCase()}${name.slice(1)}s`);
  const unit = choice("Sources as", Object.keys(said.units).map((name) => [name, unitName(name)]), (name) => set({ unit: name }));
  const show = choice("Show", [["map", "Heatmap"]], to.map);
  const walk = choice("Explained", [["previous", "‹"], ["all", "The whole answer"], ["next", "›"]],
    (where) => (where === "all" ? to.all() : to.step(where === "next" ? 1 : -1)));
  walk.element.querySelectorAll("button").forEach((button, i) => i === 1 || button.setAttribute("aria-label", i ? "Next token" : "Previous token"));
  const figure = make("div", { class: "pictures" }, map.element);
  const page = make("div", { class: "wherefrom generation" },
    make("header", { class: "head" }, buttons(to), title, make("p", {}, [said.name, said.model].filter(Boolean).join("  ·  "), said.signed ? signs() : null)),
    make("div", { class: "toolbar", role: "group", "aria-label": "What is shown" }, walk.element, unit.element, show.element),
    make("div", { class: "answering" }, make("section", { "aria-label": "Text" }, text.element, words), panel.element),
    figure, make("slot", { name: "after" }), live, dialogs.help, dialogs.save);
  root.replaceChildren(...(options.sheet ? [make("link", { rel: "stylesheet", href: options.sheet })] : []), page);

  const dress = () => {
    look = lookOf(payload.colours, chosen.get().theme, rampOf);
    page.classList.toggle("dark", look.dark);
    for (const [name, value] of Object.entries(look.variables)) page.style.setProperty(name, value);
    refresh();
  };
  const refresh = () => {
    const state = chosen.get();
    const found = reading(said, rowOf(said, state), state.unit);
    title.textContent = heading(said, state);
    unit.show(state.unit);
    show.show(state.map ? "map" : null);
    walk.show(state.from === null ? "all" : null);
    text.update(state, found, look);
    if (panel.update(state, busy)) text.focus(); // the keys go on
    figure.hidden = !state.map;
    if (state.map) {
      map.update();
      map.mark();
    }
    repoint();
    return found;
  };
  const repoint = inFrame(() => {
    const state = chosen.get();
    const found = reading(said, rowOf(said, state), state.unit);
    words.replaceChildren(...readout(said, state, found, pointed, cell));
    text.underline(pointed, look);
    if (state.map) map.mark();
  });

  chosen.listen((state, before) => {
    if (state.theme !== before.theme) dress();
    else announce(spoken(said, state, refresh()));
    if (options.hash) keep(state);
  });
  const keep = (state) => {
    try {
      history.replaceState(null, "", `#${choiceHash(state)}`);
    } catch {
      // A page without an address of its own (a frame in a notebook) keeps its state to itself.
    }
  };
  const onHash = () => {
    set(choiceFrom(location.hash, BEGIN));
    askAnew(location.hash);
  };
  /** An address may ask why not a token about which the payload has nothing: the page that was reloaded had asked. */
  const askAnew = (hash) => {
    const { from, to: last, foil } = choiceFrom(hash, BEGIN);
    if (foil !== null && from === last && said.steps[from] && said.towards) why(from, foil);
  };
  const onKey = (event) => {
    if (!pressed(event, to)) return;
    event.preventDefault();
    event.stopPropagation();
  };
  const keysOn = options.keys === "page" ? document : element;
  keysOn.addEventListener("keydown", onKey);
  if (options.hash) window.addEventListener("hashchange", onHash);
  const unwatch = watchTheme(dress);
  dress();
  if (options.hash) askAnew(location.hash);
  return {
    destroy() {
      keysOn.removeEventListener("keydown", onKey);
      window.removeEventListener("hashchange", onHash);
      unwatch();
      repoint.cancel();
      map.destroy();
      root.replaceChildren();
    },
    state: () => chosen.get(),
  };
}

function signs() {
  return make("span", { class: "signs" }, make("span", { class: "for" }, "for"), make("span", { class: "against" }, "against"));
}

// In words ----------------------------------------------------------------------------------------------------------

function heading(said, state) {
  if (state.from === null) return "Where the answer comes from";
  const name = `“${chosenText(said, state)}”`;
  if (state.foil === null) return `Where ${name} comes from`;
  const [, other] = said.steps[state.from].others.find(([token]) => token === state.foil);
  return `Why ${name} rather than “${other.replace(/^[Ġ▁]/, "")}”`;
}

function listed(said, state, found) {
  const numbers = readable(said, found.values);
  return sourcesOf(said, found, NAMED).map((u) => [unitText(said, state.unit, u, found.end), short(numbers[u])]);
}

function readout(said, state, found, pointed, cell) {
  const item = ([name, value]) => make("span", { class: "item" }, name, "\u00a0", make("span", { class: "number" }, value));
  if (cell?.source !== undefined) return [make("span", {}, cellText(said, state.unit, cell))];
  if (pointed !== null && pointed < found.end) {
    const place = said.places[state.unit][pointed];
    const value = short(readable(said, found.values)[place]);
    return [make("b", {}, unitText(said, state.unit, place, found.end)), make("span", {}, "gives ", make("span", { class: "number" }, value))];
  }
  const share = fromSource(said, rowOf(said, state));
  const arrival = state.from === null || state.foil !== null ? "" : said.steps[state.from].arrival;
  const part = share === null ? [] : [make("span", { class: "share" }, "from the source ", make("span", { class: "number" }, percent(share)))];
  return [make("span", {}, make("i", {}, "from"), ...listed(said, state, found).flatMap((each) => [" ", item(each)])),
    ...part, ...(arrival ? [make("span", { class: "arrived" }, arrival)] : [])];
}

/** For whom the picture is a sound. */
function spoken(said, state, found) {
  const share = fromSource(said, rowOf(said, state));
  return `${heading(said, state)}: ${listed(said, state, found).slice(0, 3).map((each) => each.join(" ")).join(", ")}` +
    (share === null ? "" : `; ${percent(share)} from the source`);
}

// Files ---------------------------------------------------------------------------------------------------------------

/** What `Generation.to_dict` gives. The record is a text already, and stays as it is. */
function asJson(said) {
  const { scores, foils, total, count } = said;
  const digits = scores instanceof Float64Array ? 17 : 9;
  const arrays = { scores: nested(scores, [count, total], digits), ...(foils ? { foil_scores: nested(foils.values, foils.shape, foils.digits) } : {}) };
  return `${said.record.slice(0, -1)},${JSON.stringify(arrays).slice(1)}`;
}

function asCsv(said) {
  const lines = [["step", "token", "source", "source_token", "segment", "score"]];
  for (let s = 0; s < said.count; s++) {
    for (let j = 0; j < said.start + s; j++) {
      lines.push([s, said.tokens[said.start + s], j, said.tokens[j], said.segments[j] ?? "", said.scores[s * said.total + j]]);
    }
  }
  return table(lines);
}
