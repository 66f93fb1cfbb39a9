import { dataStoreSettings } from "../../../../src/agent/settings.ts";
import { existsSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { pino } from "pino";
import { expect, test } from "vitest";
import { startAgent } from "../../../../src/agent/wiring/agent.ts";
import type { Agent } from "../../../../src/agent/wiring/options.ts";
import { systemClock } from "../../../../src/host/clock.ts";
import { hostFiles } from "../../../../src/host/files/files.ts";
import { rootLogger } from "../../../../src/host/log.ts";
import { hostReader } from "../../../../src/host/reader.ts";
import { startLocalAgent } from "../../../support/local-agent.ts";
import { tempDir } from "../../../support/temp-dir.ts";

test("an agent without a usable run directory leaves no state behind", async () => {
  const root = tempDir();
  const stateDir = join(root, "state");
  writeFileSync(join(root, "file"), "");
  await expect(start(stateDir, join(root, "file", "run"))).rejects.toMatchObject({ code: "socket-failed" });
  expect(existsSync(stateDir)).toBe(false);
});

test("an agent whose run directory is in use leaves no state behind", async () => {
  await using other = await startLocalAgent();
  const stateDir = join(tempDir(), "state");
  await expect(start(stateDir, other.runDir)).rejects.toMatchObject({ code: "socket-in-use" });
  expect(existsSync(stateDir)).toBe(false);
});

function start(stateDir: string, runDir: string): Promise<Agent> {
  const { memory } = rootLogger({ level: "error", destination: { write: () => undefined } });
  return startAgent({
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
  });
}
