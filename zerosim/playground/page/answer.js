// What is shown of an answer: headline numbers, memory, findings, what the scenario says besides.
//
// Rule: numbers come written from the server; here they are only compared with those of the baseline. Better and worse
// are said in words, not by colour alone. Text from outside becomes text, never markup.
(() => {
"use strict";

const { element } = window.play;
const SAME = 5e-5; // of a share: what rounds to 0.0 %

/** "12.3 % less than the baseline: better". */
const compared = (value, before, better) => {
  if (!before) return value ? "baseline: 0" : "as the baseline";
  const change = value / before - 1;
  if (Math.abs(change) < SAME) return "as the baseline";
  const way = change < 0 ? "less" : "more";
  const judged = better ? `: ${way === better ? "better" : "worse"}` : "";
  return `${Number((100 * Math.abs(change)).toPrecision(3))} % ${way}${judged}`;
};

const judgement = (value, before, better) => {
  if (!before || !better || Math.abs(value / before - 1) < SAME) return "same";
  return (value < before) === (better === "less") ? "better" : "worse";
};

const change = (number, before) =>
  element("dd", {
    className: `change ${judgement(number.value, before.value, number.better)}`,
    textContent: `${compared(number.value, before.value, number.better)} (was ${before.text})`,
  });

const headline = (number, pinned) => {
  const before = pinned?.numbers.find((each) => each.name === number.name);
  const shown = [element("dt", { textContent: number.label, title: number.about }),
    element("dd", { className: "number", textContent: number.text })];
  if (before) shown.push(change(number, before));
  const card = element("div", { className: "card" }, ...shown);
  card.dataset.number = number.name;
  card.dataset.value = number.value;
  return card;
};

const tier = (each, pinned) => {
  const before = pinned?.memory.find((other) => other.tier === each.tier);
  const meter = element("meter", { min: 0, max: each.capacity || 1, value: Math.min(each.peak, each.capacity) });
  meter.setAttribute("aria-label", `${each.label}: ${each.text}`);
  const said = [element("dt", { textContent: each.label }),
    element("dd", { className: "number small", textContent: each.text }), element("dd", {}, meter)];
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

const finding = (found) => {
  const said = element("li", { className: found.severity },
    element("b", { textContent: `${found.severity}: ` }), found.message);
  if (found.remedy) said.append(element("span", { className: "remedy", textContent: ` ${found.remedy}` }));
  return said;
};

const items = (list, texts) => list.replaceChildren(...texts.map((text) => element("li", { textContent: text })));

/** Fragments that the server wrote, as nodes: parsed by themselves, so that nothing in them runs. */
const fragments = (html) => [...new DOMParser().parseFromString(html, "text/html").body.childNodes];

/** Everything below the status line but the timeline. */
const show = (answer, pinned) => {
  const by = (id) => document.getElementById(id);
  by("title").textContent = answer.title;
  document.title = `${answer.title} · zerosim play`;
  by("numbers").replaceChildren(...answer.numbers.map((each) => headline(each, pinned)));
  by("memory").replaceChildren(...answer.memory.map((each) => tier(each, pinned)));
  by("findings").replaceChildren(...answer.findings.map(finding));
  if (!answer.findings.length) items(by("findings"), ["Nothing was found."]);
  by("sections").replaceChildren(...fragments(answer.sections ?? ""));
  items(by("kept-list"), answer.kept);
  by("waiting").hidden = !answer.waiting;
  by("waiting").textContent = answer.waiting;
};

Object.assign(window.play, { show, items });
})();
