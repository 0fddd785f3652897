// The map of one layer, n × n: row i is the token being built, column j the token it draws on.

import { arrangement, layerOf, matrix, short, strongest, unitFor, whichMap } from "./data.js";
import { mapScale } from "./colour.js";
import { labelled, labelRoom, labelsAcross, labelsDown } from "./axes.js";

export const mapView = {
  name: "map",
  label: "Map",
  has: (subject) => Boolean(subject.arrays.maps || subject.arrays.aggregated),

  layout(subject, state, width) {
    const unit = unitFor(subject, state.units);
    const shown = arrangement(subject, state);
    const room = labelRoom(unit.tokens, shown, 90);
    const density = window.devicePixelRatio || 1;
    // Cells of whole device pixels, so that none looks wider than its neighbour.
    const fit = Math.floor(Math.min(28, (width - room - 1) / shown.length) * density) / density;
    const step = Math.max(1 / density, fit);
    const side = step * shown.length;
    return { subject, unit, shown, room, step, left: room, top: 1, width: room + side + 1, height: side + room + 5 };
  },

  depends: ({ units, kind, head, layer, order, special, top }) => [units, kind, head, layer, order, special, top],

  draw(surface, box, state, look) {
    const { subject, unit, shown, step, left, top } = box;
    const layer = layerOf(subject, state.layer);
    const n = unit.tokens.length;
    const values = matrix(subject, state, layer);
    const scale = mapScale(values, n, shown);
    const ramp = look.ramp(subject.signed);
    const pixels = new Uint32Array(shown.length ** 2);
    shown.forEach((i, down) => {
      const row = values.subarray(i * n, (i + 1) * n);
      const kept = state.top ? new Set(strongest(row, shown, state.top)) : null;
      shown.forEach((j, across) => {
        pixels[down * shown.length + across] = ramp.pixel(!kept || kept.has(j) ? row[j] / scale : 0);
      });
    });
    const side = step * shown.length;
    surface.cells(left, top, side, side, shown.length, shown.length, pixels);
    surface.rect(left - 0.5, top - 0.5, side + 1, side + 1, null, { stroke: look.line });
    const places = labelled(shown, unit.scores, step);
    labelsDown(surface, { ...box, tokens: unit.tokens, places, x: left, y: top, fill: look.soft });
    labelsAcross(surface, { ...box, tokens: unit.tokens, places, x: left, y: top + side + 2, fill: look.soft });
  },

  overlay(surface, { shown, step, left, top }, state, look, focus) {
    if (!focus) return;
    const side = step * shown.length;
    const [row, column] = [shown.indexOf(focus.token), shown.indexOf(focus.source ?? focus.token)];
    const wide = Math.max(step, 3);
    const middle = (place) => (place + 0.5) * step - wide / 2;
    if (row >= 0) surface.rect(left, top + middle(row), side, wide, null, { stroke: look.ink, line: 1 });
    if (column >= 0) surface.rect(left + middle(column), top, wide, side, null, { stroke: look.ink, line: 1 });
  },

  hit({ shown, step, left, top }, x, y) {
    const [column, row] = [Math.floor((x - left) / step), Math.floor((y - top) / step)];
    if (row < 0 || row >= shown.length || column >= shown.length) return null;
    if (column < 0) return { view: "map", token: shown[row] }; // its label
    return { view: "map", token: shown[row], source: shown[column] };
  },

  move({ shown }, focus, dx, dy) {
    const clamp = (place) => Math.max(0, Math.min(shown.length - 1, place));
    const row = shown.indexOf(focus?.token ?? shown[0]);
    const column = shown.indexOf(focus?.source ?? focus?.token ?? shown[0]);
    const [x, y] = focus ? [dx, dy] : [0, 0];
    return { view: "map", token: shown[clamp(row + y)], source: shown[clamp(column + x)] };
  },

  say({ subject, unit }, focus, state) {
    const values = matrix(subject, state, layerOf(subject, state.layer));
    const value = short(values[focus.token * unit.tokens.length + focus.source]);
    return `${unit.tokens[focus.token]} draws ${value} on ${unit.tokens[focus.source]}`;
  },

  caption({ subject, unit, shown }, state) {
    const layer = layerOf(subject, state.layer);
    const which = { own: " alone", joined: " from the input", head: `, head ${state.head}` }[whichMap(subject, state)];
    const scale = mapScale(matrix(subject, state, layer), unit.tokens.length, shown);
    return `Map of layer ${layer}${which} · rows draw on columns · full colour at ${short(scale)}`;
  },

  describe: ({ subject, shown }, state) =>
    `Map of ${subject.title}, layer ${layerOf(subject, state.layer)}: ${shown.length} by ${shown.length} tokens, ` +
    "rows draw on columns",
};
