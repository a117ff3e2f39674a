import { MantineProvider } from "@mantine/core";
import { QueryClient, QueryClientProvider } from "@tanstack/react-query";
import { fireEvent, render, screen } from "@testing-library/react";
import { describe, expect, it, vi } from "vitest";
import { keys } from "../../api/keys.ts";
import type { Notice, PendingItem, WhyPending } from "../../api/types.ts";
import { NoticeList } from "./NoticesPanel.tsx";
import { PendingList } from "./PendingPanel.tsx";

function makeItem(change: Partial<PendingItem> = {}): PendingItem {
  return {
    workload: "Job/ml/big",
    priority: 100,
    pods: 2,
    requests: { "nvidia.com/gpu": 8 },
    since: null,
    reason: { code: "no_capacity", sentence: "0 of 2 pods find room.", numbers: {} },
    rejected: null,
    rejected_count: 1,
    unblock: [],
    ...change,
  };
}

function makeWhy(change: Partial<WhyPending> = {}): WhyPending {
  const rejected = [
    { candidate: "Job/ml/bert", code: "at_minimum", sentence: "Is at its minimum.", numbers: {} },
  ];
  const unblock = [{ code: "uncordon_nodes", sentence: "Uncordon n7.", numbers: {} }];
  return {
    cluster: "east",
    plan: 1,
    planned_at: null,
    last_seen_at: null,
    age_s: 1,
    workload: "Job/ml/big",
    waits: true,
    items: [makeItem({ rejected, unblock })],
    reservations: [],
    decision: null,
    ...change,
  };
}

function show(items: PendingItem[], why?: string, known?: WhyPending) {
  const onWhy = vi.fn();
  const queryClient = new QueryClient({ defaultOptions: { queries: { enabled: false } } });
  if (known) queryClient.setQueryData(keys.why("east", known.workload), known);
  render(
    <QueryClientProvider client={queryClient}>
      <MantineProvider>
        <PendingList cluster="east" items={items} why={why} onWhy={onWhy} />
      </MantineProvider>
    </QueryClientProvider>,
  );
  return onWhy;
}

const many = (n: number) =>
  Array.from({ length: n }, (_unused, index) => makeItem({ workload: `Pod/ml/p${index}` }));

describe("what waits", () => {
  it("says why in the server's words, and opens the rest on request", () => {
    const onWhy = show([makeItem()]);
    expect(screen.getByText("0 of 2 pods find room.")).toBeDefined();
    expect(screen.getByText("16 nvidia.com/gpu")).toBeDefined();
    const button = screen.getByRole("button", { name: "Why pending: Job/ml/big" });
    expect(button.getAttribute("aria-expanded")).toBe("false");
    fireEvent.click(button);
    expect(onWhy).toHaveBeenCalledWith("Job/ml/big");
  });

  it("open: who could have given places, and what would help", () => {
    const onWhy = show([makeItem()], "Job/ml/big", makeWhy());
    expect(screen.getByText("Uncordon n7.")).toBeDefined();
    expect(screen.getByText("Job/ml/bert")).toBeDefined();
    expect(screen.queryByText("Reserved for it")).toBeNull();
    fireEvent.click(screen.getByRole("button", { name: /^Why pending/ }));
    expect(onWhy).toHaveBeenCalledWith(undefined);
  });

  it("open: places that are reserved", () => {
    const reservations = [
      { demand: "Job/ml/big", priority: 1, nodes: { n1: { "nvidia.com/gpu": 8 } } },
    ];
    show([makeItem()], "Job/ml/big", makeWhy({ reservations }));
    expect(screen.getByText("Reserved for it")).toBeDefined();
    expect(screen.getByText("8 nvidia.com/gpu")).toBeDefined();
  });

  it("open, and meanwhile bound: says so", () => {
    show([makeItem()], "Job/ml/big", makeWhy({ waits: false, items: [] }));
    expect(screen.getByText("It no longer waits in the newest plan.")).toBeDefined();
  });

  it("open, not answered yet: room for it", () => {
    show([makeItem()], "Job/ml/big");
    expect(screen.getByLabelText("Loading why it waits")).toBeDefined();
  });

  it("two demands of one name: one explanation", () => {
    const items = [makeItem(), makeItem({ pods: 1 })];
    show(items, "Job/ml/big", makeWhy({ items: [...makeWhy().items, ...makeWhy().items] }));
    expect(screen.getAllByRole("button", { expanded: true })).toHaveLength(1);
    expect(screen.getAllByText("2 pods: 0 of 2 pods find room.")).toHaveLength(2);
  });
});

describe("500 that wait", () => {
  it("are shown in parts, and found by name", () => {
    show(many(500));
    expect(screen.getAllByRole("listitem")).toHaveLength(30);
    fireEvent.click(screen.getByRole("button", { name: "Show 60 more of 500" }));
    expect(screen.getAllByRole("listitem")).toHaveLength(90);
    const search = screen.getByLabelText("Search what waits by name");
    fireEvent.change(search, { target: { value: "P499" } });
    expect(screen.getAllByRole("listitem")).toHaveLength(1);
    fireEvent.change(search, { target: { value: "nobody" } });
    expect(screen.getByText("Nothing of that name waits.")).toBeDefined();
  });

  it("the one that the address names is among them", () => {
    show(many(500), "Pod/ml/p77");
    expect(screen.getAllByRole("button", { expanded: true })).toHaveLength(1);
  });

  it("few need no search", () => {
    show(many(30));
    expect(screen.queryByLabelText("Search what waits by name")).toBeNull();
    expect(screen.queryByRole("button", { name: /more of/ })).toBeNull();
  });
});

describe("notices", () => {
  const makeNotice = (index: number): Notice => ({
    subject: `n${index}`,
    code: "node_departs",
    sentence: "Leaves (drain, by taint).",
    numbers: {},
  });

  it("name what they are about, with the server's sentence", () => {
    render(
      <MantineProvider>
        <NoticeList notices={[makeNotice(3)]} />
      </MantineProvider>,
    );
    expect(screen.getByRole("listitem").textContent).toBe(
      "n3node departsLeaves (drain, by taint).",
    );
  });

  it("many are shown in parts", () => {
    render(
      <MantineProvider>
        <NoticeList notices={Array.from({ length: 100 }, (_unused, index) => makeNotice(index))} />
      </MantineProvider>,
    );
    expect(screen.getAllByRole("listitem")).toHaveLength(8);
    fireEvent.click(screen.getByRole("button", { name: "Show 32 more of 100" }));
    expect(screen.getAllByRole("listitem")).toHaveLength(40);
  });
});
