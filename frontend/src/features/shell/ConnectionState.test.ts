import { expect, it } from "vitest";
import { describeStream } from "./ConnectionState.tsx";

const now = 1_000_000;
const make = (
  state: "live" | "silent" | "connecting" | "reconnecting" | "idle",
  forSeconds: number,
) => ({
  state,
  since: now - forSeconds * 1000,
  attempts: 3,
  reason: "Redis can't be reached",
});

it.each([
  ["live", 50, "live"],
  ["connecting", 0, "connecting"],
  ["reconnecting", 1, "reconnecting"],
  ["reconnecting", 75, "reconnecting, 1 min"],
  ["silent", 5, "no live feed"],
  ["idle", 0, "not connected"],
] as const)("%s for %s s is shown as %s", (state, seconds, want) => {
  expect(describeStream(make(state, seconds), now).text).toBe(want);
});

it("a feed that is down says why", () => {
  expect(describeStream(make("silent", 5), now).title).toContain("Redis can't be reached");
});
