import { execFileSync } from "node:child_process";
import { mkdirSync, readdirSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { pino } from "pino";
import { describe, expect, it } from "vitest";
import { completeReset, type ResetOptions } from "../../../../src/agent/wiring/reset.ts";
import { orderReset, readResetOrder, withLeftNetwork } from "../../../../src/agent/reset/order.ts";
import { resetter, type ResetterOptions } from "../../../../src/agent/reset/resetter.ts";
import { readSettings } from "../../../../src/agent/settings.ts";
import { DesiredDocuments } from "../../../../src/agent/shadow/desired.ts";
import type { EventInput } from "../../../../src/agent/telemetry/events.ts";
import { systemClock } from "../../../../src/host/clock.ts";
import { hostFiles } from "../../../../src/host/files/files.ts";
import { hostReader } from "../../../../src/host/reader.ts";
import { requireSettled } from "../../../../src/host/files/state-directory.ts";
import { someDirectories, type Directories } from "../../../support/local-agent.ts";
import { ISS, nodeDocument, signDocument, signingKey, UID } from "../../../support/control-plane/signing.ts";

const NETWORK = { interfaces: [{ nic: "eth0", dhcp: true, isWAN: true }] };
const files = hostFiles();

/** A node with a document, a data store and all other files of an agent. */
async function aNode(dirs: Directories): Promise<ResetOptions> {
  const { stateDir, runDir, root } = dirs;
  for (const name of ["identity", "desired", "reported", "data-store/volumes/db", "overlay"])
    mkdirSync(join(stateDir, name), { recursive: true });
  for (const name of ["identity/keys.json", "data-store/volumes/db/file", "overlay/identity.json"])
    writeFileSync(join(stateDir, name), "{}");
  const documents = await DesiredDocuments.load(files, stateDir);
  const key = await signingKey();
  const trust = { iss: ISS, uid: UID, keys: new Map([[key.kid, key.publicKey]]) };
  const body = { ...nodeDocument(), type: "Node", config: { network: NETWORK } };
  await documents.accept("node", await signDocument(key, "node", 4, body), trust, 1);
  // Without containers, so that no engine of this machine is called.
  const config = join(root, "agent.json");
  writeFileSync(config, JSON.stringify({ engineSocket: join(root, "none.sock") }));
  const settings = await readSettings(["--state", stateDir, "--run", runDir, "--config", config], files);
  return { settings, files, clock: systemClock(), reader: hostReader(), log: pino({ level: "silent" }) };
}

const order = (factory: boolean) => ({ factory, at: 1 });

describe("a requested reset", () => {
  it("deletes identity and configuration, and leaves the data and the network", async () => {
    await using dirs = await someDirectories();
    const options = await aNode(dirs);
    const { stateDir } = dirs;
    await orderReset(files, stateDir, order(false));
    const done = await completeReset(options);
    expect(done).toMatchObject({ factory: false, overlayEnded: false, left: [] });
    expect(readdirSync(stateDir).sort()).toEqual(["data-store", "local-network.json"]);
    expect(readdirSync(join(stateDir, "data-store/volumes/db"))).toEqual(["file"]);
    expect((await withLeftNetwork(options.settings, files)).network).toEqual(NETWORK);
    expect(await completeReset(options)).toBeUndefined();
  });

  it("keeps the network of the settings if they have one", async () => {
    await using dirs = await someDirectories();
    const options = await aNode(dirs);
    await orderReset(files, dirs.stateDir, order(false));
    await completeReset(options);
    const network = { interfaces: [] };
    expect((await withLeftNetwork({ ...options.settings, network }, files)).network).toBe(network);
  });

  it("deletes everything as a factory reset", async () => {
    await using dirs = await someDirectories();
    const options = await aNode(dirs);
    await orderReset(files, dirs.stateDir, order(true));
    expect(await completeReset(options)).toMatchObject({ factory: true, left: [] });
    expect(readdirSync(dirs.stateDir)).toEqual([]);
    expect((await withLeftNetwork(options.settings, files)).network).toBeUndefined();
  });

  const cuts: readonly string[][] = [
    ["overlay"],
    ["overlay", "desired"],
    ["overlay", "desired", "reported", "state.db"],
  ];
  it.each(cuts.map((gone) => ({ gone })))("is finished after an interruption behind $gone", async ({ gone }) => {
    await using dirs = await someDirectories();
    const options = await aNode(dirs);
    await orderReset(files, dirs.stateDir, order(false));
    for (const name of gone) rmSync(join(dirs.stateDir, name), { recursive: true, force: true });
    await completeReset(options);
    expect(readdirSync(dirs.stateDir)).toContain("data-store");
    expect(readdirSync(dirs.stateDir)).not.toContain("identity");
    expect(await readResetOrder(files, dirs.stateDir)).toBeUndefined();
  });

  it("that is unreadable is a plain one, and a factory reset stays one", async () => {
    await using dirs = await someDirectories();
    mkdirSync(dirs.stateDir);
    expect(await readResetOrder(files, dirs.stateDir)).toBeUndefined();
    writeFileSync(join(dirs.stateDir, "reset.json"), "half of it");
    expect(await readResetOrder(files, dirs.stateDir)).toEqual({ factory: false, at: 0 });
    await orderReset(files, dirs.stateDir, order(true));
    await orderReset(files, dirs.stateDir, order(false));
    expect(await readResetOrder(files, dirs.stateDir)).toMatchObject({ factory: true });
  });

  it.each([
    ["directory", (path: string) => mkdirSync(path)],
    ["pipe", (path: string) => execFileSync("mkfifo", [path])],
  ] as const)("is never a %s", async (_, make) => {
    await using dirs = await someDirectories();
    const options = await aNode(dirs);
    make(join(dirs.stateDir, "reset.json"));
    expect(await completeReset(options)).toBeUndefined();
    expect(readdirSync(dirs.stateDir)).toContain("identity");
  });
});

describe("a reset of a running agent", () => {
  function ordering(dirs: Directories, changes: Partial<ResetterOptions> = {}) {
    const events: EventInput[] = [];
    let begun = 0;
    mkdirSync(join(dirs.stateDir, "desired"), { recursive: true });
    const reset = resetter({
      settings: dirs,
      clock: systemClock(),
      files,
      startedAt: 7,
      isPersistent: true,
      events: { notice: (event) => void events.push(event) },
      pusher: { sent: () => Promise.resolve(true) },
      isOnline: () => true,
      upgrades: { isAtWork: () => Promise.resolve(false) },
      onReset: () => {
        begun += 1;
      },
      ...changes,
    });
    return { reset, events, begun: () => begun };
  }

  it("is on disk and reported before the answer, and runs after that", async () => {
    await using dirs = await someDirectories();
    const { reset, events, begun } = ordering(dirs, {
      pusher: {
        sent: async () => {
          expect(await readResetOrder(files, dirs.stateDir)).toMatchObject({ factory: true });
          return true;
        },
      },
    });
    const { answer, begin } = await reset({ factory: true });
    expect(answer).toEqual({ factory: true, startedAt: 7, stateDir: dirs.stateDir, isReported: true });
    expect(events).toMatchObject([{ eventType: "Deregister", level: "INFO", details: { factory: true } }]);
    expect(begun()).toBe(0);
    begin();
    expect(begun()).toBe(1);
  });

  it("does not wait without a session", async () => {
    await using dirs = await someDirectories();
    const { reset } = ordering(dirs, {
      isOnline: () => false,
      pusher: { sent: () => Promise.reject(new Error("asked")) },
    });
    expect((await reset({ factory: false })).answer.isReported).toBe(false);
  });

  it.each([
    ["busy", { upgrades: { isAtWork: () => Promise.resolve(true) } }],
    ["storage-unavailable", { isPersistent: false }],
  ] as const)("is refused as %s, and nothing is on disk", async (code, changes) => {
    await using dirs = await someDirectories();
    const { reset, events } = ordering(dirs, changes);
    await expect(reset({ factory: false })).rejects.toMatchObject({ code });
    expect(await readResetOrder(files, dirs.stateDir)).toBeUndefined();
    expect(events).toEqual([]);
  });

  it("is refused while a network change is pending", async () => {
    await using dirs = await someDirectories();
    const { reset } = ordering(dirs);
    writeFileSync(join(dirs.stateDir, "desired/checkpoint.json"), "{}");
    await expect(reset({ factory: false })).rejects.toMatchObject({ code: "busy" });
    await expect(requireSettled(files, dirs.stateDir)).rejects.toMatchObject({ code: "busy" });
  });
});
