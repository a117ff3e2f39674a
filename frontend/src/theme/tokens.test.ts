import { describe, expect, it } from "vitest";
import { contrast, distance, visionNames } from "./contrast.ts";
import { capacity, categorical, lines, type Scheme, stages, surfaces } from "./tokens.ts";

const schemes: Scheme[] = ["light", "dark"];

describe.each(schemes)("%s", (scheme) => {
  const colours = surfaces[scheme];

  it.each(["ink", "ink-2", "ink-3", "accent", "good", "warn", "bad"] as const)(
    "text in %s is AA on every ground",
    (ink) => {
      for (const ground of ["ground", "surface", "raised", "sunken"] as const) {
        expect(contrast(colours[ink], colours[ground]), ground).toBeGreaterThanOrEqual(4.5);
      }
    },
  );

  it.each(["accent", "good", "warn", "bad"] as const)("%s is AA on its soft ground", (ink) => {
    expect(contrast(colours[ink], colours[`${ink}-soft`])).toBeGreaterThanOrEqual(4.5);
    expect(contrast(colours.ink, colours[`${ink}-soft`])).toBeGreaterThanOrEqual(4.5);
  });

  it("text on the accent is AA", () => {
    expect(contrast(colours["accent-ink"], colours.accent)).toBeGreaterThanOrEqual(4.5);
  });

  it("chart lines reach 3:1 against the surface", () => {
    for (const [name, colour] of Object.entries(lines[scheme])) {
      expect(contrast(colour, colours.surface), name).toBeGreaterThanOrEqual(3);
    }
  });

  it("holders reach 3:1 against the surface", () => {
    for (const colour of categorical[scheme]) {
      expect(contrast(colour, colours.surface), colour).toBeGreaterThanOrEqual(3);
    }
  });

  it("capacity marks other than free reach 3:1 against the surface", () => {
    for (const [name, colour] of Object.entries(capacity[scheme])) {
      if (name !== "free")
        expect(contrast(colour, colours.surface), name).toBeGreaterThanOrEqual(3);
    }
  });

  it.each(visionNames)("neighbours in the stack stay apart for %s vision", (vision) => {
    const palette = categorical[scheme];
    palette.forEach((colour, index) => {
      const next = palette[(index + 1) % palette.length] as string;
      expect(distance(colour, next, vision), `${colour} ${next}`).toBeGreaterThan(16);
    });
  });

  it.each(visionNames)("all holders can be told apart for %s vision", (vision) => {
    const palette = categorical[scheme];
    for (let a = 0; a < palette.length; a++) {
      for (let b = a + 1; b < palette.length; b++) {
        const [first, second] = [palette[a] as string, palette[b] as string];
        expect(distance(first, second, vision), `${first} ${second}`).toBeGreaterThan(8.5);
      }
    }
  });

  it.each(visionNames)("neighbouring recovery stages stay apart for %s vision", (vision) => {
    const ramp = stages[scheme];
    for (let index = 1; index < ramp.length; index++) {
      const [first, second] = [ramp[index - 1] as string, ramp[index] as string];
      expect(distance(first, second, vision), `${first} ${second}`).toBeGreaterThan(8);
    }
  });
});
