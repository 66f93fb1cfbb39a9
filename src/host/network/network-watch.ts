import type { Clock } from "../clock.ts";
import { NETLINK_GROUPS, parseChanges } from "./netlink/netlink.ts";
import type { NetworkChange } from "./netlink/netlink.ts";
import { listenNetlink, type NetlinkListener } from "./netlink/netlink-listener.ts";
import { hostReader } from "../reader.ts";
import type { Reader } from "../reader.ts";
import { RESOLVER_FILES } from "../net/resolver.ts";

export interface WatchNetworkOptions {
  readonly clock: Clock;
  /** `resumed` when the machine slept, or its clock was set: the monotonic clock does not know of either. */
  readonly onChange: (what: NetworkChange | "resumed") => void;
  /** What to read the machine's files with. */
  readonly reader?: Reader;
  /** Forces one way of watching; by default netlink where it loads. */
  readonly engine?: "netlink" | "poll";
}

export interface NetworkWatch {
  readonly engine: "netlink" | "poll";
  close(): void;
}

type Look = () => ReadonlySet<NetworkChange>;

/** How often is looked without a reason: comparing /proc finds everything so, netlink only the resolver and a sleep. */
const TICK_MS = { poll: 1000, netlink: 2000 };
/** How long the notifications of one change may take to come in. */
const SETTLE_MS = 100;
const SPACING_MS = 1000;
const SLEPT_MS = 10_000;
const NETLINK_ROUTE = 0;

/** Reports what changed in the network at most once a second and kind, by kernel notifications or by comparing /proc. */
export function watchNetwork(options: WatchNetworkOptions): NetworkWatch {
  const { clock, onChange, reader = hostReader() } = options;
  const socket = options.engine === "poll" ? undefined : openNetlink(() => lookSoon());
  const engine = socket === undefined ? "poll" : "netlink";
  const lookAtNetwork = socket?.drain ?? comparison(() => networkFingerprints(reader));
  const lookAtResolver = comparison(() => [
    ["resolver", RESOLVER_FILES.map((path) => reader.fingerprint(path)).join()],
  ]);
  let isClosed = false;
  let ahead = clock.now() - clock.elapsed();
  let lookedAt = clock.elapsed();
  const look = (): void => {
    cancel = clock.after(TICK_MS[engine], look);
    const before = ahead;
    lookedAt = clock.elapsed();
    ahead = clock.now() - lookedAt;
    const resumed = Math.abs(ahead - before) > SLEPT_MS ? (["resumed"] as const) : [];
    for (const change of [...lookAtNetwork(), ...lookAtResolver(), ...resumed]) if (!isClosed) onChange(change);
  };
  const lookSoon = (): void => {
    if (isClosed) return;
    cancel();
    cancel = clock.after(Math.max(SETTLE_MS, lookedAt + SPACING_MS - clock.elapsed()), look);
  };
  let cancel = clock.after(TICK_MS[engine], look);
  return {
    engine,
    close: () => {
      if (isClosed) return;
      isClosed = true;
      cancel();
      socket?.close();
    },
  };
}

/** Collects what the kernel tells of links, addresses and routes; undefined where it cannot be heard. */
function openNetlink(onArrival: () => void): { drain: Look; close: () => void } | undefined {
  const listener = listenNetlink({ protocol: NETLINK_ROUTE, groups: NETLINK_GROUPS, onArrival });
  return listener === undefined ? undefined : { drain: () => drained(listener), close: () => listener.close() };
}

function drained(listener: NetlinkListener): ReadonlySet<NetworkChange> {
  const changes = new Set<NetworkChange>();
  listener.drain((datagram) => {
    // Where the kernel dropped notifications anything may have changed.
    for (const change of datagram === undefined ? (["link", "address", "route"] as const) : parseChanges(datagram)) {
      changes.add(change);
    }
  });
  return changes;
}

/** Compares one reading with the last, kind by kind. */
function comparison(read: () => readonly (readonly [NetworkChange, string])[]): Look {
  let last = new Map(read());
  return () => {
    const previous = last;
    last = new Map(read());
    return new Set([...last].filter(([what, text]) => previous.get(what) !== text).map(([what]) => what));
  };
}

function networkFingerprints(reader: Reader): readonly (readonly [NetworkChange, string])[] {
  const text = (path: string): string => reader.read(path) ?? "";
  const links = (reader.list("/sys/class/net") ?? []).map(
    (name) => `${name} ${text(`/sys/class/net/${name}/operstate`).trim()} ${text(`/sys/class/net/${name}/flags`)}`,
  );
  return [
    ["link", links.join("")],
    // The kernel keeps a local route for every IPv4 address, and prints it as a tree.
    ["address", text("/proc/net/if_inet6") + text("/proc/net/fib_trie")],
    // Counters and reference counts move without any change; only where a route leads counts.
    [
      "route",
      stableRoutes(text("/proc/net/route"), [0, 1, 2, 3, 6, 7]) +
        stableRoutes(text("/proc/net/ipv6_route"), [0, 1, 4, 5, 8, 9]),
    ],
  ];
}

function stableRoutes(text: string, columns: readonly number[]): string {
  return text
    .split("\n")
    .map((line) => {
      const fields = line.trim().split(/\s+/);
      return columns.map((column) => fields[column] ?? "").join(" ");
    })
    .sort()
    .join("\n");
}
