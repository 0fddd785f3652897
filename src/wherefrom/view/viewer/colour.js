// From a score to a colour. The colours themselves come with the payload, from view/colour.py: a ramp of stops from
// nothing to the full hue (two hues, from -1 to 1, where there are signs), and which ink reads on each stop.

/** A theme's ramp for one explanation: css(intensity), ink(intensity) and pixel(intensity), intensities as below. */
export function rampOf(theme, signed) {
  const name = signed ? "signed" : "unsigned";
  const hex = theme[name].match(/.{6}/g);
  const inks = theme[`${name}_ink`];
  const zero = signed ? (hex.length - 1) / 2 : 0;
  const reach = hex.length - 1 - zero;
  const at = (intensity) => zero + Math.round(Math.max(signed ? -1 : 0, Math.min(1, intensity)) * reach);
  // Little-endian RGBA, as ImageData lays out its bytes.
  const pixels = Uint32Array.from(hex, (stop) => {
    const [red, green, blue] = [0, 2, 4].map((start) => parseInt(stop.slice(start, start + 2), 16));
    return ((255 << 24) | (blue << 16) | (green << 8) | red) >>> 0;
  });
  return {
    css: (intensity) => `#${hex[at(intensity)]}`,
    ink: (intensity) => (inks[at(intensity)] === "1" ? "#ffffff" : "#000000"),
    pixel: (intensity) => pixels[at(intensity)],
  };
}

export const PALE = 0.35; // how much of their colour special tokens keep, as in view/colour.py

/** What divides a row so that its largest entry is 1. What a token gives itself (`own`) does not set the scale: in maps
 *  with a residual connection it often outweighs everything else, and the rest would look empty. Nor do special tokens,
 *  which are no part of the text. */
export function scaleOf(row, shown, own = null, special = []) {
  let others = 0;
  let all = 0;
  for (const i of shown) {
    const size = Math.abs(row[i]);
    if (size > all) all = size;
    if (size > others && i !== own && !special[i]) others = size;
  }
  return others || all || 1;
}

const scales = new WeakMap(); // of maps already seen, by how many tokens were shown

/** The same for a whole map [n, n]: its diagonal does not set the scale. */
export function mapScale(values, n, shown) {
  const known = scales.get(values) ?? scales.set(values, new Map()).get(values);
  if (!known.has(shown.length)) known.set(shown.length, largestApart(values, n, shown));
  return known.get(shown.length);
}

function largestApart(values, n, shown) {
  let others = 0;
  let all = 0;
  for (const i of shown) {
    for (const j of shown) {
      const size = Math.abs(values[i * n + j]);
      if (size > all) all = size;
      if (size > others && i !== j) others = size;
    }
  }
  return others || all || 1;
}
