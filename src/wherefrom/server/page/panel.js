// Where a run is shown: the viewer, the evidence in its places, and what did not work.

import { make, prose } from "/viewer/dom.js";
import { mount } from "/viewer/viewer.js";
import { agreement, evidence } from "./evidence.js";

export function panel(place, css, themed) {
  let viewer = null;
  let host = null;
  let last = null;

  function reset() {
    last = viewer?.state() ?? last;
    viewer?.destroy();
    viewer = null;
    place.replaceChildren();
  }

  /** The light or dark chosen inside the viewer is the page's too. */
  function follow() {
    setTimeout(() => viewer && themed(viewer.state().theme));
  }

  function extras(run) {
    const found = run.payload.explanations.flatMap(({ name }, number) =>
      run.evidence[name] ? [evidence(run.evidence[name], number)] : []);
    return [...found, ...run.agreement.map((each) => agreement(each))];
  }

  return {
    reset,
    show(run) {
      if (run.payload && !viewer) {
        host = make("div", { class: "viewer" });
        place.replaceChildren(host);
        viewer = mount(host, run.payload, { css, hash: true, keys: "focus", state: last ?? undefined });
        themed(viewer.state().theme);
        host.addEventListener("click", follow);
        host.addEventListener("keydown", follow);
      } else if (run.payload) viewer.update(run.payload);
      host?.replaceChildren(...(run.payload ? extras(run) : []));
      place.querySelector(".remarks")?.remove();
      const remarks = [...run.failed.map(({ names, detail }) => `${names.join(", ")}: ${detail}.`), ...run.notes,
        ...(run.stopped && run.payload ? ["This was stopped before its end: methods and evidence may be missing."] : [])];
      if (remarks.length) place.prepend(make("ul", { class: "remarks" }, ...remarks.map((each) => make("li", {}, ...prose(each)))));
    },
    /** Only the evidence: the viewer keeps its focus. */
    support(run) {
      if (host && run.payload) host.replaceChildren(...extras(run));
    },
    extras: () => [...(host?.children ?? [])],
  };
}
