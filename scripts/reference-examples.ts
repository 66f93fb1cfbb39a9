// The exchange of docs/protocol/examples.md: real bytes, the same each time, since keys, nonces and times are fixed and Ed25519 is
// deterministic (RFC 8032).
import { createHash, createECDH, createPrivateKey, createPublicKey } from "node:crypto";
import { importJWK } from "jose";
import type { ClaimsByType, JwsType } from "../src/protocol/documents/claims.ts";
import { ACTIVATION_PATH, DOCUMENT_PATH, REGISTER_PATH, TOKEN_PATH } from "../src/protocol/channel/envelope.ts";
import { signJws, type Signer } from "../src/protocol/channel/jws.ts";
import {
  Ed25519PublicKey,
  P256PublicKey,
  thumbprint,
  thumbprintsOf,
  X25519PublicKey,
  type NodeKeys,
} from "../src/protocol/values/keys.ts";
import { TICKET_HEADER } from "../src/protocol/channel/streams.ts";

/** A key of the examples: its private half is `seed` times 32, so that a reader can make it too. */
export interface ExampleKey {
  readonly seed: number;
  readonly jwk: Ed25519PublicKey;
  readonly signer: Signer;
}

const AT = 1_800_000_000;
export const EXAMPLE_UID = "6f1f6a0e-5d5c-4c57-9d0a-0a4b7c8d9e01";
const ORG = "0b7f3a54-2c41-4a58-8f0e-1d2c3b4a5f02";
const SID = "c1a5e7d0-8b1f-4f6e-a9a0-5e4d3c2b1a03";
const TRIGGER_ID = "d2b6f8e1-9c20-4a7f-8ab1-6f5e4d3c2b04";
const STREAM_ID = "e3c7a9f2-ad31-4b80-9bc2-706f5e4d3c05";
const BOOT_ID = "f4d8bab3-be42-4c91-acd3-817a6f5e4d06";
export const EXAMPLE_ISS = "https://cp.example.net";

const bytesOf = (seed: number): Buffer => Buffer.alloc(32, seed);
const textOf = (seed: number): string => bytesOf(seed).toString("base64url");
const NONCES = { register: textOf(0xa1), challenge: textOf(0xa2), cnonce: textOf(0xa3) };
const TICKETS = { document: textOf(0xb1), stream: textOf(0xb2) };
const TLS_PIN = textOf(0xc1);

/** RFC 8410: the head of a private key in PKCS #8, before its 32 bytes. */
const PKCS8_HEADS = {
  Ed25519: "302e020100300506032b657004220420",
  X25519: "302e020100300506032b656e04220420",
} as const;

function publicJwk(curve: keyof typeof PKCS8_HEADS, seed: number): unknown {
  const der = Buffer.concat([Buffer.from(PKCS8_HEADS[curve], "hex"), bytesOf(seed)]);
  return createPublicKey(createPrivateKey({ key: der, format: "der", type: "pkcs8" })).export({ format: "jwk" });
}

async function exampleKey(seed: number): Promise<ExampleKey> {
  const jwk = Ed25519PublicKey.parse(publicJwk("Ed25519", seed));
  const privateKey = await importJWK({ ...jwk, d: textOf(seed) }, "Ed25519");
  if (privateKey instanceof Uint8Array) throw new Error("an Ed25519 key cannot be symmetric");
  return { seed, jwk, signer: { kid: await thumbprint(jwk), privateKey } };
}

function p256(seed: number): NodeKeys["overlay"] {
  const pair = createECDH("prime256v1");
  pair.setPrivateKey(bytesOf(seed));
  const point = pair.getPublicKey();
  return P256PublicKey.parse({
    kty: "EC",
    crv: "P-256",
    x: point.subarray(1, 33).toString("base64url"),
    y: point.subarray(33).toString("base64url"),
  });
}

/** The keys of the examples. */
export async function exampleKeys() {
  const [root, signing, auth] = await Promise.all([exampleKey(1), exampleKey(2), exampleKey(3)]);
  const node: NodeKeys = { auth: auth.jwk, overlay: p256(4), wireguard: X25519PublicKey.parse(publicJwk("X25519", 5)) };
  return { root, signing, auth, node };
}

/** The text of docs/protocol/examples.md. */
export async function protocolExamples(): Promise<string> {
  const { root, signing, auth, node } = await exampleKeys();
  const cnf = await thumbprintsOf(node);
  const about = { name: "edge-1", domain: "lab.example", org: ORG, type: "Node" } as const;
  const identity = { uid: EXAMPLE_UID, fqdn: "edge-1.lab.example", ...about };
  const versions = { keys: 1, node: 7, cluster: 0, domain: 2 };

  const keysClaims = {
    name: "keys",
    version: 1,
    iat: AT,
    root: root.jwk,
    signing: [signing.jwk],
    spki: [TLS_PIN],
  } as const;
  const keys = await signed("holdfast-keys+jwt", { ...keysClaims, signing: [signing.jwk], spki: [TLS_PIN] }, root);
  const license = await signed(
    "holdfast-license+jwt",
    { iss: EXAMPLE_ISS, jti: EXAMPLE_UID, ...about, iat: AT, exp: AT + 86_400, root: root.signer.kid, spki: [TLS_PIN] },
    signing,
  );
  const device = { vendor: "Example", model: "E-100", mac: "02:00:00:00:00:01" };
  const register = await signed(
    "holdfast-register+jwt",
    {
      aud: EXAMPLE_ISS,
      nonce: NONCES.register,
      license: license.jws,
      keys: node,
      device,
    },
    auth,
  );
  const activation = await signed(
    "holdfast-activation+jwt",
    { aud: EXAMPLE_ISS, seq: AT * 1000, keys: node, device },
    auth,
  );
  const tokenUse = await signed(
    "holdfast-token-use+jwt",
    { aud: EXAMPLE_ISS, id: EXAMPLE_UID, secret: NONCES.register, keys: node },
    auth,
  );
  const registered = await signed(
    "holdfast-registered+jwt",
    {
      iss: EXAMPLE_ISS,
      aud: EXAMPLE_UID,
      nonce: NONCES.register,
      iat: AT,
      node: { ...identity, session: "wss://cp.example.net/agent/v1/session" },
      cnf,
    },
    signing,
  );
  const nodeProof = await signed(
    "holdfast-node-proof+jwt",
    {
      iss: EXAMPLE_UID,
      aud: EXAMPLE_ISS,
      nonce: NONCES.challenge,
      cnonce: NONCES.cnonce,
      n: 1,
      bootId: BOOT_ID,
      version: "1.0.0",
      protocol: 1,
      have: { keys: 1, node: 0, cluster: 0, domain: 0 },
      tls: TLS_PIN,
    },
    auth,
  );
  const serverProof = await signed(
    "holdfast-server-proof+jwt",
    { iss: EXAMPLE_ISS, aud: EXAMPLE_UID, nonce: NONCES.cnonce, sid: SID, iat: AT, versions, tls: [TLS_PIN] },
    signing,
  );
  const config = {
    services: { version: 2, items: { s1: { name: "web", protocol: "tcp", host: "192.0.2.10", port: 80 } } },
    connectors: {
      version: 2,
      items: { c1: { node: "local", service: "web", protocol: "tcp", localIp: "127.0.0.1", port: 8080 } },
    },
  };
  const document = await signed(
    "holdfast-document+jwt",
    {
      iss: EXAMPLE_ISS,
      aud: EXAMPLE_UID,
      name: "node",
      sub: EXAMPLE_UID,
      version: 7,
      iat: AT,
      body: { ...identity, state: "ACTIVE", tags: {}, settings: {}, config },
    },
    signing,
  );
  const trigger = await signed(
    "holdfast-trigger+jwt",
    {
      iss: EXAMPLE_ISS,
      aud: EXAMPLE_UID,
      sid: SID,
      jti: TRIGGER_ID,
      event: "tg-ping",
      body: { host: "192.0.2.10", count: 1 },
      wait: true,
      user: "operator@example.net",
      deadlineMs: 60_000,
      iat: AT,
      exp: AT + 60,
    },
    signing,
  );
  const stream = await signed(
    "holdfast-stream+jwt",
    {
      iss: EXAMPLE_ISS,
      aud: EXAMPLE_UID,
      sid: SID,
      jti: STREAM_ID,
      kind: "container-exec",
      params: { container: "web", cols: 80, rows: 24 },
      user: "operator@example.net",
      th: createHash("sha256").update(TICKETS.stream).digest("base64url"),
      iat: AT,
      exp: AT + 20,
    },
    signing,
  );
  const deleted = await signed(
    "holdfast-deleted+jwt",
    { iss: EXAMPLE_ISS, aud: EXAMPLE_UID, nonce: NONCES.cnonce, iat: AT },
    signing,
  );

  const row = (who: string, curve: string, seed: number, jwk: object, kid: string): string =>
    `| ${who} | ${curve} | ${seed} | \`${JSON.stringify(jwk)}\` | \`${kid}\` |`;
  const seeded = [
    row("control plane `root`", "Ed25519", root.seed, root.jwk, root.signer.kid),
    row("control plane `signing`", "Ed25519", signing.seed, signing.jwk, signing.signer.kid),
    row("node `auth`", "Ed25519", auth.seed, node.auth, cnf.auth),
    row("node `overlay`", "P-256", 4, node.overlay, cnf.overlay),
    row("node `wireguard`", "X25519", 5, node.wireguard, cnf.wireguard),
  ].join("\n");

  return `# The protocol in bytes

Generated by \`npm run reference\`, and verified by a test. [README.md](README.md) says what each step is for. The keys are for this page only.

## Keys

The private half of each key is 32 bytes, all of the same value. The thumbprint is that of RFC 7638 with SHA-256, in base64url.

| Key | Type | Each byte | Public JWK | Thumbprint |
| --- | --- | --- | --- | --- |
${seeded}

## License

The claims, signed by \`signing\`:

${json(license.claims)}

The license:

${text(license.jws)}

## Registration

The claims of \`register\`, signed by the node's \`auth\`:

${json(register.claims)}

The request:

${http(`POST ${REGISTER_PATH}`, { "content-type": "application/json" }, JSON.stringify({ register: register.jws }))}

The claims of \`registered\`, signed by \`signing\`, and those of the keys document, signed by \`root\`:

${json(registered.claims)}

${json(keys.claims)}

The answer:

${text(`HTTP/1.1 200\ncontent-type: application/json\n\n${JSON.stringify({ registered: registered.jws, keys: [{ jws: keys.jws }] })}`)}

A machine without a license asks for a code, signed by its \`auth\`:

${json(activation.claims)}

${http(`POST ${ACTIVATION_PATH}`, { "content-type": "application/json" }, JSON.stringify({ activation: activation.jws }))}

An agent turns its token into a license, signed by its \`auth\`:

${json(tokenUse.claims)}

${http(`POST ${TOKEN_PATH}`, { "content-type": "application/json" }, JSON.stringify({ exchange: tokenUse.jws }))}

## Session

The control plane's challenge:

${frame({ method: "session.challenge", params: { nonce: NONCES.challenge, protocol: 1 } })}

The node's claims, signed by \`auth\`, and its call:

${json(nodeProof.claims)}

${frame({ id: 1, method: "session.hello", params: { proof: nodeProof.jws, reportedVersion: 0 } })}

The control plane's claims, signed by \`signing\`, and its answer:

${json(serverProof.claims)}

${frame({ id: 1, result: { proof: serverProof.jws, heartbeatSeconds: 30, reportedVersion: 0 } })}

A hello that is refused, followed by the close code 4001:

${frame({ id: 1, error: { code: -32015, message: "unknown node", data: { code: "bad-signature" } } })}

## Document

The node holds version 0 of its document, asks, and is given a ticket:

${frame({ id: 2, method: "document.get", params: { name: "node", have: 0 } })}

${frame({ id: 2, result: { version: 7, ticket: TICKETS.document } })}

${http(`GET ${DOCUMENT_PATH}`, { [TICKET_HEADER]: TICKETS.document })}

The claims, signed by \`signing\`, and the answer's body, of the type \`application/jose\`:

${json(document.claims)}

${text(document.jws)}

What became of it:

${frame({
  id: 3,
  method: "document.applied",
  params: {
    name: "node",
    version: 7,
    at: AT * 1000,
    durationMs: 40,
    outcome: "converged",
    sections: {
      services: { state: "converged", issues: [], steps: 1 },
      connectors: { state: "converged", issues: [], steps: 1 },
    },
  },
})}

${frame({ id: 3, result: {} })}

## Trigger

The claims, signed by \`signing\`, the call and the answer:

${json(trigger.claims)}

${frame({ id: 1, method: "trigger.run", params: { jws: trigger.jws } })}

${frame({
  id: 1,
  result: {
    output: { message: "PING 192.0.2.10 (192.0.2.10) 56(84) bytes of data.\n", exitCode: "0", truncated: false },
  },
})}

## Stream

The claims, signed by \`signing\`; \`th\` is the SHA-256 of the ticket's text:

${json(stream.claims)}

${frame({ id: 2, method: "stream.open", params: { jws: stream.jws, ticket: TICKETS.stream } })}

## Deletion

The claims, signed by \`signing\`; \`nonce\` is the \`cnonce\` of the node's hello. The close code 4003 follows:

${json(deleted.claims)}

${frame({ method: "session.deleted", params: { jws: deleted.jws } })}
`;
}

async function signed<T extends JwsType>(typ: T, claims: ClaimsByType[T], key: ExampleKey) {
  return { claims, jws: await signJws(typ, claims, key.signer) };
}

const json = (value: unknown): string => `\`\`\`json\n${JSON.stringify(value, undefined, 2)}\n\`\`\``;
const text = (value: string): string => `\`\`\`text\n${value}\n\`\`\``;
const frame = (message: object): string => text(JSON.stringify({ jsonrpc: "2.0", ...message }));

function http(line: string, headers: Readonly<Record<string, string>>, body = ""): string {
  const lines = Object.entries(headers).map(([name, value]) => `${name}: ${value}`);
  return text([`${line} HTTP/1.1`, "host: cp.example.net", ...lines, "", body].join("\n").trimEnd());
}
