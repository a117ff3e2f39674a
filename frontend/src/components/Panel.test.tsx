import { MantineProvider } from "@mantine/core";
import { fireEvent, render, screen } from "@testing-library/react";
import { describe, expect, it, vi } from "vitest";
import { apiError } from "../api/errors.ts";
import { Panel, type PanelQuery } from "./Panel.tsx";

function show(query: PanelQuery<string[]>, observedAt?: string | null) {
  return render(
    <MantineProvider>
      <Panel
        title="Pending demand"
        query={query}
        loadingHeight={80}
        empty={(rows) => (rows.length === 0 ? "Nothing is waiting." : null)}
        observedAt={observedAt === undefined ? undefined : () => observedAt}
      >
        {(rows) => <p>{rows.join(", ")}</p>}
      </Panel>
    </MantineProvider>,
  );
}

describe("Panel", () => {
  it("loading: says so and shows no content", () => {
    const { container } = show({ data: undefined, error: null, refetch: vi.fn() });
    expect(screen.getByText("Loading")).toBeDefined();
    expect(container.querySelector('[aria-busy="true"]')).not.toBeNull();
  });

  it("empty: a sentence instead of an empty table", () => {
    show({ data: [], error: null, refetch: vi.fn() });
    expect(screen.getByText("Nothing is waiting.")).toBeDefined();
  });

  it("failing: the error and a retry, no endless skeleton", () => {
    const refetch = vi.fn();
    const error = apiError(503, null);
    const { container } = show({ data: undefined, error, refetch });
    expect(screen.getByRole("alert").textContent).toContain("not ready yet");
    expect(container.querySelector('[aria-busy="true"]')).toBeNull();
    fireEvent.click(screen.getByRole("button", { name: "Try again" }));
    expect(refetch).toHaveBeenCalledOnce();
  });

  it("failing with older data: both are shown, and which is which", () => {
    const error = apiError(400, {
      errors: [{ field: "since", code: "invalid", message: "since: not a time; use ISO 8601." }],
    });
    show({ data: ["train-a"], error, refetch: vi.fn() });
    expect(screen.getByRole("alert").textContent).toContain("since: not a time; use ISO 8601.");
    expect(screen.getByRole("alert").textContent).toContain("is from before");
    expect(screen.getByText("train-a")).toBeDefined();
  });

  it.each([
    [-3, null],
    [-75, "1 min old"],
  ])("data of %s s ago is marked %s", (offset, want) => {
    const at = new Date(Date.now() + offset * 1000).toISOString();
    show({ data: ["train-a"], error: null, refetch: vi.fn() }, at);
    expect(screen.queryByText(/old$/)?.textContent?.trim() ?? null).toBe(want);
  });

  it("data that was never observed says so", () => {
    show({ data: ["train-a"], error: null, refetch: vi.fn() }, null);
    expect(screen.getByText("never observed")).toBeDefined();
  });
});
