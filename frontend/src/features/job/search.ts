import { type RangeName, ranges } from "../fleet/search.ts";

export interface JobSearch {
  range?: RangeName;
}

export function readJobSearch(search: Record<string, unknown>): JobSearch {
  const { range } = search;
  return typeof range === "string" && range in ranges ? { range: range as RangeName } : {};
}
