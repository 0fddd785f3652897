// One explanation: its name, its text, a line of words about what is in focus, and the pictures asked for.

import { besides, explainedByAll, remarksOfAll } from "./data.js";
import { make } from "./dom.js";
import { layersView } from "./layers.js";
import { picture } from "./picture.js";
import { readout } from "./readout.js";
import { textView } from "./text.js";

export function card(subject, subjects, views, acts) {
  const number = subjects.indexOf(subject);
  const text = textView(subject, acts);
  const words = readout();
  const pictures = views.filter((view) => view.has(subject)).map((view) => picture(view, subject, acts));
  const shared = remarksOfAll(besides(subject, subjects));
  const own = subject.remarks.filter((remark) => !shared.includes(remark));
  const element = make("section", { class: "card", "aria-label": subject.title },
    make("h2", {}, subject.name === subject.record.method ? subject.title : subject.name,
      make("small", {}, facts(subject, explainedByAll(subjects))), subject.signed ? signs() : null),
    ...own.map((remark) => make("p", { class: "none" }, remark)),
    text.element, words.element, make("div", { class: "pictures" }, ...pictures.map((each) => each.element)),
    missing(views.filter((view) => !view.has(subject)), subject), make("slot", { name: `under-${number}` }));
  return {
    subject, element, text, pictures,
    /** The pictures whose numbers have changed. */
    redraw: () => pictures.forEach((each) => each.update()),
    /** What depends on the focus. */
    refocus() {
      const [state, focus] = [acts.state(), acts.focus()];
      text.update(state, focus, acts.look());
      words.update(subject, state, focus);
      pictures.forEach((each) => each.mark());
    },
    destroy: () => pictures.forEach((each) => each.destroy()),
  };
}

/** What it explains, where the heading does not say it; by how much its scores miss their sum, or what that is; how long it took. */
function facts({ explained, record, arrival, rounding }, common) {
  return [
    explained !== common && `explained: ${explained}`,
    record.delta !== null && `delta ${record.delta.toPrecision(2)}`,
    arrival,
    typeof record.surrogate?.correlation === "number" && `held-out ρ ${record.surrogate.correlation.toFixed(2)}`,
    rounding,
    record.seconds > 0 && `${Math.max(1, Math.round(1000 * record.seconds))} ms`,
  ].filter(Boolean).join(" · ");
}

/** Which hue is which, for scores with signs. */
function signs() {
  const named = ["for", "against"].map((side) => make("span", { class: side }, side));
  return make("small", { class: "signs" }, ...named);
}

/** Why a picture that was asked for is not there. */
function missing(views, subject) {
  const gives = layersView.has(subject) ? "scores for each layer" : "one score for each token";
  const names = views.map((view) => view.name).join(" or ");
  return names ? make("p", { class: "none" }, `${subject.record.method} gives ${gives}, and no ${names}.`) : null;
}
