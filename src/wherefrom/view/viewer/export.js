// What one sees as PNG or SVG, what lies behind it as JSON (which `wherefrom.Explanation.load` reads) or CSV.

import { unitFor } from "./data.js";
import { nested, table } from "./files.js";
import { canvasSurface, fitted, greyed, svgSurface, textWidth } from "./surface.js";
import { drawText, layoutPatches, layoutText } from "./text.js";

const MARGIN = 24;
const DENSITY = 2; // pixels of a PNG per pixel of the page

/** The pictures on the page, laid out anew: { width, height, draw(surface) }; what else than all is explained beside it. */
export async function sheet(subjects, state, views, look, { title, explained }, focusFor) {
  const heading = explained ? `explained: ${explained}  ·  ${title}` : title;
  const onPicture = (subject) => subject.record.picture && state.order === "text";
  const grounds = await Promise.all(subjects.map((subject) => onPicture(subject) && greyed(subject.record.picture.png)));
  const across = state.views.length ? Math.min(subjects.length, 3) : 1;
  const column = across === 1 ? 760 : 480;
  const blocks = subjects.map((subject, i) => {
    const text = grounds[i] ? layoutPatches(subject, state, column, grounds[i]) : layoutText(subject, state, column);
    const pictures = views.filter((view) => view.has(subject)).map((view) => ({ view, box: view.layout(subject, state, column) }));
    const note = subject.explained === explained ? null : `explained: ${subject.explained}`;
    const height = (note ? 44 : 26) + text.height + pictures.reduce((sum, { box }) => sum + box.height + 40, 0);
    const width = Math.max(column, ...pictures.map(({ box }) => box.width));
    return { subject, note, text, pictures, column, width, height };
  });
  const lines = [];
  for (let start = 0; start < blocks.length; start += across) lines.push(blocks.slice(start, start + across));
  const wide = Math.max(...blocks.map((block) => block.width));
  const width = 2 * MARGIN + across * wide + (across - 1) * MARGIN;
  const height = 2 * MARGIN + 30 + lines.reduce((sum, line) => sum + Math.max(...line.map((b) => b.height)) + MARGIN, -MARGIN);
  const draw = (at) => {
    at(0, 0, (surface) =>
      surface.text(fitted(heading, width - 2 * MARGIN, 14), MARGIN, MARGIN + 12, { size: 14, fill: look.soft }));
    let y = MARGIN + 30;
    for (const line of lines) {
      line.forEach((block, place) => drawBlock(at, block, MARGIN + place * (wide + MARGIN), y, state, look, focusFor));
      y += Math.max(...line.map((block) => block.height)) + MARGIN;
    }
  };
  return { width, height, draw };
}

function drawBlock(at, { subject, note, text, pictures, column }, x, y, state, look, focusFor) {
  at(x, y, (surface) => {
    surface.text(subject.title, 0, 13, { size: 13, fill: look.ink, weight: 600 });
    if (subject.signed) drawSigns(surface, textWidth(subject.title, 13, 600) + 14, look);
  });
  if (note) at(x, (y += 18), (surface) => surface.text(fitted(note, column, 12), 0, 13, { size: 12, fill: look.muted }));
  const focus = focusFor(subject);
  at(x, y + 22, (surface) => drawText(surface, text, state, look, focus));
  let below = y + 26 + text.height;
  for (const { view, box } of pictures) {
    const caption = fitted(view.caption(box, state), Math.max(column, box.width), 12);
    at(x, below, (surface) => surface.text(caption, 0, 15, { size: 12, fill: look.muted }));
    below += 22;
    at(x, below, (surface) => {
      view.draw(surface, box, state, look);
      if (view.dims?.(state, focus)) surface.rect(0, 0, box.width, box.height, look.veil);
      view.overlay(surface, box, state, look, focus);
    });
    below += box.height + 18;
  }
}

/** Which hue is which. */
function drawSigns(surface, x, look) {
  for (const side of ["for", "against"]) {
    surface.rect(x, 4, 9, 9, look.variables[`--${side}`], { radius: 2 });
    surface.text(side, x + 13, 13, { size: 12, fill: look.muted });
    x += textWidth(side, 12) + 25;
  }
}

export function toSvg(page, look) {
  const surface = svgSurface();
  page.draw((x, y, draw) => surface.group(x, y, () => draw(surface)));
  return surface.document(page.width, page.height, look.ground);
}

export function toPng(page, look) {
  const canvas = document.createElement("canvas");
  [canvas.width, canvas.height] = [page.width * DENSITY, page.height * DENSITY];
  const context = canvas.getContext("2d");
  context.fillStyle = look.ground;
  context.fillRect(0, 0, canvas.width, canvas.height);
  const surface = canvasSurface(context);
  page.draw((x, y, draw) => {
    context.setTransform(DENSITY, 0, 0, DENSITY, x * DENSITY, y * DENSITY);
    draw(surface);
  });
  return new Promise((done, fail) => {
    canvas.toBlob((blob) => (blob ? done(blob) : fail(new Error("the picture is too large for a PNG"))), "image/png");
  });
}

/** What `Explanation.to_dict` or `Comparison.to_dict` would give, numbers as fine as the document holds them. */
export function toJson(subjects) {
  const all = subjects.map((subject) => [subject.name, recordOf(subject)]);
  const data = all.length === 1
    ? all[0][1]
    : { format: "wherefrom.comparison", version: 1, explanations: Object.fromEntries(all) };
  return JSON.stringify(data);
}

function recordOf(subject) {
  const { scores } = subject.units.pieces;
  const arrays = { scores: nested(scores, [scores.length], 17) };
  for (const name of ["maps", "aggregated", "head_maps", "layer_scores"]) {
    const found = subject.arrays[name]?.();
    arrays[name] = found ? nested(found.values, found.shape, found.digits) : null;
  }
  return { ...subject.record, ...arrays };
}

/** One line per token and method: its score, and its entry in the readout row of each layer. */
export function toCsv(subjects, state) {
  const depth = Math.max(...subjects.map((subject) => subject.depth));
  const head = ["method", "index", "token", "special", "score"];
  for (let layer = 0; layer < depth; layer++) head.push(`layer ${layer}`);
  const lines = [head];
  for (const subject of subjects) {
    const unit = unitFor(subject, state.units);
    const n = unit.tokens.length;
    unit.tokens.forEach((token, i) => {
      const rows = Array.from({ length: depth }, (_, layer) =>
        unit.rows && layer < subject.depth ? unit.rows[layer * n + i] : "");
      lines.push([subject.name, i, token, unit.special[i] ? 1 : 0, unit.scores[i], ...rows]);
    });
  }
  return table(lines);
}

/** A name for the file: the methods, in letters that every file system takes. */
export function fileName(subjects) {
  const names = subjects.map((subject) => subject.name).join("-");
  return `wherefrom-${names.replace(/[^\w-]+/g, "-").slice(0, 60)}`;
}
