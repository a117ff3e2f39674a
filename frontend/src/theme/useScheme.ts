import { useComputedColorScheme } from "@mantine/core";
import type { Scheme } from "./tokens.ts";

/** The colour scheme in force, for canvases, which can't read CSS variables. */
export function useScheme(): Scheme {
  return useComputedColorScheme("light", { getInitialValueInEffect: false });
}
