import { QueryClient } from "@tanstack/react-query";
import { beforeEach, describe, expect, it } from "vitest";
import { append, appliers } from "./appliers.ts";
import { serverNow } from "./clock.ts";
import { forgetCounts } from "./counts.ts";
import { keys } from "./keys.ts";
import type { Cluster, Command, Decision, Job, Recovery } from "./types.ts";

beforeEach(forgetCounts);

const ago = (seconds: number) => new Date(serverNow() - seconds * 1000).toISOString();

function makeJob(change: Partial<Job> = {}): Job {
  return { id: "j1", name: "atlas", running: 4, productive: null, ...change } as Job;
}

function makeDecision(change: Partial<Decision> = {}): Decision {
  return {
    id: 1,
    cluster: "sandbox",
    job: { id: "j1" },
    reason_code: "grow",
    command: null,
    ...change,
  } as Decision;
}

const pages = <T>(...results: T[]) => ({
  pages: [{ next: null, previous: null, results }],
  pageParams: [undefined],
});

const rows = (queryClient: QueryClient, key: readonly unknown[]) =>
  queryClient
    .getQueryData<ReturnType<typeof pages<{ id: unknown }>>>(key)
    ?.pages.flatMap((page) => page.results.map((row) => row.id));

describe("append", () => {
  const at = (second: number) => ({ at: ago(second) });

  it("adds what is newer", () => {
    const [a, b] = [at(20), at(10)];
    expect(append([a], b, 60)).toEqual([a, b]);
  });

  it("leaves out what came before or again (a replay)", () => {
    const series = [at(20), at(10)];
    expect(append(series, series[1] as { at: string }, 60)).toBe(series);
    expect(append(series, at(15), 60)).toBe(series);
  });

  it("drops what left the window, but for the value that it opens with", () => {
    const [a, b, c, d] = [at(200), at(100), at(50), at(1)];
    expect(append([a, b, c], d, 60)).toEqual([b, c, d]);
  });
});

describe("job events", () => {
  it("change the row in every list and the job itself, absent counts included", () => {
    const queryClient = new QueryClient();
    const listed = keys.jobs({ cluster: "sandbox" });
    queryClient.setQueryData(listed, pages(makeJob({ productive: 4 }), makeJob({ id: "j2" })));
    queryClient.setQueryData(keys.job("j1"), { ...makeJob({ productive: 4 }), sandbox: true });
    appliers.job(queryClient, makeJob({ running: 0, productive: null }));
    expect(queryClient.getQueryData(keys.job("j1"))).toMatchObject({
      running: 0,
      productive: null,
      sandbox: true,
    });
    expect(rows(queryClient, listed)).toEqual(["j1", "j2"]);
  });

  it("of an unknown job ask for the lists anew", () => {
    const asked = appliers.job(new QueryClient(), makeJob({ id: "new" }));
    expect(asked).toContainEqual(["jobs"]);
  });
});

describe("decision events", () => {
  it.each([
    [{ cluster: "sandbox" }, [1, 0]],
    [{ cluster: "other" }, [0]],
    [{ job: "j1" }, [1, 0]],
    [{ job: "j2" }, [0]],
    [{ cluster: "sandbox", reason_code: "shrink" }, [0]],
    [{ cluster: "sandbox", with_command: true }, [0]],
    [{ cluster: "sandbox", with_command: false }, [1, 0]],
  ])("go on top of the lists whose filters they match: %j", (filters, want) => {
    const queryClient = new QueryClient();
    queryClient.setQueryData(keys.decisions(filters), pages(makeDecision({ id: 0 })));
    appliers.decision(queryClient, makeDecision());
    appliers.decision(queryClient, makeDecision());
    expect(rows(queryClient, keys.decisions(filters))).toEqual(want);
  });
});

describe("command events", () => {
  const command = { id: "c1", decision: 1, job: "j1", state: "applied" } as Command;

  it("move the command on where its decision is shown", () => {
    const queryClient = new QueryClient();
    const list = keys.decisions({ cluster: "sandbox" });
    queryClient.setQueryData(
      list,
      pages(makeDecision({ command: { ...command, state: "pending" } })),
    );
    const asked = appliers.command(queryClient, command);
    const shown = queryClient.getQueryData<ReturnType<typeof pages<Decision>>>(list);
    expect(shown?.pages[0]?.results[0]?.command?.state).toBe("applied");
    expect(asked).not.toContainEqual(["decisions"]);
  });

  it("of a decision that isn't shown ask for the lists anew", () => {
    expect(appliers.command(new QueryClient(), command)).toContainEqual(["decisions"]);
  });
});

describe("capacity and cluster events", () => {
  const states = { free: 8 } as never;

  it("make the cluster's age that of the event, never older", () => {
    const queryClient = new QueryClient();
    const cluster = { name: "sandbox", capacity: [], last_observed_at: ago(5), last_error: "" };
    queryClient.setQueryData(keys.clusters, [cluster]);
    const event = { cluster: "sandbox", resource: "nvidia.com/gpu", total: 8, states, holders: {} };
    appliers.capacity(queryClient, { ...event, at: ago(60) });
    let [now] = queryClient.getQueryData<Cluster[]>(keys.clusters) ?? [];
    expect(now?.last_observed_at).toBe(cluster.last_observed_at);
    expect(now?.capacity.map((one) => one.total)).toEqual([8]);
    const fresh = ago(0);
    appliers.cluster(queryClient, {
      name: "sandbox",
      last_observed_at: fresh,
      last_error: "connection refused",
    });
    [now] = queryClient.getQueryData<Cluster[]>(keys.clusters) ?? [];
    expect(now).toMatchObject({ last_observed_at: fresh, last_error: "connection refused" });
  });

  it("of a cluster that isn't known ask for the clusters", () => {
    const event = { name: "new", last_observed_at: null, last_error: "" };
    expect(appliers.cluster(new QueryClient(), event)).toEqual([keys.clusters]);
  });
});

it("a recovery is added once", () => {
  const queryClient = new QueryClient();
  const event = { id: 7, job: "j1" } as Recovery;
  queryClient.setQueryData(keys.recoveries("j1"), []);
  appliers.recovery(queryClient, event);
  appliers.recovery(queryClient, event);
  expect(queryClient.getQueryData(keys.recoveries("j1"))).toEqual([event]);
});
