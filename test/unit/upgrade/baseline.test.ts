import { expect, test } from "vitest";
import { viewOf, type Answers } from "../../../src/upgrade/agent-view.ts";
import { Baseline, baselineOf, missingOf, EMPTY_BASELINE } from "../../../src/upgrade/baseline.ts";

const gateway = "7d4f0c1e-3b5a-4a52-9d0a-0f3c5d6e7f80";
const answers: Answers = {
  status: {
    version: "0.1.0",
    build: "20261121-183000.abc",
    node: {},
    session: { state: "online", heartbeatAt: 5 },
    documents: { node: { version: 3 }, domain: { version: 2 } },
    sections: { connectors: { state: "converged", version: 3 }, exec: { state: "failed", version: 3 } },
  },
  connectors: {
    connectors: [
      { id: "c1", state: "listening" },
      { id: "c2", state: "failed" },
    ],
  },
  services: {
    services: [
      { id: "s1", state: "offered", health: { state: "up" } },
      { id: "s2", state: "offered", health: { state: "down" } },
      { id: "s3", state: "offered" },
    ],
  },
  gateways: { gateways: [{ uid: gateway, name: "g", paths: [{ id: "", state: "up" }] }] },
  containers: {
    containers: [
      { id: "k1", type: "service", enabled: true, state: "running" },
      { id: "k2", type: "service", enabled: true, state: "running", health: "unhealthy" },
      { id: "k3", type: "recurring", enabled: true, state: "running" },
      { id: "k4", type: "service", enabled: false, state: "idle" },
    ],
  },
  targets: undefined,
};
const baseline = baselineOf(viewOf(answers), { session: "wss://cp", pins: [] });

test("keeps only what worked", () => {
  expect(baseline).toEqual({
    isRegistered: true,
    hasSession: true,
    controlPlane: { session: "wss://cp", pins: [] },
    documents: { node: 3, domain: 2 },
    sections: { connectors: 3 },
    connectors: ["c1"],
    services: ["s1", "s3"],
    gateways: [gateway],
    containers: ["k1"],
  });
  expect(Baseline.parse(JSON.parse(JSON.stringify(baseline)))).toEqual(baseline);
});

test("misses nothing when the same works, or when nothing worked", () => {
  const nothing = { local: [], gateways: [] };
  expect(missingOf(baseline, viewOf(answers))).toEqual(nothing);
  expect(missingOf(EMPTY_BASELINE, viewOf({ ...answers, connectors: undefined }))).toEqual(nothing);
});

const { status } = answers;
const changes: readonly (readonly [string, Partial<Answers>, readonly string[]])[] = [
  ["a connector fails", { connectors: { connectors: [{ id: "c1", state: "failed" }] } }, ["connector c1"]],
  [
    "a state that nobody knows yet",
    { connectors: { connectors: [{ id: "c1", state: "sleeping" }] } },
    ["connector c1"],
  ],
  ["connectors are not told of", { connectors: undefined }, ["connector c1"]],
  ["services are gone", { services: { services: [] } }, ["service s1", "service s3"]],
  ["a container stopped", { containers: { containers: [] } }, ["container k1"]],
  [
    "a section failed",
    { status: { ...status, sections: { connectors: { state: "failed", version: 3 } } } },
    ["section connectors"],
  ],
  ["a section is gone", { status: { ...status, sections: {} } }, ["section connectors"]],
  ["the registration is lost", { status: { ...status, node: null } }, ["the registration"]],
  ["a gateway is not known any more", { gateways: { gateways: [] } }, [`gateway ${gateway}`]],
];

test.each(changes)("%s", (_what, change, local) => {
  expect(missingOf(baseline, viewOf({ ...answers, ...change }))).toEqual({ local, gateways: [] });
});

test("a gateway may be down by itself", () => {
  const down = { gateways: [{ uid: gateway, name: "g", paths: [{ id: "", state: "down" }] }] };
  expect(missingOf(baseline, viewOf({ ...answers, gateways: down }))).toEqual({
    local: [],
    gateways: [{ name: gateway, paths: [] }],
  });
});

test("does not miss what a newer document removed, and misses what it broke", () => {
  const documents = { node: { version: 4 }, domain: { version: 2 } };
  const sections = { connectors: { state: "failed", version: 4 } };
  const newer = { ...answers, status: { ...status, documents, sections } };
  const gone = { connectors: { connectors: [] }, services: { services: [] }, containers: { containers: [] } };
  expect(missingOf(baseline, viewOf({ ...newer, ...gone, gateways: { gateways: [] } }))).toEqual({
    local: [],
    gateways: [],
  });
  const failing = { connectors: { connectors: [{ id: "c1", state: "failed" }] } };
  expect(missingOf(baseline, viewOf({ ...newer, ...failing })).local).toEqual(["connector c1"]);
});

test("does not miss what is off with an INACTIVE node, unless its document is the same", () => {
  const off = {
    connectors: { connectors: [{ id: "c1", state: "off" }] },
    services: { services: ["s1", "s3"].map((id) => ({ id, state: "off" })) },
    containers: { containers: [{ id: "k1", type: "service", enabled: true, state: "idle" }] },
  };
  const documents = { node: { version: 4 }, domain: { version: 2 } };
  expect(missingOf(baseline, viewOf({ ...answers, ...off, status: { ...status, documents } })).local).toEqual([]);
  const missing = ["connector c1", "service s1", "service s3", "container k1"];
  expect(missingOf(baseline, viewOf({ ...answers, ...off })).local).toEqual(missing);
  const crashing = { containers: { containers: [{ id: "k1", type: "service", enabled: true, state: "backoff" }] } };
  const newer = { ...answers, ...crashing, status: { ...status, documents } };
  expect(missingOf(baseline, viewOf(newer)).local).toEqual(["container k1"]);
});

test("fits into a mark, with any number of working items", () => {
  const many = Array.from({ length: 20_000 }, (_, i) => `${"x".repeat(240)}${i}`);
  const connectors = { connectors: many.map((id) => ({ id, state: "listening" })) };
  const services = { services: many.map((id) => ({ id, state: "offered" })) };
  const large = baselineOf(viewOf({ ...answers, connectors, services }), undefined);
  expect(JSON.stringify(large).length).toBeLessThanOrEqual(200_000);
  expect(large.connectors.length).toBeGreaterThan(100);
  expect(Baseline.safeParse(large).success).toBe(true);
});
