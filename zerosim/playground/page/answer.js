// What is shown of an answer: headline numbers, memory, the sections of the report, what the scenario says besides.
//
// Rule: numbers come written from the server; here they are only compared with those of the baseline. Better and worse
// are said in words, not by colour alone. Text from outside becomes text, never markup.
(() => {
"use strict";

const { element, short } = window.play;
const SAME = 5e-5; // of a share: what rounds to 0.0 %

/** By how much a number differs from the baseline's: a share in points of a hundred, others relative to it. */
const difference = (number, before) => {
  if (number.share) return number.value - before.value;
  return before.value ? number.value / before.value - 1 : Number(number.value > 0);
};

/** "12.3 % less, better (was 812 ms)"; neither better nor worse where the two are of different `work`. */
const change = (number, before) => {
  const by = difference(number, before);
  if (Math.abs(by) < SAME) return element("dd", { className: "change", textContent: "as the baseline" });
  const way = by < 0 ? "less" : "more";
  const judged = number.work !== before.work ? "" : way === number.better ? "better" : "worse";
  const much = `${Number((100 * Math.abs(by)).toPrecision(3))} ${number.share ? "points" : "%"}`;
  const told = judged ? `, ${judged} (was ${before.text})` : ` (was ${before.text}, for ${short(before.work)} tokens)`;
  return element("dd", { className: `change ${judged}`.trim(), textContent: `${much} ${way}${told}` });
};

const headline = (number, pinned) => {
  const before = pinned?.numbers.find((each) => each.name === number.name);
  const shown = [element("dt", { textContent: number.label, title: number.about }),
    element("dd", { className: "headline", textContent: number.text })];
  if (before) shown.push(change(number, before));
  const card = element("div", { className: "card" }, ...shown);
  card.dataset.number = number.name;
  card.dataset.value = number.value;
  return card;
};

const tier = (each, pinned) => {
  const before = pinned?.memory.find((other) => other.tier === each.tier);
  const most = Math.max(each.peak, each.capacity) || 1; // beyond `high` a meter is drawn as bad, below `low` as good
  const meter = element("meter", { max: most, high: each.capacity, low: each.capacity, optimum: 0, value: each.peak });
  meter.setAttribute("aria-label", `${each.label}: ${each.text}`);
  const said = [element("dt", { textContent: each.label }),
    element("dd", { className: "headline small", textContent: each.text }), element("dd", {}, meter)];
  if (!each.fits) {
    said.push(element("dd", { className: "unfit", textContent: `DOES NOT FIT: ${each.lacking} too much` }));
  }
  if (before) {
    said.push(change({ value: each.peak, better: "less" }, { value: before.peak, text: before.text }));
  }
  const card = element("div", { className: `card${each.fits ? "" : " over"}` }, ...said);
  card.dataset.tier = each.tier;
  return card;
};

const items = (list, texts) => list.replaceChildren(...texts.map((text) => element("li", { textContent: text })));

/** Fragments that the server wrote, as nodes: parsed by themselves, so that nothing in them runs. A table that is wider
    than the page moves in a frame of its own. */
const fragments = (html) => {
  const { body } = new DOMParser().parseFromString(html, "text/html");
  for (const table of body.querySelectorAll("table")) {
    const frame = element("div", { className: "wide" });
    table.replaceWith(frame);
    frame.append(table);
  }
  return [...body.childNodes];
};

/** Everything below the status line but the timeline. */
const show = (answer, pinned) => {
  const by = (id) => document.getElementById(id);
  by("title").textContent = answer.title;
  document.title = `${answer.title} · zerosim play`;
  by("numbers").replaceChildren(...answer.numbers.map((each) => headline(each, pinned)));
  by("memory").replaceChildren(...answer.memory.map((each) => tier(each, pinned)));
  by("sections").replaceChildren(...fragments(answer.sections ?? ""));
  items(by("kept-list"), answer.kept);
  by("waiting").hidden = !answer.waiting;
  by("waiting").textContent = answer.waiting;
};

Object.assign(window.play, { show, items });
})();
