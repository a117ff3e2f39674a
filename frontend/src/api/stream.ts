/**
 * The tab's one EventSource. It reconnects by itself, says in which state it is, and hands every
 * event to its listeners. The browser resends Last-Event-ID after a dropped connection; after a
 * refused one it gives up, and a new EventSource is opened that names the last id in its address.
 * Either way the server replays what was missed, or says `reset`.
 *
 * `silent` is a connection to a server whose own feed is down: nothing will come until it is back.
 */
export type StreamState = "idle" | "connecting" | "live" | "silent" | "reconnecting";

export const eventTypes = [
  "hello",
  "reset",
  "status",
  "capacity",
  "cluster",
  "decision",
  "command",
  "job",
  "sample",
  "recovery",
] as const;
export type EventType = (typeof eventTypes)[number];

export interface StreamStatus {
  state: StreamState;
  /** When the state was entered, in milliseconds of this machine's clock. */
  since: number;
  /** Reconnections tried since the stream was last live. */
  attempts: number;
  /** Why the server's feed is silent; empty otherwise. */
  reason: string;
}

export type StreamListener = (type: EventType, payload: unknown) => void;

const firstDelay = 1000;
const longestDelay = 20000;

export class LiveStream {
  private readonly url: string;
  private readonly open: (url: string) => EventSource;
  private source: EventSource | null = null;
  private retry: ReturnType<typeof setTimeout> | undefined;
  private wasOpen = false;
  private reopened = false;
  private lastId = "";
  private status: StreamStatus = { state: "idle", since: Date.now(), attempts: 0, reason: "" };
  private readonly listeners = new Set<StreamListener>();
  private readonly watchers = new Set<() => void>();

  constructor(url: string, open: (url: string) => EventSource = (at) => new EventSource(at)) {
    this.url = url;
    this.open = open;
  }

  /** Opens the stream; does nothing where it is open. */
  start(): void {
    if (this.source || this.retry !== undefined) return;
    this.enter("connecting");
    this.connect();
  }

  stop(): void {
    clearTimeout(this.retry);
    this.retry = undefined;
    this.source?.close();
    this.source = null;
    this.wasOpen = false;
    this.reopened = false;
    this.lastId = "";
    this.enter("idle");
  }

  /** Tries now instead of waiting for the back-off (the browser came online, the tab woke). */
  hurry(): void {
    if (this.retry === undefined) return;
    clearTimeout(this.retry);
    this.retry = undefined;
    this.connect();
  }

  listen(listener: StreamListener): () => void {
    this.listeners.add(listener);
    return () => this.listeners.delete(listener);
  }

  readonly watchStatus = (watcher: () => void): (() => void) => {
    this.watchers.add(watcher);
    return () => this.watchers.delete(watcher);
  };

  readonly getStatus = (): StreamStatus => this.status;

  private connect(): void {
    const source = this.open(this.address());
    this.source = source;
    source.onopen = () => {
      const lostPlace = this.reopened && this.wasOpen && !this.lastId;
      this.wasOpen = true;
      this.reopened = false;
      this.enter("live");
      if (lostPlace) this.tell("reset", null);
    };
    source.onerror = () => {
      if (source !== this.source) return;
      this.enter("reconnecting", this.status.attempts + 1);
      // CLOSED: the server refused, and the browser won't try again by itself.
      if (source.readyState === 2) this.reopenLater(source);
    };
    for (const type of eventTypes) {
      source.addEventListener(type, (event) => this.receive(type, event as MessageEvent<string>));
    }
  }

  private address(): string {
    return this.lastId ? `${this.url}?last_event_id=${encodeURIComponent(this.lastId)}` : this.url;
  }

  private reopenLater(source: EventSource): void {
    source.close();
    this.source = null;
    this.reopened = true;
    const delay = Math.min(longestDelay, firstDelay * 2 ** Math.min(this.status.attempts - 1, 10));
    this.retry = setTimeout(() => {
      this.retry = undefined;
      this.connect();
    }, delay);
  }

  private receive(type: EventType, event: MessageEvent<string>): void {
    if (event.lastEventId) this.lastId = event.lastEventId;
    let payload: unknown;
    try {
      payload = event.data ? JSON.parse(event.data) : null;
    } catch {
      // One unreadable event must not end the stream; the next refetch brings what it said.
      console.warn(`stream: event ${type} is not JSON and was left out`);
      return;
    }
    if (type === "hello" || type === "status") this.hearState(payload);
    this.tell(type, payload);
  }

  private hearState(payload: unknown): void {
    const said = (payload ?? {}) as { live?: boolean; reason?: string };
    if (said.live === false) this.enter("silent", 0, said.reason ?? "");
    else if (this.status.state === "silent") this.enter("live");
  }

  private tell(type: EventType, payload: unknown): void {
    for (const listener of this.listeners) listener(type, payload);
  }

  private enter(state: StreamState, attempts = 0, reason = ""): void {
    const since = state === this.status.state ? this.status.since : Date.now();
    this.status = { state, since, attempts, reason };
    for (const watcher of this.watchers) watcher();
  }
}
