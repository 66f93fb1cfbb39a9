import { expect, test } from "vitest";
import { reconciler, type Reconciler } from "../../../../../src/agent/reconcile/section.ts";
import { EMPTY_RECORD } from "../../../../../src/host/network/state/record.ts";
import { aMachine, networkOver } from "../../../../support/network/network-section.ts";

const { signal } = new AbortController();

const stepsOf = async (section: Reconciler, raw: unknown) => (await section.prepare(raw).observe(signal)).steps;

async function pass(section: Reconciler, raw: unknown): Promise<void> {
  for (const { apply } of await stepsOf(section, raw)) await apply(signal);
}

const eth1 = (rest: object, others: object = {}) => ({ interfaces: [{ nic: "eth1", ...rest }], ...others });
const blue = { vrfs: [{ name: "blue" }] };

test.each([
  [
    "that leaves a table of its own, which makes its addresses again",
    [eth1({ vrf: "blue", addIps: ["192.0.2.1/24"] }, blue), eth1({ ip: "192.0.2.2/24", addIps: ["192.0.2.1/24"] })],
  ],
  [
    "that goes into a table of its own with one more address",
    [
      eth1({ ip: "192.0.2.2/24" }),
      eth1(
        {
          ip: "192.0.2.2/24",
          vrf: "blue",
          addIps: ["192.0.2.1/24"],
          routes: [{ route: "10.1.0.0/16", next: "192.0.2.9" }],
        },
        blue,
      ),
    ],
  ],
])("an interface %s, gets its primary address in one pass", async (_what, raws) => {
  const section = reconciler(networkOver(aMachine(), undefined, { record: EMPTY_RECORD }));
  for (const raw of raws) {
    await pass(section, raw);
    expect(await stepsOf(section, raw)).toEqual([]);
  }
});

test("undoing a change makes the former primary address primary again", async () => {
  const section = reconciler(networkOver(aMachine(), undefined, { record: EMPTY_RECORD }));
  const before = eth1({ ip: "192.0.2.2/24", addIps: ["192.0.2.1/24"] });
  await pass(section, before);
  const steps = await stepsOf(section, eth1({ ip: "192.0.2.1/24" }));
  const undos = steps.map(({ undo }) => undo());
  for (const { apply } of steps) await apply(signal);
  for (const undo of undos.reverse()) if (undo !== null) await section.applyStored(undo, signal);
  expect(await stepsOf(section, before)).toEqual([]);
});
