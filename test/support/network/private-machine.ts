import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { UNDER_UNITS } from "../machine/real-units.ts";

/** Files of /etc that a program sees in place of the machine's own. */
export interface PrivateNames {
  /** Put before a command line, as `within`. */
  readonly within: readonly string[];
  /** What names mean, `address name` a line; takes effect at once. */
  setHosts(lines: readonly string[]): void;
}

/**
 * A mount namespace with its own /etc/hosts and one name server, by default an address where none is; needs no root, only user
 * namespaces.
 */
export function privateNames(dir: string, server = "127.0.0.1", options = "timeout:1 attempts:1"): PrivateNames {
  const hosts = join(dir, "hosts");
  const resolver = join(dir, "resolv.conf");
  const setHosts = (lines: readonly string[]): void => writeFileSync(hosts, [...lines, ""].join("\n"));
  setHosts([]);
  writeFileSync(resolver, `nameserver ${server}\noptions ${options}\n`);
  const script = `mount --bind ${hosts} /etc/hosts && mount --bind ${resolver} /etc/resolv.conf && exec "$0" "$@"`;
  return { within: ["unshare", "-rm", "sh", "-c", script], setHosts };
}

/** A network namespace of its own, with loopback up and nothing else. */
export const PRIVATE_NETWORK: readonly string[] = ["unshare", "-rn", "sh", "-c", 'ip link set lo up && exec "$0" "$@"'];

/** The command that runs another inside the namespaces that `PRIVATE_NETWORK` made for a process. */
export function inNetworkOf(pid: number): readonly string[] {
  // A unit joins the network alone.
  const users = UNDER_UNITS ? [] : ["-U", "--preserve-credentials"];
  return ["nsenter", "-t", String(pid), "-n", ...users];
}
