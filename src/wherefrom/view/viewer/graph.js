// Tokens in columns of layers, edges as wide as the weight between them (Abnar & Zuidema, figure 1). The input is on the
// left. With many tokens only the strongest edges into each are drawn; a token in focus shows what reaches it.

import { arrangement, matrix, short, strongest, unitFor, whichMap } from "./data.js";
import { mapScale } from "./colour.js";
import { LABEL, labelled, labelRoom, labelsDown } from "./axes.js";
import { fitted } from "./surface.js";

const WIDEST = 7;
const ALL_EDGES = 12; // tokens up to which every edge is drawn
const FEW = 4; // edges into each token beyond that
const MOST_EDGES = 30000; // that stay fluid
const LEVELS = 20; // of width and strength
const FAINT = 0.03; // weights that would not be seen
const SHARE = 0.01; // parts of a token too small to follow further

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

  depends: ({ units, kind, head, order, special, top }) => [units, kind, head, order, special, top],

  draw(surface, box, state, look) {
    const { subject, shown, step, gap, left, top } = box;
    box.edges = edgesOf(box, state);
    const ramp = look.ramp(subject.signed);
    box.edges.forEach((edges, layer) => {
      strokes(surface, box, edges.map((edge) => ({ layer, edge, weight: edge.weight })), ramp);
    });
    const nodes = [];
    for (let layer = 0; layer <= subject.depth; layer++) {
      for (let place = 0; place < shown.length; place++) nodes.push(left + layer * gap, top + (place + 0.5) * step);
    }
    surface.dots(nodes, Math.min(2.5, step / 3), look.muted);
  },

  /** Whether the whole steps back behind what is drawn over it. */
  dims: (state, focus) => Boolean(focus) || state.layer !== null,

  /** The ways into and out of the token in focus; without one, the edges of the chosen layer. */
  overlay(surface, box, state, look, focus) {
    const { subject, shown, step, gap, left, top } = box;
    const ramp = look.ramp(subject.signed);
    const place = focus ? shown.indexOf(focus.token) : -1;
    labels(surface, box, state, look, place);
    if (state.layer !== null && state.layer < subject.depth && !focus) {
      const edges = box.edges[state.layer].map((edge) => ({ layer: state.layer, edge, weight: edge.weight }));
      strokes(surface, box, edges, ramp);
    }
    if (place < 0) return;
    const [from, to] = focus.layer === undefined || focus.view !== "graph" ? [subject.depth, 0] : [focus.layer, focus.layer];
    for (const ways of waysOf(box.edges, place, from, to, whichMap(subject, state) === "joined")) {
      // As everywhere, what a token keeps for itself does not set the scale.
      const apart = ways.filter(({ edge }) => edge.from !== edge.to).map(({ weight }) => Math.abs(weight));
      const scale = Math.max(...apart, 0) || 1;
      strokes(surface, box, ways.map((way) => ({ ...way, weight: way.weight / scale })), ramp);
    }
    const y = top + (place + 0.5) * step;
    surface.dots([from, to].flatMap((layer) => [left + layer * gap, y]), 4, look.ink);
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
    const where = focus.layer ? `layer ${focus.layer - 1}` : "the input";
    const into = focus.layer && edges ? edges[focus.layer - 1].filter((edge) => edge.to === place) : [];
    const sources = into.sort((a, b) => Math.abs(b.value) - Math.abs(a.value)).slice(0, 3);
    const listed = sources.map((edge) => `${unit.tokens[shown[edge.from]]} ${short(edge.value)}`).join(", ");
    return `${unit.tokens[focus.token]} in ${where}${listed && `, from ${listed}`}`;
  },

  caption(box, state) {
    const which = { own: "each layer alone", joined: "each layer from the input", head: `head ${state.head}` };
    const most = few(box, state);
    return `Graph · ${which[whichMap(box.subject, state)]}${most ? ` · the ${most} strongest edges into each token` : ""}`;
  },

  describe: ({ subject, shown }) =>
    `Graph of ${subject.title}: ${shown.length} tokens in ${subject.depth + 1} columns, edges as wide as their weight`,
};

/** Tokens down the left, layers along the top; over the picture, so that they stay when it steps back. */
function labels(surface, { subject, unit, shown, step, room, gap, left, top }, state, look, place) {
  const every = Math.ceil(22 / gap);
  for (let layer = 0; layer <= subject.depth; layer++) {
    const chosen = state.layer !== null && layer === state.layer + 1;
    if (layer % every && !chosen) continue;
    surface.text(layer ? String(layer - 1) : "input", left + layer * gap, 11, {
      size: 11, align: "center", fill: chosen ? look.ink : look.muted, weight: chosen ? 700 : 400,
    });
  }
  const near = step > LABEL ? 1 : Math.ceil((LABEL + 1) / step); // labels that the one in focus would touch
  const places = labelled(shown, unit.scores, step).filter((other) => place < 0 || Math.abs(other - place) >= near);
  labelsDown(surface, { tokens: unit.tokens, shown, places, x: left - 4, y: top, step, room, fill: look.soft });
  if (place < 0) return;
  const text = fitted(unit.tokens[shown[place]], room, LABEL);
  surface.text(text, left - 9, top + (place + 0.5) * step + 4, { size: LABEL, fill: look.ink, align: "right", weight: 700 });
}

/** How many edges into each token are drawn; 0: all. */
function few({ subject, shown }, state) {
  const asked = state.top || (shown.length > ALL_EDGES ? FEW : 0);
  return asked && Math.min(asked, Math.max(2, Math.floor(MOST_EDGES / (shown.length * subject.depth))));
}

/** For every layer the edges drawn, { from, to } as places, value, weight (the value by the scale), part (how much of
 *  what comes into its token comes along it); with them `into` and `outOf`, the edges of each token. */
export function edgesOf(box, state) {
  const { subject, unit, shown } = box;
  const n = unit.tokens.length;
  const most = few(box, state);
  const places = new Int32Array(n);
  shown.forEach((token, place) => (places[token] = place));
  return Array.from({ length: subject.depth }, (_, layer) => {
    const values = matrix(subject, state, layer);
    const scale = mapScale(values, n, shown);
    const edges = [];
    edges.into = shown.map(() => []);
    edges.outOf = shown.map(() => []);
    shown.forEach((i, to) => {
      const row = values.subarray(i * n, (i + 1) * n);
      let sum = 0;
      for (const j of strongest(row, shown, most)) {
        const weight = Math.max(-1, Math.min(1, row[j] / scale));
        if (Math.abs(weight) <= FAINT) continue;
        const edge = { from: places[j], to, value: row[j], weight, part: 0 };
        sum += Math.abs(row[j]);
        edges.push(edge);
        edges.into[to].push(edge);
        edges.outOf[edge.from].push(edge);
      }
      for (const edge of edges.into[to]) edge.part = Math.abs(edge.value) / sum;
    });
    return edges;
  });
}

/** The edges that are about one token, up to a layer and on from a layer. Joined maps have followed every way from the
 *  input already: there the edges at the token itself are all there is to say; to follow them would count layers twice. */
export function waysOf(edges, place, from, to, joined) {
  if (!joined) return [reaching(edges, place, from), leaving(edges, place, to)];
  const at = (side, start, end) => edges.slice(start, end).flatMap((layer, above) =>
    layer[side][place].map((edge) => ({ layer: start + above, edge, weight: edge.part * Math.sign(edge.value) })));
  return [at("into", 0, from), at("outOf", to, edges.length)];
}

/** The edges on the ways into one token at one layer, with the share of it that each carries. */
export function reaching(edges, place, layer) {
  const ways = [];
  let held = new Map([[place, 1]]);
  for (let below = layer - 1; below >= 0; below--) held = follow(edges[below].into, "from", below, held, ways);
  return ways;
}

/** The edges on the ways out of one token at one layer, with the share of each token's make-up that comes from it. */
export function leaving(edges, place, layer) {
  const ways = [];
  let held = new Map([[place, 1]]);
  for (let above = layer; above < edges.length; above++) held = follow(edges[above].outOf, "to", above, held, ways);
  return ways;
}

/** One layer on: what is held is passed along the edges, by the part that each has in its token. */
function follow(edges, end, layer, held, ways) {
  const passed = new Map();
  for (const [place, holds] of held) {
    for (const edge of edges[place]) {
      const share = holds * edge.part;
      if (share < SHARE) continue;
      passed.set(edge[end], (passed.get(edge[end]) ?? 0) + share);
      ways.push({ layer, edge, weight: share * Math.sign(edge.value) });
    }
  }
  return passed;
}

/** Edges { layer, edge, weight }, those of about one weight in one stroke, strong ones last. */
function strokes(surface, { left, top, gap, step }, ways, ramp) {
  const levels = new Map();
  for (const { layer, edge, weight } of ways) {
    const level = Math.round(Math.max(-1, Math.min(1, weight)) * LEVELS);
    if (!level) continue;
    if (!levels.has(level)) levels.set(level, []);
    const x = left + layer * gap;
    levels.get(level).push(x, top + (edge.from + 0.5) * step, x + gap, top + (edge.to + 0.5) * step);
  }
  const widest = Math.min(WIDEST, Math.max(1.5, step * 0.5));
  for (const [level, ends] of [...levels].sort(([a], [b]) => Math.abs(a) - Math.abs(b))) {
    const size = (Math.abs(level) / LEVELS) ** 1.5;
    surface.curves(ends, ramp.css(Math.sign(level)), Math.max(0.4, size * widest), 0.08 + 0.62 * size);
  }
}
