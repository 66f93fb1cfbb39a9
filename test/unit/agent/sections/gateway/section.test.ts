import { describe, expect, test } from "vitest";
import { reconciler } from "../../../../../src/agent/reconcile/section.ts";
import { whyOf } from "../../../../../src/agent/reconcile/section-status.ts";
import type { GatewayActual } from "../../../../../src/agent/sections/gateway/plan.ts";
import { connectorsSection } from "../../../../../src/agent/sections/connectors/section.ts";
import { aDomain, aGatewayActual, gatewayOver } from "../../../../support/overlay/gateway-model.ts";
import { modelOverlay } from "../../../../support/overlay/l4-model.ts";
import { aMesh, aMeshState, anIdentity, aPeer, keyOf, uidOf } from "../../../../support/overlay/mesh.ts";
import {
  friendly,
  NO_TABLE,
  ownerRig,
  scriptedOverlay,
  type Scripted,
  type ScriptedOverlay,
} from "../../../../support/network/owner-rig.ts";
import { waitFor } from "../../../../support/wait-for.ts";
import { engineRig } from "../../reconcile/rig.ts";

const CONNECTORS = {
  version: 2,
  items: {
    far: { node: "branch", service: "web", protocol: "tcp", port: 8080 },
    near: { node: "local", service: "web", protocol: "tcp", port: 8081 },
  },
};

/** Both sections over an overlay, in surroundings that the test changes. */
function rigOver(overlay: Parameters<typeof gatewayOver>[0]) {
  let actual = aGatewayActual();
  const gateway = gatewayOver(overlay, () => actual);
  const connectors = connectorsSection({
    overlay,
    addresses: () => new Map([["lo", ["127.0.0.1"]]]),
    nodeType: () => "Node",
    isHere: (node) => node === "local",
    peers: () => actual.domain,
  });
  const rig = engineRig([reconciler(gateway), reconciler(connectors)]);
  rig.engine.start();
  return {
    ...rig,
    /** Replaces the documents from now on. */
    async surround(more: Partial<GatewayActual>): Promise<void> {
      actual = { ...actual, ...more };
      rig.engine.reevaluate("documents");
      await rig.engine.idle();
    },
  };
}

describe("the section gateway at work", () => {
  function modelRig() {
    const overlay = modelOverlay();
    return { ...rigOver(overlay), overlay };
  }

  test("is applied without being written, follows the domain's document, and counts no drift for it", async () => {
    const rig = modelRig();
    await rig.want({});
    expect(rig.overlay.view().mesh?.paths).toHaveLength(2);
    expect(rig.standing("gateway")).toMatchObject({ outcome: { state: "converged" } });
    await rig.surround({ domain: aDomain([aPeer(2, "gw1", { key: keyOf("z") }), aPeer(4, "branch")]) });
    expect(rig.overlay.view().mesh?.paths).toHaveLength(1);
    expect(rig.overlay.view().mesh?.peers[0]?.key).toBe(keyOf("z"));
    await rig.surround({ isActive: false });
    expect(rig.overlay.view().mesh).toBeUndefined();
    await rig.surround({ isActive: true });
    expect(rig.overlay.view().mesh?.paths).toHaveLength(1);
    expect(rig.standing("gateway")?.drift.count).toBe(0);
  });

  test("is reverted when another program changed it, which counts as drift", async () => {
    const rig = modelRig();
    await rig.want({});
    const before = rig.overlay.view().mesh;
    rig.overlay.become({ ...rig.overlay.view(), mesh: aMesh({ paths: [] }) });
    await rig.surround({});
    expect(rig.overlay.view().mesh).toEqual(before);
    expect(rig.standing("gateway")?.drift).toMatchObject({ count: 1 });
  });

  test("changes nothing when it is the same again, in any order", async () => {
    const rig = modelRig();
    await rig.want({});
    const changes = rig.overlay.changes();
    await rig.surround({ domain: aDomain([aPeer(4, "branch"), aPeer(3, "gw2"), aPeer(2, "gw1")]) });
    expect(rig.overlay.changes()).toBe(changes);
  });

  test("keeps its state when the section is malformed, and reports it", async () => {
    const rig = modelRig();
    await rig.want({ gateway: { enabled: true, type: "public", host: "192.0.2.9", port: 8443 } });
    const before = rig.overlay.view().mesh;
    expect(before?.server?.port).toBe(8443);
    await rig.want({ gateway: [] });
    expect(rig.overlay.view().mesh).toEqual(before);
    expect(rig.standing("gateway")).toMatchObject({ outcome: { state: "rejected" } });
    await rig.want({ gateway: { enabled: true, type: "public", host: "192.0.2.9", port: 0 } });
    expect(rig.overlay.view().mesh).toEqual(before);
    expect(whyOf(rig.engine.standings)).toMatchObject([{ section: "gateway", item: "gateway.port" }]);
    await rig.want({});
    expect(rig.overlay.view().mesh?.server).toBeUndefined();
  });

  test("and connectors to other nodes wait for the node to be known, and close when it is removed", async () => {
    const rig = modelRig();
    await rig.want({ connectors: CONNECTORS });
    const targets = () => [...rig.overlay.view().listeners.values()].map(({ target }) => target);
    expect(targets()).toEqual([{ peer: uidOf(4), service: "web" }, { service: "web" }]);
    await rig.surround({ domain: aDomain([aPeer(2, "gw1")]) });
    expect(targets()).toEqual([{ service: "web" }]);
    expect(whyOf(rig.engine.standings)).toMatchObject([
      { section: "connectors", item: "connectors.items.far.node", code: "unknown-node" },
    ]);
    await rig.surround({ domain: aDomain([aPeer(2, "gw1")], [], ["branch"]) });
    const text = "clusters cannot be destinations yet (unsupported: clusters): name one of its members";
    expect(whyOf(rig.engine.standings)).toMatchObject([
      {
        section: "connectors",
        item: "connectors.items.far.node",
        code: "unsupported",
        message: `connectors.items.far.node: branch is a cluster, and ${text}`,
      },
    ]);
    await rig.surround({ domain: aDomain() });
    expect(targets()).toHaveLength(2);
    expect(rig.standing("connectors")?.drift.count).toBe(0);
  });
});

/** An overlay that stores its table and otherwise answers only `more`. */
function keeping(overlay: ScriptedOverlay, more: (method: string) => Scripted | undefined): () => object | undefined {
  let table: object | undefined;
  overlay.answer = (method, params) => {
    const answer = more(method);
    if (answer !== undefined) return answer;
    if (method === "table.set") table = Object(params["table"]) as object;
    return method === "table.get" && table !== undefined
      ? { result: { ...NO_TABLE, version: 1, hash: "00", table } }
      : friendly(method);
  };
  return () => table;
}

describe("over the control socket", () => {
  test("applies the whole table with one call, and retries a server that cannot listen", async () => {
    const owner = ownerRig({ onChanged: () => rig.engine.reevaluate("overlay") });
    const rig = rigOver(owner.owner);
    const overlay = await scriptedOverlay(owner.runDir);
    const { server, ...state } = aMeshState();
    const failed = { ...server, state: "failed", reason: "address-in-use", message: "port 8443 is taken" };
    let standing: object = failed;
    keeping(overlay, (method) => (method === "mesh.get" ? { result: { ...state, server: standing } } : undefined));
    await owner.owner.identify(anIdentity(), new AbortController().signal);
    await rig.want({ gateway: { enabled: true, type: "public", host: "192.0.2.9", port: 8443 } });
    expect(overlay.calls.filter(({ method }) => method === "table.set")).toMatchObject([
      { params: { table: { format: 2, mesh: { server: { port: 8443 }, paths: [{}, {}], peers: [{}, {}, {}] } } } },
    ]);
    expect(whyOf(rig.engine.standings)).toMatchObject([{ item: "gateway.port", code: "address-in-use" }]);
    standing = { ...server, state: "listening" };
    const { sessions: _sessions, ...rest } = { ...state };
    overlay.notify("mesh.changed", { ...rest, server: standing });
    await waitFor("it listens", () => whyOf(rig.engine.standings).length === 0);
  });

  test("names an overlay of the previous version, and serves what leads to this node", async () => {
    const owner = ownerRig();
    const rig = rigOver(owner.owner);
    const overlay = await scriptedOverlay(owner.runDir);
    const isNew = (method: string): boolean => method === "identity.set" || method.startsWith("mesh.");
    const table = keeping(overlay, (method) =>
      isNew(method) ? { error: { code: -32_601, message: `no method ${method}` } } : undefined,
    );
    await owner.owner.identify(anIdentity(), new AbortController().signal);
    await rig.want({ connectors: CONNECTORS });
    const codes = whyOf(rig.engine.standings).map(({ section, code }) => `${section} ${code}`);
    expect(codes).toEqual(["gateway overlay-older", "connectors overlay-older"]);
    expect([...owner.owner.view.listeners.values()].map(({ connector }) => connector)).toEqual(["near"]);
    expect(table()).toMatchObject({ format: 1, listeners: [{ connector: "near" }] });
  });
});
