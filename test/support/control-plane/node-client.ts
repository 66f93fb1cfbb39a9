import { exportJWK, generateKeyPair } from "jose";
import { randomBytes, randomUUID } from "node:crypto";
import { request } from "node:https";
import { text } from "node:stream/consumers";
import { WebSocket, type ClientOptions, type RawData } from "ws";
import { z } from "zod";
import { bytesOf } from "../../../src/controller/channel/session.ts";
import type { DocumentVersions, NodeProofClaims } from "../../../src/protocol/documents/claims.ts";
import {
  DOCUMENT_PATH,
  parseMessage,
  REGISTER_PATH,
  SESSION_LIMITS,
  SESSION_PATH,
} from "../../../src/protocol/channel/envelope.ts";
import { peekClaims, signJws, type Signer } from "../../../src/protocol/channel/jws.ts";
import { NodeKeys, thumbprint, thumbprintsOf, type NodeThumbprints } from "../../../src/protocol/values/keys.ts";
import {
  controlMethods,
  nodeMethods,
  type ControlMethods,
  type NodeMethods,
} from "../../../src/protocol/channel/methods.ts";
import { RpcPeer, type Handlers } from "../../../src/protocol/channel/rpc.ts";

/** The keys of a scripted node. */
export interface TestIdentity {
  readonly keys: NodeKeys;
  readonly thumbprints: NodeThumbprints;
  readonly auth: Signer;
}

export async function makeIdentity(): Promise<TestIdentity> {
  const [auth, overlay, wireguard] = await Promise.all([
    generateKeyPair("Ed25519", { extractable: true }),
    generateKeyPair("ES256", { extractable: true }),
    generateKeyPair("ECDH-ES", { crv: "X25519", extractable: true }),
  ]);
  const keys = NodeKeys.parse({
    auth: await exportJWK(auth.publicKey),
    overlay: await exportJWK(overlay.publicKey),
    wireguard: await exportJWK(wireguard.publicKey),
  });
  const kid = await thumbprint(keys.auth);
  return { keys, thumbprints: await thumbprintsOf(keys), auth: { kid, privateKey: auth.privateKey } };
}

export const nonce = (): string => randomBytes(32).toString("base64url");
const DEVICE = { vendor: "Test", model: "Scripted", mac: "02:00:00:00:00:01" };

/** Makes the JWS that registers an identity with a license; `change` replaces claims. */
export function registerJws(
  origin: string,
  license: string,
  identity: TestIdentity,
  change: Record<string, unknown> = {},
): Promise<string> {
  const claims = { aud: origin, nonce: nonce(), license, keys: identity.keys, device: DEVICE, ...change };
  return signJws("holdfast-register+jwt", claims, identity.auth);
}

export interface HttpAnswer {
  readonly status: number;
  readonly body: Record<string, unknown>;
  readonly headers: Headers;
}

export async function postRegister(origin: string, body: string): Promise<HttpAnswer> {
  if (origin.startsWith("https:")) return postUnverified(`${origin}${REGISTER_PATH}`, body);
  const response = await fetch(`${origin}${REGISTER_PATH}`, { method: "POST", body });
  const answer = z.record(z.string(), z.unknown()).parse(await response.json());
  return { status: response.status, body: answer, headers: response.headers };
}

/** Posts as a node that verifies pins itself, which `fetch` does not support. */
function postUnverified(url: string, body: string): Promise<HttpAnswer> {
  return new Promise((resolve, reject) => {
    const sent = request(url, { method: "POST", rejectUnauthorized: false }, (response) => {
      text(response).then(
        (answer) =>
          resolve({
            status: response.statusCode ?? 0,
            body: z.record(z.string(), z.unknown()).parse(JSON.parse(answer)),
            headers: new Headers(),
          }),
        reject,
      );
    });
    sent.once("error", reject);
    sent.end(body);
  });
}

export async function register(
  origin: string,
  license: string,
  identity: TestIdentity,
  change: Record<string, unknown> = {},
): Promise<HttpAnswer> {
  return postRegister(origin, JSON.stringify({ register: await registerJws(origin, license, identity, change) }));
}

function textOf(data: RawData): string {
  return Buffer.from(bytesOf(data)).toString();
}

export const NOTHING: DocumentVersions = { keys: 0, node: 0, cluster: 0, domain: 0 };

/** A busy machine may take minutes for what usually takes a second. */
const LIMIT_MS = 120_000;

/** Waits until `check` returns something other than undefined or false. */
export async function until<T>(
  check: () => T | undefined | false | Promise<T | undefined | false>,
  what = "condition",
): Promise<T> {
  const giveUpAt = performance.now() + LIMIT_MS;
  for (;;) {
    const value = await check();
    if (value !== undefined && value !== false) return value;
    if (performance.now() > giveUpAt) throw new Error(`${what} did not come about`);
    await new Promise((resolve) => setTimeout(resolve, 5));
  }
}

/** A raw socket to a control plane that stores what it receives. */
export class RawSocket {
  readonly frames: string[] = [];
  readonly socket: WebSocket;
  closed: { readonly code: number; readonly reason: string } | undefined;
  failure: Error | undefined;

  constructor(origin: string, options: ClientOptions = {}, protocols: string | string[] = "holdfast.v1") {
    this.socket = new WebSocket(`${origin.replace(/^http/, "ws")}${SESSION_PATH}`, protocols, options);
    this.socket.on("message", (data) => this.frames.push(textOf(data)));
    this.socket.on("close", (code, reason) => {
      this.closed = { code, reason: reason.toString() };
    });
    this.socket.on("error", (error) => {
      this.failure = error;
    });
  }

  async challenge(): Promise<string> {
    const frame = await until(() => this.frames[0] ?? (this.closed ? "" : undefined), "challenge");
    const message = parseMessage(frame, SESSION_LIMITS);
    if (message.kind !== "notification") throw new Error("no challenge");
    return controlMethods["session.challenge"].params.parse(message.params).nonce;
  }

  closeCode(): Promise<number> {
    return until(() => this.closed?.code, "close");
  }
}

export interface HelloOptions {
  /** Replaces claims of the proof. */
  readonly claims?: Partial<NodeProofClaims>;
  readonly signer?: Signer;
  readonly socket?: ClientOptions;
  readonly handlers?: Handlers<ControlMethods>;
}

/** A scripted node: sends hello, answers by its handlers, and stores every notification. */
export class TestNode {
  readonly origin: string;
  readonly uid: string;
  readonly identity: TestIdentity;
  readonly bootId = randomUUID();
  n = 0;

  constructor(origin: string, uid: string, identity: TestIdentity) {
    this.origin = origin;
    this.uid = uid;
    this.identity = identity;
  }

  proof(challenge: string, claims: Partial<NodeProofClaims> = {}, signer = this.identity.auth): Promise<string> {
    this.n += 1;
    const whole: NodeProofClaims = {
      iss: this.uid,
      aud: this.origin,
      nonce: challenge,
      cnonce: nonce(),
      n: this.n,
      bootId: this.bootId,
      version: "0.0.0",
      protocol: 1,
      have: NOTHING,
      ...claims,
    };
    return signJws("holdfast-node-proof+jwt", whole, signer);
  }

  /** Connects and sends hello; rejects with the control plane's answer or close code. */
  async connect(options: HelloOptions = {}): Promise<TestSession> {
    const raw = new RawSocket(this.origin, options.socket);
    const challenge = await raw.challenge();
    const proof = await this.proof(challenge, options.claims, options.signer);
    return TestSession.open(raw, proof, options.handlers ?? {});
  }
}

/** A session on the side of the node. */
export class TestSession {
  readonly raw: RawSocket;
  readonly peer: RpcPeer<ControlMethods, NodeMethods>;
  readonly changed: { name: string; version: number }[] = [];
  readonly cancelled: string[] = [];
  readonly deletedNotices: string[] = [];
  serverProof = "";
  hello: { readonly heartbeatSeconds: number; readonly reportedVersion: number } | undefined;

  private constructor(raw: RawSocket, handlers: Handlers<ControlMethods>) {
    this.raw = raw;
    this.peer = new RpcPeer({
      local: controlMethods,
      remote: nodeMethods,
      handlers: {
        "document.changed": (change) => void this.changed.push(change),
        "trigger.cancel": ({ id }) => void this.cancelled.push(id),
        "session.deleted": ({ jws }) => void this.deletedNotices.push(jws),
        ...handlers,
      },
      send: (text) => raw.socket.send(text),
      onFault: (method, error) => {
        throw new Error(`${method} failed`, { cause: error });
      },
    });
  }

  static async open(raw: RawSocket, proof: string, handlers: Handlers<ControlMethods>): Promise<TestSession> {
    const session = new TestSession(raw, handlers);
    raw.socket.on("message", (data) => void session.peer.receive(parseMessage(textOf(data), SESSION_LIMITS)));
    raw.socket.on("close", (code) => session.peer.close(new Error(`closed with ${code}`)));
    const answer = await session.peer.request("session.hello", { proof, reportedVersion: 0 });
    session.serverProof = answer.proof;
    session.hello = answer;
    return session;
  }

  get sid(): string {
    return peekClaims("holdfast-server-proof+jwt", this.serverProof).sid;
  }

  /** Requests a document and fetches it; undefined when it is unchanged. */
  async fetchDocument(
    origin: string,
    name: "keys" | "node" | "cluster" | "domain",
    have = 0,
  ): Promise<string | undefined> {
    const answer = await this.peer.request("document.get", { name, have });
    if (!("ticket" in answer)) return undefined;
    const response = await fetchTicket(origin, answer.ticket);
    return response.text();
  }

  /** Destroys the socket as a broken network does. */
  async cut(): Promise<void> {
    this.raw.socket.terminate();
    await this.raw.closeCode();
  }
}

export function fetchTicket(origin: string, ticket: string): Promise<Response> {
  return fetch(`${origin}${DOCUMENT_PATH}`, { headers: { "holdfast-ticket": ticket } });
}
