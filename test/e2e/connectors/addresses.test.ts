import { mkdirSync } from "node:fs";
import { expect, test } from "vitest";
import { startL4Stage } from "../../support/overlay/l4-stage.ts";
import { privateNetwork, type PrivateNetwork } from "../../support/network/private-stage.ts";
import { UNDER_UNITS } from "../../support/machine/real-units.ts";
import { tempDir } from "../../support/temp-dir.ts";
import { waitFor } from "../../support/wait-for.ts";

/** A command prefix without the capability for low ports. */
const UNPRIVILEGED = ["setpriv", "--bounding-set=-net_bind_service", "--inh-caps=-net_bind_service"];

test("a connector starts with a later address, link or permission", async () => {
  const dir = tempDir();
  let network: PrivateNetwork | undefined;
  const stage = await startL4Stage(dir, {
    async before(port) {
      mkdirSync(dir, { recursive: true });
      network = await privateNetwork(dir, port);
      return { within: [...network.within, ...UNPRIVILEGED] };
    },
  });
  if (network === undefined) throw new Error("there is no network");
  const { ip, isServed, setFirstFreePort } = network;
  const entry = { node: "local", service: "127.0.0.1:7", protocol: "tcp" };
  await stage.create("connectors", { ...entry, port: 2000, localIp: "127.0.0.1" });
  const address = await stage.create("connectors", { ...entry, port: 2001, localIp: "192.0.2.7" });
  const link = await stage.create("connectors", { ...entry, port: 2002, nic: "hf-late0" });
  const low = await stage.create("connectors", { ...entry, port: 80, localIp: "127.0.0.1" });
  // The unit may use low ports with any parent.
  const refused = UNDER_UNITS ? {} : { [`connectors.items.${low}`]: "permission-denied" };
  const sourced = await stage.create("services", {
    name: "sourced",
    protocol: "tcp",
    host: "127.0.0.1",
    port: 7,
    sourceInterface: "hf-late0",
  });
  const through = await stage.create("connectors", {
    ...entry,
    service: "sourced",
    port: 2003,
    localIp: "127.0.0.1",
  });
  await stage.untilNamed({
    [`connectors.items.${address}`]: "address-absent",
    [`connectors.items.${link}.nic`]: "address-absent",
    ...refused,
    [`connectors.items.${through}`]: "unreachable",
    [`services.items.${sourced}.sourceInterface`]: "address-absent",
  });
  await waitFor("the others serve", () => isServed("127.0.0.1", 2000));

  ip("link", "add", "hf-late0", "type", "veth", "peer", "name", "hf-late1");
  ip("address", "add", "192.0.2.1/24", "dev", "hf-late0");
  for (const link of ["hf-late0", "hf-late1"]) ip("link", "set", link, "up");
  await stage.untilNamed({
    [`connectors.items.${address}`]: "address-absent",
    ...refused,
  });
  expect(await isServed("192.0.2.1", 2002)).toBe(true);
  expect(await isServed("127.0.0.1", 2003)).toBe(true);

  // Adds one more address on the link, shared with another one, and the permission.
  ip("address", "add", "192.0.2.7/24", "dev", "hf-late0");
  setFirstFreePort(80);
  await stage.untilNamed({});
  for (const [host, port] of [
    ["192.0.2.7", 2001],
    ["192.0.2.7", 2002],
    ["192.0.2.1", 2002],
    ["127.0.0.1", 80],
  ] as const) {
    expect(await isServed(host, port), `${host}:${port}`).toBe(true);
  }

  // A lost carrier removes no address.
  ip("link", "set", "hf-late1", "down");
  await stage.create("connectors", { ...entry, port: 2004, localIp: "127.0.0.1" });
  await waitFor("the next pass is over", () => isServed("127.0.0.1", 2004));
  await stage.untilNamed({});
  expect(await isServed("192.0.2.1", 2002)).toBe(true);
  expect(await isServed("127.0.0.1", 2003)).toBe(true);

  // And removed again.
  ip("link", "delete", "hf-late0");
  await stage.untilNamed({
    [`connectors.items.${link}.nic`]: "address-absent",
    [`connectors.items.${through}`]: "unreachable",
    [`services.items.${sourced}.sourceInterface`]: "address-absent",
  });
  expect(await isServed("127.0.0.1", 2000)).toBe(true);
});
