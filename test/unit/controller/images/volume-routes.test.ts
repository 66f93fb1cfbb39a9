import { beforeEach, describe, expect, it } from "vitest";
import { ApiBench, type CallOptions } from "../../../support/control-plane/api-bench.ts";

const DISK = { name: "system", deviceType: "disk", deviceBus: "virtio", size: 2 ** 40, provisionType: "thin" } as const;

let bench: ApiBench;
let uid: string;

beforeEach(async () => {
  bench = await ApiBench.create();
  uid = (await bench.fleet.add({ name: "one" })).uid;
});

const call = (method: string, path = "", options: CallOptions = {}) =>
  bench.call(method, `/v2/node/${uid}/kvm/volume${path}`, options);

describe("volumes of virtual machines", () => {
  it("are records that are added, read, replaced and removed", async () => {
    expect((await call("POST", "", { json: DISK })).json).toEqual(DISK);
    expect((await call("GET")).json).toEqual([DISK]);
    const changed = { name: "system", deviceType: "cdrom", path: "iso/a.iso", encrypted: true };
    expect((await call("PUT", "/system", { json: { ...changed, name: undefined } })).json).toEqual(changed);
    expect((await call("GET", "/system")).json).toEqual(changed);
    expect((await call("DELETE", "/system")).json).toEqual({});
    for (const method of ["GET", "DELETE"]) expect((await call(method, "/system")).status).toBe(404);
    expect((await call("PUT", "/system", { json: DISK })).status).toBe(404);
    expect(await bench.fleet.changes()).toEqual(
      ["added", "changed", "removed"].map((what) => `admin: Machine volume system ${what}`),
    );
  });

  it("have names of their own, and at most 256", async () => {
    await call("POST", "", { json: DISK });
    expect((await call("POST", "", { json: DISK })).json).toEqual(["name: there is a volume system already"]);
    expect((await call("PUT", "/system", { json: { ...DISK, name: "b" } })).json).toEqual([
      "name: must be system; a volume cannot be renamed",
    ]);
    for (let n = 1; n < 256; n += 1) await bench.deps.machineVolumes.add(uid, { ...DISK, name: `v${n}` }, "test");
    expect((await call("POST", "", { json: { ...DISK, name: "more" } })).json).toEqual([
      "body: cannot add a volume: the limit of 256 per node is reached",
    ]);
  });

  it("are of appliances, and go with their node", async () => {
    const laptop = await bench.fleet.add({ name: "laptop", type: "Agent" });
    expect((await bench.call("GET", `/v2/node/${laptop.uid}/kvm/volume`)).status).toBe(422);
    await call("POST", "", { json: DISK });
    await bench.fleet.services.nodes.delete(uid, "test");
    expect(await bench.fleet.store.machineVolumes.ofNode(uid)).toEqual([]);
  });

  it("are for those who may use the data store", async () => {
    const key = await bench.keyFor(["nodes::read", "nodes::manage"]);
    expect((await call("GET", "", { key })).status).toBe(403);
    expect((await call("POST", "", { key, json: DISK })).status).toBe(403);
  });
});
