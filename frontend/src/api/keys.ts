/** The cache's keys. Lists that the stream feeds carry what the stream needs to know of them. */
export interface JobFilters {
  cluster?: string;
  search?: string;
  phase?: string;
  team?: string;
  ordering?: string;
}

export interface DecisionFilters {
  cluster?: string;
  job?: string;
  reason_code?: string;
  with_command?: boolean;
}

export const keys = {
  session: ["session"] as const,
  clusters: ["clusters"] as const,
  nodes: (cluster: string | undefined) => ["nodes", cluster] as const,
  pending: (cluster: string | undefined) => ["pending", cluster] as const,
  /** Begins with the key of what waits, so that the two are asked anew together. */
  why: (cluster: string | undefined, workload: string | undefined) =>
    ["pending", cluster, "why", workload] as const,
  notices: (cluster: string | undefined) => ["notices", cluster] as const,
  capacity: (cluster: string | undefined, resource: string | undefined, seconds: number) =>
    ["capacity", cluster, resource, seconds] as const,
  jobs: (filters: JobFilters) => ["jobs", filters] as const,
  job: (id: string) => ["job", id] as const,
  replicas: (id: string) => ["replicas", id] as const,
  recoveries: (id: string) => ["recoveries", id] as const,
  attempts: (id: string) => ["attempts", id] as const,
  samples: (id: string, seconds: number) => ["samples", id, seconds] as const,
  decisions: (filters: DecisionFilters) => ["decisions", filters] as const,
  decision: (id: number | undefined) => ["decision", id] as const,
};
