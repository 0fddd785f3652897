// Tokens in columns of layers, edges as wide as the weight between them (Abnar & Zuidema, figure 1). The input is on the
// left. With many tokens only the strongest edges into each are drawn; a token in focus shows what reaches it.

import { arrangement, matrix, short, strongest, unitFor } from "./data.js";
import { mapScale } from "./colour.js";
import { labelled, labelRoom, labelsDown } from "./axes.js";

const WIDEST = 7;
const ALL_EDGES = 12; // tokens up to which every edge is drawn
const FEW = 4; // edges into each token beyond that
const FAINT = 0.03; // weights that would not be seen

export const graphView = {
  name: "graph",
  label: "Graph",
  has: (subject) => Boolean(subject.arrays.maps || subject.arrays.aggregated),

  layout(subject, state, width) {
    const unit = unitFor(subject, state.units);
    const shown = arrangement(subject, state);
    const room = labelRoom(unit.tokens, shown, 96);
    const step = Math.max(2.5, Math.min(24, 900 / shown.length));
    const gap = Math.max(24, (width - room - 16) / subject.depth);
    return {
      subject, unit, shown, step, room, gap, left: room + 6, top: 18,
      width: room + 16 + gap * subject.depth,
      height: 22 + step * shown.length,
      edges: null,
    };
  },

  draw(surface, box, state, look) {
    const { subject, unit, shown, step, room, gap, left, top } = box;
    box.edges = edgesOf(box, state);
    const ramp = look.ramp(subject.signed);
    for (let layer = 0; layer <= subject.depth; layer++) {
      const chosen = state.layer !== null && layer === state.layer + 1;
      const every = Math.ceil(22 / gap);
      if (layer % every && layer !== subject.depth && !chosen) continue;
      surface.text(layer ? String(layer) : "input", left + layer * gap, 11, {
        size: 11, align: "center", fill: chosen ? look.ink : look.muted, weight: chosen ? 700 : 400,
      });
    }
    box.edges.forEach((edges, layer) => {
      const dim = state.layer !== null && layer !== state.layer ? 0.25 : 1;
      for (const edge of edges) stroke(surface, box, layer, edge, edge.weight, dim, ramp);
    });
    const radius = Math.min(2.5, step / 3);
    for (let layer = 0; layer <= subject.depth; layer++) {
      for (let place = 0; place < shown.length; place++) {
        surface.dot(left + layer * gap, top + (place + 0.5) * step, radius, look.muted, 0.8);
      }
    }
    const places = labelled(shown, unit.scores, step);
    labelsDown(surface, { tokens: unit.tokens, shown, places, x: left - 4, y: top, step, room, fill: look.soft });
  },

  overlay(surface, box, state, look, focus) {
    const { subject, shown, step, gap, left, top } = box;
    const place = shown.indexOf(focus.token);
    if (place < 0 || !box.edges) return;
    const ramp = look.ramp(subject.signed);
    surface.rect(0, top - 4, box.width, box.height - top + 4, look.veil);
    const [from, to] = focus.layer === undefined || focus.view !== "graph" ? [subject.depth, 0] : [focus.layer, focus.layer];
    for (const { layer, edge, share } of reaching(box.edges, place, from)) stroke(surface, box, layer, edge, share, 1, ramp);
    for (const { layer, edge, share } of leaving(box.edges, place, to)) stroke(surface, box, layer, edge, share, 1, ramp);
    const y = top + (place + 0.5) * step;
    for (const layer of new Set([from, to])) surface.dot(left + layer * gap, y, 4, look.ink);
    surface.text(box.unit.tokens[focus.token], left - 9, y + 4, { size: 12, fill: look.ink, align: "right", weight: 700 });
  },

  hit({ subject, shown, step, gap, left, top }, x, y) {
    const place = Math.floor((y - top) / step);
    const layer = Math.max(0, Math.round((x - left) / gap));
    if (place < 0 || place >= shown.length || layer > subject.depth) return null;
    return { view: "graph", token: shown[place], layer };
  },

  move({ subject, shown }, focus, dx, dy) {
    const clamp = (value, most) => Math.max(0, Math.min(most, value));
    if (!focus) return { view: "graph", token: shown[0], layer: subject.depth };
    return {
      view: "graph",
      token: shown[clamp(shown.indexOf(focus.token) + dy, shown.length - 1)],
      layer: clamp((focus.layer ?? subject.depth) + dx, subject.depth),
    };
  },

  say({ unit, shown, edges }, focus) {
    const place = shown.indexOf(focus.token);
    const where = focus.layer ? `layer ${focus.layer}` : "the input";
    const into = focus.layer && edges ? edges[focus.layer - 1].filter((edge) => edge.to === place) : [];
    const sources = into.sort((a, b) => Math.abs(b.value) - Math.abs(a.value)).slice(0, 3);
    const listed = sources.map((edge) => `${unit.tokens[shown[edge.from]]} ${short(edge.value)}`).join(", ");
    return `${unit.tokens[focus.token]} in ${where}${listed && `, from ${listed}`}`;
  },

  caption: ({ shown }, state) =>
    `Graph${few(shown, state) ? ` · the ${few(shown, state)} strongest edges into each token` : ""}`,

  describe: ({ subject, shown }) =>
    `Graph of ${subject.title}: ${shown.length} tokens in ${subject.depth + 1} columns, edges as wide as their weight`,
};

/** How many edges into each token are drawn; 0: all. */
function few(shown, state) {
  return state.top || (shown.length > ALL_EDGES ? FEW : 0);
}

/** For every layer the edges drawn, faint ones first: { from, to } as places, value, weight (value by the scale). */
export function edgesOf({ subject, unit, shown }, state) {
  const n = unit.tokens.length;
  const most = few(shown, state);
  const places = new Int32Array(n);
  shown.forEach((token, place) => (places[token] = place));
  return Array.from({ length: subject.depth }, (_, layer) => {
    const values = matrix(subject, state, layer);
    const scale = mapScale(values, n, shown);
    const edges = [];
    shown.forEach((i, to) => {
      const row = values.subarray(i * n, (i + 1) * n);
      for (const j of strongest(row, shown, most)) {
        const weight = Math.max(-1, Math.min(1, row[j] / scale));
        if (Math.abs(weight) > FAINT) edges.push({ from: places[j], to, value: row[j], weight });
      }
    });
    return edges.sort((a, b) => Math.abs(a.weight) - Math.abs(b.weight));
  });
}

/** The edges on the ways into one token at one layer, with the share of it that each carries. */
export function reaching(edges, place, layer) {
  const ways = [];
  let held = new Map([[place, 1]]);
  for (let below = layer - 1; below >= 0; below--) held = follow(edges[below], below, held, "to", "from", ways);
  return ways;
}

/** The edges on the ways out of one token at one layer, with the share of each token's make-up that comes from it. */
export function leaving(edges, place, layer) {
  const ways = [];
  let held = new Map([[place, 1]]);
  for (let above = layer; above < edges.length; above++) held = follow(edges[above], above, held, "from", "to", ways);
  return ways;
}

/** One layer on: what is held at one end of the edges, passed to the other by each edge's part of what reaches its token. */
function follow(edges, layer, held, near, far, ways) {
  const into = new Map();
  for (const edge of edges) into.set(edge.to, (into.get(edge.to) ?? 0) + Math.abs(edge.value));
  const passed = new Map();
  for (const edge of edges) {
    if (!held.has(edge[near])) continue;
    const share = (held.get(edge[near]) * Math.abs(edge.value)) / into.get(edge.to);
    if (share < FAINT) continue;
    passed.set(edge[far], (passed.get(edge[far]) ?? 0) + share);
    ways.push({ layer, edge, share: share * Math.sign(edge.value) });
  }
  return passed;
}

function stroke(surface, { left, top, gap, step }, layer, edge, weight, dim, ramp) {
  const size = Math.min(1, Math.abs(weight));
  const y = (place) => top + (place + 0.5) * step;
  const x = left + layer * gap;
  const widest = Math.min(WIDEST, Math.max(1.5, step * 0.5));
  const width = Math.max(0.4, size ** 1.5 * widest);
  surface.curve(x, y(edge.from), x + gap, y(edge.to), ramp.css(Math.sign(weight)), width, dim * (0.08 + 0.62 * size ** 1.5));
}
