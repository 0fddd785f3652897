// What the model said, what of it is explained, and which row it is read from.

import { make } from "./dom.js";
import { besides, explainedByAll, likely, remarksOfAll } from "./data.js";

const LIKELIEST = 3;

export function header(payload, subjects, buttons) {
  const sides = subjects.map((subject) => besides(subject, subjects)).filter((side, i) => side[0] === subjects[i]);
  return make("header", { class: "head" }, buttons,
    ...sides.flatMap((side) => said(side, payload, sides.length > 1)),
    ...Object.entries(payload.failed ?? {}).map(([name, detail]) => make("p", { class: "missing" }, `${name}: ${detail}`)));
}

function said(side, payload, several) {
  const [{ record, likelihood, readAt }] = side;
  const explained = explainedByAll(side);
  const facts = [several && record.texts.join(" / "), explained && `explained: ${explained}`, likelihood,
    readAt && `read at: ${readAt}`, record.model].filter(Boolean);
  const title = several ? record.model : payload.title;
  const line = make("p", {}, facts.join("  ·  "));
  if (several) line.style.marginBottom = "12px";
  const head = record.prediction === null ? make("h1", { class: "title" }, title) : make("h1", {}, ...answerOf(record));
  return [head, line, ...remarksOfAll(side).map((remark) => make("p", {}, remark))];
}

/** The likeliest of what one output chooses from; a phrase's probability is not one of these. */
function answerOf({ prediction, probabilities, target }) {
  const phrases = target.kind === "phrase" ? [target.label, target.foil_label] : [];
  const each = Object.entries(probabilities).filter(([label]) => label === prediction || !phrases.includes(label));
  const first = each.sort(([, a], [, b]) => b - a).slice(0, LIKELIEST);
  if (!first.length) return [make("b", {}, prediction)];
  return first.map(([label, probability]) =>
    make("span", { class: label === prediction ? "label said" : "label" }, label, " ",
      make("span", { class: "number" }, likely(probability))));
}
