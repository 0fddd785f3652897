// mount(element, payload, options): the whole viewer inside one element's shadow root.

import { subjectsOf } from "./data.js";

export function mount(element, payload, options = {}) {
  const root = element.shadowRoot ?? element.attachShadow({ mode: "open" });
  if (options.css) {
    const sheet = new CSSStyleSheet();
    sheet.replaceSync(options.css);
    root.adoptedStyleSheets = [sheet];
  }
  const draw = (data) => {
    root.replaceChildren(...subjectsOf(data).map((subject) => {
      const line = document.createElement("p");
      line.textContent = subject.units.pieces.tokens.join(" ");
      return line;
    }));
  };
  draw(payload);
  return { update: draw, destroy: () => root.replaceChildren() };
}
