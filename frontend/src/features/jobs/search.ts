/** What the jobs table shows, as kept in the page's address. */
export const phases = [
  "pending",
  "starting",
  "running",
  "resizing",
  "degraded",
  "suspended",
  "succeeded",
  "failed",
  "deleted",
] as const;
export type Phase = (typeof phases)[number];

export interface JobsSearch {
  search?: string;
  phase?: Phase;
  team?: string;
  ordering?: string;
}

const field = /^-?[a-z_]+$/;

export function readJobsSearch(given: Record<string, unknown>): JobsSearch {
  const { search, phase, team, ordering } = given;
  return {
    ...(typeof search === "string" && search ? { search } : {}),
    ...(phases.includes(phase as Phase) ? { phase: phase as Phase } : {}),
    ...(typeof team === "string" && team ? { team } : {}),
    ...(typeof ordering === "string" && field.test(ordering) ? { ordering } : {}),
  };
}

/** The next order of a column: up, down, then as before. */
export function toggled(ordering: string | undefined, column: string): string | undefined {
  if (ordering === column) return `-${column}`;
  return ordering === `-${column}` ? undefined : column;
}
