import { MantineProvider } from "@mantine/core";
import { fireEvent, render, screen } from "@testing-library/react";
import type { ReactNode } from "react";
import { describe, expect, it } from "vitest";
import type { Reason, Rejection } from "../../api/types.ts";
import { Reckoned, RejectedList, Remedies, Reserved } from "./Explanation.tsx";

const show = (content: ReactNode) => render(<MantineProvider>{content}</MantineProvider>);

function makeRejected(n: number): Rejection[] {
  return Array.from({ length: n }, (_unused, index) => ({
    candidate: `Job/ml/j${index}`,
    code: "at_minimum",
    sentence: "Is at its minimum of 2 replicas.",
    numbers: { min: 2 },
  }));
}

function makeReason(sentence: string): Reason {
  return { code: "uncordon_nodes", sentence, numbers: {} };
}

describe("rejected candidates", () => {
  it("none: a sentence", () => {
    show(<RejectedList rejected={[]} />);
    expect(screen.getByText("No other candidate was weighed.")).toBeDefined();
  });

  it("each with its sentence and its numbers", () => {
    show(<RejectedList rejected={makeRejected(1)} />);
    expect(screen.getByText("Job/ml/j0")).toBeDefined();
    expect(screen.getByText("Is at its minimum of 2 replicas.")).toBeDefined();
    expect(screen.getByText("min").parentElement?.textContent).toBe("min2");
    expect(screen.queryByRole("button")).toBeNull();
  });

  it("many: the first ten, then what is asked for", () => {
    show(<RejectedList rejected={makeRejected(34)} />);
    expect(screen.getAllByRole("listitem")).toHaveLength(10);
    fireEvent.click(screen.getByRole("button", { name: "Show 20 more of 34" }));
    expect(screen.getAllByRole("listitem")).toHaveLength(30);
    fireEvent.click(screen.getByRole("button", { name: "Show 4 more of 34" }));
    expect(screen.getAllByRole("listitem")).toHaveLength(34);
    expect(screen.queryByRole("button")).toBeNull();
  });
});

describe("what would help", () => {
  it.each([
    [[], "Nothing was looked for.", null],
    [["Uncordon n1."], "Uncordon n1.", null],
    [["Uncordon n1.", "8 more."], "Uncordon n1.", "All of these together:"],
  ])("%j", (sentences, want, together) => {
    show(<Remedies unblock={sentences.map(makeReason)} />);
    expect(screen.getByText(want)).toBeDefined();
    expect(screen.queryByText(/together/)?.textContent ?? null).toBe(together);
  });
});

describe("share and gain", () => {
  it.each([
    [6, 0.25, ["6", "25.0 %"]],
    [0, 0, ["0", "0.0 %"]],
    [null, -0.031, ["—not reckoned", "-3.1 %"]],
    [null, null, ["—not reckoned", "—not reckoned"]],
  ])("share %s, gain %s", (share, expected_gain, want) => {
    show(<Reckoned decision={{ share, expected_gain }} />);
    expect(screen.getAllByRole("definition").map((one) => one.textContent)).toEqual(want);
  });
});

it("reserved places are shown by node", () => {
  const nodes = { n1: { "nvidia.com/gpu": 8 }, n2: { "nvidia.com/gpu": 4, "amd.com/gpu": 1 } };
  show(<Reserved reservations={[{ demand: "Job/ml/big", priority: 5, nodes }]} />);
  expect(screen.getByText("n1").parentElement?.textContent).toBe("n18 nvidia.com/gpu");
  expect(screen.getByText("n2").parentElement?.textContent).toBe(
    "n24 nvidia.com/gpu, 1 amd.com/gpu",
  );
});
