import { idleApplying } from "../../../support/idle-applying.ts";
import { randomUUID } from "node:crypto";
import { mkdirSync } from "node:fs";
import { join } from "node:path";
import { pino } from "pino";
import { beforeAll, describe, expect, test } from "vitest";
import { ManagedNode } from "../../../../src/agent/wiring/managed-node.ts";
import type { Connection } from "../../../../src/agent/session/attempt.ts";
import { DesiredDocuments } from "../../../../src/agent/shadow/desired.ts";
import { createEventLog } from "../../../../src/agent/telemetry/events.ts";
import { signedStreams } from "../../../../src/agent/streams/signed.ts";
import { SignedTriggers } from "../../../../src/agent/triggers/execution/signed.ts";
import { agentSignals } from "../../../../src/agent/wiring/signals.ts";
import { AcceptedDocuments } from "../../../../src/agent/applying/accepted-documents.ts";
import { Forgeries } from "../../../../src/agent/faults/forgeries.ts";
import { trustOf } from "../../../../src/agent/identity/identity.ts";
import type { Trigger } from "../../../../src/agent/triggers/execution/trigger.ts";
import { HostError, InputError } from "../../../../src/errors.ts";
import { hostFiles } from "../../../../src/host/files/files.ts";
import type { TriggerClaims } from "../../../../src/protocol/documents/claims.ts";
import { parseMessage, SESSION_LIMITS } from "../../../../src/protocol/channel/envelope.ts";
import { errorCodes } from "../../../../src/protocol/values/error-codes.ts";
import { signJws } from "../../../../src/protocol/channel/jws.ts";
import {
  controlMethods,
  nodeMethods,
  type ControlMethods,
  type NodeMethods,
} from "../../../../src/protocol/channel/methods.ts";
import { RpcPeer } from "../../../../src/protocol/channel/rpc.ts";
import { FakeClock } from "../../../support/fake-clock.ts";
import {
  ISS,
  keysClaims,
  newSid,
  nodeDocument,
  nodeIdentity,
  signDocument,
  signingKey,
  UID,
  type SigningKey,
} from "../../../support/control-plane/signing.ts";
import { tempDir } from "../../../support/temp-dir.ts";
import { waitFor } from "../../../support/wait-for.ts";
import { memoryJournal, oneShot, rig } from "../triggers/rig.ts";

let root: SigningKey;
let key: SigningKey;

beforeAll(async () => {
  [root, key] = await Promise.all([signingKey(), signingKey()]);
});

interface Frame {
  readonly id?: number;
  readonly method?: string;
  readonly params?: Record<string, unknown>;
  readonly result?: unknown;
  readonly error?: { readonly code: number; readonly message: string; readonly data: { readonly code: string } };
}

/** A managed node and the frames it sends; `answer` answers its requests. */
async function setUp(
  triggers: readonly Trigger[] = [],
  answer: (frame: Frame) => object = () => ({ result: {} }),
  log = pino({ level: "silent" }),
) {
  const directory = tempDir();
  mkdirSync(join(directory, "s/desired"), { recursive: true });
  const clock = new FakeClock();
  const { journal } = memoryJournal();
  const events: string[] = [];
  const obeyed: { jti: string; ticket: string }[] = [];
  const documents = await DesiredDocuments.load(hostFiles(directory), "/s");
  const signals = agentSignals();
  const { reports } = signals;
  const eventLog = createEventLog({
    clock,
    sink: ({ eventType }) => void events.push(eventType),
    open: [],
    onOpenChanged: () => undefined,
  });
  const applying = idleApplying(documents, directory, clock, signals);
  const accepted = new AcceptedDocuments({ clock, log, documents, applying, events: eventLog, signals });
  const forgeries = new Forgeries(eventLog);
  const registration = { node: nodeIdentity, controlPlane: { iss: ISS, keys: keysClaims(root, [key]) } };
  const trust = () => trustOf(registration);
  const { dispatcher } = rig(triggers, { journal, clock });
  const node = new ManagedNode({
    clock,
    log,
    reports,
    accepted,
    sync: { online: () => undefined, offline: () => undefined, changed: () => undefined },
    dispatcher,
    triggers: new SignedTriggers({
      clock,
      log: log.child({ component: "triggers" }),
      trust,
      dispatcher,
      onRefused: (error) => forgeries.judge("a trigger", error),
    }),
    openStream: signedStreams({
      trust,
      target: () => ({ url: nodeIdentity.session, pins: [], knownAddresses: [] }),
      streams: {
        obey: ({ claims, ticket }) => {
          obeyed.push({ jti: claims.jti, ticket });
          return Promise.resolve();
        },
      },
      onRefused: (error) => forgeries.judge("a stream", error),
    }),
  });
  const sent: Frame[] = [];
  const over = new AbortController();
  const rpc: RpcPeer<ControlMethods, NodeMethods> = new RpcPeer<ControlMethods, NodeMethods>({
    local: controlMethods,
    remote: nodeMethods,
    handlers: {},
    send: (text) => {
      const frame = JSON.parse(text) as Frame;
      sent.push(frame);
      if (frame.method === undefined || frame.id === undefined) return;
      const reply = JSON.stringify({ jsonrpc: "2.0", id: frame.id, ...answer(frame) });
      queueMicrotask(() => void rpc.receive(parseMessage(reply, SESSION_LIMITS)));
    },
    onFault: () => undefined,
  });
  const connection: Connection = {
    sid: newSid(),
    rpc,
    proof: {
      iss: ISS,
      aud: UID,
      nonce: "n".repeat(43),
      sid: newSid(),
      iat: 100,
      versions: { keys: 1, node: 0, cluster: 0, domain: 0 },
    },
    heartbeatMs: 30_000,
    reportedVersion: 1,
    signal: over.signal,
    sessionNow: () => 100,
    rttMs: () => undefined,
    isCongested: () => false,
    drained: () => Promise.resolve(),
    beaten: () => undefined,
  };
  const peer = new RpcPeer({
    local: controlMethods,
    remote: nodeMethods,
    handlers: node.handlers(connection),
    send: (text) => void sent.push(JSON.parse(text) as Frame),
    onFault: () => undefined,
  });
  let calls = 0;
  const call = (method: string, params: object, isNotice = false): void => {
    calls += 1;
    const id = isNotice ? {} : { id: calls };
    void peer.receive(parseMessage(JSON.stringify({ jsonrpc: "2.0", ...id, method, params }), SESSION_LIMITS));
  };
  const trigger = (fields: Partial<TriggerClaims> = {}, by = key): Promise<string> => {
    const times = { deadlineMs: 60_000, iat: 100, exp: 200 };
    const claims = { iss: ISS, aud: UID, sid: connection.sid, jti: randomUUID(), event: "count", body: {}, wait: true };
    return signJws("holdfast-trigger+jwt", { ...claims, user: "u", ...times, ...fields }, by);
  };
  return { node, accepted, forgeries, documents, clock, sent, events, connection, over, call, trigger, log, obeyed };
}

describe("a cancel", () => {
  function counted() {
    let runs = 0;
    const count = oneShot("count", () => {
      runs += 1;
      return Promise.resolve({ runs });
    });
    return { count, runs: () => runs };
  }

  test("directly after its trigger stops it before its start, and the trigger is answered", async () => {
    const { count, runs } = counted();
    const { call, trigger, sent } = await setUp([count]);
    const jti = randomUUID();
    const jws = await trigger({ jti });
    call("trigger.run", { jws });
    call("trigger.cancel", { id: jti }, true);
    await waitFor("the answer", () => sent.length === 1);
    expect(sent).toMatchObject([{ id: 1, error: { data: { code: "cancelled" } } }]);
    expect(runs()).toBe(0);
  });

  test("of another trigger, or from before, stops nothing", async () => {
    const { count, runs } = counted();
    const { call, trigger, sent } = await setUp([count]);
    const jti = randomUUID();
    const [first, second] = [await trigger({ jti }), await trigger()];
    call("trigger.cancel", { id: jti }, true);
    call("trigger.run", { jws: second });
    call("trigger.cancel", { id: randomUUID() }, true);
    await waitFor("the answer", () => sent.length === 1);
    call("trigger.run", { jws: first });
    await waitFor("the other answer", () => sent.length === 2);
    expect(sent.map(({ result }) => result)).toEqual([{ runs: 1 }, { runs: 2 }]);
    expect(runs()).toBe(2);
  });
});

test("counts and reports forged triggers, whoever found them", async () => {
  const { forgeries, call, trigger, sent, events } = await setUp();
  call("trigger.run", { jws: await trigger({}, root) });
  await waitFor("the answer", () => sent.length === 1);
  forgeries.note("a statement", new InputError("bad-signature", "no"));
  expect(forgeries.count).toBe(2);
  expect(events).toEqual(["Signature Refused", "Signature Refused"]);
});

test("answers a failing trigger with the code and the message of its failure", async () => {
  const failing = (event: string, error: Error) => oneShot(event, () => Promise.reject(error));
  const { call, trigger, sent } = await setUp([
    failing("start", new HostError("engine-refused", "port 80 is taken", { details: { status: 409 } })),
    failing("ask", new InputError("too-wide", "ask for less")),
    failing("bug", new TypeError("secret")),
  ]);
  for (const event of ["start", "ask", "bug"]) call("trigger.run", { jws: await trigger({ event }) });
  await waitFor("the answers", () => sent.length === 3);
  const failed = errorCodes.failed.rpc;
  expect(sent.toSorted((a, b) => (a.id ?? 0) - (b.id ?? 0)).map(({ error }) => error)).toEqual([
    { code: failed, message: "port 80 is taken", data: { code: "engine-refused", details: { status: 409 } } },
    { code: failed, message: "ask for less", data: { code: "too-wide" } },
    { code: errorCodes.internal.rpc, message: "internal error", data: { code: "internal" } },
  ]);
});

test("logs a trigger refused before it is known once a minute, with its reason", async () => {
  const lines: Record<string, unknown>[] = [];
  const log = pino({ level: "info" }, { write: (line: string) => void lines.push(JSON.parse(line) as never) });
  const { call, trigger, sent } = await setUp([], undefined, log);
  for (let i = 0; i < 10; i += 1) call("trigger.run", { jws: await trigger({ aud: randomUUID() }) });
  await waitFor("the answers", () => sent.length === 10);
  expect(lines).toMatchObject([{ msg: "trigger refused", outcome: "bad-signature", component: "triggers" }]);
  expect(lines[0]?.["reason"]).toMatch(/it is for another node/);
});

describe("the report on a document", () => {
  const failure = (code: string) => ({ error: { code: -32006, message: "no", data: { code } } });

  test.each([
    ["busy", 3],
    ["internal", 3],
    ["invalid-body", 1],
  ])("that is answered %s is sent again with backoff unless refused permanently", async (code, times) => {
    let refusals = 2;
    const { node, accepted, documents, connection, clock, sent } = await setUp([], ({ method }) => {
      if (method !== "document.applied" || refusals === 0) return { result: { version: 1, unchanged: true } };
      refusals -= 1;
      return failure(code);
    });
    const trust = { iss: ISS, uid: UID, keys: new Map([[key.kid, key.publicKey]]) };
    await documents.accept("node", await signDocument(key, "node", 3, nodeDocument()), trust, 1);
    accepted.apply();
    node.online(connection);
    const reports = () => sent.filter(({ method }) => method === "document.applied").length;
    await waitFor("the first report", () => reports() === 1);
    await clock.advance(1000);
    expect(reports()).toBe(1);
    await clock.advance(600_000);
    expect(reports()).toBe(times);
    node.offline();
  });
});
