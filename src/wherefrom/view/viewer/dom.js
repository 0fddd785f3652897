// Elements without markup: text goes in as text, attributes as attributes, nothing is ever parsed.

/** make("button", { class: "x", "aria-pressed": true, onclick: f }, "text", child, …) */
export function make(name, attributes = {}, ...children) {
  const element = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (key.startsWith("on")) element.addEventListener(key.slice(2), value);
    else element.setAttribute(key, value === true ? "" : value);
  }
  element.append(...children.filter((child) => child !== null && child !== undefined));
  return element;
}

/** A sentence of the program's as nodes: what stands between backticks is code. */
export const prose = (text) => text.split("`").map((part, i) => (i % 2 ? make("code", {}, part) : part));

/** Calls `work` once in the next frame, however often it is asked for. */
export function inFrame(work) {
  let asked = 0;
  const ask = () => {
    asked ||= requestAnimationFrame(() => {
      asked = 0;
      work();
    });
  };
  ask.cancel = () => cancelAnimationFrame(asked);
  return ask;
}

/** The element's shadow root, dressed in these rules if they are given as text. */
export function shadowOf(element, css) {
  const root = element.shadowRoot ?? element.attachShadow({ mode: "open" });
  if (css) {
    const rules = new CSSStyleSheet();
    rules.replaceSync(css);
    root.adoptedStyleSheets = [rules];
  }
  return root;
}
