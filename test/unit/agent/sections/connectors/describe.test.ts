import { expect, test } from "vitest";
import { nodesOf, planConnectors } from "../../../../../src/agent/sections/connectors/plan.ts";
import { describeConnectorStep } from "../../../../../src/agent/sections/connectors/describe.ts";
import type { OverlayListener } from "../../../../../src/protocol/overlay/overlay.ts";
import type { Connector } from "../../../../../src/protocol/sections/connectors/connectors.ts";
import { uidOf } from "../../../../support/overlay/mesh.ts";
import { aConnector, itsListener } from "../../../../support/overlay/l4-items.ts";

const ID = "ea0076ec-0000-4000-8000-000000000001";
const at = (address: string): Partial<Connector> => ({ listen: { at: "address", address } });
const onNic = { key: "tcp/nic:eth0/8080", addresses: ["10.0.0.2", "10.0.0.3"] };
const many = Array.from({ length: 1024 }, (_, i) => `10.${i >> 8}.${i & 255}.0/24`);
const here = "tcp 0.0.0.0:8080 (a)";
const ended = ", ends its flows";
const forbidden = ", ends flows from sources that it no longer allows";

function details(desired: readonly Connector[], listeners: readonly OverlayListener[]): readonly string[] {
  const actual = {
    listeners: new Map(listeners.map((listener) => [listener.key, listener])),
    states: new Map(),
    addresses: new Map([["eth0", ["10.0.0.2", "10.0.0.3"]]]),
    nodes: nodesOf((node) => node === "local", {
      peers: new Map([[uidOf(3), { name: "branch" }]]),
      clusters: new Set(),
      find: (name) => (name === "branch" ? { uid: uidOf(3) } : undefined),
    }),
  };
  return planConnectors(desired, actual).map((step) => `${step.kind} ${describeConnectorStep(step, actual)}`);
}

const table: readonly (readonly [Partial<Connector> | undefined, Partial<OverlayListener> | undefined, string])[] = [
  [{}, undefined, `listen ${here} to web`],
  [{ node: "branch" }, undefined, `listen ${here} to branch/web`],
  [{ node: "branch" }, {}, `change ${here}: to web → branch/web${ended}`],
  [{ target: { host: "::1", port: 80 } }, undefined, `listen ${here} to [::1]:80`],
  [{ listen: { at: "nic", nic: "eth0" } }, undefined, "listen tcp eth0:8080 (a) to web"],
  [undefined, {}, `close ${here} to web${ended}`],
  [{ bitsPerSecond: 20_000_000 }, { bitsPerSecond: 10_000_000 }, `change ${here}: maxmbps 10 → 20`],
  [{}, { bitsPerSecond: 500_000 }, `change ${here}: maxmbps 0.5 → unlimited`],
  [{ target: { service: "api" } }, {}, `change ${here}: to web → api${ended}`],
  [{ maxFlows: 5, idleTimeoutMs: 1500 }, {}, `change ${here}: maxConnections 10000 → 5, idleTimeout 900 s → 1.5 s`],
  [{ sources: ["10.0.0.0/8"] }, {}, `change ${here}: sourceBlock anybody → 10.0.0.0/8${forbidden}`],
  [{}, { sources: [] }, `change ${here}: sourceBlock nobody → anybody`],
  [{ sources: many }, { sources: many.toReversed() }, ""],
  [{ sources: many }, { sources: [...many.slice(0, -1), "9.0.0.0/8"] }, `change ${here}: sourceBlock${forbidden}`],
  [
    { listen: { at: "nic", nic: "eth0" } },
    { ...onNic, addresses: ["10.0.0.2"] },
    "change tcp eth0:8080 (a): addresses 10.0.0.2 → 10.0.0.2 10.0.0.3",
  ],
  [
    at("127.0.0.2"),
    { key: "tcp/127.0.0.1/8080", addresses: ["127.0.0.1"] },
    "move tcp 127.0.0.1:8080 → tcp 127.0.0.2:8080 (a)",
  ],
  [
    { ...at("127.0.0.2"), target: { service: "api" } },
    { key: "tcp/127.0.0.1/8080", addresses: ["127.0.0.1"] },
    `move tcp 127.0.0.1:8080 → tcp 127.0.0.2:8080 (a): to web → api${ended}`,
  ],
];

test.each(table)("%j from %j", (desired, listener, detail) => {
  const [first = ""] = details(
    desired === undefined ? [] : [aConnector("a", desired)],
    listener === undefined ? [] : [itsListener("a", listener)],
  );
  expect(first.length).toBeLessThan(512);
  if (detail === "")
    expect(first).toMatch(/^change .*: sourceBlock .* and 1016 more → .* and 1016 more, ends flows from/);
  else expect(first).toBe(detail);
});

test("shortens a long id, and reports a new one completely", () => {
  expect(details([aConnector(ID)], [])).toEqual(["listen tcp 0.0.0.0:8080 (ea0076ec…) to web"]);
  expect(details([aConnector(ID)], [itsListener("a")])).toEqual([`rename tcp 0.0.0.0:8080 (ea0076ec…): id a → ${ID}`]);
});
