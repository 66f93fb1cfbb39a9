import { DatabaseSync } from "node:sqlite";
import { isDeepStrictEqual } from "node:util";
import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { domainReader } from "../../../../src/protocol/documents/domain-view.ts";
import { listSections, type SectionDeps } from "../../../../src/agent/wiring/sections.ts";
import { EMPTY_RECORD } from "../../../../src/host/network/state/record.ts";
import { Issue } from "../../../../src/protocol/documents/reconcile.ts";
import { systemClock } from "../../../../src/host/clock.ts";
import { hostFiles } from "../../../../src/host/files/files.ts";
import { Overlay } from "../../../../src/host/overlay/client.ts";
import { hostReader } from "../../../../src/host/reader.ts";
import { pino } from "pino";
import { reconciler } from "../../../../src/agent/reconcile/section.ts";
import { SectionName } from "../../../../src/protocol/sections/sections.ts";
import { execDisturbances, execSubject, rawExecs } from "../../../support/containers/exec-arbitraries.ts";
import { ModelEngine } from "../../../support/containers/model-engine.ts";
import { Supervisor } from "../../../../src/agent/containers/supervision/supervisor.ts";
import { Ledger } from "../../../../src/agent/containers/model/ledger.ts";
import { aGatewayActual, gatewayOver, rawGateways } from "../../../support/overlay/gateway-model.ts";
import { modelOverlay, rawSections, sectionsOver } from "../../../support/overlay/l4-model.ts";
import { aMachine, countOurs, networkOver, rawNetworks } from "../../../support/network/network-section.ts";
import { runs } from "../../../support/sample.ts";
import { nodeDocument } from "../../../support/control-plane/signing.ts";
import { contract, type Subject } from "../../../support/reconcile/section-contract.ts";

type RawSections = typeof l4.raws extends fc.Arbitrary<infer T> ? T : never;
const forever = new AbortController().signal;

/** Dependencies come first: links before tunnels, services before the connectors that refer to them. */
const ORDER: readonly SectionName[] = [
  "core",
  "jvm",
  "network",
  "dns",
  "gateway",
  "vpn",
  "services",
  "connectors",
  "exec",
  "_bgp",
  "snmp",
  "apigw",
  "cluster",
  "alert",
];

/** Configurations, and states of the overlay left by other programs or an earlier version. */
const l4 = { raws: rawSections([8080, 8081, 8082]), disturbances: rawSections([8080, 8083]) };

/** One of the overlay's sections over a model of the overlay. */
function overlaySubject(name: "services" | "connectors"): Subject<RawSections> {
  const overlay = modelOverlay();
  const { services, connectors } = sectionsOver(overlay);
  return {
    section: name === "services" ? reconciler(services) : reconciler(connectors),
    async disturb(raw) {
      const other = modelOverlay();
      const { services, connectors } = sectionsOver(other);
      for (const step of services.plan(services.parse(raw.services).desired, await services.observe(forever)))
        await services.apply(step, forever);
      for (const step of connectors.plan(connectors.parse(raw.connectors).desired, await connectors.observe(forever)))
        await connectors.apply(step, forever);
      overlay.become(other.view());
    },
    count: () => (name === "services" ? overlay.view().services.size : overlay.view().listeners.size),
  };
}

/** The gateway's section over the same model, in a domain of some peers; the state without a section is not its own. */
function gatewaySubject(): Subject<unknown> {
  const overlay = modelOverlay();
  const section = gatewayOver(overlay);
  const byDefault = section.plan(section.parse(undefined).desired, aGatewayActual()).at(-1)?.mesh;
  return {
    section: reconciler(section),
    async disturb(raw) {
      const steps = section.plan(section.parse(raw).desired, aGatewayActual());
      await overlay.change({ mesh: steps.at(-1)?.mesh });
    },
    count: () => (isDeepStrictEqual(overlay.view().mesh, byDefault) ? 0 : 1),
  };
}

/** The network's section over a model of the kernel; the remains of an agent that has lost its records are a disturbance. */
function networkSubject(): Subject<unknown> {
  const model = aMachine();
  const notes = { record: EMPTY_RECORD };
  return {
    section: reconciler(networkOver(model, undefined, notes)),
    async disturb(raw) {
      const section = networkOver(model);
      const { desired, isUnusable = false } = section.parse(raw);
      if (isUnusable) return;
      for (const step of section.plan(desired, await section.observe(forever, desired)))
        await section.apply(step, forever);
    },
    count: () => countOurs(model.state(), notes),
  };
}

/** The contract test of each section, by its name. */
const contracts: ReadonlyMap<string, () => void> = new Map([
  ...(["services", "connectors"] as const).map(
    (name) =>
      [
        name,
        () =>
          contract(name, () => overlaySubject(name), {
            raws: l4.raws.map((config) => config[name]),
            disturbances: l4.disturbances,
          }),
      ] as const,
  ),
  [
    "network",
    () => contract("network", networkSubject, { raws: rawNetworks(), disturbances: rawNetworks(), numRuns: runs(300) }),
  ],
  [
    "exec",
    () => contract("exec", execSubject, { raws: rawExecs(), disturbances: execDisturbances, numRuns: runs(30) }),
  ] as const,
  ["gateway", () => contract("gateway", gatewaySubject, { raws: rawGateways(), disturbances: rawGateways() })] as const,
]);

const nothing = (): void => undefined;
const nowhere = (): Promise<never> => Promise.reject(new Error("nothing here asks it"));
// Nothing here calls it.
const overlay = new Overlay({
  clock: systemClock(),
  log: pino({ level: "silent" }),
  files: hostFiles(),
  stateDir: "/nonexistent",
  runDir: "/nonexistent",
  onChanged: nothing,
  onFlows: nothing,
  onFault: nothing,
  onHealth: nothing,
  onMended: nothing,
});
const deps: SectionDeps = {
  profile: "appliance",
  overlay,
  documents: { current: {} },
  domain: domainReader(),
  reader: hostReader(),
  network: {
    driver: aMachine(),
    record: { load: () => Promise.resolve(EMPTY_RECORD), save: () => Promise.resolve() },
    carrier: () => undefined,
    unsupported: () => undefined,
  },
  exec: {
    supervisor: new Supervisor({
      ledger: new Ledger(new DatabaseSync(":memory:")),
      clock: systemClock(),
      log: pino({ level: "silent" }),
      owner: () => "",
      nonce: () => "",
      afterStart: nowhere,
      credential: nowhere,
      open: () => new ModelEngine(),
      space: () => undefined,
      ensureNetwork: nowhere,
      requestPass: nothing,
      onRefused: nothing,
    }),
    surroundings: nowhere,
    settleVolumes: nowhere,
    unsupported: () => undefined,
  },
};
const sections = listSections(deps);
const names = sections.map(({ name }) => name);

test("the order has every section", () => {
  expect([...ORDER].sort()).toEqual([...SectionName.options].sort());
});

test("names each section once, by its key in documents, in the order of their dependencies", () => {
  expect(names).toEqual(ORDER.filter((name) => names.includes(name)));
});

test("the rules of a path's local address stay while the overlay is not connected, as at the start of an agent", async () => {
  const path = { id: "second", node: "gw1", host: "203.0.113.1", port: 443, local: "10.1.0.1" };
  const off = { ...path, id: "off", local: "10.1.0.9", enabled: false };
  const body = nodeDocument({ config: { gateway: { paths: [path, off] } } });
  const node = { version: 1, sub: body.uid, receivedAt: 1, body, passedOver: [] };
  const [network] = listSections({ ...deps, documents: { current: { node } } });
  const wan = { nic: "eth0", ip: "198.51.100.10/24", gateway: "198.51.100.1" };
  const second = { nic: "eth1", ip: "10.1.0.1/24", addIps: ["10.1.0.9/24"], gateway: "10.1.0.254" };
  const view = await network?.prepare({ interfaces: [wan, second] }).observe(forever);
  const planned = JSON.stringify(view?.steps);
  expect(planned).toContain("rule add priority 5301 from 10.1.0.1/32 table 200002");
  expect(planned).not.toContain("from 10.1.0.9/32");
});

test("each has a contract", () => {
  expect([...contracts.keys()].sort()).toEqual([...names].sort());
});

for (const run of contracts.values()) run();

describe.each(sections.map((section) => [section.name, section] as const))("%s", (name, section) => {
  test("never throws, for any document", () => {
    fc.assert(
      fc.property(fc.jsonValue({ maxDepth: 4 }), (raw) => {
        for (const issue of section.prepare(raw).rejected)
          expect(Issue.parse(issue).path.split(".", 1)).toEqual([name]);
      }),
    );
  });
});
