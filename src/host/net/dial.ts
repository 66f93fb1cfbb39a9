import { createHash } from "node:crypto";
import { request as httpRequest } from "node:http";
import { connect as netConnect, isIP, type Socket } from "node:net";
import { connect as tlsConnect, type SecureContext, type TLSSocket } from "node:tls";
import { SessionError, toError } from "../../errors.ts";
import { interleaveFamilies, staggered } from "../../lib/net/happy-eyeballs.ts";
import { isLoopback, proxyFor, type ProxySettings } from "../../lib/net/proxy.ts";
import type { Clock } from "../clock.ts";
import { systemResolve, type Resolve } from "./system-resolve.ts";
import { defined } from "../../lib/defined.ts";

/** Address to connect to, and the requirements for the other end. */
export interface DialRequest {
  readonly host: string;
  readonly port: number;
  /** Present for TLS: key hashes (base64url SHA-256 of the SubjectPublicKeyInfo) that are trusted regardless of the certificate. */
  readonly tls?: {
    readonly pins: readonly string[];
    /** Authorities trusted besides the pinned keys; Node's own if absent. */
    readonly authorities?: SecureContext;
  };
  /** Without TLS, connect only to addresses of this machine, regardless of the host's name. */
  readonly plainOnlyLoopback?: boolean;
  /** Tried after the resolver's addresses, and alone if the resolver fails. */
  readonly knownAddresses?: readonly string[];
  readonly timeoutMs: number;
}

export interface Dialled {
  readonly socket: Socket;
  /** Address that answered; undefined behind a proxy. */
  readonly address: string | undefined;
  /** base64url SHA-256 of the peer's public key; undefined without TLS. */
  readonly tlsKey: string | undefined;
}

/** Opens connections: resolver, several addresses, proxy, TLS with pinned keys. */
export interface Dialler {
  /** @throws {SessionError} `resolve-failed`, `connect-failed`, `proxy-refused`, `insecure`, `tls-untrusted` or `tls-failed`. */
  dial(request: DialRequest, signal: AbortSignal): Promise<Dialled>;
}

/** Returns the dial request of an `http`, `https`, `ws` or `wss` URL. */
export function dialRequestFor(url: URL, pins: readonly string[], timeoutMs: number): DialRequest {
  const isTls = url.protocol === "https:" || url.protocol === "wss:";
  return {
    host: url.hostname.replace(/^\[|\]$/g, ""),
    port: url.port === "" ? (isTls ? 443 : 80) : Number(url.port),
    ...(isTls ? { tls: { pins } } : {}),
    timeoutMs,
  };
}

const STAGGER_MS = 250; // RFC 8305 §5
const RESOLVE_DEADLINE_MS = 3000;

/** Creates a dialler over the machine's sockets; `resolve` resolves names. */
export function hostDialler(clock: Clock, proxies: ProxySettings, resolve: Resolve = systemResolve()): Dialler {
  return {
    dial(request, signal) {
      const deadline = AbortSignal.any([signal, within(request.timeoutMs)]);
      const proxy = proxyFor(proxies, request.host, request.port, request.tls !== undefined);
      const tools = { clock, resolve, signal: deadline };
      return proxy === undefined ? dialDirect(request, tools) : dialThrough(proxy, request, tools);
    },
  };
}

/** A signal that aborts after a time, with an error that names the step and the seconds. */
function within(ms: number): AbortSignal {
  const late = new AbortController();
  const elapsed = (): void => late.abort(new Error(`no connection within ${ms / 1000} s`));
  AbortSignal.timeout(ms).addEventListener("abort", elapsed, { once: true });
  return late.signal;
}

interface Tools {
  readonly clock: Clock;
  readonly resolve: Resolve;
  readonly signal: AbortSignal;
}

async function dialDirect(request: DialRequest, tools: Tools): Promise<Dialled> {
  const { host, port, knownAddresses = [] } = request;
  const addresses = await resolveAll(host, knownAddresses, tools);
  const attempt = async (address: string, signal: AbortSignal): Promise<Dialled> => {
    refusePlain(request, address);
    const socket = await connectTcp(address, port, signal);
    return { ...(await securedFor(request, socket, signal)), address };
  };
  return firstOf(addresses, { ...tools, what: `${host}:${port}`, code: "connect-failed" }, attempt, discard);
}

async function dialThrough(proxy: URL, request: DialRequest, tools: Tools): Promise<Dialled> {
  refusePlain(request, undefined);
  const addresses = await resolveAll(proxy.hostname.replace(/^\[|\]$/g, ""), [], tools);
  const attempt = async (address: string, signal: AbortSignal): Promise<Dialled> => {
    const socket = await openTunnel(proxy, address, request, signal);
    return { ...(await securedFor(request, socket, signal)), address: undefined };
  };
  return firstOf(addresses, { ...tools, what: `proxy ${proxy.host}`, code: "proxy-refused" }, attempt, discard);
}

const discard = ({ socket }: Dialled): unknown => socket.destroy();

/** Options of `firstOf`. */
export interface AddressRace {
  readonly clock: Clock;
  readonly signal: AbortSignal;
  /** Names the other end in errors. */
  readonly what: string;
  readonly code: "connect-failed" | "proxy-refused";
}

/**
 * Returns the first successful attempt (RFC 8305). A failed TLS handshake counts like no answer, so each attempt
 * includes TLS. Later successes are discarded.
 * @throws {SessionError} the first that an attempt threw, else `code`
 */
export async function firstOf<C>(
  addresses: readonly string[],
  { clock, signal, what, code }: AddressRace,
  attempt: (address: string, signal: AbortSignal) => Promise<C>,
  discard: (late: C) => unknown,
): Promise<C> {
  let refusal: SessionError | undefined;
  const attempts = interleaveFamilies(addresses).map((address) => async (attemptSignal: AbortSignal) => {
    try {
      return await attempt(address, attemptSignal);
    } catch (error) {
      if (error instanceof SessionError) refusal ??= error;
      throw error;
    }
  });
  try {
    return await staggered(attempts, { clock, staggerMs: STAGGER_MS, signal, discard });
  } catch (error) {
    // A refusal explains more than a timeout.
    if (refusal !== undefined) throw refusal;
    throw new SessionError(code, `${what} (${addresses.join(", ")}): ${toError(error).message}`, { cause: error });
  }
}

/** Names below `localhost` mean this machine (RFC 6761 §6.3), but a resolver may return any address for them. */
function refusePlain({ host, tls, plainOnlyLoopback }: DialRequest, address: string | undefined): void {
  if (tls !== undefined || plainOnlyLoopback !== true) return;
  if (address !== undefined && isLoopback(address)) return;
  const where = address === undefined ? "" : ` at ${address}`;
  throw new SessionError(
    "insecure",
    `${host}${where}: connections without TLS are allowed to this machine only; use TLS`,
  );
}

async function securedFor(
  request: DialRequest,
  socket: Socket,
  signal: AbortSignal,
): Promise<Pick<Dialled, "socket" | "tlsKey">> {
  if (request.tls === undefined) return { socket, tlsKey: undefined };
  return secureSocket(socket, request.host, request.tls, signal);
}

/** Returns every address of the host: those of the resolver first, then the known ones. */
async function resolveAll(
  host: string,
  known: readonly string[],
  { resolve, signal }: Tools,
): Promise<readonly string[]> {
  if (isIP(host) !== 0) return [host];
  try {
    const addresses = await withDeadline(resolve(host), RESOLVE_DEADLINE_MS, signal);
    return [...addresses, ...known.filter((address) => !addresses.includes(address))];
  } catch (error) {
    if (known.length > 0 && !signal.aborted) return known;
    throw new SessionError("resolve-failed", `cannot resolve ${host}: ${toError(error).message}`, { cause: error });
  }
}

function withDeadline<T>(work: Promise<T>, ms: number, signal: AbortSignal): Promise<T> {
  const limit = AbortSignal.any([signal, AbortSignal.timeout(ms)]);
  return new Promise((resolve, reject) => {
    const onAbort = (): void => reject(toError(limit.reason));
    limit.addEventListener("abort", onAbort, { once: true });
    work.then(resolve, reject).finally(() => limit.removeEventListener("abort", onAbort));
  });
}

function connectTcp(address: string, port: number, signal: AbortSignal): Promise<Socket> {
  return settled(netConnect({ host: address, port, noDelay: true }), "connect", signal);
}

/** Opens a tunnel through an HTTP proxy (RFC 9110 §9.3.6). @throws {SessionError} `proxy-refused`, or the system's error */
export function openTunnel(
  proxy: URL,
  address: string,
  request: Pick<DialRequest, "host" | "port">,
  signal: AbortSignal,
): Promise<Socket> {
  const target = isIP(request.host) === 6 ? `[${request.host}]:${request.port}` : `${request.host}:${request.port}`;
  return new Promise((resolve, reject) => {
    const connect = httpRequest({
      host: address,
      port: proxy.port === "" ? 80 : Number(proxy.port),
      method: "CONNECT",
      path: target,
      headers: {
        host: target,
        ...proxyAuthorization(proxy),
      },
      signal,
    });
    const refuse = (why: string): void => reject(new SessionError("proxy-refused", `proxy ${proxy.host}: ${why}`));
    connect.once("connect", (response, socket, head) => {
      if (response.statusCode === 200 && head.length === 0) return resolve(socket);
      socket.destroy();
      return refuse(`answered ${response.statusCode}`);
    });
    connect.once("response", (response) => {
      response.resume();
      refuse(`answered ${response.statusCode}`);
    });
    connect.once("error", reject);
    connect.end();
  });
}

/** Returns the header with the user and password of a proxy's URL (RFC 7617); none without a user. */
export function proxyAuthorization(proxy: URL): Readonly<Record<string, string>> {
  if (proxy.username === "") return {};
  const credentials = `${decodeURIComponent(proxy.username)}:${decodeURIComponent(proxy.password)}`;
  return { "proxy-authorization": `Basic ${Buffer.from(credentials).toString("base64")}` };
}

async function secureSocket(
  raw: Socket,
  host: string,
  { pins, authorities }: NonNullable<DialRequest["tls"]>,
  signal: AbortSignal,
): Promise<{ socket: TLSSocket; tlsKey: string }> {
  // Chain, name and dates are checked below, since a pinned key overrides them.
  const tls = tlsConnect({
    socket: raw,
    // An address is not a server name (RFC 6066 §3), but the certificate must be valid for it.
    host,
    minVersion: "TLSv1.2",
    rejectUnauthorized: false,
    ALPNProtocols: ["http/1.1"],
    ...defined({ secureContext: authorities }),
    ...(isIP(host) === 0 ? { servername: host } : {}),
  });
  let socket: TLSSocket;
  try {
    socket = await settled(tls, "secureConnect", signal);
  } catch (error) {
    raw.destroy();
    throw new SessionError("tls-failed", `TLS with ${host}: ${toError(error).message}`, { cause: error });
  }
  const certificate = socket.getPeerX509Certificate();
  const tlsKey =
    certificate === undefined ? "" : keyHash(certificate.publicKey.export({ type: "spki", format: "der" }));
  if (pins.includes(tlsKey) || socket.authorized) return { socket, tlsKey };
  const issuer = certificate?.issuer.replaceAll("\n", ", ") ?? "nobody";
  const why = String(socket.authorizationError);
  socket.destroy();
  throw new SessionError(
    "tls-untrusted",
    `${host} showed a certificate issued by ${issuer} that is not trusted: ${why}`,
    {
      details: { host, issuer, tlsKey },
    },
  );
}

/** Returns the base64url SHA-256 of a DER SubjectPublicKeyInfo (as RFC 7469 §2.4). */
export function keyHash(spki: Uint8Array): string {
  return createHash("sha256").update(spki).digest("base64url");
}

/** Waits for the event; destroys the socket on error, end or abort. */
export function settled<S extends Socket>(
  socket: S,
  event: "connect" | "secureConnect",
  signal: AbortSignal,
): Promise<S> {
  return new Promise((resolve, reject) => {
    const clear = (): void => {
      socket.off(event, onReady).off("error", onFailure).off("close", onClose);
      signal.removeEventListener("abort", onAbort);
    };
    const onFailure = (error: Error): void => {
      clear();
      socket.on("error", () => undefined).destroy();
      reject(error);
    };
    const onClose = (): void => onFailure(new Error("the connection was closed"));
    const onAbort = (): void => onFailure(toError(signal.reason));
    const onReady = (): void => {
      clear();
      resolve(socket);
    };
    socket.once(event, onReady).once("error", onFailure).once("close", onClose);
    if (signal.aborted) onAbort();
    else signal.addEventListener("abort", onAbort, { once: true });
  });
}
