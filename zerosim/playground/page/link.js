// The address of the page: where all knobs stand, and those of the baseline as far as they differ, as words of a link.
(() => {
"use strict";

const { typed } = window.play;
const PIN = "pin.";
const END = "end"; // the last word of a whole link
const APART = ["start", "pinned", END]; // words that are no knobs

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
  words.set(END, words.size);
  return `#${words}`;
};

/** A value as its control has it. */
const asValue = (control, text) => {
  if (control?.kind === "number") return typed(text, control);
  return control?.kind === "switch" && ["true", "false"].includes(text) ? text === "true" : text;
};

/** The words of an address; of one that was cut, without the last, whose value may be cut too. */
const split = (text) => {
  const words = [...new URLSearchParams(text.slice(1))];
  const cut = text.startsWith("#start=") && !whole(words);
  return { words: cut ? words.slice(0, -1) : words, cut };
};

/** A link that the page wrote ends in the number of words before its end; one that names no start is a reader's own. */
const whole = (words) => words.at(-1)[0] === END && Number(words.at(-1)[1]) === words.length - 1;

/** What a reader should know of a link. */
const notes = (words, cut) => {
  const names = words.map(([name]) => name);
  const twice = [...new Set(names.filter((name, place) => names.indexOf(name) !== place))];
  return [
    ...(cut ? ["This link is cut: knobs that it does not name any more stand where they start."] : []),
    ...twice.map((name) => `This link says ${name} twice: the last is taken.`),
  ];
};

/** Where the knobs stand by the words: {start, state, pinned, notes}; what they do not say is as at the start. */
const read = (begun, text) => {
  const { words, cut } = split(text);
  const told = words.filter(([name]) => !APART.includes(name));
  const control = (name) => begun.controls.find((each) => each.name === name);
  const values = (wanted) => Object.fromEntries(told
    .filter(([name]) => name.startsWith(PIN) === wanted)
    .map(([name, value]) => [name.replace(PIN, ""), asValue(control(name.replace(PIN, "")), value)]));
  const given = Object.fromEntries(words);
  const state = { ...begun.state, ...values(false) };
  const pinned = given.pinned ? { ...state, ...values(true) } : null;
  return { start: given.start ?? begun.start, state, pinned, notes: notes(words, cut) };
};

Object.assign(window.play, { link: { read, written } });
})();
