import type { Dialler } from "../host/net/dial.ts";
import { gatewayKey, openTcp } from "../host/net/net-probe.ts";
import type { Resolve } from "../host/net/system-resolve.ts";
import type { ProxySettings } from "../lib/net/proxy.ts";
import type { Standing } from "../protocol/channel/standing.ts";
import { untilAborted } from "../lib/async/until-aborted.ts";
import { withinTime } from "../lib/async/within-time.ts";
import type { GatewayPath } from "./agent-view.ts";
import type { Baseline } from "./baseline.ts";

/** Checks without the agent whether a remote is reachable from this machine. */
export interface Probe {
  /**
   * Returns how far this program, which is the old version, gets with the control plane without opening a session: TLS with the
   * expected key, WebSocket, challenge, and the node's proof. If anything else responds, even a middlebox, the old version would
   * not get a session either.
   */
  controlPlane(
    target: NonNullable<Baseline["controlPlane"]>,
    proxies: ProxySettings,
    signal: AbortSignal,
  ): Promise<Standing>;
  /** Reports whether one of a gateway's paths reaches a peer with its key. */
  gateway(paths: readonly GatewayPath[], signal: AbortSignal): Promise<boolean>;
}

/** Asks the control plane like this version's agent asks for a session, without opening one. */
export type AskStanding = (
  dialler: Dialler,
  target: NonNullable<Baseline["controlPlane"]>,
  limit: { readonly signal: AbortSignal; readonly timeoutMs: number },
) => Promise<Standing>;

export interface ProbeOptions {
  readonly askStanding: AskStanding;
  readonly dialler: (proxies: ProxySettings) => Dialler;
  readonly resolve: Resolve;
}

const TIMEOUT_MS = 5000;
/** Each of about six round trips may be slow. */
const SESSION_TIMEOUT_MS = 15_000;
const MAX_PATHS = 8;

export function hostProbe({ askStanding, dialler, resolve }: ProbeOptions): Probe {
  return {
    async controlPlane(target, proxies, signal) {
      const limit = { signal: withinTime(signal, SESSION_TIMEOUT_MS), timeoutMs: SESSION_TIMEOUT_MS };
      const standing = await askStanding(dialler(proxies), target, limit).catch(() => "unreached" as const);
      signal.throwIfAborted();
      return standing;
    },
    async gateway(paths, signal) {
      const limit = withinTime(signal, TIMEOUT_MS);
      const leads = async ({ host, port, local, key }: GatewayPath): Promise<boolean> => {
        const [address] = await resolve(host);
        if (address === undefined || key === undefined) return false;
        return (await gatewayKey(await openTcp({ address, port, local }, limit), limit)) === key;
      };
      const tried = await Promise.all(
        paths.slice(0, MAX_PATHS).map((path) => orFalse(untilAborted(leads(path), limit), signal)),
      );
      return tried.includes(true);
    },
  };
}

async function orFalse(work: Promise<boolean>, signal: AbortSignal): Promise<boolean> {
  const isSo = await work.catch(() => false);
  signal.throwIfAborted();
  return isSo;
}
