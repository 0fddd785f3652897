// What the reader has chosen, and the same as a fragment of the address, so that a link shows what one sees.

export const VIEWS = ["layers", "map", "graph"];

export const START = Object.freeze({
  views: Object.freeze(["layers"]), // beside the text, which is always there
  units: "words", // or "pieces"
  kind: "joined", // or "own": what one layer does by itself
  layer: null, // from 0, as everywhere; null: the answer
  head: null, // counted from 0, as in Python; null: all heads
  top: 0, // how many of a row's strongest tokens are shown; 0: all
  order: "text", // or "score"
  special: true,
  theme: "auto", // or "light", "dark"
  hidden: Object.freeze([]), // names of explanations left out
  pin: null, // { text, token }
});

/** Only what differs from the start, in a fixed order. */
export function toHash(state) {
  const written = new URLSearchParams();
  const put = (key, value, plain) => {
    if (value !== plain) written.set(key, value);
  };
  put("view", state.views.join(" "), START.views.join(" "));
  for (const key of ["units", "kind", "order", "theme"]) put(key, state[key], START[key]);
  put("layer", state.layer, null);
  put("head", state.head, null);
  put("top", state.top, START.top);
  put("special", state.special ? 1 : 0, 1);
  for (const name of state.hidden) written.append("hide", name);
  put("pin", state.pin && `${state.pin.text}.${state.pin.token}`, null);
  return written.toString();
}

/** The inverse; what is not there or cannot be read is left as in `start`. A fragment is typed by anyone, so nothing of it is trusted. */
export function fromHash(hash, start = START) {
  const read = new URLSearchParams(hash.replace(/^#/, ""));
  const state = { ...start };
  const oneOf = (key, allowed) => {
    if (allowed.includes(read.get(key))) state[key] = read.get(key);
  };
  if (read.has("view")) state.views = VIEWS.filter((view) => read.get("view").split(" ").includes(view));
  oneOf("units", ["pieces", "words"]);
  oneOf("kind", ["own", "joined"]);
  oneOf("order", ["text", "score"]);
  oneOf("theme", ["auto", "light", "dark"]);
  const whole = (text) => (/^\d{1,6}$/.test(text ?? "") ? Number(text) : null);
  if (whole(read.get("layer")) !== null) state.layer = whole(read.get("layer"));
  if (whole(read.get("head")) !== null) state.head = whole(read.get("head"));
  if (whole(read.get("top"))) state.top = whole(read.get("top"));
  if (read.get("special") === "0") state.special = false;
  if (read.has("hide")) state.hidden = read.getAll("hide");
  const pin = /^(\d{1,6})\.(\d{1,6})$/.exec(read.get("pin") ?? "");
  if (pin) state.pin = { text: Number(pin[1]), token: Number(pin[2]) };
  return state;
}

/** A state that fits these subjects: no layer, head, token or name that is not there. Units stay as they were chosen:
 *  where a text has no words of several pieces, both read the same, and the next text has its words again. */
export function fitState(state, subjects) {
  const depth = Math.max(...subjects.map((subject) => subject.depth));
  const heads = Math.max(...subjects.map((subject) => subject.heads));
  const names = subjects.map((subject) => subject.name);
  const fits = { ...state };
  if (state.layer !== null && state.layer >= depth) fits.layer = null;
  if (state.head !== null && state.head >= heads) fits.head = null;
  const hidden = state.hidden.filter((name) => names.includes(name));
  fits.hidden = hidden.length < names.length ? hidden : [];
  const pinned = state.pin && subjects.find((subject) => subject.text === state.pin.text);
  const unit = pinned && (pinned.units[fits.units] ?? pinned.units.pieces);
  if (!unit || state.pin.token >= unit.tokens.length) fits.pin = null;
  return fits;
}

/** A value that tells its listeners what changed. */
export function store(start) {
  let state = start;
  const listeners = [];
  return {
    get: () => state,
    set(change) {
      const before = state;
      state = { ...state, ...change };
      for (const listener of listeners) listener(state, before);
    },
    listen: (listener) => listeners.push(listener),
  };
}
