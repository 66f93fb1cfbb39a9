import type { Clock } from "../host/clock.ts";
import type { ProxySettings } from "../lib/net/proxy.ts";
import { IDENTITY_LOST } from "../protocol/local/identity-lost.ts";
import type { NetworkTargets } from "../protocol/overlay/network-targets.ts";
import type { Standing } from "../protocol/channel/standing.ts";
import type { AgentView } from "./agent-view.ts";
import { missingOf, type Baseline } from "./baseline.ts";
import {
  beginJudging,
  judge,
  reconsider,
  type Failing,
  type JudgeLimits,
  type JudgeState,
  type Observation,
} from "./judge.ts";
import type { LocalAgent } from "./local-agent.ts";
import type { Probe } from "./probe.ts";
import type { UpgradeLimits } from "./deps.ts";

export interface WatchOptions {
  readonly agent: LocalAgent;
  readonly probe: Probe;
  /** Returns the addresses that the node must reach and the proxy, as stored on disk. */
  readonly targets: () => Promise<NetworkTargets | undefined>;
  readonly clock: Clock;
  readonly limits: JudgeLimits & Pick<UpgradeLimits, "everyMs" | "askEveryMs">;
  /** Reports whether the launcher has given the version up. */
  readonly isGivenUp: (version: string) => Promise<boolean>;
  /** Reports whether the old version, run for a while in place of the one on trial, has a session; undefined if it cannot run. */
  readonly tryOld: (signal: AbortSignal) => Promise<boolean | undefined>;
  readonly print: (line: string) => void;
}

/** Refusals by the control plane that prove nothing about this program. */
const SERVERS_OWN: ReadonlySet<string> = new Set(["too-many", "superseded", "deleted", "server-error"]);

/** A version on trial, with the results of an earlier judge. */
export interface Trial {
  readonly version: string;
  readonly baseline: Baseline;
  /** Whether the old version was running, or about to run, in its place. */
  readonly isAside: boolean;
  /** Whether the old version has just had a session. */
  readonly wasBetter: boolean;
}

/** Watches a version on trial until it is judged; returns undefined if it is healthy. */
export async function watch(
  options: WatchOptions,
  { version, baseline, isAside, wasBetter }: Trial,
  signal: AbortSignal,
): Promise<Failing | undefined> {
  const { clock, limits, print } = options;
  const ask = paced(options);
  const { hasSession } = baseline;
  const compared = async (state: JudgeState): Promise<JudgeState | undefined> => {
    const didBetter = await options.tryOld(signal);
    if (didBetter === undefined) return undefined;
    print(`${version} on trial again: the old version had ${didBetter ? "a" : "no"} session in its place`);
    return reconsider(state, didBetter, { now: clock.elapsed(), limits });
  };
  let state = beginJudging(clock.elapsed());
  if (wasBetter) state = reconsider(state, true, { now: clock.elapsed(), limits });
  if (isAside) state = (await compared(state)) ?? state;
  let printed = "";
  for (;;) {
    const seen = await observe({ ...options, ask }, { version, baseline }, signal);
    const [next, verdict] = judge(state, seen, { now: clock.elapsed(), hadSession: hasSession, limits });
    state = next;
    if (verdict.is === "healthy") return undefined;
    if (verdict.is === "failed") return verdict.why;
    if (verdict.is === "doubted") {
      print(`${version} on trial: ${verdict.why.message}; the old version is tried in its place`);
      const known = await compared(state);
      if (known === undefined) return verdict.why;
      state = known;
      continue;
    }
    const { failing, waitingFor } = verdict;
    const line = failing?.message ?? (waitingFor === undefined ? "everything works" : `waits for ${waitingFor}`);
    if (line !== printed) print(`${version} on trial: ${line}`);
    printed = line;
    await clock.sleep(limits.everyMs, signal);
  }
}

type Ask = (
  target: NonNullable<Baseline["controlPlane"]>,
  proxies: ProxySettings,
  signal: AbortSignal,
) => Promise<Standing>;

/** Caches the result for a while, because a whole fleet may upgrade while its control plane recovers. */
function paced({ probe, clock, limits }: WatchOptions): Ask {
  let last: { readonly until: number; readonly standing: Standing } | undefined;
  return async (target, proxies, signal) => {
    if (last === undefined || clock.elapsed() >= last.until) {
      const standing = await probe.controlPlane(target, proxies, signal);
      last = { until: clock.elapsed() + limits.askEveryMs, standing };
    }
    return last.standing;
  };
}

async function observe(
  { agent, probe, targets, isGivenUp, ask }: WatchOptions & { readonly ask: Ask },
  { version, baseline }: { readonly version: string; readonly baseline: Baseline },
  signal: AbortSignal,
): Promise<Observation> {
  const isGone = await isGivenUp(version);
  const view = isGone ? undefined : await agent.view(signal);
  const nothing = { controlPlane: "unasked", missing: [], isGivenUp: isGone, isChangePending: false } as const;
  if (view === undefined) return { ...nothing, agent: "silent", session: "missing" };
  if (view.version !== version) return { ...nothing, agent: "other", session: "missing" };
  const missing = missingOf(baseline, view);
  // An unreachable gateway is not the fault of this version.
  const reachable = await Promise.all(
    missing.gateways.map(async ({ name, paths }) => ((await probe.gateway(paths, signal)) ? [`gateway ${name}`] : [])),
  );
  const session = sessionOf(view);
  const asked = session === "missing" && baseline.hasSession ? ((await targets()) ?? view.targets) : undefined;
  const target = baseline.controlPlane ?? asked?.controlPlane;
  const isAsked = asked !== undefined && target !== undefined;
  return {
    agent: "new",
    session,
    controlPlane: isAsked ? await ask(target, proxiesOf(asked), signal) : "unasked",
    missing: [...missing.local, ...reachable.flat()],
    isChangePending: view.hasPendingChange,
    isGivenUp: false,
  };
}

/** Classifies an agent's session for the judgement. Pure. */
export function sessionOf({ isRegistered, session }: AgentView): Observation["session"] {
  if (!isRegistered || session.reason === IDENTITY_LOST.code) return "unregistered";
  if (session.state === "online") return session.hasBeaten ? "working" : "missing";
  return session.reason !== undefined && SERVERS_OWN.has(session.reason) ? "refused" : "missing";
}

/** The proxy may change at any time; the expected keys stay those of the baseline. */
function proxiesOf({ proxy }: NetworkTargets): ProxySettings {
  const url = proxy === undefined ? null : URL.parse(proxy.url);
  return { ...(url === null ? {} : { https: url }), noProxy: proxy?.noProxy ?? [] };
}
