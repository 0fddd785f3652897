// mount(element, payload, options): the whole viewer inside one element's shadow root, so that neither its styles nor
// the page's get in each other's way.
//
// options:  css      the text of viewer.css, or
//           sheet    its address, where the modules are served as files
//           hash     keep the state in the page's address
//           keys     "page": keys work everywhere on the page; "focus": only inside the viewer
//           state    what to begin with, as in state.js
//
// A child of the element with slot="under-0" (1, …) appears under the explanation of that number, one with slot="after"
// below all of them.

import { card } from "./card.js";
import { rampOf } from "./colour.js";
import { buttons, helpDialog, legend, saveDialog, toolbar } from "./controls.js";
import { besides, explainedByAll, subjectsOf } from "./data.js";
import { inFrame, make, shadowOf } from "./dom.js";
import { fileName, sheet, toCsv, toJson, toPng, toSvg } from "./export.js";
import { copy, download } from "./files.js";
import { graphView } from "./graph.js";
import { header } from "./header.js";
import { press } from "./keyboard.js";
import { layersView } from "./layers.js";
import { mapView } from "./map.js";
import { sentence } from "./readout.js";
import { fitState, fromHash, START, store, toHash } from "./state.js";
import { lookOf, watchTheme } from "./theme.js";

const VIEWS_DRAWN = [layersView, mapView, graphView];

export function mount(element, payload, options = {}) {
  let subjects = subjectsOf(payload); // before anything is changed: a wrong payload leaves the page as it was
  const root = shadowOf(element, options.css);
  const start = { ...START, ...options.state };
  const begin = options.hash ? fromHash(location.hash, start) : start;
  const chosen = store(fitState(begin, subjects));
  let hovered = null; // { text, token, view, layer, source }
  let fading = 0;
  let look = null;
  let parts = null; // what is on the page now

  const focusFor = (subject) => {
    const focus = [hovered, chosen.get().pin].find((each) => each?.text === subject.text);
    if (!focus) return null;
    const layers = subject.depth + (focus.view === "graph" ? 1 : 0); // a graph begins with the input
    return focus.layer === undefined || focus.layer < layers ? focus : { text: focus.text, token: focus.token };
  };
  const shownSubjects = () => subjects.filter((subject) => !chosen.get().hidden.includes(subject.name));
  const hover = (subject, focus) => {
    hovered = focus && { ...focus, text: subject.text };
    refocus();
  };

  // What controls and keys ask for --------------------------------------------------------------------------------

  const set = (change) => chosen.set(fitState({ ...chosen.get(), ...change }, subjects));
  const to = {
    set,
    swap(key, values) {
      if (key === "units") to.units(values[1 - values.indexOf(chosen.get().units)]);
      else set({ [key]: values[1 - values.indexOf(chosen.get()[key])] });
    },
    /** Words or pieces; a pinned token stays the same place in the text. */
    units(units) {
      if (!subjects.some((subject) => subject.units.words)) return; // nothing to choose: the key must not choose unseen
      const { pin, units: before } = chosen.get();
      if (units !== before) hovered = null; // its number was that of a piece, or of a word
      const groups = pin && subjects.find((subject) => subject.text === pin.text)?.units.words?.groups;
      if (!groups || units === before) return set({ units });
      const token = units === "words" ? groups.findIndex((members) => members.includes(pin.token)) : groups[pin.token][0];
      return set({ units, pin: { ...pin, token } });
    },
    view(name) {
      const { views } = chosen.get();
      const next = views.includes(name) ? views.filter((each) => each !== name) : [...views, name];
      set({ views: VIEWS_DRAWN.map((view) => view.name).filter((each) => next.includes(each)) });
    },
    toggle(name) {
      const { hidden } = chosen.get();
      set({ hidden: hidden.includes(name) ? hidden.filter((each) => each !== name) : [...hidden, name] });
    },
    /** One head, or all; where nothing that is shown is of heads, the map comes with it. */
    head(head) {
      const { views } = chosen.get();
      const drawn = head === null || views.includes("map") || views.includes("graph");
      set({ head });
      if (!drawn) to.view("map");
    },
    nextHead() {
      const heads = Math.max(...subjects.map((subject) => subject.heads));
      const { head } = chosen.get();
      if (heads) to.head(head === null ? 0 : head + 1 < heads ? head + 1 : null);
    },
    top(by) {
      const most = Math.max(...subjects.map((subject) => subject.units.pieces.tokens.length));
      const next = (chosen.get().top || most) + by;
      set({ top: next >= most ? 0 : Math.max(1, next) });
      return true;
    },
    layer(by) {
      const depth = Math.max(...subjects.map((subject) => subject.depth));
      if (!depth) return false;
      const next = (chosen.get().layer ?? depth) + by;
      set({ layer: next >= depth ? null : Math.max(0, next) });
      return true;
    },
    theme: () => set({ theme: look.dark ? "light" : "dark" }),
    open: (name) => parts[name].showModal(),
    opened: () => parts.help.open || parts.save.open,
    move(target, dx, dy) {
      const at = parts.cards.find((each) => each.element.contains(target));
      const drawn = at?.pictures.find((each) => each.element.contains(target));
      if (drawn) drawn.step(dx, dy);
      else if (!at?.text.element.contains(target)) return false; // the page scrolls
      else if (dy) return to.layer(-dy);
      else {
        at.text.step(dx);
        if (hovered) announce(sentence(at.subject, chosen.get(), hovered));
      }
      return true;
    },
    pin(target) {
      const at = parts.cards.find((each) => each.element.contains(target));
      const token = target.dataset?.token ?? hovered?.token;
      if (!at || token === undefined || target.matches("button, a")) return false;
      pin(at.subject, Number(token));
      return true;
    },
    release() {
      if (!chosen.get().pin && !hovered) return false;
      hovered = null;
      set({ pin: null });
      return true;
    },
  };
  const pin = (subject, token, { view, layer } = {}) => {
    const { pin: before, layer: at } = chosen.get();
    const same = before?.text === subject.text && before.token === token && (view !== "layers" || at === layer);
    set({
      pin: same ? null : { text: subject.text, token },
      ...(view === "layers" ? { layer: same ? null : layer } : {}),
    });
  };
  const announce = (text) => (parts.live.textContent = text);

  const save = async (format, way) => {
    const shown = shownSubjects();
    const state = chosen.get();
    const views = VIEWS_DRAWN.filter((view) => state.views.includes(view.name));
    const explained = besides(shown[0], shown).length === shown.length && explainedByAll(shown);
    const page = () => sheet(shown, state, views, look, { title: payload.title, explained }, focusFor);
    try {
      const content = { png: async () => toPng(await page(), look), svg: async () => toSvg(await page(), look), json: () => toJson(shown),
        csv: () => toCsv(shown, state) }[format]();
      if (way === "copy") await copy(await content);
      else download(await content, fileName(shown), format);
      announce(way === "copy" ? `${format.toUpperCase()} copied` : `${format.toUpperCase()} downloaded`);
      parts.save.close();
    } catch (error) {
      announce(`That did not work: ${error.message}`);
    }
    parts.live.classList.add("seen");
    clearTimeout(fading); // an earlier word's time is not this one's
    fading = setTimeout(() => parts?.live.classList.remove("seen"), 4000);
  };

  // What is on the page -------------------------------------------------------------------------------------------

  const cardOf = (subject) =>
    card(subject, subjects, VIEWS_DRAWN.filter((view) => chosen.get().views.includes(view.name)), {
      hover: (found) => hover(subject, typeof found === "number" ? { token: found } : found),
      leave: () => hover(subject, null),
      pin: (token, found) => pin(subject, token, found),
      look: () => look,
      state: chosen.get,
      focus: () => focusFor(subject),
      announce,
    });

  const build = () => {
    parts?.cards.forEach((each) => each.destroy());
    const state = chosen.get();
    const bar = toolbar(subjects, VIEWS_DRAWN, to);
    const names = legend(subjects, to);
    const cards = shownSubjects().map(cardOf);
    const help = helpDialog();
    const saving = saveDialog(save);
    const live = make("p", { class: "live", role: "status", "aria-live": "polite" });
    const plain = state.views.length === 0 || cards.every((each) => each.pictures.length === 0);
    const main = make("div", { class: plain ? "cards plain" : "cards" }, ...cards.map((each) => each.element));
    const page = make("div", { class: "wherefrom" }, header(payload, subjects, buttons(to)), bar.element,
      names?.element, main, make("slot", { name: "after" }), live, help, saving);
    root.replaceChildren(...(options.sheet ? [make("link", { rel: "stylesheet", href: options.sheet })] : []), page);
    parts = { page, bar, names, cards, help, save: saving, live };
    dress();
  };

  /** Only the cards and what depends on them, so that the toolbar keeps its focus; a token or a picture has it again. */
  const rebuildCards = () => {
    const at = root.activeElement;
    const left = parts.cards.find((each) => each.element.contains(at));
    const drawn = left?.pictures.find((each) => each.element.contains(at));
    parts.cards.forEach((each) => each.destroy());
    const cards = shownSubjects().map(cardOf);
    const main = parts.page.querySelector(".cards");
    main.replaceChildren(...cards.map((each) => each.element));
    main.classList.toggle("plain", cards.every((each) => each.pictures.length === 0));
    parts.cards = cards;
    const again = left && (cards.find((each) => each.subject === left.subject) ?? cards[0]);
    const same = again?.pictures.find((each) => each.name === drawn?.name);
    if (same) same.focus();
    else again?.text.hold(Number(at.dataset.token ?? 0));
  };

  const dress = () => {
    look = lookOf(payload.colours, chosen.get().theme, rampOf);
    parts.page.classList.toggle("dark", look.dark);
    for (const [name, value] of Object.entries(look.variables)) parts.page.style.setProperty(name, value);
    refresh();
  };

  const refresh = () => {
    const state = chosen.get();
    parts.bar.update(state);
    parts.names?.update(state);
    parts.cards.forEach((each) => each.redraw());
    refocus();
  };

  const refocus = inFrame(() => parts.cards.forEach((each) => each.refocus()));

  chosen.listen((state, before) => {
    const cards = ({ views, hidden }) => JSON.stringify([views, hidden]);
    if (cards(state) !== cards(before)) rebuildCards();
    if (state.theme !== before.theme) dress();
    else refresh();
    if (options.hash) keep(state);
  });
  const keep = (state) => {
    try {
      history.replaceState(null, "", `#${toHash(state)}`);
    } catch {
      // A page without an address of its own (a frame in a notebook) keeps its state to itself.
    }
  };
  const onHash = () => set(fromHash(location.hash));
  const onKey = (event) => {
    if (press(event, to)) {
      event.preventDefault();
      event.stopPropagation();
    }
  };
  const keysOn = options.keys === "page" ? document : element;
  keysOn.addEventListener("keydown", onKey);
  if (options.hash) window.addEventListener("hashchange", onHash);
  const unwatch = watchTheme(() => parts && dress());

  build();
  return {
    /** Another payload; what was chosen stays where it fits. */
    update(next) {
      subjects = subjectsOf(next);
      payload = next;
      hovered = null;
      chosen.set(fitState(chosen.get(), subjects));
      build();
    },
    destroy() {
      keysOn.removeEventListener("keydown", onKey);
      window.removeEventListener("hashchange", onHash);
      unwatch();
      refocus.cancel();
      parts.cards.forEach((each) => each.destroy());
      root.replaceChildren();
    },
    state: () => chosen.get(),
  };
}
