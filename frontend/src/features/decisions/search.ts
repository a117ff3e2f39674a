export interface DecisionSearch {
  /** The decision whose details are open. */
  id?: number;
  /** A job's id. */
  job?: string;
  reason?: string;
  /** Only decisions that changed a size. */
  changes?: boolean;
}

export function readDecisionSearch(search: Record<string, unknown>): DecisionSearch {
  const whole = (value: unknown) =>
    typeof value === "number" && Number.isSafeInteger(value) && value > 0 ? value : undefined;
  const id = whole(search.id);
  return {
    ...(id ? { id } : {}),
    ...(typeof search.job === "string" && search.job ? { job: search.job } : {}),
    ...(typeof search.reason === "string" && search.reason ? { reason: search.reason } : {}),
    ...(search.changes === true ? { changes: true } : {}),
  };
}
