// What the reader of a generation has chosen, the same as a fragment of the address, and the keys.

export const BEGIN = Object.freeze({
  from: null, // the tokens of the answer that are explained, from 0; null: all of them
  to: null,
  foil: null, // the token that might have been said instead
  unit: "word", // what the sources are
  map: true, // the heatmap
  theme: "auto", // or "light", "dark"
});

export function choiceHash({ from, to, foil, unit, map, theme }) {
  const written = new URLSearchParams();
  if (from !== null) written.set("token", from === to ? from : `${from}-${to}`);
  if (foil !== null) written.set("foil", foil);
  if (unit !== BEGIN.unit) written.set("unit", unit);
  if (!map) written.set("map", 0);
  if (theme !== BEGIN.theme) written.set("theme", theme);
  return written.toString();
}

/** The inverse; a fragment is typed by anyone, so nothing of it is trusted. */
export function choiceFrom(hash, start) {
  const read = new URLSearchParams(hash.replace(/^#/, ""));
  const state = { ...start };
  const token = /^(\d{1,6})(?:-(\d{1,6}))?$/.exec(read.get("token") ?? "");
  if (token) Object.assign(state, { from: Number(token[1]), to: Number(token[2] ?? token[1]) });
  if (/^\d{1,9}$/.test(read.get("foil") ?? "")) state.foil = Number(read.get("foil"));
  if (read.has("unit")) state.unit = read.get("unit");
  if (read.has("map")) state.map = read.get("map") !== "0";
  if (["auto", "light", "dark"].includes(read.get("theme"))) state.theme = read.get("theme");
  return state;
}

/** A choice that fits this generation: no token, foil or unit that is not there. */
export function fitChoice(state, said) {
  const fits = { ...state };
  if (fits.from === null || fits.from >= said.count || fits.to < fits.from) Object.assign(fits, { from: null, to: null });
  else fits.to = Math.min(fits.to, said.count - 1);
  if (!said.rows.has(`${fits.from} ${fits.foil}`) || fits.from !== fits.to) fits.foil = null;
  if (!Object.hasOwn(said.units, fits.unit)) fits.unit = "token";
  return fits;
}

export const SAID_KEYS = [
  { keys: ["←", "→"], says: "previous, next token of the answer; with Shift, several" },
  { keys: ["1 … 9"], says: "why not the first, … the ninth of what else it might have said" },
  { keys: ["Esc"], says: "the whole answer" },
  { keys: ["u"], says: "tokens, words, sentences, … as sources", act: (to) => to.unit() },
  { keys: ["m"], says: "heatmap", act: (to) => to.map() },
  { keys: ["d"], says: "light or dark", act: (to) => to.theme() },
  { keys: ["e"], says: "save or copy", act: (to) => to.open("save") },
  { keys: ["?"], says: "these keys", act: (to) => to.open("help") },
];

/** Does what a key asks for; true if it asked for something. `to` are the viewer's actions. */
export function pressed(event, to) {
  if (event.defaultPrevented || event.ctrlKey || event.metaKey || event.altKey) return false;
  const target = event.composedPath()[0];
  if (target.matches?.("input, textarea, select, [contenteditable]") || to.opened()) return false;
  if (event.key.startsWith("Arrow")) {
    const dx = { ArrowLeft: -1, ArrowRight: 1 }[event.key] ?? 0;
    const dy = { ArrowUp: -1, ArrowDown: 1 }[event.key] ?? 0;
    if (to.drawn(target, dx, dy)) return true;
    if (dx) to.step(dx, event.shiftKey);
    return dx !== 0; // up and down scroll the page
  }
  if (event.key === "Enter" || event.key === " ") {
    if (target.matches?.(".token")) target.click();
    else if (target.matches?.(".stage")) to.chosen();
    else return false;
    return true;
  }
  if (event.key === "Escape") to.all();
  else if (/^[1-9]$/.test(event.key)) to.why(Number(event.key) - 1);
  else {
    const key = SAID_KEYS.find((each) => each.act && each.keys.includes(event.key));
    if (!key) return false;
    key.act(to);
  }
  return true;
}
