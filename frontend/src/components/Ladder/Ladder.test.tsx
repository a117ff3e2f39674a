import { MantineProvider } from "@mantine/core";
import { render, screen, within } from "@testing-library/react";
import { describe, expect, it } from "vitest";
import { type Counts, difference, settled } from "./counts.ts";
import { Ladder } from "./Ladder.tsx";

function makeCounts(change: Partial<Counts> = {}): Counts {
  return { desired: 12, granted: 12, running: 12, productive: 12, ...change };
}

describe("difference", () => {
  it.each([
    [{ granted: 8 }, "granted", "4 not granted yet"],
    [{ desired: 8 }, "granted", "4 to be taken back"],
    [{ running: 10 }, "running", "2 not ready yet"],
    [{ running: 14 }, "running", "2 leaving"],
    [{ productive: 9 }, "productive", "3 outside the quorum"],
    [{ productive: 13 }, "productive", "1 beyond the ready pods"],
    [{ productive: null }, "productive", null],
    [{ running: null }, "productive", null],
    [{}, "running", null],
    [{}, "desired", null],
  ] as const)("%j at %s: %s", (change, rung, want) => {
    expect(difference(makeCounts(change), rung)).toBe(want);
  });
});

it("counts settle by what is known", () => {
  expect(settled(makeCounts())).toBe(true);
  expect(settled(makeCounts({ productive: null }))).toBe(true);
  expect(settled(makeCounts({ running: 11 }))).toBe(false);
});

describe("Ladder", () => {
  const show = (counts: Counts) =>
    render(
      <MantineProvider>
        <Ladder counts={counts} max={16} />
      </MantineProvider>,
    );

  it("shows an absent count as not reported, never as a number", () => {
    const { container } = show(makeCounts({ productive: null }));
    const rung = container.querySelector<HTMLElement>('[data-rung="productive"]');
    expect(rung).not.toBeNull();
    const inside = within(rung as HTMLElement);
    expect(inside.getByTitle("not reported").textContent).toContain("—");
    expect(inside.queryByText("0")).toBeNull();
  });

  it("shows a zero as a zero", () => {
    const { container } = show(makeCounts({ running: 0, productive: 0 }));
    const rung = container.querySelector<HTMLElement>('[data-rung="running"]');
    expect(within(rung as HTMLElement).getByText("0")).toBeDefined();
    expect(screen.getByText("12 not ready yet")).toBeDefined();
  });

  it("draws every rung on one scale: the largest the job may be", () => {
    const { container } = show(makeCounts({ granted: 4 }));
    const pips = (rung: string, on: string) =>
      container.querySelectorAll(`[data-rung="${rung}"] [data-on]${on}`).length;
    expect(pips("desired", "")).toBe(12);
    expect(pips("granted", "")).toBe(4);
  });
});
