// One line of words under a text: what is in focus, where it comes from and where it goes; else what matters most.

import { answer, arrangement, layerOf, matrix, readable, short, strongest, unitFor } from "./data.js";
import { make } from "./dom.js";
import { fromRow } from "./text.js";

const LISTED = 4; // tokens named without a focus,
const NEAR = 3; // and on either side of one

export function readout() {
  const element = make("p", { class: "readout" });
  return {
    element,
    update(subject, state, focus) {
      const parts = focus ? focused(subject, state, focus) : [listed("strongest", ...top(subject, state))];
      element.replaceChildren(...parts.flatMap((part) => [part, " "]));
    },
  };
}

function top(subject, state) {
  const row = readable(subject, answer(subject, state));
  return [unitFor(subject, state.units), strongest(row, arrangement(subject, state), LISTED), row];
}

function focused(subject, state, focus) {
  const unit = unitFor(subject, state.units);
  const n = unit.tokens.length;
  const shown = arrangement(subject, state);
  const parts = [make("b", {}, make("bdi", {}, unit.tokens[focus.token]))];
  if (focus.view === "layers" && unit.rows) {
    const there = readable(subject, unit.rows.subarray(focus.layer * n, (focus.layer + 1) * n));
    parts.push(make("span", {}, `layer ${focus.layer} `, number(there[focus.token])));
  } else {
    parts.push(make("span", {}, `${called(subject, state)} `, number(readable(subject, answer(subject, state))[focus.token])));
  }
  const values = matrix(subject, state, Math.max(0, layerOf(subject, state.layer)));
  if (!values) return parts;
  const rows = Array.from({ length: n }, (_, i) => readable(subject, values.subarray(i * n, (i + 1) * n)));
  const row = rows[focus.token];
  if (focus.source !== undefined && focus.view === "map") {
    parts.push(make("span", {}, "draws ", number(row[focus.source]), " on ", make("b", {}, make("bdi", {}, unit.tokens[focus.source]))));
  }
  const column = rows.map((each) => each[focus.token]);
  const others = shown.filter((i) => i !== focus.token);
  parts.push(listed("from", unit, strongest(row, others, NEAR), row));
  parts.push(listed("to", unit, strongest(column, others, NEAR), column));
  return parts;
}

/** What the number of a token is: its score, or its part in the answer of the layer that is chosen. */
function called(subject, state) {
  return answer(subject, state) === unitFor(subject, state.units).scores ? "score" : `layer ${layerOf(subject, state.layer)}`;
}

function listed(word, unit, tokens, values) {
  const items = tokens
    .slice(0, LISTED) // a short text has fewer
    .flatMap((token) => [make("span", { class: "item" }, make("bdi", {}, unit.tokens[token]), " ", number(values[token])), " "]);
  return make("span", {}, make("i", {}, word), " ", ...items);
}

function number(value) {
  return make("span", { class: "number" }, short(value));
}

/** For whom the picture is a sound: the focus in one sentence. */
export function sentence(subject, state, focus) {
  const unit = unitFor(subject, state.units);
  const values = matrix(subject, state, Math.max(0, layerOf(subject, state.layer)));
  const name = unit.tokens[focus.token];
  const score = `${called(subject, state)} ${short(readable(subject, answer(subject, state))[focus.token])}`;
  if (!values) return `${name}, ${score}`;
  const row = readable(subject, fromRow(subject, state, focus.token));
  const others = arrangement(subject, state).filter((i) => i !== focus.token);
  const from = strongest(row, others, 3).slice(0, 3).map((i) => `${unit.tokens[i]} ${short(row[i])}`);
  return `${name}, ${score}, comes from ${from.join(", ")}`;
}
