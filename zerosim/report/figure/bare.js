// What is told of a stretch in which nothing was computed: what ran meanwhile and what limited it, for whom a collective
// waited, and the op that ended it. "Nothing was computed" is meant as in views/breakdown.py: by no kernel of any stream.

const MEANWHILE = 4; // ops that are named
const COMPUTING = ["matmul", "attention", "pass"];
const RUNNING = {
  exposed: ["all_gather", "reduce_scatter", "all_reduce", "collective"],
  copying: ["transfer"],
  computing: ["host"],
};

function toldBare(ranks, marks, index) {
  const [start, end] = [marks.start[index], marks.end[index]];
  const { name, word } = ranks.figure.kinds[marks.kind[index]];
  const lines = name === "wait" ? waiting(ranks, start, end) : running(ranks, RUNNING[name], start, end);
  const part = marks.share[index] < 1 ? [`several intervals, ${units.share(marks.share[index])} of it`] : [];
  return [...toldBand(word, marks, index), ...part, ...firstOf(lines), ended(ranks, end)];
}

const firstOf = (lines) => (
  lines.length > MEANWHILE ? [...lines.slice(0, MEANWHILE), `and ${lines.length - MEANWHILE} more`] : lines
);

/** Numbers of the kinds with these names. */
const kindsOf = (ranks, names) => new Set(names.map((name) => ranks.figure.number[name]));

/** The ops of these kinds that ran between two moments, who ran longest there first. */
function running(ranks, names, start, end) {
  const kinds = kindsOf(ranks, names);
  return shares(ranks, (op) => kinds.has(ranks.told(op, "kind")), (op) => [ranks.start[op], ranks.end(op)], start, end)
    .map(([op, share]) => {
      const what = ranks.figure.kinds[ranks.told(op, "kind")].word;
      return [`${ranks.opName(op)} (${what}), ${during(share)}`, limit(ranks, op)].filter((each) => each).join(": ");
    });
}

/** The collectives that could have begun, and for whom they waited. */
function waiting(ranks, start, end) {
  return shares(ranks, (op) => ranks.waited[op] > 0, (op) => [ranks.ready(op), ranks.start[op]], start, end)
    .map(([op, share]) => `${ranks.opName(op)}, ${during(share)}: waits for ${ranks.whom(op)}`);
}

/** Pairs of an op and its part of the time between two moments, the largest first. */
function shares(ranks, wanted, edges, start, end) {
  const found = [];
  for (let op = 0; op < ranks.ops; op += 1) {
    if (!wanted(op)) continue;
    const [from, to] = edges(op);
    const share = (Math.min(to, end) - Math.max(from, start)) / (end - start);
    if (share > 1e-6) found.push([op, Math.min(share, 1)]);
  }
  return found.sort((one, other) => other[1] - one[1]);
}

const during = (share) => (share > 0.9995 ? "all the time" : `${units.share(share)} of the time`);

/** The next kernel on any stream, and what it waited for. */
function ended(ranks, moment) {
  const kinds = kindsOf(ranks, COMPUTING);
  const tick = tickOf(ranks.figure.seconds);
  let next = -1;
  for (let op = 0; op < ranks.ops; op += 1) {
    if (!kinds.has(ranks.told(op, "kind")) || ranks.start[op] < moment - tick) continue;
    if (next < 0 || ranks.start[op] < ranks.start[next]) next = op;
  }
  if (next < 0) return "nothing is computed after it";
  return `computed next: ${ranks.opName(next)} at ${units.seconds(ranks.start[next])}, ${cause(ranks, next)}`;
}

function cause(ranks, op) {
  if (ranks.cause[op]) return `which waited for ${ranks.causeName(op)}`;
  const held = ranks.given.awaited?.find(([waiting]) => waiting === op);
  const since = held ? `, which had waited for ${ranks.opName(held[1])}` : "";
  return `as soon as the host${since}${since ? "," : ""} had issued it`;
}
