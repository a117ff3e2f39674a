import { describe, expect, it } from "vitest";
import { gapThreshold, latestRow, merge, stack, withGaps } from "./series.ts";

describe("withGaps", () => {
  it("breaks the line where readings lie too far apart, and nowhere else", () => {
    const table = { x: [0, 5, 10, 60, 65], columns: [[1, 2, 3, 4, 5]] };
    expect(withGaps(table, 15)).toEqual({
      x: [0, 5, 10, 17.5, 60, 65],
      columns: [[1, 2, 3, null, 4, 5]],
    });
  });

  it("keeps a missing reading missing", () => {
    const table = {
      x: [0, 5],
      columns: [
        [1, null],
        [0, null],
      ],
    };
    expect(withGaps(table, 15).columns).toEqual([
      [1, null],
      [0, null],
    ]);
  });
});

it.each([
  [[0, 5], 10, Number.POSITIVE_INFINITY],
  [[0, 5, 10, 100], 10, 15],
  [[0, 1, 2, 3], 10, 10],
])("gap threshold of %j is at least %s: %s", (x, least, want) => {
  expect(gapThreshold(x, least)).toBe(want);
});

describe("stack", () => {
  it("sums from the first up", () => {
    expect(
      stack([
        [8, 16],
        [4, 0],
        [1, 1],
      ]),
    ).toEqual([
      [8, 16],
      [12, 16],
      [13, 17],
    ]);
  });

  it("a time of which nothing is known stays unknown", () => {
    expect(
      stack([
        [8, null, 8],
        [null, null, 4],
      ]),
    ).toEqual([
      [8, null, 8],
      [8, null, 12],
    ]);
  });
});

it("the latest row is the last with any reading", () => {
  expect(
    latestRow([
      [1, 2, null],
      [null, 1, null],
    ]),
  ).toBe(1);
  expect(latestRow([[null]])).toBe(null);
  expect(latestRow([])).toBe(null);
});

describe("merge", () => {
  it("holds steps and leaves measured series with their own times", () => {
    const table = merge([
      {
        points: [
          [10, 4],
          [30, 8],
        ],
        hold: true,
      },
      {
        points: [
          [20, 4],
          [40, 7],
        ],
        hold: false,
      },
    ]);
    expect(table).toEqual({
      x: [10, 20, 30, 40],
      columns: [
        [4, 4, 8, 8],
        [undefined, 4, undefined, 7],
      ],
    });
  });

  it("knows nothing before the first step", () => {
    const table = merge([
      { points: [[20, 4]], hold: true },
      { points: [[10, 1]], hold: false },
    ]);
    expect(table.columns[0]).toEqual([null, 4]);
  });
});
