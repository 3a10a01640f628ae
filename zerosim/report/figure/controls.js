// What stands above the panels: zoom, search, the legend whose entries are filters, the strip of the whole step, help.

const HELP = [
  ["wheel (with Ctrl or without)", "zoom around the pointer; sideways: move"],
  ["drag", "move; with Shift: choose a stretch and zoom to it"],
  ["click, double click", "choose an op for the keys; zoom to it"],
  ["Left, Right", "move by a tenth"],
  ["+, −", "zoom in and out"],
  ["0, Home", "the whole step"],
  ["j, k", "next and previous op of the lane, or box of the row"],
  ["Up, Down", "row above, below, from phases to memory"],
  ["c", "the op that this one waited for"],
  ["Enter", "zoom to the op; in the search: the next match"],
  ["Escape", "close, forget the search"],
  ["?", "these keys"],
];
const STRIP = 6; // pixels of a lane in the strip

class Controls {
  constructor(view) {
    this.view = view;
    this.element = make("div", "zerosim-controls");
    this.search = this.searchBox();
    this.count = make("output", "zerosim-count");
    this.range = make("output", "zerosim-range");
    this.legend = make("div", "zerosim-legend");
    this.legend.setAttribute("role", "group");
    this.legend.setAttribute("aria-label", "Kinds of work: show these alone");
    this.help = this.helpList();
    this.strip = make("canvas", "zerosim-strip");
    this.strip.setAttribute("aria-hidden", "true");
    this.base = document.createElement("canvas");
    this.element.append(this.bar(), this.legend, this.help, this.strip);
  }

  bar() {
    const bar = make("div", "zerosim-bar");
    const zooms = make("span", "zerosim-zooms");
    zooms.append(
      this.button("−", "Zoom out", () => this.view.zoomBy(2)),
      this.button("+", "Zoom in", () => this.view.zoomBy(0.5)),
      this.button("fit", "Show the whole step", () => this.view.fit()),
      this.button("?", "Keys", () => this.toggleHelp()),
    );
    zooms.lastChild.setAttribute("aria-haspopup", "dialog");
    bar.append(zooms, this.search, this.count, this.range);
    return bar;
  }

  button(text, label, act) {
    const button = make("button", "zerosim-button", text);
    button.type = "button";
    button.setAttribute("aria-label", label);
    button.title = label;
    button.addEventListener("click", act);
    return button;
  }

  searchBox() {
    const box = make("input", "zerosim-search");
    box.type = "search";
    box.placeholder = "name contains";
    box.spellcheck = false;
    box.setAttribute("aria-label", "Find ops whose name contains");
    box.addEventListener("input", () => this.view.find(box.value));
    box.addEventListener("keydown", (event) => {
      if (event.key === "Enter") this.view.looking.nextMatch(event.shiftKey ? -1 : 1);
      if (event.key === "Escape") this.view.find("");
    });
    return box;
  }

  /** Over the page, so that nothing moves; the browser closes it by Escape and gives the focus back. */
  helpList() {
    const box = make("dialog", "zerosim-help");
    const list = make("dl", "");
    HELP.forEach(([keys, what]) => list.append(make("dt", "", keys), make("dd", "", what)));
    box.setAttribute("aria-label", "Keys of the timeline");
    box.append(list, this.button("Close", "Close the keys", () => this.toggleHelp(false)));
    box.addEventListener("click", (event) => { if (event.target === box) this.toggleHelp(false); }); // beside the list
    return box;
  }

  toggleHelp(shown = !this.help.open) {
    if (shown && !this.help.open) this.help.showModal();
    if (!shown) this.help.close();
  }

  /** One button for each kind that is in the panels. */
  fillLegend() {
    const present = new Set();
    this.view.panels.forEach((panel) => panel.rows.filter((each) => each.legend).forEach((each) => (
      each.sets.forEach(({ marks }) => new Set(marks.kind).forEach((kind) => present.add(kind)))
    )));
    const kinds = this.view.kinds.map((_, number) => number).filter((number) => present.has(number));
    this.legend.replaceChildren(...kinds.map((kind) => this.entry(kind)));
  }

  entry(kind) {
    const button = make("button", "zerosim-entry");
    button.type = "button";
    const swatch = make("canvas", "zerosim-swatch");
    const context = sized(swatch, 18, 12);
    const pen = new Pen(context, this.view.inks, 0);
    const low = this.view.kinds[kind].name === "transfer" ? 5 : 0;
    pen.filled(kind, 0, low, 18, 12 - low);
    button.append(swatch, make("span", "", this.view.kinds[kind].word));
    button.dataset.kind = kind;
    button.addEventListener("click", () => this.view.toggle(kind));
    return button;
  }

  /** Which entries are chosen, and how many ops match. */
  mark() {
    const { filter } = this.view;
    [...this.legend.children].forEach((button) => {
      button.setAttribute("aria-pressed", String(filter.chosen.has(Number(button.dataset.kind))));
    });
    this.count.textContent = filter.count();
  }

  /** The whole step in a strip, drawn once; on every frame the window over it. */
  drawStripBase(matching) { // one a panel
    const { view } = this;
    const lanes = view.panels.map((panel) => panel.rows.filter((each) => each.steps));
    const height = lanes.reduce((sum, each) => sum + each.length * STRIP + 4, 4);
    const context = sized(this.base, view.width, height);
    const pen = new Pen(context, view.inks, 0);
    const scale = this.stripScale();
    let top = 4;
    view.panels.forEach((_, number) => {
      lanes[number].forEach((each) => {
        pen.set({ ...each, top, height: STRIP - 1 }, { ...each.sets.at(-1), label: () => "" }, scale, matching[number]);
        top += STRIP;
      });
      top += 4;
    });
    this.stripHeight = height;
  }

  stripScale() {
    return new Scale(0, this.view.seconds, this.view.left, Math.max(this.view.width - this.view.left, 10));
  }

  drawStrip() {
    const { view } = this;
    const context = sized(this.strip, view.width, this.stripHeight);
    const scale = this.stripScale();
    context.drawImage(this.base, 0, 0, view.width, this.stripHeight);
    const [left, right] = [scale.x(view.window.start), scale.x(view.window.end)];
    context.fillStyle = view.inks.tone("veil");
    context.fillRect(scale.left, 0, left - scale.left, this.stripHeight);
    context.fillRect(right, 0, scale.left + scale.width - right, this.stripHeight);
    context.strokeStyle = view.inks.tone("focus");
    context.lineWidth = 1.5;
    context.strokeRect(left, 1, Math.max(right - left, 2), this.stripHeight - 2);
    context.font = FONT;
    context.textAlign = "right";
    context.fillStyle = view.inks.tone("quiet");
    context.fillText("whole step", scale.left - 8, this.stripHeight / 2 + 3.5);
    const { start, end } = view.window;
    this.range.textContent = span(start, end);
  }
}

/** "1.2 s to 1.4 s (200 ms)". */
function span(start, end) {
  const wide = end - start;
  return `${moment(start, wide)} to ${moment(end, wide)} (${units.seconds(wide)})`;
}
