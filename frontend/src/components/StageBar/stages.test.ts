import { describe, expect, it } from "vitest";
import { downtime, segments } from "./stages.ts";

describe("segments", () => {
  it("puts stages at their reported starts", () => {
    const parts = segments([
      { stage: "detect", start_s: 0, duration_s: 0.5 },
      { stage: "rendezvous", start_s: 0.75, duration_s: 1 },
    ]);
    expect(parts.map((part) => [part.name, part.start, part.duration])).toEqual([
      ["detect", 0, 0.5],
      ["abort", 0.5, null],
      ["rendezvous", 0.75, 1],
      ["state_restore", 1.75, null],
      ["data_loader", 1.75, null],
      ["first_step", 1.75, null],
    ]);
  });

  it("lines stages up where no start is reported, whatever order they came in", () => {
    const parts = segments([
      { stage: "abort", duration_s: 2 },
      { stage: "detect", duration_s: 1 },
      { stage: "odd", duration_s: 9 },
    ]);
    expect(parts.slice(0, 3).map((part) => part.start)).toEqual([0, 1, 3]);
  });
});

describe("downtime", () => {
  it.each([
    [[{ stage: "detect", duration_s: 1 }], 4, 4],
    [[{ stage: "detect", duration_s: 1 }], 0, 0],
    [
      [
        { stage: "detect", duration_s: 1 },
        { stage: "abort", duration_s: 0.5 },
      ],
      null,
      1.5,
    ],
    [[{ stage: "detect", duration_s: null }], null, null],
    [[], undefined, null],
  ])("of %j, reported %s: %s", (stages, reported, want) => {
    expect(downtime(stages, reported)).toBe(want);
  });
});
