import { spawn, type ChildProcess } from "node:child_process";
import { once } from "node:events";
import { mkdirSync, statSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { expect, onTestFinished, test } from "vitest";
import { lockRunDirectory } from "../../../../src/host/process/run-lock.ts";
import { tempDir } from "../../../support/temp-dir.ts";

const SOURCE = JSON.stringify(new URL("../../../../src/host/process/run-lock.ts", import.meta.url).href);

async function holder(runDir: string): Promise<ChildProcess> {
  const text = `const { lockRunDirectory } = await import(${SOURCE});
    // A garbage-collected lock excludes nobody.
    globalThis.lock = lockRunDirectory(${JSON.stringify(runDir)}, "agent");
    console.log("held");
    setInterval(() => undefined, 1000);`;
  const child = spawn(process.execPath, ["--input-type=module", "-e", text], { stdio: ["ignore", "pipe", "inherit"] });
  onTestFinished(() => void child.kill("SIGKILL"));
  await once(child.stdout, "data");
  return child;
}

const inUse = expect.objectContaining({ name: "HostError", code: "socket-in-use" }) as Error;

test("one process holds a run directory until it releases it", () => {
  const dir = tempDir();
  const lock = lockRunDirectory(dir, "agent");
  expect(() => lockRunDirectory(dir, "agent")).toThrow(inUse);
  lockRunDirectory(dir, "other").release();
  lock.release();
  lockRunDirectory(dir, "agent").release();
  expect(statSync(join(dir, "agent.lock")).size).toBe(0);
});

test("another process is excluded until the holder dies", async () => {
  const dir = tempDir();
  const child = await holder(dir);
  expect(() => lockRunDirectory(dir, "agent")).toThrow(inUse);
  child.kill("SIGKILL");
  await once(child, "exit");
  lockRunDirectory(dir, "agent").release();
});

test("a lock file without a lock excludes nobody", () => {
  const dir = tempDir();
  mkdirSync(join(dir, "agent.lock"));
  lockRunDirectory(dir, "agent").release();
  writeFileSync(join(dir, "other.lock"), "x".repeat(4096));
  lockRunDirectory(dir, "other").release();
  lockRunDirectory(join(dir, "nowhere"), "agent").release();
});
