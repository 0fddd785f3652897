// A view on two canvases: the picture, drawn when what it shows changes, and over it what is in focus, drawn alone when
// the pointer moves.

import { inFrame, make } from "./dom.js";
import { canvasSurface } from "./surface.js";

export function picture(view, subject, { hover, leave, pin, look, state, focus, announce }) {
  const base = make("canvas", { "aria-hidden": "true" });
  const over = make("canvas", { class: "over", "aria-hidden": "true" });
  const stage = make("div", { class: "stage", role: "img", tabindex: "0" }, base, over);
  const caption = make("figcaption", {});
  const element = make("figure", { class: `picture ${view.name}` }, caption, make("div", { class: "scroll" }, stage));
  let box = null;
  let drawn = null; // what the two canvases show
  let marked = null;
  let width = 0;

  const pointOf = (event) => {
    const frame = base.getBoundingClientRect();
    return box && view.hit(box, event.clientX - frame.left, event.clientY - frame.top);
  };
  const point = (event) => {
    const found = pointOf(event);
    if (found) hover(found);
    else leave();
  };
  stage.addEventListener("pointermove", point);
  stage.addEventListener("pointerdown", point);
  stage.addEventListener("pointerleave", leave);
  stage.addEventListener("blur", leave);
  stage.addEventListener("click", (event) => {
    const found = pointOf(event);
    if (found) pin(found.token, found);
  });

  /** The arrow keys on a focused picture. */
  const step = (dx, dy) => {
    const now = focus();
    const next = view.move(box, now && now.view === view.name ? now : null, dx, dy);
    hover(next);
    announce(view.say(box, next, state()));
  };

  const fit = (canvas, context) => {
    const density = window.devicePixelRatio || 1;
    const [w, h] = [Math.ceil(box.width * density), Math.ceil(box.height * density)];
    if (canvas.width !== w || canvas.height !== h) {
      [canvas.width, canvas.height] = [w, h];
      canvas.style.width = `${box.width}px`;
      canvas.style.height = `${box.height}px`;
    }
    context.setTransform(density, 0, 0, density, 0, 0);
    context.clearRect(0, 0, box.width, box.height);
  };

  const draw = () => {
    if (!width) return;
    const now = state();
    box = view.layout(subject, now, width);
    const context = base.getContext("2d");
    fit(base, context);
    view.draw(canvasSurface(context), box, now, look());
    caption.textContent = view.caption(box, now);
    stage.setAttribute("aria-label", `${view.describe(box, now)}. Arrow keys move, Enter pins.`);
    marked = null;
    mark();
  };

  const mark = () => {
    if (!box) return;
    const now = focus();
    const key = JSON.stringify([now, state().layer]);
    if (key === marked) return;
    marked = key;
    const context = over.getContext("2d");
    fit(over, context);
    base.classList.toggle("dim", Boolean(view.dims?.(state(), now)));
    view.overlay(canvasSurface(context), box, state(), look(), now);
  };

  const redraw = inFrame(draw);
  const observer = new ResizeObserver(([entry]) => {
    const now = Math.floor(entry.contentRect.width);
    if (now === width) return;
    width = now;
    redraw();
  });
  observer.observe(element);

  return {
    element,
    name: view.name,
    focus: () => stage.focus({ preventScroll: true }),
    step,
    mark,
    /** Draws again if what this view depends on has changed. */
    update() {
      const key = JSON.stringify([view.depends(state()), look().dark]);
      if (key === drawn) return;
      drawn = key;
      redraw();
    },
    destroy() {
      observer.disconnect();
      redraw.cancel();
    },
  };
}
