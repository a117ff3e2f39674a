/** Text of values. Absent (null or undefined) is always the em dash, never a zero. */
export const ABSENT = "\u2014";
export type Maybe<T> = T | null | undefined;

const MINUS = "\u2212";
const integer = new Intl.NumberFormat("en-US", { maximumFractionDigits: 0 });
const compact = new Intl.NumberFormat("en-US", { maximumSignificantDigits: 3 });

export function isAbsent<T>(value: Maybe<T>): value is null | undefined {
  return (
    value === null || value === undefined || (typeof value === "number" && Number.isNaN(value))
  );
}

/** A count: `12,480`. */
export function count(value: Maybe<number>): string {
  return isAbsent(value) ? ABSENT : integer.format(value);
}

/** A measured quantity in three significant digits: `0.0123`, `4.51`, `128`, `12.3k`, `1.20M`. */
export function quantity(value: Maybe<number>): string {
  if (isAbsent(value)) return ABSENT;
  const size = Math.abs(value);
  const scaled: [number, string] =
    size >= 1e9 ? [value / 1e9, "G"] : size >= 1e6 ? [value / 1e6, "M"] : [value / 1e3, "k"];
  if (size < 1e4) return compact.format(value);
  return `${scaled[0].toPrecision(3)}${scaled[1]}`;
}

/** A fixed number of decimals, for columns that must line up: loss `3.4127`. */
export function decimals(value: Maybe<number>, digits: number): string {
  return isAbsent(value) ? ABSENT : value.toFixed(digits);
}

/** A part of a whole: `42.0 %`. Absent when either is absent or the whole is 0. */
export function percent(part: Maybe<number>, whole: Maybe<number>): string {
  if (isAbsent(part) || isAbsent(whole) || whole === 0) return ABSENT;
  return `${((100 * part) / whole).toFixed(1)} %`;
}

/** A change: `+4`, `−2`, `0`. */
export function signed(value: Maybe<number>): string {
  if (isAbsent(value)) return ABSENT;
  if (value === 0) return "0";
  return value > 0 ? `+${integer.format(value)}` : `${MINUS}${integer.format(-value)}`;
}

const two = (value: number) => String(Math.floor(value)).padStart(2, "0");

/** A measured time span in seconds: `12 ms`, `3.41 s`, `1 min 05 s`, `2 h 07 min`, `3 d 4 h`. */
export function duration(seconds: Maybe<number>): string {
  if (isAbsent(seconds)) return ABSENT;
  if (seconds < 0) return `${MINUS}${duration(-seconds)}`;
  if (seconds < 0.9995) return `${(seconds * 1000).toFixed(seconds < 0.01 ? 1 : 0)} ms`;
  if (seconds < 59.995) return `${seconds.toPrecision(3)} s`;
  const whole = Math.round(seconds);
  if (whole < 3600) return `${Math.floor(whole / 60)} min ${two(whole % 60)} s`;
  if (whole < 86400) return `${Math.floor(whole / 3600)} h ${two((whole % 3600) / 60)} min`;
  return `${Math.floor(whole / 86400)} d ${Math.floor((whole % 86400) / 3600)} h`;
}

/** How old something is, in the coarsest unit that says enough: `now`, `12 s`, `3 min`, `5 h`. */
export function age(seconds: Maybe<number>): string {
  if (isAbsent(seconds)) return ABSENT;
  const whole = Math.max(0, Math.floor(seconds));
  if (whole < 2) return "now";
  if (whole < 60) return `${whole} s`;
  if (whole < 3600) return `${Math.floor(whole / 60)} min`;
  if (whole < 86400) return `${Math.floor(whole / 3600)} h`;
  return `${Math.floor(whole / 86400)} d`;
}

const clock = new Intl.DateTimeFormat("en-GB", {
  hour: "2-digit",
  minute: "2-digit",
  second: "2-digit",
});
const dayAndClock = new Intl.DateTimeFormat("en-GB", {
  day: "numeric",
  month: "short",
  hour: "2-digit",
  minute: "2-digit",
});

/** Local wall time: the clock alone within the last 20 hours, with its day before that. */
export function localTime(at: Date, now: Date): string {
  const near = Math.abs(now.getTime() - at.getTime()) < 20 * 3600 * 1000;
  return near ? clock.format(at) : dayAndClock.format(at);
}

/** UTC to the second, for titles: `2026-12-01 01:15:09 UTC`. */
export function utc(at: Date): string {
  return `${at.toISOString().slice(0, 19).replace("T", " ")} UTC`;
}

/** `used_unhealthy` -> `used unhealthy`. */
export function words(identifier: string): string {
  return identifier.replaceAll("_", " ").toLowerCase();
}

/** A resource's short name: `nvidia.com/gpu` -> `nvidia gpu`. The whole name goes into a title. */
export function shortResource(resource: string): string {
  const [domain, name] = resource.split("/");
  if (!name) return resource;
  return `${domain?.split(".")[0] ?? ""} ${name}`.trim();
}
