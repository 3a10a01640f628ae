// What is drawn over a panel on every move: the cursor, what is chosen, and the op that it waited for.

function drawOver(panel, context) {
  const { view } = panel;
  const [scale, { selection, looking: { cursor, hovered, focus } }] = [panel.scale(), view];
  context.font = FONT;
  if (selection) drawSelection(panel, context, scale, selection);
  if (cursor !== null && cursor >= scale.start && cursor <= scale.end) drawCursor(panel, context, scale, cursor);
  [hovered, focus].forEach((spot) => {
    if (spot?.panel === panel && spot.index >= 0) drawSpot(panel, context, scale, spot, spot === focus);
  });
}

function drawCursor(panel, context, scale, cursor) {
  context.fillStyle = panel.view.inks.tone("cursor");
  context.fillRect(scale.x(cursor), AXIS - 4, 1, panel.height - AXIS);
  panel.rows.filter((each) => each.track).forEach(({ track, top, height }) => {
    const level = levelAt(track.curves[0], cursor);
    context.beginPath();
    context.arc(scale.x(cursor) + 0.5, top + height - (level / track.ceiling) * height, 3, 0, 2 * Math.PI);
    context.fill();
  });
}

function drawSelection(panel, context, scale, { from, to }) {
  const [left, right] = [scale.x(Math.min(from, to)), scale.x(Math.max(from, to))];
  context.fillStyle = panel.view.inks.tone("selection");
  context.fillRect(left, AXIS - 4, right - left, panel.height - AXIS);
  context.fillStyle = panel.view.inks.tone("text");
  context.textAlign = "center";
  context.fillText(units.seconds(Math.abs(to - from)), (left + right) / 2, AXIS + 10);
}

function drawSpot(panel, context, scale, { row: each, set, index }, strong) {
  const cut = (x) => Math.min(Math.max(x, scale.left - 2), scale.left + scale.width + 2);
  const [left, right] = [cut(scale.x(set.marks.start[index])), cut(scale.x(set.marks.end[index]))];
  context.strokeStyle = panel.view.inks.tone("focus");
  context.lineWidth = strong ? 2.5 : 1.5;
  context.strokeRect(left - 1, each.top - 1, Math.max(right - left, 2) + 2, each.height + 2);
  const op = set.marks.op[index];
  if (each.what === "lane" && op >= 0 && panel.ranks.cause[op]) drawCause(panel, context, scale, each, op, cut);
}

/** From the end of the op that was waited for to the moment it made the other ready. */
function drawCause({ figure, ranks, rows }, context, scale, each, op, cut) {
  const cause = op - ranks.cause[op];
  const lane = figure.given.texts[ranks.told(cause, "lane")];
  const other = rows.find((known) => known.what === "lane" && known.title === lane);
  if (!other) return;
  const [begun, from] = [cut(scale.x(ranks.start[cause])), cut(scale.x(ranks.end(cause)))];
  const to = cut(scale.x(ranks.ready(op)));
  context.beginPath();
  context.moveTo(from, other.top + other.height / 2);
  context.lineTo(to, each.top + each.height / 2);
  context.setLineDash([4, 3]);
  context.stroke();
  context.setLineDash([]);
  context.strokeRect(begun, other.top, Math.max(from - begun, 2), other.height);
}
