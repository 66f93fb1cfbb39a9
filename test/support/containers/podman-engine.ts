import { spawn } from "node:child_process";
import { randomBytes } from "node:crypto";
import { closeSync, existsSync, mkdtempSync, openSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { callEngine, startSupervisor, type TestEngine } from "./docker-engine.ts";
import { waitFor } from "../wait-for.ts";

/** A real Podman with its Docker-compatible socket. */
export interface TestPodman extends Pick<TestEngine, "socketPath" | "call" | "stop"> {
  /** `CgroupParent` of containers, so that they end with the test. */
  readonly cgroupParent: string;
}

/** Starts podman-system-service(1) as `startEngine` starts dockerd(8), in a network namespace of its own. Needs root. */
export async function startPodman(): Promise<TestPodman> {
  const dir = mkdtempSync(join(tmpdir(), "hf-podman-"));
  const cgroup = `hf-engine-${randomBytes(4).toString("hex")}`;
  const supervisor = await startSupervisor(dir, cgroup, "own");
  const socketPath = join(dir, "podman.sock");
  const log = openSync(join(dir, "log"), "a");
  const inside = ["-t", String(supervisor.pid), "-m", "-n", "podman"];
  const places = [
    `--root=${join(dir, "x", "root")}`,
    `--runroot=${join(dir, "x", "run")}`,
    `--tmpdir=${join(dir, "x", "tmp")}`,
  ];
  const service = ["system", "service", "--time=0", `unix://${socketPath}`];
  const args = [...inside, ...places, "--cgroup-manager=cgroupfs", "--events-backend=file", ...service];
  const child = spawn("nsenter", args, { stdio: ["ignore", log, log], detached: true });
  closeSync(log);
  const gone = new Promise<void>((resolve) => child.once("exit", () => resolve()));
  const call: TestEngine["call"] = (method, path, body, headers) => callEngine(socketPath, method, path, body, headers);
  const stop = async (): Promise<void> => {
    await supervisor.end();
    await gone;
  };
  try {
    await waitFor("Podman answers", async () => existsSync(socketPath) && (await call("GET", "/_ping")).status === 200);
  } catch (error) {
    await stop();
    throw error;
  }
  return { socketPath, call, cgroupParent: `/${cgroup}`, stop };
}
