import { useMemo } from "react";
import { useServerNow } from "../../api/clock.ts";

export interface TimeWindow {
  /** Unix seconds. */
  from: number;
  to: number;
}

/** A chart shows this many seconds at least. */
const shortest = 120;

/**
 * The last `seconds` before `now`, or from the first reading on where that came later: an hour of
 * which two minutes are known would show little of them.
 */
export function timeWindow(now: number, seconds: number, first: number | undefined): TimeWindow {
  const step = Math.max(1, Math.floor(seconds / 600));
  const to = Math.ceil(now / step) * step;
  const begin = to - seconds;
  if (first === undefined || first <= begin) return { from: begin, to };
  return { from: Math.max(begin, Math.min(first, to - shortest)), to };
}

/** The window as it moves on by itself, so that silence shows as a growing gap on the right. */
export function useTimeWindow(seconds: number, first: number | undefined): TimeWindow {
  const { from, to } = timeWindow(useServerNow() / 1000, seconds, first);
  return useMemo(() => ({ from, to }), [from, to]);
}
