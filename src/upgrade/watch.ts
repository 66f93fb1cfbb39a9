import type { Clock } from "../host/clock.ts";
import type { ProxySettings } from "../lib/net/proxy.ts";
import { IDENTITY_LOST } from "../protocol/local/identity-lost.ts";
import type { NetworkTargets } from "../protocol/overlay/network-targets.ts";
import type { Standing } from "../protocol/channel/standing.ts";
import type { AgentView } from "./agent-view.ts";
import { missingOf, type Before } from "./before.ts";
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
  /** Whom the node must reach and by which proxy, as it lies on disk. */
  readonly targets: () => Promise<NetworkTargets | undefined>;
  readonly clock: Clock;
  readonly limits: JudgeLimits & Pick<UpgradeLimits, "everyMs" | "askEveryMs">;
  /** Whether the launcher has given the version up. */
  readonly isGivenUp: (version: string) => Promise<boolean>;
  /** Whether the old version, started for a while in the place of the one on trial, has a session; undefined where it cannot be. */
  readonly tryOld: (signal: AbortSignal) => Promise<boolean | undefined>;
  readonly print: (line: string) => void;
}

/** Refusals of the control plane that say nothing about this program. */
const SERVERS_OWN: ReadonlySet<string> = new Set(["too-many", "superseded", "deleted", "server-error"]);

/** A version on trial, and how far an earlier judge had come with it. */
export interface Trial {
  readonly version: string;
  readonly before: Before;
  /** The old version was to have its turn, or was having it. */
  readonly isAside: boolean;
  /** The old version has just had a session in its place. */
  readonly wasBetter: boolean;
}

/** Watches a version on trial until it is known what to think of it; undefined means that it is healthy. */
export async function watch(
  options: WatchOptions,
  { version, before, isAside, wasBetter }: Trial,
  signal: AbortSignal,
): Promise<Failing | undefined> {
  const { clock, limits, print } = options;
  const ask = paced(options);
  const { hasSession } = before;
  const compared = async (state: JudgeState): Promise<JudgeState | undefined> => {
    const didBetter = await options.tryOld(signal);
    if (didBetter === undefined) return undefined;
    print(`${version} on trial again: the old version had ${didBetter ? "a" : "no"} session in its place`);
    return reconsider(state, didBetter, { now: clock.elapsed(), limits });
  };
  let state = beginJudging(clock.elapsed());
  if (wasBetter) state = reconsider(state, true, { now: clock.elapsed(), limits });
  if (isAside) state = (await compared(state)) ?? state;
  let said = "";
  for (;;) {
    const seen = await observe({ ...options, ask }, { version, before }, signal);
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
    if (line !== said) print(`${version} on trial: ${line}`);
    said = line;
    await clock.sleep(limits.everyMs, signal);
  }
}

type Ask = (
  target: NonNullable<Before["controlPlane"]>,
  proxies: ProxySettings,
  signal: AbortSignal,
) => Promise<Standing>;

/** The answer holds for a while, whatever it is: a whole fleet may be upgraded while its control plane is coming back. */
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
  { version, before }: { readonly version: string; readonly before: Before },
  signal: AbortSignal,
): Promise<Observation> {
  const isGone = await isGivenUp(version);
  const view = isGone ? undefined : await agent.view(signal);
  const nothing = { controlPlane: "unasked", missing: [], isGivenUp: isGone, isChangePending: false } as const;
  if (view === undefined) return { ...nothing, agent: "silent", session: "missing" };
  if (view.version !== version) return { ...nothing, agent: "other", session: "missing" };
  const missing = missingOf(before, view);
  // A gateway that nobody reaches is not this version's doing.
  const reachable = await Promise.all(
    missing.gateways.map(async ({ name, paths }) => ((await probe.gateway(paths, signal)) ? [`gateway ${name}`] : [])),
  );
  const session = sessionOf(view);
  const asked = session === "missing" && before.hasSession ? ((await targets()) ?? view.targets) : undefined;
  const target = before.controlPlane ?? asked?.controlPlane;
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

/** What an agent says of its session, as far as a judgement asks. Pure. */
export function sessionOf({ isRegistered, session }: AgentView): Observation["session"] {
  if (!isRegistered || session.reason === IDENTITY_LOST.code) return "unregistered";
  if (session.state === "online") return session.hasBeaten ? "working" : "missing";
  return session.reason !== undefined && SERVERS_OWN.has(session.reason) ? "refused" : "missing";
}

/** The way may change at any time; whoever answers is proved by what was known before. */
function proxiesOf({ proxy }: NetworkTargets): ProxySettings {
  const url = proxy === undefined ? null : URL.parse(proxy.url);
  return { ...(url === null ? {} : { https: url }), noProxy: proxy?.noProxy ?? [] };
}
