/** What the pages read and do. Each hook is one query; the live stream keeps them up to date. */
import {
  type InfiniteData,
  keepPreviousData,
  useInfiniteQuery,
  useMutation,
  useQuery,
  useQueryClient,
} from "@tanstack/react-query";
import { bodyOf, client, setCsrfToken } from "./client.ts";
import { serverNow, setServerTime } from "./clock.ts";
import { type DecisionFilters, type JobFilters, keys } from "./keys.ts";
import type { ClusterNode, FaultSignal, JobPhase, Page, Session } from "./types.ts";

/** At most this many points a chart: about what a screen can show. */
const chartPoints = 600;
/** What has no event of its own is asked for again this often, in milliseconds. */
const slowPoll = 10_000;

const since = (seconds: number) => new Date(serverNow() - seconds * 1000).toISOString();

/** The `cursor` in the address of the next page; undefined where there is none. */
export function cursorOf(next: string | null | undefined): string | undefined {
  if (!next) return undefined;
  return new URL(next, window.location.origin).searchParams.get("cursor") ?? undefined;
}

const flat = <T>(data: InfiniteData<Page<T>>): T[] => data.pages.flatMap((page) => page.results);

// ---- session

function keepSession(session: Session): Session {
  setCsrfToken(session.csrf_token);
  setServerTime(session.server_time);
  return session;
}

export function useSession() {
  return useQuery({
    queryKey: keys.session,
    staleTime: Number.POSITIVE_INFINITY,
    queryFn: async ({ signal }) =>
      keepSession(bodyOf(await client.GET("/api/v1/session/", { signal }))),
  });
}

export function useSignIn() {
  const queryClient = useQueryClient();
  return useMutation({
    mutationFn: async (body: { username: string; password: string }) =>
      keepSession(bodyOf(await client.POST("/api/v1/session/", { body }))),
    onSuccess: (session) => queryClient.setQueryData(keys.session, session),
  });
}

export function useSignOut() {
  const queryClient = useQueryClient();
  return useMutation({
    mutationFn: () => client.DELETE("/api/v1/session/"),
    onSuccess: () => {
      queryClient.removeQueries({ predicate: (query) => query.queryKey[0] !== "session" });
      return queryClient.invalidateQueries({ queryKey: keys.session });
    },
  });
}

// ---- clusters

export function useClusters() {
  return useQuery({
    queryKey: keys.clusters,
    queryFn: async ({ signal }) =>
      bodyOf(await client.GET("/api/v1/clusters/", { params: { query: { limit: 100 } }, signal }))
        .results,
    refetchInterval: 3 * slowPoll,
  });
}

async function allNodes(name: string, signal: AbortSignal): Promise<ClusterNode[]> {
  const nodes: ClusterNode[] = [];
  let cursor: string | undefined;
  do {
    const page = bodyOf(
      await client.GET("/api/v1/clusters/{name}/nodes/", {
        params: { path: { name }, query: { limit: 500, cursor } },
        signal,
      }),
    );
    nodes.push(...page.results);
    cursor = cursorOf(page.next);
  } while (cursor);
  return nodes;
}

export function useNodes(cluster: string | undefined) {
  return useQuery({
    queryKey: keys.nodes(cluster),
    enabled: cluster !== undefined,
    queryFn: ({ signal }) => allNodes(cluster as string, signal),
    refetchInterval: slowPoll,
  });
}

export function usePending(cluster: string | undefined) {
  return useQuery({
    queryKey: keys.pending(cluster),
    enabled: cluster !== undefined,
    queryFn: async ({ signal }) =>
      bodyOf(
        await client.GET("/api/v1/clusters/{name}/pending/", {
          params: { path: { name: cluster as string }, query: { rejected: false } },
          signal,
        }),
      ),
    refetchInterval: slowPoll,
  });
}

/** Why one workload waits, or has no more: all that was weighed for it. `Kind/namespace/name`. */
export function useWhyPending(cluster: string | undefined, workload: string | undefined) {
  return useQuery({
    queryKey: keys.why(cluster, workload),
    enabled: cluster !== undefined && workload !== undefined,
    queryFn: async ({ signal }) => {
      const [kind = "", namespace = "", name = ""] = (workload as string).split("/");
      const path = { name: cluster as string, kind, namespace, workload: name };
      return bodyOf(
        await client.GET("/api/v1/clusters/{name}/pending/{kind}/{namespace}/{workload}/", {
          params: { path },
          signal,
        }),
      );
    },
    refetchInterval: slowPoll,
  });
}

export function useNotices(cluster: string | undefined) {
  return useQuery({
    queryKey: keys.notices(cluster),
    enabled: cluster !== undefined,
    queryFn: async ({ signal }) =>
      bodyOf(
        await client.GET("/api/v1/clusters/{name}/notices/", {
          params: { path: { name: cluster as string } },
          signal,
        }),
      ),
    refetchInterval: slowPoll,
  });
}

export function useCapacity(
  cluster: string | undefined,
  resource: string | undefined,
  seconds: number,
) {
  return useQuery({
    queryKey: keys.capacity(cluster, resource, seconds),
    enabled: cluster !== undefined && resource !== undefined,
    placeholderData: keepPreviousData,
    queryFn: async ({ signal }) =>
      bodyOf(
        await client.GET("/api/v1/clusters/{name}/capacity/", {
          params: {
            path: { name: cluster as string },
            query: { resource: resource as string, since: since(seconds), points: chartPoints },
          },
          signal,
        }),
      ),
  });
}

// ---- jobs

export function useJobs(filters: JobFilters) {
  const { phase, ...rest } = filters;
  return useInfiniteQuery({
    queryKey: keys.jobs(filters),
    enabled: filters.cluster !== undefined,
    placeholderData: keepPreviousData,
    initialPageParam: undefined as string | undefined,
    queryFn: async ({ pageParam, signal }) =>
      bodyOf(
        await client.GET("/api/v1/jobs/", {
          params: {
            query: {
              ...rest,
              ...(phase ? { phase: [phase as JobPhase] } : {}),
              cursor: pageParam,
              limit: 200,
            },
          },
          signal,
        }),
      ),
    getNextPageParam: (page) => cursorOf(page.next),
    select: flat,
  });
}

export function useJob(id: string) {
  return useQuery({
    queryKey: keys.job(id),
    queryFn: async ({ signal }) =>
      bodyOf(await client.GET("/api/v1/jobs/{id}/", { params: { path: { id } }, signal })),
    refetchInterval: 3 * slowPoll,
  });
}

export function useReplicas(id: string) {
  return useQuery({
    queryKey: keys.replicas(id),
    queryFn: async ({ signal }) =>
      bodyOf(
        await client.GET("/api/v1/jobs/{id}/replicas/", {
          params: { path: { id }, query: { limit: 500 } },
          signal,
        }),
      ).results,
    refetchInterval: slowPoll,
  });
}

export function useSamples(id: string, seconds: number) {
  return useQuery({
    queryKey: keys.samples(id, seconds),
    placeholderData: keepPreviousData,
    queryFn: async ({ signal }) =>
      bodyOf(
        await client.GET("/api/v1/jobs/{id}/samples/", {
          params: { path: { id }, query: { since: since(seconds), points: chartPoints } },
          signal,
        }),
      ),
  });
}

export function useRecoveries(id: string) {
  return useQuery({
    queryKey: keys.recoveries(id),
    queryFn: async ({ signal }) =>
      bodyOf(
        await client.GET("/api/v1/jobs/{id}/recoveries/", {
          params: { path: { id }, query: { limit: 100 } },
          signal,
        }),
      ).results,
  });
}

export function useAttempts(id: string) {
  return useQuery({
    queryKey: keys.attempts(id),
    queryFn: async ({ signal }) =>
      bodyOf(
        await client.GET("/api/v1/jobs/{id}/attempts/", {
          params: { path: { id }, query: { limit: 100 } },
          signal,
        }),
      ).results,
    refetchInterval: 3 * slowPoll,
  });
}

export function useInjectFault(id: string) {
  const queryClient = useQueryClient();
  return useMutation({
    mutationFn: async (fault: { replica_index: number; signal: FaultSignal }) =>
      bodyOf(
        await client.POST("/api/v1/jobs/{id}/inject-fault/", {
          params: { path: { id } },
          body: fault,
        }),
      ),
    onSuccess: () => queryClient.invalidateQueries({ queryKey: keys.replicas(id) }),
  });
}

// ---- decisions

export function useDecisions(filters: DecisionFilters, enabled = true) {
  return useInfiniteQuery({
    queryKey: keys.decisions(filters),
    enabled: enabled && (filters.cluster !== undefined || filters.job !== undefined),
    placeholderData: keepPreviousData,
    initialPageParam: undefined as string | undefined,
    queryFn: async ({ pageParam, signal }) =>
      bodyOf(
        await client.GET("/api/v1/decisions/", {
          params: { query: { ...filters, cursor: pageParam, limit: 100 } },
          signal,
        }),
      ),
    getNextPageParam: (page) => cursorOf(page.next),
    select: flat,
  });
}

export function useDecision(id: number | undefined) {
  return useQuery({
    queryKey: keys.decision(id),
    enabled: id !== undefined,
    queryFn: async ({ signal }) =>
      bodyOf(
        await client.GET("/api/v1/decisions/{id}/", {
          params: { path: { id: String(id) } },
          signal,
        }),
      ),
  });
}
