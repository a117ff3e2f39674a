import { expect, it } from "vitest";
import { timeWindow } from "./window.ts";

it.each([
  ["all of it, where readings go back further", 10_000, 900, 5000, [9100, 10_000]],
  ["all of it, where nothing is known", 10_000, 900, undefined, [9100, 10_000]],
  ["from the first reading on", 10_000, 900, 9500, [9500, 10_000]],
  ["two minutes at least", 10_000, 900, 9990, [9880, 10_000]],
  ["in steps that a long range can't show", 10_001, 86_400, undefined, [-76_320, 10_080]],
] as const)("%s", (_name, now, seconds, first, [from, to]) => {
  expect(timeWindow(now, seconds, first)).toEqual({ from, to });
});
