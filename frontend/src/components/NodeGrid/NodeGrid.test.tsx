import { fireEvent, render, screen } from "@testing-library/react";
import { describe, expect, it } from "vitest";
import { describeStates, expand, sum } from "../capacity.ts";
import { type GridNode, NodeGrid } from "./NodeGrid.tsx";

function makeNode(change: Partial<GridNode> = {}): GridNode {
  return {
    name: "main-00",
    pool: "main",
    ready: true,
    unschedulable: false,
    resource: "nvidia.com/gpu",
    total: 8,
    states: { used: 6, free: 2 },
    taints: [],
    ...change,
  };
}

describe("states", () => {
  it.each([
    [{ free: 1, used: 2 }, ["used", "used", "free"]],
    [{ cordoned: 1, odd: 1, terminating: 0 }, ["cordoned", "odd"]],
    [{}, []],
  ])("%j are laid out as %j", (states, want) => {
    expect(expand(states)).toEqual(want);
  });

  it.each([
    [null, null, "not observed"],
    [{ used: 0, free: 0 }, 0, "none"],
    [{ used_unhealthy: 1, free: 7 }, 8, "1 used, unhealthy, 7 free"],
  ])("%j add up to %s: %s", (states, total, text) => {
    expect(sum(states)).toBe(total);
    expect(describeStates(states)).toBe(text);
  });
});

describe("NodeGrid", () => {
  const marks = (container: HTMLElement, state: string) =>
    container.querySelectorAll(`button [data-state="${state}"]`).length;

  it("draws one mark an accelerator", () => {
    const { container } = render(<NodeGrid nodes={[makeNode()]} />);
    expect(marks(container, "used")).toBe(6);
    expect(marks(container, "free")).toBe(2);
  });

  it("draws a node of which nothing is known as unknown, not as free", () => {
    const { container } = render(<NodeGrid nodes={[makeNode({ states: null })]} />);
    expect(marks(container, "unknown")).toBe(8);
    expect(marks(container, "free")).toBe(0);
    expect(screen.getByRole("button", { name: "main-00: not observed" })).toBeDefined();
  });

  it("is one tab stop, and arrow keys move from node to node across pools", () => {
    const nodes = [
      makeNode(),
      makeNode({ name: "main-01" }),
      makeNode({ name: "local-0", pool: "local", total: 1, states: { used: 1 } }),
    ];
    render(<NodeGrid nodes={nodes} />);
    const tiles = screen.getAllByRole("button");
    expect(tiles.map((tile) => tile.tabIndex)).toEqual([0, -1, -1]);
    tiles[0]?.focus();
    fireEvent.keyDown(tiles[0] as HTMLElement, { key: "ArrowRight" });
    fireEvent.keyDown(tiles[1] as HTMLElement, { key: "ArrowRight" });
    expect(document.activeElement).toBe(tiles[2]);
    expect(tiles.map((tile) => tile.tabIndex)).toEqual([-1, -1, 0]);
  });

  it("raises an alarm where a node's states differ from its total", () => {
    render(<NodeGrid nodes={[makeNode({ states: { used: 6, free: 4 } })]} />);
    fireEvent.focus(screen.getByRole("button"));
    expect(screen.getByText("states add up to 10")).toBeDefined();
  });
});
