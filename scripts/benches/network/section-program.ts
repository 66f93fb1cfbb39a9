// The section `network` over the real machine, in the network namespace this program is started in. A question is a section as JSON, or
// `back` for what was there before the last one; the answer says what that took.
import { mkdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { EMPTY_RECORD, type NetworkRecord } from "../../../src/host/network/record.ts";
import { networkSection } from "../../../src/agent/sections/network/section.ts";
import type { NetworkUndo } from "../../../src/host/network/restore.ts";
import { systemClock } from "../../../src/host/clock.ts";
import { hostExec, type Exec } from "../../../src/host/exec.ts";
import { hostFiles } from "../../../src/host/files.ts";
import type { Change } from "../../../src/host/network/change.ts";
import { networkDriver } from "../../../src/host/network/driver.ts";
import { hostReader } from "../../../src/host/reader.ts";

const dir = process.argv[2] ?? "";
mkdirSync(dir, { recursive: true });
const { signal } = new AbortController();
const clock = systemClock();
const tools = hostExec(clock);
let processes = 0;
const exec: Exec = {
  run(file, args, options) {
    processes += 1;
    return tools.run(file, args, options);
  },
  spawn(file, args, options) {
    processes += 1;
    return tools.spawn(file, args, options);
  },
};
const driver = networkDriver({
  exec,
  files: hostFiles(),
  reader: hostReader(),
  clock,
  stateDir: dir,
  runDir: dir,
  isManaged: false,
});
let record: NetworkRecord = EMPTY_RECORD;
const section = networkSection({
  driver,
  record: {
    load: () => Promise.resolve(record),
    save: (next) => {
      record = next;
      return Promise.resolve();
    },
  },
  carrier: () => undefined,
  context: () => ({ nodeType: "Node", isMember: false }),
  isActiveMember: () => true,
  unsupported: () => undefined,
});
let undo: NetworkUndo | undefined;
let passes = 0;

/** Reads, observes, plans, applies, and looks whether anything is left to do: all that a pass does. */
async function apply(raw: unknown): Promise<object> {
  const before = processes;
  const begun = performance.now();
  const { desired, rejected } = section.parse(raw);
  const actual = await section.observe(signal, desired);
  const steps = section.plan(desired, actual);
  const changes: Change[] = [];
  for (const step of steps) {
    const back = section.undo(step, actual);
    if (back?.kind === "restore") undo = back;
    if ("change" in step) changes.push(step.change);
    await section.apply(step, signal);
  }
  const left = steps.length === 0 ? [] : section.plan(desired, await section.observe(signal, desired));
  const ms = performance.now() - begun;
  passes += 1;
  // What a person would hand to the same tools the first time.
  if (passes === 1)
    changes.forEach((change, index) => {
      if (change.kind === "ip") writeFileSync(join(dir, `by-hand.${index}.ip`), `${change.lines.join("\n")}\n`);
      if (change.kind === "nft" && change.text !== undefined)
        writeFileSync(join(dir, `by-hand.${index}.nft`), change.text);
    });
  return { ms, processes: processes - before, steps: steps.length, left: left.length, rejected: rejected.length };
}

async function back(): Promise<object> {
  const begun = performance.now();
  if (undo === undefined) throw new Error("there is nothing to go back to");
  await section.apply(undo, signal);
  return { ms: performance.now() - begun };
}

// The tools are tried out once in the life of an agent.
await driver.features(signal);
for await (const line of createInterface({ input: process.stdin })) {
  console.log(JSON.stringify(line === "back" ? await back() : await apply(JSON.parse(line))));
}
