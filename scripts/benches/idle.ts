import { join } from "node:path";
import type { Bench } from "./bench.ts";
import { activityOf, fingerprint, memoryOf } from "./processes.ts";
import { delay, freePort, registerAgent, start, startAgent, startController } from "./programs.ts";

const MB = 1e6;
/** Milliseconds until the work after a start is done: documents, the first report, the first sample and the numbers reserved for it. */
const SETTLE_MS = 75_000;

/** A registered agent that is online and has nothing to do, against a Node that does nothing. */
export const idle: Bench = {
  area: "idle",
  about: "an idle agent: memory, wake-ups, processor, disk",
  async run({ dir, minutes, say }) {
    const controller = await startController(dir, await freePort());
    const node = join(dir, "node");
    const first = await startAgent(node);
    await registerAgent(controller, node);
    await first.end();
    const agent = await startAgent(node);
    const empty = start(["-e", "setInterval(() => undefined, 2 ** 30)"], join(dir, "empty.log"));
    say(`watching for ${minutes} min, after ${SETTLE_MS / 1000} s to settle`);
    await delay(SETTLE_MS);
    const [before, emptyBefore] = [activityOf(agent.pid), activityOf(empty.pid)];
    const files = fingerprint(join(node, "state"));
    const seconds = minutes * 60;
    await delay(seconds * 1000);
    const [after, emptyAfter] = [activityOf(agent.pid), activityOf(empty.pid)];
    const [memory, emptyMemory] = [memoryOf(agent.pid), memoryOf(empty.pid)];
    const isUnchanged = fingerprint(join(node, "state")) === files;
    const wasOnline = /"online":true/.test(await controller.call("/node"));
    await Promise.all([agent.end(), empty.end(), controller.end()]);
    if (!wasOnline) throw new Error("the agent was not online at the end, so it was not idle");
    const peer = (value: number) => ({ name: "an empty Node", value });
    const hadChild = after.children > 0 || after.endedChildrenFaults > before.endedChildrenFaults;
    return [
      {
        what: "resident memory",
        value: memory.residentBytes / MB,
        unit: "MB",
        peer: peer(emptyMemory.residentBytes / MB),
        bar: { of: "value", most: 80 },
      },
      {
        what: "private dirty memory",
        value: memory.privateDirtyBytes / MB,
        unit: "MB",
        peer: peer(emptyMemory.privateDirtyBytes / MB),
        bar: { of: "value", most: 32 },
      },
      { what: "child processes", value: hadChild ? 1 : 0, unit: "", bar: { of: "value", most: 0 } },
      {
        what: "wake-ups",
        value: (after.wakeUps - before.wakeUps) / seconds,
        unit: "/s",
        peer: peer((emptyAfter.wakeUps - emptyBefore.wakeUps) / seconds),
        bar: { of: "value", most: 2 },
      },
      {
        what: "processor",
        value: (after.cpuMs - before.cpuMs) / seconds / 10,
        unit: "% of a core",
        peer: peer((emptyAfter.cpuMs - emptyBefore.cpuMs) / seconds / 10),
        bar: { of: "value", most: 0.2 },
      },
      {
        what: "disk writes",
        value: after.writtenBytes - before.writtenBytes,
        unit: "bytes",
        bar: { of: "value", most: 0 },
      },
      { what: "state files changed", value: isUnchanged ? 0 : 1, unit: "", bar: { of: "value", most: 0 } },
    ];
  },
};
