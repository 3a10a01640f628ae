// The view: one window of time for all its panels, one filter, one op that is chosen. Everything is made inside the
// element that was handed over; nothing outside it is touched, and nothing is drawn but in a frame of the browser.

const CLOSEST = 2e-7; // of the step: the narrowest window, a hundred ticks of the columns

class View {
  constructor(element, figures) {
    this.element = element;
    this.window = { start: 0, end: 1 };
    this.wanted = "";
    this.chosen = new Set();
    Object.assign(this, { panels: [], focus: null, hovered: null, cursor: null, selection: null, drawn: 0, width: 0 });
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
    this.load(figures);
    this.fit();
    this.frame(); // there at once for who asks
  }

  /** What changes the picture from outside: width, theme, density. */
  watch() {
    const again = () => { this.inks.refresh(); this.changed(); };
    this.sizes = new ResizeObserver(() => this.changed());
    this.sizes.observe(this.area);
    this.themes = new MutationObserver(again);
    this.themes.observe(document.documentElement, { attributes: true, subtree: true, attributeFilter: ["data-theme"] });
    this.stop = new AbortController();
    const { signal } = this.stop;
    window.matchMedia("(prefers-color-scheme: dark)").addEventListener("change", again, { signal });
    window.addEventListener("resize", () => { if (this.inks.density !== window.devicePixelRatio) again(); }, { signal });
  }

  load(figures) {
    const kept = this.panels.map((panel) => panel.ranks.name);
    this.kinds = figures[0]?.kinds ?? [];
    this.inks.kinds = this.kinds;
    this.panels = figures.map((given) => new Panel(this, new Figure(given)));
    this.panels.forEach((panel, number) => {
      if (kept[number]) panel.choose(kept[number]);
      listen(this, panel);
      listenKeys(this, panel);
    });
    this.seconds = Math.max(...this.panels.map((panel) => panel.figure.seconds), 1e-9);
    this.area.replaceChildren(...this.panels.map((panel) => panel.element));
    Object.assign(this, { focus: null, hovered: null, selection: null, cursor: null });
    this.hideTip();
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
    this.window = { start: from, end: slide ? from + wide : Math.min(Math.max(end, from + wide), this.seconds) };
    this.ask();
  }

  state() {
    const ranks = this.panels.map((panel) => panel.ranks.name);
    const kinds = [...this.chosen].map((kind) => this.kinds[kind].name);
    const { focus } = this;
    return { ...this.window, seconds: this.seconds, find: this.wanted, kinds, ranks, matches: this.matches(), focus: focus ? focus.panel.told(focus)[0] : "" };
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
    const matching = this.matchings();
    if (this.stale) this.prepare(matching);
    this.controls.drawStrip();
    this.drawn = this.panels.reduce((sum, panel, number) => sum + panel.draw(matching[number]), 0);
  }

  prepare(matching) {
    if (this.old) this.controls.fillLegend();
    this.old = this.stale = false;
    this.controls.drawStripBase(matching);
    this.count();
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
    this.zoom(Math.max(around - (around - start) * factor, 0), Math.min(around + (end - around) * factor, this.seconds));
    this.say(span(this.window.start, this.window.end));
  }

  pan(seconds) {
    this.zoom(this.window.start + seconds, this.window.end + seconds, true);
  }

  select(from, to) {
    this.selection = { from, to };
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

  find(wanted) {
    this.wanted = wanted;
    if (this.controls.search.value !== wanted) this.controls.search.value = wanted;
    this.filtered();
  }

  toggle(kind) {
    if (!this.chosen.delete(kind)) this.chosen.add(kind);
    this.filtered();
  }

  /** Of each panel, whether a box of a kind and an op is one of those that were asked for. */
  matchings() {
    const some = this.chosen;
    return this.panels.map((panel) => {
      const found = this.named(panel);
      return (kind, op) => (!some.size || some.has(kind)) && (!found || (op >= 0 && found[op] === 1));
    });
  }

  /** The ops of a panel with the wanted name, kept until it or the panel changes; null where all are. */
  named(panel) {
    if (!this.wanted) return null;
    if (panel.named?.wanted !== this.wanted || panel.named.ranks !== panel.ranks) {
      const [ranks, low] = [panel.ranks, this.wanted.toLowerCase()];
      const found = Uint8Array.from({ length: ranks.ops }, (_, op) => Number(ranks.opName(op).toLowerCase().includes(low)));
      panel.named = { wanted: this.wanted, ranks, found };
    }
    return panel.named.found;
  }

  /** Spots of a panel's ops that match, in the order of time. */
  spots(panel, matching) {
    const found = [];
    panel.rows.filter((each) => each.steps).forEach((each) => {
      const { marks } = each.sets.at(-1);
      for (let index = 0; index < marks.count; index += 1) {
        if (matching(marks.kind[index], marks.op[index])) found.push(panel.spot(each, index));
      }
    });
    return found.sort((one, other) => start(one) - start(other));
  }

  /** Of each panel how many ops match, and their seconds. */
  matches() {
    const matching = this.matchings();
    return this.panels.map((panel, number) => {
      const found = { ops: 0, seconds: 0 };
      panel.rows.filter((each) => each.steps).forEach((each) => {
        const { marks } = each.sets.at(-1);
        for (let index = 0; index < marks.count; index += 1) {
          if (!matching[number](marks.kind[index], marks.op[index])) continue;
          found.ops += 1;
          found.seconds += lengthOf(marks, index);
        }
      });
      return found;
    });
  }

  count() {
    const asked = this.wanted || this.chosen.size;
    const told = this.matches().map(({ ops, seconds }) => `${counted(ops, "op")}, ${units.seconds(seconds)}`);
    this.controls.count.textContent = asked ? told.join("; ") : "";
  }

  nextMatch(direction) {
    const matching = this.matchings();
    const all = this.panels.flatMap((panel, number) => this.spots(panel, matching[number]));
    if (!all.length) return;
    const now = this.focus ? all.findIndex((spot) => same(spot, this.focus)) : -1;
    const next = now < 0 && direction < 0 ? all.length - 1 : (now + direction + all.length) % all.length;
    this.go(all[next]);
  }

  // --- what is looked at ---

  hover(spot, x = 0, y = 0) {
    this.hovered = spot;
    this.cursor = spot?.moment ?? null;
    const lines = spot ? spot.panel.told(spot) : [];
    if (lines.length) this.showTip(lines, x, y);
    else this.hideTip();
    this.panels.forEach((panel) => panel.drawOver());
  }

  /** A click chooses the op there; keys go on from it. */
  pick(spot) {
    this.focus = spot.index >= 0 && spot.row.steps && spot.set === spot.row.sets.at(-1) ? spot : null;
    this.panels.forEach((panel) => panel.drawOver());
  }

  /** Chooses an op, brings it into the window and tells it. */
  go(spot) {
    this.focus = spot;
    const [begun, ended] = [spot.set.marks.start[spot.index], spot.set.marks.end[spot.index]];
    const half = (this.window.end - this.window.start) / 2;
    if (ended > this.window.end || begun < this.window.start) this.zoom(spot.moment - half, spot.moment + half, true);
    this.frame();
    const lines = spot.panel.told(spot);
    const box = spot.panel.over.getBoundingClientRect();
    const scale = spot.panel.scale();
    const x = Math.min(Math.max(scale.x(spot.moment), scale.left), scale.left + scale.width);
    this.showTip(lines, box.left + x, box.top + spot.row.top + spot.row.height);
    this.say(`${spot.row.title}: ${lines.join(". ")}`);
  }

  goOp(panel, direction) {
    if (this.focus?.panel !== panel) return this.goFirst(panel, panel.lane(null, 0));
    const { row: each, set, index } = this.focus;
    if (index + direction >= 0 && index + direction < set.marks.count) this.go(panel.spot(each, index + direction));
    return true;
  }

  goLane(panel, direction) {
    if (this.focus?.panel !== panel) return this.goFirst(panel, panel.lane(null, 0));
    const each = panel.lane(this.focus.row, direction);
    return each ? this.goFirst(panel, each, this.focus.moment) : false;
  }

  /** The op of a lane that is nearest to a moment, or the first in the window. */
  goFirst(panel, each, moment = this.window.start) {
    if (!each) return false;
    const { marks } = each.sets.at(-1);
    this.go(panel.spot(each, Math.min(marks.after(moment), marks.count - 1)));
    return true;
  }

  goCause() {
    if (!this.focus) return;
    const { panel, set, index } = this.focus;
    const op = set.marks.op[index];
    const spot = panel.ranks.cause[op] ? panel.spotOf(op - panel.ranks.cause[op]) : null;
    if (spot) this.go(spot);
  }

  close() {
    this.controls.toggleHelp(false);
    this.focus = null;
    this.hover(null);
  }

  // --- telling ---

  showTip([name, ...lines], x, y) {
    const { tip } = this;
    tip.replaceChildren(make("strong", "", name), ...lines.map((line) => make("div", "", line)));
    tip.hidden = false;
    const box = tip.getBoundingClientRect();
    const [wide, high] = [document.documentElement.clientWidth, window.innerHeight];
    const left = x + 14 + box.width > wide ? x - 14 - box.width : x + 14;
    const top = y + 16 + box.height > high ? y - 12 - box.height : y + 16;
    tip.style.left = `${Math.max(left, 4)}px`;
    tip.style.top = `${Math.max(top, 4)}px`;
  }

  hideTip() {
    this.tip.hidden = true;
  }

  say(text) {
    this.said.textContent = text;
  }
}

const start = (spot) => spot.set.marks.start[spot.index];
const same = (one, other) => one.panel === other.panel && one.row === other.row && one.index === other.index;

globalThis.zerosim = {
  ...globalThis.zerosim,
  units,
  /** Draws figures (what Python's `figure` returns) inside an element. */
  timeline: (element, figures) => new View(element, figures),
};
