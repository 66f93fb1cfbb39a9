import { toCount } from "../../lib/text/text-fields.ts";
import { defined } from "../../lib/defined.ts";

/** One direction of a flow as the kernel expects its packets. */
export interface FlowTuple {
  readonly source: string;
  readonly dest: string;
  readonly sourcePort?: number;
  readonly destPort?: number;
  /** The id of ICMP echo. */
  readonly icmpId?: number;
}

/** A tracked flow. Counters and age are absent if accounting was off when it started. */
export interface TrackedFlow {
  readonly family: 4 | 6;
  /** `tcp`, `udp`, `icmp`, `icmpv6`, or another protocol by name or number. */
  readonly protocol: string;
  /** The kernel's name of the TCP state. */
  readonly state?: string;
  readonly original: FlowTuple;
  /** The reverse of the original unless addresses or ports were translated. */
  readonly reply: FlowTuple;
  readonly sentBytes?: number;
  readonly receivedBytes?: number;
  readonly ageSeconds?: number;
}

const STATE = /^[A-Z][A-Z0-9_]*$/;

/** Parses one line of `conntrack -L -o extended,id,timestamp` (conntrack(8)); returns undefined for any other line. */
export function parseFlow(line: string): TrackedFlow | undefined {
  const words = line.split(" ").filter((word) => word !== "");
  const family = words[0] === "ipv4" ? 4 : words[0] === "ipv6" ? 6 : undefined;
  const protocol = words[2];
  if (family === undefined || protocol === undefined) return undefined;
  const sides: [Side, Side] = [new Map(), new Map()];
  let state: string | undefined;
  let age: number | undefined;
  let at = -1;
  for (const word of words.slice(3)) {
    const equals = word.indexOf("=");
    if (equals < 0) {
      // The lifetime and the protocol number come before; flags in brackets are among the fields.
      if (at < 0 && STATE.test(word)) state = word;
      continue;
    }
    const [key, value] = [word.slice(0, equals), word.slice(equals + 1)];
    if (key === "src") at += 1;
    if (key === "delta-time") age = toCount(value);
    const side = sides[at];
    // The entry's own id comes last and must not be taken for that of an ICMP echo.
    if (side !== undefined && !side.has(key)) side.set(key, value);
  }
  const [original, reply] = sides.map(tupleOf);
  if (original === undefined || reply === undefined) return undefined;
  const [sentBytes, receivedBytes] = sides.map((side) => toCount(side.get("bytes")));
  return {
    family,
    protocol,
    ...defined({ state }),
    original,
    reply,
    ...defined({ sentBytes, receivedBytes, ageSeconds: age }),
  };
}

type Side = Map<string, string>;

function tupleOf(side: Side): FlowTuple | undefined {
  const [source, dest] = [side.get("src"), side.get("dst")];
  if (source === undefined || dest === undefined) return undefined;
  const [sourcePort, destPort] = [toCount(side.get("sport")), toCount(side.get("dport"))];
  const icmpId = side.has("type") ? toCount(side.get("id")) : undefined;
  return {
    source,
    dest,
    ...defined({ sourcePort, destPort, icmpId }),
  };
}
