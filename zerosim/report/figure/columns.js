// Columns as report/figure/columns.py packs them: one number for all rows, a typed array in base64, or a few non-zeros.

const ARRAYS = { u8: Uint8Array, u16: Uint16Array, u32: Uint32Array, f32: Float32Array };

function unpacked(column, count) {
  if (typeof column === "number") return new Float64Array(count).fill(column);
  const [kind, ...content] = column;
  return kind === "some" ? sparse(content, count) : typed(kind, content[0], count);
}

function typed(kind, text, count) {
  const raw = atob(text);
  const bytes = Uint8Array.from({ length: raw.length }, (_, index) => raw.charCodeAt(index));
  return new ARRAYS[kind](bytes.buffer, 0, count);
}

function sparse([where, what], count) {
  const values = new Float64Array(count);
  const some = Array.isArray(where) ? atob(where[1]).length / ARRAYS[where[0]].BYTES_PER_ELEMENT : 1;
  const places = unpacked(where, some);
  const found = unpacked(what, some);
  places.forEach((place, index) => { values[place] = found[index]; });
  return values;
}

/** Moments: ticks of which a step has 2^32 - 1. */
function moments(column, count, seconds) {
  const tick = seconds / (2 ** 32 - 1);
  return Float64Array.from(unpacked(column, count), (each) => each * tick);
}
