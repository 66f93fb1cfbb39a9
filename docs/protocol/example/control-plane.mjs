// A control plane for one node, written against docs/protocol/README.md: it writes a license, registers the node, opens its
// session, sends it a connector with a service, and runs tg-ping. In memory, on loopback, without TLS.
//
//   node docs/protocol/example/control-plane.mjs PORT LICENSE-FILE
//
// Then register a node with that license and start its agent. It needs the npm packages `ws` and `jose`, and nothing else.
import { randomBytes, randomUUID } from "node:crypto";
import { writeFileSync } from "node:fs";
import { createServer } from "node:http";
import { calculateJwkThumbprint, CompactSign, compactVerify, decodeJwt, exportJWK, generateKeyPair, importJWK } from "jose";
import { WebSocketServer } from "ws";

const [port, licenseFile] = process.argv.slice(2);
const iss = `http://127.0.0.1:${port}`;
const uid = randomUUID();
const about = { name: "first", domain: "example", org: randomUUID(), type: "Node" };
const node = { uid, fqdn: "first.example", ...about };
const now = () => Math.floor(Date.now() / 1000);
const random = () => randomBytes(32).toString("base64url");
const refusal = (status, code, message) => Object.assign(new Error(message), { status, code });

// Keys and signatures: every JWS has exactly alg, typ and kid in its header.

async function newKey() {
  const { publicKey, privateKey } = await generateKeyPair("Ed25519");
  const { kty, crv, x } = await exportJWK(publicKey);
  const jwk = { kty, crv, x };
  return { jwk, privateKey, kid: await calculateJwkThumbprint(jwk, "sha256") };
}

function sign(type, claims, { kid, privateKey }) {
  return new CompactSign(new TextEncoder().encode(JSON.stringify(claims)))
    .setProtectedHeader({ alg: "Ed25519", typ: `holdfast-${type}+jwt`, kid })
    .sign(privateKey);
}

async function verify(type, jws, jwk) {
  const key = await importJWK(jwk, "Ed25519");
  const { payload, protectedHeader } = await compactVerify(jws, key, { algorithms: ["Ed25519"] });
  const isMeant = protectedHeader.typ === `holdfast-${type}+jwt`;
  if (!isMeant || protectedHeader.kid !== (await calculateJwkThumbprint(jwk, "sha256"))) {
    throw refusal(401, "bad-signature", `not a ${type} statement of this key`);
  }
  return JSON.parse(new TextDecoder().decode(payload));
}

const root = await newKey();
const signing = await newKey();
const keys = { name: "keys", version: 1, iat: now(), root: root.jwk, signing: [signing.jwk], spki: [] };
const keysDocument = [{ jws: await sign("keys", keys, root) }];
const validity = { iat: now(), exp: now() + 86_400 };
const license = await sign("license", { iss, jti: uid, ...about, ...validity, root: root.kid, spki: [] }, signing);

// What is desired: a service, which is this program, and a connector on the next port that leads to it.

const item = (fields) => ({ version: 2, items: { one: { protocol: "tcp", ...fields } } });
const config = {
  services: item({ name: "example", host: "127.0.0.1", port: Number(port) }),
  connectors: item({ node: "local", service: "example", localIp: "127.0.0.1", port: Number(port) + 1 }),
};
const versions = { keys: 1, node: 1, cluster: 0, domain: 0 };
const documentBody = { ...node, state: "ACTIVE", tags: {}, settings: {}, config };

// Registration and documents, over HTTP.

let nodeKeys;
const tickets = new Map();

async function register(jws) {
  const claims = decodeJwt(jws);
  await verify("register", jws, claims.keys.auth);
  if (claims.aud !== iss || claims.license !== license) throw refusal(401, "bad-signature", "not our license");
  if (nodeKeys !== undefined && nodeKeys.auth.x !== claims.keys.auth.x) {
    throw refusal(409, "license-reused", "the license registered a node with other keys");
  }
  nodeKeys = claims.keys;
  const cnf = {};
  for (const [use, jwk] of Object.entries(nodeKeys)) cnf[use] = await calculateJwkThumbprint(jwk, "sha256");
  const session = `ws://127.0.0.1:${port}/agent/v1/session`;
  const answer = { iss, aud: uid, nonce: claims.nonce, iat: now(), node: { ...node, session }, cnf };
  console.log(`registered ${node.fqdn} with the key ${cnf.auth}`);
  return { registered: await sign("registered", answer, signing), keys: keysDocument };
}

async function readBody(request) {
  let text = "";
  for await (const chunk of request) {
    text += chunk;
    if (text.length > 32_768) throw refusal(413, "too-large", "a registration has at most 32 KiB");
  }
  return JSON.parse(text);
}

async function answer(request, response) {
  const send = (status, value) =>
    response.writeHead(status, { "content-type": "application/json" }).end(JSON.stringify(value));
  try {
    const asked = `${request.method} ${request.url}`;
    if (asked === "POST /agent/v1/register") return send(200, await register((await readBody(request)).register));
    if (asked !== "GET /agent/v1/document") throw refusal(404, "not-found", `no ${asked}`);
    const ticket = request.headers["holdfast-ticket"];
    const name = tickets.get(ticket);
    if (!tickets.delete(ticket)) throw refusal(401, "bad-signature", "the ticket is unknown or used");
    if (name === "keys") return send(200, keysDocument);
    const claims = { iss, aud: uid, name, sub: uid, version: versions[name], iat: now(), body: documentBody };
    const document = await sign("document", claims, signing);
    response.writeHead(200, { "content-type": "application/jose" }).end(document);
  } catch ({ status = 401, code = "bad-signature", message }) {
    send(status, { code, error: message });
  }
}

// The session: JSON-RPC in both directions over one WebSocket.

const methods = {
  heartbeat: ({ seq }) => console.log(`heartbeat ${seq}`),
  "shadow.report": ({ version }) => ({ version }),
  "document.get": ({ name, have }) => {
    if (have === versions[name]) return { version: have, unchanged: true };
    const ticket = random();
    tickets.set(ticket, name);
    return { version: versions[name], ticket };
  },
  "document.applied": ({ name, version, outcome }, session) => {
    console.log(`document ${name} ${version}: ${outcome}`);
    if (name === "node" && outcome === "converged") void ping(session);
    return {};
  },
  "telemetry.push": ({ first, records }) => ({ last: first + records.length - 1 }),
  "trigger.result": () => ({}),
};

function open(socket) {
  const nonce = random();
  const session = { sid: undefined, waiting: new Map(), hasPinged: false };
  const send = (message) => socket.send(JSON.stringify({ jsonrpc: "2.0", ...message }));

  session.call = (method, params) => {
    const id = session.waiting.size + 1;
    send({ id, method, params });
    return new Promise((resolve, reject) => session.waiting.set(id, { resolve, reject }));
  };
  async function hello({ proof, reportedVersion }) {
    const claims = await verify("node-proof", proof, nodeKeys.auth);
    const isMeant = claims.iss === uid && claims.aud === iss && claims.nonce === nonce;
    if (!isMeant) throw refusal(401, "bad-signature", "the proof is for something else");
    const sid = randomUUID();
    const ours = { iss, aud: uid, nonce: claims.cnonce, sid, iat: now(), versions };
    const result = { proof: await sign("server-proof", ours, signing), heartbeatSeconds: 30, reportedVersion };
    session.sid = sid;
    console.log(`session ${sid}`);
    return result;
  }
  async function call(method, params) {
    if (session.sid === undefined && method === "session.hello") return hello(params);
    if (session.sid === undefined) throw refusal(401, "bad-signature", "before hello");
    return methods[method]?.(params, session);
  }
  socket.on("message", async (frame) => {
    const { id, method, params, result, error } = JSON.parse(frame);
    if (method === undefined) {
      const { resolve, reject } = session.waiting.get(id);
      return error === undefined ? resolve(result) : reject(new Error(`${error.data?.code}: ${error.message}`));
    }
    try {
      const value = await call(method, params);
      if (id === undefined) return;
      send(value === undefined ? { id, error: { code: -32601, message: `no method ${method}` } } : { id, result: value });
    } catch ({ code, message }) {
      send({ id, error: { code: -32015, message, data: { code } } });
      if (session.sid === undefined) socket.close(4001, "not-authentic");
    }
  });
  send({ method: "session.challenge", params: { nonce, protocol: 1 } });
}

async function ping(session) {
  if (session.hasPinged) return;
  session.hasPinged = true;
  const order = { event: "tg-ping", body: { host: "127.0.0.1", count: 2 }, wait: true, user: "me", deadlineMs: 60_000 };
  const claims = { iss, aud: uid, sid: session.sid, jti: randomUUID(), ...order, iat: now(), exp: now() + 60 };
  const { output } = await session.call("trigger.run", { jws: await sign("trigger", claims, signing) });
  console.log(`tg-ping ended with ${output.exitCode}:\n${output.message}`);
}

const server = createServer((request, response) => void answer(request, response));
const handleProtocols = () => "holdfast.v1";
const sessions = new WebSocketServer({ noServer: true, maxPayload: 1_048_576, perMessageDeflate: false, handleProtocols });
server.on("upgrade", (request, socket, head) => {
  if (request.url === "/agent/v1/session") sessions.handleUpgrade(request, socket, head, open);
  else socket.destroy();
});
server.listen(Number(port), "127.0.0.1", () => {
  writeFileSync(licenseFile, license, { mode: 0o600 });
  console.log(`license of ${node.fqdn} in ${licenseFile}`);
});
