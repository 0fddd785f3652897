// The keys, in one table: what the help shows is what works.

export const KEYS = [
  { keys: ["←", "→"], says: "previous, next token (in a text or picture)" },
  { keys: ["↑", "↓"], says: "layer above, below (on a token), or move (in layers, map or graph)" },
  { keys: [",", "."], says: "layer below, above" },
  { keys: ["Enter"], says: "pin the token, or let it go" },
  { keys: ["Esc"], says: "let go of the pin" },
  { keys: ["l"], says: "layers × tokens", act: (to) => to.view("layers") },
  { keys: ["m"], says: "map of one layer", act: (to) => to.view("map") },
  { keys: ["g"], says: "graph", act: (to) => to.view("graph") },
  { keys: ["w"], says: "words or pieces", act: (to) => to.swap("units", ["pieces", "words"]) },
  { keys: ["o"], says: "order of the text or of the scores", act: (to) => to.swap("order", ["text", "score"]) },
  { keys: ["j"], says: "maps joined from the input, or each layer's own", act: (to) => to.swap("kind", ["joined", "own"]) },
  { keys: ["s"], says: "special tokens shown or not", act: (to) => to.swap("special", [true, false]) },
  { keys: ["h"], says: "next head", act: (to) => to.nextHead() },
  { keys: ["[", "]"], says: "fewer, more tokens per row" },
  { keys: ["d"], says: "light or dark", act: (to) => to.theme() },
  { keys: ["e"], says: "save or copy", act: (to) => to.open("save") },
  { keys: ["?"], says: "these keys", act: (to) => to.open("help") },
];

/** Does what a key asks for; true if it asked for something. `to` are the viewer's actions. */
export function press(event, to) {
  if (event.defaultPrevented || event.ctrlKey || event.metaKey || event.altKey) return false;
  const target = event.composedPath()[0];
  const inField = target.matches?.("input:not([type=range]):not([type=checkbox]), textarea, select, [contenteditable]");
  if (inField || to.opened()) return false;
  const inSlider = target.matches?.("input[type=range]");
  if (event.key.startsWith("Arrow") && !inSlider) {
    const dx = { ArrowLeft: -1, ArrowRight: 1 }[event.key] ?? 0;
    const dy = { ArrowUp: -1, ArrowDown: 1 }[event.key] ?? 0;
    return to.move(target, dx, dy);
  }
  if (event.key === "Enter" || event.key === " ") return to.pin(target);
  if (event.key === "Escape") return to.release();
  if (event.key === "," || event.key === ".") return to.layer(event.key === "," ? -1 : 1);
  if (event.key === "[" || event.key === "]") return to.top(event.key === "[" ? -1 : 1);
  const key = KEYS.find((each) => each.act && each.keys.includes(event.key));
  if (!key) return false;
  key.act(to);
  return true;
}
