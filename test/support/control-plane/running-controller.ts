import { createHash } from "node:crypto";
import { existsSync, readFileSync, writeFileSync } from "node:fs";
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setImmediate } from "node:timers/promises";
import { pino } from "pino";
import { onTestFinished } from "vitest";
import { startController, type Controller, type ControllerOptions } from "../../../src/controller/controller.ts";
import { systemClock, type Clock } from "../../../src/host/clock.ts";
import { peekClaims } from "../../../src/protocol/channel/jws.ts";
import type { NodeType } from "../../../src/protocol/values/values.ts";
import { lendDatabase } from "./test-store.ts";
import { makeIdentity, register, TestNode, type TestIdentity } from "./node-client.ts";

/** Creates a directory that is removed at the end of the test. */
export async function temporaryDirectory(): Promise<string> {
  const path = await mkdtemp(join(tmpdir(), "holdfast-controller-"));
  onTestFinished(() => rm(path, { recursive: true, force: true }));
  return path;
}

/** The machine's clock with a wall clock that a test can set. */
export class MovableClock implements Clock {
  readonly #real = systemClock();
  #aheadMs = 0;
  #stepMs = 0;

  now(): number {
    return this.#real.now() + this.#aheadMs + this.#stepMs;
  }

  elapsed(): number {
    return this.#real.elapsed() + this.#aheadMs;
  }

  sinceBoot(): number {
    return this.#real.sinceBoot() + this.#aheadMs;
  }

  sleep(ms: number, signal?: AbortSignal): Promise<void> {
    return this.#real.sleep(ms, signal);
  }

  after(ms: number, run: () => void): () => void {
    return this.#real.after(ms, run);
  }

  advance(ms: number): void {
    this.#aheadMs += ms;
  }

  /** Steps the wall clock only, as NTP or an operator does. */
  stepWall(ms: number): void {
    this.#stepMs += ms;
  }
}

/** A clock that replaces one timer length by another. */
export function clockWith(lengthMs: number, insteadMs: number): MovableClock {
  return new (class extends MovableClock {
    override after(ms: number, run: () => void): () => void {
      return super.after(ms === lengthMs ? insteadMs : ms, run);
    }
  })();
}

/** Starts a controller on a free loopback port; it ends with the test, or by `onFinished`, unless closed before. */
export async function runController(
  options: Partial<ControllerOptions> = {},
  onFinished: (end: () => Promise<void>) => void = onTestFinished,
): Promise<Controller> {
  const dataDir = options.dataDir ?? (await temporaryDirectory());
  const log = pino({ level: "silent" });
  const store = await storeOf(dataDir);
  const controller = await startController({ listen: "127.0.0.1:0", log, ...store, ...options, dataDir });
  let closing: Promise<void> | undefined;
  const close = (): Promise<void> => (closing ??= controller.close());
  onFinished(close);
  return { ...controller, close };
}

/** Returns the setting of the store, the same for the same state; in the project `postgres` it is the address of a test's database. */
async function storeOf(dataDir: string): Promise<Pick<ControllerOptions, "store">> {
  const path = join(tmpdir(), `${createHash("sha256").update(dataDir).digest("hex")}.store`);
  if (existsSync(path)) return { store: readFileSync(path, "utf8") };
  const lent = await lendDatabase();
  if (lent === undefined) return {};
  const { host, port, user, database } = lent.address;
  const store = `postgres://${user}@${encodeURIComponent(host)}:${port}/${database}`;
  writeFileSync(path, store);
  return { store };
}

/** Issues a license and registers a node with it. */
export async function addNode(
  controller: Controller,
  name: string,
  options: { readonly type?: NodeType; readonly identity?: TestIdentity } = {},
): Promise<TestNode> {
  const license = await controller.licenses.issue({ name, type: options.type ?? "Node", user: "test" });
  const identity = options.identity ?? (await makeIdentity());
  const answer = await register(controller.url, license, identity);
  if (answer.status !== 200) throw new Error(`registration answered ${answer.status}: ${JSON.stringify(answer.body)}`);
  return new TestNode(controller.url, peekClaims("holdfast-license+jwt", license).jti, identity);
}

/** Keeps a transaction open for a turn of the event loop, again and again, so that others queue up before each of their statements. */
export function slowStore(controller: Controller, uid: string): { stop(): Promise<void> } {
  const end = new AbortController();
  const idle = async () => {
    await setImmediate();
    return { change: {}, message: "" };
  };
  const running = (async () => {
    while (!end.signal.aborted) await controller.nodes.change(uid, "test", idle);
  })();
  return {
    stop: () => {
      end.abort();
      return running;
    },
  };
}
