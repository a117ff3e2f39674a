import { Button } from "@mantine/core";
import { describeError } from "../../api/errors.ts";
import { RetryIcon } from "../../components/icons.tsx";
import css from "./Pages.module.css";

/** A page that could not be drawn at all. */
export function PageError({ error, reset }: { error: unknown; reset: () => void }) {
  return (
    <div className={css.message} role="alert">
      <h1>This page failed</h1>
      <p>{describeError(error)}</p>
      <Button variant="default" leftSection={<RetryIcon />} onClick={reset}>
        Try again
      </Button>
    </div>
  );
}
