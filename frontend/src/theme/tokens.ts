/**
 * Colours of both schemes, in one place: CSS reads them as `--c-<name>`, canvases read them here.
 * tokens.test.ts holds the contrast (WCAG AA) and the distance between categorical colours under
 * simulated colour blindness.
 */
export type Scheme = "light" | "dark";

export const surfaces = {
  light: {
    ground: "#f4f5f6",
    surface: "#ffffff",
    raised: "#ffffff",
    sunken: "#eceef0",
    rule: "#dde1e5",
    "rule-strong": "#c3c9cf",
    ink: "#14181d",
    "ink-2": "#434c56",
    "ink-3": "#5d6772",
    accent: "#1a5fb4",
    "accent-ink": "#ffffff",
    "accent-soft": "#e6eef9",
    good: "#12723f",
    "good-soft": "#e3f2e9",
    warn: "#8a5200",
    "warn-soft": "#faeed9",
    bad: "#b3261e",
    "bad-soft": "#fbe9e7",
    focus: "#1a5fb4",
  },
  dark: {
    ground: "#0e1114",
    surface: "#15191d",
    raised: "#1c2126",
    sunken: "#0a0d0f",
    rule: "#272d33",
    "rule-strong": "#3b434b",
    ink: "#e7eaed",
    "ink-2": "#b5bdc5",
    "ink-3": "#919ba5",
    accent: "#82b1f5",
    "accent-ink": "#0e1114",
    "accent-soft": "#1a2a40",
    good: "#63c98f",
    "good-soft": "#15291e",
    warn: "#e5ae55",
    "warn-soft": "#2e2413",
    bad: "#f28b82",
    "bad-soft": "#351b19",
    focus: "#82b1f5",
  },
} as const satisfies Record<Scheme, Record<string, string>>;

/**
 * Who holds capacity: adjacent slots differ in lightness as well as hue, so that neighbours in a
 * stack stay apart for every kind of colour vision. The last is for "everyone else".
 */
export const categorical = {
  light: ["#2663d1", "#e47248", "#145966", "#bf839a", "#2f216b", "#6a6210", "#578ee3", "#611d1c"],
  dark: ["#4f83b6", "#baa53b", "#60c5cd", "#b33a59", "#7b4fc7", "#d3d376", "#6c9fce", "#b6753c"],
} as const satisfies Record<Scheme, readonly string[]>;

export const others = { light: "#7a838c", dark: "#8b949d" } as const;

/** What an accelerator is doing. Shape carries the meaning too (see CapacityPattern). */
export const capacity = {
  light: {
    free: "#ffffff",
    used: "#3d6ea5",
    used_unhealthy: "#b3261e",
    terminating: "#c77a12",
    reserved: "#3d6ea5",
    cordoned: "#6c7680",
    not_ready: "#b3261e",
    booting: "#12907f",
    tainted: "#6c7680",
  },
  dark: {
    free: "#15191d",
    used: "#5a8fcf",
    used_unhealthy: "#f28b82",
    terminating: "#e5ae55",
    reserved: "#5a8fcf",
    cordoned: "#8b949d",
    not_ready: "#f28b82",
    booting: "#37b3a2",
    tainted: "#8b949d",
  },
} as const satisfies Record<Scheme, Record<string, string>>;

/** The six recovery stages in their order: a ramp that steps between two hues. */
export const stages = {
  light: ["#8a3b12", "#c2641c", "#2f6cb0", "#5b95d6", "#3d7f74", "#6fb3a6"],
  dark: ["#c9703e", "#eda263", "#5a92d6", "#95bff0", "#469a8c", "#8accbf"],
} as const satisfies Record<Scheme, readonly string[]>;

/** Lines of the four replica counts and of measured values. */
export const lines = {
  light: {
    desired: "#7a838c",
    granted: "#1f5fa8",
    running: "#c46a0a",
    productive: "#12795f",
    loss: "#8c3f6f",
    throughput: "#1f5fa8",
    batch: "#5b3fa3",
  },
  dark: {
    desired: "#9aa3ac",
    granted: "#6aa6f0",
    running: "#f2b04d",
    productive: "#4cc9a4",
    loss: "#e58bbb",
    throughput: "#6aa6f0",
    batch: "#a894f0",
  },
} as const satisfies Record<Scheme, Record<string, string>>;

/** Every token as a CSS variable of the scheme. */
export function cssVariables(scheme: Scheme): Record<string, string> {
  const variables: Record<string, string> = {};
  const groups: [string, Record<string, string>][] = [
    ["", surfaces[scheme]],
    ["state-", capacity[scheme]],
    ["line-", lines[scheme]],
  ];
  for (const [prefix, group] of groups) {
    for (const [name, value] of Object.entries(group)) {
      variables[`--c-${prefix}${name.replaceAll("_", "-")}`] = value;
    }
  }
  stages[scheme].forEach((value, index) => {
    variables[`--c-stage-${index}`] = value;
  });
  categorical[scheme].forEach((value, index) => {
    variables[`--c-cat-${index}`] = value;
  });
  variables["--c-others"] = others[scheme];
  return variables;
}
