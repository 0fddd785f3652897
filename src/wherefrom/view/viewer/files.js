// What is written into files: arrays as lists, tables, and how they leave the page.

/** An array as nested lists, its numbers with so many digits. */
export function nested(values, shape, digits) {
  if (shape.length === 1) return Array.from(values, (value) => Number(value.toPrecision(digits)));
  const size = values.length / shape[0];
  return Array.from({ length: shape[0] }, (_, i) => nested(values.subarray(i * size, (i + 1) * size), shape.slice(1), digits));
}

/** Lines of cells as CSV. */
export function table(lines) {
  return lines.map((line) => line.map(cell).join(",")).join("\r\n") + "\r\n";
}

function cell(value) {
  if (typeof value === "number") return String(value);
  // A spreadsheet runs what begins like a formula; an apostrophe makes it text again.
  const text = /^[=+\-@\t\r]./s.test(value) ? `'${value}` : value;
  return /[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
}

const TYPES = { png: "image/png", svg: "image/svg+xml", json: "application/json", csv: "text/csv" };

export function download(content, name, format) {
  const blob = content instanceof Blob ? content : new Blob([content], { type: TYPES[format] });
  const link = document.createElement("a");
  link.href = URL.createObjectURL(blob);
  link.download = `${name}.${format}`;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10000);
}

export async function copy(content) {
  if (!navigator.clipboard) throw new Error("this browser lets no page copy from here; download it instead");
  if (content instanceof Blob) await navigator.clipboard.write([new ClipboardItem({ [content.type]: content })]);
  else await navigator.clipboard.writeText(content);
}
