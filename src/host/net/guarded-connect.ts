import { isIP, connect as netConnect, type Socket } from "node:net";
import { networkInterfaces } from "node:os";
import { connect as tlsConnect, type SecureContext } from "node:tls";
import { errnoOf, InputError, SessionError, toError } from "../../errors.ts";
import { isListed, proxyFor, type ProxySettings } from "../../lib/net/proxy.ts";
import { refusalOf } from "../../lib/net/transfer-address.ts";
import { untilAborted } from "../../lib/async/until-aborted.ts";
import type { AddressPolicy } from "../../protocol/triggers/transfer.ts";
import { everyAuthorityContext, UNKNOWN_ISSUER } from "./authorities.ts";
import { ByteStream } from "./byte-stream.ts";
import type { Clock } from "../clock.ts";
import { firstOf, openTunnel, settled } from "./dial.ts";
import { systemResolve, type Resolve } from "./system-resolve.ts";
import { defined } from "../../lib/defined.ts";

/** Target of a connection; `host` as in a URL's `hostname`. */
export interface GuardedTarget {
  readonly host: string;
  readonly port: number;
  readonly isTls: boolean;
  /** Behind a proxy, tunnel plain HTTP too (RFC 9110 §9.3.6) instead of using absolute form (RFC 9112 §3.2.2). */
  readonly isTunnelled?: boolean;
}

export interface Guarded<C> {
  readonly connection: C;
  /** Proxy at the other end, if requests need absolute form. */
  readonly proxy: URL | undefined;
}

/** Connects to permitted addresses only, and to exactly the address that was checked. */
export interface GuardedConnector {
  /**
   * @throws {InputError} `forbidden-address`; {SessionError} `resolve-failed`, `connect-failed`, `proxy-refused`,
   * `tls-untrusted` or `tls-failed`.
   */
  connect(target: GuardedTarget, signal: AbortSignal): Promise<Guarded<Socket>>;
  /** Connects like `connect`, and reads into one buffer of `bufferBytes`. */
  stream(target: GuardedTarget, bufferBytes: number, signal: AbortSignal): Promise<Guarded<ByteStream>>;
}

export interface GuardedConnectorOptions {
  readonly clock: Clock;
  readonly policy: AddressPolicy;
  readonly proxies: ProxySettings;
  /** Time limit for name, proxy and TLS together, in milliseconds. */
  readonly connectMs: number;
  readonly resolve?: Resolve;
  readonly ownAddresses?: () => readonly string[];
}

const UNTRUSTED = /^(?:CERT_|ERR_TLS_CERT|UNABLE_TO_|SELF_SIGNED|DEPTH_ZERO|HOSTNAME_MISMATCH)/;

/** Creates a connector over the machine's sockets. */
export function guardedConnector(options: GuardedConnectorOptions): GuardedConnector {
  const { clock, policy, proxies, connectMs, resolve = systemResolve(), ownAddresses = localAddresses } = options;
  let everyAuthority: SecureContext | undefined;

  return {
    connect: (target, signal) => open(target, signal, { make: () => undefined, wrap: (socket) => socket }),
    stream: (target, bufferBytes, signal) =>
      open(target, signal, {
        make: () => new ByteStream(bufferBytes),
        wrap: (socket, stream, hasOnread) => (stream ?? new ByteStream(0)).attach(socket, hasOnread),
      }),
  };

  async function open<C extends { destroy(): void }>(
    target: GuardedTarget,
    signal: AbortSignal,
    wrapping: Wrapping<C>,
  ): Promise<Guarded<C>> {
    const timeout = AbortSignal.timeout(connectMs);
    const limit = AbortSignal.any([signal, timeout]);
    try {
      return await attempt(target, limit, wrapping).catch((error: unknown) => {
        if (!isUnknownIssuer(error) || everyAuthority !== undefined) throw error;
        // Loads the system's authorities on demand: reading them takes 300 ms, and few certificates need them.
        everyAuthority = everyAuthorityContext();
        return attempt(target, limit, wrapping);
      });
    } catch (error) {
      if (signal.aborted || !timeout.aborted) throw error;
      const message = `${target.host}:${target.port}: no connection within ${connectMs / 1000} s`;
      throw new SessionError("connect-failed", message, { cause: error });
    }
  }

  async function attempt<C extends { destroy(): void }>(
    target: GuardedTarget,
    signal: AbortSignal,
    wrapping: Wrapping<C>,
  ): Promise<Guarded<C>> {
    const { port, isTls, isTunnelled = isTls } = target;
    const host = bareHost(target.host);
    const proxy = proxyFor(proxies, host, port, isTls);
    if (proxy === undefined) {
      const allowed = judged(host, await addressesOf(host, signal), false);
      const direct = async (address: string, signal: AbortSignal): Promise<C> => {
        const stream = wrapping.make();
        const onread = stream === undefined ? {} : { onread: stream.onread };
        const socket = isTls
          ? await secured(host, signal, { host: address, port, ...onread })
          : await connected(address, port, signal, onread);
        return wrapping.wrap(socket, stream, true);
      };
      const race = { clock, signal, what: `${host}:${port}`, code: "connect-failed" } as const;
      const connection = await firstOf(allowed, race, direct, (late) => late.destroy());
      return { connection, proxy: undefined };
    }
    judged(host, await addressesBehindProxy(host, port, signal), true);
    const addresses = await addressesOf(bareHost(proxy.hostname), signal);
    const proxyPort = proxy.port === "" ? 80 : Number(proxy.port);
    const what = `the proxy ${proxy.host}`;
    const through = async (address: string, signal: AbortSignal): Promise<C> => {
      const stream = wrapping.make();
      if (!isTunnelled) {
        const onread = stream === undefined ? {} : { onread: stream.onread };
        return wrapping.wrap(await connected(address, proxyPort, signal, onread), stream, true);
      }
      const tunnel = await openTunnel(proxy, address, { host, port }, signal);
      return wrapping.wrap(isTls ? await secured(host, signal, { socket: tunnel }) : tunnel, stream, false);
    };
    const race = { clock, signal, what, code: "proxy-refused" } as const;
    const connection = await firstOf(addresses, race, through, (late) => late.destroy());
    return { connection, proxy: isTunnelled ? undefined : proxy };
  }

  async function addressesOf(host: string, signal: AbortSignal): Promise<readonly string[]> {
    if (isIP(host) !== 0) return [host];
    try {
      return await untilAborted(resolve(host), signal);
    } catch (error) {
      throw new SessionError("resolve-failed", `cannot resolve ${host}: ${toError(error).message}`, { cause: error });
    }
  }

  /**
   * Returns the addresses of a host that a proxy connects to; none if only the proxy resolves the name, which the local
   * policy must permit.
   */
  async function addressesBehindProxy(host: string, port: number, signal: AbortSignal): Promise<readonly string[]> {
    try {
      return await addressesOf(host, signal);
    } catch (error) {
      signal.throwIfAborted();
      if (isListed(policy.proxyNames ?? [], host, port)) return [];
      const message = `${toError(error).message}; the proxy must not resolve a name whose addresses this machine cannot check: make it resolvable here, or list it in dataStore.proxyNames`;
      throw new SessionError("resolve-failed", message, { cause: error });
    }
  }

  /** Returns the permitted addresses. Behind a proxy all must be permitted, since the proxy chooses one. */
  function judged(host: string, addresses: readonly string[], mustAll: boolean): readonly string[] {
    const rules = { allow: policy.allow, own: ownAddresses() };
    const verdicts = addresses.map((address) => ({ address, refusal: refusalOf(address, rules) }));
    const allowed = verdicts.filter(({ refusal }) => refusal === undefined).map(({ address }) => address);
    const refused = verdicts.find(({ refusal }) => refusal !== undefined);
    if (refused === undefined || (allowed.length > 0 && !mustAll)) return allowed;
    const { address, refusal } = refused;
    const what = address === host ? address : `${host} is ${address}, which`;
    throw new InputError("forbidden-address", `${what} is ${MEANING[refusal ?? "reserved"]}`, {
      details: { address, refusal },
    });
  }

  async function secured(
    host: string,
    signal: AbortSignal,
    where: { host: string; port: number } | { socket: Socket },
  ): Promise<Socket> {
    const socket = tlsConnect({
      // An address is not a server name (RFC 6066 §3), but the certificate must be valid for it.
      host,
      ...where,
      ...(isIP(host) === 0 ? { servername: host } : {}),
      minVersion: "TLSv1.2",
      ALPNProtocols: ["http/1.1"],
      ...defined({ secureContext: everyAuthority }),
    });
    try {
      return await settled(socket, "secureConnect", signal);
    } catch (error) {
      if ("socket" in where) where.socket.destroy();
      const code = errnoOf(error) ?? "";
      if (code.startsWith("E") && !code.startsWith("ERR_") && code !== "EPROTO") throw error;
      const message = `TLS with ${host}: ${reasonOf(error)}`;
      throw new SessionError(UNTRUSTED.test(code) ? "tls-untrusted" : "tls-failed", message, { cause: error });
    }
  }
}

interface Wrapping<C> {
  make(): ByteStream | undefined;
  wrap(socket: Socket, stream: ByteStream | undefined, hasOnread: boolean): C;
}

const MEANING = {
  unspecified: "the unspecified address",
  loopback: "a loopback address, which dataStore.allowAddresses does not allow",
  own: "an address of this machine, which dataStore.allowAddresses does not allow",
  "link-local": "a link-local address",
  metadata: "the address of a cloud's metadata service",
  multicast: "a multicast address",
  documentation: "an address for documentation",
  benchmark: "an address for benchmarks",
  reserved: "a reserved address",
  "not-an-address": "not an address",
} as const;

function connected(
  host: string,
  port: number,
  signal: AbortSignal,
  onread: { readonly onread?: ByteStream["onread"] },
): Promise<Socket> {
  return settled(netConnect({ host, port, noDelay: true, ...onread }), "connect", signal);
}

const bareHost = (host: string): string => host.replace(/^\[|\]$/g, "");

/** Returns OpenSSL's reason: its full text names source lines, and Node's gives advice that does not apply here. */
function reasonOf(error: unknown): string {
  const thrown = toError(error);
  const code = errnoOf(error);
  if (code !== undefined && UNKNOWN_ISSUER.has(code)) return `no trusted authority signed its certificate (${code})`;
  return "reason" in thrown && typeof thrown.reason === "string" ? thrown.reason : thrown.message;
}

function isUnknownIssuer(error: unknown): boolean {
  return error instanceof SessionError && UNKNOWN_ISSUER.has(errnoOf(error.cause) ?? "");
}

/** Returns the machine's addresses; none if the system denies the query. */
function localAddresses(): readonly string[] {
  try {
    return Object.values(networkInterfaces()).flatMap((link) => link?.map(({ address }) => address) ?? []);
  } catch {
    return [];
  }
}
