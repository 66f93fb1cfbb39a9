import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { z } from "zod";
import { HostError, InputError, SessionError } from "../../../../src/errors.ts";
import { errorCodes } from "../../../../src/protocol/values/error-codes.ts";
import { parseMessage, SESSION_LIMITS, type Message } from "../../../../src/protocol/channel/envelope.ts";
import {
  controlMethods,
  nodeMethods,
  type ControlMethods,
  type NodeMethods,
} from "../../../../src/protocol/channel/methods.ts";
import { RemoteError, RpcPeer, type Handlers } from "../../../../src/protocol/channel/rpc.ts";
import { nearValidValues } from "../../../support/arbitrary.ts";
import { runs } from "../../../support/sample.ts";

interface Answer {
  readonly id: number | null;
  readonly result?: unknown;
  readonly error?: { readonly code: number; readonly message: string; readonly data?: { readonly code?: string } };
}

const jws = "a.b.c";
const id = "6f1d2c9e-4a0b-4c57-9a3e-0d6c1b2a3f4e";

/** The node's side, which collects its output. */
function node(handlers: Handlers<ControlMethods>) {
  const sent: string[] = [];
  const faults: string[] = [];
  const peer = new RpcPeer<ControlMethods, NodeMethods>({
    local: controlMethods,
    remote: nodeMethods,
    handlers,
    send: (text) => void sent.push(text),
    onFault: (method) => void faults.push(method),
  });
  const call = async (message: Message): Promise<Answer> => {
    const before = sent.length;
    await peer.receive(message);
    expect(sent.length - before).toBe(1);
    return JSON.parse(sent.at(-1) ?? "") as Answer;
  };
  return { peer, sent, faults, call };
}

const run = (params: unknown, method = "trigger.run"): Message => ({ kind: "request", id: 7, method, params });

describe("a request from the other side", () => {
  test("is answered with the handler's result, or an empty object", async () => {
    expect(await node({ "trigger.run": () => ({ pong: 1 }) }).call(run({ jws }))).toEqual({
      jsonrpc: "2.0",
      id: 7,
      result: { pong: 1 },
    });
    expect(
      (await node({ "stream.open": () => undefined }).call(run({ jws, ticket: "t".repeat(43) }, "stream.open"))).result,
    ).toEqual({});
  });

  test.each(["no.such", "constructor", "tostring", "heartbeat"])(
    "of the unknown method %s answers −32601",
    async (method) => {
      expect((await node({}).call(run({}, method))).error?.code).toBe(-32601);
    },
  );

  test("of a known method without a handler answers −32601", async () => {
    expect((await node({}).call(run({ jws }))).error?.code).toBe(-32601);
  });

  test("with invalid parameters answers −32602 with the field, without a call of the handler", async () => {
    let calls = 0;
    const { call } = node({ "trigger.run": () => (calls += 1) });
    const { error } = await call(run({ jws: "no" }));
    expect(error).toMatchObject({ code: -32602, data: { code: "invalid-body" } });
    expect(error?.message).toMatch(/^trigger\.run: jws: /);
    expect(calls).toBe(0);
  });

  test("answers with the number of the code that a handler threw", async () => {
    const thrower = node({
      "trigger.run": () => {
        throw new InputError("busy", "too much", { details: { limit: 4 } });
      },
    });
    expect((await thrower.call(run({ jws }))).error).toEqual({
      code: errorCodes.busy.rpc,
      message: "too much",
      data: { code: "busy", details: { limit: 4 } },
    });
    expect(thrower.faults).toEqual([]);
  });

  test("is refused while 1,024 others are being answered, and accepted again afterwards", async () => {
    let finish: () => void = () => undefined;
    const held = new Promise<void>((resolve) => (finish = resolve));
    const { peer, call, sent } = node({ "trigger.run": () => held.then(() => ({ pong: 1 })) });
    const waiting = Array.from({ length: 1024 }, () => peer.receive(run({ jws })));
    expect((await call(run({ jws }))).error).toMatchObject({ code: errorCodes.busy.rpc, data: { code: "busy" } });
    finish();
    await Promise.all(waiting);
    expect(sent).toHaveLength(1025);
    expect((await call(run({ jws }))).result).toEqual({ pong: 1 });
  });

  test("is answered with null if that is the result", async () => {
    expect((await node({ "trigger.run": () => null }).call(run({ jws }))).result).toBeNull();
  });

  test("is answered with internal when its result cannot be written as JSON", async () => {
    const circular: Record<string, unknown> = {};
    circular["self"] = circular;
    for (const result of [circular, { big: 1n }]) {
      const broken = node({ "trigger.run": () => result });
      expect((await broken.call(run({ jws }))).error?.code).toBe(errorCodes.internal.rpc);
      expect(broken.faults).toEqual(["trigger.run"]);
    }
  });

  test.each([
    ["a foreign code", () => Promise.reject(new HostError("secret-code", "secret"))],
    ["a plain error", () => Promise.reject(new TypeError("secret"))],
    [
      "no error at all",
      () => {
        // oxlint-disable-next-line typescript/only-throw-error -- what a broken library may do
        throw "secret";
      },
    ],
  ])("answers internal, without its text, when a handler throws %s", async (_what, handler) => {
    const broken = node({ "trigger.run": handler });
    const answer = await broken.call(run({ jws }));
    expect(answer.error).toEqual({
      code: errorCodes.internal.rpc,
      message: "internal error",
      data: { code: "internal" },
    });
    expect(broken.faults).toEqual(["trigger.run"]);
  });

  test.each([
    ["too-deep", "invalid-body"],
    ["forbidden-key", "invalid-body"],
    ["never-heard-of", "invalid-body"],
    ["invalid-claims", "bad-signature"],
    ["below-floor", "bad-signature"],
    ["internal", "internal"],
  ] as const)("answers invalid input with the code %s for %s", async (code, answered) => {
    const wrong = node({ "trigger.run": () => Promise.reject(new InputError(code, "why")) });
    const answer = await wrong.call(run({ jws }));
    expect(answer.error).toMatchObject({ code: errorCodes[answered].rpc, data: { code: answered } });
    expect(answer.error?.message).toBe(answered === "internal" ? "internal error" : "why");
    expect(wrong.faults).toEqual(answered === "internal" ? ["trigger.run"] : []);
  });

  test("with any near-valid parameters gets exactly one answer that the caller can parse", async () => {
    const requests = Object.entries(nodeMethods).filter(([, spec]) => spec.kind === "request");
    const sent: string[] = [];
    const handlers = Object.fromEntries(requests.map(([name]) => [name, () => undefined]));
    const peer = new RpcPeer<NodeMethods, ControlMethods>({
      local: nodeMethods,
      remote: controlMethods,
      handlers,
      send: (text) => void sent.push(text),
      onFault: () => undefined,
    });
    for (const [method, spec] of requests) {
      await fc.assert(
        fc.asyncProperty(nearValidValues(spec.params), async ({ value }) => {
          sent.length = 0;
          await peer.receive({ kind: "request", id: 1, method, params: value });
          expect(sent.length).toBe(1);
          expect(parseMessage(sent[0] ?? "", SESSION_LIMITS)).toMatchObject({ id: 1 });
        }),
        { numRuns: 60 },
      );
    }
  });
});

describe("a notification", () => {
  test("is never answered; a mistake in it is reported", async () => {
    const seen: unknown[] = [];
    const { peer, sent, faults } = node({ "trigger.cancel": (params) => void seen.push(params) });
    await peer.receive({ kind: "notification", method: "trigger.cancel", params: { id } });
    await peer.receive({ kind: "notification", method: "trigger.cancel", params: { id: "x" } });
    await peer.receive({ kind: "notification", method: "no.such", params: {} });
    expect(seen).toEqual([{ id }]);
    expect(sent).toEqual([]);
    expect(faults).toEqual(["trigger.cancel", "no.such"]);
  });
});

describe("a request to the other side", () => {
  test("resolves with the parsed result", async () => {
    const { peer } = node({});
    const answer = peer.request("shadow.report", { version: 1, base: 0, set: {}, unset: [] });
    await peer.receive({ kind: "success", id: 1, result: { version: 1, extra: true } });
    await expect(answer).resolves.toEqual({ version: 1 });
  });

  test("rejects when the result violates the schema", async () => {
    const { peer } = node({});
    const answer = peer.request("shadow.report", { version: 1, base: 0, set: {}, unset: [] });
    await peer.receive({ kind: "success", id: 1, result: { version: "x" } });
    await expect(answer).rejects.toMatchObject({ code: "invalid-result" });
  });

  test("rejects with the other side's code and details", async () => {
    const { peer } = node({});
    const answer = peer.request("document.get", { name: "node", have: 0 });
    const data = { code: "out-of-sync", details: { base: 3 } };
    await peer.receive({ kind: "failure", id: 1, error: { code: -32014, message: "m", data } });
    await expect(answer).rejects.toMatchObject({ code: "out-of-sync", details: { base: 3 } });
    await expect(answer).rejects.toBeInstanceOf(RemoteError);
  });

  test("accepts the first answer; a second one, or one without a request, is ignored", async () => {
    const { peer } = node({});
    const answer = peer.request("document.get", { name: "node", have: 1 });
    await peer.receive({ kind: "success", id: 99, result: {} });
    await peer.receive({ kind: "failure", id: null, error: { code: 1, message: "m" } });
    await peer.receive({ kind: "success", id: 1, result: { version: 1, unchanged: true } });
    await peer.receive({ kind: "failure", id: 1, error: { code: 1, message: "m" } });
    await expect(answer).resolves.toEqual({ version: 1, unchanged: true });
  });

  test("is forgotten when it is aborted", async () => {
    const { peer } = node({});
    const controller = new AbortController();
    const answer = peer.request("document.get", { name: "node", have: 1 }, controller.signal);
    controller.abort(new SessionError("timeout", "t"));
    await expect(answer).rejects.toMatchObject({ code: "timeout" });
    await peer.receive({ kind: "success", id: 1, result: { version: 1, unchanged: true } });
    await expect(peer.request("document.get", { name: "node", have: 1 }, controller.signal)).rejects.toMatchObject({
      code: "timeout",
    });
  });

  test("rejects when the connection closes, and afterwards", async () => {
    const { peer, sent } = node({ "trigger.run": () => 1 });
    const waiting = [1, 2, 3].map(() => peer.request("document.get", { name: "node", have: 1 }));
    peer.close(new SessionError("gone", "g"));
    peer.close(new SessionError("again", "a"));
    for (const answer of waiting) await expect(answer).rejects.toMatchObject({ code: "gone" });
    await expect(peer.request("document.get", { name: "node", have: 1 })).rejects.toMatchObject({ code: "gone" });
    const before = sent.length;
    peer.notify("trigger.progress", { id, seq: 1, kind: "json", data: 1 });
    await peer.receive(run({ jws }));
    expect(sent.length).toBe(before);
  });

  test("is refused beyond 1,024 unanswered ones, until one is answered", async () => {
    const { peer } = node({});
    const ask = () => peer.request("document.get", { name: "node", have: 1 });
    const waiting = Array.from({ length: 1024 }, ask);
    await expect(ask()).rejects.toMatchObject({ code: "busy" });
    await peer.receive({ kind: "success", id: 1, result: { version: 1, unchanged: true } });
    await waiting[0];
    const one = ask();
    peer.close(new SessionError("gone", "g"));
    await expect(one).rejects.toMatchObject({ code: "gone" });
    const results = await Promise.allSettled(waiting);
    expect(results.filter(({ status }) => status === "rejected")).toHaveLength(1023);
  });
});

test("two connected peers call each other concurrently", async () => {
  const link = (to: () => { receive(message: Message): Promise<void> }) => (text: string) =>
    void to().receive(parseMessage(text, SESSION_LIMITS));
  const agent: RpcPeer<ControlMethods, NodeMethods> = new RpcPeer({
    local: controlMethods,
    remote: nodeMethods,
    handlers: {
      "trigger.run": async ({ jws: text }) => ({
        echo: text,
        versions: await agent.request("document.get", { name: "node", have: 4 }),
      }),
    },
    send: link(() => control),
    onFault: () => undefined,
  });
  const control: RpcPeer<NodeMethods, ControlMethods> = new RpcPeer({
    local: nodeMethods,
    remote: controlMethods,
    handlers: { "document.get": ({ have }) => ({ version: have, unchanged: true as const }) },
    send: link(() => agent),
    onFault: () => undefined,
  });
  const answers = await Promise.all(["a.a.a", "b.b.b"].map((text) => control.request("trigger.run", { jws: text })));
  expect(answers).toEqual(["a.a.a", "b.b.b"].map((echo) => ({ echo, versions: { version: 4, unchanged: true } })));
  await expect(agent.request("registry.token", { repository: "x" })).rejects.toMatchObject({ code: "unknown-method" });
});

test("hostile messages never throw and answer only requests", async () => {
  const { peer, sent } = node({ "trigger.run": () => 1 });
  const message = fc.oneof(
    fc.record({ jsonrpc: fc.constant("2.0"), id: fc.integer({ min: 1 }), result: fc.jsonValue() }),
    fc.record({
      jsonrpc: fc.constant("2.0"),
      id: fc.integer({ min: 1 }),
      method: fc.stringMatching(/^[a-z]+\.[a-z]+$/),
      params: fc.jsonValue(),
    }),
    fc.record({
      jsonrpc: fc.constant("2.0"),
      method: fc.constantFrom("trigger.input", "document.changed"),
      params: fc.jsonValue(),
    }),
    fc.jsonValue(),
  );
  await fc.assert(
    fc.asyncProperty(message, async (value) => {
      let parsed: Message;
      try {
        parsed = parseMessage(JSON.stringify(value), SESSION_LIMITS);
      } catch (error) {
        expect(error).toBeInstanceOf(InputError);
        return;
      }
      const before = sent.length;
      await peer.receive(parsed);
      expect(sent.length - before).toBe(parsed.kind === "request" ? 1 : 0);
    }),
    { numRuns: runs(500) },
  );
});

test("every error code has a number and a status of its own kind", () => {
  const entries = Object.values(errorCodes);
  expect(new Set(entries.map(({ rpc }) => rpc)).size).toBe(entries.length);
  for (const { rpc, http } of entries) {
    expect(z.int().min(-32_099).max(-32_001).safeParse(rpc).success).toBe(true);
    expect(http).toBeGreaterThanOrEqual(400);
  }
});
