import { execFileSync } from "node:child_process";
import { createInterface } from "node:readline";
import { systemClock, type Clock } from "../../../src/host/clock.ts";
import { watchNetwork } from "../../../src/host/network/network-watch.ts";

/** Runs inside a network namespace: prints the watcher's reports, and passes every line of its input to `ip`. */
const engine = process.argv[2] === "poll" ? "poll" : "netlink";
const system = systemClock();
/** With netlink only the kernel's messages may cause a report: no timer of more than a second rings. */
const clock: Clock =
  engine === "poll" ? system : { ...system, after: (ms, run) => (ms > 1000 ? () => {} : system.after(ms, run)) };
const watch = watchNetwork({ clock, engine, onChange: (what) => console.log(what) });
console.log(`engine ${watch.engine}`);
for await (const line of createInterface({ input: process.stdin })) execFileSync("ip", line.split(" "));
watch.close();
