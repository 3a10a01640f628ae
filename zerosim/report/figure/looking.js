// What is looked at: where the pointer is, the op that is chosen, and the tooltip that tells of either. Keys go from op
// to op, from lane to lane, from an op to the one that it waited for; what they come to is told to screen readers too.

class Looking {
  constructor(view) {
    this.view = view;
    this.forget();
  }

  forget() {
    Object.assign(this, { focus: null, hovered: null, cursor: null });
  }

  hover(spot, x = 0, y = 0) {
    this.hovered = spot;
    this.cursor = spot?.moment ?? null;
    const lines = spot ? spot.panel.told(spot) : [];
    if (lines.length) this.showTip(lines, x, y);
    else this.hideTip();
    this.view.panels.forEach((panel) => panel.drawOver());
  }

  /** A click chooses the op there; keys go on from it. */
  pick(spot) {
    this.focus = spot.index >= 0 && spot.row.steps && spot.set === spot.row.sets.at(-1) ? spot : null;
    this.view.panels.forEach((panel) => panel.drawOver());
  }

  /** Chooses an op, brings it into the window and tells it. */
  go(spot) {
    this.focus = spot;
    this.cursor = spot.row.track ? spot.moment : null;
    const [begun, ended] = edges(spot);
    const { start, end } = this.view.window;
    const half = (end - start) / 2;
    if (ended > end || begun < start) this.view.zoom(spot.moment - half, spot.moment + half, true);
    this.view.frame();
    const lines = spot.panel.told(spot);
    this.tell(spot, lines);
    this.view.say(`${spot.row.title}: ${lines.join(". ")}`);
  }

  /** The tooltip under what is chosen. */
  tell(spot, lines) {
    const box = spot.panel.over.getBoundingClientRect();
    const scale = spot.panel.scale();
    const x = Math.min(Math.max(scale.x(spot.moment), scale.left), scale.left + scale.width);
    this.showTip(lines, box.left + x, box.top + spot.row.top + spot.row.height);
  }

  /** What a key has found nothing for, told at what is chosen. */
  stay(text) {
    if (this.focus) this.tell(this.focus, [...this.focus.panel.told(this.focus), text]);
    this.view.say(text);
    return true;
  }

  goOp(panel, direction) {
    if (this.focus?.panel !== panel) return this.goFirst(panel, panel.lane(null, 0));
    const { row: each, set, index } = this.focus;
    const last = direction > 0 ? "this is the last one here" : "this is the first one here";
    if (each.track) return this.goLevel(panel, each, direction);
    if (index + direction < 0 || index + direction >= set.marks.count) return this.stay(last);
    this.go(panel.spot(each, index + direction));
    return true;
  }

  /** Along a curve of memory by a hundredth of the window. */
  goLevel(panel, each, direction) {
    const { start, end } = this.view.window;
    const moment = this.focus.moment + (direction * (end - start)) / 100;
    if (moment < 0 || moment > panel.figure.seconds) return this.stay("the step ends here");
    this.go({ ...this.focus, row: each, moment });
    return true;
  }

  goLane(panel, direction) {
    if (this.focus?.panel !== panel) return this.goFirst(panel, panel.lane(null, 0));
    const each = panel.row(this.focus.row, direction);
    return each ? this.goFirst(panel, each, this.focus.moment) : this.stay("there is no row further");
  }

  /** The op of a lane that is nearest to a moment, or the first in the window. */
  goFirst(panel, each, moment = this.view.window.start) {
    if (!each) return false;
    if (each.track) {
      const { start, end } = this.view.window;
      this.go({ panel, row: each, set: null, index: -1, moment: Math.min(Math.max(moment, start), end) });
      return true;
    }
    const { marks } = keyed(each);
    this.go(panel.spot(each, Math.min(marks.after(moment), marks.count - 1)));
    return true;
  }

  goCause() {
    if (!this.focus) return this.stay("no op is chosen: j chooses the first one");
    const { panel, row: each, set, index } = this.focus;
    if (!each.steps) return this.stay("only an op of a lane waits for another");
    const op = set.marks.op[index];
    if (panel.ranks.count[op] > 1) return this.stay("these are several ops, each with its own wait");
    const spot = panel.ranks.cause[op] ? panel.spotOf(op - panel.ranks.cause[op]) : null;
    if (!spot) return this.stay("it waited for no other op");
    this.go(spot);
    return true;
  }

  close() {
    this.view.controls.toggleHelp(false);
    this.focus = null;
    this.hover(null);
  }

  showTip([name, ...lines], x, y) {
    const { tip } = this.view;
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
    this.view.tip.hidden = true;
  }

  /** The next of those that match, or the one before. */
  nextMatch(direction) {
    const all = this.view.filter.all();
    if (!all.length) return;
    const now = this.focus ? all.findIndex((spot) => same(spot, this.focus)) : -1;
    const next = now < 0 && direction < 0 ? all.length - 1 : (now + direction + all.length) % all.length;
    this.go(all[next]);
  }
}

/** From when to when a spot is. */
const edges = ({ set, index, moment }) => (set ? [set.marks.start[index], set.marks.end[index]] : [moment, moment]);

const same = (one, other) => one.panel === other.panel && one.row === other.row && one.index === other.index;
