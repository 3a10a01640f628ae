// The address of the page: where all knobs stand, and those of the baseline as far as they differ, as words of a link.
(() => {
"use strict";

const { typed } = window.play;
const PIN = "pin.";
const APART = ["start", "pinned"]; // words that are no knobs

const asText = (value) => (value === null ? "" : String(value));

/** The words for a state of that start, and for the state of a baseline or null. */
const written = (start, state, pinned) => {
  const words = new URLSearchParams({ start });
  for (const [name, value] of Object.entries(state)) words.set(name, asText(value));
  if (pinned) {
    words.set("pinned", "yes");
    for (const [name, value] of Object.entries(pinned)) {
      if (value !== state[name]) words.set(PIN + name, asText(value));
    }
  }
  return `#${words}`;
};

/** A value as its control has it. */
const asValue = (control, text) => {
  if (control?.kind === "number") return typed(text, control);
  return control?.kind === "switch" && ["true", "false"].includes(text) ? text === "true" : text;
};

/** Where the knobs stand by the words: {start, state, pinned}; what they do not say is as at the start. */
const read = (begun, text) => {
  const words = [...new URLSearchParams(text.slice(1))];
  const told = words.filter(([name]) => !APART.includes(name));
  const control = (name) => begun.controls.find((each) => each.name === name);
  const values = (wanted) => Object.fromEntries(told
    .filter(([name]) => name.startsWith(PIN) === wanted)
    .map(([name, value]) => [name.replace(PIN, ""), asValue(control(name.replace(PIN, "")), value)]));
  const given = Object.fromEntries(words);
  const state = { ...begun.state, ...values(false) };
  return { start: given.start ?? begun.start, state, pinned: given.pinned ? { ...state, ...values(true) } : null };
};

Object.assign(window.play, { link: { read, written } });
})();
