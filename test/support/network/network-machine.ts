import { execFileSync, spawn } from "node:child_process";
import { once } from "node:events";
import { mkdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { onTestFinished } from "vitest";
import { HostError } from "../../../src/errors.ts";
import type { Change } from "../../../src/host/network/change.ts";
import type { NeighbourState, NetworkState } from "../../../src/host/network/state/state.ts";
import { bundled } from "../bundled.ts";
import { fileEnd } from "../file-end.ts";
import { tempDir } from "../temp-dir.ts";
import type { Call, ChildOptions } from "./network-child.ts";

type Observed = Omit<NetworkState, "sysctls" | "dhcp"> & {
  readonly sysctls: Readonly<Record<string, string>>;
  readonly dhcp: readonly string[];
};

/** A driver in a process with network and mount namespaces of its own. */
export interface NetworkMachine {
  /** Runs a shell script there and returns its output. */
  sh(script: string): string;
  observe(sysctls?: readonly string[]): Promise<Observed>;
  apply(change: Change): Promise<void>;
  features(): Promise<Record<string, unknown> & { readonly reasons: Readonly<Record<string, string>> }>;
  neighbours(): Promise<readonly NeighbourState[]>;
  mayOwn(): Promise<boolean>;
  disown(): Promise<void>;
  /** Returns the tools run by the last call. */
  ran(): readonly string[];
  /** Kills the driver and starts another in the same namespaces, as after a restart. */
  restart(options?: Partial<ChildOptions>): Promise<NetworkMachine>;
  /** Replaces the driver by another that knows only its files, in the same process. */
  renew(options?: Partial<ChildOptions>): Promise<NetworkMachine>;
}

const CHILD = join(import.meta.dirname, "network-child.ts");
/** With a PID namespace, so that no process survives. */
const OWN = ["-nmp", "--fork", "--kill-child", "--mount-proc"];
const USER = process.getuid?.() === 0 ? [] : ["-r"];
/** A new namespace copies ip_forward of the test's own, which a container engine changes. */
const FORWARDS_NOTHING = "echo 0 > /proc/sys/net/ipv4/ip_forward";
const SETUP = `mount -t tmpfs tmpfs /run && mount -t sysfs sysfs /sys && ip link set lo up && ${FORWARDS_NOTHING}`;

type Options = Omit<ChildOptions, "dir">;
type OnFinished = (end: () => void) => void;

/** Removes other namespaces, links but `lo`, routes without a link, rules of policy routing and tables of nftables. */
const RESET = `for space in $(ls /run/netns 2>/dev/null); do ip netns delete $space; done
echo 0 > /proc/sys/net/ipv4/ip_forward
for link in $(ls /sys/class/net); do [ $link = lo ] || ! [ -e /sys/class/net/$link ] || ip link delete $link; done
for kind in unreachable blackhole prohibit throw; do ip -4 route flush table all type $kind; done
ip rule flush; ip rule add priority 32766 lookup main; ip rule add priority 32767 lookup default
nft flush ruleset`;

/**
 * Returns what `networkMachine` does, for tests one after the other that leave no process: all have one process and its namespaces,
 * which are reset for each.
 */
export function networkMachineInTurn(): (dir: string, options?: Options, prepare?: string) => Promise<NetworkMachine> {
  const onFinished = fileEnd();
  let shared: NetworkMachine | undefined;
  return async (dir, options = {}, prepare = "true") => {
    shared ??= await networkMachine(tempDir(onFinished), {}, "true", onFinished);
    mkdirSync(join(dir, "run"), { recursive: true });
    shared.sh(`${RESET}\n${prepare}`);
    return shared.renew({ dir, ...options });
  };
}

/** Creates the namespaces and starts a driver there; needs root or user namespaces. Everything ends with the test, or by `onFinished`. */
export async function networkMachine(
  dir: string,
  options: Options = {},
  prepare = "true",
  onFinished: OnFinished = onTestFinished,
): Promise<NetworkMachine> {
  mkdirSync(join(dir, "run"), { recursive: true });
  // cat(1) ends with this process, at the latest.
  const script = `${SETUP} && ${prepare} && echo up && exec cat`;
  const holder = spawn("unshare", [...USER, ...OWN, "sh", "-c", script], { stdio: ["pipe", "pipe", "inherit"] });
  onFinished(() => void holder.kill("SIGKILL"));
  await once(holder.stdout, "data");
  const [pid = ""] = readFileSync(`/proc/${holder.pid}/task/${holder.pid}/children`, "utf8").split(" ");
  const enter = ["nsenter", "-t", pid, ...(USER.length > 0 ? ["-U", "--preserve-credentials"] : []), "-n", "-m", "-p"];
  const sh = (script: string): string =>
    execFileSync(enter[0] ?? "", [...enter.slice(1), "bash", "--norc", "-c", script], {
      encoding: "utf8",
      stdio: ["ignore", "pipe", "pipe"],
    });
  return driverIn(enter, sh, { dir, ...options }, onFinished);
}

async function driverIn(
  enter: readonly string[],
  sh: NetworkMachine["sh"],
  options: ChildOptions,
  onFinished: OnFinished,
): Promise<NetworkMachine> {
  const child = spawn(
    enter[0] ?? "",
    [...enter.slice(1), process.execPath, "--no-warnings", bundled(CHILD), JSON.stringify(options)],
    {
      stdio: ["pipe", "pipe", "inherit"],
    },
  );
  onFinished(() => void child.kill("SIGKILL"));
  const lines = createInterface({ input: child.stdout })[Symbol.asyncIterator]();
  await lines.next();
  let ran: readonly string[] = [];
  const call = async <T>(request: Call): Promise<T> => {
    child.stdin.write(`${JSON.stringify(request)}\n`);
    const { value } = await lines.next();
    const reply = JSON.parse(String(value)) as {
      readonly value: T;
      readonly ran: readonly string[];
      readonly error?: { readonly code: string; readonly message: string; readonly details: Record<string, unknown> };
    };
    ran = reply.ran;
    if (reply.error === undefined) return reply.value;
    throw new HostError(reply.error.code, reply.error.message, { details: reply.error.details });
  };
  const machine = (given: ChildOptions): NetworkMachine => ({
    sh,
    observe: (sysctls = []) => call({ method: "observe", sysctls }),
    apply: (change) => call({ method: "apply", change }),
    features: () => call({ method: "features" }),
    neighbours: () => call({ method: "observeNeighbours" }),
    mayOwn: () => call({ method: "mayOwn" }),
    disown: () => call({ method: "disown" }),
    ran: () => ran,
    async restart(changed = {}) {
      child.kill("SIGKILL");
      await once(child, "exit");
      return driverIn(enter, sh, { ...given, ...changed }, onFinished);
    },
    async renew(changed = {}) {
      const options = { ...given, ...changed };
      await call({ method: "open", options });
      return machine(options);
    },
  });
  return machine(options);
}
