import { isIP } from "node:net";
import { HostError } from "../../errors.ts";
import { failed, passed, skipped, type Finding } from "./result.ts";
import type { CheckTools } from "./tools.ts";

/** Sizes of whole packets that are tried, the largest first; the last is what a tunnel needs. */
const SIZES = [1500, 1480, 1460, 1420, 1400, 1350, 1280] as const;
const NEEDED = 1280;
const SMALL = 96;
const MAX_OUTPUT_BYTES = 16 * 1024;
/** IPv4 (RFC 791 §3.1) or IPv6 (RFC 8200 §3) header, and that of an echo request (RFC 792, RFC 4443 §4.1). */
const HEADERS = { 4: 20 + 8, 6: 40 + 8 } as const;

/** Finds the path MTU to an address with ping(8) and unfragmented packets. */
export async function checkMtu(address: string, local: string | undefined, tools: CheckTools): Promise<Finding> {
  try {
    if (await getsThere(SIZES[0], address, local, tools)) return passed("mtu", `${SIZES[0]} bytes get there whole`);
    if (!(await getsThere(SMALL, address, local, tools))) return skipped("mtu", `${address} does not answer ping`);
    for (const size of SIZES.slice(1)) {
      if (await getsThere(size, address, local, tools))
        return passed("mtu", `${size} bytes get there whole, and no more`);
    }
    return failed(
      "mtu",
      `${NEEDED} bytes do not get there whole`,
      "let ICMP 'packet too big' through every firewall on the way, and look for a link with a smaller MTU",
    );
  } catch (error) {
    tools.signal.throwIfAborted();
    if (error instanceof HostError && error.code === "tool-missing") return skipped("mtu", "ping is not installed");
    if (error instanceof HostError) return skipped("mtu", `ping does not work here: ${error.message}`);
    throw error;
  }
}

async function getsThere(
  size: number,
  address: string,
  local: string | undefined,
  { exec, signal, timeoutMs }: CheckTools,
): Promise<boolean> {
  const payload = size - HEADERS[isIP(address) === 6 ? 6 : 4];
  const from = local === undefined ? [] : ["-I", local];
  const seconds = String(Math.max(1, Math.ceil(timeoutMs / 2000)));
  const args = ["-n", "-c", "1", "-W", seconds, "-M", "do", "-s", String(payload), ...from, "--", address];
  const bounds = { signal, deadlineMs: 2 * timeoutMs, maxOutputBytes: MAX_OUTPUT_BYTES };
  return (await exec.run("ping", args, bounds)).exitCode === 0;
}
