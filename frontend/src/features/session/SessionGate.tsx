import { Skeleton } from "@mantine/core";
import type { ReactNode } from "react";
import { useSession, useSignIn } from "../../api/queries.ts";
import { Failure } from "../../components/Panel.tsx";
import css from "./SignIn.module.css";
import { SignIn } from "./SignIn.tsx";

/** The pages for those who are signed in, the sign-in form for the others. */
export function SessionGate({ children }: { children: ReactNode }) {
  const session = useSession();
  const signIn = useSignIn();
  if (session.data?.authenticated) return children;
  if (session.data) {
    return (
      <SignIn
        demo={session.data.demo}
        onSignIn={(username, password) => signIn.mutateAsync({ username, password })}
      />
    );
  }
  return (
    <div className={css.page}>
      <main className={css.box}>
        <h1 className={css.title}>Concertina</h1>
        {session.error ? (
          <Failure query={session} kept={false} />
        ) : (
          <Skeleton height={200} radius={3} mt={24} aria-label="Loading" role="status" />
        )}
      </main>
    </div>
  );
}
