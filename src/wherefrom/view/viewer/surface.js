// What a picture is drawn on: a canvas for the screen and PNG, or SVG. Each drawing is written once, for both.

export const FONT = 'system-ui, -apple-system, "Segoe UI", "Noto Sans", sans-serif';
const MANY_CELLS = 5000; // beyond which SVG holds a heatmap as an image instead of rectangles

const measuring = document.createElement("canvas").getContext("2d");

export function textWidth(text, size, weight = 400) {
  measuring.font = `${weight} ${size}px ${FONT}`;
  return measuring.measureText(text).width;
}

/** A label no wider than `width`, with an ellipsis where it had to be cut. */
export function fitted(text, width, size) {
  if (textWidth(text, size) <= width) return text;
  const characters = Array.from(text);
  while (characters.length > 1 && textWidth(`${characters.join("")}…`, size) > width) characters.pop();
  return `${characters.join("")}…`;
}

export function canvasSurface(context) {
  return {
    rect(x, y, width, height, fill, { radius = 0, stroke = null, line = 1, alpha = 1 } = {}) {
      context.beginPath();
      if (radius) context.roundRect(x, y, width, height, radius);
      else context.rect(x, y, width, height);
      if (fill) {
        context.globalAlpha = alpha;
        context.fillStyle = fill;
        context.fill();
        context.globalAlpha = 1;
      }
      if (stroke) {
        context.strokeStyle = stroke;
        context.lineWidth = line;
        context.stroke();
      }
    },
    text(text, x, y, { size = 12, fill, align = "left", turn = 0, weight = 400 }) {
      context.save();
      context.translate(x, y);
      if (turn) context.rotate((turn * Math.PI) / 180);
      context.font = `${weight} ${size}px ${FONT}`;
      context.textAlign = align;
      context.textBaseline = "alphabetic";
      context.fillStyle = fill;
      context.fillText(text, 0, 0);
      context.restore();
    },
    /** Curves [x0, y0, x1, y1, …] of one look: a single stroke for all of them is what makes thousands fast. */
    curves(ends, stroke, width, alpha) {
      context.globalAlpha = alpha;
      context.strokeStyle = stroke;
      context.lineWidth = width;
      context.beginPath();
      for (let i = 0; i < ends.length; i += 4) {
        const middle = (ends[i] + ends[i + 2]) / 2;
        context.moveTo(ends[i], ends[i + 1]);
        context.bezierCurveTo(middle, ends[i + 1], middle, ends[i + 3], ends[i + 2], ends[i + 3]);
      }
      context.stroke();
      context.globalAlpha = 1;
    },
    /** Dots [x, y, …]. */
    dots(places, radius, fill) {
      context.fillStyle = fill;
      context.beginPath();
      for (let i = 0; i < places.length; i += 2) {
        context.moveTo(places[i] + radius, places[i + 1]);
        context.arc(places[i], places[i + 1], radius, 0, 7);
      }
      context.fill();
    },
    cells(x, y, width, height, rows, columns, pixels) {
      context.imageSmoothingEnabled = false;
      context.drawImage(imageOf(rows, columns, pixels), x, y, width, height);
    },
  };
}

/** A surface that collects SVG; `document(width, height, ground)` is the file. */
export function svgSurface() {
  const parts = [];
  const tag = (name, attributes, content = null) => {
    const written = Object.entries(attributes)
      .filter(([, value]) => value !== null)
      .map(([key, value]) => ` ${key}="${escapeXml(typeof value === "number" ? +value.toFixed(3) : value)}"`);
    parts.push(`<${name}${written.join("")}${content === null ? "/>" : `>${escapeXml(content)}</${name}>`}`);
  };
  return {
    group(x, y, draw) {
      parts.push(`<g transform="translate(${x} ${y})">`);
      draw();
      parts.push("</g>");
    },
    rect: (x, y, width, height, fill, { radius = 0, stroke = null, line = 1, alpha = 1 } = {}) =>
      tag("rect", {
        x, y, width, height, fill: fill ?? "none", rx: radius || null, stroke, "stroke-width": stroke ? line : null,
        "fill-opacity": alpha < 1 ? alpha : null,
      }),
    text: (text, x, y, { size = 12, fill, align = "left", turn = 0, weight = 400 }) =>
      tag("text", {
        x, y, fill, "font-size": size, "font-weight": weight === 400 ? null : weight, "xml:space": "preserve",
        "text-anchor": { left: null, center: "middle", right: "end" }[align],
        transform: turn ? `rotate(${turn} ${x} ${y})` : null,
      }, text),
    curves(ends, stroke, width, alpha) {
      let d = "";
      for (let i = 0; i < ends.length; i += 4) {
        const [a, b, c, e] = ends.slice(i, i + 4).map((value) => +value.toFixed(2));
        const middle = +((a + c) / 2).toFixed(2);
        d += `M${a} ${b}C${middle} ${b} ${middle} ${e} ${c} ${e}`;
      }
      tag("path", { d, fill: "none", stroke, "stroke-width": width, "stroke-opacity": alpha });
    },
    dots(places, radius, fill) {
      for (let i = 0; i < places.length; i += 2) tag("circle", { cx: places[i], cy: places[i + 1], r: radius, fill });
    },
    cells(x, y, width, height, rows, columns, pixels) {
      if (rows * columns > MANY_CELLS) {
        const href = imageOf(rows, columns, pixels).toDataURL();
        tag("image", { x, y, width, height, href, preserveAspectRatio: "none", style: "image-rendering:pixelated" });
        return;
      }
      const [w, h] = [width / columns, height / rows];
      for (let i = 0; i < rows; i++) {
        for (let j = 0; j < columns; j++) {
          const pixel = pixels[i * columns + j];
          const hex = [pixel & 255, (pixel >> 8) & 255, (pixel >> 16) & 255].map((c) => c.toString(16).padStart(2, "0"));
          tag("rect", { x: x + j * w, y: y + i * h, width: w, height: h, fill: `#${hex.join("")}` });
        }
      }
    },
    document: (width, height, ground) =>
      `<svg xmlns="http://www.w3.org/2000/svg" width="${Math.ceil(width)}" height="${Math.ceil(height)}" ` +
      `viewBox="0 0 ${Math.ceil(width)} ${Math.ceil(height)}" font-family="${escapeXml(FONT)}">` +
      `<rect width="100%" height="100%" fill="${ground}"/>${parts.join("\n")}</svg>\n`,
  };
}

/** A PNG (base64) in pale grey, as the page shows it under its patches (`.patches img` in viewer.css), for `cells`. */
export async function greyed(png) {
  const image = new Image();
  image.src = `data:image/png;base64,${png}`;
  await image.decode();
  const [rows, columns] = [image.naturalHeight, image.naturalWidth];
  const canvas = document.createElement("canvas");
  [canvas.width, canvas.height] = [columns, rows];
  const context = canvas.getContext("2d");
  context.drawImage(image, 0, 0);
  const { data } = context.getImageData(0, 0, columns, rows);
  const pixels = Uint32Array.from({ length: rows * columns }, (_, i) => {
    const light = 0.2126 * data[4 * i] + 0.7152 * data[4 * i + 1] + 0.0722 * data[4 * i + 2];
    return 0xff000000 + 0x10101 * Math.round(127.5 + 0.6 * (light - 127.5));
  });
  return { rows, columns, pixels };
}

function imageOf(rows, columns, pixels) {
  const canvas = document.createElement("canvas");
  [canvas.width, canvas.height] = [columns, rows];
  const image = new ImageData(new Uint8ClampedArray(pixels.buffer, pixels.byteOffset, pixels.byteLength), columns, rows);
  canvas.getContext("2d").putImageData(image, 0, 0);
  return canvas;
}

/** Text inside XML; what XML 1.0 cannot hold at all becomes U+FFFD. */
export function escapeXml(text) {
  const names = { "&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;", "'": "&apos;" };
  return String(text)
    .toWellFormed()
    .replace(/[\u0000-\u0008\u000b\u000c\u000e-\u001f\ufffe\uffff]/g, "\ufffd")
    .replace(/[&<>"']/g, (char) => names[char]);
}
