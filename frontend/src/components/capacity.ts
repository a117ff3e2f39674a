/** The nine states of an accelerator, in the order in which bars, grids and legends list them. */
export const capacityStates = [
  "used",
  "used_unhealthy",
  "terminating",
  "reserved",
  "free",
  "booting",
  "tainted",
  "cordoned",
  "not_ready",
] as const;
export type CapacityState = (typeof capacityStates)[number];

export type StateCounts = Partial<Record<string, number>>;

export const stateMeaning: Record<CapacityState, { label: string; meaning: string }> = {
  used: { label: "used", meaning: "Held by a running pod." },
  used_unhealthy: {
    label: "used, unhealthy",
    meaning: "Held by a pod on a node or device that is not healthy.",
  },
  terminating: {
    label: "terminating",
    meaning: "The pod is being deleted; it still holds the accelerator.",
  },
  reserved: { label: "reserved", meaning: "Granted, but the pod can't be seen yet." },
  free: { label: "free", meaning: "Can be given to a pod now." },
  booting: { label: "booting", meaning: "The node is ready, its device plugin is not yet." },
  tainted: { label: "tainted", meaning: "Behind a taint that the demand doesn't tolerate." },
  cordoned: { label: "cordoned", meaning: "The node takes no new pods." },
  not_ready: { label: "not ready", meaning: "The node doesn't report itself ready." },
};

/** One state for each accelerator, in order; states we don't know by name come last. */
export function expand(states: StateCounts): string[] {
  const known = capacityStates.filter((state) => state in states) as string[];
  const unknown = Object.keys(states).filter((state) => !known.includes(state));
  return [...known, ...unknown].flatMap((state) =>
    new Array<string>(Math.max(0, states[state] ?? 0)).fill(state),
  );
}

/** The sum of all states; null where nothing was observed. */
export function sum(states: StateCounts | null | undefined): number | null {
  if (!states) return null;
  return Object.values(states).reduce<number>((total, n) => total + (n ?? 0), 0);
}

/** `6 used, 2 free`: only what is there. */
export function describeStates(states: StateCounts | null | undefined): string {
  if (!states) return "not observed";
  const parts = capacityStates
    .filter((state) => (states[state] ?? 0) > 0)
    .map((state) => `${states[state]} ${stateMeaning[state].label}`);
  return parts.join(", ") || "none";
}
