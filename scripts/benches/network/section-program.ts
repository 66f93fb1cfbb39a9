// The section `network` over the real machine, in the network namespace this program is started in. A question is a section as JSON, or
// `back` for what was there before the last one; the answer says what that took.
import { mkdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { EMPTY_RECORD, type NetworkRecord } from "../../../src/host/network/state/record.ts";
import { networkSection } from "../../../src/agent/sections/network/section.ts";
import type { NetworkUndo } from "../../../src/host/network/restore.ts";
import { preferSmallMemory, preferSpeed } from "../../../src/host/process/engine-flags.ts";
import { systemClock } from "../../../src/host/clock.ts";
import { hostExec, type Exec } from "../../../src/host/process/exec.ts";
import { hostFiles } from "../../../src/host/files/files.ts";
import type { Change } from "../../../src/host/network/change.ts";
import { networkDriver } from "../../../src/host/network/driver.ts";
import { hostReader } from "../../../src/host/reader.ts";

// As the agent is, which compiles late and keeps little.
preferSpeed();
preferSmallMemory();
const dir = process.argv[2] ?? "";
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

/** A section that knows of nothing yet, with what it keeps in that directory. */
async function newSection(stateDir: string) {
  mkdirSync(stateDir, { recursive: true });
  const files = hostFiles();
  const driver = networkDriver({
    exec,
    files,
    reader: hostReader(),
    clock,
    stateDir,
    runDir: stateDir,
    isManaged: false,
  });
  // The tools are tried out once in the life of an agent.
  await driver.features(signal);
  let record: NetworkRecord = EMPTY_RECORD;
  return networkSection({
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
}

let section = await newSection(join(dir, "warm"));
// Beforehand: the kernel is busy for a while with the namespace in which the tools were tried out.
const fresh = await newSection(dir);
let undo: NetworkUndo | undefined;
let isWarm = false;

/** Reads, observes, plans, applies, and looks whether anything is left to do: all that a pass does. */
async function apply(raw: unknown): Promise<object> {
  const before = processes;
  const begun = performance.now();
  const isFirst = isWarm && undo === undefined;
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
  const inForceMs = performance.now() - begun;
  const left = steps.length === 0 ? [] : section.plan(desired, await section.observe(signal, desired));
  const ms = performance.now() - begun;
  // What a person would hand to the same tools the first time.
  if (isFirst)
    changes.forEach((change, index) => {
      if (change.kind === "ip") writeFileSync(join(dir, `by-hand.${index}.ip`), `${change.lines.join("\n")}\n`);
      if (change.kind === "nft" && change.text !== undefined)
        writeFileSync(join(dir, `by-hand.${index}.nft`), change.text);
    });
  return {
    ms,
    inForceMs,
    processes: processes - before,
    steps: steps.length,
    left: left.length,
    rejected: rejected.length,
  };
}

async function back(): Promise<object> {
  const begun = performance.now();
  if (undo === undefined) throw new Error("there is nothing to go back to");
  await section.apply(undo, signal);
  return { ms: performance.now() - begun };
}

/** An agent that is given a large section has read and applied many small ones before; the section itself starts anew after them. */
async function warmUp(): Promise<void> {
  const octets = (index: number): string => `192.168.${index}.0/24`;
  const indices = Array.from({ length: 50 }, (_, index) => index);
  const wan = { nic: "eth0", ip: "192.0.2.2/24", gateway: "192.0.2.1" };
  let first: NetworkUndo | undefined;
  for (let count = 10; count <= 50; count += 10) {
    const some = indices.slice(0, count);
    await apply({
      interfaces: [wan],
      routes: some.map((index) => ({ dest: octets(index), dev: "eth0", via: "192.0.2.3" })),
      rules: some.map((index) => ({
        line: index + 1,
        protocol: "tcp",
        source: octets(index),
        dest: "10.0.0.0/8",
        ports: "22",
        action: "drop",
      })),
      nats: some.map((index) => ({ dest: octets(index), toDest: `172.31.${index}.0/24` })),
    });
    first ??= undo;
  }
  if (first !== undefined) await section.apply(first, signal);
}
await warmUp();
section = fresh;
undo = undefined;
isWarm = true;
for await (const line of createInterface({ input: process.stdin })) {
  console.log(JSON.stringify(line === "back" ? await back() : await apply(JSON.parse(line))));
}
