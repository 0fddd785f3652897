// What the model said, what of it is explained, and which row answers for it.

import { make } from "./dom.js";
import { short } from "./data.js";

const LIKELIEST = 3;

export function header(payload, subjects, buttons) {
  const [first] = subjects;
  const { record, explained } = first;
  const unit = first.units.pieces;
  const where = unit.position === null ? record.reading.why : `${unit.tokens[unit.position]} (${record.reading.why})`;
  const facts = [`explained: ${explained}`, `read at: ${where}`, record.model].filter(Boolean);
  return make("header", { class: "head" }, buttons,
    record.prediction === null ? make("h1", { class: "title" }, payload.title) : make("h1", {}, ...answerOf(record)),
    make("p", {}, facts.join("  ·  ")));
}

function answerOf({ prediction, probabilities }) {
  const likely = Object.entries(probabilities).sort(([, a], [, b]) => b - a).slice(0, LIKELIEST);
  if (!likely.length) return [make("b", {}, prediction)];
  return likely.map(([label, probability]) =>
    make("span", { class: label === prediction ? "label said" : "label" }, label, " ",
      make("span", { class: "number" }, probability < 0.0005 ? "0.000" : short(Number(probability.toFixed(3))))));
}
