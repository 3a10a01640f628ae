// One figure in the view: a heading, a choice of ranks, and two canvases, one over the other. The lower one has the
// rows and is drawn when the window changes; the upper one has the cursor and what is chosen, drawn on every move.

const AXIS = 20; // pixels above the first row
const TICK_EVERY = 110; // pixels between ticks, at least
const HIT = 3; // pixels beside a narrow box that still mean it
const FONT = "10.5px system-ui, Helvetica, Arial, 'DejaVu Sans', sans-serif";

class Panel {
  constructor(view, figure) {
    this.view = view;
    this.figure = figure;
    this.element = make("section", "zerosim-panel");
    this.chart = make("div", "zerosim-chart");
    this.canvas = make("canvas", "zerosim-canvas");
    this.over = make("canvas", "zerosim-over");
    this.choice = this.head();
    this.chart.append(this.canvas, this.over);
    this.element.append(this.chart);
    this.prepareCanvas();
    this.choose("");
  }

  head() {
    const head = make("div", "zerosim-head");
    const title = make("div", "zerosim-title", this.figure.title);
    title.setAttribute("role", "heading");
    title.setAttribute("aria-level", "3");
    this.about = make("span", "zerosim-about");
    head.append(title, this.about);
    const { ranks, untold } = this.figure;
    const choice = make("select", "zerosim-ranks");
    choice.append(...ranks.map((each) => new Option(`${each.label}: ${units.seconds(each.ends)}`, each.name)));
    choice.setAttribute("aria-label", `Ranks shown in ${this.figure.title}`);
    choice.addEventListener("change", () => { this.choose(choice.value); this.view.changed(); });
    if (ranks.length > 1) head.append(choice);
    if (untold) head.append(make("span", "zerosim-about", untold));
    this.element.append(head);
    return choice;
  }

  prepareCanvas() {
    this.canvas.setAttribute("aria-hidden", "true");
    this.over.tabIndex = 0;
    this.over.setAttribute("role", "application");
    this.over.setAttribute("aria-roledescription", "timeline");
    const keys = "Arrow keys move, j and k go to the next and previous op, question mark for all keys.";
    this.over.setAttribute("aria-label", `Timeline of ${this.figure.title}. ${keys}`);
  }

  /** Shows another class of ranks; the slowest where there is none of that name. */
  choose(name) {
    this.ranks = this.figure.class(name);
    this.choice.value = this.ranks.name;
    this.rows = rowsOf(this.figure, this.ranks);
    this.height = placed(this.rows, AXIS) + 4;
    const { seconds, ranks } = this.figure;
    const facts = [units.seconds(seconds), countedOps(this.ranks), ranks.length > 1 ? "" : ranks[0].label];
    const first = this.view.panels[0] ?? this; // none is there while this one is made first
    const ratio = first === this ? NaN : seconds / first.figure.seconds;
    const times = Number.isFinite(ratio) ? general(ratio) : "";
    if (times) facts.push(times === "1" ? "as long as the first" : `${times} times the first`);
    this.about.textContent = facts.filter((each) => each).join(", ");
  }

  /** The part that has the keyboard's focus, by its name here; "" where none has. */
  focused() {
    return ["over", "choice"].find((part) => this[part] === document.activeElement) ?? "";
  }

  /** Pixels that the titles of rows need. */
  margin() {
    const context = this.canvas.getContext("2d");
    context.font = FONT;
    return Math.max(...this.rows.map((each) => context.measureText(each.title).width + 14), 64);
  }

  scale() {
    const { window: { start, end }, left, width } = this.view;
    return new Scale(start, end, left, Math.max(width - left, 10));
  }

  // --- drawing ---

  draw(matching) {
    const context = sized(this.canvas, this.view.width, this.height);
    const pen = new Pen(context, this.view.inks, this.figure.seconds);
    const scale = this.scale();
    context.font = FONT;
    this.axis(pen, scale);
    context.save();
    context.beginPath();
    context.rect(scale.left, 0, scale.width, this.height);
    context.clip();
    this.rows.forEach((each) => pen.row(each, scale, matching));
    context.restore();
    this.titles(pen, scale);
    this.drawOver();
    return pen.drawn;
  }

  axis(pen, scale) {
    const { context } = pen;
    ticks(scale.start, scale.end, Math.floor(scale.width / TICK_EVERY)).forEach(([moment, label]) => {
      const x = scale.x(moment);
      context.fillStyle = pen.inks.tone("grid");
      context.fillRect(Math.round(x), AXIS - 4, 1, this.height - AXIS);
      const half = pen.wide(label) / 2;
      pen.words(label, Math.min(Math.max(x, scale.left + half), scale.left + scale.width - half), AXIS - 8, "center");
    });
  }

  titles(pen, scale) {
    this.rows.forEach((each) => {
      const memory = each.what === "memory";
      pen.words(each.title, scale.left - 8, each.top + (memory ? 12 : each.height / 2 + 3.5), "right");
      if (!memory) return;
      levels(each.track).forEach((level) => {
        const y = each.top + each.height * (1 - level / each.track.ceiling);
        pen.words(units.size(level), scale.left - 8, level ? y + 3.5 : y, "right", "quiet");
      });
    });
    const close = this.rows.find((each) => each.what === "layers" && tooClose(each, scale));
    if (close) pen.words("zoom in to see layers", scale.left + 6, close.top + 11, "left", "quiet");
  }

  /** Only what follows the pointer and the keys. */
  drawOver() {
    drawOver(this, sized(this.over, this.view.width, this.height));
  }

  // --- what is where ---

  /** What is at a place on the canvas: a mark (or index -1), the row or null, the moment. */
  at(x, y) {
    const scale = this.scale();
    const moment = scale.moment(x);
    const found = this.rows.find((each) => y >= each.top - 2 && y <= each.top + each.height + 2) ?? null;
    const spot = { panel: this, row: found, set: null, index: -1, moment };
    if (!found || x < scale.left || found.track) return spot;
    for (const near of [0.5 / scale.perSecond, HIT / scale.perSecond]) {
      for (const set of [...found.sets].reverse()) {
        const index = nearest(set.marks, moment, near);
        if (index >= 0) return { ...spot, set, index, others: this.others(set.marks, index, moment, scale) };
      }
    }
    return spot;
  }

  /** How many boxes are too near to be hit, where the one that is hit is narrow itself. */
  others(marks, index, moment, scale) {
    if (lengthOf(marks, index) * scale.perSecond >= FINEST) return 0;
    return touching(marks, moment - 0.5 / scale.perSecond, moment + 0.5 / scale.perSecond) - 1;
  }

  /** The lines that are told of a spot; none where there is nothing to tell. */
  told(spot) {
    if (!spot.row) return [];
    if (spot.row.track) {
      const inside = spot.moment >= 0 && spot.moment <= this.figure.seconds;
      return inside ? toldMemory(spot.row.track, spot.moment) : [];
    }
    return spot.index >= 0 ? [...spot.set.told(spot.index), ...toldOthers(spot.others)] : [];
  }

  /** The first lane that can be gone through by keys, or the next one in a direction. */
  lane(from, direction) {
    const lanes = this.rows.filter((each) => each.steps);
    const place = lanes.indexOf(from);
    return lanes[place < 0 ? 0 : place + direction] ?? null;
  }

  /** The row above or below, of those that have something to be gone through by keys. */
  row(from, direction) {
    const rows = this.rows.filter((each) => each.track || keyed(each));
    return rows[rows.indexOf(from) + direction] ?? null;
  }

  /** A spot by its lane and the number of its box. */
  spot(each, index) {
    const set = keyed(each);
    return { panel: this, row: each, set, index, moment: (set.marks.start[index] + set.marks.end[index]) / 2 };
  }

  /** The spot of an op of the class that is shown. */
  spotOf(op) {
    for (const each of this.rows.filter((known) => known.steps)) {
      const index = each.sets.at(-1).marks.op.indexOf(op);
      if (index >= 0) return this.spot(each, index);
    }
    return null;
  }
}

/** How many ops a class has, and whether neighbours are one box. */
function countedOps({ ops, coarse, given }) {
  return coarse ? `${counted(given.of, "op")}, neighbours joined to ${ops}` : counted(ops, "op");
}

/** An element with a class and text. */
function make(name, style, text = "") {
  const element = document.createElement(name);
  element.className = style;
  element.textContent = text;
  return element;
}

/** The context of a canvas of so many pixels of the page, empty, at the density of the screen. */
function sized(canvas, width, height) {
  const density = window.devicePixelRatio || 1;
  const [wide, high] = [Math.round(width * density), Math.round(height * density)];
  if (canvas.width !== wide || canvas.height !== high) {
    [canvas.width, canvas.height] = [wide, high];
    canvas.style.width = `${width}px`;
    canvas.style.height = `${height}px`;
  }
  const context = canvas.getContext("2d");
  context.setTransform(density, 0, 0, density, 0, 0);
  context.clearRect(0, 0, width, height);
  return context;
}
