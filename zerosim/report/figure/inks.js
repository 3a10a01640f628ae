// Colours and hatches on the canvas. Those of kinds come from Python, for light and for dark; those of what is around
// them come from the style sheet's custom properties, and its color-scheme says which of both there is. Hatches are tiles of six pixels, made once a theme and a density of the screen.

const TILE = 6;
const OPEN = new Set(["wait", "hold"]); // drawn as an open box

class Inks {
  constructor(element, kinds) {
    this.element = element;
    this.kinds = kinds;
    this.refresh();
  }

  /** Read the theme again; patterns are made anew when they are next asked for. */
  refresh() {
    const style = getComputedStyle(this.element);
    this.dark = style.colorScheme === "dark";
    this.density = window.devicePixelRatio || 1;
    this.theme = (name) => style.getPropertyValue(`--zerosim-${name}`).trim();
    this.named = new Map();
    this.patterns = new Map();
  }

  /** A colour of the theme. */
  tone(name) {
    if (!this.named.has(name)) this.named.set(name, this.theme(name));
    return this.named.get(name);
  }

  colour(kind) {
    return this.dark ? this.kinds[kind].night : this.kinds[kind].colour;
  }

  open(kind) {
    return OPEN.has(this.kinds[kind].name);
  }

  /** What fills a box of this kind. */
  fill(context, kind) {
    if (!this.kinds[kind].hatch) return this.colour(kind);
    if (!this.patterns.has(kind)) this.patterns.set(kind, this.pattern(context, kind));
    return this.patterns.get(kind);
  }

  pattern(context, kind) {
    const tile = document.createElement("canvas");
    tile.width = tile.height = Math.round(TILE * this.density);
    const pen = tile.getContext("2d");
    pen.scale(tile.width / TILE, tile.height / TILE);
    pen.fillStyle = this.colour(kind);
    pen.fillRect(0, 0, TILE, TILE);
    pen.strokeStyle = this.kinds[kind].line;
    pen.stroke(new Path2D(this.kinds[kind].hatch));
    const pattern = context.createPattern(tile, "repeat");
    pattern.setTransform(new DOMMatrix().scale(TILE / tile.width, TILE / tile.height));
    return pattern;
  }
}
