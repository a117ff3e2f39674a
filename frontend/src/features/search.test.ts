import { describe, expect, it } from "vitest";
import { readDecisionSearch } from "./decisions/search.ts";
import { readFleetSearch } from "./fleet/search.ts";
import { readJobsSearch, toggled } from "./jobs/search.ts";

describe("what an address says is read, and nonsense left out", () => {
  it.each([
    [{}, {}],
    [
      { range: "1h", resource: "nvidia.com/gpu" },
      { range: "1h", resource: "nvidia.com/gpu" },
    ],
    [{ range: "9y", resource: 4, why: "Job/llama" }, {}],
    [{ why: "Job/ml/llama" }, { why: "Job/ml/llama" }],
  ])("fleet %j: %j", (given, want) => {
    expect(readFleetSearch(given)).toEqual(want);
  });

  it.each([
    [
      { search: "llama", phase: "running" },
      { search: "llama", phase: "running" },
    ],
    [{ search: "", phase: "melting", team: 3 }, {}],
    [{ ordering: "-priority" }, { ordering: "-priority" }],
    [{ ordering: "name; drop" }, {}],
  ])("jobs %j: %j", (given, want) => {
    expect(readJobsSearch(given)).toEqual(want);
  });

  it.each([
    [
      { id: 7, changes: true },
      { id: 7, changes: true },
    ],
    [{ id: -1 }, {}],
    [{ id: "7", changes: "yes", reason: "grow" }, { reason: "grow" }],
  ])("decisions %j: %j", (given, want) => {
    expect(readDecisionSearch(given)).toEqual(want);
  });
});

it.each([
  [undefined, "name", "name"],
  ["name", "name", "-name"],
  ["-name", "name", undefined],
  ["-name", "team", "team"],
])("ordered by %s, a click on %s orders by %s", (before, column, want) => {
  expect(toggled(before, column)).toBe(want);
});
