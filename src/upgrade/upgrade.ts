import { AgentError, HostError, toError } from "../errors.ts";
import type { Clock } from "../host/clock.ts";
import type { InstalledVersion } from "../host/releases/versions.ts";
import type { UpgradeRequest, UpgradeStanding } from "../protocol/documents/release.ts";
import { Baseline, baselineOf, EMPTY_BASELINE } from "./baseline.ts";
import { decide, type Next } from "./decide.ts";
import { tryOld } from "./try-old.ts";
import { watch } from "./watch.ts";
import type { UpgradeDeps, OnStep } from "./deps.ts";
import { defined } from "../lib/defined.ts";

/** The result of a run's last upgrade; `idle` if there was none. */
export type UpgradeEnd = "completed" | "failed" | "idle";

/**
 * Resumes an upgrade at any point and completes it, then runs the next requested one. Each step reads its state from disk, so it
 * does not matter which process ran the previous step or whether that was interrupted.
 */
export async function upgrade(deps: UpgradeDeps, signal: AbortSignal): Promise<UpgradeEnd> {
  const { versions, requests } = deps;
  let end: UpgradeEnd = "idle";
  await requests.settle();
  for (;;) {
    signal.throwIfAborted();
    const request = await requests.taken();
    const next = decide({ standing: await versions.standing(), versions: await versions.list(), request });
    if (next.do === "rest") {
      if (await requests.take()) continue;
      await tidy(deps);
      return end;
    }
    end = (await carryOut(deps, next, signal)) ?? end;
  }
}

function carryOut(
  deps: UpgradeDeps,
  next: Exclude<Next, { do: "rest" }>,
  signal: AbortSignal,
): Promise<UpgradeEnd | undefined> {
  switch (next.do) {
    case "begin":
      return begin(deps, { step: "fetching", from: deps.ownVersion }, signal);
    case "adopt":
      return adopt(deps, next.version, signal);
    case "prepare":
      return prepare(deps, next, signal);
    case "switch":
      return switchOver(deps, next, signal);
    case "judge":
      return judgeVersion(deps, next, signal);
    case "complete":
      return complete(deps, next, signal);
    case "go-back":
      return goBack(deps, next, signal);
    case "abandon":
      return giveUp(deps, next.standing, new HostError("interrupted", "it was interrupted before the switch"), signal);
  }
}

type Ongoing = { readonly version: string; readonly standing: UpgradeStanding };

/** Keeps the previous upgrade's end time until this one ends. */
async function begin(
  deps: UpgradeDeps,
  progress: Pick<UpgradeStanding, "step" | "from" | "to">,
  signal: AbortSignal,
): Promise<undefined> {
  const { versions, clock } = deps;
  const completedAt = (await versions.standing())?.completedAt;
  const ended = completedAt === undefined ? {} : { completedAt };
  await stand(deps, { state: "IN_PROGRESS", ...progress, begunAt: unixSeconds(clock), ...ended }, signal);
}

async function adopt(deps: UpgradeDeps, version: string, signal: AbortSignal): Promise<undefined> {
  const trial = (await find(deps, version))?.trial;
  const from = trial === undefined || trial === "damaged" ? deps.ownVersion : trial.from;
  await begin(deps, { step: "judging", from, to: version }, signal);
}

async function prepare(
  deps: UpgradeDeps,
  { request, standing }: { readonly request: UpgradeRequest; readonly standing: UpgradeStanding },
  signal: AbortSignal,
): Promise<UpgradeEnd | undefined> {
  let current = standing;
  const onStep: OnStep = async (step, to) => {
    current = { ...current, step, ...defined({ to }) };
    await stand(deps, current, signal);
  };
  try {
    const to = await deps.prepare(request, onStep, signal);
    current = { ...current, to };
    if (request.stageOnly !== true && !request.skipUnattended)
      current = { ...current, ...(await updateSystem(deps, signal)) };
    if (request.stageOnly !== true) await stand(deps, { ...current, step: "switching" }, signal);
  } catch (error) {
    signal.throwIfAborted();
    return giveUp(deps, current, toError(error), signal);
  }
  return request.stageOnly === true ? leaveStaged(deps, current, signal) : undefined;
}

/** Leaves the staged release for a later upgrade. An interruption before the request is removed repeats this step. */
async function leaveStaged(
  { requests, versions, agent, print }: UpgradeDeps,
  { step: _step, ...standing }: UpgradeStanding,
  signal: AbortSignal,
): Promise<UpgradeEnd> {
  await versions.setStanding({ ...standing, state: "STAGED" });
  await requests.done();
  await agent.poke(signal);
  print(`${standing.to ?? "the release"} is staged`);
  return "completed";
}

/** A failed update of the operating system does not prevent the upgrade. */
async function updateSystem(
  { services, clock, print }: UpgradeDeps,
  signal: AbortSignal,
): Promise<Pick<UpgradeStanding, "osUpdatedAt" | "osReason">> {
  try {
    return (await services.updateSystem(signal)) ? { osUpdatedAt: unixSeconds(clock) } : {};
  } catch (error) {
    signal.throwIfAborted();
    print(`cannot update the operating system: ${toError(error).message}`);
    return { osReason: reasonFor(toError(error)) };
  }
}

function reasonFor(error: Error): NonNullable<UpgradeStanding["reason"]> {
  const code = error instanceof AgentError ? error.code : "internal";
  return { code: code.slice(0, 64), message: error.message.slice(0, 1024) };
}

async function switchOver(
  deps: UpgradeDeps,
  { version, standing }: Ongoing,
  signal: AbortSignal,
): Promise<UpgradeEnd | undefined> {
  const { versions, agent, clock, bootId } = deps;
  try {
    const placed = await find(deps, version);
    const isPlaced = placed?.trial !== undefined && placed.isWhole && placed.failed === undefined;
    await untilNothingPends(deps, signal);
    const view = await agent.view(signal);
    // A version placed before an interruption has its baseline in its mark.
    const { controlPlane } = (await deps.targets()) ?? view?.targets ?? {};
    const seen = view === undefined || view.version === version ? EMPTY_BASELINE : baselineOf(view, controlPlane);
    const known = isPlaced ? await baselineIn(deps, version) : undefined;
    const passedOver = await newerThan(deps, version);
    const at = unixSeconds(clock);
    await versions.place(version, { from: standing.from, since: at, bootId, before: { ...(known ?? seen) } });
    const message = `an operator downgraded to ${version}`;
    for (const newer of passedOver) await versions.fail(newer, { code: PASSED_OVER, message, at });
  } catch (error) {
    signal.throwIfAborted();
    // The launcher may have given it up before this program observed it.
    const found = await find(deps, version);
    if (found?.failed === undefined || !found.isWhole) return giveUp(deps, standing, toError(error), signal);
  }
  await stand(deps, { ...standing, step: "judging" }, signal);
  return undefined;
}

/** Returns the newer versions, which are given up because the newest version runs. */
async function newerThan({ versions }: UpgradeDeps, version: string): Promise<readonly string[]> {
  const newer = (await versions.list()).filter((found) => found.version > version && found.failed === undefined);
  if (newer.some(({ isBase }) => isBase)) {
    throw new HostError("older-than-package", `the package is newer than ${version}; install an older package`);
  }
  return newer.map((found) => found.version);
}

const PASSED_OVER = "passed-over";

/** Waits until no network change is pending, because restarting the agent would revert it. */
async function untilNothingPends(deps: UpgradeDeps, signal: AbortSignal): Promise<void> {
  const { agent, isChangeLeft, clock, limits } = deps;
  const until = clock.elapsed() + limits.pendingMs;
  while ((await agent.view(signal))?.hasPendingChange ?? (await isChangeLeft())) {
    if (clock.elapsed() >= until) {
      throw new HostError("busy", "a network change is pending: keep or revert it (holdfast network), then retry");
    }
    await clock.sleep(limits.everyMs, signal);
  }
}

async function judgeVersion(
  deps: UpgradeDeps,
  { version, standing }: Ongoing,
  signal: AbortSignal,
): Promise<undefined> {
  const { versions, requests, agent, services, clock, limits, print } = deps;
  await requests.done();
  const baseline = (await baselineIn(deps, version)) ?? EMPTY_BASELINE;
  // The old version was running in its place when this program was interrupted.
  const isAside = (await find(deps, version))?.isAside === true;
  const view = isAside ? undefined : await agent.view(signal);
  // An agent that does not respond may be starting, and each start counts.
  if (!isAside && view === undefined) await orPrint(deps, "start the agent", services.startAgent(signal), signal);
  else if (view !== undefined && view.version !== version) {
    await orPrint(deps, "restart the agent", services.restartAgent(signal), signal);
  }
  const isGivenUp = async (asked: string): Promise<boolean> => (await find(deps, asked))?.failed !== undefined;
  const { probe, targets } = deps;
  const { betterAt, ...stood } = standing;
  const note = (seen: Pick<UpgradeStanding, "step" | "betterAt">): Promise<void> =>
    orPrint(deps, "note how it stands", stand(deps, { ...stood, ...seen }, signal), signal);
  const onSeen = (hadSession: boolean): Promise<void> =>
    note({ step: "judging", ...(hadSession ? { betterAt: unixSeconds(clock) } : {}) });
  const runOld = async (limit: AbortSignal): Promise<boolean | undefined> => {
    await note({ step: "comparing" });
    return tryOld(deps, { version, onSeen }, limit);
  };
  const options = { agent, probe, targets, clock, limits, isGivenUp, tryOld: runOld, print };
  const sinceBetterMs = (unixSeconds(clock) - (betterAt ?? 0)) * 1000;
  const wasBetter = sinceBetterMs >= 0 && sinceBetterMs <= limits.betterMs;
  const why = await watch(options, { version, baseline, isAside, wasBetter }, signal);
  if (why === undefined) {
    await versions.prove(version, unixSeconds(clock) + limits.probationSeconds);
    return;
  }
  const found = await find(deps, version);
  const { code, message } = found?.failed ?? why;
  const starts = found?.starts ?? 0;
  const reason = { code, message };
  try {
    await stand(deps, { ...standing, step: "going-back", reason, starts }, signal);
  } catch (error) {
    signal.throwIfAborted();
    // If the disk is full, the version is still given up.
    print(`cannot record that ${version} is given up: ${toError(error).message}`);
    if (found?.failed === undefined) await versions.fail(version, { ...reason, at: unixSeconds(clock) });
  }
}

async function complete(deps: UpgradeDeps, { version, standing }: Ongoing, signal: AbortSignal): Promise<UpgradeEnd> {
  const { requests, services, clock, print } = deps;
  await requests.done();
  await orPrint(deps, "have a new overlay take over", services.succeedOverlay(version, signal), signal);
  const { step: _step, reason: _reason, starts: _starts, betterAt: _at, ...rest } = standing;
  await stand(deps, { ...rest, state: "COMPLETED", completedAt: unixSeconds(clock) }, signal);
  print(`upgraded from ${standing.from} to ${version}`);
  await orPrint(deps, "remove old versions", tidyAway(deps, [version, standing.from]), signal);
  return "completed";
}

async function goBack(deps: UpgradeDeps, { version, standing }: Ongoing, signal: AbortSignal): Promise<UpgradeEnd> {
  const { versions, requests, services, agent, clock, limits, print } = deps;
  await requests.done();
  const found = await find(deps, version);
  const why = standing.reason ?? reasonOf(found);
  const starts = standing.starts ?? found?.starts ?? 0;
  const { betterAt: _at, ...stood } = standing;
  const going: UpgradeStanding = { ...stood, step: "going-back", reason: why, starts };
  await orPrint(deps, "note how it stands", stand(deps, going, signal), signal);
  if ((await find(deps, standing.from))?.failed?.code === PASSED_OVER) await versions.forgive(standing.from);
  if (found?.failed === undefined) await versions.fail(version, { ...why, at: unixSeconds(clock) });
  print(`${version} is given up: ${why.message}`);
  const view = await agent.view(signal);
  if (view === undefined || view.version === version) {
    await orPrint(deps, "restart the agent", services.restartAgent(signal), signal);
  }
  const until = clock.elapsed() + limits.backMs;
  let back = await agent.view(signal);
  while ((back === undefined || back.version === version) && clock.elapsed() < until) {
    await clock.sleep(Math.min(limits.everyMs, 1000), signal);
    back = await agent.view(signal);
  }
  const isBack = back !== undefined && back.version !== version;
  const message = isBack ? why.message : `${why.message}; the agent of the old version does not answer either`;
  const { step: _step, ...rest } = going;
  const reason = { code: why.code, message: message.slice(0, 1024) };
  await stand(deps, { ...rest, state: "FAILED", reason, completedAt: unixSeconds(clock) }, signal);
  await orPrint(deps, "remove what is left of it", forget(deps, version), signal);
  return "failed";
}

function reasonOf(found: InstalledVersion | undefined): { readonly code: string; readonly message: string } {
  if (found?.failed === undefined) return { code: "damaged", message: "the installed version is missing or damaged" };
  const { code, message } = found.failed;
  return { code, message };
}

/** Ends the upgrade before the switch; the running version continues. */
async function giveUp(
  deps: UpgradeDeps,
  standing: UpgradeStanding,
  error: Error,
  signal: AbortSignal,
): Promise<UpgradeEnd> {
  const { step: _step, ...rest } = standing;
  const reason = reasonFor(error);
  await stand(deps, { ...rest, state: "FAILED", reason, completedAt: unixSeconds(deps.clock) }, signal);
  deps.print(`not upgraded: ${error.message}`);
  await deps.requests.done();
  return "failed";
}

/** Removes marks that are no longer needed. Failures are retried on the next run. */
async function tidy(deps: UpgradeDeps): Promise<void> {
  const now = unixSeconds(deps.clock);
  for (const { version, trial, failed, probationUntil, isBase, isWhole } of await deps.versions.list()) {
    if (isBase) continue;
    const until = trial === undefined ? probationUntil : undefined;
    const isLeft = trial !== undefined && (failed !== undefined || !isWhole);
    if (isLeft || (until !== undefined && until <= now)) {
      await deps.versions.unmark(version).catch(() => undefined);
    } else if (until !== undefined && until > now + deps.limits.probationSeconds) {
      // The mark was written while the clock was ahead and would count crashes for years.
      await deps.versions.prove(version, now + deps.limits.probationSeconds).catch(() => undefined);
    }
  }
}

async function forget(deps: UpgradeDeps, failed: string): Promise<void> {
  await deps.versions.unmark(failed);
  const others = (await deps.versions.list()).map(({ version }) => version).filter((version) => version !== failed);
  await tidyAway(deps, others);
}

/** Removes old versions and fetched files. */
async function tidyAway({ versions }: UpgradeDeps, keep: readonly string[]): Promise<void> {
  await versions.clean(keep);
  await versions.sweep([]);
}

async function find({ versions }: UpgradeDeps, version: string): Promise<InstalledVersion | undefined> {
  return (await versions.list()).find((found) => found.version === version && !found.isBase);
}

async function baselineIn(deps: UpgradeDeps, version: string): Promise<Baseline | undefined> {
  const trial = (await find(deps, version))?.trial;
  return trial === undefined || trial === "damaged" ? undefined : Baseline.safeParse(trial.before).data;
}

/** Stores the state of the upgrade on disk and makes the agent report it. */
async function stand({ versions, agent }: UpgradeDeps, standing: UpgradeStanding, signal: AbortSignal): Promise<void> {
  await versions.setStanding(standing);
  await agent.poke(signal);
}

/** Prints a failure and continues; the result is observed later. */
async function orPrint(
  { print }: UpgradeDeps,
  what: string,
  work: Promise<unknown>,
  signal: AbortSignal,
): Promise<void> {
  try {
    await work;
  } catch (error) {
    signal.throwIfAborted();
    print(`cannot ${what}: ${toError(error).message}`);
  }
}

function unixSeconds(clock: Clock): number {
  return Math.floor(clock.now() / 1000);
}
