/** One function an event type: changes what the cache holds, and returns the keys to ask anew. */
import type { InfiniteData, QueryClient } from "@tanstack/react-query";
import { serverNow } from "./clock.ts";
import { noteCounts } from "./counts.ts";
import { type DecisionFilters, keys } from "./keys.ts";
import type {
  CapacitySeries,
  Cluster,
  Decision,
  Job,
  JobDetail,
  Page,
  Recovery,
  SampleSeries,
  StreamEvents,
} from "./types.ts";

type Keys = readonly (readonly unknown[])[];
type Pages<T> = InfiniteData<Page<T>>;
type Applier<T> = (queryClient: QueryClient, event: T) => Keys;

/** Rows of a list in any of its pages, changed by `change`; the same object where nothing was. */
function mapPages<T>(data: Pages<T> | undefined, change: (row: T) => T): Pages<T> | undefined {
  if (!data) return data;
  let changed = false;
  const pages = data.pages.map((page) => {
    const results = page.results.map((row) => {
      const next = change(row);
      if (next !== row) changed = true;
      return next;
    });
    return { ...page, results };
  });
  return changed ? { ...data, pages } : data;
}

function prepend<T>(data: Pages<T>, row: T): Pages<T> {
  const [first, ...rest] = data.pages;
  if (!first) return data;
  return { ...data, pages: [{ ...first, results: [row, ...first.results] }, ...rest] };
}

const includes = <T extends { id: unknown }>(data: Pages<T>, id: unknown) =>
  data.pages.some((page) => page.results.some((row) => row.id === id));

/** The end of a series with one more point, without what has left its window of `seconds`. */
export function append<T extends { at: string }>(series: readonly T[], point: T, seconds: number) {
  const last = series.at(-1);
  if (last && Date.parse(last.at) >= Date.parse(point.at)) return series as T[];
  const start = serverNow() - seconds * 1000;
  // One point from before the window stays: the value with which the window begins.
  let first = series.findIndex((one) => Date.parse(one.at) >= start);
  if (first < 0) first = series.length;
  return [...series.slice(Math.max(0, first - 1)), point];
}

const capacity: Applier<StreamEvents["capacity"]> = (queryClient, event) => {
  queryClient.setQueryData<Cluster[]>(keys.clusters, (clusters) =>
    clusters?.map((cluster) =>
      cluster.name === event.cluster ? withCapacity(cluster, event) : cluster,
    ),
  );
  const { at, total, states, holders } = event;
  const wanted = { queryKey: ["capacity", event.cluster, event.resource] };
  for (const [key, data] of queryClient.getQueriesData<CapacitySeries>(wanted)) {
    if (!data) continue;
    const series = append(data.series, { at, total, states, holders }, key[3] as number);
    if (series !== data.series) queryClient.setQueryData(key, { ...data, series });
  }
  return [keys.nodes(event.cluster), ...ofPlan(event.cluster)];
};

/** What the newest plan says of the whole cluster, which has no event of its own. */
const ofPlan = (cluster: string): Keys => [keys.pending(cluster), keys.notices(cluster)];

function withCapacity(cluster: Cluster, event: StreamEvents["capacity"]): Cluster {
  const { at, resource, total, states, holders } = event;
  const known = cluster.capacity.find((one) => one.resource === resource);
  const now = { resource, pool: null, total, states, holders, observed_at: at, age_s: 0 };
  return {
    ...cluster,
    last_observed_at: later(cluster.last_observed_at, at),
    capacity: known
      ? cluster.capacity.map((one) => (one === known ? now : one))
      : [...cluster.capacity, now],
  };
}

function later(a: string | null, b: string | null): string | null {
  if (!a || !b) return a ?? b;
  return Date.parse(a) > Date.parse(b) ? a : b;
}

const cluster: Applier<StreamEvents["cluster"]> = (queryClient, event) => {
  let known = false;
  queryClient.setQueryData<Cluster[]>(keys.clusters, (clusters) =>
    clusters?.map((one) => {
      if (one.name !== event.name) return one;
      known = true;
      return {
        ...one,
        last_error: event.last_error,
        last_observed_at: later(one.last_observed_at, event.last_observed_at),
      };
    }),
  );
  return known ? [] : [keys.clusters];
};

function matches(filters: DecisionFilters, decision: Decision): boolean {
  return (
    (filters.cluster === undefined || filters.cluster === decision.cluster) &&
    (filters.job === undefined || filters.job === decision.job.id) &&
    (filters.reason_code === undefined || filters.reason_code === decision.reason_code) &&
    (filters.with_command === undefined || filters.with_command === Boolean(decision.command))
  );
}

const decision: Applier<StreamEvents["decision"]> = (queryClient, event) => {
  for (const [key, data] of queryClient.getQueriesData<Pages<Decision>>({
    queryKey: ["decisions"],
  })) {
    if (!data || includes(data, event.id)) continue;
    if (matches(key[1] as DecisionFilters, event)) {
      queryClient.setQueryData(key, prepend(data, event));
    }
  }
  return ofPlan(event.cluster);
};

const command: Applier<StreamEvents["command"]> = (queryClient, event) => {
  const change = (row: Decision): Decision =>
    row.id === event.decision || row.command?.id === event.id ? { ...row, command: event } : row;
  let listed = false;
  queryClient.setQueriesData<Pages<Decision>>({ queryKey: ["decisions"] }, (data) => {
    const next = mapPages(data, change);
    if (next !== data) listed = true;
    return next;
  });
  queryClient.setQueryData<Decision>(keys.decision(event.decision), (data) =>
    data ? change(data) : data,
  );
  // A decision that got its command after it was told of may belong into more lists now.
  return listed ? [keys.replicas(event.job)] : [keys.replicas(event.job), ["decisions"]];
};

const job: Applier<StreamEvents["job"]> = (queryClient, event) => {
  noteCounts(event);
  let listed = false;
  queryClient.setQueriesData<Pages<Job>>({ queryKey: ["jobs"] }, (data) =>
    mapPages(data, (row) => {
      if (row.id !== event.id) return row;
      listed = true;
      return event;
    }),
  );
  queryClient.setQueryData<JobDetail>(keys.job(event.id), (data) =>
    data ? { ...data, ...event } : data,
  );
  // The event is the summary: what only the job's own page shows is asked for.
  const own = [keys.job(event.id), keys.replicas(event.id)];
  return listed ? own : [...own, ["jobs"]];
};

const sample: Applier<StreamEvents["sample"]> = (queryClient, event) => {
  const { job: id, ...point } = event;
  for (const [key, data] of queryClient.getQueriesData<SampleSeries>({
    queryKey: ["samples", id],
  })) {
    if (!data) continue;
    const series = append(data.series, { ...point, samples: 1 }, key[2] as number);
    if (series !== data.series) queryClient.setQueryData(key, { ...data, series });
  }
  return [];
};

const recovery: Applier<StreamEvents["recovery"]> = (queryClient, event) => {
  queryClient.setQueryData<Recovery[]>(keys.recoveries(event.job), (rows) =>
    !rows || rows.some((row) => row.id === event.id) ? rows : [event, ...rows],
  );
  return [keys.attempts(event.job), keys.replicas(event.job)];
};

export const appliers = { capacity, cluster, decision, command, job, sample, recovery };
