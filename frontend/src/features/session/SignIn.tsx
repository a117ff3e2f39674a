import { Button, PasswordInput, TextInput } from "@mantine/core";
import { type FormEvent, useState } from "react";
import { ApiError, describeError } from "../../api/errors.ts";
import { BellowsIcon, WarnIcon } from "../../components/icons.tsx";
import { ColourSchemeToggle } from "../shell/ColourSchemeToggle.tsx";
import css from "./SignIn.module.css";

interface SignInProps {
  demo: boolean;
  onSignIn: (username: string, password: string) => Promise<unknown>;
}

export function SignIn({ demo, onSignIn }: SignInProps) {
  const [error, setError] = useState<unknown>(null);
  const [busy, setBusy] = useState(false);

  const submit = async (event: FormEvent<HTMLFormElement>) => {
    event.preventDefault();
    const form = new FormData(event.currentTarget);
    setBusy(true);
    setError(null);
    try {
      await onSignIn(String(form.get("username")), String(form.get("password")));
    } catch (caught) {
      setError(caught);
      setBusy(false);
    }
  };

  return (
    <div className={css.page}>
      <div className={css.corner}>
        <ColourSchemeToggle />
      </div>
      <main className={css.box}>
        <h1 className={css.title}>
          <BellowsIcon size={24} /> Concertina
        </h1>
        <p className={css.lead}>Elastic training on a shared cluster.</p>
        <form onSubmit={submit} className={css.form}>
          {error ? (
            <p role="alert" className={css.error}>
              <WarnIcon /> {explain(error)}
            </p>
          ) : null}
          <TextInput
            name="username"
            label="User name"
            size="sm"
            required
            withAsterisk={false}
            autoComplete="username"
            autoFocus
          />
          <PasswordInput
            name="password"
            label="Password"
            required
            withAsterisk={false}
            autoComplete="current-password"
            visibilityToggleButtonProps={{ "aria-label": "Show the password" }}
          />
          <Button type="submit" size="sm" loading={busy} fullWidth>
            Sign in
          </Button>
        </form>
        {demo ? (
          <p className={css.note}>
            This is the demo: <code>make up</code> printed its user name and password.
          </p>
        ) : null}
      </main>
    </div>
  );
}

function explain(error: unknown): string {
  if (error instanceof ApiError && error.status === 429)
    return "Too many tries; wait a minute and try again.";
  return describeError(error);
}
