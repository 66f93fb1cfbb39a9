import { toError } from "../errors.ts";
import type { Versions } from "../host/releases/versions.ts";
import { sessionOf } from "./watch.ts";
import type { UpgradeDeps } from "./deps.ts";

export type TryOldDeps = Pick<UpgradeDeps, "services" | "agent" | "clock" | "limits" | "print"> & {
  readonly versions: Pick<Versions, "setAside" | "restore">;
};

/**
 * Runs the old version's agent for a while in place of the one on trial, then starts the latter again. Returns whether the old
 * version had a lasting session; undefined if it could not run. If interrupted, the version on trial stays set aside. `onSeen`
 * receives the result before the restart.
 */
export async function tryOld(
  deps: TryOldDeps,
  { version, onSeen }: { readonly version: string; readonly onSeen: (hadSession: boolean) => Promise<void> },
  signal: AbortSignal,
): Promise<boolean | undefined> {
  const { versions, services, print } = deps;
  try {
    await versions.setAside(version);
    await services.restartAgent(signal);
    const hadSession = await untilSession(deps, version, signal);
    if (hadSession !== undefined) await onSeen(hadSession);
    await versions.restore(version);
    await services.restartAgent(signal);
    return hadSession;
  } catch (error) {
    signal.throwIfAborted();
    print(`cannot try the old version: ${toError(error).message}`);
    await versions.restore(version);
    return undefined;
  }
}

async function untilSession(
  { agent, clock, limits }: TryOldDeps,
  version: string,
  signal: AbortSignal,
): Promise<boolean | undefined> {
  const until = clock.elapsed() + limits.backMs;
  let goodSince: number | undefined;
  let isSeen = false;
  for (;;) {
    const view = await agent.view(signal);
    const isOld = view !== undefined && view.version !== version;
    isSeen ||= isOld;
    const now = clock.elapsed();
    goodSince = isOld && sessionOf(view) === "working" ? (goodSince ?? now) : undefined;
    if (goodSince !== undefined && now - goodSince >= limits.settleMs) return true;
    // A session that started late gets the full settling time.
    if (now >= until && goodSince === undefined) return isSeen ? false : undefined;
    await clock.sleep(Math.min(limits.everyMs, MAX_LOOK_MS), signal);
  }
}

const MAX_LOOK_MS = 1000;
