import { execFileSync, spawn } from "node:child_process";
import { once } from "node:events";
import { onTestFinished } from "vitest";
import type { PrivateNetwork } from "./private-stage.ts";

/** Another machine on a link of its own to a private network made by root: `wan0` with 10.77.0.1 there, 10.77.0.2 here. */
export interface Neighbour {
  /** Runs a shell line on the private network's side and returns its output. */
  readonly here: (line: string) => string;
  /** Runs a shell line on the neighbour. */
  readonly there: (line: string) => string;
  /** A process of the neighbour, which identifies its network. */
  readonly pidThere: number;
  /** Starts a program on either side, until the test ends. */
  readonly start: (side: "here" | "there", ...command: readonly string[]) => void;
}

/** Connects the link, until the test ends, or by `onFinished`. */
export async function plugNeighbour(
  { within }: PrivateNetwork,
  onFinished: (end: () => void) => void = onTestFinished,
): Promise<Neighbour> {
  const [enter = "", ...entering] = within;
  const holder = spawn(
    enter,
    [...entering, "unshare", "-n", "sh", "-c", "ip link set lo up; echo up; exec sleep 1800"],
    {
      stdio: ["ignore", "pipe", "inherit"],
    },
  );
  onFinished(() => void holder.kill("SIGKILL"));
  await once(holder.stdout, "data");
  const other = ["nsenter", "-t", String(holder.pid), "-n"];
  const run = ([file = "", ...args]: readonly string[], line: string): string =>
    execFileSync(file, [...args, "bash", "--norc", "-c", line], {
      encoding: "utf8",
      stdio: ["ignore", "pipe", "pipe"],
    });
  const [here, there] = [(line: string) => run(within, line), (line: string) => run(other, line)];
  here("ip link add wan0 type veth peer name wan1 && ip addr add 10.77.0.1/24 dev wan0 && ip link set wan0 up");
  here(`ip link set wan1 netns ${holder.pid ?? 0}`);
  there("ip link set wan1 name wan0 && ip addr add 10.77.0.2/24 dev wan0 && ip link set wan0 up");
  return {
    here,
    there,
    pidThere: holder.pid ?? 0,
    start(side, ...command) {
      const [file = "", ...args] = [...(side === "here" ? within : other), ...command];
      const child = spawn(file, args, { stdio: "ignore" });
      onTestFinished(() => void child.kill("SIGKILL"));
    },
  };
}
