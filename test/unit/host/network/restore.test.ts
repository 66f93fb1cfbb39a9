import { expect, test } from "vitest";
import { diffNetwork } from "../../../../src/host/network/diff.ts";
import { networkRecord, type NetworkRecord } from "../../../../src/host/network/state/record.ts";
import { NetworkUndo, storeTarget, revertNetwork, undoTarget } from "../../../../src/host/network/restore.ts";
import { hostFiles } from "../../../../src/host/files/files.ts";
import type { NetworkTarget } from "../../../../src/host/network/state/state.ts";
import { aMachine } from "../../../support/network/network-section.ts";
import { tempDir } from "../../../support/temp-dir.ts";

const signal = new AbortController().signal;
const TARGET: NetworkTarget = {
  links: [{ name: "eth1", mtu: 1400, isUp: true }],
  addresses: [{ link: "eth1", address: "10.1.0.1/24" }],
  routes: [],
  rules: [],
  sysctls: new Map([["net.ipv4.ip_forward", "1"]]),
  dhcp: new Set(),
};
const BEFORE: NetworkRecord = { links: {}, sysctls: {}, vrfs: { guest: 1000 }, firewalls: [] };
const AFTER: NetworkRecord = {
  ...BEFORE,
  links: { eth1: { mtu: 1500, isUp: false } },
  sysctls: { "net.ipv4.ip_forward": "0" },
};

test("a rollback leaves the machine and its records as they were", async () => {
  const dir = tempDir();
  const model = aMachine();
  const before = model.state();
  const target = storeTarget(undoTarget(before, TARGET, undefined));
  const undo = NetworkUndo.parse(
    structuredClone({ kind: "restore", subject: "network", guarded: true, target, record: BEFORE }),
  );
  await networkRecord(hostFiles(), dir).save(AFTER);
  for (const change of diffNetwork(before, TARGET)) await model.apply(change);
  expect(model.state()).not.toEqual(before);

  await revertNetwork(model, networkRecord(hostFiles(), dir), undo, signal);
  expect(model.state()).toEqual(before);
  // The next agent.
  expect(await networkRecord(hostFiles(), dir).load()).toEqual(BEFORE);
});

test("records stay while the machine is not restored", async () => {
  const model = aMachine();
  const target = storeTarget(undoTarget(model.state(), TARGET, undefined));
  const undo: NetworkUndo = { kind: "restore", subject: "network", guarded: true, target, record: BEFORE };
  for (const change of diffNetwork(model.state(), TARGET)) await model.apply(change);
  const saved: NetworkRecord[] = [];
  const store = { save: (record: NetworkRecord) => Promise.resolve(void saved.push(record)) };
  model.apply = () => Promise.reject(new Error("Operation not permitted"));
  await expect(revertNetwork(model, store, undo, signal)).rejects.toThrow("Operation not permitted");
  expect(saved).toEqual([]);
});
