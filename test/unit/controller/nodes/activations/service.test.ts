import { expect, test } from "vitest";
import {
  Activations,
  MAX_SHOWN,
  MAX_SHOWN_PER_NETWORK,
  MAX_SHOWN_PER_PREFIX,
  MAX_WRONG,
  type Guesser,
} from "../../../../../src/controller/nodes/activations/service.ts";
import { sharedPrefix } from "../../../../../src/lib/net/plain-address.ts";
import { CODE_ALPHABET } from "../../../../../src/protocol/channel/activation.ts";
import { signJws } from "../../../../../src/protocol/channel/jws.ts";
import { FakeClock } from "../../../../support/fake-clock.ts";
import { deferred } from "../../../../support/deferred.ts";
import { makeIdentity, type TestIdentity } from "../../../../support/control-plane/node-client.ts";

const ORIGIN = "https://cp.example.net";
const DEVICE = { vendor: "Test", model: "Box", mac: "02:00:00:00:00:01" };
const from = (address: string) => ({ address, prefix: sharedPrefix(address) });
const guesser = (user = "ada", address = "192.0.2.1"): Guesser => ({ user, source: from(address) });

function bench(issue: () => Promise<string> = () => Promise.resolve("a.b.c")) {
  const clock = new FakeClock();
  const issued: unknown[] = [];
  const activations = new Activations({
    clock,
    origin: ORIGIN,
    issue(request) {
      issued.push(request);
      return issue();
    },
  });
  const message = (identity: TestIdentity, seq: number, change: object = {}): Promise<string> =>
    signJws(
      "holdfast-activation+jwt",
      { aud: ORIGIN, seq, keys: identity.keys, device: DEVICE, ...change },
      identity.auth,
    );
  const ask = async (identity: TestIdentity, seq: number, address = "203.0.113.7") =>
    activations.ask(await message(identity, seq), from(address));
  const codeOf = async (identity: TestIdentity, seq: number, address?: string): Promise<string> => {
    const answer = await ask(identity, seq, address);
    return answer.state === "pending" ? answer.code : "";
  };
  return { clock, activations, issued, message, ask, codeOf };
}

test("a code is the same while it lives, and its license goes to the key that showed it", async () => {
  const { activations, issued, ask, codeOf } = bench();
  const [machine, other] = [await makeIdentity(), await makeIdentity()];
  const code = await codeOf(machine, 1);
  expect(code).toMatch(new RegExp(`^[${CODE_ALPHABET}]{6}$`));
  expect(await codeOf(machine, 2)).toBe(code);
  expect(await codeOf(other, 1)).not.toBe(code);
  expect(activations.find(code, guesser())).toMatchObject({
    device: DEVICE,
    key: machine.thumbprints.auth,
    address: "203.0.113.7",
  });
  await activations.approve(code, guesser(), { name: "edge", type: "Node" });
  expect(issued).toEqual([{ name: "edge", type: "Node", jkt: machine.thumbprints.auth, user: "ada" }]);
  expect(await ask(machine, 3)).toEqual({ state: "approved", license: "a.b.c" });
  expect(await ask(other, 2)).toMatchObject({ state: "pending" });
});

test("a code is used once, also by two at the same moment, and lives again when its name is refused", async () => {
  const results = [deferred<string>(), deferred<string>()];
  let at = 0;
  const { activations, codeOf } = bench(
    () => (results[(at += 1) - 1] ?? results[1])?.promise ?? Promise.reject(new Error()),
  );
  const code = await codeOf(await makeIdentity(), 1);
  const first = activations.approve(code, guesser(), { name: "taken", type: "Node" });
  await expect(activations.approve(code, guesser("bob"), { name: "b", type: "Node" })).rejects.toMatchObject({
    code: "not-found",
  });
  results[0]?.reject(new Error("name-taken"));
  await expect(first).rejects.toThrow("name-taken");
  results[1]?.resolve("a.b.c");
  await activations.approve(code, guesser(), { name: "free", type: "Node" });
  expect(() => activations.find(code, guesser())).toThrow(expect.objectContaining({ code: "not-found" }) as Error);
});

test("a code expires after 15 minutes, and the machine then shows another", async () => {
  const { clock, activations, codeOf } = bench();
  const machine = await makeIdentity();
  const code = await codeOf(machine, 1);
  await clock.advance(15 * 60_000 - 1);
  expect(activations.find(code, guesser()).expiresInSeconds).toBe(0);
  await clock.advance(1);
  expect(() => activations.find(code, guesser())).toThrow(expect.objectContaining({ code: "not-found" }) as Error);
  expect(await codeOf(machine, 2)).not.toBe(code);
});

test("a message is taken once, and none that another key signed or that is for another control plane", async () => {
  const { activations, message } = bench();
  const [machine, thief] = [await makeIdentity(), await makeIdentity()];
  const first = await message(machine, 7);
  await activations.ask(first, from("203.0.113.7"));
  await expect(activations.ask(first, from("203.0.113.7"))).rejects.toMatchObject({
    code: "replayed",
    details: { seq: 7 },
  });
  const forged = await signJws(
    "holdfast-activation+jwt",
    { aud: ORIGIN, seq: 8, keys: machine.keys, device: DEVICE },
    { ...thief.auth, kid: machine.auth.kid },
  );
  await expect(activations.ask(forged, from("203.0.113.7"))).rejects.toMatchObject({ code: "bad-signature" });
  const elsewhere = await message(machine, 9, { aud: "https://other.example" });
  await expect(activations.ask(elsewhere, from("203.0.113.7"))).rejects.toMatchObject({ code: "bad-signature" });
});

test("wrong codes stop who enters them, of IPv6 by the /64, and nobody else; a right one then says no more than a wrong one", async () => {
  const { clock, activations, codeOf } = bench();
  const code = await codeOf(await makeIdentity(), 1);
  const find =
    (who: Guesser, text = "AAAAAA") =>
    () =>
      activations.find(text, who);
  const refused = (code: string) => expect.objectContaining({ code }) as Error;
  for (let at = 0; at < MAX_WRONG; at += 1) {
    expect(find(guesser("mallory", `2001:db8::${at + 1}`))).toThrow(refused("not-found"));
  }
  const mallory = guesser("mallory", "2001:db8::ffff");
  expect(find(mallory, code)).toThrow(refused("too-many-failures"));
  await expect(activations.approve(code, mallory, { name: "x", type: "Node" })).rejects.toMatchObject({
    code: "too-many-failures",
  });
  // Behind the same address, and the same user elsewhere.
  expect(find(guesser("ada", "2001:db8::1"), code)()).toMatchObject({ device: DEVICE });
  expect(find(guesser("mallory", "198.51.100.1"), code)()).toMatchObject({ device: DEVICE });
  await clock.advance(60_000);
  expect(find(mallory, code)()).toMatchObject({ device: DEVICE });
});

test("a user cannot go on guessing from one address after another", () => {
  const { activations } = bench();
  const codes = Array.from({ length: 100 }, (_, at) => {
    try {
      activations.find("AAAAAA", guesser("mallory", `198.51.${at}.1`));
      return "found";
    } catch (error) {
      return (error as { code?: string }).code;
    }
  });
  expect(codes.filter((code) => code === "not-found")).toHaveLength(60);
  expect(codes.at(-1)).toBe("too-many-failures");
});

test("one prefix and one network show so many codes", async () => {
  const { activations, ask, codeOf } = bench();
  for (let at = 0; at < MAX_SHOWN_PER_PREFIX; at += 1) await ask(await makeAuth(), 1, `2001:db8:0:1::${at + 1}`);
  const last = await makeAuth();
  const refused = { code: "too-many", message: expect.stringContaining("of this address") as unknown };
  await expect(ask(last, 1, "2001:db8:0:1::ffff")).rejects.toMatchObject(refused);
  for (let at = MAX_SHOWN_PER_PREFIX; at < MAX_SHOWN_PER_NETWORK; at += 1) {
    await ask(await makeAuth(), 1, `2001:db8:0:${at.toString(16)}00::1`);
  }
  await expect(ask(last, 2, "2001:db8:0:ffff::1")).rejects.toMatchObject({
    code: "too-many",
    message: expect.stringContaining("of the network 2001:db8::/48") as unknown,
  });
  expect(activations.find(await codeOf(last, 3, "192.0.2.9"), guesser()).address).toBe("192.0.2.9");
});

test("a code that is entered makes room for another machine of its address", async () => {
  const { activations, ask, codeOf } = bench();
  const codes: string[] = [];
  for (let at = 0; at < MAX_SHOWN_PER_PREFIX; at += 1) codes.push(await codeOf(await makeAuth(), 1, "192.0.2.9"));
  const next = await makeAuth();
  await expect(ask(next, 1, "192.0.2.9")).rejects.toMatchObject({ code: "too-many" });
  await activations.approve(codes[0] ?? "", guesser(), { name: "a", type: "Node" });
  expect(await ask(next, 2, "192.0.2.9")).toMatchObject({ state: "pending" });
  await expect(ask(await makeAuth(), 1, "192.0.2.9")).rejects.toMatchObject({ code: "too-many" });
});

test("a flood from many networks displaces no code that is shown, and ends with the codes it took", async () => {
  const { clock, activations, ask, codeOf } = bench();
  const machine = await makeAuth();
  const code = await codeOf(machine, 1, "192.0.2.9");
  for (let at = 1; at < MAX_SHOWN; at += 1) await ask(await makeAuth(), 1, `2001:${at.toString(16)}:1::1`);
  const late = await makeAuth();
  await expect(ask(late, 1, "198.51.100.1")).rejects.toMatchObject({ code: "too-many" });
  expect(await codeOf(machine, 2, "192.0.2.9")).toBe(code);
  expect(activations.find(code, guesser()).address).toBe("192.0.2.9");
  await clock.advance(15 * 60_000);
  expect(await ask(late, 2, "198.51.100.1")).toMatchObject({ state: "pending" });
});

const template = makeIdentity();
/** Another auth key with the other keys of one identity: made far quicker. */
async function makeAuth(): Promise<TestIdentity> {
  const { generateKeyPair, exportJWK } = await import("jose");
  const { Ed25519PublicKey, thumbprint } = await import("../../../../../src/protocol/values/keys.ts");
  const base = await template;
  const { publicKey, privateKey } = await generateKeyPair("Ed25519", { extractable: true });
  const auth = Ed25519PublicKey.parse(await exportJWK(publicKey));
  const kid = await thumbprint(auth);
  return { keys: { ...base.keys, auth }, thumbprints: { ...base.thumbprints, auth: kid }, auth: { kid, privateKey } };
}
