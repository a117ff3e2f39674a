import { MantineProvider } from "@mantine/core";
import { QueryCache, QueryClient, QueryClientProvider } from "@tanstack/react-query";
import { RouterProvider } from "@tanstack/react-router";
import { useState } from "react";
import { ApiError } from "./api/errors.ts";
import { keys } from "./api/keys.ts";
import { SessionGate } from "./features/session/SessionGate.tsx";
import { makeRouter } from "./router.tsx";
import { theme, variables } from "./theme/mantine.ts";

function makeQueryClient(): QueryClient {
  const queryClient: QueryClient = new QueryClient({
    queryCache: new QueryCache({
      onError: (error, query) => {
        // The session ended on the server: ask who we are, which shows the sign-in form.
        if (error instanceof ApiError && error.unauthenticated && query.queryKey[0] !== "session")
          void queryClient.invalidateQueries({ queryKey: keys.session });
      },
    }),
    defaultOptions: {
      queries: {
        // The stream says what changed; a page that is opened again still asks anew.
        staleTime: 10_000,
        // What the server refused it will refuse again; what it couldn't do it may.
        retry: (failures, error) =>
          failures < 2 && !(error instanceof ApiError && error.status < 500),
        retryDelay: (attempt) => Math.min(4000, 500 * 2 ** attempt),
      },
    },
  });
  return queryClient;
}

export function App() {
  const [queryClient] = useState(makeQueryClient);
  const [router] = useState(makeRouter);
  return (
    <MantineProvider theme={theme} cssVariablesResolver={variables} defaultColorScheme="auto">
      <QueryClientProvider client={queryClient}>
        <SessionGate>
          <RouterProvider router={router} />
        </SessionGate>
      </QueryClientProvider>
    </MantineProvider>
  );
}
