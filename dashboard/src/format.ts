// Numbers for people.

const UNITS = ["B", "kB", "MB", "GB", "TB", "PB"];

export function bytes(count: number): string {
  let unit = 0;
  let value = count;
  while (value >= 999.5 && unit + 1 < UNITS.length) {
    value /= 1000;
    unit += 1;
  }
  return unit === 0 ? `${count} B` : `${value.toPrecision(3)} ${UNITS[unit]}`;
}

/** Round figures on an axis: "20 kB", not "20.0 kB". */
export const tick = (count: number): string => bytes(count).replace(/\.0+ /, " ").replace(/(\.\d*?)0+ /, "$1 ");

/** 1, 10, 100, … between two bounds, with 2 and 5 between them where there are few. */
export function decades(low: number, high: number): number[] {
  const found: number[] = [];
  const few = high / low < 300;
  for (let power = 10 ** Math.floor(Math.log10(low)); power <= high; power *= 10) {
    found.push(...(few ? [power, 2 * power, 5 * power] : [power]));
  }
  return found.filter((value) => value >= low && value <= high);
}

/** Round spans of time in milliseconds between two bounds, for a logarithmic axis. */
export function durations(low: number, high: number): number[] {
  const second = 1000;
  const round = [
    1, 2, 5, 10, 20, 50, 100, 200, 500, second, 2 * second, 5 * second, 10 * second, 30 * second, 60 * second,
    120 * second, 300 * second, 600 * second, 1800 * second, 3600 * second, 7200 * second, 21_600 * second,
    86_400 * second, 7 * 86_400 * second, 30 * 86_400 * second,
  ];
  const found = round.filter((value) => value >= low && value <= high);
  // Where there are many, every other one says as much.
  return found.length > 7 ? found.filter((_, index) => index % 2 === 0) : found;
}

/** Whole numbers between two bounds, as many as there is room for labels. */
export function wholeTicks(low: number, high: number, width: number): number[] {
  const label = 18 + 7 * whole(high).length;
  const room = Math.max(2, Math.floor(width / label));
  let every = 1;
  for (let next = 0; (high - low) / every > room; next += 1) {
    every = [2, 5, 10][next % 3]! * 10 ** Math.floor(next / 3);
  }
  const ticks: number[] = [];
  for (let value = Math.ceil(low / every) * every; value <= high; value += every) ticks.push(value);
  return ticks;
}

export const whole = (count: number): string => count.toLocaleString("en-US");

export function share(part: number, total: number): string {
  if (total === 0) return "–";
  const percent = (100 * part) / total;
  if (percent === 0) return "0 %";
  if (percent < 0.001) return "< 0.001 %";
  return `${percent < 1 ? percent.toFixed(3) : percent < 10 ? percent.toFixed(2) : percent.toFixed(1)} %`;
}

/** A round share on an axis: "5 %", "0.2 %". */
export const percent = (part: number): string => `${Number((100 * part).toPrecision(3))} %`;

export function ratio(large: number, small: number): string {
  if (small === 0) return "–";
  const times = large / small;
  return `${times >= 100 ? whole(Math.round(times)) : times.toFixed(1)}×`;
}

export function age(milliseconds: number): string {
  const seconds = milliseconds / 1000;
  if (seconds < 10) return `${seconds.toFixed(1)} s`;
  if (seconds < 120) return `${Math.round(seconds)} s`;
  if (seconds < 7200) return `${Math.round(seconds / 60)} min`;
  if (seconds < 172_800) return `${(seconds / 3600).toFixed(1)} h`;
  return `${(seconds / 86_400).toFixed(1)} days`;
}

export function duration(milliseconds: number): string {
  if (milliseconds < 1) return `${Math.round(milliseconds * 1000)} µs`;
  if (milliseconds < 1000) return `${Math.round(milliseconds)} ms`;
  return `${(milliseconds / 1000).toFixed(2)} s`;
}

export const clock = (milliseconds: number): string =>
  new Date(milliseconds).toISOString().replace("T", " ").slice(0, 19) + " UTC";

/** Times along an axis, of the length that their span wants. */
export function timeTick(span: number): (at: Date | number) => string {
  return (at) => {
    const text = new Date(at).toISOString();
    if (span > 3 * 86_400_000) return text.slice(5, 10);
    if (span > 20 * 3_600_000) return `${text.slice(5, 10)} ${text.slice(11, 16)}`;
    return span > 180_000 ? text.slice(11, 16) : text.slice(11, 19);
  };
}

export const short = (hash: string): string => hash.slice(0, 12);

/** "2⁻⁷": the size of the weights of one binade; the lowest holds the zeros. */
export function power(exponent: number): string {
  if (exponent <= -127) return "0";
  const digits = "⁰¹²³⁴⁵⁶⁷⁸⁹";
  return `2${exponent < 0 ? "⁻" : ""}${[...String(Math.abs(exponent))].map((d) => digits[Number(d)]).join("")}`;
}

export const plural = (count: number, one: string, many = `${one}s`): string =>
  `${whole(count)} ${count === 1 ? one : many}`;

/** As many of the values, evenly chosen, as there is room for labels. */
export function spaced(values: number[], width: number): number[] {
  const every = Math.max(1, Math.ceil((values.length * 42) / Math.max(1, width - 80)));
  return values.filter((_, index) => index % every === 0);
}
