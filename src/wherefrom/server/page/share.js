// A run as one self-contained document: the viewer's own page (`save("x.html")`) with this run's data and evidence in it.

import { make } from "/viewer/dom.js";

export async function save(run, extras, document = "/document.html") {
  const blank = await (await fetch(document, { credentials: "same-origin" })).text();
  const inside = `<script type="application/json">${text(run.payload)}</script>${extras.map((each) => each.outerHTML).join("")}`;
  const page = blank
    .replace(/(<main [^>]*>)[^]*(<\/main>)/, (_, open, close) => open + inside + close)
    .replace(/<title>[^<]*/, () => `<title>${markup(run.title)} · wherefrom`);
  const file = new Blob([page], { type: "text/html" });
  const link = make("a", { href: URL.createObjectURL(file), download: `${name(run.title)}.html` });
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
}

/** JSON that no parser of HTML takes for markup. */
function text(data) {
  return JSON.stringify(data).replace(/[<>&\u2028\u2029]/g, (char) => `\\u${char.charCodeAt(0).toString(16).padStart(4, "0")}`);
}

function markup(plain) {
  return plain.replace(/[<>&"]/g, (char) => `&#${char.charCodeAt(0)};`);
}

function name(title) {
  return title.normalize("NFKD").replace(/[^\w]+/g, "-").replace(/^-+|-+$/g, "").slice(0, 48).toLowerCase() || "wherefrom";
}
