import { expect, test } from "vitest";
import { peekClaims, verifyJws } from "../../../../src/protocol/channel/jws.ts";
import { KeysEnvelopes, keySetOf, walkKeysChain } from "../../../../src/protocol/channel/keys-chain.ts";
import {
  makeIdentity,
  nonce,
  postRegister,
  RawSocket,
  registerJws,
  TestNode,
  until,
} from "../../../support/control-plane/node-client.ts";
import { freePort } from "../../../support/machine/programs.ts";
import { addNode, runController } from "../../../support/control-plane/running-controller.ts";

test("a registered node is taken in, and the control plane proves itself", async () => {
  const controller = await runController();
  const node = await addNode(controller, "edge");
  const cnonce = nonce();
  const session = await node.connect({ claims: { cnonce } });
  const license = await controller.licenses.issue({ name: "other", type: "Node", user: "test" });
  const { iss, root } = peekClaims("holdfast-license+jwt", license);
  expect(iss).toBe(controller.url);

  const envelopes = KeysEnvelopes.parse(JSON.parse((await session.fetchDocument(controller.url, "keys")) ?? "[]"));
  const { signing } = await walkKeysChain(root, envelopes);
  const proof = await verifyJws("holdfast-server-proof+jwt", session.serverProof, await keySetOf(signing));
  expect(proof).toMatchObject({ iss: controller.url, aud: node.uid, nonce: cnonce });
  expect(proof.versions).toEqual({ keys: 1, node: 1, cluster: 0, domain: 1 });
  expect(proof.tls).toBeUndefined();
  expect(session.hello).toMatchObject({ heartbeatSeconds: 30, reportedVersion: 0 });

  const record = await controller.nodes.get(node.uid);
  expect(record).toMatchObject({ isOnline: true, lastIp: "127.0.0.1" });
  expect(Math.abs((record?.lastConnect ?? 0) - Date.now())).toBeLessThan(60_000);
});

test.each([
  ["a nonce that is not this socket's challenge", { nonce: nonce() }, 4001],
  ["a foreign audience", { aud: "https://elsewhere.example" }, 4001],
  ["a TLS key that is not served", { tls: nonce() }, 4001],
])("%s is refused", async (_what, claims, code) => {
  const controller = await runController();
  const node = await addNode(controller, "edge");
  const raw = new RawSocket(controller.url);
  const proof = await node.proof(await raw.challenge(), claims);
  raw.socket.send(
    JSON.stringify({ jsonrpc: "2.0", id: 1, method: "session.hello", params: { proof, reportedVersion: 0 } }),
  );
  expect(await raw.closeCode()).toBe(code);
  expect(JSON.parse(raw.frames[1] ?? "{}")).toMatchObject({ id: 1, error: { data: { code: "bad-signature" } } });
  expect(await controller.nodes.get(node.uid)).toMatchObject({ isOnline: false, lastConnect: undefined });
});

test("a node of another protocol version is sent away by a control plane that proved itself", async () => {
  const controller = await runController();
  const node = await addNode(controller, "edge");
  const cnonce = nonce();
  const session = await node.connect({ claims: { protocol: 2, cnonce } });
  expect(peekClaims("holdfast-server-proof+jwt", session.serverProof)).toMatchObject({ aud: node.uid, nonce: cnonce });
  expect(await session.raw.closeCode()).toBe(4004);
  expect(await controller.nodes.get(node.uid)).toMatchObject({ isOnline: false, lastConnect: undefined });
});

test("an unknown node and a node with another's key are refused alike", async () => {
  const controller = await runController();
  const node = await addNode(controller, "edge");
  const stranger = new TestNode(controller.url, "0b6a1dd2-0b5e-4a65-8c23-7b8a52f4d3a1", await makeIdentity());
  await expect(stranger.connect()).rejects.toMatchObject({ code: "bad-signature" });
  const thief = await makeIdentity();
  await expect(node.connect({ signer: thief.auth })).rejects.toMatchObject({ code: "bad-signature" });
});

test.each([
  ["something that is not JSON", "hello"],
  ["another method", JSON.stringify({ jsonrpc: "2.0", method: "heartbeat", params: {} })],
  ["a batch", "[]"],
  ["no proof", JSON.stringify({ jsonrpc: "2.0", id: 1, method: "session.hello", params: {} })],
])("%s before hello closes the socket", async (_what, frame) => {
  const controller = await runController();
  const raw = new RawSocket(controller.url);
  await raw.challenge();
  raw.socket.send(frame);
  expect(await raw.closeCode()).toBe(4001);
});

test("more than 64 KiB before hello closes with 1009", async () => {
  const controller = await runController();
  const raw = new RawSocket(controller.url);
  await raw.challenge();
  raw.socket.send("x".repeat(65 * 1024));
  expect(await raw.closeCode()).toBe(1009);
});

test("a second message before the answer closes the socket", async () => {
  const controller = await runController();
  const node = await addNode(controller, "edge");
  const raw = new RawSocket(controller.url);
  const proof = await node.proof(await raw.challenge());
  const hello = JSON.stringify({
    jsonrpc: "2.0",
    id: 1,
    method: "session.hello",
    params: { proof, reportedVersion: 0 },
  });
  raw.socket.send(hello);
  raw.socket.send(hello);
  expect(await raw.closeCode()).toBe(4001);
  expect((await controller.nodes.get(node.uid))?.isOnline).toBe(false);
});

test("without the subprotocol there is no socket", async () => {
  const controller = await runController();
  const raw = new RawSocket(controller.url, {}, []);
  expect((await until(() => raw.failure)).message).toContain("400");
});

test("one address may have sixteen sockets that said nothing yet", async () => {
  const controller = await runController();
  const strangers = Array.from({ length: 16 }, () => new RawSocket(controller.url));
  await Promise.all(strangers.map((raw) => raw.challenge()));
  const late = new RawSocket(controller.url);
  expect((await until(() => late.failure)).message).toContain("429");
  strangers[0]?.socket.terminate();
  await until(() => strangers[0]?.closed !== undefined);
  const next = new RawSocket(controller.url);
  await until(() => next.frames.length > 0 || next.failure !== undefined);
});

test("over TLS the key that the node saw must be ours, and licenses pin it", async () => {
  const controller = await runController({ tls: "self" });
  expect(controller.url).toMatch(/^https:\/\/127\.0\.0\.1:\d+$/);
  const node = await addNode(controller, "edge");
  const license = await controller.licenses.issue({ name: "other", type: "Node", user: "test" });
  const [pin] = peekClaims("holdfast-license+jwt", license).spki;
  const socket = { rejectUnauthorized: false };
  await expect(node.connect({ socket, claims: { tls: nonce() } })).rejects.toMatchObject({ code: "bad-signature" });
  await expect(node.connect({ socket })).rejects.toMatchObject({ code: "bad-signature" });
  const session = await node.connect({ socket, claims: { tls: pin } });
  expect(peekClaims("holdfast-server-proof+jwt", session.serverProof).tls).toEqual([pin]);
});

test("behind a front end that ends TLS, its keys are what licenses pin and proofs name", async () => {
  const front = nonce();
  const port = await freePort();
  const url = "https://cp.example.net";
  const controller = await runController({ listen: `127.0.0.1:${port}`, publicUrl: url, frontPins: [front] });
  const license = await controller.licenses.issue({ name: "edge", type: "Node", user: "test" });
  const { iss, jti, spki } = peekClaims("holdfast-license+jwt", license);
  expect([iss, spki]).toEqual([url, [front]]);
  const identity = await makeIdentity();
  const direct = `http://127.0.0.1:${port}`;
  const jws = await registerJws(url, license, identity);
  expect((await postRegister(direct, JSON.stringify({ register: jws }))).status).toBe(200);
  const node = new TestNode(direct, jti, identity);
  await expect(node.connect({ claims: { aud: url } })).rejects.toThrow("tls-intercepted");
  const session = await node.connect({ claims: { aud: url, tls: front } });
  expect(peekClaims("holdfast-server-proof+jwt", session.serverProof).tls).toEqual([front]);
});
