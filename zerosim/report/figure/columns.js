// Columns as report/figure/columns.py packs them: one number for all rows, a typed array in base64, or a few non-zeros.

const ARRAYS = { u8: Uint8Array, u16: Uint16Array, u32: Uint32Array, f32: Float32Array };
const WIDE = 5; // bytes of a u40

function unpacked(column, count) {
  if (typeof column === "number") return new Float64Array(count).fill(column);
  const [kind, ...content] = column;
  if (kind === "some") return sparse(content, count);
  const bytes = decoded(content[0]);
  return kind === "u40" ? wide(bytes, count) : new ARRAYS[kind](bytes.buffer, 0, count);
}

function decoded(text) {
  const raw = atob(text);
  const bytes = new Uint8Array(raw.length);
  for (let index = 0; index < raw.length; index += 1) bytes[index] = raw.charCodeAt(index);
  return bytes;
}

/** Whole numbers of five bytes each. */
function wide(bytes, count) {
  const [values, view] = [new Float64Array(count), new DataView(bytes.buffer)];
  for (let index = 0; index < count; index += 1) {
    values[index] = view.getUint32(WIDE * index, true) + bytes[WIDE * index + 4] * 2 ** 32;
  }
  return values;
}

function sparse([where, what], count) {
  const values = new Float64Array(count);
  const some = Array.isArray(where) ? atob(where[1]).length / ARRAYS[where[0]].BYTES_PER_ELEMENT : 1;
  const places = unpacked(where, some);
  const found = unpacked(what, some);
  places.forEach((place, index) => { values[place] = found[index]; });
  return values;
}

/** Of a step of so many seconds. */
const tickOf = (seconds) => seconds / (2 ** 40 - 1);

/** Moments in ticks as seconds; equal ones stay equal. */
function moments(column, count, seconds) {
  const tick = tickOf(seconds);
  return Float64Array.from(unpacked(column, count), (each) => each * tick);
}
