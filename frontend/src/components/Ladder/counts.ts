import type { Maybe } from "../format.ts";
import { isAbsent } from "../format.ts";

/** The four replica counts of a job, never merged. */
export interface Counts {
  desired: Maybe<number>;
  granted: Maybe<number>;
  running: Maybe<number>;
  productive: Maybe<number>;
}

export const rungs = ["desired", "granted", "running", "productive"] as const;
export type Rung = (typeof rungs)[number];

export const rungMeaning: Record<Rung, string> = {
  desired: "planned",
  granted: "written to the cluster",
  running: "pods ready",
  productive: "in the training quorum",
};

/** What a rung's difference from the one above says; null where there is none or one is absent. */
export function difference(counts: Counts, rung: Rung): string | null {
  const above = rungs[rungs.indexOf(rung) - 1];
  if (!above) return null;
  const [upper, own] = [counts[above], counts[rung]];
  if (isAbsent(upper) || isAbsent(own) || upper === own) return null;
  const size = Math.abs(upper - own);
  const less = own < upper;
  switch (rung) {
    case "granted":
      return less ? `${size} not granted yet` : `${size} to be taken back`;
    case "running":
      return less ? `${size} not ready yet` : `${size} leaving`;
    case "productive":
      return less ? `${size} outside the quorum` : `${size} beyond the ready pods`;
    default:
      return null;
  }
}

/** Whether the counts that are known agree. */
export function settled(counts: Counts): boolean {
  const known = rungs.map((rung) => counts[rung]).filter((value) => !isAbsent(value));
  return known.every((value) => value === known[0]);
}
