import { address4 } from "./links.ts";
import type { Reader } from "../../reader.ts";
import { fieldsOf } from "../../../lib/text/text-fields.ts";

/** A socket that receives traffic to a port of this machine. */
export interface Listener {
  readonly protocol: "tcp" | "udp";
  /** IPv4 address; undefined accepts any. */
  readonly address: string | undefined;
  readonly port: number;
}

const TABLES = [
  { path: "/proc/net/tcp", protocol: "tcp", state: "0A" },
  { path: "/proc/net/tcp6", protocol: "tcp", state: "0A" },
  // A connected UDP socket receives only from its peer and has another state.
  { path: "/proc/net/udp", protocol: "udp", state: "07" },
  { path: "/proc/net/udp6", protocol: "udp", state: "07" },
] as const;
const ANY6 = "0".repeat(32);
const MAPPED = /^0{16}(?:FFFF0000|0000FFFF)([0-9A-F]{8})$/;

/** Returns the sockets that receive IPv4 packets, including dual-stack IPv6 sockets (proc_net_tcp of the kernel). */
export function readListeners(reader: Reader): readonly Listener[] {
  return TABLES.flatMap(({ path, protocol, state }) =>
    (reader.read(path) ?? "").split("\n").flatMap((line) => {
      const fields = fieldsOf(line);
      const [local = "", port = ""] = (fields[1] ?? "").split(":");
      if (fields[3] !== state || !/^[0-9A-F]{4}$/.test(port)) return [];
      const four = local === ANY6 ? "0.0.0.0" : address4(MAPPED.exec(local)?.[1] ?? local);
      if (four === undefined) return [];
      return [{ protocol, address: four === "0.0.0.0" ? undefined : four, port: Number.parseInt(port, 16) }];
    }),
  );
}
