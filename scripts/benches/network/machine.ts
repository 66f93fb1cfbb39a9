// A machine of the bench's own: a network namespace with a WAN that a distribution has set.
import { execFileSync } from "node:child_process";
import { existsSync } from "node:fs";
import { machineState, type MachineState } from "../../../test/support/network/machine-state.ts";
import { atEnd } from "../ending.ts";
import { bundled, startHelper, type Helper } from "../programs.ts";

export interface Machine {
  readonly name: string;
  /** Put before a command line, to run it there. */
  readonly within: readonly string[];
  state(): MachineState;
  run(line: string): string;
  /** The section `network` over it. */
  section(dir: string): Helper;
  remove(): Promise<void>;
}

/** Duration, processes and steps of a pass. */
export interface Pass {
  readonly ms: number;
  /** The part of `ms` until everything was applied; the rest is verification. */
  readonly inForceMs: number;
  readonly processes: number;
  readonly steps: number;
  readonly left: number;
  readonly rejected: number;
}

const BOOT = [
  "ip link set lo up",
  "ip link add eth0 type veth peer name far0",
  "ip address add 192.0.2.2/24 dev eth0",
  "ip link set far0 up",
  "ip link set eth0 up",
  "ip route add default via 192.0.2.1",
].join(" && ");

/** Makes one; what an earlier run left of it goes first. */
export function makeMachine(name: string): Machine {
  if (existsSync(`/run/netns/${name}`)) execFileSync("ip", ["netns", "del", name]);
  execFileSync("ip", ["netns", "add", name]);
  const remove = atEnd(() => void execFileSync("ip", ["netns", "del", name]));
  const within = ["ip", "netns", "exec", name];
  const run = (line: string): string =>
    execFileSync("ip", [...within.slice(1), "sh", "-c", line], { encoding: "utf8", maxBuffer: 1 << 28 });
  run(BOOT);
  return {
    name,
    within,
    state: () => machineState(within),
    run,
    section: (dir) => startHelper(bundled("network/section-program.ts", dir), [dir], { within }),
    remove,
  };
}

/** Has a section applied, and makes sure that it was, whole. */
export async function apply(helper: Helper, section: object): Promise<Pass> {
  const pass = JSON.parse(await helper.ask(JSON.stringify(section))) as Pass;
  if (pass.left > 0 || pass.rejected > 0) throw new Error(`not applied: ${JSON.stringify(pass)}`);
  return pass;
}

/** A section with the WAN and whatever is beside it. */
export function withWan(more: object, gateway = "192.0.2.1", addIps: readonly string[] = []): object {
  return { interfaces: [{ nic: "eth0", ip: "192.0.2.2/24", gateway, addIps }], ...more };
}
