/** Failures as the pages show them: what failed, and which field where the server names one. */
export interface FieldProblem {
  field: string;
  code: string;
  message: string;
}

export class ApiError extends Error {
  readonly status: number;
  readonly problems: readonly FieldProblem[];

  constructor(status: number, problems: readonly FieldProblem[], fallback: string) {
    super(problems.map((problem) => problem.message).join(" ") || fallback);
    this.name = "ApiError";
    this.status = status;
    this.problems = problems;
  }

  /** Not signed in, or no longer. */
  get unauthenticated(): boolean {
    return this.status === 401;
  }
}

/** The `{errors: [...]}` body of a refused request; anything else gives no problems. */
export function problemsIn(body: unknown): FieldProblem[] {
  if (typeof body !== "object" || body === null || !("errors" in body)) return [];
  const { errors } = body;
  if (!Array.isArray(errors)) return [];
  return errors
    .filter((item): item is Record<string, unknown> => typeof item === "object" && item !== null)
    .map((item) => ({
      field: String(item.field ?? ""),
      code: String(item.code ?? ""),
      message: String(item.message ?? "The server refused this without a reason."),
    }));
}

const explained: Record<number, string> = {
  403: "You are signed in, but not permitted to see or do this.",
  404: "There is no such object; it may have been deleted.",
  429: "Too many requests; try again in a moment.",
  502: "The server's proxy got no answer from the application.",
  503: "The server is not ready yet; it may still be starting.",
};

export function apiError(status: number, body: unknown): ApiError {
  const fallback = explained[status] ?? `The server answered with status ${status}.`;
  return new ApiError(status, problemsIn(body), fallback);
}

/** A sentence for any thrown value. */
export function describeError(error: unknown): string {
  if (error instanceof ApiError) return error.message;
  if (error instanceof TypeError) return "The server can't be reached from this browser.";
  if (error instanceof Error) return error.message;
  return "An unknown error occurred.";
}
