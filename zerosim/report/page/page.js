(() => {
"use strict";
// The page round the timeline: which of the two schemes of colours counts, and rows of tables that show in the timeline
// what they are about. Without this script every number still stands in the tables. Nothing is stored.

const root = document.documentElement;

function dark() {
  const chosen = root.dataset.theme;
  return chosen ? chosen === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
}

function button(text, press) {
  const made = document.createElement("button");
  made.type = "button";
  made.textContent = text;
  made.addEventListener("click", press);
  return made;
}

function offerScheme() {
  const other = () => (dark() ? "Light colours" : "Dark colours");
  const toggle = button(other(), () => {
    root.dataset.theme = dark() ? "light" : "dark";
    toggle.textContent = other();
  });
  toggle.className = "scheme";
  document.querySelector("header.top").append(toggle);
}

offerScheme();
})();
