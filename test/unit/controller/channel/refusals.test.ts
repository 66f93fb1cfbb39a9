import { pino } from "pino";
import { expect, test } from "vitest";
import { z } from "zod";
import type { Controller } from "../../../../src/controller/controller.ts";
import { makeIdentity, nonce, register, TestNode, until } from "../../../support/control-plane/node-client.ts";
import { addNode, clockWith, MovableClock, runController } from "../../../support/control-plane/running-controller.ts";

const Line = z.looseObject({ msg: z.string(), kind: z.string().optional(), counts: z.unknown().optional() });

function linesInto(lines: z.infer<typeof Line>[]) {
  return pino({}, { write: (text: string) => void lines.push(Line.parse(JSON.parse(text))) });
}

async function eventsOf(controller: Controller, eventType: string) {
  const page = { sort: { by: "timestamp", order: "asc" }, limit: 100, offset: 0 } as const;
  return (await controller.events.find({ ...page, eventTypes: [eventType] })).items;
}

test("hellos that are refused are logged, counted and told of the node they name, once in ten minutes", async () => {
  const lines: z.infer<typeof Line>[] = [];
  const clock = new MovableClock();
  const controller = await runController({ clock, log: linesInto(lines) });
  const node = await addNode(controller, "edge");
  const thief = await makeIdentity();
  await expect(node.connect({ signer: thief.auth })).rejects.toThrow();
  await expect(node.connect({ claims: { aud: "https://elsewhere.example" } })).rejects.toThrow();
  await expect(node.connect({ claims: { tls: nonce() } })).rejects.toThrow();
  await expect(new TestNode(controller.url, crypto.randomUUID(), thief).connect()).rejects.toThrow();

  const kinds = lines.filter(({ msg }) => msg === "refused").map(({ kind }) => kind);
  expect(kinds).toEqual(["signature", "audience", "tls-intercepted", "unknown-node"]);
  const events = await until(async () => {
    const found = await eventsOf(controller, "Node Signature Refused");
    return found.length > 0 && found;
  });
  expect(events).toMatchObject([
    { nodeId: node.uid, level: "WARNING", details: { kind: "signature", address: "127.0.0.1" } },
  ]);
  clock.advance(600_001);
  await expect(node.connect({ claims: { tls: nonce() } })).rejects.toThrow();
  await until(async () => (await eventsOf(controller, "Node Signature Refused")).length === 2);
});

test("what was refused is summed up once a minute, and only when there is more", async () => {
  const lines: z.infer<typeof Line>[] = [];
  // Housekeeping comes often, so that the test need not wait for it.
  const clock = clockWith(5000, 10);
  let rounds = 0;
  const after = clock.after.bind(clock);
  clock.after = (ms, run) => {
    if (ms === 5000) rounds += 1;
    return after(ms, run);
  };
  const controller = await runController({ clock, log: linesInto(lines) });
  const node = await addNode(controller, "edge");
  for (let i = 0; i < 30; i += 1) {
    await expect(node.connect({ claims: { aud: "https://elsewhere.example" } })).rejects.toThrow();
  }
  expect(lines.filter(({ msg }) => msg === "refused")).toHaveLength(10);
  const sums = () => lines.filter(({ msg }) => msg === "refused so far").map(({ counts }) => counts);
  clock.advance(60_000);
  await until(() => sums().length > 0, "sum");
  expect((await register(controller.url, "a.b.c", node.identity)).status).toBe(401);
  clock.advance(60_000);
  await until(() => sums().length > 1, "second sum");
  clock.advance(60_000);
  const before = rounds;
  await until(() => rounds > before + 1, "housekeeping");
  expect(sums()).toEqual([{ audience: 30 }, { audience: 30, registration: 1 }]);
});

test("messages that are too large, before and after hello, are counted and told", async () => {
  const lines: z.infer<typeof Line>[] = [];
  const controller = await runController({ log: linesInto(lines) });
  const node = await addNode(controller, "edge");
  for (let i = 0; i < 2; i += 1) {
    const session = await node.connect();
    session.raw.socket.send("x".repeat(1024 * 1024 + 1));
    expect(await session.raw.closeCode()).toBe(1009);
  }
  await until(() => lines.filter(({ kind }) => kind === "too-large").length === 2, "lines");
  await until(async () => (await eventsOf(controller, "Message Too Large")).length > 0);
  expect(await eventsOf(controller, "Message Too Large")).toMatchObject([{ nodeId: node.uid, level: "WARNING" }]);
});
