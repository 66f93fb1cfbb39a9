import type { Dialler } from "../host/dial.ts";
import { gatewayKey, openTcp } from "../host/net-probe.ts";
import type { Resolve } from "../host/system-resolve.ts";
import type { ProxySettings } from "../lib/proxy.ts";
import { untilAborted } from "../lib/until-aborted.ts";
import { withinTime } from "../lib/within-time.ts";
import type { GatewayPath } from "./agent-view.ts";
import type { Before } from "./before.ts";

/** Finds out, without the agent, who could be reached from this machine. */
export interface Probe {
  /**
   * Whether this program, which is the old version, gets as far with the control plane as it can without proving who it is: TLS with the
   * key that is meant, a WebSocket, and the challenge. Whatever else is answered, be it by something on the way, the old version would not get
   * a session either.
   */
  controlPlane(
    target: NonNullable<Before["controlPlane"]>,
    proxies: ProxySettings,
    signal: AbortSignal,
  ): Promise<boolean>;
  /** Whether one of a gateway's paths leads to who has its key. */
  gateway(paths: readonly GatewayPath[], signal: AbortSignal): Promise<boolean>;
}

/** Opens a session as far as its challenge, as the agent of this version does; rejects where that does not come. */
export type HearChallenge = (
  by: { readonly dialler: Dialler; readonly now: () => number },
  target: NonNullable<Before["controlPlane"]>,
  limit: { readonly signal: AbortSignal; readonly timeoutMs: number },
) => Promise<void>;

export interface ProbeOptions {
  readonly hearChallenge: HearChallenge;
  readonly now: () => number;
  readonly dialler: (proxies: ProxySettings) => Dialler;
  readonly resolve: Resolve;
}

const TIMEOUT_MS = 5000;
const MAX_PATHS = 8;

export function hostProbe({ hearChallenge, now, dialler, resolve }: ProbeOptions): Probe {
  return {
    async controlPlane(target, proxies, signal) {
      const limit = { signal: withinTime(signal, TIMEOUT_MS), timeoutMs: TIMEOUT_MS };
      const heard = hearChallenge({ dialler: dialler(proxies), now }, target, limit);
      return orFalse(
        heard.then(() => true),
        signal,
      );
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
