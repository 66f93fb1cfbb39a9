import { mkdirSync } from "node:fs";
import { join } from "node:path";
import { expect, test } from "vitest";
import type { Seen, WorkView } from "../../../../../src/agent/containers/supervision/seen.ts";
import { beginning } from "../../../../../src/agent/containers/model/standing.ts";
import { openPolicy } from "../../../../../src/agent/wiring/containers/policy.ts";
import { readExec } from "../../../../../src/protocol/sections/exec/read.ts";
import { idOf, itemOf } from "../../../../support/reconcile/model-stage.ts";
import { tempDir } from "../../../../support/temp-dir.ts";

const info = {
  cpus: 2,
  memoryBytes: 4e9,
  architecture: "x86_64",
  cgroupDriver: "cgroupfs",
  cgroupVersion: 2,
  rootDirectory: "/nonexistent",
  storageDriver: "overlay2",
  product: "docker",
} as const;

/** A container of the n-th definition that was created with these binds. */
function work(n: number, is: "running" | "stopped", binds: readonly string[]): WorkView {
  const standing = beginning({ id: `e${n}`, hash: "h", is }, undefined);
  const privileges = JSON.stringify({ privileged: false, capabilities: [], binds });
  const unknown = { row: undefined, wanted: undefined, limits: undefined, container: undefined };
  return { id: idOf(n), standing, since: 0, oomKills: 0, privileges, ...unknown };
}

test.each(["running", "stopped"] as const)(
  "a bind within that of a container whose definition was removed, and that is %s",
  async (is) => {
    const root = tempDir();
    const [outer, inner] = [join(root, "data"), join(root, "data/inner")];
    mkdirSync(inner, { recursive: true });
    const own = join(root, "own");
    const settings = {
      stateDir: own,
      runDir: own,
      overlay: { stateDir: own, runDir: own },
      containers: { allowPrivileged: false, allowBinds: [root], allowCapabilities: [], events: false },
    };
    const policy = openPolicy({ settings, socketPath: () => join(own, "engine.sock") });
    const { config } = readExec({
      commands: [itemOf(2, { mounts: [{ uid: "m", mountType: "bind", source: inner, dest: "/d" }] })],
    });
    const desired = { config, unreadable: new Set<string>(), disabled: new Set<string>() };
    const works: Seen["works"] = new Map([[idOf(1), work(1, is, [outer])]]);
    const found = await policy.forbidden(desired, { works }, info);
    // It could replace the inner one by a link while it runs.
    if (is === "stopped") expect(found.size).toBe(0);
    else expect(found.get(idOf(2))).toContain(`it is in ${outer}, which a container can change`);
  },
);
