// The view: one window of time for all its panels, one filter, one op that is chosen. Everything is made inside the
// element that was handed over; nothing outside it is touched, and nothing is drawn but in a frame of the browser.

const CLOSEST = 2e-7; // of the step: the narrowest window, two hundred thousand ticks of the columns
const SNAP = 1e-9; // of the step: so near to an edge is at it

class View {
  constructor(element, figures) {
    this.element = element;
    this.window = { start: 0, end: 1 };
    Object.assign(this, { panels: [], selection: null, drawn: 0, width: 0 });
    this.filter = new Filter(this);
    this.looking = new Looking(this);
    element.classList.add("zerosim-timeline");
    this.kinds = figures[0]?.kinds ?? [];
    this.inks = new Inks(element, this.kinds);
    this.controls = new Controls(this);
    this.area = make("div", "zerosim-panels");
    this.tip = make("div", "zerosim-tip");
    this.tip.hidden = true;
    this.said = make("div", "zerosim-said");
    this.said.setAttribute("aria-live", "polite");
    element.replaceChildren(this.controls.element, this.area, this.tip, this.said);
    listenStrip(this, this.controls);
    this.watch();
    listenAnywhere(this);
    this.load(figures);
    this.fit();
    this.frame(); // there at once for who asks
  }

  /** What changes the picture from outside: width, theme, density. */
  watch() {
    const again = () => { this.inks.refresh(); this.changed(); };
    this.sizes = new ResizeObserver(() => { if (this.area.clientWidth !== this.width) this.changed(); });
    this.sizes.observe(this.area);
    this.themes = new MutationObserver(again);
    this.themes.observe(document.documentElement, { attributes: true, subtree: true, attributeFilter: ["data-theme"] });
    this.stop = new AbortController();
    const { signal } = this.stop;
    window.matchMedia("(prefers-color-scheme: dark)").addEventListener("change", again, { signal });
    const denser = () => { if (this.inks.density !== window.devicePixelRatio) again(); };
    window.addEventListener("resize", denser, { signal });
  }

  load(figures) {
    const kept = this.panels.map((panel) => panel.ranks.name);
    const focused = this.panels.map((panel) => panel.focused());
    this.kinds = figures[0]?.kinds ?? [];
    this.inks.kinds = this.kinds;
    this.panels = [];
    figures.forEach((given) => this.panels.push(new Panel(this, new Figure(given)))); // a later one asks for the first
    this.panels.forEach((panel, number) => {
      if (kept[number]) panel.choose(kept[number]);
      listen(this, panel);
      listenKeys(this, panel);
    });
    this.seconds = Math.max(...this.panels.map((panel) => panel.figure.seconds), 1e-9);
    this.area.replaceChildren(...this.panels.map((panel) => panel.element));
    focused.forEach((part, number) => { if (part) this.panels[number]?.[part].focus({ preventScroll: true }); });
    this.selection = null;
    this.looking.forget();
    this.looking.hideTip();
    this.changed();
  }

  // --- for the page round it ---

  /** Other figures; the window stays where it was as a share of the step. */
  show(figures) {
    const [start, end] = [this.window.start / this.seconds, this.window.end / this.seconds];
    this.load(figures);
    this.zoom(start * this.seconds, end * this.seconds);
  }

  /** Shows from `start` to `end` seconds; `slide`: at an edge of the step the width is kept. */
  zoom(start, end, slide = false) {
    const least = CLOSEST * this.seconds;
    const wide = Math.min(Math.max(end - start, least), this.seconds);
    const middle = (start + end) / 2;
    let from = slide || end - start < least ? middle - wide / 2 : start;
    from = Math.min(Math.max(from, 0), this.seconds - wide);
    if (from < SNAP * this.seconds) from = 0;
    this.window = { start: from, end: slide ? from + wide : Math.min(Math.max(end, from + wide), this.seconds) };
    if (this.window.end > this.seconds * (1 - SNAP)) this.window.end = this.seconds;
    this.ask();
  }

  state() {
    const { focus } = this.looking;
    return {
      ...this.window,
      seconds: this.seconds,
      find: this.filter.wanted,
      kinds: [...this.filter.chosen].map((kind) => this.kinds[kind].name),
      ranks: this.panels.map((panel) => panel.ranks.name),
      matches: this.filter.matches(),
      intervals: this.filter.intervals(),
      focus: focus ? focus.panel.told(focus)[0] : "",
    };
  }

  /** Takes the view away. */
  remove() {
    this.sizes.disconnect();
    this.themes.disconnect();
    this.stop.abort();
    cancelAnimationFrame(this.asked);
    this.element.replaceChildren();
  }

  // --- drawing ---

  /** Panels, width or theme changed: what is drawn once is drawn again. */
  changed() {
    this.old = true;
    this.filtered();
  }

  filtered() {
    this.stale = true;
    this.ask();
  }

  ask() {
    this.asked ??= requestAnimationFrame(() => this.frame());
  }

  frame() {
    cancelAnimationFrame(this.asked);
    this.asked = null;
    this.width = this.area.clientWidth;
    if (!this.width) return;
    this.left = Math.ceil(Math.min(Math.max(...this.panels.map((panel) => panel.margin()), 64), this.width / 3));
    const matching = this.filter.matchings();
    if (this.stale) this.prepare(matching);
    this.controls.drawStrip();
    this.drawn = this.panels.reduce((sum, panel, number) => sum + panel.draw(matching[number]), 0);
  }

  prepare(matching) {
    if (this.old) this.controls.fillLegend();
    this.old = this.stale = false;
    this.controls.drawStripBase(matching);
    this.controls.mark();
  }

  // --- the window ---

  fit() {
    this.zoom(0, this.seconds);
  }

  isFit() {
    return this.window.end - this.window.start >= this.seconds * (1 - 1e-9);
  }

  zoomBy(factor, around = (this.window.start + this.window.end) / 2) {
    const { start, end } = this.window;
    if ((end - start) * factor <= CLOSEST * this.seconds) return;
    const [from, to] = [around - (around - start) * factor, around + (end - around) * factor];
    this.zoom(Math.max(from, 0), Math.min(to, this.seconds));
    this.say(span(this.window.start, this.window.end));
  }

  pan(seconds) {
    this.zoom(this.window.start + seconds, this.window.end + seconds, true);
  }

  /** Marks {from, to}, or nothing. */
  select(selection) {
    this.selection = selection;
    this.panels.forEach((panel) => panel.drawOver());
  }

  zoomToSelection() {
    const { from, to } = this.selection;
    this.selection = null;
    this.zoom(Math.min(from, to), Math.max(from, to));
  }

  zoomTo(spot) {
    if (spot.index < 0) return;
    const [start, end] = [spot.set.marks.start[spot.index], spot.set.marks.end[spot.index]];
    this.zoom(start - (end - start), end + (end - start));
  }

  // --- the filter ---

  /** Shows the ops whose name contains a text. */
  find(wanted) {
    this.filter.wanted = wanted;
    if (this.controls.search.value !== wanted) this.controls.search.value = wanted;
    this.filtered();
  }

  /** Shows a kind of work, by its number in `kinds`, or no longer. */
  toggle(kind) {
    const { chosen } = this.filter;
    if (!chosen.delete(kind)) chosen.add(kind);
    this.filtered();
    this.element.dispatchEvent(new CustomEvent("zerosim-filter")); // for a page that shows the choice elsewhere too
  }

  say(text) {
    this.said.textContent = text;
  }
}

globalThis.zerosim = {
  ...globalThis.zerosim,
  units,
  /** Draws figures (what Python's `figure` returns) inside an element. */
  timeline: (element, figures) => new View(element, figures),
};
