/**
 * The stream's events applied to the cache. Events are gathered for a moment and applied together,
 * so that a burst costs one render; what the events don't carry is asked for again, not too often.
 */
import { notifyManager, type QueryClient } from "@tanstack/react-query";
import { appliers } from "./appliers.ts";
import { setServerTime } from "./clock.ts";
import { breakCounts } from "./counts.ts";
import { type EventType, LiveStream } from "./stream.ts";
import type { StreamEvents } from "./types.ts";

export const stream = new LiveStream("/api/v1/stream");

const gatherFor = 150;
const refetchEvery = 2000;

type Kinds = Exclude<EventType, "hello" | "reset" | "status">;

/** Opens the stream and feeds `queryClient` from it. Returns what ends that. */
export function followStream(queryClient: QueryClient): () => void {
  const waiting: [Kinds, unknown][] = [];
  let flushing: ReturnType<typeof setTimeout> | undefined;
  const refetch = throttledRefetch(queryClient);

  const flush = () => {
    flushing = undefined;
    const events = waiting.splice(0);
    notifyManager.batch(() => {
      for (const [type, payload] of events) {
        for (const key of appliers[type](queryClient, payload as never)) refetch.ask(key);
      }
    });
  };

  const unlisten = stream.listen((type, payload) => {
    if (type === "hello") {
      setServerTime((payload as StreamEvents["hello"]).server_time);
    } else if (type === "reset") {
      breakCounts();
      void queryClient.invalidateQueries();
    } else if (type !== "status") {
      waiting.push([type, payload]);
      flushing ??= setTimeout(flush, gatherFor);
    }
  });
  stream.start();

  return () => {
    unlisten();
    stream.stop();
    clearTimeout(flushing);
    refetch.stop();
  };
}

/** Invalidates each key at most once in `refetchEvery`, the last ask never lost. */
function throttledRefetch(queryClient: QueryClient) {
  const timers = new Map<string, ReturnType<typeof setTimeout>>();
  const lastRun = new Map<string, number>();
  return {
    ask(key: readonly unknown[]) {
      const name = JSON.stringify(key);
      if (timers.has(name)) return;
      const wait = Math.max(0, (lastRun.get(name) ?? 0) + refetchEvery - Date.now());
      timers.set(
        name,
        setTimeout(() => {
          timers.delete(name);
          lastRun.set(name, Date.now());
          void queryClient.invalidateQueries({ queryKey: key });
        }, wait),
      );
    },
    stop() {
      for (const timer of timers.values()) clearTimeout(timer);
    },
  };
}
