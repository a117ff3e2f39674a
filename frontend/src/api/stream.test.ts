import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";
import { LiveStream } from "./stream.ts";

/** The browser's EventSource as far as the stream uses it, driven by the test. */
class FakeSource extends EventTarget {
  readyState = 0;
  closed = false;
  onopen: (() => void) | null = null;
  onerror: (() => void) | null = null;

  close() {
    this.closed = true;
    this.readyState = 2;
  }
  opens() {
    this.readyState = 1;
    this.onopen?.();
  }
  drops() {
    this.readyState = 0;
    this.onerror?.();
  }
  isRefused() {
    this.readyState = 2;
    this.onerror?.();
  }
  sends(type: string, data: string, lastEventId = "") {
    this.dispatchEvent(new MessageEvent(type, { data, lastEventId }));
  }
}

function makeStream() {
  const sources: FakeSource[] = [];
  const events: [string, unknown][] = [];
  const addresses: string[] = [];
  const stream = new LiveStream("/api/v1/stream", (address) => {
    addresses.push(address);
    const source = new FakeSource();
    sources.push(source);
    return source as unknown as EventSource;
  });
  stream.listen((type, payload) => events.push([type, payload]));
  const latest = () => sources[sources.length - 1] as FakeSource;
  return { stream, sources, addresses, events, latest };
}

beforeEach(() => {
  vi.useFakeTimers();
});
afterEach(() => {
  vi.useRealTimers();
});

describe("LiveStream", () => {
  it("opens one connection however often it is started", () => {
    const { stream, sources } = makeStream();
    stream.start();
    stream.start();
    expect(sources).toHaveLength(1);
    expect(stream.getStatus().state).toBe("connecting");
  });

  it("hands on payloads and leaves out what is not JSON", () => {
    const warn = vi.spyOn(console, "warn").mockImplementation(() => {});
    const { stream, events, latest } = makeStream();
    stream.start();
    latest().opens();
    latest().sends("job", '{"id": 3, "running": null}');
    latest().sends("job", "{broken");
    latest().sends("decision", '{"id": 9}');
    expect(events).toEqual([
      ["job", { id: 3, running: null }],
      ["decision", { id: 9 }],
    ]);
    expect(warn).toHaveBeenCalledOnce();
    warn.mockRestore();
  });

  it("leaves a dropped connection to the browser, which replays by Last-Event-ID", () => {
    const { stream, sources, events, latest } = makeStream();
    stream.start();
    latest().opens();
    latest().drops();
    expect(stream.getStatus()).toMatchObject({ state: "reconnecting", attempts: 1 });
    vi.advanceTimersByTime(60_000);
    expect(sources).toHaveLength(1);
    latest().opens();
    expect(stream.getStatus()).toMatchObject({ state: "live", attempts: 0 });
    expect(events).toEqual([]);
  });

  it("names the last event in the address when it opens anew, so that the rest is replayed", () => {
    const { stream, addresses, events, latest } = makeStream();
    stream.start();
    latest().opens();
    latest().sends("job", "{}", "1700000000000-3");
    latest().isRefused();
    vi.advanceTimersByTime(1000);
    latest().opens();
    expect(addresses).toEqual(["/api/v1/stream", "/api/v1/stream?last_event_id=1700000000000-3"]);
    expect(events).toEqual([["job", {}]]);
  });

  it("tells a server without a feed from a live one", () => {
    const { stream, latest } = makeStream();
    stream.start();
    latest().opens();
    latest().sends("hello", '{"live": false, "reason": "Redis can\'t be reached"}');
    expect(stream.getStatus()).toMatchObject({ state: "silent", reason: "Redis can't be reached" });
    latest().sends("status", '{"live": true, "reason": ""}');
    expect(stream.getStatus()).toMatchObject({ state: "live", reason: "" });
  });

  it("opens anew after a refusal, later each time; without a place it asks for a refetch", () => {
    const { stream, sources, events, latest } = makeStream();
    stream.start();
    latest().opens();
    latest().isRefused();
    expect(sources).toHaveLength(1);
    vi.advanceTimersByTime(1000);
    expect(sources).toHaveLength(2);
    latest().isRefused();
    vi.advanceTimersByTime(1999);
    expect(sources).toHaveLength(2);
    vi.advanceTimersByTime(1);
    expect(sources).toHaveLength(3);
    latest().opens();
    expect(events).toEqual([["reset", null]]);
  });

  it("does not ask for a refetch when the first connection took several tries", () => {
    const { stream, events, latest } = makeStream();
    stream.start();
    latest().isRefused();
    vi.advanceTimersByTime(1000);
    latest().opens();
    expect(events).toEqual([]);
    expect(stream.getStatus().state).toBe("live");
  });

  it("closes and stays closed when stopped", () => {
    const { stream, sources, latest } = makeStream();
    stream.start();
    latest().isRefused();
    stream.stop();
    vi.advanceTimersByTime(60_000);
    expect(sources).toHaveLength(1);
    expect(latest().closed).toBe(true);
    expect(stream.getStatus().state).toBe("idle");
  });

  it("tries at once when hurried", () => {
    const { stream, sources, latest } = makeStream();
    stream.start();
    latest().isRefused();
    stream.hurry();
    expect(sources).toHaveLength(2);
  });
});
