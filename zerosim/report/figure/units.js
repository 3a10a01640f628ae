// Numbers as people read them: the digits that zerosim/units.py writes, so that page and terminal say the same.
// Four significant digits at most; a tie is rounded to the even digit, as Python does.

const DIGITS = 4;
const SI = [[1e15, "P"], [1e12, "T"], [1e9, "G"], [1e6, "M"], [1e3, "k"], [1, ""]];
const TIME = [[1, "s"], [1e-3, "ms"], [1e-6, "us"], [1e-9, "ns"]];
const HOURS = [[3600, "h"], ...TIME];

const bare = (text) => (text.includes(".") ? text.replace(/\.?0+$/, "") : text);

/** The value in `digits` significant digits, as [digits before the point and after it, power of ten]. */
function rounded(value, digits) {
  const exact = value.toExponential(60);
  const [mantissa, power] = exact.split("e");
  const kept = mantissa.slice(0, mantissa.indexOf(".") + digits);
  const tie = new RegExp(`^-?\\d\\.\\d{${digits - 1}}50*$`).test(mantissa);
  if (tie && Number(kept.at(-1)) % 2 === 0) return [kept, Number(power)];
  const [plain, other] = value.toExponential(digits - 1).split("e");
  return [plain, Number(other)];
}

/** Python's `format(value, ".4g")`. */
function general(value, digits = DIGITS) {
  if (value === 0) return "0";
  const [mantissa, power] = rounded(value, digits);
  if (power < -4 || power >= digits) {
    return `${bare(mantissa)}e${power < 0 ? "-" : "+"}${String(Math.abs(power)).padStart(2, "0")}`;
  }
  return bare(Number(`${mantissa}e${power}`).toFixed(Math.max(digits - 1 - power, 0)));
}

function scaled(value, steps) {
  const seen = Math.abs(Number(value === 0 ? 0 : rounded(value, DIGITS).join("e")));
  const fitting = seen ? steps.find(([size]) => seen >= size) ?? steps.at(-1) : steps.find(([size]) => size === 1);
  const number = value / fitting[0];
  const large = Math.abs(number) >= 1e4 && Math.abs(number) < 1e9;
  return [large ? number.toFixed(0) : general(number), fitting[1]];
}

const units = {
  seconds: (value) => scaled(value, Math.abs(value) >= 9999.5 ? HOURS : TIME).join(" "),
  size: (value) => `${scaled(value, SI).join(" ")}B`,
  rate: (value) => `${scaled(value, SI).join(" ")}B/s`,
  flop: (value) => `${scaled(value, SI).join(" ")}FLOP`,
  flops: (value) => `${scaled(value, SI).join(" ")}FLOP/s`,
  share: (value) => `${Math.abs(100 * value) >= 1000 ? (100 * value).toFixed(0) : general(100 * value, 3)} %`,
};

/** A moment, with as many digits as tell it from another that is `wide` seconds away. */
function moment(value, wide) {
  const digits = value > 0 && wide > 0 ? Math.ceil(Math.log10(value / wide)) + 2 : 0;
  if (digits <= DIGITS) return units.seconds(value);
  const [size, unit] = TIME.find(([each]) => value >= each) ?? TIME.at(-1);
  return `${general(value / size, Math.min(digits, 12))} ${unit}`;
}

/** "1 op", "37 ops". */
const counted = (count, word) => `${count} ${word}${count === 1 ? "" : "s"}`;

/** Up to `most` + 1 round moments between `start` and `end`, each with its label, as report/axis.py has them. */
function ticks(start, end, most) {
  const wide = end - start;
  if (!(wide > 0)) return [];
  const rough = wide / Math.max(most, 1);
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((factor) => factor * power).find((each) => each >= rough * (1 - 1e-9));
  const seconds = end >= 1 && step >= 0.1;
  const fine = TIME.findIndex(([each]) => step >= each * (1 - 1e-9));
  let place = seconds ? 0 : fine < 0 ? TIME.length - 1 : fine;
  while (place > 0 && end / TIME[place][0] >= 1e5) place -= 1; // more digits before the point than are read
  const [size, unit] = TIME[place];
  const first = Math.ceil((start / step) * (1 - 1e-12));
  const last = Math.floor((end / step) * (1 + 1e-12));
  return Array.from({ length: Math.max(last - first + 1, 0) }, (_, index) => {
    const moment = (first + index) * step;
    return [moment, `${Number((moment / size).toPrecision(12))} ${unit}`];
  });
}
