import { mkdirSync, readdirSync, readFileSync, rmSync, statSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { expect, test } from "vitest";
import { identityFiles } from "../../../src/agent/identity/identity.ts";
import { openState } from "../../../src/agent/state.ts";
import { hostFiles } from "../../../src/host/files/files.ts";
import {
  expectTidy,
  journallingTrigger,
  registering,
  savingDocument,
  type Operation,
} from "../../support/kills/durable-operations.ts";
import { afterPowerCut, fileOps, type Survival, type Tree } from "../../support/kills/power-cut.ts";
import { runController } from "../../support/control-plane/running-controller.ts";
import { sampleOf } from "../../support/sample.ts";
import { recordCalls, type Launch } from "../../support/kills/strace.ts";
import type { Call } from "../../support/kills/strace-text.ts";
import { tempDir } from "../../support/temp-dir.ts";

const LIMIT_MS = 900_000;
const SURVIVALS: readonly Survival[] = ["nothing", "all", "torn", "names", "data", 1, 2, 3];
const CUTS = 10;

/** Cuts the power after each operation on the disk and checks every possible state of the disk. */
async function cutEverywhere<L extends Launch>(
  label: string,
  operation: Operation<L>,
  check: (launch: L, cut: number, calls: readonly Call[], root: string) => Promise<void> = (launch) =>
    operation.check(launch),
): Promise<void> {
  const whole = await operation.prepare();
  const root = dirname(whole.stateDir);
  const before = readTree(root);
  const calls = await recordCalls(whole);
  const ops = fileOps(calls, root);
  // A trigger's effect stands for the outside world, which no power cut reverts.
  const effectAt = ops.findIndex(({ path, do: kind }) => path === "effect" && kind === "write");
  const cuts = [...sampleOf([...ops.keys()], CUTS, label), ops.length];
  let looked = 0;
  for (const cut of cuts) {
    const seen = new Set<string>();
    for (const survival of SURVIVALS) {
      const tree = new Map(afterPowerCut(before, ops.slice(0, cut), survival));
      tree.delete("effect");
      if (effectAt !== -1 && cut > effectAt) tree.set("effect", Buffer.from("ran\n"));
      const dir = tempDir();
      const key = writeTree(tree, dir);
      if (seen.has(key)) continue;
      seen.add(key);
      looked += 1;
      const launch = operation.moved(whole, dir);
      try {
        if (cut === ops.length) await operation.checkDone(launch);
        await check(launch, cut, calls, root);
      } catch (error) {
        const last = JSON.stringify(ops[cut - 1], (name, value: unknown) => (name === "data" ? "…" : value));
        throw new Error(
          `power cut after ${cut} of ${ops.length}, ${last}; of what was not synced survived: ${survival}`,
          {
            cause: error,
          },
        );
      }
      rmSync(dir, { recursive: true });
    }
  }
  expect(looked).toBeGreaterThan(cuts.length);
}

function readTree(root: string): Tree {
  const names = readdirSync(root, { recursive: true, encoding: "utf8" }).sort();
  return new Map(
    names.map((name) => {
      const path = join(root, name);
      return [name, statSync(path).isDirectory() ? "directory" : readFileSync(path)] as const;
    }),
  );
}

/** Writes a tree to disk and returns a text that is equal for equal trees. */
function writeTree(tree: Tree, root: string): string {
  const parts: string[] = [];
  for (const [name, content] of tree) {
    if (content === "directory") mkdirSync(join(root, name), { recursive: true });
    else writeFileSync(join(root, name), content, { mode: 0o600 });
    parts.push(`${name}\n${content === "directory" ? "" : content.toString("base64")}`);
  }
  return parts.join("\n");
}

test(
  "a registration, cut anywhere, has its keys on disk before it uses them",
  async () => {
    const operation = registering(await runController());
    await cutEverywhere("registration", operation, async (launch, cut, calls, root) => {
      const requested = calls.findIndex(({ name, args }) => name === "write" && args.includes(hex("POST /agent")));
      if (cut > fileOps(calls.slice(0, requested), root).length) return operation.check(launch);
      // Before the first request there may be keys or not; existing ones must be complete.
      const state = await openState(hostFiles(), launch.stateDir);
      const { isPersistent, damagedCopy, isLogDamaged } = state.database;
      expect([isPersistent, damagedCopy, isLogDamaged]).toEqual([true, undefined, false]);
      await state.close();
      const { keys, registration } = identityFiles(hostFiles(), launch.stateDir);
      expect(["absent", "good"]).toContain((await keys.load()).is);
      expect((await registration.load()).is).toBe("absent");
      expectTidy(launch.stateDir);
    });
  },
  LIMIT_MS,
);

test(
  "a document, cut anywhere, is the old one or the new one",
  async () => cutEverywhere("document", await savingDocument()),
  LIMIT_MS,
);

test(
  "a trigger, cut anywhere, runs at most once and is always answered",
  async () => cutEverywhere("trigger", await journallingTrigger()),
  LIMIT_MS,
);

function hex(text: string): string {
  return Buffer.from(text).toString("hex").replaceAll(/../g, "\\x$&");
}
