// The heatmap: a row for each token that was said, a column for everything before it, each row in a scale of its own.

import { labelled, labelRoom, labelsAcross, labelsDown } from "./axes.js";
import { readable, short } from "./data.js";
import { fromSource, inSight, percent, reading, rowOf, unitText } from "./said.js";
import { textWidth } from "./surface.js";

const [BAR, APART, SMALL] = [56, 10, 11]; // the longest bar of a source's share, what is left of it, its number's size

const heatmaps = new WeakMap(); // of a generation, by unit: what each row reads

function rowsOf(said, unit) {
  const known = heatmaps.get(said) ?? heatmaps.set(said, new Map()).get(said);
  if (!known.has(unit)) {
    const steps = Array.from({ length: said.count }, (_, s) => s);
    known.set(unit, steps.map((s) => {
      const row = rowOf(said, { from: s, to: s, foil: null });
      return { ...reading(said, row, unit), share: fromSource(said, row) };
    }));
  }
  return known.get(unit);
}

function labelsOf(said, unit) {
  return said.units[unit].map((_, which) => unitText(said, unit, which));
}

/** One cell in words. */
export function cellText(said, unit, { token, source = 0 }) {
  const word = inSight(said.tokens[said.start + token]);
  const { values } = rowsOf(said, unit)[token];
  return `${word} draws ${short(readable(said, values)[source])} on ${unitText(said, unit, source, said.start + token)}`;
}

export const saidMap = {
  name: "map",

  layout(said, { unit }, width) {
    const rows = rowsOf(said, unit);
    const columns = rows.at(-1).sources;
    const down = rows.map((_, s) => s);
    const across = Array.from({ length: columns }, (_, u) => u);
    const [words, sources] = [said.tokens.slice(said.start).map(inSight), labelsOf(said, unit)];
    const [left, room] = [labelRoom(words, down, 90), labelRoom(sources, across, 90)];
    const density = window.devicePixelRatio || 1;
    const whole = (size) => Math.max(1 / density, Math.floor(size * density) / density); // device pixels
    const right = said.source ? APART + BAR + 4 + Math.ceil(textWidth(percent(1), SMALL)) : 0;
    const step = whole(Math.min(["token", "word"].includes(unit) ? 28 : 120, (width - left - right - 1) / columns));
    const tall = whole(Math.max(3, Math.min(18, 640 / rows.length)));
    return { said, rows, columns, down, across, words, sources, left, top: 1, room, step, tall,
      edge: said.source ? said.places[unit][said.source] : 0, width: left + step * columns + right + 1, height: tall * rows.length + room + 5 };
  },

  depends: ({ unit, foil }) => [unit, foil !== null], // the caption's last words

  draw(surface, { said, rows, columns, down, across, words, sources, left, top, room, step, tall, edge }, state, look) {
    const ramp = look.ramp(said.signed);
    const pixels = new Uint32Array(rows.length * columns).fill(ramp.pixel(0));
    rows.forEach(({ values, scale, sources: there }, s) => {
      for (let u = 0; u < there; u++) pixels[s * columns + u] = ramp.pixel(values[u] / scale);
    });
    const [wide, high] = [step * columns, tall * rows.length];
    surface.cells(left, top, wide, high, rows.length, columns, pixels);
    surface.rect(left - 0.5, top - 0.5, wide + 1, high + 1, null, { stroke: look.line });
    if (edge) surface.rect(left + step * edge - 0.75, top, 1.5, high + room, look.muted); // source | target
    rows.forEach(({ share }, s) => {
      if (share === null) return;
      const [x, y, thick] = [left + wide + APART, top + tall * s, Math.max(1, Math.min(8, tall - 2))];
      surface.rect(x, y + (tall - thick) / 2, Math.max(0.5, BAR * share), thick, look.variables["--accent"]);
      if (tall > SMALL) surface.text(percent(share), x + BAR * share + 4, y + tall / 2 + 4, { size: SMALL, fill: look.soft });
    });
    const weights = new Float64Array(columns);
    rows.forEach(({ values, scale }) => across.forEach((u) => (weights[u] += Math.abs(values[u] / scale))));
    const fill = look.soft;
    labelsDown(surface, { tokens: words, shown: down, places: labelled(down, down.map(() => 1), tall), x: left, y: top, step: tall, room: left, fill });
    labelsAcross(surface, { tokens: sources, shown: across, places: labelled(across, weights, step), x: left, y: top + high + 2, step, room, fill });
  },

  overlay(surface, { rows, columns, left, top, step, tall }, state, look, focus) {
    if (state.from !== null) {
      const high = tall * (state.to - state.from + 1);
      surface.rect(left - 0.5, top + tall * state.from - 0.5, step * columns + 1, high + 1, null, { stroke: look.ink, line: 1.5 });
    }
    if (focus?.source !== undefined) {
      const wide = Math.max(step, 2);
      surface.rect(left + (focus.source + 0.5) * step - wide / 2, top, wide, tall * rows.length, null, { stroke: look.muted, line: 1 });
    }
  },

  hit({ rows, columns, left, top, step, tall }, x, y) {
    const [source, token] = [Math.floor((x - left) / step), Math.floor((y - top) / tall)];
    if (token < 0 || token >= rows.length || source >= columns) return null;
    return source < 0 ? { view: "map", token } : { view: "map", token, source };
  },

  move({ rows }, focus, dx, dy) {
    const clamp = (value, most) => Math.max(0, Math.min(most - 1, value));
    const token = clamp((focus?.token ?? 0) + (focus ? dy : 0), rows.length);
    return { view: "map", token, source: clamp((focus?.source ?? 0) + (focus ? dx : 0), rows[token].sources) };
  },

  say: ({ said }, cell, { unit }) => cellText(said, unit, cell),

  caption: ({ rows, columns, edge }, { foil }) => `Heatmap, ${rows.length} × ${columns}: what was said draws on columns${edge ? ", source | target" : ""} · ` +
    `each row in its own scale, which its last token does not set${edge ? " · bars: how much comes from the source" : ""}` +
    (foil === null ? "" : " · each token by itself, not rather than another"),

  describe: ({ rows, columns }) => `Heatmap of ${rows.length} tokens that were said by ${columns} sources`,
};
