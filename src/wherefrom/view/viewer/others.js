// What else the model might have said in the place of a token, and the question why it did not.

import { likely } from "./data.js";
import { make } from "./dom.js";

const LISTED_OTHERS = 6;

/** The panel: update(state, busy), which is true if what had the focus is gone; listed(step).
 * `why(step, token)` asks, `typed(step, word)` asks about any word, where there is one to ask. */
export function othersPanel(said, { why, typed, canAsk }) {
  const element = make("aside", { class: "others", "aria-label": "What else it might have said" });
  const known = said.steps.map(({ others }) => others.length); // those typed by hand come after
  let shown = "";
  let draft = {}; // the word that somebody types, until it is answered

  const update = (state, busy) => {
    const single = state.from !== null && state.from === state.to;
    const key = JSON.stringify([state.from, state.to, state.foil, busy, single && said.steps[state.from].others.length]);
    if (key === shown) return false;
    shown = key;
    const inside = element.contains(element.getRootNode().activeElement) && element.getRootNode().activeElement;
    const held = inside && inside.dataset.other;
    element.replaceChildren(...(single ? list(state, busy) : [make("p", { class: "note" }, hint(state))]));
    const again = held && element.querySelector(`[data-other="${held}"]`);
    if (again) again.focus();
    return Boolean(inside) && !again;
  };

  const hint = (state) => (state.from === null
    ? "Click a word of the answer to see where it comes from; Shift and a click take several."
    : "Several words as one. Click one of them to see what else it might have been.");

  /** What the panel lists for a token, in the order of its keys. */
  const listed = (step) => {
    const { others, foils } = said.steps[step];
    return others.filter(([token], place) => place < LISTED_OTHERS || foils.includes(token) || place >= known[step]);
  };

  const list = (state, busy) => {
    const { foils, probability } = said.steps[state.from];
    const any = canAsk || foils.length;
    const heading = make("h2", {}, "Instead of “", word(said.tokens[said.start + state.from]), "”", number(probability));
    const rows = listed(state.from).map(([token, name, p], place) => {
      const askable = canAsk || foils.includes(token);
      const pressed = state.foil === token;
      const button = askable && make("button", { type: "button", class: "why", "aria-pressed": String(pressed), "data-other": token,
        "aria-disabled": String(busy), "aria-label": `Why not “${name}”?`, title: place < 9 ? `Key ${place + 1}` : null,
        onclick: () => why(state.from, pressed ? null : token) }, pressed ? "why not ✓" : "why not?");
      return make("li", { class: pressed ? "foil" : null }, bar(p), make("span", { class: "name" }, word(name)), number(p), button || null);
    });
    return [heading, make("ol", { class: any ? "asks" : null }, ...rows), canAsk ? field(state, busy) : null,
      any ? null : make("p", { class: "note" }, said.towards
        ? "generate(…, alternatives=3) takes along why each word was said rather than these."
        : "This method looks at no output, and says nothing of why not.")].filter(Boolean);
  };

  const field = (state, busy) => {
    const input = make("input", { type: "text", maxlength: 100, "aria-label": "Another word", placeholder: "another word", spellcheck: "false", readonly: busy, "data-other": "typed" });
    input.value = draft.step === state.from && draft.foil === state.foil ? draft.text : "";
    input.addEventListener("input", () => (draft = { step: state.from, foil: state.foil, text: input.value }));
    const form = make("form", { class: "another" }, input, make("button", { type: "submit", "aria-disabled": String(busy), "data-other": "ask" }, "why not?"));
    form.addEventListener("submit", (event) => {
      event.preventDefault();
      if (input.value.trim()) typed(state.from, input.value);
    });
    return form;
  };

  return { element, update, listed };
}

function bar(probability) {
  const filled = make("i", { class: "bar", "aria-hidden": "true" });
  filled.style.setProperty("--share", `${Math.max(1, 100 * probability)}%`);
  return filled;
}

/** A word without the signs by which vocabularies write blanks. */
function word(name) {
  return name.replace(/^[Ġ▁ ]+(?=.)/, "").replaceAll(/Ċ|\n/g, "↵").trim() || "␣";
}

function number(probability) {
  return make("span", { class: "number" }, probability === null ? "" : likely(probability));
}
