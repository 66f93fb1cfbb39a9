import { expect, onTestFinished, test } from "vitest";
import { HostError } from "../../../../src/errors.ts";
import type { EngineCache, EngineChange } from "../../../../src/host/engine/cache.ts";
import { differs, effectOf } from "../../../../src/host/engine/cache-change.ts";
import type { ContainerDetail, ContainerSummary, Engine, EngineEvent } from "../../../../src/host/engine/engine.ts";
import { hostEngine } from "../../../../src/host/engine/host-engine.ts";
import { openEngineCache } from "../../../../src/host/engine/open-cache.ts";
import { deferred, type Deferred } from "../../../support/deferred.ts";
import { FakeClock, settle } from "../../../support/fake-clock.ts";

const MINUTE = 60_000;
const { signal } = new AbortController();

function container(id: string, more: Partial<ContainerSummary> = {}): ContainerDetail {
  const known = { id, name: id, imageId: "i", image: "r", labels: {}, state: "running", createdAt: 1 } as const;
  const run = { pid: 2, startedAt: 1, finishedAt: 0, restartCount: 0, isOomKilled: false, error: "", cgroupParent: "" };
  const settings = { restartPolicy: "no", resources: {}, networks: {} };
  return { ...known, health: undefined, exitCode: undefined, addresses: {}, settings, ...run, ...more };
}

const event = (id: string, action: string, attributes: Record<string, string> = {}): EngineEvent => ({
  kind: "container",
  action,
  id,
  attributes,
  at: 0,
});

/** An engine in this process: its contents, its state, and the requests it received. */
class ScriptedEngine {
  readonly has = new Map<string, ContainerDetail>();
  readonly requested: string[] = [];
  failure: HostError | undefined;
  /** Requests that fail with it. */
  failing = /./;
  /** Delays the answer of a list after it was read. */
  held: Deferred<void> | undefined;
  #deliver: ((event: EngineEvent | undefined) => void) | undefined;

  /** Sends an event; undefined ends the stream. */
  async send(event: EngineEvent | undefined): Promise<void> {
    this.#deliver?.(event);
    await settle();
  }

  calls(clock: FakeClock): Engine {
    return {
      ...hostEngine({ socketPath: "/nonexistent/engine.sock", clock }),
      ping: async () => this.#answer("ping"),
      listContainers: async () => {
        this.#answer("list");
        const rows = [...this.has.values()];
        await this.held?.promise;
        return rows;
      },
      inspectContainer: async (id) => {
        this.#answer("inspect");
        return this.has.get(id);
      },
      events: (_, signal, onOpen) => this.#events(signal, onOpen),
    };
  }

  async *#events(signal: AbortSignal, onOpen?: () => void): AsyncGenerator<EngineEvent, void> {
    this.#answer("events");
    onOpen?.();
    for (;;) {
      const next = await new Promise<EngineEvent | undefined>((resolve, reject) => {
        this.#deliver = resolve;
        signal.addEventListener("abort", () => reject(signal.reason as Error), { once: true });
      });
      if (next === undefined) return;
      yield next;
    }
  }

  #answer(what: string): void {
    this.requested.push(what);
    if (this.failure !== undefined && this.failing.test(what)) throw this.failure;
  }
}

async function opened(...ids: string[]) {
  const clock = new FakeClock();
  const engine = new ScriptedEngine();
  for (const id of ids) engine.has.set(id, container(id));
  const cache: EngineCache = openEngineCache({ engine: engine.calls(clock), clock, owner: "o=1" });
  onTestFinished(() => cache.close());
  const changes: EngineChange[] = [];
  cache.onChange((change) => void changes.push(change));
  await clock.advance(0);
  await settle();
  return { clock, engine, cache, changes };
}

test("idle, requests only a list every five minutes, and a ping if there is something to lose", async () => {
  const empty = await opened();
  expect(empty.engine.requested).toEqual(["events", "list"]);
  await empty.clock.advance(10 * MINUTE);
  expect(empty.engine.requested).toEqual(["events", "list", "list", "list"]);
  const full = await opened("a");
  full.engine.requested.splice(0);
  await full.clock.advance(5 * MINUTE);
  expect(full.engine.requested.filter((what) => what === "ping")).toHaveLength(30);
  expect(full.engine.requested.filter((what) => what === "list")).toHaveLength(1);
  expect(full.changes).toEqual([{ kind: "listed" }, { kind: "standing" }, { kind: "listed" }]);
});

test("retries a stopped engine after 1 s and then up to every 5 s, and is healthy with the first answer", async () => {
  const { clock, engine, cache, changes } = await opened("a");
  await clock.advance(20_000);
  engine.failure = new HostError("engine-unwell", "gone");
  await engine.send(undefined);
  expect(cache.standing).toMatchObject({ state: "unwell", reason: "gone" });
  expect([...cache.containers.keys()]).toEqual(["a"]);
  engine.requested.splice(0);
  const { connections } = cache;
  await clock.advance(1000 + 2000 + 4000 + 5000);
  expect(engine.requested).toHaveLength(4);
  await clock.advance(MINUTE);
  expect(engine.requested).toHaveLength(16);
  expect(cache.connections).toBe(connections + 16);
  engine.failure = undefined;
  await clock.advance(5000);
  expect(cache.standing.state).toBe("well");
  expect(changes.filter(({ kind }) => kind === "standing")).toHaveLength(3);
});

test("an engine that stops answering is unhealthy although its stream is open", async () => {
  const { clock, engine, cache, changes } = await opened("a");
  engine.failure = new HostError("timeout", "did not answer");
  engine.failing = /ping/;
  const seen: unknown[] = [];
  cache.onChange(() => seen.push(cache.standing));
  await clock.advance(10_000);
  expect(seen[0]).toMatchObject({ state: "unwell", reason: "did not answer" });
  expect(seen.at(-1)).toMatchObject({ state: "well" });
  expect(changes.slice(-3)).toEqual([{ kind: "standing" }, { kind: "listed" }, { kind: "standing" }]);
});

test("a successful refresh opens the events again at once", async () => {
  const { clock, engine, cache } = await opened("a");
  engine.failure = new HostError("engine-unwell", "gone");
  await clock.advance(10 * MINUTE);
  expect(cache.standing.state).toBe("unwell");
  await expect(cache.refresh(signal)).rejects.toThrow("gone");
  engine.failure = undefined;
  await cache.refresh(signal);
  await settle();
  expect(cache.standing.state).toBe("well");
});

test("a list does not undo an event that came during its request", async () => {
  const { engine, cache } = await opened("a", "b");
  engine.held = deferred();
  const refreshing = cache.refresh(signal);
  await engine.send(event("a", "die", { exitCode: "3" }));
  await engine.send(event("b", "destroy"));
  engine.held.resolve();
  await refreshing;
  expect([...cache.containers.values()]).toMatchObject([{ id: "a", state: "exited", exitCode: 3 }]);
});

test("a list newer than the events opens another stream of them", async () => {
  const { clock, engine, cache, changes } = await opened("a");
  engine.has.set("b", container("b"));
  await clock.advance(5 * MINUTE);
  expect([...cache.containers.keys()]).toEqual(["a", "b"]);
  expect(engine.requested.filter((what) => what === "events")).toHaveLength(2);
  expect(cache.standing.state).toBe("well");
  expect(changes.at(-1)).toEqual({ kind: "listed" });
});

test("opens a stream that ends repeatedly with backoff", async () => {
  const { clock, engine } = await opened();
  engine.requested.splice(0);
  for (let second = 0; second < 60; second += 1) {
    await engine.send(undefined);
    await clock.advance(1000);
  }
  const streams = engine.requested.filter((what) => what === "events").length;
  expect(streams).toBeGreaterThan(2);
  expect(streams).toBeLessThan(16);
});

test("a closed cache has neither timers nor containers, and requests nothing", async () => {
  const { clock, engine, cache } = await opened("a");
  cache.close();
  await settle();
  engine.requested.splice(0);
  await clock.advance(10 * MINUTE);
  expect(engine.requested).toEqual([]);
  expect(clock.pendingTimers).toBe(0);
  expect(cache.containers.size).toBe(0);
});

test("events change their container only", () => {
  const known = container("a", { health: "healthy", addresses: { n: "10.0.0.2" } });
  const after = (action: string, attributes = {}): unknown => effectOf(known, event("a", action, attributes));
  expect(after("die", { exitCode: "137" })).toMatchObject({
    container: { state: "exited", exitCode: 137, health: undefined, addresses: {} },
  });
  expect(after("health_status: unhealthy")).toMatchObject({ container: { health: "unhealthy" } });
  expect(after("health_status", { health_status: "unhealthy" })).toMatchObject({ container: { health: "unhealthy" } });
  expect(after("pause")).toMatchObject({ container: { state: "paused" } });
  expect(after("rename", { name: "z" })).toMatchObject({ container: { name: "z" } });
  expect(after("destroy")).toEqual({ kind: "gone" });
  expect(after("start")).toEqual({ kind: "ask" });
  for (const other of ["exec_create: sh", "exec_die", "attach", "resize", "top"])
    expect(after(other)).toEqual({ kind: "none" });
  expect(effectOf(undefined, event("a", "die"))).toEqual({ kind: "ask" });
  for (const word of ["constructor", "__proto__"]) expect(after(word)).toEqual({ kind: "none" });
});

test("a list and events give the same result", () => {
  const known = container("a", { state: "exited", exitCode: 3 });
  expect(differs(known, container("a", { state: "restarting" }))).toBe(false);
  expect(differs(known, container("a", { state: "exited", exitCode: 3, addresses: { n: "10.0.0.2" } }))).toBe(false);
  expect(differs(known, container("a"))).toBe(true);
  expect(differs(undefined, known)).toBe(true);
});
