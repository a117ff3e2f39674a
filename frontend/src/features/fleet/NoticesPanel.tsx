import { Button } from "@mantine/core";
import { useState } from "react";
import { useNotices } from "../../api/queries.ts";
import type { Notice, Notices } from "../../api/types.ts";
import { count } from "../../components/format.ts";
import { Panel } from "../../components/Panel.tsx";
import { NoticeTag } from "../../components/tags.tsx";
import { useCluster } from "../shell/useCluster.ts";
import css from "./Fleet.module.css";

/** Notices shown at once. */
const page = 8;

/** What an operator should know: pods that hang, nodes that hurt jobs or leave, sizes that flap. */
export function NoticesPanel({ cluster }: { cluster: string | undefined }) {
  const query = useNotices(cluster);
  const { after, nothing } = useCluster();
  return (
    <Panel<Notices>
      title={
        <>
          Notices{" "}
          {query.data?.items?.length ? (
            <span className={css.tally}>{count(query.data.items.length)}</span>
          ) : null}
        </>
      }
      query={after(query)}
      nothing={nothing}
      loadingHeight={56}
      flush
      observedAt={(data) => data.last_seen_at}
      staleAfter={30}
      empty={(data) =>
        data.items === null
          ? "No plan has been made for this cluster yet."
          : data.items.length === 0
            ? "Nothing hangs, leaves or flaps."
            : null
      }
    >
      {(data) => <NoticeList notices={data.items ?? []} />}
    </Panel>
  );
}

export function NoticeList({ notices }: { notices: readonly Notice[] }) {
  const [shown, setShown] = useState(page);
  const left = notices.length - shown;
  return (
    <>
      <ul className={css.list}>
        {notices.slice(0, shown).map((notice) => (
          <li key={`${notice.subject} ${notice.code}`} className={css.item}>
            <div className={css.itemHead}>
              <span className={css.itemName} title={notice.subject}>
                {notice.subject}
              </span>
              <span className={css.itemTime}>
                <NoticeTag code={notice.code} />
              </span>
            </div>
            <p className={css.reason}>{notice.sentence}</p>
          </li>
        ))}
      </ul>
      {left > 0 ? (
        <p className={css.more}>
          <Button size="compact-xs" variant="default" onClick={() => setShown(shown + 4 * page)}>
            Show {Math.min(left, 4 * page)} more of {count(notices.length)}
          </Button>
        </p>
      ) : null}
    </>
  );
}
