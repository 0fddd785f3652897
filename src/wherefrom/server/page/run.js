// One run: what was asked of the server, and what has come back so far. Plain data, so that it can be kept and shown again.

import { stream } from "./api.js";

/** What is compared: one side, or two texts, or two models. */
function sidesOf(asked) {
  const first = { inputs: asked.inputs, pair: asked.pair, model: asked.model, mask: asked.mask, label: "" };
  if (asked.compare === "text") {
    return [{ ...first, label: "first text" }, { ...first, inputs: asked.other, label: "second text" }];
  }
  if (asked.compare === "model") {
    return [{ ...first, label: asked.model }, { ...first, model: asked.otherModel, mask: asked.otherMask, label: asked.otherModel }];
  }
  return [first];
}

/** What is wrong with the form, in a sentence; null where nothing is. */
export function lacks(asked) {
  if (asked.images && !asked.inputs) return "There is no picture yet: drop one, or choose a file.";
  if (!asked.images && !asked.inputs.trim()) return "There is no text yet: type or paste one.";
  if (asked.translates && !asked.target?.trim()) return "There is no target text yet: type one under Explained, or let the model write it (Let a model speak).";
  if (!asked.methods.length) return "No method is chosen: choose at least one.";
  if (asked.compare === "text" && !asked.other.trim()) return "The text to compare with is empty.";
  if (asked.compare === "text" && asked.other === asked.inputs) return "The two texts are the same: change one of them.";
  if (asked.compare === "model" && asked.model === asked.otherModel) return "The two models are the same: choose another.";
  if (asked.every && asked.foil) return "Every class is explained by itself: choose one of them under Explained, or nothing under Rather than.";
  if (asked.foil && asked.foil === asked.target) return "What is explained and what it is compared with are the same: choose another under Rather than.";
  return lacksMask(asked);
}

/** A model that fills in a word needs one gap; methods that say how tokens mix do without, as long as no word is asked for. */
function lacksMask(asked) {
  const sides = sidesOf(asked);
  const many = sides.find((side) => masksIn(side) > 1);
  if (many) return `${textOf(many)} has ${many.mask} ${masksIn(many)} times: leave only the one where the model should predict a word`;
  const none = sides.filter((side) => masksIn(side) === 0);
  if (none.length && (asked.target || asked.foil)) return noMask(none[0]);
  if (none.length < sides.length || asked.towards.length < asked.methods.length) return null; // something can be explained
  return `${noMask(none[0])}, or choose methods that need none: All methods lists them under “How tokens mix, layer by layer”`;
}

const textOf = ({ label }) => (label.endsWith(" text") ? `the ${label}` : "the text");
const noMask = (side) => `${textOf(side)} has no ${side.mask}: put it where the model should predict a word (Insert ${side.mask}, under the text)`;

/** How often the mask stands in a text; null where the model fills in no words. */
function masksIn({ inputs, pair, mask }) {
  return mask ? `${inputs} ${pair ?? ""}`.split(mask).length - 1 : null;
}

/** One line, without the marks that would turn the page's own words around. */
const titled = (text) => text.replace(/[\u202a-\u202e\u2066-\u2069]/g, "").trim().replace(/\s+/g, " ").slice(0, 120);

export function newRun(asked) {
  return { asked, when: Date.now(), title: titled(asked.name ?? asked.inputs), payload: null,
    evidence: {}, agreement: [], failed: [], notes: asked.long === "truncate" ? ["The text is cut where the model stops reading."] : [],
    complete: false };
}

/** Asks for everything, one side after the other. `changed(what)` is called when the run has grown, `tell` for progress. */
export async function perform(run, { changed, tell, signal }) {
  const sides = sidesOf(run.asked);
  for (const [which, side] of sides.entries()) {
    const name = (method) => (side.label ? `${method} · ${side.label}` : method);
    await stream("/api/compare", question(run.asked, side), (event) => {
      if (event.event === "waiting") tell({ waiting: event.ahead });
      if (event.event === "progress") tell({ share: (which + event.done / event.of) / sides.length, doing: name(event.doing) });
      if (grow(run, inWords(event, run.asked, side), name, sides)) changed(event.event);
    }, signal).catch((error) => {
      if (side.label && error.name !== "AbortError") error.message += ` (${side.label})`; // which of the two it is about
      throw error;
    });
  }
  run.complete = true;
}

/** A method that explains a word, where no word is masked: what to do about it on this page, instead of in Python. */
function inWords(event, asked, side) {
  const known = event.event === "failed" && event.code === "not-defined" && masksIn(side) === 0 && asked.towards.includes(event.name);
  return known ? { ...event, detail: noMask(side) } : event;
}

function question(asked, side) {
  const { inputs, pair, model } = side;
  return { inputs, pair, model, target: asked.target, foil: asked.foil, position: asked.position, methods: asked.methods, form: "viewer",
    heads: true, evidence: true, long: asked.long };
}

/** Under its name on this page; that all heads came along is the page's doing and not worth a word. */
function named(subject, name) {
  return { ...subject, name, title: subject.title.replace(" · head=all", "") };
}

function grow(run, event, name, sides) {
  const label = event.name && name(event.name);
  if (event.event === "explanation") add(run, named(event.payload.explanations[0], label), event.payload, sides);
  else if (event.event === "evidence") run.evidence[label] = event;
  else if (event.event === "agreement") run.agreement.push({ ...event, label: name("").replace(/^ · /, "") });
  else if (event.event === "failed") fail(run, label, event.detail);
  else if (event.event === "note") run.notes.push(event.detail);
  else return false;
  return true;
}

/** Methods that fail for one reason are named together. */
function fail(run, name, detail) {
  const same = run.failed.find((each) => each.detail === detail);
  if (same) same.names.push(name);
  else run.failed.push({ names: [name], detail });
}

/** Puts an explanation in its place: by method, and the sides of one method beside each other. */
function add(run, subject, payload, sides) {
  const explanations = [...(run.payload?.explanations ?? []), subject];
  const method = (each) => run.asked.methods.findIndex((asked) => each.name === asked || each.name.startsWith(`${asked}: `) || each.name.startsWith(`${asked} · `));
  const side = (each) => Math.max(0, sides.findIndex(({ label }) => label && each.name.endsWith(` · ${label}`)));
  explanations.sort((a, b) => method(a) - method(b) || side(a) - side(b));
  run.payload = { ...payload, title: run.title, explanations };
}
