import { useNavigate, useSearch } from "@tanstack/react-router";
import { useClusters } from "../../api/queries.ts";
import type { Cluster } from "../../api/types.ts";
import type { PanelQuery } from "../../components/Panel.tsx";

/** The cluster that the address names, else the first enabled; undefined until they are known. */
export function useCluster(): {
  cluster: Cluster | undefined;
  clusters: readonly Cluster[];
  /** The name in the address, where no such cluster exists. */
  missing: string | undefined;
  choose: (name: string) => void;
  /** What to say where no cluster can be shown; null while one can, or may yet. */
  nothing: string | null;
  /** A query that needs the cluster, failing where the cluster could not be asked for. */
  after: <T, Q extends PanelQuery<T>>(query: Q) => Q;
} {
  const { cluster: wanted } = useSearch({ strict: false });
  const navigate = useNavigate();
  const asked = useClusters();
  const { data } = asked;
  const clusters = data ?? [];
  const named = clusters.find((one) => one.name === wanted);
  const first = clusters.find((one) => one.enabled) ?? clusters[0];
  const cluster = wanted ? named : first;
  return {
    cluster,
    nothing: data && !cluster ? "No cluster to show." : null,
    after: (query) =>
      query.data === undefined && !query.error && asked.error && !cluster
        ? { ...query, error: asked.error, isFetching: asked.isFetching, refetch: asked.refetch }
        : query,
    clusters,
    missing: wanted && data && !named ? wanted : undefined,
    choose: (name) =>
      void navigate({ to: ".", search: (before) => ({ ...before, cluster: name }) }),
  };
}
