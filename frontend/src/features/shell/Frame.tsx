import { useQueryClient } from "@tanstack/react-query";
import { useEffect } from "react";
import { followStream, stream } from "../../api/live.ts";
import { useClusters, useSession, useSignOut } from "../../api/queries.ts";
import { Failure } from "../../components/Panel.tsx";
import css from "./Pages.module.css";
import { Shell } from "./Shell.tsx";
import { useCluster } from "./useCluster.ts";

/** The shell with its data, and the tab's one live stream for as long as someone is signed in. */
export function Frame() {
  const queryClient = useQueryClient();
  const session = useSession();
  const signOut = useSignOut();
  const clusters = useClusters();
  const { cluster, missing, choose } = useCluster();

  useEffect(() => {
    const stop = followStream(queryClient);
    const hurry = () => stream.hurry();
    window.addEventListener("online", hurry);
    return () => {
      window.removeEventListener("online", hurry);
      stop();
    };
  }, [queryClient]);

  const user = session.data?.user;
  if (!user) return null;
  return (
    <Shell
      user={user}
      demo={session.data?.demo ?? false}
      clusters={clusters.data ?? []}
      cluster={cluster?.name}
      onCluster={choose}
      onSignOut={() => signOut.mutate()}
      notice={
        clusters.error ? (
          <Failure query={clusters} kept={clusters.data !== undefined} />
        ) : missing ? (
          <p className={css.notice}>There is no cluster named “{missing}”.</p>
        ) : clusters.data?.length === 0 ? (
          <p className={css.notice}>
            No cluster is registered. Add one in the{" "}
            <a href="/admin/clusters/cluster/">administration</a>.
          </p>
        ) : cluster?.last_error ? (
          <p className={css.notice} data-bad>
            The cluster {cluster.name} can’t be observed: {cluster.last_error}
          </p>
        ) : null
      }
    />
  );
}
