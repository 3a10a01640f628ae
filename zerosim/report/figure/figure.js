// What Python handed over, as rows of marks: a figure, its classes of ranks, and of a class its lanes.
// A class is unpacked when it is first shown. Moments are seconds from here on.

/** Places in a row: the fields of words.Told in zerosim/report/figure. */
const ROW = Object.fromEntries([
  "before", "after", "kind", "lane", "phase", "amount", "unit", "limit", "busy", "alone", "host", "detail", "follows",
].map((name, place) => [name, place]));
const TIMES = ["issued", "start", "end", "waited"];
const COLUMNS = ["row", "number", "layer", "microBatch", "cause"];

/** Boxes of one row in the order of their starts. `op`: the op of each, -1 where a box is of none. */
class Marks {
  constructor(start, end, kind, op, share) {
    this.share = share; // of the box that is filled
    this.count = start.length;
    this.start = start;
    this.end = end;
    this.kind = kind;
    this.op = op;
    this.reach = Float64Array.from(end); // the latest end so far: what binary search needs where boxes overlap
    for (let index = 1; index < this.count; index += 1) {
      this.reach[index] = Math.max(this.reach[index], this.reach[index - 1]);
    }
  }

  /** From rows [start, end, kind, op, share, or all of it] in any order. */
  static from(rows) {
    rows.sort((one, other) => one[0] - other[0]);
    const column = (kind, place) => kind.from(rows, (row) => row[place]);
    return new Marks(column(Float64Array, 0), column(Float64Array, 1), column(Uint8Array, 2), column(Int32Array, 3),
      Float32Array.from(rows, (row) => row[4] ?? 1));
  }

  /** The first box that ends after a moment; `count` where none does. */
  after(moment) {
    let [low, high] = [0, this.count];
    while (low < high) {
      const middle = (low + high) >> 1;
      if (this.reach[middle] > moment) high = middle;
      else low = middle + 1;
    }
    return low;
  }
}

class Figure {
  constructor(given) {
    this.title = given.title;
    this.seconds = given.seconds;
    this.kinds = given.kinds;
    this.untold = given.untold;
    this.given = given;
    this.number = Object.fromEntries(given.kinds.map((kind, number) => [kind.name, number]));
    this.ranks = given.classes.map((each) => ({ name: each.name, label: each.label, ends: each.ends }));
    this.unpacked = new Map();
    this.memory = given.memory.map((tracks) => tracks.map((track) => unpackedTrack(track, given.seconds)));
  }

  /** The class with this name, or the slowest. */
  class(name) {
    const place = Math.max(this.ranks.findIndex((each) => each.name === name), 0);
    if (!this.unpacked.has(place)) this.unpacked.set(place, new Ranks(this, this.given.classes[place]));
    return this.unpacked.get(place);
  }
}

/** One class of ranks: its ops as columns, and the marks of its lanes. */
class Ranks {
  constructor(figure, given) {
    const column = (name) => unpacked(given[name], given.ops);
    this.figure = figure;
    this.given = given;
    this.name = given.name;
    this.ops = given.ops;
    const [issued, start, ended, waited] = TIMES.map((name) => moments(given[name], given.ops, figure.seconds));
    Object.assign(this, { issued, start, ended, waited });
    const tick = tickOf(figure.seconds); // nothing that is told of is shorter
    this.length = this.ended.map((ended, op) => Math.max(ended - this.start[op], tick));
    COLUMNS.forEach((name) => { this[name] = column(name); });
    this.coarse = "of" in given; // then a row may be of several ops
    this.count = unpacked(given.count ?? 1, given.ops);
    this.busy = this.coarse ? moments(given.busy, given.ops, figure.seconds) : this.length;
    this.numbered = this.coarse ? unpacked(given.op, given.ops) : null;
    this.memory = given.memory >= 0 ? figure.memory[given.memory] : [];
  }

  /** A cell of the row that the op shares with those like it. */
  told(op, name) {
    return this.figure.given.rows[this.row[op]][ROW[name]];
  }

  text(op, name) {
    return this.figure.given.texts[this.told(op, name)];
  }

  opName(op) {
    return this.text(op, "before") + (this.number[op] ? this.number[op] - 1 : "") + this.text(op, "after");
  }

  /** The op that it waited for. */
  causeName(op) {
    const cause = op - this.cause[op];
    return (this.count[cause] > 1 ? "one of " : "") + this.opName(cause);
  }

  /** Seconds that it worked, or those that it stands for. */
  worked(op) {
    return this.count[op] > 1 ? this.busy[op] : this.ended[op] - this.start[op];
  }

  end(op) {
    return this.ended[op];
  }

  ready(op) {
    return this.start[op] - this.waited[op];
  }

  /** The ranks for which a collective waited: those of the last entry that is not later. */
  whom(op) {
    const { count, since, whom, names } = this.figure.given.late[this.figure.given.classes.indexOf(this.given)];
    this.late ??= { since: moments(since, count, this.figure.seconds), whom: unpacked(whom, count) };
    const place = this.late.since.findLastIndex((moment) => moment <= this.ready(op) + tickOf(this.figure.seconds));
    return place < 0 ? "other ranks" : names[this.late.whom[place]];
  }

  /** Lanes in their order: [title, boxes, waits for other ranks]. */
  lanes() {
    const { rows, texts } = this.figure.given;
    const { wait } = this.figure.number;
    const boxes = new Map(this.given.lanes.map((lane) => [lane, []]));
    const waits = new Map(this.given.lanes.map((lane) => [lane, []]));
    for (let op = 0; op < this.ops; op += 1) {
      const row = rows[this.row[op]];
      if (row[ROW.lane] < 0) continue;
      const share = this.count[op] > 1 ? this.busy[op] / this.length[op] : 1;
      boxes.get(row[ROW.lane]).push([this.start[op], this.end(op), row[ROW.kind], op, share]);
      if (this.waited[op] > 0) waits.get(row[ROW.lane]).push([this.ready(op), this.start[op], wait, op]);
    }
    return this.given.lanes.map((lane) => [texts[lane], Marks.from(boxes.get(lane)), Marks.from(waits.get(lane))]);
  }

  /** What the thread that issues did, as report/lanes.py tells it: [issuing, waiting or computing]. */
  host() {
    if (this.coarse) return this.hosted();
    const awaited = new Map(this.given.awaited);
    const { issue, hold, host } = this.figure.number;
    const [issuing, between] = [[], []];
    let free = 0;
    for (let op = 0; op < this.ops; op += 1) {
      const begun = Math.max(this.issued[op] - this.told(op, "host"), free);
      if (awaited.has(op) && begun > free) {
        const last = awaited.get(op);
        const computing = this.told(last, "kind") === host ? Math.min(Math.max(this.start[last], free), begun) : begun;
        if (computing > free) between.push([free, computing, hold, op]);
        if (begun > computing) between.push([computing, begun, host, op]);
      }
      if (this.issued[op] > begun) issuing.push([begun, this.issued[op], issue, op]);
      free = Math.max(this.issued[op], free);
    }
    return [Marks.from(issuing), Marks.from(between)];
  }

  /** The same where ops are joined: boxes of several, whose number stands in the place of the op. */
  hosted() {
    const rows = this.bands(this.given.hosted);
    const { issue } = this.figure.number;
    return [rows.filter((row) => row[2] === issue), rows.filter((row) => row[2] !== issue)].map(Marks.from);
  }

  exposed() {
    return Marks.from(this.bands(this.given.exposed).map(([start, end, kind, , share]) => [start, end, kind, -1, share]));
  }

  /** Columns of bands as rows, with how many each stands for in the place of an op. */
  bands(given) {
    const [kinds, counts] = [unpacked(given.kind, given.count), unpacked(given.ops, given.count)];
    const busy = given.busy ? moments(given.busy, given.count, this.figure.seconds) : null;
    return this.stretches(given).map(([start, end], index) => (
      [start, end, kinds[index], counts[index], counts[index] > 1 ? busy[index] / (end - start) : 1]
    ));
  }

  /** Bands of shades in turn, each with its label: [marks, labels]. */
  phases() {
    return banded(this.figure, this.given.phases, this.given.phases.map((_, index) => index));
  }

  layers() {
    const { count, layer, last } = this.given.layers;
    const [layers, lasts] = [unpacked(layer, count), unpacked(last, count)];
    const name = (index) => (
      layers[index] === lasts[index] ? `layer ${layers[index]}` : `layers ${layers[index]} to ${lasts[index]}`
    );
    const bands = this.stretches(this.given.layers).map((edges, index) => [name(index), ...edges]);
    return banded(this.figure, bands, layers);
  }

  /** The columns of starts and ends as [start, end]. */
  stretches({ count, start, end }) {
    const ends = moments(end, count, this.figure.seconds);
    return Array.from(moments(start, count, this.figure.seconds), (each, index) => [each, ends[index]]);
  }
}

/** Of the numbers, even and odd ones have different shades. */
function banded(figure, bands, numbers) {
  const shades = [figure.number["band-0"], figure.number["band-1"]];
  const rows = bands.map(([, start, end], index) => [start, end, shades[numbers[index] % 2], -1]);
  return [Marks.from(rows), bands.map(([label]) => label)];
}

function unpackedTrack(track, seconds) {
  const curves = track.curves.map(({ name, points, at, bytes }) => (
    { name, at: moments(at, points, seconds), bytes: unpacked(bytes, points) }
  ));
  return { ...track, curves };
}
