import { describe, expect, it } from "vitest";
import type { Decision, Job, Sample } from "../../api/types.ts";
import { countsTable } from "./counts.ts";

const at = (second: number) => new Date(second * 1000).toISOString();

function makeJob(change: Partial<Job> = {}): Job {
  return {
    desired: null,
    granted: null,
    running: null,
    productive: null,
    observed_at: null,
    last_report_at: null,
    ...change,
  } as Job;
}

function makeDecision(
  second: number,
  current: number,
  desired: number,
  applied?: number,
): Decision {
  const command = applied === undefined ? null : { applied_at: at(applied), to_replicas: desired };
  return { at: at(second), current, desired, command } as Decision;
}

function makeSample(second: number, world_size: number | null): Sample {
  return { at: at(second), world_size } as Sample;
}

describe("countsTable", () => {
  it("takes each count from what recorded it, and running from nothing else", () => {
    const table = countsTable({
      job: makeJob(),
      decisions: [makeDecision(100, 2, 4, 103)],
      samples: [makeSample(101, 2), makeSample(106, 4)],
      seen: [],
    });
    expect(table.x).toEqual([100, 101, 103, 106]);
    const [desired, granted, running, productive] = table.columns;
    expect(desired).toEqual([4, 4, 4, 4]);
    expect(granted).toEqual([2, 2, 4, 4]);
    expect(running).toEqual([null, null, null, null]);
    expect(productive).toEqual([null, 2, 2, 4]);
  });

  it("is silent about the productive count while the trainer is", () => {
    const table = countsTable({
      job: makeJob(),
      decisions: [],
      samples: [makeSample(0, 4), makeSample(100, 4)],
      seen: [],
    });
    expect(table.x).toEqual([0, 30, 100]);
    expect(table.columns[3]).toEqual([4, null, 4]);
  });

  it("ends with the job's own counts, an absent one absent", () => {
    const table = countsTable({
      job: makeJob({ desired: 4, granted: 4, running: 3, observed_at: at(200) }),
      decisions: [makeDecision(100, 4, 4)],
      samples: [],
      seen: [],
    });
    expect(table.columns.map((column) => column.at(-1))).toEqual([4, 4, 3, null]);
  });

  it("keeps what this tab saw, also that it lost sight", () => {
    const table = countsTable({
      job: makeJob(),
      decisions: [],
      samples: [],
      seen: [
        { at: 10, desired: 4, granted: 4, running: 3, productive: null },
        { at: 20, desired: null, granted: null, running: null, productive: null },
      ],
    });
    expect(table.columns[2]).toEqual([3, null]);
  });
});
