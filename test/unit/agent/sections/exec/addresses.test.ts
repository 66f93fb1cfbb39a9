import fc from "fast-check";
import { expect, test } from "vitest";
import { allotAddresses, firstAddress, resolverAddress } from "../../../../../src/agent/sections/exec/addresses.ts";

const plan = { subnet: "172.18.0.0/16", reserved: new Set(["172.18.0.1", "172.18.1.2"]) };
const want = (...ids: string[]) => ids.map((id) => ({ id, ip: undefined }));

test("each gets the lowest free address, and keeps it", () => {
  const first = allotAddresses(want("b", "a"), new Map(), plan);
  expect([...first]).toEqual([
    ["a", "172.18.0.16"],
    ["b", "172.18.0.17"],
  ]);
  const later = allotAddresses(want("0", "b"), first, plan);
  expect(new Map(later)).toEqual(
    new Map([
      ["b", "172.18.0.17"],
      ["0", "172.18.0.18"],
    ]),
  );
});

test("reserves pinned addresses, and releases those of another range", () => {
  const allotted = allotAddresses(
    [...want("a", "b"), { id: "c", ip: "172.18.0.16" }],
    new Map([
      ["a", "172.18.0.16"],
      ["b", "10.0.0.9"],
    ]),
    plan,
  );
  expect(new Map(allotted)).toEqual(
    new Map([
      ["a", "172.18.0.17"],
      ["b", "172.18.0.18"],
    ]),
  );
});

test("assigns no address twice, and no reserved one, also in the smallest of subnets", () => {
  const ids = fc.uniqueArray(fc.string({ minLength: 1, maxLength: 3 }), { maxLength: 30 });
  fc.assert(
    fc.property(ids, fc.integer({ min: 24, max: 30 }), (list, prefix) => {
      const subnet = `10.1.2.0/${prefix}`;
      const reserved = new Set([firstAddress(subnet) ?? "", resolverAddress(subnet) ?? ""]);
      const values = [...allotAddresses(want(...list), new Map(), { subnet, reserved }).values()];
      expect(new Set(values).size).toBe(values.length);
      expect(values.filter((value) => reserved.has(value))).toEqual([]);
    }),
  );
});

test("the machine and the resolver keep their usual addresses", () => {
  expect([firstAddress("172.18.0.0/16"), resolverAddress("172.18.0.0/16")]).toEqual(["172.18.0.1", "172.18.1.2"]);
  expect([firstAddress("10.0.0.0/28"), resolverAddress("10.0.0.0/28")]).toEqual(["10.0.0.1", "10.0.0.2"]);
});
