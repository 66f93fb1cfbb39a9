import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { reconciler } from "../../../../src/agent/reconcile/section.ts";
import { whyOf } from "../../../../src/agent/reconcile/section-status.ts";
import { planConnectors } from "../../../../src/agent/sections/connectors/plan.ts";
import { planServices } from "../../../../src/agent/sections/services/plan.ts";
import { OverlayTable } from "../../../../src/protocol/overlay/overlay.ts";
import { upgradeToV2 } from "../../../../src/protocol/sections/common/forms.ts";
import type { JsonObject, NodeType } from "../../../../src/protocol/values/values.ts";
import { modelOverlay, rawSections, sectionsOver } from "../../../support/overlay/l4-model.ts";
import { aClient, aServer, echo } from "../../../support/overlay/overlay-rig.ts";
import { ownerRig } from "../../../support/network/owner-rig.ts";
import { freePort } from "../../../support/machine/programs.ts";
import { runs } from "../../../support/sample.ts";
import { waitFor } from "../../../support/wait-for.ts";
import { engineRig } from "../reconcile/rig.ts";

const forever = new AbortController().signal;

/** An engine with both sections over the model. */
function modelRig(nodeType?: NodeType) {
  const overlay = modelOverlay();
  const { services, connectors } = sectionsOver(overlay, nodeType);
  const rig = engineRig([reconciler(services), reconciler(connectors)]);
  rig.engine.start();
  return { ...rig, overlay };
}

const connector = { node: "local", service: "web", protocol: "tcp", port: 8080 };
const service = { name: "web", protocol: "tcp", host: "127.0.0.1", port: 9000 };
const v2 = (items: JsonObject) => ({ version: 2, items });

describe("the sections of the overlay", () => {
  test("an upgrade to V2 renames and changes nothing else", async () => {
    const rig = modelRig();
    const services = { services: [{ id: "s", ...service }] };
    const connectors = {
      connectors: [
        { id: "a", ...connector },
        { id: "b", ...connector, port: 8081, nic: "two" },
      ],
    };
    await rig.want({ services, connectors });
    const before = [...rig.overlay.view().listeners.keys()];
    let ids = 0;
    const newId = (): string => `new-${(ids += 1)}`;
    const upgraded = {
      services: upgradeToV2("services", services, newId),
      connectors: upgradeToV2("connectors", connectors, newId),
    };
    expect(await rig.engine.preview(upgraded, true, forever)).toMatchObject([
      { section: "services", total: 0 },
      {
        section: "connectors",
        steps: [{ kind: "rename", detail: "tcp 0.0.0.0:8080 (new-2): id a → new-2" }, { kind: "rename" }],
      },
    ]);
    await rig.want(upgraded);
    expect([...rig.overlay.view().listeners.keys()]).toEqual(before);
    expect(rig.standing("connectors")).toMatchObject({ outcome: { state: "converged" }, steps: 2 });
  });

  test("legacy and V2 side by side: each section in its form, and items before a list", async () => {
    const rig = modelRig();
    await rig.want({
      services: { services: [{ id: "s", ...service }] },
      connectors: { ...v2({ a: connector }), connectors: [{ id: "old", ...connector, port: 1 }] },
    });
    expect([...rig.overlay.view().listeners.keys()]).toEqual(["tcp/any/8080"]);
    expect(whyOf(rig.engine.standings)).toMatchObject([{ section: "connectors", code: "E_V1_ON_V2" }]);
  });

  test.each([
    ["another node", { node: "elsewhere" }, "connectors.items.bad.node", "unknown-node"],
    ["a port out of range", { port: 70_000 }, "connectors.items.bad.port", "E_PORT_RANGE"],
    ["a port that another has", { port: 8080 }, "connectors.items.bad.port", "E_PORT_IN_USE"],
    ["sources that are none", { sourceBlock: "10.0.0.0/8," }, "connectors.items.bad.sourceBlock", "E_CIDR_INVALID"],
    ["a link without an address", { nic: "bare" }, "connectors.items.bad.nic", "address-absent"],
    ["a link that is not there", { nic: "none" }, "connectors.items.bad.nic", "address-absent"],
  ])("one invalid connector affects no other: %s", async (_, bad, item, code) => {
    const rig = modelRig();
    await rig.want({ connectors: v2({ a: connector, bad: { ...connector, port: 8081, ...bad } }) });
    expect([...rig.overlay.view().listeners.keys()]).toEqual(["tcp/any/8080"]);
    expect(whyOf(rig.engine.standings)).toMatchObject([{ section: "connectors", item, code }]);
  });

  test.each([
    ["host bits", {}, { sourceBlock: "10.0.0.1/8" }, "connectors", "E_CIDR_HOSTBITS"],
    ["a list beside V2 items", { connectors: [{ id: "old", ...connector }] }, {}, "connectors", "E_V1_ON_V2"],
    ["a cluster's address without a cluster", {}, {}, "services", "E_DEPENDENCY"],
  ])("a deviation from the document is a notice and not an issue: %s", async (_, beside, fields, name, code) => {
    const rig = modelRig();
    const clustered = { ...service, sourceFromClusterIP: true, sourceInterface: "two" };
    await rig.want({
      connectors: { ...v2({ a: { ...connector, ...fields } }), ...beside },
      services: v2({ s: name === "services" ? clustered : service }),
    });
    expect([rig.overlay.view().listeners.size, rig.overlay.view().services.size]).toEqual([1, 1]);
    expect(rig.standing(name)).toMatchObject({ outcome: { state: "converged" }, rejected: 0, issues: [] });
    expect(whyOf(rig.engine.standings)).toMatchObject([{ section: name, code, notice: true }]);
  });

  test("a notice of a disabled item has no effect", async () => {
    const rig = modelRig();
    await rig.want({ connectors: v2({ a: { ...connector, sourceBlock: "10.0.0.1/8", enabled: false } }) });
    expect(whyOf(rig.engine.standings)).toEqual([]);
  });

  test("a service that is down keeps its time until a new overlay has checked it", async () => {
    const rig = modelRig();
    const become = async (state: "up" | "down" | "unknown"): Promise<void> => {
      await rig.clock.advance(500);
      rig.overlay.become({
        ...rig.overlay.view(),
        health: new Map([["web", { name: "web", state, since: rig.clock.now() }]]),
      });
      rig.engine.reevaluate("health");
      await rig.engine.idle();
    };
    const whenDown = (): (readonly [string, number])[] =>
      whyOf(rig.engine.standings).map(({ code, since }) => [code, since]);
    await rig.want({ services: v2({ s: { ...service, healthCheck: {} } }) });
    await become("down");
    const first = whenDown();
    expect(first).toEqual([["service-down", rig.clock.now()]]);
    for (const state of ["unknown", "unknown"] as const) {
      await become(state);
      expect(whenDown()).toEqual([]);
    }
    await become("down");
    expect(whenDown()).toEqual(first);
    await become("up");
    await become("unknown");
    await become("down");
    expect(whenDown()).toEqual([["service-down", rig.clock.now()]]);
  });

  test("an agent ignores sources, and reports it", async () => {
    const rig = modelRig("Agent");
    await rig.want({ connectors: v2({ a: { ...connector, sourceBlock: "10.0.0.0/8" } }) });
    expect(rig.overlay.view().listeners.get("tcp/any/8080")).not.toHaveProperty("sources");
    expect(whyOf(rig.engine.standings)).toMatchObject([{ code: "E_UNSUPPORTED_ON_AGENT", notice: true }]);
  });

  test.each([
    ["no object", 7],
    ["a list", []],
    ["items that are none", { version: 2, items: 7 }],
    ["a legacy list that is none", { connectors: 7, services: 7 }],
  ])("a section that is %s leaves everything unchanged", async (_, damaged) => {
    const rig = modelRig();
    await rig.want({ services: v2({ s: service }), connectors: v2({ a: connector }) });
    await rig.want({ services: damaged, connectors: damaged });
    expect([rig.overlay.view().listeners.size, rig.overlay.view().services.size]).toEqual([1, 1]);
    for (const name of ["services", "connectors"]) expect(rig.standing(name).outcome.state).toBe("rejected");
  });

  test.each([
    ["the section is gone", {}],
    ["it is empty", { services: v2({}), connectors: v2({}) }],
    [
      "it is switched off",
      { services: { enabled: false, ...v2({ s: service }) }, connectors: { enabled: false, ...v2({ a: connector }) } },
    ],
    ["it is null", { services: null, connectors: null }],
  ])("removes everything when %s", async (_, config) => {
    const rig = modelRig();
    await rig.want({ services: v2({ s: service }), connectors: v2({ a: connector }) });
    await rig.want(config);
    expect([rig.overlay.view().listeners.size, rig.overlay.view().services.size]).toEqual([0, 0]);
    expect(whyOf(rig.engine.standings)).toEqual([]);
  });

  test("an inactive node serves nothing, and everything again when active", async () => {
    const rig = modelRig();
    const config = { services: v2({ s: service }), connectors: v2({ a: connector }) };
    await rig.want(config);
    await rig.want(config, false);
    expect([rig.overlay.view().listeners.size, rig.overlay.view().services.size]).toEqual([0, 0]);
    await rig.want(config);
    expect([rig.overlay.view().listeners.size, rig.overlay.view().services.size]).toEqual([1, 1]);
  });

  test("one changed connector of a thousand takes one step", async () => {
    const rig = modelRig();
    const items = Object.fromEntries(
      Array.from({ length: 1000 }, (_, i) => [`c${i}`, { ...connector, port: 10_000 + i }]),
    );
    await rig.want({ connectors: v2(items) });
    expect([rig.standing("connectors").steps, rig.overlay.changes()]).toEqual([1000, 1]);
    await rig.want({ connectors: v2({ ...items, c7: { ...connector, port: 10_007, maxmbps: 5 } }) });
    expect([rig.standing("connectors").steps, rig.overlay.changes()]).toEqual([1, 2]);
  });
});

const PORTS = [8080, 8081, 8082, 8083];

describe("any desired state", () => {
  test("is accepted by the overlay, and the plan is empty once applied, from any start", async () => {
    await fc.assert(
      fc.asyncProperty(rawSections(PORTS), rawSections(PORTS), async (first, second) => {
        const rig = modelRig();
        for (const config of [first, second]) {
          await rig.want(config);
          const { services, listeners } = rig.overlay.view();
          const table = { format: 1, version: 1, services: [...services.values()], listeners: [...listeners.values()] };
          expect(OverlayTable.parse(table)).toEqual(table);
          expect(await rig.engine.preview(config, true, forever)).toMatchObject([{ total: 0 }, { total: 0 }]);
          const changes = rig.overlay.changes();
          await rig.want(structuredClone(config));
          expect(rig.overlay.changes()).toBe(changes);
          expect([rig.standing("services").steps, rig.standing("connectors").steps]).toEqual([0, 0]);
        }
        await rig.engine.close();
      }),
      { numRuns: runs(300) },
    );
  });

  test("gives the same plan step by step, in any order of application", async () => {
    await fc.assert(
      fc.asyncProperty(rawSections(PORTS), rawSections(PORTS), async (first, second) => {
        const overlay = modelOverlay();
        const { services, connectors } = sectionsOver(overlay);
        for (const { services: s, connectors: c } of [first, second]) {
          const [wantedServices, wantedConnectors] = [services.parse(s).desired, connectors.parse(c).desired];
          for (const step of planServices(wantedServices, await services.observe(forever)).toReversed())
            await services.apply(step, forever);
          for (const step of planConnectors(wantedConnectors, await connectors.observe(forever)).toReversed())
            await connectors.apply(step, forever);
          expect(planServices(wantedServices, await services.observe(forever))).toEqual([]);
          expect(planConnectors(wantedConnectors, await connectors.observe(forever))).toEqual([]);
        }
      }),
      { numRuns: runs(200) },
    );
  });

  test("is accepted and kept by the real overlay too", async () => {
    const ports = [await freePort(), await freePort(), await freePort()];
    await fc.assert(
      fc.asyncProperty(fc.array(rawSections(ports), { minLength: 2, maxLength: 4 }), async (configs) => {
        const owner = ownerRig().owner;
        const { services, connectors } = sectionsOver(owner);
        const rig = engineRig([reconciler(services), reconciler(connectors)]);
        rig.engine.start();
        for (const config of configs) {
          await rig.want(config);
          const states = [rig.standing("services").outcome, rig.standing("connectors").outcome].map(
            ({ state }) => state,
          );
          for (const state of states) expect(["converged", "pending", "rejected"]).toContain(state);
          expect(await rig.engine.preview(config, true, forever)).toMatchObject([{ total: 0 }, { total: 0 }]);
          await rig.want(structuredClone(config));
          expect([rig.standing("services").steps, rig.standing("connectors").steps]).toEqual([0, 0]);
        }
        await rig.want({}, true);
        const { listeners, services: left } = await owner.observe(forever);
        expect([listeners.size, left.size]).toEqual([0, 0]);
        await rig.engine.close();
        owner.close();
      }),
      { numRuns: runs(40) },
    );
  });
});

describe("over the real overlay", () => {
  test("finds, counts and reverts what was changed at the overlay itself, and the flow continues", async () => {
    const own = ownerRig();
    const { services, connectors } = sectionsOver(own.owner);
    const rig = engineRig([reconciler(services), reconciler(connectors)]);
    rig.engine.start();
    const [one, two] = [await freePort(), await freePort()];
    const config = {
      services: v2({ s: { ...service, port: await aServer(echo) } }),
      connectors: v2({ a: { ...connector, port: one }, b: { ...connector, port: two } }),
    };
    await rig.want(config);
    const client = aClient(one);
    client.socket.write("before");
    await waitFor("the echo", () => client.text() === "before");
    const stranger = own.another();
    await stranger.change({ listeners: { put: [], drop: [`tcp/any/${two}`] } }, forever);
    stranger.close();
    await waitFor("the overlay is missed", () => own.owner.status().state === "down");
    rig.engine.reevaluate("drift");
    await rig.engine.idle();
    expect(rig.standing("connectors")).toMatchObject({
      outcome: { state: "converged" },
      drift: { count: 1, what: ["listen b"] },
    });
    expect(rig.standing("services").drift.count).toBe(0);
    client.socket.write("+after");
    await waitFor("the echo", () => client.text() === "before+after");
    const other = aClient(two);
    other.socket.write("back");
    await waitFor("the echo", () => other.text() === "back");
  });

  test("`why` names what a listener lacks until it has it", async () => {
    const own = ownerRig();
    const { services, connectors } = sectionsOver(own.owner);
    const rig = engineRig([reconciler(services), reconciler(connectors)]);
    rig.engine.start();
    const port = await freePort();
    const items = { a: { ...connector, port }, udp: { ...connector, protocol: "udp", port } };
    const loop = { ...connector, service: `127.0.0.1:${port}`, port: await freePort() };
    await rig.want({ connectors: v2({ ...items, loop }) });
    const codes = (): Record<string, string> =>
      Object.fromEntries(whyOf(rig.engine.standings).map(({ item = "", code }) => [item, code]));
    expect(codes()).toEqual({
      "connectors.items.a": "unknown-service",
      "connectors.items.udp": "unknown-service",
      "connectors.items.loop": "loop",
    });
    expect(rig.standing("connectors").outcome.state).toBe("pending");
    const web = { ...service, port: await aServer(echo) };
    await rig.want({ services: v2({ s: web }), connectors: v2({ ...items, loop }) });
    expect(codes()).toEqual({ "connectors.items.udp": "protocol-mismatch", "connectors.items.loop": "loop" });
    await rig.want({ services: v2({ s: web }), connectors: v2({ a: items.a }) });
    expect(codes()).toEqual({});
  });

  test("a connector with another address only keeps its flows, and leaves the old address", async () => {
    const own = ownerRig();
    const { services, connectors } = sectionsOver(own.owner);
    const rig = engineRig([reconciler(services), reconciler(connectors)]);
    rig.engine.start();
    const port = await freePort();
    const literal = { ...connector, service: `127.0.0.1:${await aServer(echo)}`, port };
    await rig.want({ connectors: v2({ a: { ...literal, localIp: "127.0.0.1" } }) });
    const flow = aClient(port);
    flow.socket.write("one");
    await waitFor("the echo", () => flow.text() === "one");
    await rig.want({ connectors: v2({ a: { ...literal, nic: "two", maxmbps: 100 } }) });
    expect(rig.standing("connectors")).toMatchObject({ outcome: { state: "converged" }, steps: 1 });
    flow.socket.write("+two");
    await waitFor("the echo", () => flow.text() === "one+two");
    const there = aClient(port, "127.0.0.2");
    there.socket.write("three");
    await waitFor("the echo", () => there.text() === "three");
    const late = aClient(port);
    await waitFor("a fate", () => late.fate() === "ECONNREFUSED");
  });

  test("restores everything desired to an overlay that exits at any moment", async () => {
    const own = ownerRig();
    const { services, connectors } = sectionsOver(own.owner);
    const rig = engineRig([reconciler(services), reconciler(connectors)]);
    rig.engine.start();
    const [one, two] = [await freePort(), await freePort()];
    const web = { s: { ...service, port: await aServer(echo) } };
    await rig.want({ services: v2(web), connectors: v2({ a: { ...connector, port: one } }) });
    own.running[0]?.close();
    await rig.want({
      services: v2(web),
      connectors: v2({ a: { ...connector, port: one }, b: { ...connector, port: two } }),
    });
    for (let tries = 0; tries < 10 && rig.standing("connectors").outcome.state !== "converged"; tries += 1) {
      await rig.clock.advance(60_000);
      await rig.engine.idle();
    }
    expect(rig.standing("connectors").outcome.state).toBe("converged");
    for (const port of [one, two]) {
      const client = aClient(port);
      client.socket.write("back");
      await waitFor("the echo", () => client.text() === "back");
    }
  });
});
