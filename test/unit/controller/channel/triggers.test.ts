import { setImmediate } from "node:timers/promises";
import { expect, test } from "vitest";
import { InputError, SessionError } from "../../../../src/errors.ts";
import { peekClaims } from "../../../../src/protocol/channel/jws.ts";
import { AnsweredFailure } from "../../../../src/protocol/channel/rpc.ts";
import type { TriggerClaims } from "../../../../src/protocol/documents/claims.ts";
import { until } from "../../../support/control-plane/node-client.ts";
import {
  addNode,
  clockWith,
  MovableClock,
  runController,
  slowStore,
} from "../../../support/control-plane/running-controller.ts";
import type { TriggerProgress } from "../../../../src/controller/triggers/records.ts";

const PING = { event: "tg-ping", body: { host: "127.0.0.1" }, wait: true, user: "ann", deadlineMs: 8000 };
const GUARD_MS = 5000;
const never = (): AbortSignal => new AbortController().signal;
const hang = (): Promise<never> => new Promise(() => undefined);
const claimsOf = ({ jws }: { jws: string }): TriggerClaims => peekClaims("holdfast-trigger+jwt", jws);

test("a trigger is signed for one node and session, and its answer comes back", async () => {
  const controller = await runController();
  const node = await addNode(controller, "edge");
  const seen: TriggerClaims[] = [];
  const session = await node.connect({
    handlers: {
      "trigger.run": (params) => {
        seen.push(claimsOf(params));
        return { exitCode: 0 };
      },
    },
  });
  expect(await controller.triggers.run(node.uid, PING, { signal: never() })).toEqual({ exitCode: 0 });
  expect(seen[0]).toMatchObject({
    iss: controller.url,
    aud: node.uid,
    sid: session.sid,
    event: "tg-ping",
    user: "ann",
  });
  expect((seen[0]?.exp ?? 0) - (seen[0]?.iat ?? 0)).toBe(68);
  expect((await controller.events.audits({ nodeIds: [node.uid], limit: 100, offset: 0 })).items).toMatchObject([
    { category: "Node Action", value: "ann invoked Ping" },
  ]);
});

test("a trigger that only reads leaves nothing in the audit trail", async () => {
  const controller = await runController();
  const node = await addNode(controller, "edge");
  await node.connect({ handlers: { "trigger.run": () => ({}) } });
  const run = (event: string, body: object) =>
    controller.triggers.run(node.uid, { ...PING, event, body }, { signal: never() });
  await run("container-status", {});
  await run("flows", { action: "read" });
  await run("flows", { action: "delete", confirm: true });
  const { items } = await controller.events.audits({ nodeIds: [node.uid], limit: 100, offset: 0 });
  expect(items.map(({ value }) => value)).toEqual(["ann invoked Flows"]);
});

test("without wait it is done once it is handed over", async () => {
  const controller = await runController();
  const node = await addNode(controller, "edge");
  const seen: TriggerClaims[] = [];
  await node.connect({
    handlers: {
      "trigger.run": (params) => {
        seen.push(claimsOf(params));
        return hang();
      },
    },
  });
  expect(await controller.triggers.run(node.uid, { ...PING, wait: false }, { signal: never() })).toBe(true);
  await until(() => seen.length === 1);
  expect(seen[0]?.wait).toBe(false);
});

test("without wait its id is told, and its outcome is kept and audited", async () => {
  const controller = await runController();
  const node = await addNode(controller, "edge");
  await node.connect({ handlers: { "trigger.run": () => Promise.reject(new InputError("busy", "too much to do")) } });
  const ids: string[] = [];
  const reboot = { ...PING, event: "node-reboot", body: {}, wait: false };
  const onSent = (id: string): void => void ids.push(id);
  await controller.triggers.run(node.uid, reboot, { signal: never(), onSent }).catch(() => undefined);
  const [id = ""] = ids;
  await until(async () => (await controller.triggers.sent(node.uid, id))?.outcome !== undefined);
  expect(await controller.triggers.sent(node.uid, id)).toMatchObject({ id, event: "node-reboot", outcome: "busy" });
  expect(await controller.triggers.sent("00000000-0000-4000-8000-000000000000", id)).toBeUndefined();
  const audits = async (): Promise<readonly string[]> => {
    const { items } = await controller.events.audits({ nodeIds: [node.uid], limit: 100, offset: 0 });
    return items.map(({ value }) => value);
  };
  await until(async () => (await audits()).includes(`node-reboot of ${PING.user} ended: busy`));
});

test("an outcome that cannot be audited changes no answer", async () => {
  const controller = await runController();
  const node = await addNode(controller, "edge");
  await node.connect({ handlers: { "trigger.run": () => ({ exitCode: 0 }) } });
  const onOutcome = (): never => {
    throw new Error("the disk is full");
  };
  expect(await controller.triggers.run(node.uid, PING, { signal: never(), onOutcome })).toEqual({ exitCode: 0 });
});

test("a node cannot write a sentence of its own into the audit of an outcome", async () => {
  const controller = await runController();
  const node = await addNode(controller, "edge");
  const code = "ok; ann invoked Node Reboot";
  await node.connect({ handlers: { "trigger.run": () => Promise.reject(new AnsweredFailure(code, "odd")) } });
  const reboot = { ...PING, event: "node-reboot", body: {}, wait: false };
  const audits = async (): Promise<string[]> => {
    const { items } = await controller.events.audits({ nodeIds: [node.uid], limit: 100, offset: 0 });
    return items.map(({ value }) => value);
  };
  await controller.triggers.run(node.uid, reboot, { signal: never() }).catch(() => undefined);
  await until(async () => (await audits()).length === 2);
  expect(await audits()).toEqual(["node-reboot of ann ended: internal", "ann invoked Node Reboot"]);
});

test("an offline and an unknown node are refused at once, with and without wait", async () => {
  const controller = await runController();
  const node = await addNode(controller, "edge");
  for (const wait of [true, false]) {
    const run = controller.triggers.run(node.uid, { ...PING, wait }, { signal: never() });
    await expect(run).rejects.toMatchObject({ code: "offline" });
  }
  await expect(controller.triggers.run("none", PING, { signal: never() })).rejects.toMatchObject({
    code: "not-found",
  });
  expect((await controller.events.audits({ nodeIds: [node.uid], limit: 100, offset: 0 })).items).toEqual([]);
});

test("the node's own error comes back with its code and details", async () => {
  const controller = await runController();
  const node = await addNode(controller, "edge");
  await node.connect({
    handlers: {
      "trigger.run": () => {
        throw new InputError("invalid-body", "host: missing", { details: { field: "host" } });
      },
    },
  });
  const run = controller.triggers.run(node.uid, PING, { signal: never() });
  await expect(run).rejects.toMatchObject({
    code: "invalid-body",
    message: "host: missing",
    details: { field: "host" },
  });
});

test("progress reaches the caller in order and only from the node that was asked", async () => {
  const controller = await runController();
  const [node, other] = [await addNode(controller, "edge"), await addNode(controller, "other")];
  const stranger = await other.connect();
  let id = "";
  let wait = true;
  const session = await node.connect({
    handlers: {
      "trigger.run": (params) => {
        ({ jti: id, wait } = claimsOf(params));
        return true;
      },
    },
  });
  const seen: TriggerProgress[] = [];
  const run = controller.triggers.run(node.uid, PING, { signal: never(), onProgress: (chunk) => seen.push(chunk) });
  await until(() => id !== "");
  stranger.peer.notify("trigger.progress", { id, seq: 0, kind: "stdout", data: "forged" });
  await expect(stranger.peer.request("trigger.result", { id, body: "forged" })).rejects.toMatchObject({
    code: "not-found",
  });
  session.peer.notify("trigger.progress", { id, seq: 0, kind: "stdout", data: "a" });
  session.peer.notify("trigger.progress", { id, seq: 0, kind: "stdout", data: "a" });
  session.peer.notify("trigger.progress", { id, seq: 1, kind: "stdout", data: "b" });
  await until(() => seen.length === 2);
  await session.peer.request("trigger.result", { id, body: { exitCode: 0 } });
  expect(await run).toEqual({ exitCode: 0 });
  expect(wait).toBe(false);
  expect(seen.map(({ data }) => data)).toEqual(["a", "b"]);
});

test("taking it back cancels it on the node", async () => {
  const controller = await runController();
  const node = await addNode(controller, "edge");
  let id = "";
  const session = await node.connect({
    handlers: {
      "trigger.run": (params) => {
        id = claimsOf(params).jti;
        return hang();
      },
    },
  });
  const abort = new AbortController();
  const run = controller.triggers.run(node.uid, PING, { signal: abort.signal });
  await until(() => id !== "");
  abort.abort();
  await expect(run).rejects.toMatchObject({ code: "cancelled" });
  await until(() => session.cancelled.length > 0);
  expect(session.cancelled).toEqual([id]);
});

test("a caller's deadline ends it as what the caller says it is", async () => {
  const controller = await runController();
  const node = await addNode(controller, "edge");
  let isRunning = false;
  const session = await node.connect({
    handlers: {
      "trigger.run": () => {
        isRunning = true;
        return hang();
      },
    },
  });
  const abort = new AbortController();
  const run = controller.triggers.run(node.uid, PING, { signal: abort.signal });
  await until(() => isRunning);
  abort.abort(new SessionError("timeout", "no answer within 8000 ms"));
  await expect(run).rejects.toMatchObject({ code: "timeout", message: "no answer within 8000 ms" });
  await until(() => session.cancelled.length === 1);
});

test("a node that does not answer in time is a timeout", async () => {
  const controller = await runController({ clock: clockWith(PING.deadlineMs + GUARD_MS, 20) });
  const node = await addNode(controller, "edge");
  const session = await node.connect({ handlers: { "trigger.run": hang } });
  await expect(controller.triggers.run(node.uid, PING, { signal: never() })).rejects.toMatchObject({
    code: "timeout",
  });
  await until(() => session.cancelled.length === 1);
});

test("a session that breaks gets the trigger again under its id, signed for the new session", async () => {
  const controller = await runController();
  const node = await addNode(controller, "edge");
  const first: TriggerClaims[] = [];
  const broken = await node.connect({
    handlers: {
      "trigger.run": (params) => {
        first.push(claimsOf(params));
        return hang();
      },
    },
  });
  const run = controller.triggers.run(node.uid, PING, { signal: never() });
  await until(() => first.length === 1);
  await broken.cut();
  await until(async () => (await controller.nodes.get(node.uid))?.isOnline === false);
  const second: TriggerClaims[] = [];
  const session = await node.connect({
    handlers: {
      "trigger.run": (params) => {
        second.push(claimsOf(params));
        return { again: true };
      },
    },
  });
  expect(await run).toEqual({ again: true });
  expect(second).toHaveLength(1);
  expect(second[0]).toMatchObject({
    jti: first[0]?.jti,
    sid: session.sid,
    body: PING.body,
    deadlineMs: PING.deadlineMs,
  });
});

test("while two machines alternate under one identity, neither gets what waits for the node", async () => {
  const controller = await runController();
  const node = await addNode(controller, "edge");
  const seen: string[] = [];
  const handlers = {
    "trigger.run": (params: { jws: string }) => {
      seen.push(claimsOf(params).sid);
      return hang();
    },
  };
  await node.connect({ handlers });
  const abort = new AbortController();
  const run = controller.triggers.run(node.uid, PING, { signal: abort.signal });
  const outcome = expect(run).rejects.toMatchObject({ code: "busy" });
  await until(() => seen.length === 1);
  await node.connect({ claims: { n: 1 }, handlers });
  await until(() => seen.length === 2);
  const held = await node.connect({ claims: { n: 1 }, handlers });
  await until(async () => (await controller.alerts.find(node.uid)).length > 0);
  // An answer to a request comes after everything that was sent before it.
  await held.peer.request("telemetry.push", { stream: "flows", first: 1, records: [{}] });
  abort.abort();
  await outcome;
  expect(seen).toHaveLength(2);
  expect(seen).not.toContain(held.sid);
});

test("a result that comes by itself settles the trigger, also when nobody waits any more", async () => {
  const controller = await runController();
  const node = await addNode(controller, "edge");
  let id = "";
  const session = await node.connect({
    handlers: {
      "trigger.run": (params) => {
        id = claimsOf(params).jti;
        return hang();
      },
    },
  });
  const run = controller.triggers.run(node.uid, PING, { signal: never() });
  await until(() => id !== "");
  const failure = { code: "interrupted", message: "a crash cut it off" };
  const [, outcome] = await Promise.allSettled([session.peer.request("trigger.result", { id, error: failure }), run]);
  expect(outcome).toMatchObject({ status: "rejected", reason: failure });
  expect(await session.peer.request("trigger.result", { id, body: { late: true } })).toEqual({});
});

test("deleting a node ends what waits for it", async () => {
  const controller = await runController();
  const node = await addNode(controller, "edge");
  await node.connect({ handlers: { "trigger.run": hang } });
  const run = controller.triggers.run(node.uid, PING, { signal: never() });
  const outcome = expect(run).rejects.toMatchObject({ code: "offline" });
  await controller.nodes.delete(node.uid, "test");
  await outcome;
});

test("a body too large for a message is refused and the session goes on", async () => {
  const controller = await runController();
  const node = await addNode(controller, "edge");
  await node.connect({ handlers: { "trigger.run": () => ({}) } });
  const large = { ...PING, body: "x".repeat(1_000_000) };
  for (const wait of [true, false]) {
    const run = controller.triggers.run(node.uid, { ...large, wait }, { signal: never() });
    await expect(run).rejects.toMatchObject({ code: "invalid-body" });
  }
  expect(await controller.triggers.run(node.uid, PING, { signal: never() })).toEqual({});
});

test("triggers are dated by session time, whatever the wall clock says", async () => {
  const clock = new MovableClock();
  const controller = await runController({ clock });
  const node = await addNode(controller, "edge");
  const seen: TriggerClaims[] = [];
  const session = await node.connect({
    handlers: {
      "trigger.run": (params) => {
        seen.push(claimsOf(params));
        return {};
      },
    },
  });
  const { iat } = peekClaims("holdfast-server-proof+jwt", session.serverProof);
  for (const step of [3_600_000, -7_200_000]) {
    clock.stepWall(step);
    await controller.triggers.run(node.uid, PING, { signal: never() });
  }
  clock.advance(20_000);
  await controller.triggers.run(node.uid, PING, { signal: never() });
  const ages = seen.map((claims) => Math.floor((claims.iat - iat) / 10));
  expect(ages).toEqual([0, 0, 2]);
});

test("a notice of deletion is dated by session time", async () => {
  const clock = new MovableClock();
  const controller = await runController({ clock });
  const node = await addNode(controller, "edge");
  const session = await node.connect();
  const { iat } = peekClaims("holdfast-server-proof+jwt", session.serverProof);
  clock.stepWall(3_600_000);
  await controller.nodes.delete(node.uid, "test");
  await session.raw.closeCode();
  expect(peekClaims("holdfast-deleted+jwt", session.deletedNotices[0] ?? "").iat - iat).toBeLessThan(60);
});

test("no more than 64 triggers wait for one node", async () => {
  const controller = await runController();
  const node = await addNode(controller, "edge");
  await node.connect({ handlers: { "trigger.run": hang } });
  const abort = new AbortController();
  const runs = Array.from({ length: 64 }, () => controller.triggers.run(node.uid, PING, { signal: abort.signal }));
  const settled = Promise.allSettled(runs);
  await expect(controller.triggers.run(node.uid, PING, { signal: never() })).rejects.toMatchObject({
    code: "busy",
  });
  abort.abort();
  await settled;
});

test("triggers that begin while a session replaces another are sent to it once each", async () => {
  const controller = await runController();
  const node = await addNode(controller, "edge");
  const connect = async (): Promise<readonly string[]> => {
    const seen: string[] = [];
    const answer = (params: { jws: string }) => {
      seen.push(claimsOf(params).jti);
      return {};
    };
    await node.connect({ handlers: { "trigger.run": answer } });
    await until(() => seen.length > 0);
    return seen;
  };
  await node.connect({ handlers: { "trigger.run": () => ({}) } });
  const slow = slowStore(controller, node.uid);
  const end = new AbortController();
  const asking = Array.from({ length: 16 }, async () => {
    while (!end.signal.aborted) {
      await controller.triggers.run(node.uid, PING, { signal: never() });
      await setImmediate();
    }
  });
  const seen: (readonly string[])[] = [];
  for (let i = 0; i < 8; i += 1) seen.push(await connect());
  end.abort();
  await Promise.all(asking);
  await slow.stop();
  for (const ids of seen) expect(ids).toEqual([...new Set(ids)]);
});
