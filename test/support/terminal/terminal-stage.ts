import { dataStoreSettings } from "../../../src/agent/settings.ts";
import { join } from "node:path";
import { pino } from "pino";
import { onTestFinished } from "vitest";
import { startAgent } from "../../../src/agent/wiring/agent.ts";
import type { Agent } from "../../../src/agent/wiring/options.ts";
import type { Controller } from "../../../src/controller/controller.ts";
import { systemClock } from "../../../src/host/clock.ts";
import { hostFiles } from "../../../src/host/files/files.ts";
import { rootLogger } from "../../../src/host/log.ts";
import { hostReader } from "../../../src/host/reader.ts";
import { peekClaims } from "../../../src/protocol/channel/jws.ts";
import { ask, adminRequest } from "../../../src/cli/frame/client.ts";
import { NodeIdentity } from "../../../src/protocol/documents/claims.ts";
import { readFileSync } from "node:fs";
import { PtyCompute } from "../containers/pty-compute.ts";
import { runController } from "../control-plane/running-controller.ts";
import { tempDir } from "../temp-dir.ts";
import { TerminalClient } from "./terminal-client.ts";
import { waitFor } from "../wait-for.ts";

/** A controller and a node, both in this process, with containers that are programs of this machine. */
export interface TerminalStage {
  readonly controller: Controller;
  readonly agent: Agent;
  readonly compute: PtyCompute;
  readonly uid: string;
  readonly runDir: string;
  readonly key: string;
  /** Opens a terminal as the operator, or with another key. */
  open(query?: string, key?: string): TerminalClient;
  path(query?: string): string;
}

/** Starts both; they end with the test, or by `onFinished`. Terminals end with the test that opens them. */
export async function startTerminalStage(
  onFinished: (end: () => void | Promise<void>) => void = onTestFinished,
): Promise<TerminalStage> {
  const dir = tempDir(onFinished);
  const controller = await runController({ dataDir: join(dir, "controller") }, onFinished);
  const compute = new PtyCompute();
  const stateDir = join(dir, "state");
  const runDir = join(dir, "run");
  const { memory } = rootLogger({ level: "error", destination: { write: () => undefined } });
  const started = await startAgent({
    settings: {
      stateDir,
      runDir,
      logLevel: "error",
      proxies: { noProxy: [] },
      unit: undefined,
      profile: "appliance",
      overlay: { stateDir: join(stateDir, "overlay"), runDir },
      speedTestUrl: undefined,
      repositoryUrl: undefined,
      engineSocket: undefined,
      containers: { allowPrivileged: false, allowBinds: [], allowCapabilities: [] },
      dataStore: dataStoreSettings(),
      upgrade: { manifest: undefined, versionsDir: "/nowhere", packageDir: "/nowhere" },
      supervision: { notifySocket: undefined, watchdogMs: undefined },
    },
    clock: systemClock(),
    files: hostFiles(),
    reader: hostReader(),
    log: pino({ level: "silent" }),
    memory,
    random: Math.random,
    compute,
  });
  let closing: Promise<void> | undefined;
  const agent = { ...started, close: () => (closing ??= started.close()) };
  onFinished(() => agent.close());
  const license = await controller.licenses.issue({ name: "edge", type: "Node", user: "test" });
  const { jti: uid } = peekClaims("holdfast-license+jwt", license);
  const call = {
    settings: { runDir, stateDir, isJson: false, timeoutMs: 30_000, given: {} },
    clock: systemClock(),
    signal: new AbortController().signal,
  };
  await ask(call, adminRequest("/v1/register", { license }), NodeIdentity);
  await waitFor("the node to be online", async () => (await controller.nodes.get(uid))?.isOnline);
  const key = readFileSync(controller.adminKeyPath, "utf8").trim();
  const path = (query = "container=shell"): string => `/node/${uid}/trigger/container-exec?${query}`;
  const open = (query?: string, by = key): TerminalClient => {
    const client = new TerminalClient(controller.url, path(query), by);
    onTestFinished(() => client.socket.terminate());
    return client;
  };
  return { controller, agent, compute, uid, runDir, key, open, path };
}
