import { expect, test } from "vitest";
import { Announcer } from "../../../../src/controller/channel/announcer.ts";
import { FakeClock } from "../../../support/fake-clock.ts";

const VERSIONS = { keys: 1, node: 7, cluster: 3, domain: 1 };

function bench() {
  const clock = new FakeClock();
  const told: unknown[] = [];
  const session = { isCongested: false, peer: { notify: (_: string, params: unknown) => void told.push(params) } };
  const online = new Map([["n1", session]]);
  const announcer = new Announcer({
    sessions: online,
    documents: { versions: () => Promise.resolve(VERSIONS) },
    clock,
  });
  return { clock, told, session, online, announcer };
}

test("changes that come together are told once, with the version of that moment", async () => {
  const { clock, told, announcer } = bench();
  announcer.changed("n1", ["node"]);
  announcer.changed("n1", ["node", "cluster"]);
  announcer.changed("away", ["node"]);
  await clock.advance(20);
  expect(told).toEqual([
    { name: "node", version: 7 },
    { name: "cluster", version: 3 },
  ]);
  expect(clock.pendingTimers).toBe(0);
});

test("who does not read is told when it reads again, and not at all when it is gone", async () => {
  const { clock, told, session, online, announcer } = bench();
  session.isCongested = true;
  announcer.changed("n1", ["node"]);
  await clock.advance(3020);
  announcer.changed("n1", ["cluster"]);
  expect(told).toEqual([]);
  session.isCongested = false;
  await clock.advance(1000);
  expect(told).toHaveLength(2);

  session.isCongested = true;
  announcer.changed("n1", ["node"]);
  await clock.advance(20);
  online.delete("n1");
  await clock.advance(1000);
  expect([told.length, clock.pendingTimers]).toEqual([2, 0]);
});
