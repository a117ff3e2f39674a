import {
  Button,
  type CSSVariablesResolver,
  createTheme,
  type MantineColorsTuple,
} from "@mantine/core";
import { cssVariables, surfaces } from "./tokens.ts";

const blue: MantineColorsTuple = [
  "#e6eef9",
  "#cfdff4",
  "#a5c4ec",
  "#82b1f5",
  "#5a92dd",
  "#3a79cc",
  "#1a5fb4",
  "#174f97",
  "#12417d",
  "#0d3263",
];

const dark: MantineColorsTuple = [
  "#e7eaed",
  "#b5bdc5",
  "#919ba5",
  "#6c7680",
  "#3b434b",
  "#272d33",
  "#1c2126",
  "#15191d",
  "#0e1114",
  "#0a0d0f",
];

export const theme = createTheme({
  fontFamily: '"IBM Plex Sans Variable", system-ui, sans-serif',
  fontFamilyMonospace: '"IBM Plex Mono", ui-monospace, monospace',
  fontSizes: { xs: "0.75rem", sm: "0.8125rem", md: "0.875rem", lg: "1rem", xl: "1.125rem" },
  colors: { blue, dark },
  primaryColor: "blue",
  primaryShade: { light: 6, dark: 3 },
  autoContrast: true,
  defaultRadius: 3,
  cursorType: "pointer",
  respectReducedMotion: true,
  components: {
    Button: Button.extend({
      defaultProps: { size: "xs" },
      // Mantine picks the label's colour for the light scheme only.
      vars: (_theme, props) => ({
        root:
          props.variant === undefined || props.variant === "filled"
            ? {
                "--button-bg": "var(--c-accent)",
                "--button-hover": "color-mix(in srgb, var(--c-accent), var(--c-ink) 12%)",
                "--button-color": "var(--c-accent-ink)",
              }
            : {},
      }),
    }),
    TextInput: { defaultProps: { size: "xs" } },
    PasswordInput: { defaultProps: { size: "sm" } },
    Select: { defaultProps: { size: "xs", allowDeselect: false } },
    SegmentedControl: { defaultProps: { size: "xs" } },
    Tooltip: { defaultProps: { openDelay: 150, withArrow: false } },
  },
});

/** Our tokens, and Mantine's own grounds and rules expressed in them. */
export const variables: CSSVariablesResolver = () => {
  const scheme = (name: "light" | "dark") => ({
    ...cssVariables(name),
    "--mantine-color-body": surfaces[name].ground,
    "--mantine-color-text": surfaces[name].ink,
    "--mantine-color-dimmed": surfaces[name]["ink-3"],
    "--mantine-color-placeholder": surfaces[name]["ink-3"],
    "--mantine-color-default": surfaces[name].surface,
    "--mantine-color-default-hover": surfaces[name].sunken,
    "--mantine-color-default-border": surfaces[name]["rule-strong"],
    "--mantine-color-error": surfaces[name].bad,
  });
  return { variables: {}, light: scheme("light"), dark: scheme("dark") };
};
