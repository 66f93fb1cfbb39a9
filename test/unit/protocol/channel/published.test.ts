import { readFileSync } from "node:fs";
import { describe, expect, test } from "vitest";
import { exampleKeys, EXAMPLE_ISS, EXAMPLE_UID } from "../../../../scripts/reference-examples.ts";
import { judgeTrigger } from "../../../../src/agent/triggers/execution/judge.ts";
import { MAX_RUNNING, MAX_RUNNING_PER_EVENT } from "../../../../src/agent/triggers/execution/admit.ts";
import { judgeStream } from "../../../../src/agent/streams/judge.ts";
import { HANDSHAKE_MS } from "../../../../src/agent/session/machine.ts";
import { retryDelay, type Ending } from "../../../../src/agent/session/backoff.ts";
import { verifyHello } from "../../../../src/controller/channel/hello.ts";
import { TICKET_LIFETIME_MS } from "../../../../src/controller/channel/tickets.ts";
import { ANSWER_MS } from "../../../../src/lib/async/within-time.ts";
import { claimsByType } from "../../../../src/protocol/documents/claims.ts";
import {
  ASKING_VERSION,
  DOCUMENT_PATH,
  HANDSHAKE_LIMITS,
  parseMessage,
  PROTOCOL_VERSION,
  REGISTER_PATH,
  SESSION_BUDGET,
  SESSION_LIMITS,
  SESSION_PATH,
  STREAM_PATH,
  SUBPROTOCOL,
} from "../../../../src/protocol/channel/envelope.ts";
import { peekClaims, verifyJws } from "../../../../src/protocol/channel/jws.ts";
import { keySetOf, walkKeysChain } from "../../../../src/protocol/channel/keys-chain.ts";
import { closeCodes, controlMethods, nodeMethods, type MethodSpec } from "../../../../src/protocol/channel/methods.ts";
import { REGISTRATION_ANSWER_LIMITS, REGISTRATION_LIMITS } from "../../../../src/protocol/channel/registration.ts";
import { STREAM_OPEN_MS, STREAM_SUBPROTOCOL, TICKET_HEADER } from "../../../../src/protocol/channel/streams.ts";

const page = readFileSync("docs/protocol/README.md", "utf8").replaceAll(/\s+/g, " ");
const examples = readFileSync("docs/protocol/examples.md", "utf8");

const delays = (ending: Ending, failures = 1, offlineMs = 0): readonly [number, number] => [
  retryDelay({ ending, failures, offlineMs }, () => 0) / 1000,
  retryDelay({ ending, failures, offlineMs }, () => 1) / 1000,
];

describe("the page on the protocol has the program's numbers", () => {
  const { maxBytes } = SESSION_LIMITS;
  test.each([
    `\`${SUBPROTOCOL}\``,
    `\`wss://<host>${SESSION_PATH}\``,
    `\`wss://<host>${STREAM_PATH}\``,
    `\`${STREAM_SUBPROTOCOL}\``,
    `\`<iss>${REGISTER_PATH}\``,
    `\`GET <iss>${DOCUMENT_PATH}\` with the header \`${TICKET_HEADER}\``,
    `at most ${REGISTRATION_LIMITS.maxBytes} bytes, within 10 s`,
    `at most ${REGISTRATION_ANSWER_LIMITS.maxBytes} bytes, within 15 s`,
    `has ${HANDSHAKE_MS / 1000} s.`,
    `| one message | ${maxBytes} bytes, ${SESSION_LIMITS.maxDepth} levels`,
    `| before hello | ${HANDSHAKE_LIMITS.maxBytes} bytes, ${HANDSHAKE_LIMITS.maxDepth} levels`,
    `one message of at most ${HANDSHAKE_LIMITS.maxBytes} bytes`,
    `${SESSION_BUDGET.messagesPerSecond} messages or ${SESSION_BUDGET.bytesPerSecond} bytes a second, with a burst of ${SESSION_BUDGET.burstSeconds} s`,
    `after ${SESSION_BUDGET.patienceSeconds} s closes the session with 1008`,
    `up to 256 of them and ${2 * maxBytes} bytes`,
    `| an answer is waited for | ${ANSWER_MS / 1000} s |`,
    `\`protocol\` ${ASKING_VERSION}`,
    `\`version\`, \`protocol\` | of the program; ${PROTOCOL_VERSION}`,
    `within ${TICKET_LIFETIME_MS / 1000} s; else the answer is 401`,
    `${MAX_RUNNING} run at a time, ${MAX_RUNNING_PER_EVENT} of one event`,
    `within ${STREAM_OPEN_MS / 1000} s. What follows`,
  ])("%s", (sentence) => {
    expect(page).toContain(sentence);
  });

  test("every close code, with the delay after it", () => {
    for (const code of Object.values(closeCodes)) expect(page).toContain(`| ${code} | control plane |`);
    expect(delays({ kind: "superseded" })).toEqual([30, 60]);
    expect(page).toContain("tries again after 30 to 60 s");
    expect(delays({ kind: "not-authentic" })[1]).toBe(60);
    expect(delays({ kind: "not-authentic" }, 1, 601_000)[1]).toBe(120);
    expect(page).toContain("a random delay of up to 60 s (120 s after ten minutes)");
    expect(delays({ kind: "failed" }, 0)).toEqual([0, 10]);
    expect(page).toContain("a random delay of 0 to 10 s");
    expect([delays({ kind: "failed" })[0], delays({ kind: "failed" }, 16)[1]]).toEqual([0.5, 60]);
    expect(page).toContain("random between 0.5 s and 2 s × 2ⁿ, 60 s at most");
    expect(delays({ kind: "asked-to-wait", delayMs: 7_200_000 })).toEqual([3600.5, 3960]);
  });

  test("every statement and every method", () => {
    const missing = [
      ...Object.keys(claimsByType).map((typ) => typ.replace(/^holdfast-(.*)\+jwt$/, "$1")),
      ...Object.keys(nodeMethods),
      ...Object.keys(controlMethods),
    ].filter((name) => !page.includes(name));
    // A release is not part of the channel, and no event takes input.
    expect(missing).toEqual(["release", "trigger.input"]);
  });
});

describe("the exchange in bytes is valid", () => {
  const statements = [...examples.matchAll(/eyJ[\w-]+\.[\w-]+\.[\w-]+/g)].map(([jws]) => jws);
  const of = (typ: keyof typeof claimsByType): string => {
    const found = statements.find((jws) => Buffer.from(jws.split(".")[0] ?? "", "base64url").includes(`"${typ}"`));
    if (found === undefined) throw new Error(`no ${typ} in the examples`);
    return found;
  };

  test("both sides accept the handshake", async () => {
    const { root, signing, auth } = await exampleKeys();
    const signers = { keys: root, register: auth, activation: auth, "token-use": auth, "node-proof": auth } as const;
    for (const typ of Object.keys(claimsByType) as (keyof typeof claimsByType)[]) {
      if (typ === "holdfast-release+jwt") continue;
      const name = typ.replace(/^holdfast-(.*)\+jwt$/, "$1");
      const signer = (signers as Readonly<Record<string, typeof root>>)[name] ?? signing;
      await expect(verifyJws(typ, of(typ), await keySetOf([signer.jwk])), typ).resolves.toBeDefined();
    }
  });

  test("the handshake is what either side accepts", async () => {
    const { signing, root, node } = await exampleKeys();
    const newest = await walkKeysChain(root.signer.kid, [{ jws: of("holdfast-keys+jwt") }]);
    expect(newest.signing).toEqual([signing.jwk]);
    const hello = peekClaims("holdfast-node-proof+jwt", of("holdfast-node-proof+jwt"));
    const registered = peekClaims("holdfast-registered+jwt", of("holdfast-registered+jwt"));
    const store = {
      nodes: { credentials: () => ({ keys: node, thumbprints: registered.cnf }) },
      tombstones: { get: () => undefined },
    };
    const context = { nonce: hello.nonce, origin: EXAMPLE_ISS, tlsPins: newest.spki };
    const verdict = await verifyHello(of("holdfast-node-proof+jwt"), { ...context, store: store as never });
    expect(verdict.kind).toBe("authentic");
    const answer = peekClaims("holdfast-server-proof+jwt", of("holdfast-server-proof+jwt"));
    expect(answer).toMatchObject({ aud: EXAMPLE_UID, nonce: hello.cnonce, tls: [hello.tls] });

    const trigger = peekClaims("holdfast-trigger+jwt", of("holdfast-trigger+jwt"));
    const here = { uid: EXAMPLE_UID, iss: EXAMPLE_ISS, sid: answer.sid, sessionNow: answer.iat * 1000 };
    expect(judgeTrigger(trigger, here)).toBeUndefined();
    const stream = peekClaims("holdfast-stream+jwt", of("holdfast-stream+jwt"));
    const ticket = /"ticket":"([\w-]{43})"\}\}\n```\n\n## Deletion/.exec(examples)?.[1] ?? "";
    expect(judgeStream(stream, { ...here, ticket })).toBeUndefined();
  });

  test("every frame is a message with valid parameters", () => {
    const frames = [...examples.matchAll(/^\{"jsonrpc".*$/gm)].map(([line]) => line);
    expect(frames.length).toBeGreaterThan(10);
    const methods: Readonly<Record<string, MethodSpec>> = { ...nodeMethods, ...controlMethods };
    const calls = frames.flatMap((frame) => {
      const message = parseMessage(frame, SESSION_LIMITS);
      return "method" in message ? [message] : [];
    });
    expect(calls.length).toBeGreaterThan(5);
    for (const { method, params } of calls) {
      const result = methods[method]?.params.safeParse(params);
      expect(result, method).toMatchObject({ success: true });
    }
  });
});
