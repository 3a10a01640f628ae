(() => {
"use strict";
// The page round the timeline: which of the two schemes of colours counts, and rows of tables that show in the timeline
// what they are about. Without this script every number still stands in the tables. Nothing is stored.

const AROUND = 0.02; // of the step: what is shown on both sides of a moment
const root = document.documentElement;
const place = document.getElementById("view");
const view = place && zerosim.timeline(place, JSON.parse(document.getElementById("figures").textContent));

function button(className, press) {
  const made = document.createElement("button");
  made.type = "button";
  made.className = className;
  made.addEventListener("click", press);
  return made;
}

// --- light and dark --------------------------------------------------------------------------------------------------

function isDark() {
  const chosen = root.dataset.theme;
  return chosen ? chosen === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
}

function offerScheme() {
  const toggle = button("scheme", () => {
    root.dataset.theme = isDark() ? "light" : "dark";
    name();
  });
  const name = () => { toggle.textContent = isDark() ? "Light colours" : "Dark colours"; };
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", name);
  name();
  document.querySelector("header.top").append(toggle);
}

// --- rows that show something in the timeline ------------------------------------------------------------------------

/** The name of a row becomes a button, with its content as it is. */
function offer(row, about, press) {
  const name = row.cells[0];
  const made = button("look", press);
  made.append(...name.childNodes);
  made.title = about;
  name.append(made);
  return made;
}

function offerKinds() {
  const offered = [...document.querySelectorAll("tr[data-kind]")].flatMap((row) => {
    const number = view.kinds.findIndex((kind) => kind.name === row.dataset.kind);
    if (number < 0) return [];
    const about = `Show only this in the timeline: ${view.kinds[number].word}`;
    return [{ number, made: offer(row, about, () => press(number)) }];
  });
  const refresh = () => {
    const [only, ...others] = view.state().kinds;
    offered.forEach(({ number, made }) => made.setAttribute("aria-pressed", !others.length && view.kinds[number].name === only));
  };
  const press = (number) => {
    const chosen = view.state().kinds.map((name) => view.kinds.findIndex((kind) => kind.name === name));
    const alone = chosen.length === 1 && chosen[0] === number;
    chosen.filter((each) => alone || each !== number).forEach((each) => view.toggle(each));
    if (!chosen.includes(number)) view.toggle(number);
    come();
  };
  place.addEventListener("zerosim-filter", refresh); // the legend chooses kinds too
  refresh();
}

function offerMoments() {
  document.querySelectorAll("tr[data-at]").forEach((row) => {
    offer(row, "Show this moment in the timeline", () => {
      const [at, half] = [Number(row.dataset.at), AROUND * view.state().seconds];
      view.zoom(at - half, at + half);
      come();
    });
  });
}

/** Brings the timeline into sight. */
function come() {
  const { top } = place.getBoundingClientRect();
  if (top < 0 || top > innerHeight / 2) document.getElementById("timeline").scrollIntoView();
}

// --- paper -----------------------------------------------------------------------------------------------------------

/** On paper everything is unfolded and light, the drawing too; afterwards all is as it was. */
function preparePaper() {
  const before = { theme: undefined, folded: [] };
  addEventListener("beforeprint", () => {
    before.theme = root.dataset.theme;
    before.folded = [...document.querySelectorAll("details:not([open])")];
    before.folded.forEach((each) => { each.open = true; });
    root.dataset.theme = "light";
    draw();
  });
  addEventListener("afterprint", () => {
    before.folded.forEach((each) => { each.open = false; });
    if (before.theme) root.dataset.theme = before.theme;
    else delete root.dataset.theme;
  });
}

/** Now, for there is no other frame before the paper. */
function draw() {
  if (!view) return;
  view.inks.refresh();
  view.changed();
  view.frame();
}

offerScheme();
preparePaper();
if (view) {
  offerKinds();
  offerMoments();
  globalThis.zerosim.view = view; // for who looks at the page with a console
}
})();
