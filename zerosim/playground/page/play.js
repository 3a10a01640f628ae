// The page: where the knobs stand, the question that this is, and the answer that is shown.
//
// Rules: what is shown is the answer to where the knobs stand, or it says that it is not. A newer question ends an older
// one; answers that are not the newest are never shown. The address of the page carries all knobs (and the baseline's),
// so that it restores them.
(() => {
"use strict";

const { complain, element, items, knobs, short, show, typed } = window.play;
const [SOON, TYPING, PATIENCE] = [30, 350, 300]; // ms: after a knob, after a key, before "computing…"
const PIN = "pin.";
const by = (id) => document.getElementById(id);
const page = crypto.randomUUID();

const now = {
  begun: null, // what the server told first: controls, machines, where the knobs start
  start: "", // whose knobs these are
  state: {}, // where they stand
  pinned: null, // the answer of the baseline
  answer: null, // the last answer
  number: 0, // of the newest question
  asking: null, // AbortController of it
  timer: 0,
  view: null, // the timeline
  made: new Map(), // the knobs
};

// --- questions ---

/** One question; its answer, or what is wrong as {wrong: [...]}; null where a newer one has come. */
const ask = async (address, state, signal, name = page, number = now.number) => {
  const body = JSON.stringify({ start: now.start, state, page: name, number });
  const headers = { "Content-Type": "application/json" };
  const told = await fetch(address, { method: "POST", headers, body, signal });
  if (told.headers.get("Content-Type") !== "application/json") return told.blob();
  const answer = await told.json();
  return answer.superseded ? null : answer;
};

const unreachable = "zerosim play does not answer: it has ended, or the machine is very busy.";

/** Asks what the knobs say; only the newest answer is shown. */
const play = async () => {
  now.asking?.abort();
  now.number += 1;
  const [number, asking] = [now.number, new AbortController()];
  now.asking = asking;
  const waiting = setTimeout(() => said("computing…", true), PATIENCE);
  const since = performance.now();
  try {
    const answer = await ask("/play", now.state, asking.signal);
    if (answer && number === now.number) settle(answer, since);
  } catch (error) {
    if (error.name !== "AbortError") settle({ wrong: [{ control: "", text: unreachable }] }, since);
  } finally {
    clearTimeout(waiting);
  }
};

const later = (delay) => {
  clearTimeout(now.timer);
  now.timer = setTimeout(play, delay);
};

const said = (text, busy = false) => {
  by("status").textContent = text;
  by("shown").setAttribute("aria-busy", String(busy));
};

// --- answers ---

const settle = (answer, since) => {
  const beside = complain(now.made, answer.wrong ?? []);
  by("wrong").hidden = beside.length === 0;
  by("wrong").replaceChildren(...beside.map((text) => element("p", { textContent: text })));
  for (const id of ["answer", "more"]) by(id).classList.toggle("old", Boolean(answer.wrong));
  if (answer.wrong) {
    const shown = now.answer ? `Below is still ${now.answer.title}, as it was played last.` : 'Try "Back to the start".';
    said(`Not played${beside.length ? "" : ": the marked knob is wrong"}. ${shown}`);
    return;
  }
  now.answer = answer;
  draw();
  turn();
  address();
  said(`Played and drawn in ${Math.round(performance.now() - since)} ms.`);
};

const draw = () => {
  const { answer, pinned } = now;
  show(answer, pinned);
  const figures = pinned ? [named(pinned, "Baseline: "), named(answer, "Now: ")] : [answer.figure];
  if (now.view) now.view.show(figures);
  else now.view = zerosim.timeline(by("timeline"), figures);
  by("unpin").hidden = !pinned;
  by("get-deepspeed").disabled = !answer.deepspeed;
  by("get-deepspeed").title = answer.deepspeed ? "" : "Only ZeRO stages have one.";
};

const named = (answer, before) => ({ ...answer.figure, title: `${before}${answer.figure.title}` });

// --- knobs ---

const changed = (name, value, atOnce) => {
  now.state = { ...now.state, [name]: value };
  if (name === "topology") now.state = { ...now.state, nodes: null, gpus: null, network: null };
  if (name === "nodes") now.state = { ...now.state, gpus: null };
  turn(name);
  later(atOnce ? SOON : TYPING);
};

/** What a knob without a value of its own means at the moment. */
const meant = (name) => {
  const machine = now.begun.machines[now.state.topology];
  const known = { nodes: machine?.nodes, network: machine?.network, gpus: now.answer?.gpus };
  return now.state[name] ?? known[name] ?? null;
};

/** All knobs to where the state says, but for one that is being typed in; those that do not belong are hidden. */
const turn = (busy = "") => {
  const machine = now.begun.machines[now.state.topology];
  for (const [name, knob] of now.made) {
    const { strategies } = knob.control;
    knob.box.hidden = strategies.length > 0 && !strategies.includes(now.state.strategy);
    if (!(knob.focused?.() && (name === busy || busy === ""))) knob.show(now.state[name], meant(name));
    if (name.startsWith("offload_")) knob.allow(machine?.tiers ?? []);
  }
  ported(machine);
};

/** A machine whose ports cannot be turned together has no such knob; one node has no use for it. */
const ported = (machine) => {
  const { input, slider, words, control } = now.made.get("network");
  input.disabled = slider.disabled = !machine || machine.network === null;
  const alone = now.answer?.nodes === 1 && now.answer.state.topology === now.state.topology;
  words.textContent = input.disabled
    ? "This machine has no ports, or ports that differ, or it is described part by part."
    : alone ? `${control.about} One node: nothing crosses it now.` : control.about;
};

// --- the address carries everything ---

const asText = (value) => (value === null ? "" : String(value));

const address = () => {
  const words = new URLSearchParams({ start: now.start });
  for (const [name, value] of Object.entries(now.state)) words.set(name, asText(value));
  if (now.pinned) {
    words.set("pinned", "yes");
    for (const [name, value] of Object.entries(now.pinned.state)) {
      if (value !== now.state[name]) words.set(PIN + name, asText(value));
    }
  }
  history.replaceState(null, "", `#${words}`);
};

/** A value as its control has it. */
const asValue = (name, text) => {
  const control = now.begun.controls.find((each) => each.name === name);
  if (control?.kind === "number") return typed(text, control);
  return control?.kind === "switch" && ["true", "false"].includes(text) ? text === "true" : text;
};

/** Where the knobs stand by the address: {start, state, pinned}; what it does not say is as at the start. */
const addressed = () => {
  const words = [...new URLSearchParams(location.hash.slice(1))];
  const told = words.filter(([name]) => !["start", "pinned"].includes(name));
  const values = (wanted) => Object.fromEntries(told
    .filter(([name]) => name.startsWith(PIN) === wanted)
    .map(([name, text]) => [name.replace(PIN, ""), asValue(name.replace(PIN, ""), text)]));
  const given = Object.fromEntries(words);
  const state = { ...now.begun.state, ...values(false) };
  return { start: given.start ?? now.begun.start, state, pinned: given.pinned ? { ...state, ...values(true) } : null };
};

const restore = async () => {
  const { start, state, pinned } = addressed();
  Object.assign(now, { start, state, pinned: null });
  turn();
  if (pinned) {
    const answer = await ask("/play", pinned, undefined, `${page}-pinned`, now.number).catch(() => null);
    now.pinned = answer?.wrong ? null : answer;
  }
  await play();
};

// --- buttons ---

const pin = () => {
  now.pinned = now.answer;
  draw();
  address();
  said(now.pinned ? "Pinned: numbers are compared with these from now on." : "Unpinned.");
};

const unpin = () => {
  now.pinned = null;
  draw();
  address();
  said("Unpinned.");
};

const reset = () => {
  Object.assign(now, { start: now.begun.start, state: { ...now.begun.state } });
  turn();
  play();
};

const dark = () => {
  const chosen = document.documentElement.dataset.theme;
  return chosen ? chosen === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
};

const otherScheme = () => { by("scheme").textContent = dark() ? "Light colours" : "Dark colours"; };

const scheme = () => {
  document.documentElement.dataset.theme = dark() ? "light" : "dark";
  otherScheme();
};

const link = async () => {
  try {
    await navigator.clipboard.writeText(location.href);
    said("The link is in the clipboard.");
  } catch {
    said("The link is the address of this page.");
  }
};

/** A file of exactly what is shown. */
const download = async (button) => {
  const kind = button.id.replace("get-", "");
  const file = await ask(`/download/${kind}`, now.answer.state, undefined, `${page}-${kind}`).catch(() => null);
  if (!(file instanceof Blob)) {
    said(file?.wrong?.map((each) => each.text).join(" ") ?? unreachable);
    return;
  }
  const url = URL.createObjectURL(file);
  element("a", { href: url, download: button.dataset.file }).click();
  URL.revokeObjectURL(url);
  said(`${button.dataset.file}: ${short(file.size)} bytes.`);
};

// --- the start ---

const begin = async () => {
  now.begun = await (await fetch("/start")).json();
  by("from").textContent = now.begun.name ? `from ${now.begun.name}` : "";
  by("told").hidden = now.begun.told.length === 0;
  items(by("told-list"), now.begun.told);
  now.made = knobs(by("knobs"), now.begun.controls, changed);
  by("pin").addEventListener("click", pin);
  by("unpin").addEventListener("click", unpin);
  by("reset").addEventListener("click", reset);
  by("link").addEventListener("click", link);
  by("scheme").addEventListener("click", scheme);
  otherScheme();
  document.querySelectorAll("[data-file]").forEach((each) => each.addEventListener("click", () => download(each)));
  addEventListener("hashchange", restore);
  await restore();
};

begin();
})();
