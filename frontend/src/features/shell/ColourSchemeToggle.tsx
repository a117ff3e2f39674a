import { ActionIcon, useMantineColorScheme } from "@mantine/core";
import { MoonIcon, SunIcon } from "../../components/icons.tsx";
import { useScheme } from "../../theme/useScheme.ts";

/** Follows the system until someone chooses; the choice is kept in this browser. */
export function ColourSchemeToggle() {
  const { setColorScheme } = useMantineColorScheme();
  const scheme = useScheme();
  const other = scheme === "dark" ? "light" : "dark";
  return (
    <ActionIcon
      variant="subtle"
      color="gray"
      aria-label={`Use ${other} colours`}
      onClick={() => setColorScheme(other)}
    >
      {scheme === "dark" ? <SunIcon /> : <MoonIcon />}
    </ActionIcon>
  );
}
