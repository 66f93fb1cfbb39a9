import { expect, it } from "vitest";
import { containerNetwork } from "../../../../../src/agent/containers/model/container-network.ts";
import type { Engine, NetworkBody, NetworkSummary } from "../../../../../src/host/engine/engine.ts";

const OWNER = "7d1c2f0e-5a1b-4c3d-9e8f-0123456789ab";
const LABELS = { "io.holdfast.owner": OWNER };
const NAME = "holdfast-7d1c2f0e";
const { signal } = new AbortController();

/** An engine with these networks, which records changes. */
function stage(networks: readonly NetworkSummary[], addresses: readonly (readonly [string, readonly string[]])[] = []) {
  const did: string[] = [];
  let subnet = "172.18.0.0/16";
  let there = networks;
  const engine: Pick<Engine, "listNetworks" | "createNetwork" | "removeNetwork"> = {
    listNetworks: () => Promise.resolve(there),
    createNetwork(body: NetworkBody) {
      did.push(`create ${body.name} ${body.subnet}`);
      there = [...there, { id: "new", name: body.name, subnets: [body.subnet], labels: body.labels }];
      return Promise.resolve({ id: "new" });
    },
    removeNetwork(id) {
      did.push(`remove ${id}`);
      there = there.filter((network) => network.id !== id);
      return Promise.resolve();
    },
  };
  const network = containerNetwork({
    owner: () => OWNER,
    subnet: () => subnet,
    gateway: () => "172.18.0.1",
    reserved: () => ({ resolver: "172.18.1.2" }),
    addresses: () => new Map(addresses),
    empty: () => {
      did.push("stop all");
      return Promise.resolve();
    },
  });
  return {
    did,
    ensure: () => network.ensure(engine, signal),
    remove: () => network.remove(engine, signal),
    setSubnet: (value: string) => (subnet = value),
  };
}

const own = (subnet: string, id = "old"): NetworkSummary => ({ id, name: NAME, subnets: [subnet], labels: LABELS });

it("creates the network once, for several concurrent requests", async () => {
  const { did, ensure } = stage([]);
  await Promise.all([ensure(), ensure(), ensure()]);
  expect(did).toStrictEqual([`create ${NAME} 172.18.0.0/16`]);
});

it.each([[[]], [[["eth0", ["172.16.0.9/12"]] as const]]])("keeps an existing one, with %j", async (addresses) => {
  const { did, ensure } = stage([own("172.18.0.0/16")], addresses);
  await ensure();
  expect(did).toStrictEqual([]);
});

it("moves to another range in order", async () => {
  const { did, ensure, setSubnet, remove } = stage([own("172.18.0.0/16")]);
  setSubnet("172.30.0.0/24");
  await ensure();
  expect(did).toStrictEqual(["stop all", "remove old", `create ${NAME} 172.30.0.0/24`]);
  await remove();
  await remove();
  expect(did.slice(3)).toStrictEqual(["remove new"]);
});

it.each([
  ["an address of the machine", [], [["eth0", ["172.30.0.9"]] as const], /eth0 has 172\.30\.0\.9, .*172\.30\.0\.0\/24/],
  [
    "a part of the network of a link",
    [],
    [["eth0", ["172.30.1.9/16"]] as const],
    /eth0 has 172\.30\.1\.9\/16, whose network overlaps 172\.30\.0\.0\/24/,
  ],
  [
    "another network of the engine",
    [{ id: "x", name: "others", subnets: ["172.30.0.0/16"], labels: {} }],
    [],
    /network others of the engine has 172\.30\.0\.0\/16, which overlaps 172\.30\.0\.0\/24/,
  ],
])("changes nothing when %s is in the range", async (_, others, addresses, message) => {
  const { did, ensure, setSubnet } = stage([own("172.18.0.0/16"), ...others], addresses);
  setSubnet("172.30.0.0/24");
  await expect(ensure()).rejects.toThrow(message);
  expect(did).toStrictEqual([]);
});

it("does not adopt a network that is not ours", async () => {
  const { did, remove } = stage([{ ...own("172.18.0.0/16"), labels: {} }]);
  await remove();
  expect(did).toStrictEqual([]);
});

it("does not conflict with its own range", async () => {
  const { did, ensure } = stage([], [["holdfast0", ["172.18.0.1"]]]);
  await ensure();
  expect(did).toHaveLength(1);
});
