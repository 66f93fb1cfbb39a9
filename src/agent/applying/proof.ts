import { errnoOf, SessionError, toError } from "../../errors.ts";
import { dialRequestFor, type Dialler } from "../../host/net/dial.ts";
import { gatewayKey, httpHead, openTcp, type HttpHead } from "../../host/net/net-probe.ts";
import type { Resolve } from "../../host/net/system-resolve.ts";
import { isLoopback } from "../../lib/net/proxy.ts";
import { SESSION_PATH, UPTIME_HEADER } from "../../protocol/channel/envelope.ts";
import type { NetworkTargets } from "../../protocol/overlay/network-targets.ts";
import type { Baseline, Prover, Unreached } from "../reconcile/prover.ts";

export interface ProofOptions {
  readonly dialler: Dialler;
  readonly resolve: Resolve;
  /** The targets that this node must reach; read again for each attempt. */
  readonly targets: () => NetworkTargets;
  /** Addresses of the control plane that worked before. */
  readonly knownAddresses: () => readonly string[];
  readonly hasSession: () => boolean;
  /** The uids of the gateways to which a path is up. */
  readonly gatewaysUp: () => readonly string[];
}

const TIMEOUT_MS = 5000;
const MAX_ADDRESSES = 4;
const MAX_GATEWAYS = 64;

/** A target is reached when a new connection completes a TLS handshake with the expected key. The control plane must also return an HTTP response. */
export function proof(options: ProofOptions): Prover {
  return {
    baseline: () => ({
      session: options.hasSession(),
      gateways: [...new Set(options.gatewaysUp())].slice(0, MAX_GATEWAYS),
    }),
    async attempt(baseline, signal) {
      const [controlPlane, gateways] = await Promise.all([
        askControlPlane(options, signal).then(({ unreached }) => unreached),
        tryGateways(options, baseline, signal),
      ]);
      return [...(controlPlane === undefined ? [] : [controlPlane]), ...gateways];
    },
    async controlPlane(signal) {
      const tried = await askControlPlane(options, signal);
      signal.throwIfAborted();
      return tried.unreached;
    },
    async servingMs(signal) {
      const { head } = await askControlPlane(options, signal);
      signal.throwIfAborted();
      const seconds = head?.headers[UPTIME_HEADER];
      return typeof seconds === "string" && /^\d{1,10}$/.test(seconds) ? Number(seconds) * 1000 : undefined;
    },
  };
}

async function askControlPlane(
  { dialler, targets, knownAddresses }: ProofOptions,
  signal: AbortSignal,
): Promise<{ readonly unreached?: Unreached; readonly head?: HttpHead }> {
  const { controlPlane } = targets();
  if (controlPlane === undefined)
    return { unreached: { target: "control plane", message: "this node is not registered" } };
  const url = new URL(SESSION_PATH, controlPlane.session.replace(/^ws/, "http"));
  const request = dialRequestFor(url, controlPlane.pins, TIMEOUT_MS);
  const target = `control plane ${hostAndPort(request.host, request.port)}`;
  const limit = AbortSignal.any([signal, AbortSignal.timeout(TIMEOUT_MS)]);
  try {
    if (request.tls === undefined && !isLoopback(request.host)) throw new SessionError("insecure", "it has no TLS");
    const known = { knownAddresses: knownAddresses(), plainOnlyLoopback: true };
    const { socket } = await dialler.dial({ ...request, ...known }, limit);
    return { head: await httpHead(socket, url, limit) };
  } catch (error) {
    return { unreached: { target, message: reasonOf(error) } };
  }
}

/** A single gateway reached before is enough. */
async function tryGateways(
  { targets, resolve }: ProofOptions,
  { gateways }: Baseline,
  signal: AbortSignal,
): Promise<readonly Unreached[]> {
  const paths = targets().paths.filter(({ gateway, key }) => key !== undefined && gateways.includes(gateway));
  // Gateways that no document names any more, or whose key is unknown, are not required.
  if (paths.length === 0) return [];
  const found = new AbortController();
  const limit = AbortSignal.any([signal, found.signal, AbortSignal.timeout(TIMEOUT_MS)]);
  const tries = paths.map(async (path): Promise<Unreached | undefined> => {
    try {
      await tryPath(path, resolve, limit);
      found.abort();
      return undefined;
    } catch (error) {
      const target = `gateway ${path.name} ${hostAndPort(path.host, path.port)}`;
      return { target, message: reasonOf(error), isGateway: true };
    }
  });
  const ends = await Promise.all(tries);
  return ends.some((end) => end === undefined) ? [] : ends.filter((end) => end !== undefined).slice(0, MAX_SHOWN);
}

const MAX_SHOWN = 8;

async function tryPath(
  { host, port, local, key }: NetworkTargets["paths"][number],
  resolve: Resolve,
  signal: AbortSignal,
): Promise<void> {
  const addresses = (await raced(resolve(host), signal)).slice(0, MAX_ADDRESSES);
  let last = new Error("no address");
  for (const address of addresses) {
    try {
      const shown = await gatewayKey(await openTcp({ address, port, local }, signal), signal);
      if (shown === key) return;
      last = new Error("it shows another key than the gateway's");
    } catch (error) {
      last = toError(error);
    }
    signal.throwIfAborted();
  }
  throw last;
}

/** Limits how long a name server may take. */
function raced<T>(work: Promise<T>, signal: AbortSignal): Promise<T> {
  return new Promise((resolve, reject) => {
    const onAbort = (): void => reject(toError(signal.reason));
    signal.addEventListener("abort", onAbort, { once: true });
    work.then(resolve, reject).finally(() => signal.removeEventListener("abort", onAbort));
  });
}

function hostAndPort(host: string, port: number): string {
  return host.includes(":") ? `[${host}]:${port}` : `${host}:${port}`;
}

const WORDS: Readonly<Record<string, string>> = {
  ECONNREFUSED: "connection refused",
  ECONNRESET: "connection reset",
  EHOSTUNREACH: "no route to host",
  ENETUNREACH: "network is unreachable",
  ETIMEDOUT: "connection timed out",
  EADDRNOTAVAIL: "the address to leave from is not there",
  ENOTFOUND: "no such name",
  EAI_AGAIN: "no name server answers",
  EPERM: "forbidden by this machine's firewall",
  EACCES: "forbidden by this machine's firewall",
};

/** Returns the cause of a failed attempt, from its innermost error with a code. Pure. */
export function reasonOf(thrown: unknown): string {
  const outer = toError(thrown);
  let error = outer;
  for (let depth = 0; depth < 8; depth += 1) {
    if (error.name === "TimeoutError" || error.name === "AbortError") return "connection timed out";
    const words = WORDS[errnoOf(error) ?? ""];
    if (words !== undefined) return words;
    const inner: unknown = error instanceof AggregateError ? error.errors[0] : error.cause;
    if (!(inner instanceof Error)) break;
    error = inner;
  }
  return outer.message.slice(0, 256);
}
