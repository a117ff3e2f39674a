/**
 * The server's clock as this tab knows it. Ages compare server times with the server's own now,
 * so that a workstation with a wrong clock doesn't show fresh data as stale, or the reverse.
 */
import { useSyncExternalStore } from "react";

let offset = 0;

/** Called with the time in the stream's `hello`. Bad input leaves the offset as it was. */
export function setServerTime(iso: string, receivedAt: number = Date.now()): void {
  const parsed = Date.parse(iso);
  if (!Number.isNaN(parsed)) offset = parsed - receivedAt;
}

/** Now on the server's clock, in milliseconds since the epoch. */
export function serverNow(): number {
  return Date.now() + offset;
}

/** Seconds since `iso` on the server's clock; null where there is no time. */
export function ageOf(iso: string | null | undefined, now: number = serverNow()): number | null {
  if (!iso) return null;
  const parsed = Date.parse(iso);
  return Number.isNaN(parsed) ? null : (now - parsed) / 1000;
}

const listeners = new Set<() => void>();
let timer: ReturnType<typeof setInterval> | undefined;
let second = Math.floor(serverNow() / 1000);

function subscribe(listener: () => void): () => void {
  listeners.add(listener);
  timer ??= setInterval(() => {
    second = Math.floor(serverNow() / 1000);
    for (const notify of listeners) notify();
  }, 1000);
  return () => {
    listeners.delete(listener);
    if (listeners.size === 0 && timer !== undefined) {
      clearInterval(timer);
      timer = undefined;
    }
  };
}

/** Server time in whole seconds (as milliseconds); one timer for every age on the page. */
export function useServerNow(): number {
  return useSyncExternalStore(subscribe, () => second) * 1000;
}
