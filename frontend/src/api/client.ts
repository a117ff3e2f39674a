/** The generated client: one fetch for every path of the schema, errors as ApiError. */
import createClient, { type Middleware } from "openapi-fetch";
import { apiError } from "./errors.ts";
import type { paths } from "./schema.d.ts";

let csrfToken = "";

/** Kept from the last answer about the session; sent with every write. */
export function setCsrfToken(token: string): void {
  csrfToken = token;
}

const safe = new Set(["GET", "HEAD", "OPTIONS"]);

const middleware: Middleware = {
  onRequest({ request }) {
    if (!safe.has(request.method)) request.headers.set("X-CSRFToken", csrfToken);
    return request;
  },
  async onResponse({ response }) {
    if (response.ok) return undefined;
    const body: unknown = await response
      .clone()
      .json()
      .catch(() => null);
    throw apiError(response.status, body);
  },
};

export const client = createClient<paths>({
  baseUrl: window.location.origin,
  credentials: "same-origin",
  headers: { Accept: "application/json" },
});
client.use(middleware);

/** The body of an answer that the middleware let through. */
export function bodyOf<T>(answer: { data?: T }): T {
  if (answer.data === undefined) throw new Error("The server's answer had no content.");
  return answer.data;
}
