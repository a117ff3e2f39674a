import { useSyncExternalStore } from "react";
import { useServerNow } from "../../api/clock.ts";
import { stream } from "../../api/live.ts";
import type { StreamStatus } from "../../api/stream.ts";
import { age } from "../../components/format.ts";
import css from "./Shell.module.css";

/** What a state of the stream means to someone who reads the page. */
export function describeStream(status: StreamStatus, now: number): { text: string; title: string } {
  const lasting = age((now - status.since) / 1000);
  switch (status.state) {
    case "live":
      return { text: "live", title: "Changes appear as they happen." };
    case "silent":
      return { text: "no live feed", title: `The server's feed is down: ${status.reason}` };
    case "connecting":
      return { text: "connecting", title: "Opening the live stream." };
    case "reconnecting":
      return {
        text: lasting === "now" ? "reconnecting" : `reconnecting, ${lasting}`,
        title: `The live stream was lost ${lasting === "now" ? "just now" : `${lasting} ago`}; try ${status.attempts}. Values may be old.`,
      };
    default:
      return { text: "not connected", title: "The live stream is closed." };
  }
}

/** Whether this tab is getting live updates. */
export function ConnectionState() {
  const status = useSyncExternalStore(stream.watchStatus, stream.getStatus);
  useServerNow();
  const { text, title } = describeStream(status, Date.now());
  return (
    <span className={css.connection} data-state={status.state} title={title} role="status">
      <span className={css.lamp} aria-hidden="true" />
      <span className={css.connectionText}>{text}</span>
    </span>
  );
}
