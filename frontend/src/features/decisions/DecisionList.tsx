import { useVirtualizer } from "@tanstack/react-virtual";
import { useEffect, useRef } from "react";
import type { Decision } from "../../api/types.ts";
import { words } from "../../components/format.ts";
import { ScrollRegion } from "../../components/ScrollRegion.tsx";
import { CommandTag } from "../../components/tags.tsx";
import { Change, Time } from "../../components/values.tsx";
import css from "./Decisions.module.css";

interface DecisionListProps {
  decisions: readonly Decision[];
  open: number | undefined;
  onOpen: (id: number) => void;
  more: boolean;
  onMore: () => void;
}

/** A feed of any length; rows measure themselves, since sentences differ. */
export function DecisionList({ decisions, open, onOpen, more, onMore }: DecisionListProps) {
  const scroller = useRef<HTMLDivElement>(null);
  const rows = useVirtualizer({
    count: decisions.length,
    getScrollElement: () => scroller.current,
    estimateSize: () => 46,
    overscan: 10,
    getItemKey: (index) => decisions[index]?.id ?? index,
  });
  const items = rows.getVirtualItems();
  const last = items.at(-1)?.index ?? 0;
  useEffect(() => {
    if (more && last >= decisions.length - 15) onMore();
  }, [more, last, decisions.length, onMore]);

  return (
    <ScrollRegion ref={scroller} className={css.scroller} label="Decisions">
      <ol className={css.list} style={{ height: rows.getTotalSize() }}>
        {items.map((item) => {
          const decision = decisions[item.index];
          if (!decision) return null;
          return (
            <li
              key={item.key}
              ref={rows.measureElement}
              data-index={item.index}
              className={css.row}
              style={{ transform: `translateY(${item.start}px)` }}
            >
              <Row decision={decision} open={decision.id === open} onOpen={onOpen} />
            </li>
          );
        })}
      </ol>
    </ScrollRegion>
  );
}

interface RowProps {
  decision: Decision;
  open: boolean;
  onOpen: (id: number) => void;
}

function Row({ decision, open, onOpen }: RowProps) {
  return (
    <button
      type="button"
      className={css.open}
      aria-expanded={open}
      onClick={() => onOpen(decision.id)}
    >
      <span className={css.time}>
        <Time at={decision.at} />
      </span>
      <span className={css.name} title={`${decision.job.namespace}/${decision.job.name}`}>
        {decision.job.name}
      </span>
      <span className={css.change}>
        <Change from={decision.current} to={decision.desired} />
      </span>
      <span className={css.sentence}>
        <span className={css.code}>{words(decision.reason_code)}</span> {decision.sentence}
      </span>
      <span className={css.command}>
        {decision.command ? (
          <CommandTag state={decision.command.state} kind={decision.command.kind} />
        ) : null}
      </span>
    </button>
  );
}
