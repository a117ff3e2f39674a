import { beforeEach, describe, expect, it } from "vitest";
import type { CapacityPoint } from "../../api/types.ts";
import { forgetHolders } from "../../components/holders.ts";
import { categorical } from "../../theme/tokens.ts";
import { holderChart, shortNames } from "./holders.ts";

const states: CapacityPoint["states"] = {
  free: 256,
  used: 0,
  used_unhealthy: 0,
  terminating: 0,
  reserved: 0,
  cordoned: 0,
  not_ready: 0,
  booting: 0,
  tainted: 0,
};

function makePoint(second: number, holders: Record<string, number>): CapacityPoint {
  const at = new Date(Date.UTC(2026, 11, 1, 12, 0, second)).toISOString();
  return { at, total: 256, states, holders };
}

beforeEach(forgetHolders);

describe("holderChart", () => {
  it("one area a holder, the largest first, and the total as a line", () => {
    const { series, table } = holderChart(
      [makePoint(0, { research: 8 }), makePoint(5, { research: 16, inference: 96 })],
      "light",
    );
    expect(series.map((one) => [one.label, one.shape])).toEqual([
      ["inference", "area"],
      ["research", "area"],
      ["total", "step"],
    ]);
    expect(table.columns).toEqual([
      [0, 96],
      [8, 16],
      [256, 256],
    ]);
  });

  it("leaves a gap where nothing was written for too long", () => {
    const points = [0, 5, 10, 400].map((at) => makePoint(at, { a: 1 }));
    const { table } = holderChart(points, "light");
    expect(table.columns[0]).toEqual([1, 1, 1, null, 1]);
  });

  it("adds up those beyond the palette under one name", () => {
    const holders = Object.fromEntries(Array.from({ length: 11 }, (_, n) => [`team-${n}`, 20 - n]));
    const { series, table } = holderChart([makePoint(0, holders)], "dark");
    expect(series).toHaveLength(10);
    expect(series[8]?.label).toBe("3 smaller");
    expect(table.columns[8]).toEqual([12 + 11 + 10]);
    const colours = series.slice(0, 8).map((one) => one.colour);
    expect(new Set(colours).size).toBe(8);
  });

  it("many small and short ones share a band, so that the large ones stay apart", () => {
    const points = [0, 5, 10, 15].map((at) =>
      makePoint(at, { "Job/train/atlas": 120, "Job/serve/chat": 64, [`Job/probe/p-${at}`]: 4 }),
    );
    const labels = holderChart(points, "light").series.map((one) => one.label);
    expect(labels).toEqual(["atlas", "chat", "p-0", "3 smaller", "total"]);
  });

  it("a holder keeps its colour when others come and go", () => {
    const colourOf = (points: CapacityPoint[]) =>
      holderChart(points, "light").series.find((one) => one.label === "b")?.colour;
    const before = colourOf([makePoint(0, { a: 9, b: 4 })]);
    const after = colourOf([makePoint(0, { b: 4, c: 9, aa: 2 })]);
    expect(before).toBe(after);
    expect(categorical.light).toContain(before);
  });
});

it.each([
  [
    ["Job/train/atlas", "Deployment/serve/chat"],
    ["atlas", "chat"],
  ],
  [
    ["Job/train/atlas", "Job/test/atlas"],
    ["train/atlas", "test/atlas"],
  ],
  [["foundation"], ["foundation"]],
])("short names of %j are %j", (holders, want) => {
  expect([...shortNames(holders).values()]).toEqual(want);
});
