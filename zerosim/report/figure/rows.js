// The rows of a panel from top to bottom, in the order of cause: phases and layers, the host, the lanes, what is
// exposed, memory. A row knows its marks, what is told of each of them, and how it is drawn; pixels of the x axis are
// the scale's.

const HEIGHTS = { phases: 18, layers: 15, host: 14, lane: 22, stage: 14, exposed: 16, memory: 84, flat: 40 };
const GAPS = { layers: 2, memory: 10 };
const LOW = 0.6; // of the height of a lane: a copy, as in report/lanes.py
const FAINT = 0.14; // what does not match
const LABELLED = 26; // pixels: a narrower box has no label

/** One row: `sets` are marks drawn one over the other, each {marks, told(index), label(index)}. */
function row(what, title, sets, more = {}) {
  return { what, title, sets, height: HEIGHTS[what], gap: GAPS[what] ?? 4, ...more };
}

function rowsOf(figure, ranks) {
  const rows = [
    bandRow("phases", ...ranks.phases()),
    bandRow("layers", ...ranks.layers()),
    ...(ranks.given.host ? [hostRow(ranks)] : []),
    ...figure.given.stages.map((stage) => stageRow(stage)),
    ...ranks.lanes().map(([title, marks, waits]) => laneRow(ranks, title, marks, waits)),
    exposedRow(ranks, ranks.exposed()),
  ].filter((each) => each.sets.some(({ marks }) => marks.count));
  return [...rows, ...ranks.memory.map((track) => memoryRow(track))];
}

function bandRow(what, marks, labels) {
  const set = { marks, label: (index) => labels[index], told: (index) => toldBand(labels[index], marks, index) };
  return row(what, what, [set], { band: true });
}

function hostRow(ranks) {
  const [issuing, waiting] = ranks.host();
  const told = (marks) => (index) => toldHost(ranks, marks, index);
  const sets = [issuing, waiting].map((marks) => ({ marks, told: told(marks), label: () => "" }));
  return row("host", "host", sets, { legend: true });
}

function stageRow({ title, marks: given }) {
  const marks = Marks.from(given.map(([, kind, start, length]) => [start, start + length, kind, -1]));
  const labels = [...given].sort((one, other) => one[2] - other[2]).map(([label]) => label);
  const about = (label) => `${label[0] === "F" ? "forward" : "backward"} of micro-batch ${label.slice(1)}`;
  const set = { marks, label: (index) => labels[index], told: (index) => toldBand(about(labels[index]), marks, index) };
  return row("stage", title, [set], { legend: true });
}

function laneRow(ranks, title, marks, waits) {
  const open = { marks: waits, told: (index) => toldWait(ranks, waits.op[index]), label: () => "" };
  const filled = {
    marks,
    told: (index) => toldOp(ranks, marks.op[index]),
    label: (index) => ranks.opName(marks.op[index]),
  };
  return row("lane", title, [open, filled], { legend: true, steps: true });
}

function exposedRow(ranks, marks) {
  const set = { marks, label: () => "", told: (index) => toldBare(ranks, marks, index) };
  return row("exposed", "exposed", [set], { legend: true });
}

/** The boxes of a row that keys go through: ops, not their waits; of the host its waits, where it has any. */
const keyed = ({ sets }) => sets.findLast(({ marks }) => marks.count);

/** A tier that holds the same all along needs little room. */
function memoryRow(track) {
  const flat = track.curves.every((curve) => curve.bytes.length === 1);
  const height = HEIGHTS[flat ? "flat" : "memory"];
  return row("memory", track.title, [], { track: { ...track, flat, ceiling: ceiling(track, flat) }, height });
}

/** Whether most bands of a row would be too narrow to be told apart. */
function tooClose({ sets: [{ marks }] }, scale) {
  return marks.after(scale.end) - marks.after(scale.start) > scale.width / 4;
}

/** Gives each row its place below `top`; the height of all. */
function placed(rows, top) {
  return rows.reduce((y, each) => {
    each.top = y + (each.what === "memory" ? GAPS.memory : 0);
    return each.top + each.height + (each.what === "memory" ? 0 : each.gap);
  }, top);
}

/** A name, its last two parts, its last part: a cut name would say the wrong thing. */
function shortened(name) {
  const parts = name.split(".");
  return [name, parts.slice(-2).join("."), parts.at(-1)];
}

/** Draws on one canvas, and counts the rectangles. */
class Pen {
  constructor(context, inks, seconds) {
    Object.assign(this, { context, inks, seconds, drawn: 0 });
  }

  words(text, x, y, align = "left", tone = "text") {
    this.context.textAlign = align;
    this.context.fillStyle = this.inks.tone(tone);
    this.context.fillText(text, x, y);
  }

  /** Pixels of a text. */
  wide(text) {
    return this.context.measureText(text).width;
  }

  /** Words over curves, on a rim of paper. */
  rimmed(text, x, y, align, tone) {
    this.context.textAlign = align;
    Object.assign(this.context, { strokeStyle: this.inks.tone("paper"), lineWidth: 3, lineJoin: "round" });
    this.context.strokeText(text, x, y);
    this.words(text, x, y, align, tone);
  }

  row(each, scale, matching) {
    this.context.fillStyle = this.inks.tone("ground");
    const right = Math.min(scale.left + scale.width, scale.x(this.seconds)); // after its end there is nothing
    this.context.fillRect(scale.left, each.top, Math.max(right - scale.left, 0), each.height);
    if (each.what === "layers" && tooClose(each, scale)) return;
    if (each.track) drawTrack(this, each.track, each, scale);
    else each.sets.forEach((set) => this.set(each, set, scale, matching));
  }

  set(each, { marks, label }, scale, matching) {
    const labels = [];
    const asked = each.band ? () => true : matching;
    boxes(marks, scale, this.inks.kinds.length, asked, (kind, matches, x, width, share, index) => {
      this.context.globalAlpha = matches ? 1 : FAINT;
      const [high, y] = this.box(each, kind, share);
      if (each.band) this.band(kind, x, y, width, high, index);
      else this.filled(kind, x, y, width, high);
      if (matches && index >= 0 && width >= LABELLED) labels.push([kind, x, y + high / 2, width, label(index)]);
    });
    this.context.globalAlpha = 1;
    labels.forEach((found) => this.label(each.band, ...found));
  }

  /** Height and top of a box. */
  box(each, kind, share) {
    const low = each.what === "lane" && this.inks.kinds[kind].name === "transfer";
    const high = each.height * (low ? LOW : 1) * (this.inks.open(kind) ? 1 : share);
    return [high, each.top + each.height - high];
  }

  filled(kind, x, y, width, high) {
    const { context, inks } = this;
    this.drawn += 1;
    if (inks.open(kind)) {
      context.strokeStyle = inks.colour(kind);
      context.lineWidth = 1;
      if (inks.kinds[kind].name === "hold") return this.held(x, y, width, high);
      context.setLineDash([3, 2]);
      if (width > 2) context.strokeRect(x + 0.5, y + 0.5, width - 1, high - 1);
      else context.strokeRect(x, y + high / 2, width, 0);
      context.setLineDash([]);
      return;
    }
    context.fillStyle = inks.fill(context, kind);
    context.fillRect(x, y, width > 4 ? width - 0.6 : width, high); // a seam between neighbours of one kind
  }

  /** From one edge to the other: a stretch in which nothing is done. */
  held(x, y, width, high) {
    const { context } = this;
    const [left, right, middle] = [x + 0.5, x + Math.max(width - 0.5, 0.5), y + high / 2];
    context.beginPath();
    context.moveTo(left, middle);
    context.lineTo(right, middle);
    if (width > 4) [left, right].forEach((edge) => { context.moveTo(edge, y + 2); context.lineTo(edge, y + high - 2); });
    context.stroke();
  }

  band(kind, x, y, width, high, index) {
    if (index < 0) return; // too many to tell apart: closer they are there
    this.drawn += 1;
    this.context.fillStyle = this.inks.colour(kind);
    this.context.fillRect(x, y, width, high);
  }

  label(band, kind, x, middle, width, name) {
    const text = shortened(name).find((each) => this.wide(each) <= width - 6);
    if (!text) return;
    const { context, inks } = this;
    const [at, y] = [x + width / 2, middle + 3.5];
    context.textAlign = "center";
    if (band) context.fillStyle = inks.tone("text");
    else {
      const dark = inks.kinds[kind].dark;
      context.strokeStyle = dark ? "rgba(0,0,0,.55)" : "rgba(255,255,255,.75)";
      context.lineWidth = 3;
      context.lineJoin = "round";
      context.strokeText(text, at, y);
      context.fillStyle = dark ? "#fff" : "#000";
    }
    context.fillText(text, at, y);
  }
}
