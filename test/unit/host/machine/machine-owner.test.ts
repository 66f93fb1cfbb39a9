import { expect, onTestFinished, test } from "vitest";
import { MachineOwner } from "../../../../src/host/machine/machine-owner.ts";
import { FakeClock } from "../../../support/fake-clock.ts";
import { waitFor } from "../../../support/wait-for.ts";

const owners = (name = `\0holdfast-test-${crypto.randomUUID()}`) => {
  const clock = new FakeClock();
  const make = (onOwned: () => void = () => undefined): MachineOwner => {
    const owner = new MachineOwner({ clock, onOwned, name });
    onTestFinished(() => owner.close());
    return owner;
  };
  return { clock, make };
};

test("of two in one network namespace the first owns the machine", async () => {
  const { make } = owners();
  const [first, second] = [make(), make()];
  expect(await first.claim()).toBe(true);
  expect(await second.claim()).toBe(false);
  expect([first.isOwner, second.isOwner]).toEqual([true, false]);
});

test("when the owner ends another takes over by itself, and is notified", async () => {
  const { clock, make } = owners();
  let reported = 0;
  const first = make();
  const second = make(() => (reported += 1));
  await first.claim();
  await second.claim();
  first.close();
  await clock.advance(30_000);
  await waitFor("the other to take over", () => second.isOwner && reported === 1);
});

test("a closed one claims nothing", async () => {
  const { make } = owners();
  const owner = make();
  owner.close();
  expect(await owner.claim()).toBe(false);
});
