import { mkdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { beforeAll, describe, expect, test } from "vitest";
import { identityFiles, SessionCounter } from "../../../../src/agent/identity/identity.ts";
import { readLicense, register } from "../../../../src/agent/identity/registration.ts";
import { HostError, SessionError } from "../../../../src/errors.ts";
import { hostFiles } from "../../../../src/host/files/files.ts";
import type { HttpRequest, HttpResponse } from "../../../../src/host/net/http-client.ts";
import type { RegisteredClaims } from "../../../../src/protocol/documents/claims.ts";
import { peekClaims, signJws, verifyJws } from "../../../../src/protocol/channel/jws.ts";
import { thumbprint, thumbprintsOf } from "../../../../src/protocol/values/keys.ts";
import {
  ISS,
  keysClaims,
  nodeIdentity,
  signingKey,
  UID,
  type SigningKey,
} from "../../../support/control-plane/signing.ts";
import { tempDir } from "../../../support/temp-dir.ts";

let root: SigningKey;
let key: SigningKey;
let license: string;

beforeAll(async () => {
  [root, key] = await Promise.all([signingKey(), signingKey()]);
  const { name, domain, org, type } = nodeIdentity;
  const claims = { iss: ISS, jti: UID, name, domain, org, type, iat: 1, exp: 2, root: root.kid, spki: [] };
  license = await signJws("holdfast-license+jwt", claims, key);
});

function setUp() {
  const directory = tempDir();
  mkdirSync(join(directory, "s/identity"), { recursive: true });
  return {
    files: identityFiles(hostFiles(directory), "/s"),
    at: (name: string) => join(directory, "s/identity", name),
  };
}

type Answer = Pick<HttpResponse, "status" | "body">;

/** A control plane with correct answers, or, with changes, false ones. */
async function honest(request: HttpRequest, changes: Partial<RegisteredClaims> = {}, signer = key): Promise<Answer> {
  const { register: jws } = JSON.parse(request.body ?? "") as { register: string };
  const requested = peekClaims("holdfast-register+jwt", jws);
  const kid = await thumbprint(requested.keys.auth);
  await verifyJws("holdfast-register+jwt", jws, new Map([[kid, requested.keys.auth]]));
  const cnf = await thumbprintsOf(requested.keys);
  const claims = { iss: ISS, aud: UID, nonce: requested.nonce, iat: 1, node: nodeIdentity, cnf, ...changes };
  const registered = await signJws("holdfast-registered+jwt", claims, signer);
  const keys = [{ jws: await signJws("holdfast-keys+jwt", keysClaims(root, [key]), root) }];
  return { status: 200, body: JSON.stringify({ registered, keys }) };
}

function run(
  files: ReturnType<typeof identityFiles>,
  answer: (request: HttpRequest) => Promise<Answer>,
  text = license,
) {
  const http = {
    send: async (request: HttpRequest) => ({
      contentType: "text/html",
      retryAfterMs: undefined,
      ...(await answer(request)),
    }),
  };
  const device = () => Promise.resolve({ vendor: "v", model: "m", mac: "00" });
  return register(text, { files, http, device }, new AbortController().signal);
}

describe("registering", () => {
  test("keeps the first identity, and refuses a second one", async () => {
    const { files } = setUp();
    const registration = await run(files, honest, `\n${license}\n`);
    expect(registration).toEqual({ node: nodeIdentity, controlPlane: { iss: ISS, keys: keysClaims(root, [key]) } });
    expect(await files.registration.load()).toEqual({ is: "good", value: registration });
    await expect(run(files, honest)).rejects.toMatchObject({ code: "already-registered" });
  });

  test("twice at the same time makes one key pair, and the second finds an identity", async () => {
    const { files } = setUp();
    const seen: string[] = [];
    const remember = (request: HttpRequest) => {
      const { register: jws } = JSON.parse(request.body ?? "") as { register: string };
      seen.push(peekClaims("holdfast-register+jwt", jws).keys.auth.x);
      return honest(request);
    };
    const [first, second] = await Promise.allSettled([run(files, remember), run(files, remember)]);
    expect(first.status).toBe("fulfilled");
    expect(second).toMatchObject({ status: "rejected", reason: { code: "already-registered" } });
    expect(await files.keys.load()).toMatchObject({ value: { auth: { x: seen[0] } } });
    expect(seen).toHaveLength(1);
  });

  test("of a node whose keys are lost reports what to do", async () => {
    const { files } = setUp();
    await run(files, honest);
    await files.keys.remove();
    const message = expect.stringContaining("run 'holdfast reset'") as unknown;
    await expect(run(files, honest)).rejects.toMatchObject({ code: "identity-lost", message });
    expect(await files.keys.load()).toEqual({ is: "absent" });
  });

  test("with keys that a node already has reports what to do", async () => {
    const { files } = setUp();
    const body = '{"error":"another node has one of these keys","code":"key-in-use"}';
    const refused = run(files, () => Promise.resolve({ status: 409, body }));
    await expect(refused).rejects.toMatchObject({ code: "key-in-use", details: { status: 409 } });
    await expect(refused).rejects.toThrow(/the license that it was registered with.*run 'holdfast reset' first/);
  });

  test("with a silent control plane reports what to do", async () => {
    const { files } = setUp();
    const silent = new SessionError("http-failed", "POST x: connected, and no complete answer came within 15 s");
    const failed = run(files, () => Promise.reject(silent));
    await expect(failed).rejects.toMatchObject({ code: "http-failed" });
    await expect(failed).rejects.toThrow(/within 15 s; check that the control plane runs at .*run the command again/);
  });

  test("that fails lets the waiting one proceed", async () => {
    const { files } = setUp();
    const lost = run(files, () => Promise.reject(new Error("lost")));
    const next = run(files, honest);
    await expect(lost).rejects.toThrow("lost");
    expect(await next).toMatchObject({ node: nodeIdentity });
  });

  test("for a session without TLS to another machine is refused, and the license can be used again", async () => {
    const { files } = setUp();
    const session = "ws://192.0.2.1/agent/v1/session";
    const insecure = (request: HttpRequest) => honest(request, { node: { ...nodeIdentity, session } });
    await expect(run(files, insecure)).rejects.toMatchObject({ code: "insecure" });
    expect(await files.registration.load()).toEqual({ is: "absent" });
    expect(await run(files, honest)).toMatchObject({ node: nodeIdentity });
  });

  test("uses the same keys again after a lost reply", async () => {
    const { files, at } = setUp();
    const seen: unknown[] = [];
    const remember = (request: HttpRequest) => {
      const { register: jws } = JSON.parse(request.body ?? "") as { register: string };
      seen.push(peekClaims("holdfast-register+jwt", jws).keys);
      return honest(request);
    };
    await expect(
      run(files, (request) => remember(request).then(() => Promise.reject(new Error("lost")))),
    ).rejects.toThrow("lost");
    writeFileSync(at("keys.json"), "damaged");
    await run(files, remember);
    expect(seen[0]).toEqual(seen[1]);
  });

  test.each<[string, (request: HttpRequest) => Promise<Answer>, string, RegExp]>([
    ["another nonce", (r) => honest(r, { nonce: "n".repeat(43) }), "bad-signature", /nonce/],
    ["another issuer", (r) => honest(r, { iss: "http://127.0.0.1:1" }), "bad-signature", /iss/],
    ["another node", (r) => honest(r, { aud: "11111111-1111-4111-8111-111111111111" }), "bad-signature", /uid/],
    [
      "other keys",
      (r) => honest(r, { cnf: { auth: "a".repeat(43), overlay: "b".repeat(43), wireguard: "c".repeat(43) } }),
      "bad-signature",
      /cnf\.auth, cnf\.overlay, cnf\.wireguard/,
    ],
    ["a stranger's signature", async (r) => honest(r, {}, await signingKey()), "bad-signature", /unknown key/],
    [
      "no keys",
      async (r) => ({ ...(await honest(r)), body: '{"registered":"a.b.c","keys":[]}' }),
      "bad-signature",
      /root/,
    ],
    ["HTML", () => Promise.resolve({ status: 200, body: "<html>" }), "invalid-answer", /text\/html/],
    ["half an answer", () => Promise.resolve({ status: 200, body: "{}" }), "invalid-answer", /registered: /],
    [
      "a refusal",
      () => Promise.resolve({ status: 409, body: '{"error":"used","code":"license-used"}' }),
      "license-used",
      /used/,
    ],
    ["an error page", () => Promise.resolve({ status: 502, body: "<html>" }), "registration-failed", /502/],
  ])("answered with %s changes nothing", async (_what, answer, code, why) => {
    const { files } = setUp();
    const refused = run(files, answer);
    await expect(refused).rejects.toMatchObject({ code });
    await expect(refused).rejects.toThrow(why);
    expect(await files.registration.load()).toEqual({ is: "absent" });
  });
});

describe("a license", () => {
  test.each([
    ["", /three parts/],
    ["a.b", /cut/],
    ["a.b.c.d", /found 4/],
    ["a b.c.d", /header/],
    ["a.b!.c", /payload/],
    ["a.b.", /signature/],
    ["YQ.YQ.YQ", /compact JWS/],
  ])("%j is refused with the invalid part", (text, why) => {
    expect(() => readLicense(text)).toThrow(why);
    expect(() => readLicense(text)).toThrow(expect.objectContaining({ code: "bad-license" }));
  });

  test("of another kind, or with an invalid field, is refused by name", async () => {
    const deleted = await signJws("holdfast-deleted+jwt", { iss: ISS, aud: UID, nonce: "n".repeat(43), iat: 1 }, key);
    expect(() => readLicense(deleted)).toThrow(/expected holdfast-license/);
    const wrong = { ...readLicense(license), jti: "x" };
    const signed = await signJws("holdfast-license+jwt", wrong, key);
    expect(() => readLicense(signed)).toThrow(/jti: /);
  });

  test("for an existing key is refused by another key", async () => {
    const bound = await signJws("holdfast-license+jwt", { ...readLicense(license), cnf: { jkt: "k".repeat(43) } }, key);
    await expect(run(setUp().files, honest, bound)).rejects.toThrow(/cnf\.jkt/);
  });
});

describe("the session counter", () => {
  test("rises by one, over restarts and damage", async () => {
    const { files, at } = setUp();
    const next = async (now: number) =>
      (
        await SessionCounter.open(
          files.counter,
          () => now,
          (error) => expect.fail(String(error)),
        )
      ).next();
    expect(await next(1000)).toBe(1000);
    expect(await next(5)).toBe(1001);
    expect(await next(5)).toBe(1002);
    let last = 1002;
    for (let i = 0; i < 3; i += 1) {
      writeFileSync(at("counter.json"), "damaged");
      const after = await next(5);
      expect(after).toBeGreaterThan(last);
      last = after;
    }
    last = await next(5);
    writeFileSync(at("counter.json"), "damaged");
    writeFileSync(at("counter.json.previous"), "damaged");
    expect(await next(2_000_000)).toBe(2_000_000);
    expect(last).toBeLessThan(2_000_000);
  });

  test("continues in memory while the disk refuses writes, above the clock, and on disk as soon as possible", async () => {
    const { files } = setUp();
    let isRefused = false;
    const refused: unknown[] = [];
    const disk = {
      ...files.counter,
      save: (value: { n: number }) =>
        isRefused ? Promise.reject(new HostError("disk-full", "full")) : files.counter.save(value),
    };
    const open = (now: number) =>
      SessionCounter.open(
        disk,
        () => now,
        (error) => refused.push(error),
      );
    const counter = await open(10);
    expect(await counter.next()).toBe(10);
    isRefused = true;
    expect(await counter.next()).toBe(11);
    const restarted = await open(500);
    expect([await restarted.next(), await restarted.next()]).toEqual([500, 501]);
    expect(refused).toHaveLength(3);
    isRefused = false;
    await restarted.keep();
    expect(await (await open(5)).next()).toBe(502);
  });
});
