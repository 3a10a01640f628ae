// The knobs: a slider with a box, a choice or a switch for each control that the server names.
//
// Rule: a knob holds what was typed. Whether that is right is for the server to say, in the words of the command line;
// `wrong` stands beside the knob then. A slider moves over the stops of its control; a value between two of them is
// kept as it is, and the slider stands at the nearest. Text from outside becomes text, never markup.
(() => {
"use strict";

const GROUPS = [
  ["Model and machine", ["model", "topology", "nodes", "gpus", "network"]],
  ["Strategy", []], // whatever is in no other group
  ["Batch", ["micro_batch", "accumulation", "sequence", "checkpointing"]],
];
const UNITS = [[1e9, "B"], [1e6, "M"], [1e3, "k"]];

const element = (name, properties = {}, ...inside) => {
  const made = Object.assign(document.createElement(name), properties);
  made.append(...inside);
  return made;
};

/** 5e8 as "500M", for eyes; boxes have the plain number. */
const short = (value) => {
  const [scale, letter] = UNITS.find(([least]) => value >= least) ?? [1, ""];
  return `${Number((value / scale).toPrecision(4))}${letter}`;
};

/** "500M" of elements as files have it: a number and one letter of `units`; NaN where it is not that. */
const scaled = (plain, units) => {
  const [, number, letter] = /^([\d.]+(?:e[+-]?\d+)?)\s*([a-z])$/i.exec(plain) ?? [];
  return letter in units ? Number((Number(number) * units[letter]).toPrecision(15)) : NaN;
};

/** A number where the text is one, else the text; nothing where that means something. */
const typed = (text, control) => {
  const plain = text.trim();
  if (plain === "" && control.null) return null;
  const value = plain === "" ? NaN : [Number(plain), scaled(plain, control.counts)].find(Number.isFinite);
  return Number.isFinite(value) ? value : plain;
};

/** "1 sequence", "500M elements", "200 Gb/s". */
const counted = (value, unit) => `${short(value)} ${value === 1 ? unit.replace(/(?<=[a-z])s$/, "") : unit}`;

/** A sentence of its own beside the words of help. */
const ended = (text) => (text ? `${text[0].toUpperCase()}${text.slice(1)}.` : "");

const nearest = (stops, value) => {
  const far = (stop) => Math.abs(Math.log((stop || 0.5) / (value || 0.5)));
  return stops.reduce((best, stop, place) => (far(stop) < far(stops[best]) ? place : best), 0);
};

/** The parts that every knob has: label, words of help, a place for what is wrong. */
const frame = (control) => {
  const id = `knob-${control.name}`;
  const wrong = element("p", { className: "wrong", id: `${id}-wrong`, hidden: true });
  const words = element("span", { textContent: control.about });
  const about = element("p", { className: "about", id: `${id}-about` }, words);
  const label = element("label", { htmlFor: id, textContent: control.label, title: control.path });
  const box = element("div", { className: `knob ${control.kind}`, id: `${id}-frame` });
  return { id, wrong, about, words, label, box };
};

const described = (input, parts) => {
  input.setAttribute("aria-describedby", `${parts.about.id} ${parts.wrong.id}`);
  return input;
};

/** A choice of names. */
const choice = (control, changed) => {
  const parts = frame(control);
  const options = control.choices.map(([value, label]) => element("option", { value, textContent: label }));
  const input = described(element("select", { id: parts.id, name: control.name }, ...options), parts);
  input.addEventListener("change", () => changed(input.value, true));
  parts.box.append(parts.label, input, parts.about, parts.wrong);
  const allow = (values) => options.forEach((option) => { option.disabled = !values.includes(option.value); });
  return { ...parts, input, allow, show: (value) => { input.value = value; } };
};

/** On or off. */
const toggle = (control, changed) => {
  const parts = frame(control);
  const input = described(element("input", { id: parts.id, name: control.name, type: "checkbox" }), parts);
  input.setAttribute("role", "switch");
  input.addEventListener("change", () => changed(input.checked, true));
  parts.box.append(parts.label, input, parts.about, parts.wrong);
  return { ...parts, input, show: (value) => { input.checked = value === true; } };
};

/** A number: a box, and a slider where the control has stops. */
const number = (control, changed) => {
  const parts = frame(control);
  const { stops } = control;
  const input = element("input", { id: parts.id, name: control.name, type: "text", inputMode: "decimal" });
  const slider = element("input", { type: "range", min: 0, max: stops.length - 1, step: 1, id: `${parts.id}-slider` });
  const unit = element("span", { className: "unit" });
  slider.setAttribute("aria-label", `${control.label}, slider`);
  slider.hidden = stops.length === 0;
  const said = (value) => (control.unit && typeof value === "number" ? counted(value, control.unit) : control.unit);
  const none = (meant) => (input.disabled ? "" : [said(meant), control.null].filter(Boolean).join(", "));
  /** What a value means, round the box in which it may be being typed. */
  const tell = (value, meant = value) => {
    input.placeholder = value === null && meant !== null && meant !== undefined ? String(meant) : "";
    unit.textContent = ended(value === null ? none(meant) : said(value));
    if (typeof meant === "number" && stops.length) slider.value = nearest(stops, meant);
    slider.setAttribute("aria-valuetext", said(meant) || String(meant));
  };
  const show = (value, meant = value) => {
    input.value = value ?? "";
    tell(value, meant);
  };
  slider.addEventListener("input", () => {
    show(stops[slider.valueAsNumber]);
    changed(stops[slider.valueAsNumber], true);
  });
  input.addEventListener("input", () => changed(typed(input.value, control), false));
  input.addEventListener("change", () => changed(typed(input.value, control), true)); // Enter, or it is left
  described(input, parts);
  parts.about.prepend(unit, " ");
  parts.box.append(parts.label, element("span", { className: "value" }, slider, input), parts.about, parts.wrong);
  return { ...parts, input, slider, show, tell, focused: () => document.activeElement === input };
};

const MAKERS = { choice, number, switch: toggle };

const groups = (controls) => {
  const placed = new Set(GROUPS.flatMap(([, names]) => names));
  return GROUPS.map(([title, names]) => [title, controls.filter((each) =>
    names.length ? names.includes(each.name) : !placed.has(each.name))]);
};

/** All knobs inside a form. `changed(name, value, now)`: a knob was turned; `now` is false while someone types. */
const knobs = (form, controls, changed) => {
  const made = new Map();
  for (const [title, inside] of groups(controls)) {
    const set = element("fieldset", {}, element("legend", { textContent: title }));
    for (const control of inside) {
      const knob = MAKERS[control.kind](control, (value, now) => changed(control.name, value, now));
      made.set(control.name, { ...knob, control });
      set.append(knob.box);
    }
    form.append(set);
  }
  form.addEventListener("submit", (event) => event.preventDefault());
  return made;
};

/** What is wrong, beside its knob; the number of them that have none. */
const complain = (made, wrong) => {
  const of = (name) => wrong.filter((each) => each.control === name).map((each) => each.text);
  for (const [name, knob] of made) {
    const told = of(name);
    knob.wrong.hidden = told.length === 0;
    knob.wrong.textContent = told.join("\n");
    knob.input.setAttribute("aria-invalid", String(told.length > 0));
    knob.box.classList.toggle("bad", told.length > 0);
    if (told.length) knob.box.hidden = false;
  }
  return wrong.filter((each) => !made.has(each.control)).map((each) => each.text);
};

window.play = { element, knobs, complain, typed, short };
})();
