import { execFileSync } from "node:child_process";
import { randomBytes } from "node:crypto";
import { mkdirSync, readdirSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { onTestFinished } from "vitest";
import { statusWhere } from "../stage.ts";
import { tempDir } from "../temp-dir.ts";
import {
  freePort,
  registerNode,
  startAgent,
  startController,
  type AgentProgram,
  type ControllerProgram,
  type ProgramOptions,
} from "./programs.ts";
import { UNDER_UNITS } from "./real-units.ts";

/** Mounts a disk on a directory, until the test ends, or by `onFinished`. */
export function mountDisk(path: string, size: string, onFinished: (end: () => void) => void = onTestFinished): void {
  mkdirSync(path, { recursive: true });
  execFileSync("mount", ["-t", "tmpfs", "-o", `size=${size},mode=700`, "holdfast-test", path]);
  onFinished(() => void execFileSync("umount", ["-l", path]));
}

/** Fills the disk of a directory; returns what frees it. */
export function fill(directory: string): () => void {
  const path = join(directory, "filling");
  for (let size = 1 << 20; size > 0; size >>= 1) {
    try {
      for (;;) writeFileSync(path, Buffer.alloc(size), { flag: "a" });
    } catch {
      // A smaller piece may still fit.
    }
  }
  return () => rmSync(path);
}

export async function setTag(controller: ControllerProgram, uid: string, value: string): Promise<void> {
  const { status, body } = await controller.call("PUT", `/node/${uid}/tag/mark`, { value });
  if (status !== 200) throw new Error(`${status} ${JSON.stringify(body)}`);
}

export const tagged = (agent: AgentProgram, value: string) =>
  statusWhere(agent, `the tag is ${value}`, ({ tags }) => tags["mark"] === value);

/** A controller and a node whose state is on a disk of its own; its tag `mark` is `first`. */
export async function onDisk(size: string, options: Pick<ProgramOptions, "within" | "onFinished"> = {}) {
  const { onFinished = onTestFinished } = options;
  const dir = tempDir(onFinished);
  const port = await freePort();
  const controller = await startController(dir, port, [], { onFinished });
  const home = join(dir, "node");
  const state = join(home, "state");
  mountDisk(state, size, onFinished);
  const agent = await startAgent(home, options);
  const uid = await registerNode(controller, agent, "node");
  await setTag(controller, uid, "first");
  await tagged(agent, "first");
  return { dir, port, controller, home, agent, uid, state };
}

/** Damages to the content of a file, by name. */
export const DAMAGES: readonly (readonly [string, (content: Buffer) => Buffer])[] = [
  ["cut short", (content) => content.subarray(0, content.length >> 1)],
  ["zeroed", (content) => Buffer.alloc(content.length)],
  ["random", (content) => randomBytes(content.length)],
];

/** Every file that the node stores, without process ids, locks and SQLite's own files. */
export function stateFiles(state: string): readonly string[] {
  const names = readdirSync(state, { recursive: true, encoding: "utf8" }).sort();
  // An overlay that is a unit always runs, and does not restart with its agent.
  const own = names.filter((name) => !UNDER_UNITS || !name.startsWith("overlay/"));
  return own.filter((name) => /\.json(\.previous)?$|^state\.db$/.test(name));
}
