// The text itself, each token on a background as strong as its score. With a token in focus the backgrounds show where it comes
// from, and a line under a token how much of it goes there.

import { answer, arrangement, layerOf, matrix, readable, short, strongest, unitFor } from "./data.js";
import { PALE, scaleOf } from "./colour.js";
import { make } from "./dom.js";
import { fitted, textWidth } from "./surface.js";

const STEPS = 32; // of colour: fewer changes as the pointer moves, none that one could see
const UNSEEN = 0.02; // intensities below which there is no ground

/** What the grounds and lines of a text say: { values, scale, kept, goes, going } with or without a focus. */
export function reading(subject, state, focus) {
  const unit = unitFor(subject, state.units);
  const n = unit.tokens.length;
  const shown = arrangement(subject, state);
  const values = focus && fromRow(subject, state, focus.token);
  if (!values) {
    const row = answer(subject, state);
    const kept = new Set(strongest(row, shown, state.top));
    const scale = subject.rounding ? Infinity : scaleOf(row, shown, unit.position, unit.special); // no ground at all
    return { values: row, scale, kept, goes: null, going: 1 };
  }
  const goes = toColumn(subject, state, focus.token, n);
  return {
    values,
    scale: scaleOf(values, shown, focus.token, unit.special),
    kept: new Set(strongest(values, shown, state.top)),
    goes,
    going: scaleOf(goes, shown, focus.token),
  };
}

/** A token's intensity; a special one's is pale. */
function strength(intensity, special) {
  return Math.max(-1, Math.min(1, intensity)) * (special ? PALE : 1);
}

/** Row i of the map: where token i comes from. Null where there are no maps. */
export function fromRow(subject, state, token) {
  const values = matrix(subject, state, layerOf(subject, state.layer));
  const n = unitFor(subject, state.units).tokens.length;
  return values && values.subarray(token * n, (token + 1) * n);
}

/** Column i: where token i goes. */
export function toColumn(subject, state, token, n) {
  const values = matrix(subject, state, layerOf(subject, state.layer));
  return values && Float32Array.from({ length: n }, (_, i) => values[i * n + token]);
}

/** The text of one subject as elements; update(state, focus, look) paints only the tokens whose look changed. */
export function textView(subject, { hover, leave, pin }) {
  const element = make("div", { class: "text", role: "group", "aria-label": `Text, coloured by ${subject.title}` });
  let tokens = new Map(); // token -> { element, ground, line, mark }: what it looks like now
  let laid = "";
  let active = 0;
  let read = null; // as what: words or pieces
  let held = false; // the keys are to be heard here, once the tokens are laid

  const tokenOf = (event) => {
    const found = event.target.closest?.(".token");
    return found ? Number(found.dataset.token) : null;
  };
  element.addEventListener("pointerover", (event) => tokenOf(event) !== null && hover(tokenOf(event)));
  element.addEventListener("pointerleave", leave);
  element.addEventListener("click", (event) => tokenOf(event) !== null && pin(tokenOf(event)));
  element.addEventListener("focusin", (event) => {
    const token = tokenOf(event);
    if (token === null) return;
    activate(token);
    if (event.target.matches(":focus-visible")) hover(token);
  });
  element.addEventListener("focusout", leave);

  // One tab stop for the text; the arrow keys go on from there.
  const activate = (token) => {
    tokens.get(active)?.element.setAttribute("tabindex", "-1");
    active = token;
    tokens.get(active)?.element.setAttribute("tabindex", "0");
  };
  const step = (by) => {
    const order = [...tokens.keys()];
    const next = order[Math.max(0, Math.min(order.length - 1, order.indexOf(active) + by))];
    tokens.get(next)?.element.focus();
    hover(next);
  };

  /** After the next drawing the keys are heard at this token, as they were before a drawing took it away. */
  const hold = (token) => {
    active = token;
    held = true;
  };

  const lay = (state) => {
    held ||= element.contains(element.getRootNode().activeElement);
    const groups = subject.units.words?.groups;
    if (groups && read && state.units !== read) { // the same place in the text, as `to.units` keeps a pin there
      active = state.units === "words" ? groups.findIndex((members) => members.includes(active)) : groups[active]?.[0];
    }
    read = state.units;
    const unit = unitFor(subject, state.units);
    const shown = arrangement(subject, state);
    const scores = readable(subject, unit.scores);
    tokens = new Map();
    const parts = [];
    shown.forEach((token, place) => {
      if (place) parts.push(state.order === "text" ? gapBetween(unit, shown[place - 1], token) : " ");
      const kind = unit.unknown?.[token] ? " unknown" : unit.special[token] ? " special" : "";
      const one = make("span", { class: `token${kind}`, role: "button", tabindex: "-1" });
      if (unit.unknown?.[token]) one.title = "not in the vocabulary: the model read an unknown token";
      one.dataset.token = token;
      one.textContent = unit.tokens[token];
      one.setAttribute("aria-label", `${unit.tokens[token]}, ${short(scores[token])}`);
      tokens.set(token, { element: one, ground: null, line: null, mark: null });
      parts.push(one);
    });
    const onPicture = subject.record.picture && state.order === "text";
    element.replaceChildren(...(onPicture ? overPicture(subject.record.picture, parts) : parts));
    element.classList.toggle("ranked", state.order === "score");
    activate(tokens.has(active) ? active : shown[0]);
    if (held) tokens.get(active)?.element.focus({ preventScroll: true });
    held = false;
  };

  const update = (state, focus, look) => {
    const key = [state.units, state.order, state.special].join(" ");
    if (key !== laid) lay(state);
    laid = key;
    const { values, scale, kept, goes, going } = reading(subject, state, focus);
    const { special } = unitFor(subject, state.units);
    const ramp = look.ramp(subject.signed);
    const pinned = state.pin?.text === subject.text ? state.pin.token : null;
    for (const [token, one] of tokens) {
      const intensity = kept.has(token) ? Math.round(strength(values[token] / scale, special[token]) * STEPS) / STEPS : 0;
      const seen = Math.abs(intensity) >= UNSEEN;
      const ground = !seen ? "" : one.element.parentElement.matches(".patches") ? tint(ramp, intensity) : ramp.css(intensity);
      const part = goes ? Math.min(1, Math.abs(goes[token]) / going) : 0;
      const line = part > 0.15 ? Math.ceil(part * 3) : 0; // pixels
      const mark = `${token === focus?.token} ${token === pinned}`; // a token may be both
      if (ground !== one.ground || mark !== one.mark) {
        one.element.style.background = ground;
        one.element.style.color = ground && ramp.ink(intensity);
        one.element.classList.toggle("focus", token === focus?.token);
        one.element.setAttribute("aria-pressed", String(token === pinned));
        [one.ground, one.mark] = [ground, mark];
      }
      if (line !== one.line) {
        one.element.style.boxShadow = line ? `0 ${line}px 0 ${look.muted}` : "";
        one.line = line;
      }
    }
  };

  return { element, update, step, hold };
}

const TINT = 80; // per cent of a patch with the largest score that is its tint, as in view/overlay.py

function tint(ramp, intensity) {
  return `color-mix(in srgb, ${ramp.css(Math.sign(intensity))} ${Math.round(TINT * Math.abs(intensity))}%, transparent)`;
}

/** The patches in their places over the picture in grey, and a line of what is no patch above it. */
function overPicture({ png, grid, first }, parts) {
  const tokens = parts.filter((part) => part.dataset);
  const isPatch = (token) => Number(token.dataset.token) >= first;
  for (const token of tokens.filter(isPatch)) token.title = token.textContent;
  const frame = make("div", { class: "patches" }, make("img", { src: `data:image/png;base64,${png}`, alt: "the picture" }),
    ...tokens.filter(isPatch));
  frame.style.gridTemplate = `repeat(${grid[0]}, 1fr) / repeat(${grid[1]}, 1fr)`;
  frame.style.aspectRatio = `${grid[1]} / ${grid[0]}`;
  return [make("div", {}, ...tokens.filter((token) => !isPatch(token))), frame];
}

/** What stands between two tokens that may not be neighbours (special ones may be left out). */
function gapBetween(unit, before, token) {
  return before === token - 1 ? unit.gaps[token] : " ";
}

// For export: the same text drawn, wrapped to a width ---------------------------------------------------------

const TEXT_SIZE = 15;
const TEXT_LINE = 27;
const PICTURE = 448; // pixels that it is wide, as on the page

/** What is no patch on a line, and below it the patches in their places; `ground` is the picture, as `greyed` has it. */
export function layoutPatches(subject, state, width, ground) {
  const { grid, first } = subject.record.picture;
  const shown = arrangement(subject, state);
  const rest = shown.filter((token) => token < first);
  const line = layoutText(subject, state, width, rest);
  const [top, size] = [rest.length ? line.height : 0, Math.min(width, PICTURE) / grid[1]];
  const patches = shown.filter((token) => token >= first).map((token) => {
    const [row, column] = [Math.floor((token - first) / grid[1]), (token - first) % grid[1]];
    return { token, x: column * size, y: top + row * size, size };
  });
  const frame = { ...ground, y: top, width: grid[1] * size, height: grid[0] * size };
  return { ...line, patches, frame, height: top + frame.height + 8 };
}

export function layoutText(subject, state, width, shown = arrangement(subject, state)) {
  const unit = unitFor(subject, state.units);
  const tokens = shown.map((token, place) => {
    const text = fitted(unit.tokens[token], width - 4, TEXT_SIZE);
    const gap = place === 0 ? "" : state.order === "text" ? gapBetween(unit, shown[place - 1], token) : " ";
    return { token, text, gap: textWidth(gap, TEXT_SIZE), wide: textWidth(text, TEXT_SIZE) + 2, x: 0, y: 0 };
  });
  let [x, y] = [0, 0];
  tokens.forEach((one, place) => {
    x += one.gap;
    if (one.gap || place === 0) {
      // A word stays whole: as far as the next gap, if that fits on a line.
      const next = tokens.findIndex((other, later) => later > place && other.gap > 0);
      const word = tokens.slice(place, next < 0 ? undefined : next).reduce((sum, { wide }) => sum + wide, 0);
      if (x > 0 && x + word > width) [x, y] = [0, y + TEXT_LINE];
    }
    if (x > 0 && x + one.wide > width) [x, y] = [0, y + TEXT_LINE];
    [one.x, one.y] = [x, y];
    x += one.wide;
  });
  return { subject, placed: tokens, width, height: y + TEXT_LINE };
}

export function drawText(surface, { subject, placed, patches = [], frame }, state, look, focus) {
  const { values, scale, kept } = reading(subject, state, focus);
  const { special } = unitFor(subject, state.units);
  const ramp = look.ramp(subject.signed);
  const intensityOf = (token) => (kept.has(token) ? strength(values[token] / scale, special[token]) : 0);
  if (frame) surface.cells(0, frame.y, frame.width, frame.height, frame.rows, frame.columns, frame.pixels);
  for (const { token, x, y, size } of patches) {
    const intensity = intensityOf(token);
    const fill = Math.abs(intensity) >= UNSEEN ? ramp.css(Math.sign(intensity)) : null;
    const stroke = token === focus?.token ? look.ink : null;
    if (fill || stroke) surface.rect(x, y, size, size, fill, { stroke, line: 2, alpha: (TINT / 100) * Math.abs(intensity) });
  }
  for (const { token, text, x, y, wide } of placed) {
    const intensity = intensityOf(token);
    const grounded = Math.abs(intensity) >= UNSEEN;
    const stroke = token === focus?.token ? look.ink : null;
    if (grounded || stroke) surface.rect(x, y + 2, wide, 21, grounded ? ramp.css(intensity) : null, { radius: 3, stroke, line: 2 });
    surface.text(text, x + 1, y + 17, { size: TEXT_SIZE, fill: grounded ? ramp.ink(intensity) : look.ink });
  }
}
