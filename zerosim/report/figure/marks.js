// From marks to rectangles: what is at least a pixel wide is drawn as it is; what is narrower is counted, and a pixel
// then gets one rectangle of the kind that fills most of it, lower the less of it is filled. So a lane costs at most
// two rectangles a pixel, however many ops it has, and a glance tells a busy stretch from one with a few kernels.

const FINEST = 1; // pixels
const LEVELS = 4; // of how much of a pixel is filled

/** What a panel shows of the time axis: seconds at the left edge, and pixels a second. */
class Scale {
  constructor(start, end, left, width) {
    this.start = start;
    this.end = end;
    this.left = left;
    this.width = width;
    this.perSecond = width / (end - start);
  }

  x(moment) {
    return this.left + (moment - this.start) * this.perSecond;
  }

  moment(x) {
    return this.start + (x - this.left) / this.perSecond;
  }
}

/** What the pixels of a lane are filled with, one after the other. */
class Pixels {
  constructor(kinds, paint) {
    this.paint = paint;
    this.filled = new Float64Array(2 * kinds); // by kind: of marks that match, then of those that do not
    this.place = -1;
    this.run = null;
  }

  add(x, width, kind, matches) {
    const place = Math.floor(x);
    if (place !== this.place) this.turn(place);
    this.filled[matches ? kind : kind + this.filled.length / 2] += width;
  }

  /** The pixel is done: it lengthens the run before it if it looks the same. */
  turn(place) {
    const look = this.place >= 0 ? this.look() : -1;
    if (this.run && (look !== this.run.look || this.run.end !== this.place)) this.flush();
    if (look >= 0) this.run = { look, start: this.run ? this.run.start : this.place, end: this.place + 1 };
    this.filled.fill(0);
    this.place = place;
  }

  /** Kind, whether it matches, and how much is filled, as one number. */
  look() {
    const half = this.filled.length / 2;
    let [sum, most] = [0, -1];
    for (let slot = 0; slot < this.filled.length; slot += 1) {
      if (slot === half && most >= 0) break; // what matches hides what does not
      sum += this.filled[slot];
      if (this.filled[slot] > (most < 0 ? 0 : this.filled[most])) most = slot;
    }
    if (most < 0) return -1;
    return most * LEVELS + Math.min(Math.ceil(sum * LEVELS), LEVELS) - 1;
  }

  flush() {
    if (!this.run) return;
    const { look, start, end } = this.run;
    const [slot, half] = [Math.floor(look / LEVELS), this.filled.length / 2];
    this.paint(slot % half, slot < half, start, end - start, (1 + (look % LEVELS)) / LEVELS, -1);
    this.run = null;
  }

  close() {
    this.turn(-1);
    this.flush();
  }
}

/** Calls paint(kind, matches, x, width, filled share, index or -1) for what is within the scale. */
function boxes(marks, scale, kinds, matching, paint) {
  const pixels = new Pixels(kinds, paint);
  const [left, right] = [scale.left, scale.left + scale.width];
  for (let index = marks.after(scale.start); index < marks.count && marks.start[index] < scale.end; index += 1) {
    if (marks.end[index] <= scale.start) continue;
    const x = Math.max(scale.x(marks.start[index]), left);
    const width = Math.min(scale.x(marks.end[index]), right) - x;
    const kind = marks.kind[index];
    const matches = matching(kind, marks.op[index]);
    if (width >= FINEST) paint(kind, matches, x, width, marks.share[index], index);
    else pixels.add(x, width * marks.share[index], kind, matches);
  }
  pixels.close();
}

/** The box nearest to a moment within `near` seconds, the widest of those that are there; -1 where there is none. */
function nearest(marks, moment, near) {
  let [best, distance] = [-1, near];
  for (let index = marks.after(moment - near); index < marks.count && marks.start[index] <= moment + near; index += 1) {
    const away = Math.max(marks.start[index] - moment, moment - marks.end[index], 0);
    const wider = best >= 0 && away === distance && lengthOf(marks, index) > lengthOf(marks, best);
    if (away < distance || wider || (best < 0 && away <= near)) [best, distance] = [index, away];
  }
  return best;
}

/** How many boxes touch the time between two moments. */
function touching(marks, from, to) {
  let count = 0;
  for (let index = marks.after(from); index < marks.count && marks.start[index] < to; index += 1) {
    if (marks.end[index] > from) count += 1;
  }
  return count;
}

const lengthOf = (marks, index) => marks.end[index] - marks.start[index];
