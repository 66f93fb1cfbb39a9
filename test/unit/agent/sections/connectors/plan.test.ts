import { describe, expect, test } from "vitest";
import {
  nodesOf,
  planConnectors,
  waitingConnectors,
  type ConnectorsActual,
  type Nodes,
} from "../../../../../src/agent/sections/connectors/plan.ts";
import { OverlayListener, OverlayReason, type ListenerState } from "../../../../../src/protocol/overlay/overlay.ts";
import type { Connector } from "../../../../../src/protocol/sections/connectors/connectors.ts";
import { uidOf } from "../../../../support/overlay/mesh.ts";
import { aConnector, itsListener } from "../../../../support/overlay/l4-items.ts";

const LINKS = { lo: ["127.0.0.1"], eth0: ["10.0.0.2", "10.0.0.3"], bare: [] };

const NODES: Nodes = nodesOf((node) => node === "local", {
  peers: new Map([[uidOf(3), { name: "branch" }]]),
  clusters: new Set(),
  find: (name) => (name === "branch" ? { uid: uidOf(3) } : undefined),
});

function actualOf(
  listeners: readonly OverlayListener[] = [],
  states: readonly ListenerState[] = [],
  links: Readonly<Record<string, readonly string[]>> = LINKS,
): ConnectorsActual {
  return {
    listeners: new Map(listeners.map((listener) => [listener.key, listener])),
    states: new Map(states.map((state) => [state.key, state])),
    addresses: new Map(Object.entries(links)),
    nodes: NODES,
  };
}

/** Returns steps as `kind subject`, and their listeners. */
function plan(desired: readonly Connector[], listeners: readonly OverlayListener[] = []) {
  const steps = planConnectors(desired, actualOf(listeners));
  return {
    steps: steps.map(({ kind, subject }) => `${kind} ${subject}`),
    listeners: steps.flatMap((step) => ("listener" in step ? [step.listener] : [])),
  };
}

describe("the steps to connectors", () => {
  const nic = { listen: { at: "nic", nic: "eth0" } } as const;
  const onNic = { key: "tcp/nic:eth0/8080", addresses: ["10.0.0.2", "10.0.0.3"] };
  const table: readonly (readonly [string, readonly Connector[], readonly OverlayListener[], readonly string[]])[] = [
    ["nothing to nothing", [], [], []],
    ["a new one", [aConnector("a")], [], ["listen a"]],
    ["the same", [aConnector("a")], [itsListener("a")], []],
    ["the same under another id", [aConnector("b")], [itsListener("a")], ["rename b"]],
    ["another target", [aConnector("a", { target: { service: "api" } })], [itsListener("a")], ["change a"]],
    ["another id and target", [aConnector("b", { target: { service: "api" } })], [itsListener("a")], ["change b"]],
    ["sources where there were none", [aConnector("a", { sources: [] })], [itsListener("a")], ["change a"]],
    ["no limit any more", [aConnector("a")], [itsListener("a", { bitsPerSecond: 1 })], ["change a"]],
    ["another port", [aConnector("a", { port: 81 })], [itsListener("a")], ["close a", "listen a"]],
    ["another protocol", [aConnector("a", { transport: "udp" })], [itsListener("a")], ["close a", "listen a"]],
    ["gone", [], [itsListener("a")], ["close a"]],
    ["switched off", [aConnector("a", { enabled: false })], [itsListener("a")], ["close a"]],
    ["ftp where there was tcp", [aConnector("a", { protocol: "ftp" })], [itsListener("a")], ["change a"]],
    ["ftp", [aConnector("a", { protocol: "ftp" })], [itsListener("a", { application: "ftp" })], []],
    ["on a link", [aConnector("a", nic)], [itsListener("a", onNic)], []],
    [
      "a link with one address more",
      [aConnector("a", nic)],
      [itsListener("a", { ...onNic, addresses: ["10.0.0.2"] })],
      ["change a"],
    ],
    ["a link without an address", [aConnector("a", { listen: { at: "nic", nic: "bare" } })], [], []],
    ["a link that is not there", [aConnector("a", { listen: { at: "nic", nic: "eth9" } })], [], []],
    ["from anywhere to a link", [aConnector("a", nic)], [itsListener("a")], ["move a"]],
    ["from a link to anywhere under another id", [aConnector("b")], [itsListener("a", onNic)], ["close a", "listen b"]],
    ["closes before it listens", [aConnector("b", { port: 81 })], [itsListener("a")], ["close a", "listen b"]],
  ];
  test.each(table)("%s", (_, desired, listeners, steps) => {
    expect(plan(desired, listeners).steps).toEqual(steps);
  });

  test("closes the listener of a link without an address, and opens it when the link has one again", () => {
    const desired = [aConnector("a", nic)];
    const listener = itsListener("a", onNic);
    expect(planConnectors(desired, actualOf([listener], [], { eth0: [] }))).toMatchObject([{ kind: "close" }]);
    expect(planConnectors(desired, actualOf([], [], { eth0: ["10.0.0.2", "10.0.0.3"] }))).toMatchObject([
      { kind: "listen", listener },
    ]);
  });

  test("listens where configured: at an address, at all addresses of a link, or anywhere", () => {
    const at = (listen: Connector["listen"]): unknown => plan([aConnector("a", { listen })]).listeners;
    expect(at({ at: "address", address: "10.9.9.9" })).toEqual([
      itsListener("a", { key: "tcp/10.9.9.9/8080", addresses: ["10.9.9.9"] }),
    ]);
    expect(at({ at: "nic", nic: "eth0" })).toEqual([itsListener("a", onNic)]);
    expect(at({ at: "any" })).toEqual([itsListener("a")]);
  });

  test("applies limits, sources and timeouts", () => {
    const reported = { sources: ["10.0.0.0/8"], bitsPerSecond: 5, maxFlows: 7, idleTimeoutMs: 9000 };
    expect(plan([aConnector("a", reported)]).listeners).toEqual([itsListener("a", reported)]);
  });

  test("listens on as many addresses of a link as the overlay accepts, and names the rest", () => {
    const many = Array.from({ length: 300 }, (_, i) => `10.0.${Math.floor(i / 250)}.${(i % 250) + 1}`);
    const actual = actualOf([], [], { eth0: many });
    const desired = [aConnector("a", nic)];
    const [step] = planConnectors(desired, actual);
    expect(step?.kind === "listen" && OverlayListener.safeParse(step.listener).success).toBe(true);
    expect(waitingConnectors(desired, actual)).toMatchObject([{ code: "too-many-addresses" }]);
  });
});

describe("the conditions that connectors wait for", () => {
  const state = (more: Partial<ListenerState>): ListenerState => ({
    key: "tcp/any/8080",
    connector: "a",
    state: "failed",
    addresses: [],
    ...more,
  });

  test.each(OverlayReason.options)("name %s", (reason) => {
    const issues = waitingConnectors([aConnector("a")], actualOf([itsListener("a")], [state({ reason })]));
    expect(issues).toMatchObject([{ path: "connectors.items.a", code: reason }]);
    expect(issues[0]?.message).toMatch(/^connectors\.items\.a: \S/);
  });

  test("name an address on another node that is not offered to others, and nothing else of that connector", () => {
    const target = { host: "169.254.169.254", port: 80 };
    const message: unknown = expect.stringMatching(/^connectors\.items\.a\.service: 169\.254\.169\.254 is link-local/);
    const reported = [{ path: "connectors.items.a.service", code: "E_ADDRESS_FORBIDDEN", message }];
    for (const node of ["branch", "nobody"]) {
      const refused = state({ reason: "not-granted" });
      const desired = aConnector("a", { node, target });
      const listener = itsListener("a", { target: { peer: uidOf(3), ...target } });
      expect(waitingConnectors([desired], actualOf([listener], [refused]))).toEqual(reported);
      expect(waitingConnectors([{ ...desired, enabled: false }], actualOf())).toEqual([]);
    }
    expect(waitingConnectors([aConnector("a", { node: "local", target })], actualOf())).toEqual([]);
    const other = aConnector("a", { node: "branch", target: { host: "10.0.0.1", port: 80 } });
    expect(waitingConnectors([other], actualOf())).toEqual([]);
  });

  test("repeat the error of the machine, and name the port", () => {
    const failed = state({ reason: "address-in-use", message: "0.0.0.0: bind EADDRINUSE" });
    expect(waitingConnectors([aConnector("a")], actualOf([itsListener("a")], [failed]))[0]?.message).toBe(
      "connectors.items.a: tcp 8080 is taken by another program (0.0.0.0: bind EADDRINUSE)",
    );
  });

  test("include a failure without a reason", () => {
    expect(waitingConnectors([aConnector("a")], actualOf([itsListener("a")], [state({})]))).toMatchObject([
      { code: "other" },
    ]);
  });

  test("ignore results for another target, and keep those for the port", () => {
    const planned = [aConnector("a", { target: { service: "api" } })];
    const listeners = [itsListener("a")];
    expect(waitingConnectors(planned, actualOf(listeners, [state({ reason: "unknown-service" })]))).toEqual([]);
    expect(waitingConnectors(planned, actualOf(listeners, [state({ reason: "address-in-use" })]))).toHaveLength(1);
  });

  test("are empty for those that listen, are off, unsupported, or unknown so far", () => {
    const short = [state({ reason: "out-of-resources" })];
    expect(waitingConnectors([aConnector("a")], actualOf([itsListener("a")], short))[0]?.message).toContain(
      "new connections are refused: the overlay has no descriptors or source ports left",
    );
    const failed = [state({ reason: "loop" })];
    expect(waitingConnectors([aConnector("a")], actualOf([], [state({ state: "listening" })]))).toEqual([]);
    expect(waitingConnectors([aConnector("a", { enabled: false })], actualOf([], failed))).toEqual([]);
    expect(waitingConnectors([aConnector("a")], actualOf())).toEqual([]);
  });

  test.each(["bare", "eth9"])("name a link without an address: %s", (link) => {
    const issues = waitingConnectors([aConnector("a", { listen: { at: "nic", nic: link } })], actualOf());
    expect(issues).toEqual([
      {
        path: "connectors.items.a.nic",
        code: "address-absent",
        message: `connectors.items.a.nic: ${link} has no IPv4 address`,
      },
    ]);
  });
});

describe("two connectors with a conflict on one machine", () => {
  const nic = aConnector("nic", { listen: { at: "nic", nic: "eth0" } });
  const address = aConnector("address", { listen: { at: "address", address: "10.0.0.3" } });
  const links = { eth0: ["10.0.0.2", "10.0.0.3"], twin: ["10.0.0.3"] };
  const look = (...desired: readonly Connector[]) => {
    const steps = planConnectors(desired, actualOf([], [], links));
    const listeners = steps.flatMap((step) => ("listener" in step ? [step.listener] : []));
    const issues = waitingConnectors(desired, actualOf(listeners, [], links));
    return {
      at: Object.fromEntries(listeners.map(({ connector, addresses }) => [connector, addresses])),
      issues: issues.map(({ code, message }) => `${code} ${message}`),
      again: planConnectors(desired, actualOf(listeners, [], links)),
    };
  };
  const issueOf = (id: string, place: string, other: string): string =>
    `E_PORT_IN_USE connectors.items.${id}.port: tcp 8080 on ${place} is taken by the connector ${other}`;

  test("the later one does not listen and names the other, and the earlier one is unchanged", () => {
    expect(look(nic, address)).toEqual({
      at: { nic: ["10.0.0.2", "10.0.0.3"] },
      issues: [issueOf("address", "10.0.0.3", "nic")],
      again: [],
    });
    expect(look(address, nic)).toEqual({
      at: { address: ["10.0.0.3"], nic: ["10.0.0.2"] },
      issues: [issueOf("nic", "10.0.0.3", "address")],
      again: [],
    });
    const twin = aConnector("twin", { listen: { at: "nic", nic: "twin" } });
    expect(look(twin, nic).at).toEqual({ twin: ["10.0.0.3"], nic: ["10.0.0.2"] });
    expect(look(nic, twin).issues).toEqual([issueOf("twin", "10.0.0.3", "nic")]);
  });

  test.each<[string, Partial<Connector>]>([
    ["that is off", { enabled: false }],
    ["of another transport", { transport: "udp" }],
    ["of another port", { port: 81 }],
  ])("one %s blocks nothing", (_, more) => {
    const { at, issues } = look(aConnector("nic", { ...nic, ...more }), address);
    expect([at["address"], issues]).toEqual([["10.0.0.3"], []]);
  });

  test("reports a failure elsewhere as well, and limits the addresses named", () => {
    const failed = {
      key: "tcp/nic:eth0/8080",
      connector: "nic",
      state: "failed",
      reason: "permission-denied",
    } as const;
    const issues = waitingConnectors([address, nic], actualOf([], [{ ...failed, addresses: [] }], links));
    expect(issues.map(({ code }) => code)).toEqual(["E_PORT_IN_USE", "permission-denied"]);
    const many = Array.from({ length: 300 }, (_, at) => `10.1.${at >> 8}.${at & 255}`);
    const twins = [nic, aConnector("twin", { listen: { at: "nic", nic: "twin" } })];
    const issue = waitingConnectors(twins, actualOf([], [], { eth0: many, twin: many.slice(0, 9) })).at(-1);
    expect(issue?.message).toMatch(/ on 10\.1\.0\.0, \S+, \S+, \S+ and 5 more is taken by the connector nic$/);
  });
});

describe("connectors to other nodes", () => {
  const branch = aConnector("b", { node: "branch" });
  const lost = aConnector("c", { node: "elsewhere" });

  test("lead to the peer of that name, and one to an unknown node is named and does not listen", () => {
    const off = aConnector("d", { node: "elsewhere", enabled: false });
    const { steps, listeners } = plan([branch, lost, off]);
    expect(steps).toEqual(["listen b"]);
    expect(listeners).toMatchObject([{ target: { peer: uidOf(3), service: "web" } }]);
    const issues = waitingConnectors([branch, lost, off], actualOf());
    expect(issues).toMatchObject([{ path: "connectors.items.c.node", code: "unknown-node" }]);
    expect(issues[0]?.message).toMatch(/^connectors\.items\.c\.node: this node knows no node elsewhere: check/);
  });

  test("yield their place to the next one while their node is unknown", () => {
    expect(plan([lost, aConnector("e")]).steps).toEqual(["listen e"]);
  });

  test("lead elsewhere when the same service moves to another node", () => {
    const local = itsListener("b");
    expect(plan([branch], [local])).toMatchObject({ steps: ["change b"], listeners: [{ target: { peer: uidOf(3) } }] });
  });

  test.each([
    ["no-path", /no path to any gateway is up/],
    ["peer-absent", /no gateway that is up has branch/],
    ["not-granted", /branch does not grant web to this node/],
    ["unknown-service", /there is no service web on branch/],
  ] as const)("that fail with %s report it", (reason, message) => {
    const [listener] = plan([branch]).listeners;
    if (listener === undefined) throw new Error("it does not listen");
    const state = {
      key: listener.key,
      connector: "b",
      state: "failed" as const,
      reason,
      addresses: [],
    } satisfies ListenerState;
    const issues = waitingConnectors([branch], actualOf([listener], [state]));
    expect(issues).toMatchObject([{ code: reason }]);
    expect(issues[0]?.message).toMatch(message);
    // The result of another target does not count for this one.
    expect(waitingConnectors([branch], actualOf([{ ...listener, target: { service: "web" } }], [state]))).toEqual([]);
  });
});
