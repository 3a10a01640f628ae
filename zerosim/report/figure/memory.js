// Memory of one tier under the lanes, over the same axis: what it is judged by filled, the others as lines, and the
// capacity as a line with its label. Where all stays far below the capacity, the scale follows the peak and says so.

const FAR_BELOW = 0.3; // of the capacity
const ROOM = { high: 1.3, flat: 2 }; // of what is drawn: for the words above it
const DASHES = { allocated: [], "allocated + overhead": [], "in use": [], busy: [4, 2], reserved: [1, 2] };

/** The place of the first value above a limit. */
function firstAfter(values, limit) {
  let [low, high] = [0, values.length];
  while (low < high) {
    const middle = (low + high) >> 1;
    if (values[middle] > limit) high = middle;
    else low = middle + 1;
  }
  return low;
}

/** The level at a moment: that of the last point before it. */
const levelAt = (curve, moment) => curve.bytes[Math.max(firstAfter(curve.at, moment) - 1, 0)];

/** Points [x, level], at most four a pixel: the first, lowest, highest and last level of each. */
function outline(curve, scale) {
  const first = Math.max(firstAfter(curve.at, scale.start) - 1, 0);
  const points = [];
  let pixel = null;
  const finish = () => {
    if (pixel) points.push([pixel.x, pixel.first], [pixel.x, pixel.low], [pixel.x, pixel.high], [pixel.x, pixel.last]);
  };
  for (let index = first; index < curve.at.length && curve.at[index] <= scale.end; index += 1) {
    const [exact, level] = [Math.max(scale.x(curve.at[index]), scale.left), curve.bytes[index]];
    const x = Math.round(2 * exact) / 2;
    if (!pixel || pixel.x !== x) {
      finish();
      pixel = { x, first: level, low: level, high: level, last: level };
    }
    pixel.low = Math.min(pixel.low, level);
    pixel.high = Math.max(pixel.high, level);
    pixel.last = level;
  }
  finish();
  return points;
}

/** Levels with a label beside the track: none, and a round one. */
function levels(track) {
  if (track.flat) return [];
  const power = 10 ** Math.floor(Math.log10(0.8 * track.ceiling));
  return [0, [5, 2, 1].map((factor) => factor * power).find((level) => level <= 0.8 * track.ceiling)];
}

/** The level at the top of a track. */
function ceiling(track, flat) {
  const most = Math.max(track.peak, ...track.curves.map((curve) => curve.bytes.reduce((a, b) => Math.max(a, b), 0)));
  const seen = track.capacity && most > FAR_BELOW * track.capacity ? Math.max(most, track.capacity) : most;
  return ROOM[flat ? "flat" : "high"] * seen;
}

function drawTrack(pen, track, row, scale) {
  const [bottom, top] = [row.top + row.height, track.ceiling];
  const y = (level) => bottom - (level / top) * row.height;
  [...track.curves].reverse().forEach((curve) => drawCurve(pen, curve, scale, y, bottom, curve === track.curves[0]));
  drawCapacity(pen, track, row, scale, y);
  drawPeak(pen, track, row, scale, y);
  if (track.curves.length > 1) drawNames(pen, track, row, scale);
}

function drawCurve(pen, curve, scale, y, bottom, filled) {
  const points = outline(curve, scale);
  if (!points.length) return;
  const { context, inks } = pen;
  const right = Math.min(scale.left + scale.width, scale.x(pen.seconds));
  context.beginPath();
  context.moveTo(points[0][0], y(points[0][1]));
  points.forEach(([x, level], index) => {
    if (index) context.lineTo(x, y(points[index - 1][1]));
    context.lineTo(x, y(level));
  });
  context.lineTo(right, y(points.at(-1)[1]));
  stroke(pen, curve, filled);
  if (!filled) return;
  context.lineTo(right, bottom);
  context.lineTo(points[0][0], bottom);
  context.fillStyle = inks.tone("held");
  context.fill();
}

function stroke({ context, inks }, curve, strong) {
  context.strokeStyle = inks.tone("curve");
  context.lineWidth = strong ? 1.5 : 1;
  context.setLineDash(DASHES[curve.name] ?? [2, 2]);
  context.stroke();
  context.setLineDash([]);
}

/** Which line is which. */
function drawNames(pen, track, row, scale) {
  let x = scale.left + 6;
  track.curves.forEach((curve, index) => {
    pen.context.beginPath();
    pen.context.moveTo(x, row.top + 8);
    pen.context.lineTo(x + 20, row.top + 8);
    stroke(pen, curve, index === 0);
    pen.rimmed(curve.name, x + 25, row.top + 11.5, "left", "quiet");
    x += 25 + pen.wide(curve.name) + 14;
  });
}

function drawCapacity(pen, track, row, scale, y) {
  if (!track.capacity) return;
  const { context, inks } = pen;
  const label = `capacity ${units.size(track.capacity)}`;
  const at = y(track.capacity);
  const inside = at >= row.top;
  const right = scale.left + scale.width - 4;
  if (!inside) {
    pen.rimmed(`${label} is above`, right, row.top + row.height - 4, "right", "capacity"); // clear of the peak's label
    return;
  }
  context.strokeStyle = inks.tone("capacity");
  context.lineWidth = 1.5;
  context.setLineDash([6, 3]);
  context.beginPath();
  context.moveTo(scale.left, at);
  context.lineTo(scale.left + scale.width, at);
  context.stroke();
  context.setLineDash([]);
  pen.rimmed(label, right, at + 13, "right", "capacity");
}

/** A wedge whose tip is the peak, and the op at it. */
function drawPeak(pen, track, row, scale, y) {
  const x = scale.x(track.peakSeconds);
  if (x < scale.left - 1 || x > scale.left + scale.width + 1) return;
  const { context, inks } = pen;
  const at = Math.max(y(track.peak), row.top + 8);
  context.fillStyle = inks.tone("capacity");
  context.beginPath();
  context.moveTo(x, at);
  context.lineTo(x - 4, at - 7);
  context.lineTo(x + 4, at - 7);
  context.fill();
  const right = x > scale.left + scale.width / 2;
  const label = `peak ${units.size(track.peak)}${track.peakOp ? `: ${track.peakOp}` : ""}`;
  const head = track.curves.length > 1 ? 24 : 11; // below the names of the lines
  pen.rimmed(label, x + (right ? -8 : 8), at - 6 < row.top + head ? at + 15 : at - 6, right ? "right" : "left", "text");
}
