// What a tooltip and a screen reader tell: lines of text, the first of them the name. Units are written by units.js.

const AMOUNTS = { B: [units.size, units.rate], FLOP: [units.flop, units.flops] };

/** How many more boxes are in the pixel of the one that is told of. */
const toldOthers = (others) => (others > 0 ? [`and ${others} more in this pixel: zoom in`] : []);

/** One op: what, how long, how much, how fast, what limited it, what it waited for. */
function toldOp(ranks, op) {
  if (ranks.count[op] > 1) return toldSeveral(ranks, op);
  const lines = [ranks.opName(op), what(ranks, op)];
  lines.push(between(ranks.start[op], ranks.end(op)));
  lines.push(amount(ranks, op), limit(ranks, op), longer(ranks, op), ...waits(ranks, op));
  return lines.filter((line) => line);
}

/** Neighbours that are one box. */
function toldSeveral(ranks, op) {
  const phase = ranks.text(op, "phase");
  const busy = `${units.seconds(ranks.busy[op])} busy of ${between(ranks.start[op], ranks.end(op))}`;
  return [ranks.opName(op), ranks.text(op, "detail") + (phase ? `: ${phase}` : ""), busy];
}

function what(ranks, op) {
  const layer = ranks.layer[op] ? `, layer ${ranks.layer[op] - 1}` : "";
  const kind = ranks.figure.kinds[ranks.told(op, "kind")]?.word ?? "marker";
  const phase = ranks.text(op, "phase");
  const batch = phase === "optimizer" ? "" : `, micro-batch ${ranks.microBatch[op]}`; // one update for all of them
  return `${kind}, op ${ranks.numbered?.[op] ?? op}: ${phase}${batch}${layer}`;
}

function amount(ranks, op) {
  const [much, unit, detail] = [ranks.told(op, "amount"), ranks.told(op, "unit"), ranks.text(op, "detail")];
  if (!much) return detail;
  const [size, rate] = AMOUNTS[unit];
  return `${size(much)}${detail ? ` (${detail})` : ""}, ${rate(much / ranks.length[op])}`;
}

function limit(ranks, op) {
  const label = ranks.text(op, "limit");
  if (!label) return "";
  const busy = ranks.told(op, "busy") / ranks.length[op];
  return `limited by ${label}${busy > 0 ? `, ${units.share(busy)} of it used` : ""}`;
}

/** Where other work on the same resources made it longer. */
function longer(ranks, op) {
  const alone = ranks.told(op, "alone");
  return alone > 0 && ranks.length[op] > 1.01 * alone ? `alone it would take ${units.seconds(alone)}` : "";
}

function waits(ranks, op) {
  const queued = ranks.ready(op) - ranks.issued[op];
  const lines = [`issued at ${units.seconds(ranks.issued[op])}`];
  const seen = Math.max(ranks.length[op], ranks.figure.seconds) * 1e-8;
  if (queued > seen) {
    const cause = ranks.cause[op] ? ` for ${ranks.causeName(op)}` : "";
    lines.push(`waited ${units.seconds(queued)}${cause}`);
  } else lines.push("began as soon as the host had issued it");
  if (ranks.waited[op] > 0) {
    lines[1] = queued > seen ? lines[1] : "ready as soon as the host had issued it";
    lines.push(`waited ${units.seconds(ranks.waited[op])} for ${ranks.whom(op)}`);
  }
  return [lines.join("; ")];
}

/** A collective that waits for other ranks. */
function toldWait(ranks, op) {
  return [`${ranks.opName(op)} waits for ${ranks.whom(op)}`, between(ranks.ready(op), ranks.start[op])];
}

/** The thread that issues. */
function toldHost(ranks, marks, index) {
  const [op, kind] = [marks.op[index], ranks.figure.kinds[marks.kind[index]].name];
  if (ranks.coarse) {
    const share = marks.share[index] < 1 ? ` ${units.share(marks.share[index])} of it` : "";
    const does = { issue: `issues ${counted(op, "op")}`, hold: "waits before it issues", host: "computes" }[kind];
    return [`the host ${does}`, `${between(marks.start[index], marks.end[index])}${share && `;${share}`}`];
  }
  const word = { issue: "issues", hold: "waits before it issues", host: "computes before it issues" }[kind];
  return [`the host ${word} ${ranks.opName(op)}`, between(marks.start[index], marks.end[index])];
}

function between(start, end) {
  const wide = end - start;
  return `${units.seconds(wide)}, from ${moment(start, wide)} to ${moment(end, wide)}`;
}

/** Any box that has a name of its own: a phase, a layer, a micro-batch, an exposed stretch. */
const toldBand = (name, marks, index) => [name, between(marks.start[index], marks.end[index])];

/** A tier at a moment: the level of each curve. */
function toldMemory(track, moment) {
  const levels = track.curves.map((curve) => `${curve.name} ${units.size(levelAt(curve, moment))}`);
  const capacity = track.capacity ? ` of ${units.size(track.capacity)}` : "";
  const peak = `peak ${units.size(track.peak)}${capacity} at ${units.seconds(track.peakSeconds)}`;
  const cause = track.peakOp ? `, when the host issued ${track.peakOp}` : ", held from the start";
  const parts = track.parts.map(([name, bytes]) => `${name} ${units.size(bytes)}`).join(", ");
  const whose = track.tier === "gpu" ? "" : ` of ${counted(track.ranks, "rank")}`;
  return [`${track.title}${whose} at ${units.seconds(moment)}`, levels.join(", "), peak + cause, `held then: ${parts}`];
}
