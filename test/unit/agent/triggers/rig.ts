import { randomUUID } from "node:crypto";
import { DatabaseSync } from "node:sqlite";
import { pino, type Logger } from "pino";
import type { NodeFacts } from "../../../../src/agent/triggers/execution/admit.ts";
import { Dispatcher } from "../../../../src/agent/triggers/execution/dispatch.ts";
import {
  Journal,
  journalMigration,
  journalYieldMigration,
  type JournalOptions,
} from "../../../../src/agent/triggers/execution/journal.ts";
import type {
  Chunk,
  OneShotTrigger,
  StreamTrigger,
  Trigger,
  TriggerChannel,
  TriggerContext,
  TriggerReply,
} from "../../../../src/agent/triggers/execution/trigger.ts";
import { systemClock, type Clock } from "../../../../src/host/clock.ts";
import type { TriggerClaims } from "../../../../src/protocol/documents/claims.ts";
import { z } from "zod";

export const BOOT_ID = "3f0c5c1e-0000-4000-8000-000000000001";
/** Session time at which the tests' triggers arrive. */
export const NOW = Date.UTC(2026, 0, 1);
export const DAY = 24 * 3_600_000;

/** A clock whose timers run `factor` times faster. */
export function fastClock(factor: number): Clock {
  const clock = systemClock();
  return {
    now: () => clock.now(),
    elapsed: () => clock.elapsed() * factor,
    sinceBoot: () => clock.sinceBoot() * factor,
    sleep: (ms, signal) => clock.sleep(ms / factor, signal),
    after: (ms, run) => clock.after(ms / factor, run),
  };
}

export class TestChannel implements TriggerChannel {
  readonly parts: ({ readonly id: string; readonly seq: number } & Chunk)[] = [];
  readonly results: { readonly id: string; readonly reply: TriggerReply }[] = [];
  /** Thrown for successive results until empty. */
  readonly refusals: Error[] = [];
  /** Thrown for these ids every time. */
  poison = new Map<string, Error>();
  /** The ids of the sent results, accepted or not. */
  readonly tried: string[] = [];
  readonly #control = new AbortController();
  #gate: Promise<void> = Promise.resolve();
  #open: () => void = () => undefined;

  get signal(): AbortSignal {
    return this.#control.signal;
  }

  get texts(): readonly string[] {
    return this.parts.map(({ data }) => (typeof data === "string" ? data : JSON.stringify(data)));
  }

  get text(): string {
    return this.texts.join("");
  }

  end(): void {
    this.#control.abort();
  }

  /** Makes the channel full until `unblock`. */
  block(): void {
    this.#gate = new Promise((resolve) => {
      this.#open = resolve;
    });
  }

  unblock(): void {
    this.#open();
    this.#gate = Promise.resolve();
  }

  progress(part: { readonly id: string; readonly seq: number } & Chunk): void {
    this.parts.push(part);
  }

  ready(): Promise<void> {
    return this.#gate;
  }

  result(id: string, reply: TriggerReply): Promise<void> {
    this.tried.push(id);
    const refusal = this.poison.get(id) ?? this.refusals.shift();
    if (refusal !== undefined) return Promise.reject(refusal);
    this.results.push({ id, reply });
    return Promise.resolve();
  }
}

export function claims(event: string, fields: Partial<TriggerClaims> = {}): TriggerClaims {
  return {
    iss: "https://cp.example.net",
    aud: "6e1f7d3c-94c4-4c1c-9c36-8d6a9b7c0001",
    sid: "6e1f7d3c-94c4-4c1c-9c36-8d6a9b7c0002",
    jti: randomUUID(),
    event,
    body: {},
    wait: true,
    user: "jane@example.net",
    deadlineMs: 60_000,
    iat: NOW / 1000,
    exp: NOW / 1000 + 300,
    ...fields,
  };
}

export function memoryJournal(options: Partial<JournalOptions> = {}): {
  readonly sql: DatabaseSync;
  readonly journal: Journal;
} {
  const sql = new DatabaseSync(":memory:");
  sql.exec(journalMigration + journalYieldMigration);
  return { sql, journal: new Journal(sql, { bootId: BOOT_ID, isPersistent: true, ...options }) };
}

export interface Rig {
  readonly dispatcher: Dispatcher;
  readonly journal: Journal;
  readonly channel: TestChannel;
  /** Runs one trigger through the rig's channel. */
  readonly run: (event: string, fields?: Partial<TriggerClaims>) => Promise<TriggerReply>;
}

export function rig(
  triggers: readonly Trigger[],
  options: {
    readonly node?: NodeFacts;
    readonly journal?: Journal;
    readonly clock?: Clock;
    readonly log?: Logger;
    /** The channel is not attached yet. */
    readonly isOffline?: boolean;
  } = {},
): Rig {
  const {
    node = { type: "Node", state: "ACTIVE" },
    journal = memoryJournal().journal,
    clock = systemClock(),
    log = pino({ level: "silent" }),
  } = options;
  const dispatcher = new Dispatcher({ node: () => node, journal, clock, log });
  dispatcher.serve(triggers);
  const channel = new TestChannel();
  if (options.isOffline !== true) dispatcher.attach(channel);
  return { dispatcher, journal, channel, run: (event, fields) => dispatcher.run(claims(event, fields), channel, NOW) };
}

const defaults = { deadlineMs: 5000, needsDataPlane: false, readOnly: false, agents: true };

export function oneShot(
  event: string,
  handle: (context: TriggerContext) => Promise<unknown>,
  more: Partial<OneShotTrigger<unknown>> = {},
): Trigger {
  return {
    event,
    kind: "one-shot",
    request: z.looseObject({}),
    ...defaults,
    handle: (_, context) => handle(context),
    ...more,
  };
}

export function stream(
  event: string,
  handle: (context: TriggerContext) => Promise<{ exitCode: number }>,
  more: Partial<StreamTrigger<unknown>> = {},
): Trigger {
  return {
    event,
    kind: "stream",
    request: z.looseObject({}),
    ...defaults,
    handle: (_, context) => handle(context),
    ...more,
  };
}

/** A promise and its resolver. */
export function deferred<T>(): { readonly promise: Promise<T>; readonly resolve: (value: T) => void } {
  let resolve: (value: T) => void = () => undefined;
  const promise = new Promise<T>((fulfil) => {
    resolve = fulfil;
  });
  return { promise, resolve };
}

/** Resolves when aborted; for handlers that run until stopped. */
export function untilAborted(signal: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    if (signal.aborted) resolve();
    signal.addEventListener("abort", () => resolve(), { once: true });
  });
}
