import { describe, expect, it } from "vitest";
import * as format from "./format.ts";

describe("duration", () => {
  it.each([
    [null, "—"],
    [undefined, "—"],
    [0, "0.0 ms"],
    [0.0042, "4.2 ms"],
    [0.412, "412 ms"],
    [3.4142, "3.41 s"],
    [59.99, "60.0 s"],
    [65, "1 min 05 s"],
    [7620, "2 h 07 min"],
    [273600, "3 d 4 h"],
    [-2, "−2.00 s"],
  ])("%s s is %s", (seconds, want) => {
    expect(format.duration(seconds)).toBe(want);
  });
});

describe("age", () => {
  it.each([
    [null, "—"],
    [-3, "now"],
    [1.9, "now"],
    [2, "2 s"],
    [59.9, "59 s"],
    [60, "1 min"],
    [7199, "1 h"],
    [200000, "2 d"],
  ])("%s s is %s", (seconds, want) => {
    expect(format.age(seconds)).toBe(want);
  });
});

describe("quantity", () => {
  it.each([
    [null, "—"],
    [Number.NaN, "—"],
    [0, "0"],
    [0.012345, "0.0123"],
    [4.5123, "4.51"],
    [1234, "1,230"],
    [12345, "12.3k"],
    [1204567, "1.20M"],
    [-12345, "-12.3k"],
  ])("%s is %s", (value, want) => {
    expect(format.quantity(value)).toBe(want);
  });
});

it.each([
  [null, null, "—"],
  [0, 0, "—"],
  [0, 8, "0.0 %"],
  [3, 8, "37.5 %"],
  [undefined, 8, "—"],
])("percent of %s in %s is %s", (part, whole, want) => {
  expect(format.percent(part, whole)).toBe(want);
});

it.each([
  [4, "+4"],
  [-2, "−2"],
  [0, "0"],
  [null, "—"],
])("a change of %s is %s", (value, want) => {
  expect(format.signed(value)).toBe(want);
});

it("a zero is shown as a zero and absence as a dash", () => {
  expect(format.count(0)).toBe("0");
  expect(format.count(null)).toBe("—");
  expect(format.decimals(0, 3)).toBe("0.000");
  expect(format.decimals(undefined, 3)).toBe("—");
});

it("times carry their day once they are not of the last hours, and UTC in full", () => {
  const now = new Date("2026-12-01T12:00:00Z");
  expect(format.localTime(new Date("2026-12-01T11:59:07Z"), now)).toBe("11:59:07");
  expect(format.localTime(new Date("2026-11-28T11:59:07Z"), now)).toBe("28 Nov, 11:59");
  expect(format.utc(new Date("2026-12-01T11:59:07.4Z"))).toBe("2026-12-01 11:59:07 UTC");
});

it("resources are shortened without losing the device", () => {
  expect(format.shortResource("nvidia.com/gpu")).toBe("nvidia gpu");
  expect(format.shortResource("concertina.dev/cpu-device")).toBe("concertina cpu-device");
  expect(format.shortResource("odd")).toBe("odd");
});
