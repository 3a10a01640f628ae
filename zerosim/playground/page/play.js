// The page: where the knobs stand, the question that this is, and the answer that is shown.
//
// Rules: what is shown is the answer to where the knobs stand, or it says that it is not. A knob that turns ends the
// question before it, whether the next one is asked already or not; answers to earlier ones are never shown. Of a step
// that takes long a step of one micro-step is drawn first, and said to be one; no number is taken from it. The address
// of the page is that of what is shown and of the baseline, so that it restores them.
(() => {
"use strict";

const { ask, complain, element, items, knobs, link, short, show } = window.play;
const [SOON, TYPING] = [30, 350]; // ms: after a knob, after a key
const LONG = 450; // ms that an answer took: then one micro-step is drawn first
const COMPUTING = "computing…";
const by = (id) => document.getElementById(id);

const now = {
  begun: null, // what the server told first: controls, machines, where the knobs start
  start: "", // whose knobs these are
  state: {}, // where they stand
  pinned: null, // the answer of the baseline
  answer: null, // the last answer
  took: 0, // ms until it was shown
  number: 0, // of where the knobs stand: each turn has its own, and its question too
  restored: 0, // links, and what the reader chose as baseline since: the last one is meant
  asking: new AbortController(), // of the newest question
  timer: 0,
  view: null, // the timeline
  made: new Map(), // the knobs
};

// --- questions ---

/** The knobs stand elsewhere: what is shown is not theirs until they are answered. */
const turned = (start, state) => {
  clearTimeout(now.timer);
  now.asking.abort();
  Object.assign(now, { start, state, number: now.number + 1 });
  said(COMPUTING, true);
};

/** Asks what the knobs say; the answer is shown if they still stand there. */
const play = async () => {
  clearTimeout(now.timer);
  now.timer = 0;
  now.asking.abort();
  now.asking = new AbortController();
  const { number, start, state, asking: { signal } } = now;
  const since = performance.now();
  const wanted = () => number === now.number && !signal.aborted;
  if (lengthy()) {
    const one = await ask("/play", { start, state: { ...state, accumulation: 1 }, number }, "", signal);
    if (!wanted()) return;
    if (one.figure) preview(one, state.accumulation);
  }
  const answer = await ask("/play", { start, state, number }, "", signal);
  if (wanted() && !answer.superseded) settle(answer, since);
};

/** Whether the reader would wait for all micro-steps. Those of a pipeline are no steps of their own. */
const lengthy = () => now.view && now.took > LONG && now.state.accumulation > 1 && now.state.strategy !== "pipeline";

/** The timeline of a step of one micro-step, named as that; numbers wait for the step that is asked for. */
const preview = (answer, count) => {
  const alone = named(answer, `With 1 micro-step, while all ${count} are played: `);
  now.view.show(now.pinned ? [named(now.pinned, "Baseline: "), alone] : [alone]);
  said(`${COMPUTING} The timeline is that of 1 micro-step instead of ${count}; the numbers are of before.`, true);
};

const later = (delay) => {
  now.timer = setTimeout(play, delay);
};

const said = (text, busy = false) => {
  by("status").replaceChildren(...[text].flat());
  by("shown").setAttribute("aria-busy", String(busy));
};

/** Said beside; that what is shown is not what the knobs say stays said. */
const noted = (text) => {
  const busy = by("shown").getAttribute("aria-busy") === "true";
  said(busy ? `${COMPUTING} ${text}` : text, busy);
};

const texts = (answer) => answer.wrong.map((each) => each.text).join(" ");

// --- answers ---

const settle = (answer, since) => {
  const beside = complain(now.made, answer.wrong ?? []);
  by("wrong").hidden = beside.length === 0;
  by("wrong").replaceChildren(...beside.map((text) => element("p", { textContent: text })));
  for (const id of ["answer", "more"]) by(id).classList.toggle("old", Boolean(answer.wrong));
  if (answer.wrong) {
    const shown = now.answer ? `Below is still ${now.answer.title}, as it was played last.` : 'Try "Back to the start".';
    said(["Not played", ...(beside.length ? [] : [": ", ...culprits(answer.wrong)]), `. ${shown}`]);
    return;
  }
  now.answer = answer;
  draw();
  turn();
  now.took = performance.now() - since;
  said(`Played and drawn in ${Math.round(now.took)} ms.`);
};

/** "Nodes and Micro-batch are wrong": names that lead to their knobs. */
const culprits = (wrong) => {
  const wanted = [...new Set(wrong.map((each) => each.control))].map((name) => now.made.get(name));
  const names = wanted.map((knob) => element("button", { type: "button", className: "name",
    textContent: knob.control.label, onclick: () => knob.input.focus() }));
  return [...names.flatMap((name, place) => (place ? [" and ", name] : [name])), names.length > 1 ? " are wrong" : " is wrong"];
};

const draw = () => {
  const { answer, pinned } = now;
  show(answer, pinned);
  const figures = pinned ? [named(pinned, "Baseline: "), named(answer, "Now: ")] : [answer.figure];
  if (now.view) now.view.show(figures);
  else now.view = zerosim.timeline(by("timeline"), figures);
  by("unpin").hidden = !pinned;
  document.querySelectorAll("[data-shown]").forEach((each) => { each.disabled = false; });
  by("get-deepspeed").disabled = !answer.deepspeed;
  by("get-deepspeed").title = answer.deepspeed ? "" : "Only ZeRO stages have one.";
  history.replaceState(null, "", link.written(now.begun.start, answer.state, pinned?.state ?? null));
};

const named = (answer, before) => ({ ...answer.figure, title: `${before}${answer.figure.title}` });

// --- knobs ---

const FOLLOWING = { topology: { nodes: null, gpus: null, network: null }, nodes: { gpus: null } };

const changed = (name, value, atOnce) => {
  if (value === now.state[name]) { // typed before: Enter only asks sooner
    if (atOnce && now.timer) play();
    return;
  }
  turned(now.start, { ...now.state, [name]: value, ...FOLLOWING[name] });
  turn(name);
  later(atOnce ? SOON : TYPING);
};

/** What a knob without a value of its own means at the moment. */
const meant = (name) => {
  const machine = now.begun.machines[now.state.topology];
  const known = { nodes: machine?.nodes, network: machine?.network, gpus: now.answer?.gpus };
  return now.state[name] ?? known[name] ?? null;
};

/** All knobs to where the state says, but for the box that is being typed in; those that do not belong are hidden. */
const turn = (busy = "") => {
  const machine = now.begun.machines[now.state.topology];
  ported(machine);
  for (const [name, knob] of now.made) {
    const { strategies } = knob.control;
    knob.box.hidden = strategies.length > 0 && !strategies.includes(now.state.strategy);
    const typing = knob.focused?.() && (name === busy || busy === "");
    knob[typing ? "tell" : "show"](now.state[name], meant(name));
    if (name.startsWith("offload_")) knob.allow(machine?.tiers ?? []);
  }
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

// --- links and baselines ---

/** The knobs and the baseline of the address; another link, or a baseline chosen since, ends this one's. */
const restore = async () => {
  const { start, state, pinned, notes } = link.read(now.begun, location.hash);
  turned(start, state);
  turn();
  const { number } = now;
  const restored = based(null);
  lost(notes.join(" "));
  const answer = pinned ? await ask("/play", { start, state: pinned, number }, "-pinned") : null;
  if (restored !== now.restored) return;
  if (answer?.wrong) lost([...notes, `The baseline of this link is left out: ${texts(answer)}`].join(" "));
  else if (answer?.figure) now.pinned = answer;
  if (number === now.number) await play();
  else if (now.answer) draw();
};

/** From now on this is the baseline; the number of this choice. */
const based = (pinned) => {
  Object.assign(now, { pinned, restored: now.restored + 1 });
  lost("");
  return now.restored;
};

/** What of a link is not as it says. */
const lost = (text) => {
  by("lost").hidden = !text;
  by("lost").textContent = text;
};

const pin = () => {
  based(now.answer);
  draw();
  noted("Pinned: numbers are compared with these from now on.");
};

const unpin = () => {
  based(null);
  draw();
  noted("Unpinned.");
};

const reset = () => {
  turned(now.begun.start, { ...now.begun.state });
  lost("");
  turn();
  play();
};

// --- buttons ---

const dark = () => {
  const chosen = document.documentElement.dataset.theme;
  return chosen ? chosen === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
};

/** The colours that were chosen in this tab; where a browser keeps nothing, none. */
const chosenScheme = (chosen) => {
  try {
    if (chosen) sessionStorage.setItem("scheme", chosen);
    return sessionStorage.getItem("scheme");
  } catch {
    return null;
  }
};

const otherScheme = () => { by("scheme").textContent = dark() ? "Light colours" : "Dark colours"; };

const scheme = () => {
  document.documentElement.dataset.theme = dark() ? "light" : "dark";
  chosenScheme(document.documentElement.dataset.theme);
  otherScheme();
};

const copied = async () => {
  try {
    await navigator.clipboard.writeText(location.href);
    noted("The link is in the clipboard.");
  } catch {
    noted("The link is the address of this page.");
  }
};

/** A file of exactly what is shown. */
const download = async (button) => {
  const kind = button.id.replace("get-", "");
  const question = { start: now.begun.start, state: now.answer.state, number: now.number };
  const { file, ...told } = await ask(`/download/${kind}`, question, `-${kind}`);
  if (!file) {
    if (told.wrong) noted(texts(told));
    return;
  }
  const url = URL.createObjectURL(file);
  element("a", { href: url, download: button.dataset.file }).click();
  URL.revokeObjectURL(url);
  noted(`${button.dataset.file}: ${short(file.size)} bytes.`);
};

// --- the start ---

const BUTTONS = { pin, unpin, reset, link: copied, scheme };

const begin = async () => {
  now.begun = await (await fetch("/start")).json();
  by("from").textContent = now.begun.name ? `from ${now.begun.name}` : "";
  by("told").hidden = now.begun.told.length === 0;
  items(by("told-list"), now.begun.told);
  now.made = knobs(by("knobs"), now.begun.controls, changed);
  for (const [id, act] of Object.entries(BUTTONS)) by(id).addEventListener("click", act);
  if (chosenScheme()) document.documentElement.dataset.theme = chosenScheme();
  otherScheme();
  document.querySelectorAll("[data-file]").forEach((each) => each.addEventListener("click", () => download(each)));
  addEventListener("hashchange", restore);
  await restore();
};

begin();
})();
