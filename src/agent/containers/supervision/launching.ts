import type { Logger } from "pino";
import { HostError, toError } from "../../../errors.ts";
import type { Clock } from "../../../host/clock.ts";
import type { ContainerDetail, Engine, OutputFrame } from "../../../host/engine/engine.ts";
import type { ContainerRow, Ledger } from "../model/ledger.ts";
import {
  CONTAINER_LABEL,
  engineNameOf,
  OWNER_LABEL,
  sortContainers,
  stateOf,
  type Own,
} from "../model/own-containers.ts";
import type { Slots } from "../model/slots.ts";
import type { Blueprint } from "../model/wanted.ts";

export interface LaunchingOptions {
  readonly engine: Engine;
  readonly ledger: Ledger;
  readonly clock: Clock;
  readonly log: Logger;
  /** Uid of the node. */
  readonly owner: () => string;
  readonly slots: Slots;
  readonly nonce: () => string;
  /** Has the network that containers are attached to; rejects when it cannot be had. */
  readonly ensureNetwork: (signal: AbortSignal) => Promise<void>;
  /** Whether that network is as it should be; changes nothing. Left out, it is made sure of each time. */
  readonly hasNetwork?: (signal: AbortSignal) => Promise<boolean>;
  /** Why local policy forbids what a container was given when it was made; left out, nothing is forbidden. */
  readonly forbids?: (privileges: string | undefined) => Promise<string | undefined>;
  /** What the engine cannot do itself for a container that runs. */
  readonly afterStart: (detail: ContainerDetail, blueprint: Blueprint, signal: AbortSignal) => Promise<void>;
}

/** What there was of a definition a moment ago. */
export interface Survey {
  readonly own: readonly Own[];
  readonly hasNetwork: boolean;
}

export interface LaunchRequest {
  readonly id: string;
  /** Asked for by the caller while it saw to the image; must be of the last moments. */
  readonly survey: Survey;
  readonly blueprint: Blueprint;
  readonly imageId: string;
  /** Each run is a container of its own. */
  readonly isFresh: boolean;
  readonly isRestart: boolean;
  readonly stopSeconds: number;
  /** It could not be started, and what ran before it runs again. */
  readonly onFellBack: (error: unknown) => void;
  /** Takes what it says from its first byte on. */
  readonly onAttached?: (output: AsyncIterable<OutputFrame>) => void;
}

/** What ran beside another of the same definition has no definition of its own to say how long. */
const STRAY_STOP_SECONDS = 10;
/** Cleaning up after something that failed has this long, whoever wants it ended. */
const CLEAN_UP_MS = 30_000;

/**
 * Has one container of a definition running and no other. What ran before is stopped only when its successor has been created, and is
 * started again when that cannot be. A crash anywhere leaves one of the two running or stopped, and the same again finishes.
 */
export async function launch(options: LaunchingOptions, request: LaunchRequest, signal: AbortSignal): Promise<void> {
  const { engine, log, slots } = options;
  const { id, blueprint, isFresh, isRestart, stopSeconds } = request;
  const { own, hasNetwork } = request.survey;
  await mayStart(blueprint);
  const usable = own.find(
    ({ row, container }) =>
      row.hash === blueprint.hash &&
      container.imageId === request.imageId &&
      (isRestart || !isFresh || container.state === "created"),
  );
  // Of two that an earlier attempt left, the successor names the one that ran before it.
  const running = own.find((one) => one !== usable && isUp(one));
  const former = running ?? own.find(({ row }) => row.nonce === usable?.row.replaces);
  const chosen = await slots.run(signal, async () => {
    if (!hasNetwork) await options.ensureNetwork(signal);
    return usable?.container.id ?? create(options, request, former?.row, signal);
  });
  const ending = own.filter((one) => one !== usable || isRestart);
  // Whoever takes a day to end keeps nobody else from starting.
  await stopAll(options, ending, stopSeconds, signal);
  // The engine may have started it itself since the start was decided on.
  const isOn = !isRestart && usable !== undefined && stateOf(usable.container) === "running";
  const begin = async (): Promise<void> => {
    try {
      // What ran until now, or what shares a directory with it, may have put a link in the place of a bind's source.
      await mayStart(blueprint);
      await start(options, chosen, request.onAttached, signal);
    } catch (error) {
      const isBack = await fallBack(options, chosen, usable === undefined, former, signal);
      if (isBack) request.onFellBack(error);
      throw error;
    }
  };
  if (!isOn) await slots.run(signal, begin);
  await clearAway(
    options,
    own.filter(({ container }) => container.id !== chosen),
    signal,
  );
  const detail = await giveName(options, id, chosen, signal).catch((error: unknown) => {
    // It runs; what is left to do is done by tidying.
    log.warn({ container: id, err: toError(error) }, "the container has not got its name yet");
    return engine.inspectContainer(chosen, signal);
  });
  if (detail !== undefined && stateOf(detail) === "running") {
    await options
      .afterStart(detail, blueprint, signal)
      .catch((error: unknown) => log.warn({ container: id, err: toError(error) }, "not all limits were set"));
  }
}

/** Asks at once what a launch has to know, and changes nothing. Rejects as the engine does. */
export async function survey(options: LaunchingOptions, id: string, signal: AbortSignal): Promise<Survey> {
  const asked = [ownOf(options, id, signal), options.hasNetwork?.(signal) ?? Promise.resolve(false)] as const;
  // One that fails does not leave the other without anybody who listens.
  await Promise.allSettled(asked);
  const [own, hasNetwork] = await Promise.all(asked);
  return { own, hasNetwork };
}

/** Has what ran before running again where a replacement was cut short that is not wanted any more, or cannot be finished now. */
export async function revive(options: LaunchingOptions, id: string, signal: AbortSignal): Promise<void> {
  const own = await ownOf(options, id, signal);
  if (own.some(isUp)) return;
  const former = own.find(({ row: { nonce } }) => own.some(({ row }) => row.replaces === nonce));
  if (former === undefined || (await isForbidden(options, former))) return;
  try {
    await options.engine.startContainer(former.container.id, signal);
  } catch (error) {
    signal.throwIfAborted();
    options.log.warn({ container: id, err: toError(error) }, "what ran before could not be started again");
  }
}

/** Clears away what a replacement that was cut short left beside the container that runs. */
export async function tidy(options: LaunchingOptions, id: string, signal: AbortSignal): Promise<void> {
  const own = await ownOf(options, id, signal);
  const kept = own.find(isUp) ?? own[0];
  if (kept === undefined) return;
  const others = own.filter((one) => one !== kept);
  await stopAll(options, others, STRAY_STOP_SECONDS, signal);
  await clearAway(options, others, signal);
  await giveName(options, id, kept.container.id, signal);
}

/** Ends whatever runs of a definition. */
export async function halt(
  options: LaunchingOptions,
  id: string,
  stopSeconds: number,
  signal: AbortSignal,
): Promise<void> {
  await stopAll(options, await ownOf(options, id, signal), stopSeconds, signal);
}

/** Ends and removes everything of a definition, and forgets it unless somebody has come to want it again. */
export async function removeAll(
  options: LaunchingOptions,
  { id, stopSeconds, isGone }: { readonly id: string; readonly stopSeconds: number; readonly isGone: () => boolean },
  signal: AbortSignal,
): Promise<void> {
  const own = await ownOf(options, id, signal);
  await stopAll(options, own, stopSeconds, signal);
  await clearAway(options, own, signal);
  if (isGone()) options.ledger.dropDefinition(id);
}

/** What the engine has of a definition now, with what the ledger knows of it brought up to date. */
export async function ownOf(options: LaunchingOptions, id: string, signal: AbortSignal): Promise<readonly Own[]> {
  const { engine, ledger } = options;
  const labels = [`${OWNER_LABEL}=${options.owner()}`, `${CONTAINER_LABEL}=${id}`];
  const sorted = sortContainers(await engine.listContainers(labels, signal), ledger, options.clock.now());
  for (const { nonce, definition } of sorted.missing) if (definition === id) ledger.dropContainer(nonce);
  const own = sorted.own.get(id) ?? [];
  for (const { row, container } of own) ledger.putContainer({ ...row, engineId: container.id });
  return own;
}

/** @throws {HostError} `not-startable`, with the reason. */
async function mayStart({ check }: Blueprint): Promise<void> {
  const refusal = await check();
  if (refusal !== undefined) throw new HostError("not-startable", refusal);
}

/** What listens to one that does not start is let go. */
async function start(
  { engine }: LaunchingOptions,
  chosen: string,
  onAttached: LaunchRequest["onAttached"],
  signal: AbortSignal,
): Promise<void> {
  const listening = new AbortController();
  try {
    if (onAttached !== undefined) onAttached(await engine.attach(chosen, AbortSignal.any([signal, listening.signal])));
    await engine.startContainer(chosen, signal);
  } catch (error) {
    listening.abort(error);
    throw error;
  }
}

async function create(
  { engine, ledger, clock, nonce: newNonce }: LaunchingOptions,
  { id, blueprint, survey: { own } }: LaunchRequest,
  former: ContainerRow | undefined,
  signal: AbortSignal,
): Promise<string> {
  const nonce = newNonce();
  const row: ContainerRow = {
    nonce,
    definition: id,
    engineId: undefined,
    hash: blueprint.hash,
    limits: blueprint.limitsHash,
    createdAt: clock.now(),
    replaces: former?.nonce,
    privileges: blueprint.privileges,
  };
  ledger.putContainer(row);
  try {
    const body = blueprint.bodyOf(nonce);
    // Its proper name may still be that of the container which it follows, or of somebody else's.
    const name = `${engineNameOf(id)}-${nonce.slice(0, 8)}`;
    const created =
      own.length > 0
        ? await engine.createContainer(name, body, signal)
        : await engine.createContainer(engineNameOf(id), body, signal).catch((error: unknown) => {
            if (!isNameTaken(error)) throw error;
            return engine.createContainer(name, body, signal);
          });
    ledger.putContainer({ ...row, engineId: created.id });
    return created.id;
  } catch (error) {
    // Only a clear refusal says that there is none; anything else is found by its nonce.
    if (error instanceof HostError && error.code === "engine-refused") ledger.dropContainer(nonce);
    throw error;
  }
}

/** Has what ran before running again, since its successor cannot be started; says whether it does. */
async function fallBack(
  options: LaunchingOptions,
  successor: string,
  isNew: boolean,
  former: Own | undefined,
  signal: AbortSignal,
): Promise<boolean> {
  const { engine, ledger, log } = options;
  // Whoever wants it stopped wants this one stopped too.
  if (signal.aborted) return false;
  const enough = AbortSignal.any([signal, AbortSignal.timeout(CLEAN_UP_MS)]);
  let isBack = false;
  try {
    const mayRun = former !== undefined && !(await isForbidden(options, former));
    if (mayRun) await engine.startContainer(former.container.id, enough);
    isBack = mayRun;
    if (!isNew && former === undefined) return isBack;
    await engine.removeContainer(successor, { force: true }, enough);
    const row = [...ledger.containers.values()].find(({ engineId }) => engineId === successor);
    if (row !== undefined) ledger.dropContainer(row.nonce);
  } catch (error) {
    log.warn({ container: former?.row.definition, err: toError(error) }, "what ran before could not be started again");
  }
  return isBack;
}

async function isForbidden({ forbids, log }: LaunchingOptions, { row, container }: Own): Promise<boolean> {
  const reason = await forbids?.(row.privileges);
  if (reason === undefined) return false;
  log.warn({ container: row.definition, engineId: container.id, reason }, "what ran before must not run any more");
  return true;
}

async function stopAll(
  { engine }: LaunchingOptions,
  own: readonly Own[],
  stopSeconds: number,
  signal: AbortSignal,
): Promise<void> {
  for (const one of own) if (isUp(one)) await engine.stopContainer(one.container.id, stopSeconds, signal);
}

async function clearAway(
  { engine, ledger }: LaunchingOptions,
  own: readonly Own[],
  signal: AbortSignal,
): Promise<void> {
  for (const { row, container } of own) {
    await engine.removeContainer(container.id, { force: true }, signal);
    ledger.dropContainer(row.nonce);
  }
}

/** @throws {HostError} as when somebody else has the name. */
async function giveName(
  { engine, ledger }: LaunchingOptions,
  id: string,
  chosen: string,
  signal: AbortSignal,
): Promise<ContainerDetail | undefined> {
  const name = engineNameOf(id);
  const detail = await engine.inspectContainer(chosen, signal);
  if (detail !== undefined && detail.name !== name) await engine.renameContainer(chosen, name, signal);
  const row = [...ledger.containers.values()].find(({ engineId }) => engineId === chosen);
  if (row?.replaces !== undefined) ledger.putContainer({ ...row, replaces: undefined });
  return detail;
}

/** Docker refuses a name that is taken with 409, Podman with 500 and the reason. */
function isNameTaken(error: unknown): boolean {
  if (!(error instanceof HostError) || error.code !== "engine-refused") return false;
  return error.details?.["status"] === 409 || /\bname\b.*\b(?:in use|taken|exists)\b/i.test(error.message);
}

function isUp({ container }: Own): boolean {
  return stateOf(container) !== "stopped";
}
