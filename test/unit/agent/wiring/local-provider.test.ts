import { FakeCompute } from "../../../support/containers/fake-compute.ts";
import { mkdirSync } from "node:fs";
import { join } from "node:path";
import { describe, expect, test, vi } from "vitest";
import { runLocally } from "../../../../src/agent/local-api/run-trigger.ts";
import { localProvider } from "../../../../src/agent/wiring/local-provider.ts";
import { agentSignals } from "../../../../src/agent/wiring/signals.ts";
import { DesiredDocuments } from "../../../../src/agent/shadow/desired.ts";
import { hostFiles } from "../../../../src/host/files/files.ts";
import type { OverlayCounters, OverlayView } from "../../../../src/host/overlay/client.ts";
import { hostReader } from "../../../../src/host/reader.ts";
import { rootLogger } from "../../../../src/host/log.ts";
import type { Config } from "../../../../src/protocol/documents/documents.ts";
import { nodeDocument, signDocument, signingKey, ISS, UID } from "../../../support/control-plane/signing.ts";
import { tempDir } from "../../../support/temp-dir.ts";
import { idleApplying } from "../../../support/idle-applying.ts";
import { rig, stream } from "../triggers/rig.ts";
import { untilHolds } from "../../../support/until-holds.ts";
import { someTurns } from "../../../support/until-still.ts";

const NO_VIEW: OverlayView = { services: new Map(), listeners: new Map(), states: new Map(), health: new Map() };

const unasked = (): never => {
  throw new Error("not asked for");
};

test("a reset floor makes its document due again", async () => {
  const directory = tempDir();
  mkdirSync(join(directory, "s/desired"), { recursive: true });
  const documents = await DesiredDocuments.load(hostFiles(directory), "/s");
  const key = await signingKey();
  const trust = { iss: ISS, uid: UID, keys: new Map([[key.kid, key.publicKey]]) };
  await documents.accept("node", await signDocument(key, "node", 4, nodeDocument()), trust, 1);
  const retried: string[] = [];
  const provider = localProvider({
    report: { status: unasked, health: unasked, why: unasked },
    settings: { proxies: { noProxy: [] } },
    signals: agentSignals(),
    memory: rootLogger({ level: "silent", destination: { write: () => undefined } }).memory,
    reader: hostReader(),
    dispatcher: rig([]).dispatcher,
    upgrades: {
      ask: () => Promise.reject(new Error("no upgrade")),
      refresh: () => Promise.resolve(),
    },
    containers: { compute: () => new FakeCompute(), audit: () => undefined },
    streams: { prepare: () => Promise.reject(new Error("nothing is opened")) },
    documents,
    applying: idleApplying(documents, directory),
    overlay: {
      status: () => ({ state: "off", since: 0 }),
      view: NO_VIEW,
      counters: () => Promise.resolve(undefined),
      mesh: () => Promise.resolve(undefined),
    },
    domain: () => undefined,
    sync: { retry: (name) => void retried.push(name) },
    networkView: { report: unasked, routeTo: unasked },
    controlPlane: { activate: unasked, register: unasked },
    reset: () => Promise.reject(new Error("not asked for")),
  });
  expect(await provider.resetFloor("node")).toEqual({ name: "node", from: 4, to: 0 });
  expect(retried).toEqual(["node"]);
});

describe("connectors and services", () => {
  const config: Config = {
    connectors: { version: 2, items: { c1: { node: "local", service: "web", protocol: "tcp", port: 8080 } } },
    services: { version: 2, items: { s1: { name: "web", protocol: "tcp", host: "127.0.0.1", port: 80 } } },
  };

  async function provided(counters: (signal: AbortSignal) => Promise<OverlayCounters | undefined>) {
    const directory = tempDir();
    mkdirSync(join(directory, "s/desired"), { recursive: true });
    const documents = await DesiredDocuments.load(hostFiles(directory), "/s");
    const applying = idleApplying(documents, directory);
    return localProvider({
      report: { status: unasked, health: unasked, why: unasked },
      settings: { proxies: { noProxy: [] } },
      signals: agentSignals(),
      memory: rootLogger({ level: "silent", destination: { write: () => undefined } }).memory,
      reader: hostReader(),
      dispatcher: rig([]).dispatcher,
      upgrades: {
        ask: () => Promise.reject(new Error("no upgrade")),
        refresh: () => Promise.resolve(),
      },
      containers: { compute: () => new FakeCompute(), audit: () => undefined },
      streams: { prepare: () => Promise.reject(new Error("nothing is opened")) },
      documents,
      applying: Object.assign(applying, { config: () => config }),
      overlay: {
        status: () => ({ state: "up", since: 1, pid: 7 }),
        view: NO_VIEW,
        counters,
        mesh: () => Promise.resolve(undefined),
      },
      domain: () => undefined,
      sync: { retry: () => undefined },
      networkView: { report: unasked, routeTo: unasked },
      controlPlane: { activate: unasked, register: unasked },
      reset: () => Promise.reject(new Error("not asked for")),
    });
  }

  test("are those applied, also when the overlay exits during the request", async () => {
    const provider = await provided(() => Promise.reject(new Error("it went")));
    const { signal } = new AbortController();
    expect(await provider.connectors(signal)).toMatchObject({
      overlay: { state: "up", pid: 7, reason: "it does not answer" },
      connectors: [{ id: "c1", state: "waiting" }],
    });
    expect(await provider.services(signal)).toMatchObject({ services: [{ name: "web", connectors: ["c1"] }] });
  });

  test("are not waited for when the caller leaves", async () => {
    const hanging = (signal: AbortSignal) =>
      new Promise<undefined>((_resolve, reject) => {
        signal.addEventListener("abort", () => reject(new Error("aborted")), { once: true });
      });
    const provider = await provided(hanging);
    const caller = new AbortController();
    const requested = provider.connectors(caller.signal);
    caller.abort();
    expect((await requested).overlay.reason).toBe("it does not answer");
  });
});

describe("the output of a trigger for a slow reader", () => {
  const LINES = 5000;

  function talkative() {
    let output = 0;
    let isOver = false;
    const talk = stream("talk", async ({ emit, signal }) => {
      try {
        for (; output < LINES && !signal.aborted; output += 1) await emit({ kind: "json", data: { printed: output } });
      } finally {
        isOver = true;
      }
      return { exitCode: 0 };
    });
    return { dispatcher: rig([talk]).dispatcher, output: () => output, isOver: () => isOver };
  }

  test("waits without work, and arrives complete", async () => {
    const { dispatcher, output } = talkative();
    const lines = runLocally(dispatcher, "talk", {}, new AbortController().signal);
    await lines.next();
    await untilHolds(() => expect(output()).toBeGreaterThan(500));
    // A busy loop would keep calling this.
    const immediate = vi.spyOn(globalThis, "setImmediate");
    await someTurns();
    expect(immediate).not.toHaveBeenCalled();
    immediate.mockRestore();
    expect(output()).toBeLessThan(LINES);
    let count = 1;
    for await (const line of lines) count += line.kind === "progress" ? 1 : 0;
    expect(count).toBe(LINES);
  });

  test("ends with the reader", async () => {
    const { dispatcher, output, isOver } = talkative();
    const lines = runLocally(dispatcher, "talk", {}, new AbortController().signal);
    await lines.next();
    await untilHolds(() => expect(output()).toBeGreaterThan(500));
    await lines.return(undefined);
    await untilHolds(() => expect(isOver()).toBe(true));
    await dispatcher.close();
  });
});
