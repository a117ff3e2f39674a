import { MantineProvider } from "@mantine/core";
import { render, screen } from "@testing-library/react";
import { describe, expect, it } from "vitest";
import type { Command, Decision, PendingItem, WhyPending } from "../../api/types.ts";
import { Standing, suspensionOf } from "./JobWhyPanel.tsx";

function makeDecision(id: number, change: Partial<Decision> = {}): Decision {
  return {
    id,
    at: "2026-12-01T00:00:00Z",
    sentence: "Has its maximum of 4 replicas.",
    share: 4,
    expected_gain: null,
    unblock: [],
    rejected: [],
    command: null,
    ...change,
  } as Decision;
}

const command = (kind: string, state = "done") => ({ kind, state }) as Command;

describe("the decision that stopped a job", () => {
  it.each([
    ["none", [makeDecision(1)], undefined],
    ["stopped, then said to wait", [makeDecision(2), decided(1, "suspend")], 1],
    ["let run again since", [decided(2, "admit"), decided(1, "suspend")], undefined],
    ["given up for a newer plan", [decided(2, "admit", "superseded"), decided(1, "suspend")], 1],
  ])("%s", (_name, decisions, want) => {
    expect(suspensionOf(decisions as Decision[])?.id).toBe(want);
  });

  function decided(id: number, kind: string, state?: string) {
    return makeDecision(id, { command: command(kind, state) });
  }
});

describe("where a job stands", () => {
  const why: WhyPending = {
    cluster: "east",
    plan: 1,
    planned_at: null,
    last_seen_at: null,
    age_s: 1,
    workload: "Job/ml/llama",
    waits: false,
    items: [],
    reservations: [],
    decision: makeDecision(1),
  };
  const show = (change: Partial<WhyPending>) =>
    render(
      <MantineProvider>
        <Standing why={{ ...why, ...change }} />
      </MantineProvider>,
    );

  it("running: its newest decision, its share, and no empty lists", () => {
    show({});
    expect(screen.getByText(/Has its maximum of 4 replicas/)).toBeDefined();
    expect(screen.getByText("Share and gain")).toBeDefined();
    expect(screen.queryByText("What would help")).toBeNull();
    expect(screen.queryByText("Rejected candidates")).toBeNull();
  });

  it("waiting: what the last plan says, not the older decision", () => {
    const item = {
      reason: { code: "no_capacity", sentence: "0 of 2 pods find room.", numbers: {} },
      rejected: [],
      unblock: [{ code: "add_nodes", sentence: "2 more nodes.", numbers: {} }],
    } as unknown as PendingItem;
    show({ waits: true, items: [item] });
    expect(screen.getByText("0 of 2 pods find room.")).toBeDefined();
    expect(screen.getByText("2 more nodes.")).toBeDefined();
    expect(screen.queryByText(/Has its maximum/)).toBeNull();
  });
});
