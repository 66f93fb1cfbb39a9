import { randomUUID } from "node:crypto";
import { connect } from "node:net";
import { expect, onTestFinished, test } from "vitest";
import { REGISTER_PATH } from "../../../../src/protocol/channel/envelope.ts";
import { peekClaims } from "../../../../src/protocol/channel/jws.ts";
import { KeysEnvelopes, walkKeysChain } from "../../../../src/protocol/channel/keys-chain.ts";
import type { Controller } from "../../../../src/controller/controller.ts";
import {
  makeIdentity,
  nonce,
  postRegister,
  register,
  registerJws,
  until,
} from "../../../support/control-plane/node-client.ts";
import {
  clockWith,
  MovableClock,
  runController,
  temporaryDirectory,
} from "../../../support/control-plane/running-controller.ts";
import { waitFor } from "../../../support/wait-for.ts";

const DAY_MS = 24 * 3_600_000;

function licenseFor(controller: Controller, name = "edge", jkt?: string): Promise<string> {
  return controller.licenses.issue({ name, type: "Node", user: "test", ...(jkt === undefined ? {} : { jkt }) });
}

async function eventsOf(controller: Controller, eventType: string) {
  const { items } = await controller.events.find({
    eventTypes: [eventType],
    sort: { by: "timestamp", order: "asc" },
    limit: 100,
    offset: 0,
  });
  return items;
}

test("a license registers one node, and the same keys are answered again", async () => {
  const controller = await runController({ domain: "net.example" });
  const license = await licenseFor(controller);
  const { jti, root } = peekClaims("holdfast-license+jwt", license);
  const identity = await makeIdentity();
  const mine = nonce();
  const first = await register(controller.url, license, identity, { nonce: mine });
  expect(first.status).toBe(200);
  const registered = peekClaims("holdfast-registered+jwt", String(first.body["registered"]));
  expect(registered).toMatchObject({ iss: controller.url, aud: jti, nonce: mine, cnf: identity.thumbprints });
  expect(registered.node).toMatchObject({ uid: jti, name: "edge", fqdn: "edge.net.example", type: "Node" });
  expect(registered.node.session).toBe(`${controller.url.replace("http", "ws")}/agent/v1/session`);
  const keys = await walkKeysChain(root, KeysEnvelopes.parse(first.body["keys"]));
  expect(keys.version).toBe(1);
  expect(await controller.nodes.get(jti)).toMatchObject({ fqdn: "edge.net.example", isOnline: false, state: "ACTIVE" });

  expect((await register(controller.url, license, identity)).status).toBe(200);
  expect(await controller.nodes.all()).toHaveLength(1);
});

test("of many attempts with one license at once, exactly one identity gets it", async () => {
  const controller = await runController();
  const license = await licenseFor(controller);
  const identities = await Promise.all(Array.from({ length: 8 }, makeIdentity));
  const answers = await Promise.all(identities.map((identity) => register(controller.url, license, identity)));
  expect(answers.filter(({ status }) => status === 200)).toHaveLength(1);
  expect(answers.filter(({ status }) => status === 409)).toHaveLength(7);
  expect(await controller.nodes.all()).toHaveLength(1);
});

test("other keys, and keys of another node, are refused with an event", async () => {
  const controller = await runController();
  const license = await licenseFor(controller);
  const identity = await makeIdentity();
  await register(controller.url, license, identity);
  const reused = await register(controller.url, license, await makeIdentity());
  expect(reused).toMatchObject({ status: 409, body: { code: "license-reused" } });

  const second = await licenseFor(controller, "second");
  const { jti } = peekClaims("holdfast-license+jwt", second);
  const other = await makeIdentity();
  const mixed = { ...other, keys: { ...other.keys, overlay: identity.keys.overlay } };
  expect(await register(controller.url, second, mixed)).toMatchObject({ status: 409, body: { code: "key-in-use" } });
  expect(await controller.nodes.get(jti)).toBeUndefined();
  expect((await eventsOf(controller, "License Reused")).map(({ details }) => details["code"])).toEqual([
    "license-reused",
    "key-in-use",
  ]);
});

test("an expired license is refused, but a lost reply is still answered", async () => {
  const clock = new MovableClock();
  const controller = await runController({ clock });
  const [license, late] = [await licenseFor(controller), await licenseFor(controller, "late")];
  const identity = await makeIdentity();
  await register(controller.url, license, identity);
  clock.advance(DAY_MS + 1000);
  expect((await register(controller.url, license, identity)).status).toBe(200);
  expect(await register(controller.url, late, await makeIdentity())).toMatchObject({
    status: 410,
    body: { code: "license-expired" },
  });
});

test("a license of a deleted node never counts again", async () => {
  const controller = await runController();
  const license = await licenseFor(controller);
  const identity = await makeIdentity();
  await register(controller.url, license, identity);
  await controller.nodes.delete(peekClaims("holdfast-license+jwt", license).jti, "test");
  expect((await register(controller.url, license, identity)).status).toBe(410);
});

test("a node shows the order of its license", async () => {
  const controller = await runController();
  const orderID = randomUUID();
  const license = await controller.licenses.issue({ name: "ordered", type: "Node", user: "test", orderID });
  const identity = await makeIdentity();
  expect((await register(controller.url, license, identity)).status).toBe(200);
  expect((await controller.nodes.get(peekClaims("holdfast-license+jwt", license).jti))?.orderID).toBe(orderID);
});

test("two licenses for one name make one node", async () => {
  const controller = await runController();
  const [first, second] = [await licenseFor(controller), await licenseFor(controller)];
  expect((await register(controller.url, first, await makeIdentity())).status).toBe(200);
  expect(await register(controller.url, second, await makeIdentity())).toMatchObject({
    status: 409,
    body: { code: "name-taken" },
  });
});

test("a license of another control plane, a tampered one and a wrongly signed request are 401", async () => {
  const controller = await runController();
  const elsewhere = await runController();
  const license = await licenseFor(controller);
  const identity = await makeIdentity();
  const [header = "", payload = "", signature = ""] = license.split(".");
  const longer = Buffer.from(payload, "base64url").toString().replace('"name":"edge"', '"name":"root"');
  const tampered = [header, Buffer.from(longer).toString("base64url"), signature].join(".");
  const thief = await makeIdentity();
  const lowOrder = { ...identity.keys, wireguard: { kty: "OKP", crv: "X25519", x: "A".repeat(43) } };
  const offCurve = { ...identity.keys, overlay: { ...identity.keys.overlay, y: identity.keys.overlay.x } };
  const bodies = await Promise.all([
    registerJws(controller.url, await licenseFor(elsewhere), identity),
    registerJws(controller.url, tampered, identity),
    registerJws("https://elsewhere.example", license, identity),
    registerJws(controller.url, license, identity, { keys: thief.keys }),
    registerJws(controller.url, license, identity, { keys: lowOrder }),
    registerJws(controller.url, license, identity, { keys: offCurve }),
    registerJws(controller.url, license, identity, { nonce: "short" }),
    licenseFor(controller, "bound", thief.thumbprints.auth).then((bound) =>
      registerJws(controller.url, bound, identity),
    ),
  ]);
  for (const jws of bodies) {
    const answer = await postRegister(controller.url, JSON.stringify({ register: jws }));
    expect(answer.status).toBe(401);
    expect(answer.body["error"]).toEqual(expect.any(String));
  }
  expect(await controller.nodes.all()).toHaveLength(0);
});

test("a license names one origin, and no other honours it", async () => {
  const dataDir = await temporaryDirectory();
  const before = await runController({ dataDir });
  const license = await licenseFor(before);
  await before.close();
  const after = await runController({ dataDir, listen: "localhost:0" });
  const answer = await register(after.url, license, await makeIdentity());
  expect(answer).toMatchObject({ status: 401, body: { code: "bad-signature" } });
  expect(answer.body["error"]).toContain("license.iss");
});

test("a body that is not what it should be is named as such", async () => {
  const controller = await runController();
  expect(await postRegister(controller.url, "{")).toMatchObject({ status: 401, body: { code: "invalid-json" } });
  expect(await postRegister(controller.url, '{"__proto__":1}')).toMatchObject({ status: 401 });
  const encoded = (text: string): string => Buffer.from(text).toString("base64url");
  const header = encoded(JSON.stringify({ alg: "Ed25519", kid: "x", typ: "holdfast-register+jwt" }));
  for (const payload of ["nope", '{"__proto__":1}', "[".repeat(40)]) {
    const body = JSON.stringify({ register: `${header}.${encoded(payload)}.AAAA` });
    expect(await postRegister(controller.url, body), payload).toMatchObject({ status: 401 });
  }
  const missing = await postRegister(controller.url, "{}");
  expect(missing).toMatchObject({ status: 401, body: { code: "invalid-body" } });
  expect(missing.body["error"]).toContain("register");
  const large = await postRegister(controller.url, JSON.stringify({ register: "x".repeat(40 * 1024) }));
  expect(large).toMatchObject({ status: 413, body: { code: "too-large" } });
});

test("an address that keeps failing is told to wait", async () => {
  const controller = await runController();
  let answer = await postRegister(controller.url, "{");
  for (let i = 0; i < 60; i += 1) answer = await postRegister(controller.url, "{");
  expect(answer.status).toBe(429);
  expect(Number(answer.headers.get("retry-after"))).toBeGreaterThan(0);
});

/** A registration whose body does not end; gives what is answered. */
function dawdle(controller: Controller, localAddress: string): () => string {
  const port = Number(new URL(controller.url).port);
  const socket = connect({ port, host: "127.0.0.1", localAddress });
  onTestFinished(() => void socket.destroy());
  let heard = "";
  socket.on("data", (chunk) => (heard += chunk.toString())).on("error", () => undefined);
  socket.write(`POST ${REGISTER_PATH} HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\n{`);
  return () => heard;
}

test("one address cannot keep the others from registering", async () => {
  const controller = await runController();
  const slow = Array.from({ length: 70 }, () => dawdle(controller, "127.0.0.2"));
  await until(() => slow.filter((heard) => heard().startsWith("HTTP/1.1 429")).length === 62, "refusals");
  const answer = await register(controller.url, await licenseFor(controller), await makeIdentity());
  expect(answer.status).toBe(200);
});

test("a registration that does not arrive in time is given up", async () => {
  const controller = await runController({ clock: clockWith(10_000, 20) });
  const heard = dawdle(controller, "127.0.0.2");
  await until(() => heard().includes("\r\n\r\n"), "answer");
  expect(heard()).toMatch(/^HTTP\/1\.1 408 /);
  expect(heard()).toMatch(/connection: close/i);
  expect(heard()).toContain("timeout");
});

test("whoever asks for a session plainly hears for how long the control plane has been serving", async () => {
  const controller = await runController();
  const uptime = async () => (await fetch(`${controller.url}/agent/v1/session`)).headers.get("holdfast-uptime");
  expect(await uptime()).toBe("0");
  await waitFor("a second has passed", async () => Number(await uptime()) > 0);
});

test("other paths and methods of the nodes' part answer JSON", async () => {
  const controller = await runController();
  const status = async (path: string, method = "GET"): Promise<number> =>
    (await fetch(`${controller.url}${path}`, { method })).status;
  expect(await status("/agent/v1/nothing")).toBe(404);
  expect(await status("/agent/v1/register")).toBe(405);
  expect(await status("/agent/v1/session")).toBe(426);
  expect(await status("/agent/v1/document")).toBe(401);
  expect(await status("/elsewhere")).toBe(404);
});
