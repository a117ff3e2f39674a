/** How far back the fleet chart goes. */
export const ranges = { "15m": 900, "1h": 3600, "6h": 21600, "24h": 86400 } as const;
export type RangeName = keyof typeof ranges;

export interface FleetSearch {
  range?: RangeName;
  resource?: string;
  /** The pending workload whose reasons are shown: Kind/namespace/name. */
  why?: string;
}

/** Reads what is in the address; what isn't understood is left out. */
export function readFleetSearch(search: Record<string, unknown>): FleetSearch {
  const { range, resource, why } = search;
  return {
    ...(typeof range === "string" && range in ranges ? { range: range as RangeName } : {}),
    ...(typeof resource === "string" ? { resource } : {}),
    ...(typeof why === "string" && why.split("/").length === 3 ? { why } : {}),
  };
}
