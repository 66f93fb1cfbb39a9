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
  /** Creates the container network if needed; rejects if that fails. */
  readonly ensureNetwork: (signal: AbortSignal) => Promise<void>;
  /** Reports whether the network is as desired. Changes nothing. Without it the network is ensured each time. */
  readonly hasNetwork?: (signal: AbortSignal) => Promise<boolean>;
  /** Returns why local policy forbids a container's privileges; without it nothing is forbidden. */
  readonly forbids?: (privileges: string | undefined) => Promise<string | undefined>;
  /** Applies limits that the engine does not support. */
  readonly afterStart: (detail: ContainerDetail, blueprint: Blueprint, signal: AbortSignal) => Promise<void>;
}

/** Recent state of a definition at the engine. */
export interface Survey {
  readonly own: readonly Own[];
  readonly hasNetwork: boolean;
}

export interface LaunchRequest {
  readonly id: string;
  /** State that the caller read meanwhile; must be recent. */
  readonly survey: Survey;
  readonly blueprint: Blueprint;
  readonly imageId: string;
  /** True if each run needs a new container. */
  readonly isFresh: boolean;
  readonly isRestart: boolean;
  readonly stopSeconds: number;
  /** The successor could not start, and its predecessor runs again. */
  readonly onFellBack: (error: unknown) => void;
  /** Receives output from the first byte. */
  readonly onAttached?: (output: AsyncIterable<OutputFrame>) => void;
}

/** Stop timeout of an extra container, which has no definition of its own. */
const STRAY_STOP_SECONDS = 10;
/** Time limit of a clean-up, independent of aborts. */
const CLEAN_UP_MS = 30_000;

/**
 * Ensures that exactly one container of a definition runs. The predecessor is stopped only after its successor was created, and restarted
 * if the successor cannot start. After a crash at any point one of the two exists, and repeating the call finishes.
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
  // The successor of two leftovers names its predecessor.
  const running = own.find((one) => one !== usable && isUp(one));
  const former = running ?? own.find(({ row }) => row.nonce === usable?.row.replaces);
  const chosen = await slots.run(signal, async () => {
    if (!hasNetwork) await options.ensureNetwork(signal);
    return usable?.container.id ?? create(options, request, former?.row, signal);
  });
  const ending = own.filter((one) => one !== usable || isRestart);
  // A slow stop must not block other starts.
  await stopAll(options, ending, stopSeconds, signal);
  // The engine may have started it since the decision.
  const isOn = !isRestart && usable !== undefined && stateOf(usable.container) === "running";
  const begin = async (): Promise<void> => {
    try {
      // The previous container, or one sharing a directory, may have replaced a bind's source by a link.
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
    // It runs; tidying does the rest.
    log.warn({ container: id, err: toError(error) }, "the container has not got its name yet");
    return engine.inspectContainer(chosen, signal);
  });
  if (detail !== undefined && stateOf(detail) === "running") {
    await options
      .afterStart(detail, blueprint, signal)
      .catch((error: unknown) => log.warn({ container: id, err: toError(error) }, "not all limits were set"));
  }
}

/** Reads everything that a launch needs in parallel. Changes nothing. Rejects like the engine. */
export async function survey(options: LaunchingOptions, id: string, signal: AbortSignal): Promise<Survey> {
  const asked = [ownOf(options, id, signal), options.hasNetwork?.(signal) ?? Promise.resolve(false)] as const;
  // If one fails, the other's rejection is handled.
  await Promise.allSettled(asked);
  const [own, hasNetwork] = await Promise.all(asked);
  return { own, hasNetwork };
}

/** Restarts the predecessor of an interrupted replacement that is no longer desired or cannot finish. */
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

/** Removes leftovers of an interrupted replacement. */
export async function tidy(options: LaunchingOptions, id: string, signal: AbortSignal): Promise<void> {
  const own = await ownOf(options, id, signal);
  const kept = own.find(isUp) ?? own[0];
  if (kept === undefined) return;
  const others = own.filter((one) => one !== kept);
  await stopAll(options, others, STRAY_STOP_SECONDS, signal);
  await clearAway(options, others, signal);
  await giveName(options, id, kept.container.id, signal);
}

/** Stops all containers of a definition. */
export async function halt(
  options: LaunchingOptions,
  id: string,
  stopSeconds: number,
  signal: AbortSignal,
): Promise<void> {
  await stopAll(options, await ownOf(options, id, signal), stopSeconds, signal);
}

/** Stops and removes everything of a definition, and deletes its record unless it is desired again. */
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

/** Reads a definition's containers and updates the ledger. */
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

/** Starts a container; closes its output if the start fails. */
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
    // Its name may still belong to its predecessor or to a stranger.
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
    // Only a clear refusal means that no container exists; otherwise it is found by its nonce.
    if (error instanceof HostError && error.code === "engine-refused") ledger.dropContainer(nonce);
    throw error;
  }
}

/** Restarts the predecessor of a failed successor; returns whether it runs. */
async function fallBack(
  options: LaunchingOptions,
  successor: string,
  isNew: boolean,
  former: Own | undefined,
  signal: AbortSignal,
): Promise<boolean> {
  const { engine, ledger, log } = options;
  // A requested stop applies to this container too.
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

/** Reports whether an error means that the name is in use: status 409 from Docker, 500 with a reason from Podman. */
function isNameTaken(error: unknown): boolean {
  if (!(error instanceof HostError) || error.code !== "engine-refused") return false;
  return error.details?.["status"] === 409 || /\bname\b.*\b(?:in use|taken|exists)\b/i.test(error.message);
}

function isUp({ container }: Own): boolean {
  return stateOf(container) !== "stopped";
}
