import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { UNDER_UNITS } from "../machine/real-units.ts";

/** Files of /etc that replace the machine's own for a program. */
export interface PrivateNames {
  /** A command prefix, for `within`. */
  readonly within: readonly string[];
  /** Sets names, `address name` in each line; takes effect at once. */
  setHosts(lines: readonly string[]): void;
}

/** A mount namespace with its own /etc/hosts and one name server, by default an address without one; needs only user namespaces. */
export function privateNames(dir: string, server = "127.0.0.1", options = "timeout:1 attempts:1"): PrivateNames {
  const hosts = join(dir, "hosts");
  const resolver = join(dir, "resolv.conf");
  const setHosts = (lines: readonly string[]): void => writeFileSync(hosts, [...lines, ""].join("\n"));
  setHosts([]);
  writeFileSync(resolver, `nameserver ${server}\noptions ${options}\n`);
  const script = `mount --bind ${hosts} /etc/hosts && mount --bind ${resolver} /etc/resolv.conf && exec "$0" "$@"`;
  return { within: ["unshare", "-rm", "sh", "-c", script], setHosts };
}

/** A network namespace with only loopback, which is up. */
export const PRIVATE_NETWORK: readonly string[] = ["unshare", "-rn", "sh", "-c", 'ip link set lo up && exec "$0" "$@"'];

/** Returns the command prefix that enters the namespaces that `PRIVATE_NETWORK` created for a process. */
export function inNetworkOf(pid: number): readonly string[] {
  // A unit enters only the network.
  const users = UNDER_UNITS ? [] : ["-U", "--preserve-credentials"];
  return ["nsenter", "-t", String(pid), "-n", ...users];
}
