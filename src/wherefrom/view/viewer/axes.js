// Tokens along an axis: as large as they can be, and only as many as have room.

import { fitted, textWidth } from "./surface.js";

export const LABEL = 12; // the largest size of a label, in pixels
const SMALLEST = 9;

/** The size labels have where each has `step` pixels, 0 where that is too small for all of them. */
export function labelSize(step) {
  return step >= SMALLEST + 1 ? Math.min(LABEL, step - 1) : 0;
}

/** How much room labels need, at most `most`. */
export function labelRoom(tokens, shown, most) {
  let widest = 0;
  for (const i of shown) widest = Math.max(widest, textWidth(tokens[i], LABEL));
  return Math.min(most, Math.ceil(widest) + 8);
}

/** Which places along the axis get a label: all, or the weightiest ones that do not touch each other. */
export function labelled(shown, weights, step) {
  if (labelSize(step)) return shown.map((_, place) => place);
  const apart = Math.ceil((LABEL + 1) / step);
  const places = shown.map((_, place) => place).sort((a, b) => Math.abs(weights[shown[b]]) - Math.abs(weights[shown[a]]));
  const taken = [];
  for (const place of places) {
    if (taken.every((other) => Math.abs(other - place) >= apart)) taken.push(place);
    if (taken.length > 60) break;
  }
  return taken.sort((a, b) => a - b);
}

/** Labels to the left of x, at the middle of each place. */
export function labelsDown(surface, { tokens, shown, places, x, y, step, room, fill }) {
  const size = labelSize(step) || LABEL - 1;
  for (const place of places) {
    const text = fitted(tokens[shown[place]], room - 6, size);
    surface.text(text, x - 5, y + (place + 0.5) * step + size * 0.36, { size, fill, align: "right" });
  }
}

/** Labels under y, turned to read upwards. */
export function labelsAcross(surface, { tokens, shown, places, x, y, step, room, fill }) {
  const size = labelSize(step) || LABEL - 1;
  for (const place of places) {
    const text = fitted(tokens[shown[place]], room - 6, size);
    surface.text(text, x + (place + 0.5) * step + size * 0.36, y + 5, { size, fill, align: "right", turn: -90 });
  }
}
