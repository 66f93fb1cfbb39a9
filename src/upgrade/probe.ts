import type { Dialler } from "../host/net/dial.ts";
import { gatewayKey, openTcp } from "../host/net/net-probe.ts";
import type { Resolve } from "../host/net/system-resolve.ts";
import type { ProxySettings } from "../lib/net/proxy.ts";
import type { Standing } from "../protocol/channel/standing.ts";
import { untilAborted } from "../lib/async/until-aborted.ts";
import { withinTime } from "../lib/async/within-time.ts";
import type { GatewayPath } from "./agent-view.ts";
import type { Before } from "./before.ts";

/** Finds out, without the agent, who could be reached from this machine. */
export interface Probe {
  /**
   * How far this program, which is the old version, gets with the control plane short of a session: TLS with the key that is meant, a
   * WebSocket, the challenge, and the node's proof. Where anything else is answered, be it by something on the way, the old version would
   * not get a session either.
   */
  controlPlane(
    target: NonNullable<Before["controlPlane"]>,
    proxies: ProxySettings,
    signal: AbortSignal,
  ): Promise<Standing>;
  /** Whether one of a gateway's paths leads to who has its key. */
  gateway(paths: readonly GatewayPath[], signal: AbortSignal): Promise<boolean>;
}

/** Asks that as the agent of this version asks for a session, and opens none. */
export type AskStanding = (
  dialler: Dialler,
  target: NonNullable<Before["controlPlane"]>,
  limit: { readonly signal: AbortSignal; readonly timeoutMs: number },
) => Promise<Standing>;

export interface ProbeOptions {
  readonly askStanding: AskStanding;
  readonly dialler: (proxies: ProxySettings) => Dialler;
  readonly resolve: Resolve;
}

const TIMEOUT_MS = 5000;
/** On a slow line each of half a dozen round trips may take its time. */
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
