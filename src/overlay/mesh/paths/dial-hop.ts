import { isIP, Socket } from "node:net";
import type { TLSSocket } from "node:tls";
import { errnoOf, SessionError, toError } from "../../../errors.ts";
import type { Clock } from "../../../host/clock.ts";
import { interleaveFamilies, staggered } from "../../../lib/net/happy-eyeballs.ts";
import { untilAborted } from "../../../lib/async/until-aborted.ts";
import type { NameCache } from "../../dial/name-cache.ts";
import { keepAlive } from "../../dial/keep-alive.ts";
import { dialTls, whenProved, type MeshIdentity, type MeshProtocol } from "../transport/tls.ts";

/** Address of a gateway, and the RFC 7638 thumbprint of the only accepted key. */
export interface HopTarget {
  readonly host: string;
  readonly port: number;
  readonly local: string | undefined;
  readonly key: string;
}

export interface HopDialerOptions {
  readonly clock: Clock;
  readonly names: NameCache;
  /** Returns the identity of this node, once it is known. */
  readonly identity: () => MeshIdentity | undefined;
}

/** HTTP/2 role of the dialling side: client (`h2`), or server (`holdfast-h2r`). */
export type HopProtocol = Exclude<MeshProtocol, "holdfast-peer">;

/**
 * Limits for name, connection and TLS over all addresses together. An outbound dial is shorter: a flow waits for it and
 * may have another path.
 */
const DIAL_MS = { "holdfast-h2r": 10_000, h2: 5000 } as const;
const STAGGER_MS = 300;

/**
 * Dials the addresses of the target until one proves the key.
 * @throws {SessionError} the first failure.
 */
export async function dialHop(
  { clock, names, identity }: HopDialerOptions,
  target: HopTarget,
  protocol: HopProtocol,
  signal: AbortSignal,
): Promise<TLSSocket> {
  const own = identity();
  if (own === undefined) throw new SessionError("no-path", "this node has no overlay key yet; its agent sends it");
  const deadline = new AbortController();
  const ms = DIAL_MS[protocol];
  const cancel = clock.after(ms, () =>
    deadline.abort(new SessionError("connect-timeout", `no answer from ${target.host} in ${ms / 1000} s`)),
  );
  const both = AbortSignal.any([signal, deadline.signal]);
  try {
    const addresses = await untilAborted(addressesOf(names, target), both);
    return await staggered(
      addresses.map((address) => async (attempt: AbortSignal) => {
        const socket = await connect(address, target, attempt);
        return secure(socket, own, target.key, protocol, attempt);
      }),
      { clock, staggerMs: STAGGER_MS, signal: both, discard: (late) => void late.destroy() },
    );
  } catch (error) {
    // The name may have new addresses: resolve it again soon.
    names.expireSoon(target.host);
    throw deadline.signal.aborted ? toError(deadline.signal.reason) : error;
  } finally {
    cancel();
  }
}

async function secure(
  socket: Socket,
  own: MeshIdentity,
  key: string,
  protocol: HopProtocol,
  signal: AbortSignal,
): Promise<TLSSocket> {
  const tls = dialTls(socket, own, protocol);
  const proof = await whenProved(tls, signal);
  if (proof.key === key) return tls;
  tls.on("error", () => undefined).destroy();
  throw new SessionError("peer-unproven", "the host that answered proved another key than the gateway's");
}

async function addressesOf(names: NameCache, { host, local }: HopTarget): Promise<readonly string[]> {
  const all = isIP(host) === 0 ? await names.resolve(host).catch(() => []) : [host];
  if (all.length === 0) throw new SessionError("resolve-failed", `the name ${host} does not resolve`);
  const fitting = local === undefined ? all : all.filter((address) => isIP(address) === isIP(local));
  if (fitting.length === 0) throw new SessionError("unreachable", `${host} has no address of the family of ${local}`);
  return interleaveFamilies(fitting);
}

function connect(host: string, { port, local }: HopTarget, signal: AbortSignal): Promise<Socket> {
  return new Promise((resolve, reject) => {
    signal.throwIfAborted();
    const socket = new Socket();
    const abort = (): void => {
      socket.destroy();
      reject(toError(signal.reason));
    };
    signal.addEventListener("abort", abort, { once: true });
    const failed = (error: Error): void => {
      signal.removeEventListener("abort", abort);
      reject(new SessionError("unreachable", reasonText(error, host, port, local), { cause: error }));
    };
    socket.once("error", failed);
    socket.once("connect", () => {
      signal.removeEventListener("abort", abort);
      socket.off("error", failed);
      keepAlive(socket);
      resolve(socket);
    });
    const options = { host, port, noDelay: true };
    socket.connect(local === undefined ? options : { ...options, localAddress: local });
  });
}

function reasonText(error: Error, host: string, port: number, local: string | undefined): string {
  if (errnoOf(error) === "EADDRNOTAVAIL" && local !== undefined) return `the address ${local} is not on this machine`;
  return `${host} port ${port}: ${error.message}`;
}
