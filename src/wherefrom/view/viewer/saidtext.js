// Prompt and answer as one text. Tokens of the answer are buttons; what is chosen has its sources on grounds as strong as their
// scores, and what was said after it is pale. Under the tokens that draw on the one that is pointed at there is a line.

import { PALE } from "./colour.js";
import { likely } from "./data.js";
import { make } from "./dom.js";

const SHADES = 32; // of colour: fewer changes from one token to the next, none that one could see
const FAINT = 0.02; // intensities below which there is no ground

/** A token's letters apart from the blanks before it; a token of blanks alone by a sign that one can click. */
function letters(piece) {
  const [, blank, text] = /^(\s*)([^]*)$/.exec(piece);
  if (text) return [blank, text];
  return blank.includes("\n") ? ["", `↵${blank}`] : ["", "␣"];
}

export function saidText(said, { choose, point }) {
  const chat = said.segments.some((name) => name && !["prompt", "answer"].includes(name));
  const marks = said.tokens.map((piece, token) => markOf(said, piece, token));
  const element = make("div", { class: "text said", role: "group", "aria-label": said.source ? "Source and target: choose a word of the target" : "Prompt and answer: choose a word of the answer" },
    ...blocks(said, marks, chat));
  let joined = null; // the unit whose parts are drawn as one
  let active = 0;

  const tokenOf = (event) => {
    const found = event.target.closest?.(".token");
    return found ? Number(found.dataset.token) : null;
  };
  element.addEventListener("click", (event) => {
    const token = tokenOf(event);
    if (token !== null && token >= said.start) choose(token - said.start, event.shiftKey);
  });
  element.addEventListener("mousedown", (event) => event.shiftKey && event.preventDefault()); // which would select the text
  element.addEventListener("pointerover", (event) => point(tokenOf(event)));
  element.addEventListener("pointerleave", () => point(null));

  const join = (unit) => {
    joined = unit;
    const place = said.places[unit];
    marks.forEach(({ gap, token }, i) => {
      const inside = i > 0 && place[i] === place[i - 1];
      token.classList.toggle("inside", inside);
      token.classList.toggle("open", i + 1 < said.total && place[i] === place[i + 1]);
      gap?.classList.toggle("inside", inside);
    });
  };

  const paint = (mark, ground, ink) => {
    if (mark.ground === ground) return;
    mark.ground = ground;
    mark.token.style.background = ground;
    mark.token.style.color = ink;
    if (mark.gap) mark.gap.style.background = mark.gap.classList.contains("inside") ? ground : "";
  };

  const update = (state, { values, scale, end }, look) => {
    if (joined !== state.unit) {
      marks.forEach((mark) => paint(mark, "", ""));
      join(state.unit);
    }
    const place = said.places[state.unit];
    const ramp = look.ramp(said.signed);
    marks.forEach((mark, i) => {
      const part = i < end ? Math.max(-1, Math.min(1, values[place[i]] / scale)) * (said.special[i] ? PALE : 1) : 0;
      const intensity = Math.round(part * SHADES) / SHADES;
      const plain = Math.abs(intensity) < FAINT;
      paint(mark, plain ? "" : ramp.css(intensity), plain ? "" : ramp.ink(intensity));
      const step = i - said.start;
      const pressed = step >= 0 && state.from !== null && step >= state.from && step <= state.to;
      const later = state.from !== null && step > state.to;
      const key = `${pressed} ${later}`;
      if (mark.key === key) return;
      mark.key = key;
      mark.token.classList.toggle("later", later);
      if (step >= 0) mark.token.setAttribute("aria-pressed", String(pressed));
    });
    activate(state.from === null ? active : state.to);
  };

  /** Lines under the tokens of the answer that draw on the one pointed at. */
  const underline = (token, look) => {
    const { total, start, count, scores } = said;
    const column = Array.from({ length: count }, (_, s) => (token !== null && start + s > token ? Math.abs(scores[s * total + token]) : 0));
    const most = Math.max(...column) || 1;
    column.forEach((value, s) => {
      const line = value / most > 0.15 ? Math.ceil((3 * value) / most) : 0;
      const mark = marks[start + s];
      if (mark.line === line) return;
      mark.line = line;
      mark.token.style.boxShadow = line ? `0 ${line}px 0 ${look.muted}` : "";
    });
  };

  // One tab stop for the answer; the arrow keys go on from there.
  const activate = (step) => {
    marks[said.start + active].token.setAttribute("tabindex", "-1");
    active = step;
    marks[said.start + active].token.setAttribute("tabindex", "0");
  };
  const focus = (step = active) => {
    const { token } = marks[said.start + step];
    token.focus({ preventScroll: true });
    token.scrollIntoView({ block: "nearest" });
  };
  return { element, update, underline, focus };
}

function markOf(said, piece, token) {
  const [blank, text] = letters(said.gaps[token] + piece);
  const step = token - said.start;
  const again = said.again[token]; // a byte of the character before it
  const kinds = ["token", again && "again", said.special[token] && "special", step >= 0 && "answer"].filter(Boolean).join(" ");
  const way = text.trim().startsWith("<0x") ? { dir: "ltr" } : {}; // a byte's name, also beside Arabic
  const one = make("span", { class: kinds, ...way, ...(step >= 0 ? { role: "button", tabindex: "-1", "aria-pressed": "false" } : {}) }, again ? "" : text);
  one.dataset.token = token;
  if (step >= 0) {
    const { probability } = said.steps[step];
    const name = text.trim() === "↵" ? "new line" : text.trim();
    one.setAttribute("aria-label", probability === null ? name : `${name}, probability ${likely(probability)}`);
  }
  return { token: one, gap: blank ? make("span", { class: "gap" }, blank) : null, ground: "", line: 0, key: "" };
}

/** The tokens as they stand; in a chat, each turn by itself under its name. */
function blocks(said, marks, chat) {
  const parts = marks.map(({ gap, token }) => [gap, token].filter(Boolean));
  if (!chat) return parts.flat();
  const turns = [];
  parts.forEach((part, i) => {
    const begins = !i || said.segments[i] !== said.segments[i - 1];
    if (begins) turns.push({ name: said.segments[i], parts: [] });
    turns.at(-1).parts.push(...(begins ? part.slice(-1) : part)); // without what parts it from the turn before
  });
  return turns.map(({ name, parts: inside }) =>
    make("div", { class: "turn" }, make("div", { class: "who", "aria-hidden": "true" }, name), make("div", {}, ...inside)));
}
