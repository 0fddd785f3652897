// A generation unpacked: what was said, which row of scores is asked for, and what its numbers are over larger units.
// Row s has the scores of everything before token s of the answer, of which there are `count` after `start` tokens.

import { unpack } from "./data.js";
import { scaleOf } from "./colour.js";

/** Everything the views need of a payload of view/said_html.py. */
export function saidOf(payload) {
  if (payload?.format !== "wherefrom.view.generation" || payload.version !== 1) throw new Error("this is not a payload of this viewer");
  const total = payload.tokens.length;
  const scores = unpack(payload.scores).values;
  const foils = payload.foils && unpack(payload.foils);
  const rows = new Map(); // of foils, by "step token"
  payload.steps.forEach((step, s) => step.foils.forEach((token, which) => {
    const at = (s * foils.shape[1] + which) * total;
    rows.set(`${s} ${token}`, foils.values.subarray(at, at + total));
  }));
  const places = {}; // of each unit: which of them a token belongs to
  for (const [unit, starts] of Object.entries(payload.units)) {
    places[unit] = new Int32Array(total);
    starts.forEach((start, which) => places[unit].fill(which, start, starts[which + 1] ?? total));
  }
  return { ...payload, total, count: payload.steps.length, foils, places, rows, scores };
}

/** A text without the blanks around it; where it is nothing else, a sign for them. */
export const inSight = (text) => text.trim() || (text.includes("\n") ? "↵" : "␣");

/** Some tokens as they stand in the text: bytes of one character are that character once. */
function spelt(said, from, to, gaps = false) {
  return inSight(said.tokens.slice(from, to).map((token, i) => (i && said.again[from + i] ? "" : (i && gaps ? said.gaps[from + i] : "") + token)).join(""));
}

/** The word or words that are chosen, as they stand in the text. */
export function chosenText(said, { from, to }) {
  return spelt(said, said.start + from, said.start + to + 1);
}

/** Scores of the tokens before what is chosen: { row, end }, `end` the first token that is no source. */
export function rowOf(said, { from, to, foil }) {
  const { total, start, count, scores } = said;
  if (from !== null && from === to && foil !== null) return { row: said.rows.get(`${from} ${foil}`), end: start + from };
  const [first, last] = from === null ? [0, count - 1] : [from, to];
  const row = new Float64Array(total);
  for (let s = first; s <= last; s++) for (let j = 0; j < start + s; j++) row[j] += scores[s * total + j];
  if (!said.towards) for (let j = 0; j < total; j++) row[j] /= last - first + 1;
  return { row, end: start + last };
}

/** How much of a row comes from the source of a translation, 0 to 1 (`Generation.source_contribution`); null without one, and where all is 0. */
export function fromSource(said, { row, end }) {
  if (!said.source) return null;
  let [source, all] = [0, 0];
  for (let j = 0; j < end; j++) {
    all += Math.abs(row[j]);
    if (j < said.source) source += Math.abs(row[j]);
  }
  return all ? source / all : null;
}

export const percent = (share) => `${Math.round(100 * share)}\u202f%`;

/** A row over units, and what divides it so that its largest number is 1: { values, scale, end }.
 *
 *  Pieces of a unit add up where the method's scores do; elsewhere they have their mean. What the token that is read
 *  gives itself (or its own word) sets no scale, nor do special tokens. */
export function reading(said, { row, end }, unit) {
  const [starts, place] = [said.units[unit], said.places[unit]];
  const values = new Float64Array(starts.length);
  const sizes = new Int32Array(starts.length);
  for (let j = 0; j < end; j++) {
    values[place[j]] += row[j];
    sizes[place[j]] += 1;
  }
  if (!said.adds) for (let u = 0; u < values.length; u++) values[u] /= sizes[u] || 1;
  const sources = place[end - 1] + 1;
  const shown = Array.from({ length: sources }, (_, u) => u);
  const special = new Array(sources).fill(true); // a turn that begins with a special token is none
  for (let j = 0; j < end; j++) if (!said.special[j]) special[place[j]] = false;
  return { values, sources, scale: scaleOf(values, shown, ["token", "word"].includes(unit) ? sources - 1 : null, special), end };
}

/** A unit's own text as far as `end`, no longer than a line can take. */
export function unitText(said, unit, which, end = said.total) {
  const start = said.units[unit][which];
  const name = unit === "turn" ? said.segments[start] : null;
  if (name) return name;
  const text = spelt(said, start, Math.min(end, said.units[unit][which + 1] ?? end), true);
  return text.length > 48 ? `${text.slice(0, 22)} … ${text.slice(-22)}` : text;
}

/** The strongest sources, in falling order. */
export function sourcesOf(said, { values, sources }, most) {
  const order = Array.from({ length: sources }, (_, u) => u).filter((u) => values[u] !== 0);
  return order.sort((a, b) => Math.abs(values[b]) - Math.abs(values[a])).slice(0, most);
}
