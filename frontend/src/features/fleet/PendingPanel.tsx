import { Button, TextInput } from "@mantine/core";
import { useState } from "react";
import { usePending } from "../../api/queries.ts";
import type { Pending, PendingItem } from "../../api/types.ts";
import { count } from "../../components/format.ts";
import { SearchIcon } from "../../components/icons.tsx";
import { Panel } from "../../components/Panel.tsx";
import { ScrollRegion } from "../../components/ScrollRegion.tsx";
import { Absent, Age } from "../../components/values.tsx";
import { useCluster } from "../shell/useCluster.ts";
import css from "./Fleet.module.css";
import { WhyPending } from "./WhyPending.tsx";

/** Demands shown at once; with more than these they can be searched by name. */
const page = 30;

/** What one pod asks for, accelerators first; cpu and memory are left to the title. */
function asks(item: PendingItem): string {
  const accelerators = Object.entries(item.requests).filter(([name]) => name.includes("/"));
  return accelerators.map(([name, n]) => `${count(n * item.pods)} ${name}`).join(", ");
}

interface PendingPanelProps {
  cluster: string | undefined;
  /** The workload whose reasons are open. */
  why: string | undefined;
  onWhy: (workload: string | undefined) => void;
}

/** Demand that waits, most urgent first, and why. */
export function PendingPanel({ cluster, why, onWhy }: PendingPanelProps) {
  const query = usePending(cluster);
  const { after, nothing } = useCluster();
  return (
    <Panel<Pending>
      title={
        <>
          Pending demand{" "}
          {query.data?.items ? (
            <span className={css.tally}>{count(query.data.items.length)}</span>
          ) : null}
        </>
      }
      query={after(query)}
      nothing={nothing}
      loadingHeight={120}
      flush
      observedAt={(data) => data.last_seen_at}
      staleAfter={30}
      empty={(data) =>
        data.items === null
          ? "No plan has been made for this cluster yet."
          : data.items.length === 0
            ? "Nothing waits for accelerators."
            : null
      }
    >
      {(data) => (
        <PendingList cluster={data.cluster} items={data.items ?? []} why={why} onWhy={onWhy} />
      )}
    </Panel>
  );
}

interface PendingListProps {
  cluster: string;
  items: readonly PendingItem[];
  why: string | undefined;
  onWhy: (workload: string | undefined) => void;
}

export function PendingList({ cluster, items, why, onWhy }: PendingListProps) {
  const [text, setText] = useState("");
  // What the address names is shown, however far down it is.
  const [shown, setShown] = useState(() =>
    Math.max(page, items.findIndex((item) => item.workload === why) + 1),
  );
  const wanted = text.trim().toLowerCase();
  const found = wanted
    ? items.filter((item) => item.workload.toLowerCase().includes(wanted))
    : items;
  const left = found.length - shown;
  return (
    <ScrollRegion label="Demand that waits" className={css.pendingScroll}>
      {items.length > page ? (
        <search className={css.pendingSearch}>
          <TextInput
            aria-label="Search what waits by name"
            placeholder="Name or namespace"
            leftSection={<SearchIcon />}
            value={text}
            onChange={(event) => setText(event.currentTarget.value)}
          />
        </search>
      ) : null}
      <ul className={css.list}>
        {found.slice(0, shown).map((item, index) => (
          <Item
            // A job's minimum and what is above it wait under one name.
            key={`${item.workload} ${found[index - 1]?.workload === item.workload ? index : ""}`}
            cluster={cluster}
            item={item}
            open={item.workload === why && found[index - 1]?.workload !== item.workload}
            onWhy={onWhy}
          />
        ))}
      </ul>
      {found.length === 0 ? <p className={css.more}>Nothing of that name waits.</p> : null}
      {left > 0 ? (
        <p className={css.more}>
          <Button size="compact-xs" variant="default" onClick={() => setShown(shown + 2 * page)}>
            Show {Math.min(left, 2 * page)} more of {count(found.length)}
          </Button>
        </p>
      ) : null}
    </ScrollRegion>
  );
}

interface ItemProps {
  cluster: string;
  item: PendingItem;
  open: boolean;
  onWhy: (workload: string | undefined) => void;
}

function Item({ cluster, item, open, onWhy }: ItemProps) {
  return (
    <li className={css.item}>
      <div className={css.itemHead}>
        <span className={css.itemName} title={item.workload}>
          {item.workload}
        </span>
        <span className={css.itemTime}>
          {item.since ? (
            <>
              waits <Age at={item.since} />
            </>
          ) : null}
        </span>
      </div>
      <div className={css.itemFacts}>
        <span>{asks(item) || "no accelerators"}</span>
        <span>
          {count(item.pods)} {item.pods === 1 ? "pod" : "pods"}
        </span>
        <span>priority {count(item.priority)}</span>
      </div>
      <p className={css.reason}>
        {item.reason ? item.reason.sentence : <Absent why="no reason given" />}
      </p>
      <button
        type="button"
        className={css.whyButton}
        aria-expanded={open}
        aria-label={`Why pending: ${item.workload}`}
        onClick={() => onWhy(open ? undefined : item.workload)}
      >
        Why pending
      </button>
      {open ? <WhyPending cluster={cluster} workload={item.workload} /> : null}
    </li>
  );
}
