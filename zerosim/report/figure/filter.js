// What is asked for: a part of a name, and kinds of work. Boxes that do not match are drawn faint; where nothing is
// asked for, all match.

class Filter {
  constructor(view) {
    this.view = view;
    this.wanted = "";
    this.chosen = new Set(); // numbers of kinds
  }

  /** Whether anything is asked for. */
  get on() {
    return Boolean(this.wanted || this.chosen.size);
  }

  /** Of each panel, whether a box of a kind and an op is one of those that were asked for. */
  matchings() {
    const some = this.chosen;
    return this.view.panels.map((panel) => {
      const found = this.named(panel);
      return (kind, op) => (!some.size || some.has(kind)) && (!found || (op >= 0 && found[op] === 1));
    });
  }

  /** The ops of a panel with the wanted name, kept until it or the panel changes; null where all are. */
  named(panel) {
    if (!this.wanted) return null;
    if (panel.named?.wanted !== this.wanted || panel.named.ranks !== panel.ranks) {
      const [ranks, low] = [panel.ranks, this.wanted.toLowerCase()];
      const matches = (op) => Number(ranks.opName(op).toLowerCase().includes(low));
      const found = Uint8Array.from({ length: ranks.ops }, (_, op) => matches(op));
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
    return found.sort((one, other) => begins(one) - begins(other));
  }

  /** Of each panel how many ops match, and their seconds. */
  matches() {
    const matching = this.matchings();
    return this.view.panels.map((panel, number) => {
      const found = { ops: 0, seconds: 0 };
      panel.rows.filter((each) => each.steps).forEach((each) => {
        const { marks } = each.sets.at(-1);
        for (let index = 0; index < marks.count; index += 1) {
          if (!matching[number](marks.kind[index], marks.op[index])) continue;
          found.ops += panel.ranks.count[marks.op[index]];
          found.seconds += panel.ranks.worked(marks.op[index]);
        }
      });
      return found;
    });
  }

  /** Of each panel how many intervals of the chosen kinds that are no ops, and their seconds: what is exposed, waits for
   *  other ranks, what the host does. Intervals have no names. */
  intervals() {
    return this.view.panels.map((panel) => {
      const found = { intervals: 0, seconds: 0 };
      const add = (kind, count, seconds) => {
        if (!this.chosen.has(kind) || this.wanted) return;
        found.intervals += count;
        found.seconds += seconds;
      };
      panel.ranks.given.exposed.sums.forEach((sum) => add(...sum));
      const [{ host }, { coarse }] = [panel.figure.number, panel.ranks];
      panel.rows.filter((each) => each.what === "host").flatMap((each) => each.sets).forEach(({ marks }) => {
        marks.kind.forEach((kind, index) => { // the CPU's work is ops
          if (kind !== host) add(kind, coarse ? marks.op[index] : 1, lengthOf(marks, index) * marks.share[index]);
        });
      });
      return found;
    });
  }

  /** "37 ops, 1.23 s and 112 intervals, 11.38 s", one for each panel; nothing where nothing is asked for. */
  count() {
    const bare = this.intervals();
    const told = this.matches().map(({ ops, seconds }, number) => {
      const parts = [[ops, "op", seconds], [bare[number].intervals, "interval", bare[number].seconds]];
      const some = parts.filter(([count], place) => count || (place === 0 && !bare[number].intervals));
      return some.map(([count, word, sum]) => `${counted(count, word)}, ${units.seconds(sum)}`).join(" and ");
    });
    return this.on ? told.join("; ") : "";
  }

  /** All that match, panel after panel. */
  all() {
    const matching = this.matchings();
    return this.view.panels.flatMap((panel, number) => this.spots(panel, matching[number]));
  }
}

const begins = (spot) => spot.set.marks.start[spot.index];
