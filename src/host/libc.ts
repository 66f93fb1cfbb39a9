import { closeSync } from "node:fs";
import { constants } from "node:os";
import type { Clock } from "./clock.ts";
import { netlinkAddress, NETLINK_GROUPS, parseChanges, unixAddress } from "./netlink.ts";
import type { NetworkChange } from "./netlink.ts";
import { hostReader } from "./reader.ts";
import type { Reader } from "./reader.ts";
import { RESOLVER_FILES } from "./resolver.ts";

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
const AF_UNIX = 1;
const AF_NETLINK = 16;
const SOCK_DGRAM = 2;
const SOCK_RAW = 3;
const SOCK_NONBLOCK = 0o4000;
const SOCK_CLOEXEC = 0o2_000_000;
const NETLINK_ROUTE = 0;
const MSG_NOSIGNAL = 0x4000;
const F_SETFL = 4;
const F_SETOWN = 8;
const F_SETSIG = 10;
const O_NONBLOCK = 0o4000;
const O_ASYNC = 0o20_000;
const ENOBUFS = 105;
const MAX_DATAGRAMS = 4096;

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

/**
 * Tells the service manager a state such as `READY=1` (sd_notify(3)). `socketPath` is what NOTIFY_SOCKET says, a path or an
 * abstract name. False when it could not be sent: `systemd-notify` is the way then.
 */
export function sdNotify(socketPath: string, state: string): boolean {
  const address = unixAddress(socketPath);
  if (address === undefined) return false;
  using libc = loadLibc();
  if (libc === undefined) return false;
  const fd = libc.socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (fd < 0) return false;
  try {
    const text = Buffer.from(state);
    const sent = libc.sendto(fd, text, BigInt(text.length), MSG_NOSIGNAL, address, address.length);
    return sent === BigInt(text.length);
  } finally {
    closeSync(fd);
  }
}

/** Gives memory that the C library holds free back to the kernel (malloc_trim(3)); false where it cannot be called. */
export function trimMemory(): boolean {
  try {
    const signatures = { malloc_trim: { return: "i32", arguments: ["u64"] } } as const;
    const { functions, lib } = process.getBuiltinModule("node:ffi").dlopen(null, signatures);
    functions.malloc_trim(0n);
    lib.close();
    return true;
  } catch {
    return false;
  }
}

/**
 * Node cannot wait for a socket that it did not make, so the kernel says by a signal that something has arrived (fcntl(2)),
 * once until it is drained. SIGURG, because a program that does not listen for it ignores it. Should a signal be lost,
 * the datagrams are still there at the next look.
 */
function openNetlink(onArrival: () => void): { drain: Look; close: () => void } | undefined {
  const libc = loadLibc();
  if (libc === undefined) return undefined;
  const fd = libc.socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC | SOCK_NONBLOCK, NETLINK_ROUTE);
  if (fd < 0) return undefined;
  const address = netlinkAddress(NETLINK_GROUPS);
  if (libc.bind(fd, address, address.length) !== 0) {
    closeSync(fd);
    return undefined;
  }
  let isArmed = false;
  const arm = (): void => {
    if (!isArmed) isArmed = libc.fcntl(fd, F_SETFL, O_NONBLOCK | O_ASYNC) === 0;
  };
  const onSignal = (): void => {
    if (!isArmed) return;
    // Routes can change by the thousand, and one signal says as much as all of them.
    isArmed = libc.fcntl(fd, F_SETFL, O_NONBLOCK) !== 0;
    onArrival();
  };
  process.on("SIGURG", onSignal);
  libc.fcntl(fd, F_SETOWN, process.pid);
  libc.fcntl(fd, F_SETSIG, constants.signals.SIGURG);
  arm();
  const buffer = new Uint8Array(32 * 1024);
  return {
    drain: () => {
      // Before reading: what arrives after the last one read must be announced.
      arm();
      const changes = new Set<NetworkChange>();
      for (let count = 0; count < MAX_DATAGRAMS; count += 1) {
        const length = Number(libc.recv(fd, buffer, BigInt(buffer.length), 0));
        if (length > 0) {
          for (const change of parseChanges(new DataView(buffer.buffer, 0, length))) changes.add(change);
        } else if (length < 0 && libc.errno() === ENOBUFS) {
          // The kernel dropped notifications: anything may have changed, and the next call reads on.
          for (const change of ["link", "address", "route"] as const) changes.add(change);
        } else {
          break;
        }
      }
      return changes;
    },
    close: () => {
      closeSync(fd);
      process.off("SIGURG", onSignal);
      libc[Symbol.dispose]();
    },
  };
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

/** The few calls that Node does not offer; undefined where this Node cannot call the C library. */
export function loadLibc() {
  try {
    const ffi = process.getBuiltinModule("node:ffi");
    const { functions, lib } = ffi.dlopen(null, {
      socket: { return: "i32", arguments: ["i32", "i32", "i32"] },
      fcntl: { return: "i32", arguments: ["i32", "i32", "i32"] },
      bind: { return: "i32", arguments: ["i32", "buffer", "u32"] },
      recv: { return: "i64", arguments: ["i32", "buffer", "u64", "i32"] },
      sendto: { return: "i64", arguments: ["i32", "buffer", "u64", "i32", "buffer", "u32"] },
      __errno_location: { return: "pointer", arguments: [] },
    });
    return {
      ...functions,
      errno: (): number => ffi.getInt32(functions.__errno_location()),
      [Symbol.dispose]: (): void => lib.close(),
    };
  } catch {
    return undefined;
  }
}
