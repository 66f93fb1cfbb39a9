import { globSync, readFileSync } from "node:fs";
import { dirname, join, normalize } from "node:path";
import { expect, test } from "vitest";

/** The programs and shared folders that a folder of `src/` may import; `errors.ts` and `lib/` are open to all. */
const programs: Readonly<Record<string, readonly string[]>> = {
  "main.ts": ["agent", "overlay", "guard", "controller", "transfer", "upgrade", "cli", "host"],
  agent: ["checkpoint", "protocol", "host"],
  overlay: ["protocol", "host"],
  guard: ["checkpoint", "protocol", "host"],
  upgrade: ["protocol", "host"],
  controller: ["protocol", "host"],
  transfer: ["protocol", "host"],
  cli: ["protocol", "host"],
  checkpoint: ["protocol", "host"],
  protocol: [],
  // A driver uses the wire form of its target: the overlay's table.
  host: ["protocol"],
  lib: [],
  "errors.ts": [],
};

/**
 * The rooms of its own program that a room imports; `.` is the files in the program's folder itself. Those files, and the wiring of the
 * agent, may import every room; a room without a line imports none.
 */
const rooms: Readonly<Record<string, Readonly<Record<string, readonly string[]>>>> = {
  agent: {
    applying: [".", "faults", "identity", "reconcile", "shadow", "telemetry"],
    containers: ["containers/model", "containers/supervision", "telemetry"],
    "containers/images": ["containers/model"],
    "containers/output": ["containers/model"],
    "containers/supervision": ["containers/images", "containers/model"],
    "containers/volumes": ["containers/model"],
    "data-plane": [
      "applying",
      "identity",
      "sections/connectors",
      "sections/services",
      "shadow",
      "triggers/diagnostics",
    ],
    faults: ["telemetry"],
    "local-api": ["triggers/execution"],
    network: [".", "identity", "reconcile", "telemetry", "telemetry/conditions"],
    offline: [".", "identity", "network", "reset", "session", "shadow", "upgrades", "wiring"],
    reset: [".", "local-api", "telemetry"],
    "sections/connectors": ["reconcile"],
    "sections/exec": ["containers/model", "containers/supervision", "reconcile"],
    "sections/gateway": ["reconcile"],
    "sections/network": ["reconcile"],
    "sections/services": ["reconcile"],
    session: ["identity", "sections/network"],
    shadow: ["faults", "identity", "session"],
    status: ["data-plane", "faults", "identity", "shadow", "telemetry", "telemetry/conditions", "upgrades"],
    streams: ["containers/model", "session"],
    telemetry: ["session"],
    "telemetry/conditions": ["telemetry"],
    "telemetry/metrics": [".", "data-store", "local-api", "telemetry", "triggers/execution"],
    "triggers/containers": ["containers/model", "containers/output", "triggers/execution"],
    "triggers/diagnostics": ["containers/model", "telemetry/conditions", "triggers/execution", "triggers/tools"],
    "triggers/node": ["telemetry", "telemetry/conditions", "triggers/execution"],
    "triggers/tools": [".", "identity", "shadow", "triggers/containers", "triggers/execution"],
    upgrades: ["telemetry", "triggers/execution", "triggers/node"],
  },
  cli: {
    bundle: ["doctor", "frame"],
    completion: ["frame"],
    doctor: ["frame", "netcheck"],
    netcheck: ["frame"],
    setup: ["frame", "netcheck", "text"],
    text: ["frame"],
    verbs: ["bundle", "completion", "doctor", "frame", "netcheck", "setup", "text"],
    "verbs/containers": ["frame", "text"],
    "verbs/data-store": ["frame", "text"],
    "verbs/network": ["frame", "netcheck", "text"],
    "verbs/programs": ["frame"],
  },
  controller: {
    access: ["access/policies", "events", "http", "store"],
    "access/agent-tokens": ["access", "access/policies", "events", "http", "store"],
    certificates: ["access/policies", "events", "http", "store"],
    channel: [
      "access/agent-tokens",
      "channel/documents",
      "channel/keys",
      "clusters",
      "containers",
      "events",
      "http",
      "nodes",
      "nodes/activations",
      "registry",
      "stats",
      "store",
      "triggers",
    ],
    "channel/documents": ["access", "channel/keys", "clusters", "events", "nodes", "store"],
    "channel/keys": ["access"],
    clusters: ["access/policies", "events", "http", "nodes", "store"],
    config: ["access/policies", "clusters", "http", "nodes"],
    containers: ["access/policies", "clusters", "config", "events", "http", "nodes", "store"],
    "data-store": ["access/policies", "config", "http", "nodes", "triggers"],
    events: ["access/policies", "http", "store"],
    http: ["access/policies"],
    images: ["access/policies", "config", "data-store", "events", "http", "nodes", "store", "triggers"],
    maintenance: ["store"],
    nodes: ["access/policies", "channel/keys", "events", "http", "store"],
    "nodes/activations": ["access/policies", "events", "http", "store"],
    org: ["access/policies", "clusters", "config", "events", "http", "nodes", "store"],
    registry: ["access", "access/policies", "http", "nodes"],
    releases: ["http"],
    stats: ["access/policies", "containers", "events", "http", "nodes", "store"],
    triggers: ["access/policies", "clusters", "containers", "events", "http", "nodes", "store"],
  },
  host: {
    "data-store": [".", "process"],
    engine: ["."],
    exposure: [".", "files", "network", "network/firewall", "network/ip", "network/state"],
    files: ["."],
    machine: [".", "files", "process"],
    net: ["."],
    network: [
      ".",
      "files",
      "net",
      "network/dhcp",
      "network/firewall",
      "network/ip",
      "network/netlink",
      "network/resolver",
      "network/state",
      "process",
    ],
    "network/dhcp": [".", "files", "network/ip", "network/state", "process"],
    "network/firewall": ["network/ip", "network/netlink", "network/state", "process"],
    "network/ip": [".", "network/netlink", "network/state", "process"],
    "network/netlink": ["process"],
    "network/resolver": [".", "files", "net", "network/ip", "network/state", "process"],
    "network/state": [".", "files"],
    overlay: [".", "files", "net", "process"],
    process: [".", "files"],
    releases: [".", "files", "net", "process"],
  },
  lib: {
    formats: ["."],
  },
  overlay: {
    bindings: ["dial", "flow"],
    flow: ["dial", "limits"],
    ftp: ["dial", "flow"],
    listeners: ["bindings", "dial", "flow", "ftp", "limits"],
    mesh: ["dial", "listeners", "mesh/paths", "mesh/peers", "mesh/sessions", "mesh/transport"],
    "mesh/paths": ["dial", "mesh/transport"],
    "mesh/peers": ["dial", "flow", "ftp", "limits", "listeners", "mesh/paths", "mesh/transport", "udp"],
    "mesh/sessions": ["bindings", "flow", "mesh/paths", "mesh/transport"],
    "mesh/transport": ["flow", "limits"],
    tcp: ["bindings", "dial", "flow", "ftp", "limits", "listeners"],
    udp: ["bindings", "dial", "flow", "limits", "listeners"],
  },
  protocol: {
    channel: ["documents", "sections", "values"],
    documents: ["sections", "sections/gateway", "values"],
    local: ["channel", "documents", "overlay", "sections/gateway", "sections/network", "values"],
    overlay: ["channel", "documents", "values"],
    sections: [
      "sections/alert",
      "sections/apigw",
      "sections/cluster",
      "sections/connectors",
      "sections/exec",
      "sections/gateway",
      "sections/network",
      "sections/services",
      "sections/snmp",
      "values",
    ],
    "sections/alert": ["sections/common", "sections/network", "values"],
    "sections/apigw": ["sections/common", "values"],
    "sections/cluster": ["sections/common", "sections/network", "values"],
    "sections/common": ["values"],
    "sections/connectors": ["sections/common", "values"],
    "sections/exec": ["sections/common", "sections/network", "values"],
    "sections/gateway": ["sections/common", "values"],
    "sections/network": ["sections/common", "values"],
    "sections/services": ["sections/common", "values"],
    "sections/snmp": ["sections/common", "sections/network", "values"],
    triggers: ["documents", "local", "overlay", "values"],
  },
};

/** Only the agent, and programs that do its work without it, import its wiring. */
const WIRING = "wiring";
const ENTRIES: ReadonlySet<string> = new Set(["src/agent/main.ts", "src/agent/offline/offline.ts"]);

interface Module {
  readonly path: string;
  readonly imports: readonly string[];
}

const modules: readonly Module[] = globSync("src/**/*.ts").map((path) => ({
  path,
  imports: [...readFileSync(path, "utf8").matchAll(/(?:from|import)\s*\(?\s*"(\.[^"]+)"/g)].map(([, to]) =>
    normalize(join(dirname(path), to ?? "")),
  ),
}));

const edges = modules.flatMap(({ path, imports }) => imports.map((to) => ({ from: path, to })));

const programOf = (path: string): string => path.split("/")[1] ?? "";

/** Returns the room of a file in its program: its folder, or `.` in the program's own. */
const roomOf = (path: string): string => path.split("/").slice(2, -1).join("/") || ".";

/** Returns the node of a file in the graph of folders; files in a program's folder are nodes themselves, since entries import all rooms. */
const folderOf = (path: string): string => (path.split("/").length <= 3 ? path : dirname(path));

/** Reports whether the table applies to the imports of a file from its own program. */
function isHeld(path: string): boolean {
  const room = roomOf(path);
  return room !== "." && !(programOf(path) === "agent" && room.startsWith(WIRING));
}

/** Returns the circles of a graph: its strongly connected components of more than one node (Tarjan), each sorted. */
function circles(graph: ReadonlyMap<string, ReadonlySet<string>>): string[][] {
  const found: string[][] = [];
  const index = new Map<string, number>();
  const low = new Map<string, number>();
  const stack: string[] = [];
  const visit = (node: string): void => {
    index.set(node, index.size);
    low.set(node, index.get(node) ?? 0);
    stack.push(node);
    for (const next of graph.get(node) ?? []) {
      if (!index.has(next)) visit(next);
      if (stack.includes(next)) low.set(node, Math.min(low.get(node) ?? 0, low.get(next) ?? 0));
    }
    if (low.get(node) !== index.get(node)) return;
    const circle = stack.splice(stack.indexOf(node));
    if (circle.length > 1) found.push(circle.sort());
  };
  for (const node of graph.keys()) if (!index.has(node)) visit(node);
  return found;
}

function graphOf(nameOf: (path: string) => string): ReadonlyMap<string, ReadonlySet<string>> {
  const graph = new Map<string, Set<string>>();
  for (const { from, to } of edges) {
    const [one, other] = [nameOf(from), nameOf(to)];
    const targets = graph.get(one) ?? new Set<string>();
    graph.set(one, targets);
    if (one !== other) targets.add(other);
  }
  return graph;
}

test("programs import only what they may", () => {
  const wrong = edges
    .map(({ from, to }) => ({ from, to, one: programOf(from), other: programOf(to) }))
    .filter(({ one, other }) => one !== other && other !== "lib" && other !== "errors.ts")
    .filter(({ one, other }) => !programs[one]?.includes(other))
    .map(({ from, to }) => `${from} → ${to}`);
  expect(modules.length).toBeGreaterThan(900);
  expect(wrong).toEqual([]);
});

const between = edges.filter(
  ({ from, to }) => programOf(from) === programOf(to) && isHeld(from) && roomOf(from) !== roomOf(to),
);

test("rooms import only the rooms of the table", () => {
  const wrong = between.filter(({ from, to }) => !rooms[programOf(from)]?.[roomOf(from)]?.includes(roomOf(to)));
  expect(wrong.map(({ from, to }) => `${from} → ${to}`)).toEqual([]);
});

test("the table has no unused line", () => {
  const needed = new Set(between.map(({ from, to }) => `${programOf(from)}: ${roomOf(from)} → ${roomOf(to)}`));
  const lines = Object.entries(rooms).flatMap(([program, table]) =>
    Object.entries(table).flatMap(([from, targets]) => targets.map((to) => `${program}: ${from} → ${to}`)),
  );
  expect(lines.length).toBeGreaterThan(100);
  expect(lines.filter((line) => !needed.has(line))).toEqual([]);
});

test("no files import each other in a circle, types included", () => {
  expect(circles(graphOf((path) => path))).toEqual([]);
});

test("no folders import each other in a circle", () => {
  expect(circles(graphOf(folderOf))).toEqual([]);
});

test("finds a circle", () => {
  const graph = new Map(
    Object.entries({ a: ["b"], b: ["c"], c: ["a", "d"], d: [] }).map(([from, to]) => [from, new Set(to)]),
  );
  expect(circles(graph)).toEqual([["a", "b", "c"]]);
});

test("only entries import the wiring", () => {
  const isWiring = (path: string): boolean => programOf(path) === "agent" && roomOf(path).startsWith(WIRING);
  expect(edges.filter(({ from, to }) => isWiring(to) && !isWiring(from) && !ENTRIES.has(from))).toEqual([]);
});

test("every module is reachable from an entry", () => {
  const reached = new Set<string>();
  const visit = (path: string): void => {
    if (reached.has(path)) return;
    reached.add(path);
    for (const to of modules.find((module) => module.path === path)?.imports ?? []) visit(to);
  };
  // A script outside the program builds the reference from the schemas.
  for (const entry of ["src/main.ts", "src/protocol/reference.ts"]) visit(entry);
  expect(modules.map(({ path }) => path).filter((path) => !reached.has(path))).toEqual([]);
});
