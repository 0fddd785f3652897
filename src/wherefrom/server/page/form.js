// The form: which texts, model, methods, target and foil are asked for.

import { pictureField } from "./image.js";
import { make } from "/viewer/dom.js";

const FEATURED = ["deeplift", "alti-logit", "integrated-gradients", "gradient-x-input", "attcat", "alti", "value-zeroing",
  "globenc", "attention-rollout"];
const WORDS = ["masked-lm", "causal-lm"]; // tasks whose target is a word
const TEXT = "seq2seq"; // and the one whose target is a text
const EDGES = ["start", "end", "answer"];

const by = (id) => document.getElementById(id);

export function form({ models, methods, examples, limits }, complain) {
  const picture = pictureField(complain);
  const modelOf = (name) => models.find((each) => each.name === name);
  /** What stands for the word that a model fills in; null where it fills in none. */
  const maskOf = (name) => (modelOf(name)?.task === "masked-lm" ? modelOf(name).mask : null);
  let picked = new Set(models[0].compared);
  let written = by("text"); // the field that was written in last
  let untouched = true; // as long as nobody has chosen methods, they are those that suit the model

  // Choices that depend on the model ----------------------------------------------------------------------------------

  function fitModel() {
    complain(null); // what was wrong with another model's picture or text
    const model = modelOf(by("model").value);
    const before = [by("target"), by("foil")];
    by("target-slot").replaceChildren(control("target", model, "the prediction"));
    by("foil-slot").replaceChildren(control("foil", model, "nothing"));
    for (const [i, id] of ["target", "foil"].entries()) { // a class of the last model is no word of this one
      if (before[i]?.tagName === by(id).tagName) setIfThere(by(id), before[i].value);
    }
    for (const id of ["text-field", "examples"]) by(id).hidden = model.images;
    by("pair-toggle").hidden = model.images || model.translates;
    by("image-field").hidden = !model.images;
    if (by("pair-toggle").hidden) showPair(false);
    by("compare").querySelector("[value=text]").disabled = model.images;
    if (model.images && by("compare").value === "text") by("compare").value = "";
    fitOthers(model);
    showOther();
    by("position-field").hidden = model.task !== "token-classification"; // which gives a label to every token
    if (by("position-field").hidden) by("position").value = "";
    if (untouched) pick(model.compared);
    drawMethods();
    by("model").title = [model.summary, `${model.family}, ${model.layers} layers, ${model.heads} heads`].filter(Boolean).join(" · ");
  }

  /** The models that can be asked the same: a text, a picture, or a text and what is written for it. */
  function fitOthers(model) {
    const alike = models.filter((each) => each.images === model.images && each.translates === model.translates);
    const other = alike.find((each) => each.name !== model.name), chosen = by("other-model").value;
    by("other-model").replaceChildren(...alike.map((each) => make("option", { value: each.name }, each.name)));
    setIfThere(by("other-model"), other?.name);
    if (chosen !== model.name) setIfThere(by("other-model"), chosen);
    by("compare").querySelector("[value=model]").disabled = !other;
    if (!other && by("compare").value === "model") by("compare").value = "";
  }

  /** A list of classes, a field for a word, or nothing where the model predicts nothing. */
  function control(id, model, none) {
    if (model.task === TEXT && id === "target") {
      return make("input", { id, type: "text", placeholder: "the target text", spellcheck: "false" });
    }
    if (WORDS.includes(model.task)) {
      return make("input", { id, type: "text", placeholder: id === "target" ? none : "nothing", list: "words", maxlength: 100, spellcheck: "false" });
    }
    const classes = ["classification", "token-classification"].includes(model.task) ? model.labels : [];
    const options = model.task === "question-answering" && id === "target" ? EDGES : classes;
    const all = id === "target" && classes.length > 1 && classes.length <= 4 ? [make("option", { value: "all" }, "every class")] : [];
    return make("select", { id, disabled: options.length < 2 }, make("option", { value: "" }, none),
      ...options.map((label) => make("option", { value: label }, label)), ...all);
  }

  function setIfThere(element, value) {
    if (element.tagName === "INPUT" || [...element.options].some((option) => option.value === value)) element.value = value;
  }

  // Methods -----------------------------------------------------------------------------------------------------------

  /** Why a method is not defined on the model that is chosen; nothing where it is. */
  const undefinedHere = (name) => modelOf(by("model").value)?.undefined[name];

  /** Why a method cannot be chosen now; nothing where it can. */
  function whyNot(name) {
    const why = undefinedHere(name);
    if (why) return `not defined on this model: ${why}`;
    const full = [...picked].filter((each) => !undefinedHere(each)).length >= limits.methods;
    return full && !picked.has(name) ? `${limits.methods} methods are chosen, the most for one question` : "";
  }

  function drawMethods() {
    const shown = [...new Set([...FEATURED.filter((name) => methods.some((each) => each.name === name)), ...picked])];
    by("methods").replaceChildren(...shown.map((name) => {
      const method = methods.find((each) => each.name === name);
      const why = whyNot(name);
      return make("button", { type: "button", class: "chip", "aria-pressed": String(picked.has(name) && !why), disabled: Boolean(why),
        title: why || method.summary.replaceAll("`", ""), onclick: () => toggle(name) }, name);
    }));
    for (const box of by("all-methods").querySelectorAll("input")) {
      const why = whyNot(box.value);
      box.disabled = Boolean(why);
      box.checked = picked.has(box.value) && !why;
      const label = box.closest("label"), note = label.querySelector(".why");
      label.classList.toggle("off", Boolean(why));
      label.title = note.textContent = why;
    }
  }

  function pick(names) {
    picked = new Set(names.filter((name) => methods.some((each) => each.name === name)));
    drawMethods();
  }

  function toggle(name) {
    untouched = false;
    if (!picked.delete(name)) picked.add(name);
    drawMethods();
    [...by("methods").children].find((chip) => chip.textContent === name)?.focus();
  }

  function listMethods() {
    const groups = [["How tokens mix, layer by layer", (each) => !each.class_specific], ["Towards one output", (each) => each.class_specific]];
    by("all-methods").replaceChildren(...groups.map(([title, belongs]) =>
      make("div", { class: "group", role: "group", "aria-label": title }, make("h3", {}, title),
        ...methods.filter(belongs).map((each) => {
          const box = make("input", { type: "checkbox", value: each.name });
          box.addEventListener("change", () => {
            untouched = false;
            if (box.checked) picked.add(each.name);
            else picked.delete(each.name);
            drawMethods();
          });
          return make("label", {}, box, make("span", {}, make("b", {}, each.name), " ", make("span", { class: "hint" }, each.summary.replaceAll("`", ""), " ", make("cite", { title: each.paper }, each.cite)), make("small", { class: "why" })));
        }))));
  }

  // Texts ---------------------------------------------------------------------------------------------------------------

  function showPair(shown) {
    by("pair-field").hidden = !shown;
    by("pair-toggle").textContent = shown ? "Without the second text" : "Add a second text";
    by("pair-toggle").setAttribute("aria-expanded", String(shown));
    if (!shown) by("pair").value = "";
  }

  function showOther() {
    by("other-field").hidden = by("compare").value !== "text";
    by("other-model-field").hidden = by("compare").value !== "model";
    by("mask").hidden = !maskHere();
    by("mask").textContent = `Insert ${maskHere() ?? "a mask"}`;
  }

  /** The mask that is asked for: the model's, or that of the model which it is compared with. */
  const maskHere = () => maskOf(by("model").value) ?? (by("compare").value === "model" ? maskOf(by("other-model").value) : null);

  /** Into the text that was written in last, or the first without; a second text of a pair belongs to both. */
  function putMask() {
    const mask = maskHere();
    const texts = [by("text"), ...(by("compare").value === "text" ? [by("other")] : [])];
    const open = by("pair").value.includes(mask) ? [] : texts.filter((area) => !area.value.includes(mask));
    const area = open.includes(written) || (open.length && written === by("pair") && !by("pair-field").hidden) ? written : open[0];
    if (area) {
      const { value, selectionStart: start, selectionEnd: end } = area;
      const apart = (sign) => (/\S/.test(sign ?? "") ? " " : "");
      area.setRangeText(apart(value[start - 1]) + mask + apart(value[end]), start, end, "end");
    }
    (area ?? by("text")).focus();
  }

  function fill({ inputs, name, pair, model, target, foil, position, methods: names, compare, other, otherModel }) {
    if (inputs.image) picture.show({ image: inputs.image, name });
    else by("text").value = inputs;
    showPair(Boolean(pair));
    by("pair").value = pair ?? "";
    setIfThere(by("model"), model);
    fitModel();
    setIfThere(by("target"), target ?? "");
    setIfThere(by("foil"), foil ?? "");
    by("position").value = position ?? "";
    by("compare").value = compare ?? "";
    by("other").value = other ?? "";
    setIfThere(by("other-model"), otherModel ?? by("other-model").value);
    showOther();
    if (names) {
      untouched = false;
      pick(names);
    }
  }

  function read() {
    const { images, translates } = modelOf(by("model").value);
    const shown = images ? picture.value() : null;
    const asked = [...picked].filter((name) => !undefinedHere(name));
    return {
      images,
      translates,
      inputs: shown ? { image: shown.image } : images ? "" : by("text").value,
      name: shown?.name,
      pair: by("pair").value || null,
      model: by("model").value,
      target: by("target").value || null,
      every: by("target").tagName === "SELECT" && by("target").value === "all", // a word may be “all”
      foil: by("foil").value || null,
      position: /^\s*-?\d+\s*$/.test(by("position").value) ? Number(by("position").value) : by("position").value || null,
      methods: asked,
      towards: asked.filter((name) => methods.find((each) => each.name === name).class_specific), // which need an output
      mask: maskOf(by("model").value),
      otherMask: maskOf(by("other-model").value),
      compare: by("compare").value,
      other: by("other").value,
      otherModel: by("other-model").value,
    };
  }

  by("model").replaceChildren(...models.map((each) => make("option", { value: each.name }, each.name)));
  by("examples").append(...models.filter((model) => examples.some((each) => each.model === model.name)).map((model) =>
    make("optgroup", { label: model.name }, ...examples.map((each, i) => [each, i]).filter(([each]) => each.model === model.name)
      .map(([each, i]) => make("option", { value: i }, `${each.inputs}  (${each.source})`)))));
  by("examples").addEventListener("change", () => {
    if (by("examples").value !== "") fill({ ...examples[by("examples").value] });
    by("examples").value = "";
    by("text").focus();
  });
  by("model").addEventListener("change", fitModel);
  by("compare").addEventListener("change", () => {
    showOther();
    if (by("compare").value === "text" && !by("other").value) by("other").value = by("text").value;
    if (by("compare").value === "text") by("other").focus();
  });
  by("pair-toggle").addEventListener("click", () => showPair(by("pair-field").hidden));
  by("other-model").addEventListener("change", showOther);
  for (const id of ["text", "pair", "other"]) by(id).addEventListener("focus", () => (written = by(id)));
  by("mask").addEventListener("click", putMask);
  document.body.append(make("datalist", { id: "words" }));
  listMethods();
  drawMethods();
  fitModel();
  const first = examples.find((each) => each.model === by("model").value);
  if (first) fill(first);

  return {
    read,
    fill,
    /** Words to choose from as target or foil: what the model found likely. */
    suggest: (words) => by("words").replaceChildren(...words.map((word) => make("option", { value: word }))),
  };
}
