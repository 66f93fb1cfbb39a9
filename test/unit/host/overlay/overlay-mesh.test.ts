import { expect, test } from "vitest";
import { HostError } from "../../../../src/errors.ts";
import type { MeshStanding } from "../../../../src/host/overlay/client.ts";
import { RemoteError } from "../../../../src/protocol/channel/rpc.ts";
import { aMesh, aMeshState, anIdentity } from "../../../support/overlay/mesh.ts";
import { aListener, aService } from "../../../support/overlay/overlay-rig.ts";
import { friendly, NO_TABLE, ownerRig, scriptedOverlay, type Scripted } from "../../../support/network/owner-rig.ts";
import { waitFor } from "../../../support/wait-for.ts";

const forever = new AbortController().signal;

/** An overlay with these other nodes. */
function meshed(method: string): Scripted {
  switch (method) {
    case "mesh.get":
      return { result: aMeshState() };
    case "identity.set":
    case "mesh.wake":
    case "perf.cancel":
      return { result: {} };
    default:
      return friendly(method);
  }
}

/** An overlay of the previous version, which supports none of the calls. */
function older(method: string): Scripted {
  const isKnown = ["table.set", "table.get", "counters.get", "drain"].includes(method);
  return isKnown ? friendly(method) : { error: { code: -32_601, message: `no method ${method}` } };
}

const unreachable = aListener(1, { peer: aMesh().peers[0]?.uid ?? "", service: "web" });
const local = aListener(2, 9);

test("the mesh is written into the table, kept by other edits, and removed again", async () => {
  const rig = ownerRig();
  const overlay = await scriptedOverlay(rig.runDir);
  overlay.answer = meshed;
  const tables = (): unknown[] =>
    overlay.calls.flatMap(({ method, params }) => (method === "table.set" ? [params["table"]] : []));
  await rig.owner.change({ mesh: aMesh() }, forever);
  await rig.owner.change({ services: { put: [aService("web", 80)], drop: [] } }, forever);
  expect(rig.owner.view.mesh).toEqual(aMesh());
  await rig.owner.change({ mesh: undefined }, forever);
  expect(tables()).toMatchObject([
    { format: 2, mesh: aMesh() },
    { format: 2, mesh: aMesh(), services: [{ name: "web" }] },
    { format: 1, services: [{ name: "web" }] },
  ]);
  expect(tables().at(-1)).not.toHaveProperty("mesh");
  expect([rig.owner.view.mesh, rig.owner.view.standing]).toEqual([undefined, undefined]);
});

test("only a target on another node needs the newer form of the table", async () => {
  const rig = ownerRig();
  const overlay = await scriptedOverlay(rig.runDir);
  overlay.answer = meshed;
  await rig.owner.change({ listeners: { put: [local], drop: [] } }, forever);
  await rig.owner.change({ listeners: { put: [unreachable], drop: [] } }, forever);
  const formats = overlay.calls.flatMap(({ method, params }) => (method === "table.set" ? [params["table"]] : []));
  expect(formats).toMatchObject([{ format: 1 }, { format: 2 }]);
});

test("reads the overlay's answer on other nodes", async () => {
  const rig = ownerRig();
  const overlay = await scriptedOverlay(rig.runDir);
  const table = { format: 2, version: 7, services: [], listeners: [], mesh: aMesh() };
  overlay.answer = (method) =>
    method === "table.get" ? { result: { ...NO_TABLE, version: 7, hash: "77", table } } : meshed(method);
  const { mesh, standing } = await rig.owner.observe(forever).then(() => rig.owner.view);
  expect(mesh).toEqual(aMesh());
  expect(standing?.paths).toMatchObject([{ state: "up", carries: true }]);
});

test("sends the key on every connection, before any table", async () => {
  const rig = ownerRig();
  const overlay = await scriptedOverlay(rig.runDir);
  overlay.answer = meshed;
  await rig.owner.identify(anIdentity(), forever);
  expect(overlay.calls).toEqual([]);
  await rig.owner.change({ mesh: aMesh() }, forever);
  const methods = (): string[] => overlay.calls.map(({ method }) => method);
  expect(methods()).toEqual(["counters.get", "identity.set", "table.get", "table.set", "mesh.get"]);
  expect(overlay.calls[1]?.params).toEqual(anIdentity());
  overlay.notify("draining", { hasSuccessor: true });
  await waitFor("it is reported", () => rig.owner.status().state === "down");
  await rig.owner.observe(forever);
  expect(methods().filter((method) => method === "identity.set")).toHaveLength(2);
  await rig.owner.identify({ ...anIdentity(), uid: "01890000-0000-7000-8000-00000000000a" }, forever);
  expect(overlay.calls.at(-1)).toMatchObject({ method: "identity.set" });
});

test("an overlay that refuses the key serves what needs none", async () => {
  const rig = ownerRig();
  const overlay = await scriptedOverlay(rig.runDir);
  overlay.answer = (method) =>
    method === "identity.set"
      ? { error: { code: -32_013, message: "the disk refuses", data: { code: "storage-unavailable" } } }
      : meshed(method);
  await rig.owner.identify(anIdentity(), forever);
  await rig.owner.change({ listeners: { put: [local], drop: [] } }, forever);
  expect(rig.owner.view.listeners.size).toBe(1);
  expect(rig.faults).toEqual(["the overlay refuses this node's key: the disk refuses"]);
});

test("reports an overlay of the previous version, which continues with what it supports", async () => {
  const rig = ownerRig();
  const overlay = await scriptedOverlay(rig.runDir);
  overlay.answer = older;
  await rig.owner.identify(anIdentity(), forever);
  const refused = (work: Promise<unknown>): Promise<string> =>
    work.then(
      () => "nothing was wrong",
      (error: unknown) => (error instanceof HostError ? error.code : String(error)),
    );
  expect(await refused(rig.owner.change({ mesh: aMesh() }, forever))).toBe("overlay-older");
  const both = { listeners: { put: [unreachable, local], drop: [] } };
  expect(await refused(rig.owner.change(both, forever))).toBe("overlay-older");
  expect([...rig.owner.view.listeners.keys()]).toEqual([local.key]);
  expect(overlay.calls.findLast(({ method }) => method === "table.set")?.params).toMatchObject({
    table: { format: 1, listeners: [{ key: local.key }] },
  });
  expect(await refused(rig.owner.mesh(forever))).toBe("overlay-older");
  rig.owner.wake();
  expect(await refused(rig.owner.change({ mesh: undefined }, forever))).toBe("nothing was wrong");
  expect(overlay.calls.some(({ method }) => method === "mesh.wake")).toBe(false);
});

test("passes on events of other nodes; only a changed gateway triggers the sections", async () => {
  const standings: (MeshStanding | undefined)[] = [];
  const kinds: string[] = [];
  const times: number[] = [];
  const rig = ownerRig({
    onMesh: (standing) => void standings.push(standing),
    onMeshEvents: (events) => void kinds.push(...events.map(({ kind }) => kind)),
    onRtt: (buckets) => void times.push(...buckets.map(({ time }) => time)),
  });
  const overlay = await scriptedOverlay(rig.runDir);
  overlay.answer = meshed;
  await rig.owner.change({ mesh: aMesh() }, forever);
  const { sessions: _sessions, ...state } = aMeshState();
  const gateway = aMesh().paths[0]?.gateway ?? "";
  overlay.notify("mesh.changed", { ...state, paths: [] });
  const failed = { ...state.server, state: "failed", reason: "address-in-use" };
  overlay.notify("mesh.changed", { ...state, server: failed });
  overlay.notify("mesh.events", { events: [{ kind: "path-lost", at: 1, gateway, path: "", cause: "reset" }] });
  const rtt = { gateway, path: "", numRtt: 3, answered: 3, minRtt: 1, maxRtt: 2, meanRtt: 1.5, stdRtt: 0.5 };
  overlay.notify("rtt.closed", { buckets: [{ ...rtt, time: 60_000 }] });
  await waitFor("all has come", () => times.length === 1);
  expect([rig.changes, kinds]).toEqual([["gateway"], ["path-lost"]]);
  expect(standings.map((standing) => standing?.server.state)).toEqual(["off", "off", "failed"]);
  overlay.notify("draining", {});
  await waitFor("it is reported", () => standings.length === 4);
  expect(standings.at(-1)).toBeUndefined();
});

test("an echo and an upload return their answers, and an aborted upload is cancelled", async () => {
  const rig = ownerRig();
  const overlay = await scriptedOverlay(rig.runDir);
  const way = { gateway: aMesh().paths[0]?.gateway, path: "" };
  const peer = aMesh().peers[0]?.uid ?? "";
  overlay.answer = (method, params) => {
    if (method === "echo") {
      return params["bytes"] === 64
        ? { result: { rttMs: 12.5, ...way } }
        : { error: { code: -32_007, message: "no answer", data: { code: "timeout" } } };
    }
    if (method === "perf.run") {
      overlay.notify("perf.progress", { id: params["id"], bytes: 5, lost: 1 });
      return params["bytes"] === 10 ? { result: { bytes: 10, ms: 3, ...way } } : "hang";
    }
    return meshed(method);
  };
  await expect(rig.owner.echo({ peer, bytes: 64, timeoutMs: 500 }, forever)).rejects.toMatchObject({
    code: "overlay-absent",
  });
  await rig.owner.observe(forever);
  expect(await rig.owner.echo({ peer, bytes: 64, timeoutMs: 500 }, forever)).toEqual({ rttMs: 12.5, ...way });
  const late = rig.owner.echo({ peer, bytes: 65, timeoutMs: 500 }, forever);
  await expect(late).rejects.toThrow(RemoteError);
  await expect(late).rejects.toMatchObject({ code: "timeout" });
  const upload = { peer, messageBytes: 5, windowBytes: 2048 };
  const seen: unknown[] = [];
  const answer = await rig.owner.perf({ ...upload, bytes: 10 }, (at) => void seen.push(at), forever);
  expect([answer.bytes, seen]).toEqual([10, [{ bytes: 5, lost: 1 }]]);
  const patience = new AbortController();
  const hanging = rig.owner.perf({ ...upload, bytes: 20 }, () => patience.abort(), patience.signal);
  await expect(hanging).rejects.toBeDefined();
  await waitFor("it is cancelled", () => overlay.calls.some(({ method }) => method === "perf.cancel"));
});

test("passes on a changed network if there are paths", async () => {
  const rig = ownerRig();
  const overlay = await scriptedOverlay(rig.runDir);
  overlay.answer = meshed;
  rig.owner.wake();
  await rig.owner.change({ listeners: { put: [local], drop: [] } }, forever);
  rig.owner.wake();
  await rig.owner.change({ mesh: aMesh() }, forever);
  rig.owner.wake();
  await waitFor("it is reported", () => overlay.calls.at(-1)?.method === "mesh.wake");
  expect(overlay.calls.filter(({ method }) => method === "mesh.wake")).toHaveLength(1);
});
