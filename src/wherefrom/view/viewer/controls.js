// The toolbar and the two dialogs. Controls for what is not there (heads, words, a second kind of map) are not shown.

import { kindsOf } from "./data.js";
import { make } from "./dom.js";
import { KEYS } from "./keyboard.js";

/** A row of buttons of which one is pressed. */
export function choice(label, options, pick) {
  const buttons = options.map(([value, text]) => {
    const button = make("button", { type: "button", onclick: () => pick(value) }, text);
    return { value, button };
  });
  const element = group(label, make("div", { class: "segments", role: "group", "aria-label": label },
    ...buttons.map(({ button }) => button)));
  const show = (chosen) => {
    for (const { value, button } of buttons) {
      button.setAttribute("aria-pressed", String(Array.isArray(chosen) ? chosen.includes(value) : value === chosen));
    }
  };
  return { element, show };
}

/** A slider that says in words where it stands. */
function slider(label, most, say, pick) {
  const said = make("span", { class: "said" });
  const input = make("input", { type: "range", min: 0, max: most, step: 1, "aria-label": label });
  input.addEventListener("input", () => pick(Number(input.value)));
  const element = group(make("span", {}, label, " ", said), input);
  const show = (value) => {
    input.value = value;
    said.textContent = say(value);
    input.setAttribute("aria-valuetext", say(value));
    input.style.setProperty("--at", `${(100 * value) / Math.max(1, most)}%`);
  };
  return { element, show };
}

export function group(caption, control) {
  return make("div", { class: "control" }, make("span", { class: "caption" }, caption), control);
}

/** The toolbar for these subjects: { element, update(state) }. */
export function toolbar(subjects, views, to) {
  const parts = [];
  const add = (control, show) => parts.push({ element: control.element, show: (state) => control.show(show(state)) });
  const there = views.filter((view) => subjects.some(view.has));
  if (there.length) {
    add(choice("Show", there.map((view) => [view.name, view.label]), to.view), (state) => state.views);
  }
  if (subjects.some((subject) => subject.units.words)) {
    add(choice("Read as", [["words", "Words"], ["pieces", "Pieces"]], (units) => to.units(units)), (state) => state.units);
  }
  add(choice("Order", [["text", "Text"], ["score", "Score"]], (order) => to.set({ order })), (state) => state.order);
  if (subjects.some((subject) => kindsOf(subject).length > 1)) {
    const kinds = [["joined", "From the input"], ["own", "Each layer"]];
    add(choice("Maps", kinds, (kind) => to.set({ kind })), (state) => state.kind);
  }
  const depth = Math.max(...subjects.map((subject) => subject.depth));
  if (depth > 0) {
    const say = (value) => (value >= depth ? "answer" : `${value} (0 to ${depth - 1})`);
    const pick = (value) => to.set({ layer: value >= depth ? null : value });
    add(slider("Layer", depth, say, pick), (state) => state.layer ?? depth);
  }
  const heads = Math.max(...subjects.map((subject) => subject.heads));
  if (heads) {
    const select = make("select", { "aria-label": "Head" }, make("option", { value: "" }, "all heads"),
      ...Array.from({ length: heads }, (_, head) => make("option", { value: head }, `head ${head}`)));
    select.addEventListener("change", () => to.head(select.value === "" ? null : Number(select.value)));
    parts.push({ element: group("Head", select), show: (state) => (select.value = state.head ?? "") });
  }
  const tokens = Math.max(...subjects.map((subject) => subject.units.pieces.tokens.length));
  const most = Math.min(tokens, 50);
  const sayTop = (value) => (value >= most ? "all" : `top ${value + 1}`);
  add(slider("Tokens", most, sayTop, (value) => to.set({ top: value >= most ? 0 : value + 1 })),
    (state) => (state.top && state.top <= most ? state.top - 1 : most));
  if (subjects.some((subject) => subject.units.pieces.special.some(Boolean))) {
    const options = [[true, "Show"], [false, "Hide"]];
    add(choice("Special", options, (special) => to.set({ special })), (state) => state.special);
  }
  const element = make("div", { class: "toolbar", role: "group", "aria-label": "What is shown" },
    ...parts.map((part) => part.element));
  return { element, update: (state) => parts.forEach((part) => part.show(state)) };
}

/** What is asked for once: to save, another theme, the keys. */
export function buttons(to) {
  return make("div", { class: "buttons" },
    make("button", { type: "button", onclick: () => to.open("save") }, "Save"),
    make("button", { type: "button", "aria-label": "Light or dark", title: "Light or dark", onclick: to.theme }, "◐"),
    make("button", { type: "button", "aria-label": "Keys", title: "Keys", onclick: () => to.open("help") }, "?"));
}

/** Names of the explanations, each pressed while it is shown. Null for a single one. */
export function legend(subjects, to) {
  if (subjects.length < 2) return null;
  const buttons = subjects.map((subject) =>
    make("button", { type: "button", class: "chip", onclick: () => to.toggle(subject.name) }, subject.name));
  const element = make("div", { class: "legend", role: "group", "aria-label": "Methods shown" }, ...buttons);
  const update = (state) => buttons.forEach((button, i) => {
    button.setAttribute("aria-pressed", String(!state.hidden.includes(subjects[i].name)));
  });
  return { element, update };
}

const ABOUT = "Point at a token to see where it comes from (backgrounds) and where it goes (a line under it); click to pin it. " +
  "The address keeps what you see.";

export function helpDialog(table = KEYS, about = ABOUT) {
  const rows = table.map(({ keys, says }) =>
    make("div", { class: "key" }, make("dt", {}, ...keys.map((key) => make("kbd", {}, key))), make("dd", {}, says)));
  return dialog("Keys", make("dl", {}, ...rows), make("p", { class: "note" }, about));
}

const FORMATS = [["png", "PNG", "the picture"], ["svg", "SVG", "the picture, for print"],
  ["json", "JSON", "all numbers; wherefrom loads it"], ["csv", "CSV", "scores, layer by layer"]];

export function saveDialog(save, kinds = FORMATS) {
  const rows = kinds.map(([format, name, about]) =>
    make("div", { class: "format" }, make("span", {}, make("b", {}, name), " ", make("small", {}, about)),
      make("button", { type: "button", "aria-label": `Copy ${name}`, onclick: () => save(format, "copy") }, "Copy"),
      make("button", { type: "button", "aria-label": `Download ${name}`, onclick: () => save(format, "download") },
        "Download")));
  return dialog("Save", ...rows);
}

function dialog(title, ...content) {
  const element = make("dialog", { "aria-label": title });
  const close = make("button", { type: "button", class: "close", "aria-label": "Close", onclick: () => element.close() }, "×");
  element.append(make("header", {}, make("h2", {}, title), close), ...content);
  element.addEventListener("click", (event) => event.target === element && element.close()); // the backdrop
  return element;
}
