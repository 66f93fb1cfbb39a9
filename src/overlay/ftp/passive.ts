import { isIPv4 } from "node:net";

/** Request for an FTP data connection: RFC 959 §4.1.2 or RFC 2428 §3. */
export type Passive = "PASV" | "EPSV";

/** Reply code that grants each. */
export const passiveCode = { PASV: "227", EPSV: "229" } as const;

/** Lowest port accepted as an FTP data port (RFC 2577 §3). */
const MIN_PORT = 1024;

/** Returns the port in a reply without line end; undefined if it has no usable port. Ignores the address in the reply. */
export function announcedPort(passive: Passive, line: string): number | undefined {
  const port = passive === "PASV" ? portOf227(line) : portOf229(line);
  return port !== undefined && port >= MIN_PORT && port <= 65_535 ? port : undefined;
}

/** Returns a reply, without line end, that announces a port of this node; undefined if impossible, as for IPv6 in a 227. */
export function passiveReply(passive: Passive, address: string, port: number): string | undefined {
  if (passive === "EPSV") return `229 Entering Extended Passive Mode (|||${port}|)`;
  if (!isIPv4(address)) return undefined;
  const numbers = [...address.split("."), port >> 8, port & 0xff];
  return `227 Entering Passive Mode (${numbers.join(",")}).`;
}

/** Servers differ in the text around the numbers (RFC 1123 §4.1.2.6). */
function portOf227(line: string): number | undefined {
  const numbers = /^227[ -].*?(?<!\d)(\d{1,3}(?:,\d{1,3}){5})(?!\d)/.exec(line)?.[1]?.split(",").map(Number);
  if (numbers === undefined || numbers.some((number) => number > 255)) return undefined;
  const [high = 0, low = 0] = numbers.slice(4);
  return high * 256 + low;
}

function portOf229(line: string): number | undefined {
  const digits = /^229[ -].*?\(([\x21-\x7e])\1\1(\d{1,5})\1\)/.exec(line)?.[2];
  return digits === undefined ? undefined : Number(digits);
}
