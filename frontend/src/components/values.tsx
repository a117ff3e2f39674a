import { ageOf, useServerNow } from "../api/clock.ts";
import { ABSENT, age, count, isAbsent, localTime, type Maybe, signed, utc } from "./format.ts";
import css from "./values.module.css";

/** A value that the source has not given. `why` is read out and shown as a title. */
export function Absent({ why = "not reported" }: { why?: string }) {
  return (
    <span className={css.absent} title={why}>
      <span aria-hidden="true">{ABSENT}</span>
      <span className={css.spoken}>{why}</span>
    </span>
  );
}

interface NumProps {
  value: Maybe<number>;
  format?: (value: number) => string;
  unit?: string;
  why?: string;
}

/** A number, or its absence. */
export function Num({ value, format = count, unit, why }: NumProps) {
  if (isAbsent(value)) return <Absent why={why} />;
  return (
    <span className={css.num}>
      {format(value)}
      {unit ? <span className={css.unit}> {unit}</span> : null}
    </span>
  );
}

/** A time of day in the local zone, with UTC in its title. */
export function Time({ at }: { at: Maybe<string> }) {
  if (!at) return <Absent why="no time" />;
  const date = new Date(at);
  if (Number.isNaN(date.getTime())) return <Absent why="no readable time" />;
  return (
    <time className={css.num} dateTime={at} title={utc(date)}>
      {localTime(date, new Date())}
    </time>
  );
}

/** How long ago, counting on by itself; the time itself in the title. */
export function Age({ at, suffix = "" }: { at: Maybe<string>; suffix?: string }) {
  const seconds = ageOf(at, useServerNow());
  if (seconds === null || !at) return <Absent why="no time" />;
  const text = age(seconds);
  return (
    <time className={css.num} dateTime={at} title={utc(new Date(at))}>
      {text}
      {text === "now" ? "" : suffix}
    </time>
  );
}

/** From one size to another, with the change: `8 → 12 +4`, or `stays 8`. */
export function Change({ from, to }: { from: Maybe<number>; to: Maybe<number> }) {
  const known = !isAbsent(from) && !isAbsent(to);
  const change = known ? to - from : null;
  if (change === 0) {
    return (
      <span className={css.change}>
        <span className={css.same}>stays</span> <Num value={to} />
      </span>
    );
  }
  return (
    <span className={css.change}>
      <Num value={from} />
      <span aria-hidden="true" className={css.arrow}>
        →
      </span>
      <span className={css.spoken}> to </span>
      <Num value={to} />
      {change === null ? null : (
        <span className={`${css.delta} ${change > 0 ? css.grows : css.shrinks}`}>
          {signed(change)}
        </span>
      )}
    </span>
  );
}
