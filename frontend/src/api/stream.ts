/**
 * The tab's one EventSource. It reconnects by itself, says in which state it is, and hands every
 * event to its listeners. The browser resends Last-Event-ID after a dropped connection, so what
 * was missed is replayed; after a refused one (the browser gives up) a new EventSource is opened
 * and listeners are told to refetch, as they are on the server's own `reset`.
 */
export type StreamState = "idle" | "connecting" | "live" | "reconnecting";

export const eventTypes = [
  "hello",
  "reset",
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
}

export type StreamListener = (type: EventType, payload: unknown) => void;

const firstDelay = 1000;
const longestDelay = 20000;

export class LiveStream {
  private readonly url: string;
  private readonly open: (url: string) => EventSource;
  private source: EventSource | null = null;
  private retry: ReturnType<typeof setTimeout> | undefined;
  private wasLive = false;
  private status: StreamStatus = { state: "idle", since: Date.now(), attempts: 0 };
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
    this.wasLive = false;
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
    const source = this.open(this.url);
    this.source = source;
    source.onopen = () => {
      const missedSome = this.wasLive && this.status.attempts > 0 && this.reopened;
      this.wasLive = true;
      this.reopened = false;
      this.enter("live", 0);
      if (missedSome) this.tell("reset", null);
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

  private reopened = false;

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
    let payload: unknown;
    try {
      payload = event.data ? JSON.parse(event.data) : null;
    } catch {
      // One unreadable event must not end the stream; the next refetch brings what it said.
      console.warn(`stream: event ${type} is not JSON and was left out`);
      return;
    }
    this.tell(type, payload);
  }

  private tell(type: EventType, payload: unknown): void {
    for (const listener of this.listeners) listener(type, payload);
  }

  private enter(state: StreamState, attempts = 0): void {
    const since = state === this.status.state ? this.status.since : Date.now();
    this.status = { state, since, attempts };
    for (const watcher of this.watchers) watcher();
  }
}
