// Layers × tokens: what the readout row draws on at every layer (Abnar & Zuidema, figure 2). The last layer is on top.

import { arrangement, readable, short, strongest, unitFor } from "./data.js";
import { scaleOf } from "./colour.js";
import { labelled, labelRoom, labelsAcross } from "./axes.js";

const LEFT = 26;
const HEIGHT = 16; // the height of a layer

export const layersView = {
  name: "layers",
  label: "Layers",
  has: (subject) => unitFor(subject, "pieces").rows !== null,

  layout(subject, state, width) {
    const unit = unitFor(subject, state.units);
    const shown = arrangement(subject, state);
    const step = Math.max(2, Math.min(40, (width - LEFT) / shown.length));
    const room = labelRoom(unit.tokens, shown, 90);
    const line = subject.depth > 16 ? 12 : HEIGHT;
    return {
      subject, unit, shown, step, room, line, left: LEFT, top: 2,
      width: Math.max(LEFT + step * shown.length, 60),
      height: 2 + line * subject.depth + room + 4,
    };
  },

  depends: ({ units, order, special, top }) => [units, order, special, top],

  draw(surface, box, state, look) {
    const { subject, unit, shown, step, line, left, top } = box;
    const n = unit.tokens.length;
    const ramp = look.ramp(subject.signed);
    const pixels = new Uint32Array(subject.depth * shown.length);
    for (let layer = 0; layer < subject.depth; layer++) {
      const row = unit.rows.subarray(layer * n, (layer + 1) * n);
      const scale = scaleOf(row, shown, unit.position);
      const kept = new Set(strongest(row, shown, state.top));
      shown.forEach((token, place) => {
        pixels[(subject.depth - 1 - layer) * shown.length + place] = ramp.pixel(kept.has(token) ? row[token] / scale : 0);
      });
    }
    surface.cells(left, top, step * shown.length, line * subject.depth, subject.depth, shown.length, pixels);
    surface.rect(left - 0.5, top - 0.5, step * shown.length + 1, line * subject.depth + 1, null, { stroke: look.line });
    const every = Math.ceil(12 / line);
    for (let layer = 0; layer < subject.depth; layer++) {
      if ((subject.depth - 1 - layer) % every) continue;
      surface.text(String(layer), left - 7, top + (subject.depth - layer - 0.5) * line + 4, {
        size: 11, align: "right", fill: look.muted,
      });
    }
    const places = labelled(shown, unit.scores, step);
    const y = top + line * subject.depth + 2;
    labelsAcross(surface, { ...box, tokens: unit.tokens, places, x: left, y, fill: look.soft });
  },

  /** The chosen layer, and the token in focus. */
  overlay(surface, box, state, look, focus) {
    const { subject, shown, step, line, left, top } = box;
    if (state.layer !== null && state.layer < subject.depth) {
      const at = top + (subject.depth - 1 - state.layer) * line;
      surface.rect(left, at, step * shown.length, line, null, { stroke: look.ink, line: 1.5 });
    }
    const place = focus ? shown.indexOf(focus.token) : -1;
    if (place < 0) return;
    const x = left + place * step;
    surface.rect(x, top, step, line * subject.depth, null, { stroke: look.ink, line: 1 });
    if (focus.layer !== undefined && focus.view === "layers") {
      surface.rect(x, top + (subject.depth - 1 - focus.layer) * line, step, line, null, { stroke: look.ink, line: 2 });
    }
  },

  /** What is at a point, or null. */
  hit({ subject, shown, step, line, left, top }, x, y) {
    const place = Math.floor((x - left) / step);
    const layer = subject.depth - 1 - Math.floor((y - top) / line);
    if (place < 0 || place >= shown.length || layer < 0 || layer >= subject.depth) return null;
    return { view: "layers", token: shown[place], layer };
  },

  /** The focus one step away by the arrow keys. */
  move({ subject, shown }, focus, dx, dy) {
    const place = Math.max(0, shown.indexOf(focus?.token ?? shown[0]));
    const clamp = (value, most) => Math.max(0, Math.min(most, value));
    return {
      view: "layers",
      token: shown[clamp(focus ? place + dx : place, shown.length - 1)],
      layer: clamp((focus?.layer ?? subject.depth - 1) + (focus ? -dy : 0), subject.depth - 1),
    };
  },

  say({ subject, unit }, focus) {
    const n = unit.tokens.length;
    const row = readable(subject, unit.rows.subarray(focus.layer * n, (focus.layer + 1) * n));
    return `layer ${focus.layer}: ${unit.tokens[focus.token]} ${short(row[focus.token])}`;
  },

  caption: ({ subject }) =>
    `Layers × tokens${subject.arrays.aggregated ? " from the input" : ""} · colours by each layer's strongest token`,

  describe: ({ subject, shown }) => `Layers of ${subject.title}: ${subject.depth} layers by ${shown.length} tokens`,
};
