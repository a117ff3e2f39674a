import { useRecoveries } from "../../api/queries.ts";
import type { Recovery } from "../../api/types.ts";
import { duration, words } from "../../components/format.ts";
import { Panel } from "../../components/Panel.tsx";
import { ScrollRegion } from "../../components/ScrollRegion.tsx";
import { StageBar, StageList } from "../../components/StageBar/StageBar.tsx";
import { downtime, segments } from "../../components/StageBar/stages.ts";
import { Num, Time } from "../../components/values.tsx";
import css from "./Job.module.css";

/** What interrupted training, and where the time went; bars of one scale. */
export function RecoveriesPanel({ id }: { id: string }) {
  const query = useRecoveries(id);
  return (
    <Panel
      title="Recovery events"
      query={query}
      loadingHeight={140}
      flush
      empty={(events) => (events.length === 0 ? "Training was never interrupted." : null)}
    >
      {(events) => {
        const scale = Math.max(...events.map(extent), 0.001);
        return (
          <ScrollRegion label="List of recovery events" className={css.events}>
            <ol className={css.eventList}>
              {events.map((event) => (
                <Event key={event.id} event={event} scale={scale} />
              ))}
            </ol>
          </ScrollRegion>
        );
      }}
    </Panel>
  );
}

function Event({ event, scale }: { event: Recovery; scale: number }) {
  return (
    <li className={css.event}>
      <div className={css.eventHead}>
        <Time at={event.started_at} />
        <b>{words(event.kind)}</b>
        <span className={css.eventFacts} title={[...event.lost, ...event.joined].join(", ")}>
          {members(event)}
        </span>
        <span className={css.downtime}>
          down <Num value={downtime(event.stages, event.duration_s)} format={duration} />
        </span>
      </div>
      {event.stages.length > 0 ? (
        <>
          <StageBar stages={event.stages} scale={scale} />
          <StageList stages={event.stages} />
        </>
      ) : (
        <p className={css.eventFacts}>The trainer did not report its stages.</p>
      )}
      {event.detail ? <p className={css.eventFacts}>{event.detail}</p> : null}
    </li>
  );
}

/** Seconds that an event's bar needs; an event that goes on has only its stages so far. */
function extent(event: Recovery): number {
  const ends = segments(event.stages).map((part) => part.start + (part.duration ?? 0));
  return Math.max(event.duration_s ?? 0, ...ends);
}

/** Who left, who came, at which step: only what was reported. */
function members(event: Recovery): string {
  const parts = [
    event.lost.length > 0 ? `lost ${named(event.lost)}` : "",
    event.joined.length > 0 ? `joined ${named(event.joined)}` : "",
    event.step === null ? "" : `at step ${event.step}`,
    event.quorum_id === null ? "" : `quorum ${event.quorum_id}`,
  ];
  return parts.filter(Boolean).join(" · ");
}

/** A few by name, many by their number; all of them are in the title. */
function named(replicas: readonly string[]): string {
  return replicas.length <= 2 ? replicas.join(", ") : `${replicas.length} replicas`;
}
