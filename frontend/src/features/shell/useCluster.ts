import { useNavigate, useSearch } from "@tanstack/react-router";
import { useClusters } from "../../api/queries.ts";
import type { Cluster } from "../../api/types.ts";

/** The cluster that the address names, else the first enabled; undefined until they are known. */
export function useCluster(): {
  cluster: Cluster | undefined;
  clusters: readonly Cluster[];
  /** The name in the address, where no such cluster exists. */
  missing: string | undefined;
  choose: (name: string) => void;
} {
  const { cluster: wanted } = useSearch({ strict: false });
  const navigate = useNavigate();
  const { data } = useClusters();
  const clusters = data ?? [];
  const named = clusters.find((one) => one.name === wanted);
  const first = clusters.find((one) => one.enabled) ?? clusters[0];
  return {
    cluster: wanted ? named : first,
    clusters,
    missing: wanted && data && !named ? wanted : undefined,
    choose: (name) =>
      void navigate({ to: ".", search: (before) => ({ ...before, cluster: name }) }),
  };
}
