/**
 * The four replica counts of jobs as this tab saw them change. The server keeps no history of
 * them, so what was before the tab opened is known only from decisions, commands and samples.
 */
import { useSyncExternalStore } from "react";
import { serverNow } from "./clock.ts";
import type { Job } from "./types.ts";

export interface CountsSeen {
  /** Unix seconds on the server's clock. */
  at: number;
  desired: number | null;
  granted: number | null;
  running: number | null;
  productive: number | null;
}

const most = 2000;
const none: readonly CountsSeen[] = [];
const seen = new Map<string, readonly CountsSeen[]>();
const watchers = new Set<() => void>();

type Counted = Pick<Job, "id" | "desired" | "granted" | "running" | "productive">;

function same(a: CountsSeen, b: Counted): boolean {
  return (
    a.desired === b.desired &&
    a.granted === b.granted &&
    a.running === b.running &&
    a.productive === b.productive
  );
}

/** Notes a job's counts, where they differ from the last ones noted. */
export function noteCounts(job: Counted, at: number = serverNow() / 1000): void {
  const before = seen.get(job.id) ?? none;
  const last = before.at(-1);
  if (last && (same(last, job) || at < last.at)) return;
  const { desired, granted, running, productive } = job;
  const entry = { at, desired, granted, running, productive };
  seen.set(job.id, [...before.slice(-most + 1), entry]);
  for (const watcher of watchers) watcher();
}

/** After a gap in the stream nothing is known of the time in between. */
export function breakCounts(at: number = serverNow() / 1000): void {
  for (const [id, entries] of seen) {
    const gap = { at, desired: null, granted: null, running: null, productive: null };
    seen.set(id, [...entries, gap]);
  }
  for (const watcher of watchers) watcher();
}

function subscribe(watcher: () => void): () => void {
  watchers.add(watcher);
  return () => watchers.delete(watcher);
}

export function useCountsSeen(id: string): readonly CountsSeen[] {
  return useSyncExternalStore(subscribe, () => seen.get(id) ?? none);
}

/** For tests. */
export function forgetCounts(): void {
  seen.clear();
}
