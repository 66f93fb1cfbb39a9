import { mkdirSync } from "node:fs";
import { join } from "node:path";
import { describe, expect, test, vi } from "vitest";
import { localProvider, runLocally } from "../../../src/agent/local-provider.ts";
import { DesiredDocuments } from "../../../src/agent/shadow/desired.ts";
import { hostFiles } from "../../../src/host/files.ts";
import type { OverlayView } from "../../../src/host/overlay.ts";
import { hostReader } from "../../../src/host/reader.ts";
import { rootLogger } from "../../../src/host/log.ts";
import { nodeDocument, signDocument, signingKey, ISS, UID } from "../../support/signing.ts";
import { tempDir } from "../../support/temp-dir.ts";
import { idleApplying } from "../../support/idle-applying.ts";
import { rig, stream } from "./triggers/rig.ts";

const NO_VIEW: OverlayView = { services: new Map(), listeners: new Map(), states: new Map(), health: new Map() };

test("a floor that was reset makes its document due again", async () => {
  const directory = tempDir();
  mkdirSync(join(directory, "s/desired"), { recursive: true });
  const documents = await DesiredDocuments.load(hostFiles(directory), "/s");
  const key = await signingKey();
  const trust = { iss: ISS, uid: UID, keys: new Map([[key.kid, key.publicKey]]) };
  await documents.accept("node", await signDocument(key, "node", 4, nodeDocument()), trust, 1);
  const retried: string[] = [];
  const provider = localProvider({
    gather: () => {
      throw new Error("not asked for");
    },
    memory: rootLogger({ level: "silent", destination: { write: () => undefined } }).memory,
    reader: hostReader(),
    dispatcher: rig([]).dispatcher,
    documents,
    applying: idleApplying(documents, directory),
    overlay: { status: () => ({ state: "off", since: 0 }), view: NO_VIEW, counters: () => Promise.resolve(undefined) },
    retry: (name) => void retried.push(name),
    wake: () => undefined,
    register: () => Promise.reject(new Error("not asked for")),
  });
  expect(await provider.resetFloor("node")).toEqual({ name: "node", from: 4, to: 0 });
  expect(retried).toEqual(["node"]);
});

describe("the output of a trigger for a slow reader", () => {
  const LINES = 5000;

  function talkative() {
    let said = 0;
    let isOver = false;
    const talk = stream("talk", async ({ emit, signal }) => {
      try {
        for (; said < LINES && !signal.aborted; said += 1) await emit({ kind: "json", data: { said } });
      } finally {
        isOver = true;
      }
      return { exitCode: 0 };
    });
    return { dispatcher: rig([talk]).dispatcher, said: () => said, isOver: () => isOver };
  }

  test("waits without work, and arrives whole", async () => {
    const { dispatcher, said } = talkative();
    const lines = runLocally(dispatcher, "talk", {}, new AbortController().signal);
    await lines.next();
    await vi.waitFor(() => expect(said()).toBeGreaterThan(500));
    // A loop that looks again at each turn of the event loop would keep making these.
    const immediate = vi.spyOn(globalThis, "setImmediate");
    await new Promise((resolve) => setTimeout(resolve, 100));
    expect(immediate).not.toHaveBeenCalled();
    immediate.mockRestore();
    expect(said()).toBeLessThan(LINES);
    let count = 1;
    for await (const line of lines) count += line.kind === "progress" ? 1 : 0;
    expect(count).toBe(LINES);
  });

  test("ends with the reader", async () => {
    const { dispatcher, said, isOver } = talkative();
    const lines = runLocally(dispatcher, "talk", {}, new AbortController().signal);
    await lines.next();
    await vi.waitFor(() => expect(said()).toBeGreaterThan(500));
    await lines.return(undefined);
    await vi.waitFor(() => expect(isOver()).toBe(true));
    await dispatcher.close();
  });
});
