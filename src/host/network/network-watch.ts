import type { Clock } from "../clock.ts";
import { NETLINK_GROUPS, parseChanges } from "./netlink/netlink.ts";
import type { NetworkChange } from "./netlink/netlink.ts";
import { listenNetlink, type NetlinkListener } from "./netlink/netlink-listener.ts";
import { hostReader } from "../reader.ts";
import type { Reader } from "../reader.ts";
import { RESOLVER_FILES } from "../net/resolver.ts";

export interface WatchNetworkOptions {
  readonly clock: Clock;
  /** Called with `resumed` after the machine was suspended or its clock set, which the monotonic clock does not show. */
  readonly onChange: (what: NetworkChange | "resumed") => void;
  /** Reads the machine's files. */
  readonly reader?: Reader;
  /** Forces one mechanism; netlink by default, if it loads. */
  readonly engine?: "netlink" | "poll";
}

export interface NetworkWatch {
  readonly engine: "netlink" | "poll";
  close(): void;
}

type ReadChanges = () => ReadonlySet<NetworkChange>;

/** Polling interval in milliseconds: comparing /proc detects every change, netlink only needs it for the resolver and for suspension. */
const TICK_MS = { poll: 1000, netlink: 2000 };
/** Time for the notifications of one change to arrive, in milliseconds. */
const SETTLE_MS = 100;
const SPACING_MS = 1000;
const SLEPT_MS = 10_000;
const NETLINK_ROUTE = 0;

/** Reports network changes at most once a second and kind, by kernel notifications or by comparing /proc. */
export function watchNetwork(options: WatchNetworkOptions): NetworkWatch {
  const { clock, onChange, reader = hostReader() } = options;
  const socket = options.engine === "poll" ? undefined : openNetlink(() => pollSoon());
  const engine = socket === undefined ? "poll" : "netlink";
  const readNetwork = socket?.drain ?? comparison(() => networkFingerprints(reader));
  const readResolver = comparison(() => [["resolver", RESOLVER_FILES.map((path) => reader.fingerprint(path)).join()]]);
  let isClosed = false;
  let ahead = clock.now() - clock.elapsed();
  let polledAt = clock.elapsed();
  const poll = (): void => {
    cancel = clock.after(TICK_MS[engine], poll);
    const before = ahead;
    polledAt = clock.elapsed();
    ahead = clock.now() - polledAt;
    const resumed = Math.abs(ahead - before) > SLEPT_MS ? (["resumed"] as const) : [];
    for (const change of [...readNetwork(), ...readResolver(), ...resumed]) if (!isClosed) onChange(change);
  };
  const pollSoon = (): void => {
    if (isClosed) return;
    cancel();
    cancel = clock.after(Math.max(SETTLE_MS, polledAt + SPACING_MS - clock.elapsed()), poll);
  };
  let cancel = clock.after(TICK_MS[engine], poll);
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

/** Collects the kernel's notifications of links, addresses and routes; undefined if netlink is unavailable. */
function openNetlink(onArrival: () => void): { drain: ReadChanges; close: () => void } | undefined {
  const listener = listenNetlink({ protocol: NETLINK_ROUTE, groups: NETLINK_GROUPS, onArrival });
  return listener === undefined ? undefined : { drain: () => drained(listener), close: () => listener.close() };
}

function drained(listener: NetlinkListener): ReadonlySet<NetworkChange> {
  const changes = new Set<NetworkChange>();
  listener.drain((datagram) => {
    // If the kernel dropped notifications, anything may have changed.
    for (const change of datagram === undefined ? (["link", "address", "route"] as const) : parseChanges(datagram)) {
      changes.add(change);
    }
  });
  return changes;
}

/** Compares each reading with the previous one, kind by kind. */
function comparison(read: () => readonly (readonly [NetworkChange, string])[]): ReadChanges {
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
    // Counters and reference counts change by themselves; only a route's target counts.
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
