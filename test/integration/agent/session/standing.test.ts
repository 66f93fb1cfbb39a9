import { cpSync, rmSync, writeFileSync } from "node:fs";
import { createServer } from "node:net";
import { join } from "node:path";
import { expect, onTestFinished, test } from "vitest";
import { registerOffline, standingAsker } from "../../../../src/agent/offline/offline.ts";
import { identityFiles } from "../../../../src/agent/identity/identity.ts";
import { keyStore } from "../../../../src/controller/channel/keys/key-store.ts";
import type { Controller } from "../../../../src/controller/controller.ts";
import { systemClock } from "../../../../src/host/clock.ts";
import { hostDialler } from "../../../../src/host/net/dial.ts";
import { hostFiles } from "../../../../src/host/files/files.ts";
import { systemResolve } from "../../../../src/host/net/system-resolve.ts";
import { freePort } from "../../../support/free-port.ts";
import { runController } from "../../../support/control-plane/running-controller.ts";
import { tempDir } from "../../../support/temp-dir.ts";

const { signal } = new AbortController();

interface Rig {
  readonly stateDir: string;
  readonly uid: string;
  readonly ask: (limit?: { readonly signal: AbortSignal; readonly timeoutMs: number }) => Promise<string>;
}

/** A registered node without an agent. */
async function aNode(controller: Controller): Promise<Rig> {
  const stateDir = tempDir();
  const license = await controller.licenses.issue({ name: "edge", type: "Node", user: "test" });
  const { uid, session } = await registerOffline(stateDir, license, signal);
  const registration = await identityFiles(hostFiles(), stateDir).registration.load();
  if (registration.is !== "good") throw new Error("it is not registered");
  const { spki } = registration.value.controlPlane.keys;
  const dialler = hostDialler(systemClock(), { noProxy: [] }, systemResolve());
  const ask: Rig["ask"] = (limit = { signal, timeoutMs: 10_000 }) =>
    standingAsker(stateDir)(dialler, { session, pins: spki }, limit);
  return { stateDir, uid, ask };
}

/** A controller that can be stopped and restarted at the same address. */
async function aController(more: { readonly tls?: "self" } = {}) {
  const options = { dataDir: tempDir(), listen: `127.0.0.1:${await freePort()}`, ...more };
  return { dataDir: options.dataDir, start: () => runController(options) };
}

test.each(["http", "https"] as const)("an acceptable node learns it over %s, and leaves no trace", async (scheme) => {
  const { start } = await aController(scheme === "https" ? { tls: "self" } : {});
  const controller = await start();
  const { uid, stateDir, ask } = await aNode(controller);
  const before = await controller.nodes.get(uid);
  const events = async (): Promise<number> =>
    (await controller.events.find({ sort: { by: "timestamp", order: "asc" }, limit: 100, offset: 0 })).items.length;
  const toldBefore = await events();
  expect(await ask()).toBe("admitting");
  expect(await ask()).toBe("admitting");
  expect(await controller.nodes.get(uid)).toEqual(before);
  expect(await events()).toBe(toldBefore);
  expect((await identityFiles(hostFiles(), stateDir).counter.load()).is).toBe("absent");
});

test("a control plane from before the registration refuses the node, until restored", async () => {
  const { dataDir, start } = await aController();
  await (await start()).close();
  const [older, newer] = [tempDir(), tempDir()];
  cpSync(dataDir, older, { recursive: true });
  const restore = (from: string): void => {
    rmSync(dataDir, { recursive: true });
    cpSync(from, dataDir, { recursive: true });
  };
  const first = await start();
  const { ask } = await aNode(first);
  await first.close();
  expect(await ask()).toBe("unreached");
  cpSync(dataDir, newer, { recursive: true });
  restore(older);
  const second = await start();
  expect(await ask()).toBe("refusing");
  await second.close();
  restore(newer);
  await start();
  expect(await ask()).toBe("admitting");
});

test("refuses a deleted node", async () => {
  const controller = await runController();
  const { uid, ask } = await aNode(controller);
  await controller.nodes.delete(uid, "test");
  expect(await ask()).toBe("refusing");
});

test("accepts an answer with unknown keys only over a known TLS key", async () => {
  for (const [tls, comes] of [
    [{}, "refusing"],
    [{ tls: "self" }, "admitting"],
  ] as const) {
    const { dataDir, start } = await aController(tls);
    const controller = await start();
    const { ask } = await aNode(controller);
    await controller.close();
    rmSync(join(dataDir, "keys/signing.jwk"));
    await keyStore(hostFiles(), join(dataDir, "keys")).create("root-next");
    await start();
    expect(await ask()).toBe(comes);
  }
});

test("without a readable identity, nothing contradicts the node", async () => {
  const { start } = await aController();
  const controller = await start();
  const { stateDir, ask } = await aNode(controller);
  rmSync(join(stateDir, "identity/keys.json.previous"), { force: true });
  writeFileSync(join(stateDir, "identity/keys.json"), "{damaged");
  expect(await ask()).toBe("admitting");
  await controller.close();
  expect(await ask()).toBe("unreached");
});

test("a peer that accepts and stays silent is unreachable", async () => {
  const { start } = await aController();
  const controller = await start();
  const { ask } = await aNode(controller);
  const port = Number(new URL(controller.url).port);
  await controller.close();
  const silent = createServer((socket) => void socket.on("error", () => undefined));
  await new Promise<void>((resolve) => silent.listen(port, "127.0.0.1", resolve));
  onTestFinished(() => void silent.close());
  const over = new AbortController();
  silent.once("connection", () => setImmediate(() => over.abort(new Error("long enough"))));
  expect(await ask({ signal: over.signal, timeoutMs: 60_000 })).toBe("unreached");
  expect(await ask({ signal: AbortSignal.abort(new Error("over")), timeoutMs: 60_000 })).toBe("unreached");
});
