// Whether to believe a picture: the erasure curve under each explanation, and how far the methods agree.
//
// These elements also travel in the saved file, where the page's style sheet is not; so they are dressed one by one, in the
// variables that the viewer sets.

import { make, prose } from "/viewer/dom.js";

const SVG = "http://www.w3.org/2000/svg";
const WIDTH = 236;
const HEIGHT = 104;
const LEFT = 26;
const BOTTOM = 16;
const GONE = { delete: "Words deleted", attention: "Words hidden from attention", mean: "Patches painted over" };

const over = (found) => found.over ?? "words"; // runs kept by an older page do not say
const dressed = (element, style) => {
  for (const [name, value] of Object.entries(style)) element.style.setProperty(name, value);
  return element;
};
const small = { margin: "0", "font-size": "13px", "line-height": "1.5", color: "var(--soft)" };

/** Words in their order, whatever their own direction is. */
const apart = (words) => words.flatMap((word, i) => [i ? " · " : "", make("bdi", {}, word)]);

/** Under one explanation. `found` is an "evidence" event. */
export function evidence(found, number) {
  const block = dressed(make("div", { slot: `under-${number}`, class: "evidence" }), {
    display: "flex", "flex-wrap": "wrap", gap: "10px 22px", "align-items": "center", "margin-top": "14px",
    padding: "12px 14px", "border-radius": "10px", background: "var(--tint)",
  });
  if (!found.sentence) {
    block.append(dressed(make("p", {}, ...prose(`No evidence here: ${found.detail}.`)), small));
    return block;
  }
  const text = dressed(make("div", {}), { flex: "1 1 240px", "min-width": "0" });
  text.append(
    dressed(make("p", {}, found.sentence), { ...small, color: "var(--ink)", "font-weight": "500" }),
    dressed(make("p", {}, found.verdict), small),
    dressed(make("p", {}, "First erased: ", ...apart(found.words.slice(0, 5))), { ...small, color: "var(--muted)", "overflow-wrap": "anywhere" }),
  );
  block.append(curve(found), text);
  return block;
}

/** Probability over the number of words gone: this order, and random ones (their mean, and the middle half of them). */
function curve(found) {
  const last = found.taken.at(-1) || 1;
  const x = (k) => LEFT + (k / last) * (WIDTH - LEFT - 8);
  const y = (p) => 6 + (1 - p) * (HEIGHT - BOTTOM - 12);
  const path = (values) => found.taken.map((k, i) => `${i ? "L" : "M"}${x(k).toFixed(1)} ${y(values[i]).toFixed(1)}`).join("");
  const back = found.taken.map((k, i) => `L${x(k).toFixed(1)} ${y(found.random_low[i]).toFixed(1)}`).reverse().join("");
  const say = `Erasure curve. ${found.sentence} ${found.verdict}`;
  const svg = draw("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, width: WIDTH, height: HEIGHT, role: "img", "aria-label": say });
  dressed(svg, { flex: "none", "max-width": "100%", font: "10px system-ui, sans-serif" });
  for (const p of [0, 0.5, 1]) {
    svg.append(
      dressed(draw("line", { x1: LEFT, x2: WIDTH - 8, y1: y(p), y2: y(p) }), { stroke: "var(--line)" }),
      dressed(draw("text", { x: LEFT - 5, y: y(p) + 3, "text-anchor": "end" }, String(p)), { fill: "var(--muted)" }),
    );
  }
  svg.append(
    dressed(draw("path", { d: `${path(found.random_high)}${back}Z` }), { fill: "var(--muted)", opacity: "0.16" }),
    dressed(draw("path", { d: path(found.random), "stroke-dasharray": "4 3" }), { fill: "none", stroke: "var(--muted)", "stroke-width": "1.5" }),
    dressed(draw("path", { d: path(found.probabilities) }), { fill: "none", stroke: "var(--accent)", "stroke-width": "2.2" }),
    dressed(draw("circle", { cx: x(found.taken[found.step]), cy: y(found.probabilities[found.step]), r: 3.4 }), { fill: "var(--accent)" }),
    dressed(draw("text", { x: LEFT, y: HEIGHT - 3 }, "0"), { fill: "var(--muted)" }),
    dressed(draw("text", { x: WIDTH - 8, y: HEIGHT - 3, "text-anchor": "end" }, `${last} ${over(found)} erased`), { fill: "var(--muted)" }),
    draw("title", {}, `${GONE[found.by] ?? `Words replaced by the ${found.by}`}, highest scores first; dashed: the mean over all orders, as ${found.orders} others tell it; half of these lie on the grey ground`),
  );
  return svg;
}

function draw(name, attributes, text) {
  const element = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
  if (text !== undefined) element.textContent = text;
  return element;
}

/** Below all explanations: the rank correlation of every two. `found` is an "agreement" event. */
export function agreement(found) {
  const block = dressed(make("section", { slot: "after", class: "agreement", "aria-label": "Agreement" }), { "margin-top": "30px", "overflow-x": "auto" });
  block.append(dressed(make("h2", {}, `How far the methods agree${found.label ? `: ${found.label}` : ""}`), { margin: "0 0 2px", "font-size": "14px" }));
  if (!found.spearman) {
    block.append(dressed(make("p", {}, ...prose(found.detail)), small));
    return block;
  }
  block.append(dressed(make("p", {}, `Spearman’s rank correlation over the ${over(found)}: 1 is the same order, 0 none in common, −1 the reverse.` + magnitudes(found.by_magnitude)), { ...small, color: "var(--muted)", "margin-bottom": "10px" }));
  const cell = { padding: "5px 9px", "text-align": "center", "font-weight": "400", "font-variant-numeric": "tabular-nums", "border-radius": "5px", "white-space": "nowrap" };
  const table = dressed(make("table", {}), { "border-spacing": "2px", "font-size": "12.5px" });
  const short = found.names.map((name, i) => (found.names.length > 2 ? String(i + 1) : name));
  const head = make("tr", {}, make("td", {}), ...short.map((name, i) => dressed(make("th", { scope: "col", title: found.names[i] }, name), { ...cell, color: "var(--muted)" })));
  table.append(make("thead", {}, head));
  const body = make("tbody", {});
  found.names.forEach((name, i) => {
    const label = found.names.length > 2 ? `${i + 1}  ${name}` : name;
    const row = make("tr", {}, dressed(make("th", { scope: "row" }, label), { ...cell, "text-align": "left", color: "var(--soft)" }));
    found.spearman[i].forEach((value, j) => row.append(entry(value, i === j, cell, `${name} and ${found.names[j]}`)));
    body.append(row);
  });
  table.append(body);
  block.append(table);
  return block;
}

/** What is compared with methods whose scores have no signs, where others have some. */
function magnitudes(unsigned = []) {
  if (!unsigned.length) return "";
  return ` ${unsigned.join(", ")} ${unsigned.length > 1 ? "have" : "has"} no signs: with ${unsigned.length > 1 ? "these" : "it"}, magnitudes are compared.`;
}

function entry(value, same, cell, title) {
  if (same) return dressed(make("td", {}, "·"), { ...cell, color: "var(--muted)" });
  if (value === null) return dressed(make("td", { title: `${title}: one of them gives every word the same score` }, "none"), { ...cell, color: "var(--muted)" });
  const hue = value < 0 ? "var(--against)" : "var(--accent)";
  return dressed(make("td", { title }, (Math.round(100 * value) / 100 || 0).toFixed(2).replace("-", "−")), {
    ...cell, color: "var(--ink)", background: `color-mix(in srgb, ${hue} ${Math.round(55 * Math.abs(value))}%, transparent)`,
  });
}
