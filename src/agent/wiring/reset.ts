import { join } from "node:path";
import type { Logger } from "pino";
import { HostError, toError } from "../../errors.ts";
import { commitFiles } from "../../checkpoint/commit-files.ts";
import type { Clock } from "../../host/clock.ts";
import { hostDialler } from "../../host/net/dial.ts";
import { resolveSet, systemResolve } from "../../host/net/system-resolve.ts";
import { hostExec } from "../../host/process/exec.ts";
import type { Files } from "../../host/files/files.ts";
import { endOverlay, wipeOverlayState } from "../../host/overlay/reset.ts";
import type { Reader } from "../../host/reader.ts";
import { wipeEverything, wipeState } from "../../host/files/state-directory.ts";
import { valueOf } from "../../host/files/state-file.ts";
import { MANAGED_OVERLAY } from "../../protocol/overlay/overlay.ts";
import { JsonObject } from "../../protocol/values/values.ts";
import { effectiveOf, withLocalNetwork } from "../applying/effective-config.ts";
import { openCompute } from "./containers/compute.ts";
import { openNetwork, type NetworkParts } from "./network.ts";
import { agentSignals } from "./signals.ts";
import { typeHere } from "../profile.ts";
import { withinDeadline } from "../reconcile/deadline.ts";
import { reconciler, type Reconciler } from "../reconcile/section.ts";
import { forgetOrder, keepNetwork, readResetOrder, type ResetOrder } from "../reset/order.ts";
import { execSection } from "../sections/exec/section.ts";
import { networkSection } from "../sections/network/section.ts";
import { DEFAULT_STATE_DIR, type AgentSettings } from "../settings.ts";
import { DesiredDocuments, type Desired } from "../shadow/desired.ts";
import { openState, type AgentState } from "../state.ts";

/** The result of a reset. */
export interface ResetDone {
  readonly factory: boolean;
  /** Names below the state directory, and whole paths of files elsewhere. */
  readonly removed: readonly string[];
  readonly overlayEnded: boolean;
  /** Things that could not be removed from the machine, a line each. */
  readonly left: readonly string[];
}

export interface ResetOptions {
  readonly settings: AgentSettings;
  readonly clock: Clock;
  readonly files: Files;
  readonly reader: Reader;
  readonly log: Logger;
}

/** Time for an overlay to stop. */
const OVERLAY_MS = 10_000;
/** Time for containers to stop: a start of the service, which finishes a reset that was cut short, has 90 s. */
const CONTAINERS_MS = 45_000;
const NETWORK_MS = 30_000;
const LOOK_MS = 250;
const MAX_ROUNDS = 64;

/**
 * Performs the reset that was ordered, if one was; if it is cut short, the next call does all of it again. The agent must be stopped, and
 * `settings` be those it would start with.
 * @throws {HostError} `overlay-failed` while an overlay could still serve, `state-locked`, or naming the file that cannot be removed.
 */
export async function completeReset(options: ResetOptions): Promise<ResetDone | undefined> {
  const { settings, files, log } = options;
  const { stateDir } = settings;
  const order = await readResetOrder(files, stateDir);
  if (order === undefined) return undefined;
  const { factory } = order;
  log.info({ stateDir, factory }, "resetting this node");
  const left = await revertMachine(options, order);
  const overlays = await forgetOverlays(options);
  left.push(...overlays.left);
  const wiped = factory
    ? await wipeEverything(stateDir, new AbortController().signal)
    : { removed: await wipeState(stateDir), left: [] };
  await forgetOrder(files, stateDir);
  const removed = [...wiped.removed, ...overlays.wiped];
  const done = { factory, removed, overlayEnded: overlays.isEnded, left: [...left, ...wiped.left] };
  log.info(done, "this node is reset");
  return done;
}

/** Reverts what was applied to the machine, except its network unless `factory`; returns what could not be removed. */
async function revertMachine(options: ResetOptions, { factory }: ResetOrder): Promise<string[]> {
  const { settings, clock, files, log } = options;
  const { stateDir } = settings;
  await using stack = new AsyncDisposableStack();
  const state = await openState(files, stateDir);
  stack.defer(() => state.close());
  const documents = await DesiredDocuments.load(files, stateDir);
  const network = await openNetwork(
    {
      ...options,
      exec: hostExec(clock),
      dialler: hostDialler(clock, settings.proxies, resolveSet(settings.hosts ?? {}, systemResolve())),
      onDamage: () => undefined,
      signals: agentSignals(),
    },
    stack,
  );
  const left: string[] = [];
  const attempt = async (ms: number, what: string, work: (signal: AbortSignal) => Promise<void>): Promise<void> => {
    const { signal } = new AbortController();
    await withinDeadline({ clock, ms, what, signal }, work).catch((error: unknown) => {
      log.error({ err: toError(error) }, "not everything was removed");
      left.push(`${what}: ${toError(error).message}`);
    });
  };
  await attempt(CONTAINERS_MS, "the containers", (signal) =>
    removeContainers({ ...options, network, state, documents, factory }, signal),
  );
  await attempt(NETWORK_MS, "the source filter", (signal) => removeSourceFilter(network, signal));
  if (factory) await attempt(NETWORK_MS, "the network", (signal) => removeNetwork(options, network, signal));
  else await leaveNetwork(options, documents.current);
  return left;
}

/** Stops and removes the containers and their network. Only a factory reset removes volumes. */
async function removeContainers(
  options: ResetOptions & {
    readonly network: NetworkParts;
    readonly state: AgentState;
    readonly documents: DesiredDocuments;
    readonly factory: boolean;
  },
  signal: AbortSignal,
): Promise<void> {
  const { clock, network, documents, factory } = options;
  const current = asActive(documents.current);
  const computing = openCompute({
    ...options,
    exec: hostExec(clock),
    documents: { current },
    config: () => ({}),
    registryToken: () => undefined,
    volumeKey: () => undefined,
    networkRecord: network.section.record,
    unsupported: network.section.unsupported,
    onDamage: () => undefined,
    requestPass: () => undefined,
    onRefused: () => undefined,
  });
  try {
    const { section } = computing;
    if (section.unsupported() !== undefined) return;
    const exec = reconciler(
      execSection({ ...section, surroundings: (...seen) => section.surroundings(current, ...seen) }),
    );
    const prepared = exec.prepare(undefined);
    for (;;) {
      const view = await prepared.observe(signal);
      const steps = view.steps.filter(({ step }) => factory || !step.kind.includes("volume"));
      const { containers, engine } = view.reported();
      if (engine === "unwell") throw new HostError("engine-unwell", "the container engine does not answer");
      if (containers !== 0 && current.node === undefined) {
        throw new HostError("not-found", "the node document is missing, so the containers of this node are unknown");
      }
      if (steps.length > 0) await view.applyAll?.(steps, signal);
      else if (containers === 0) return;
      await clock.sleep(LOOK_MS, signal);
    }
  } finally {
    await computing.close();
  }
}

/** The documents as if the node were active, so that the containers of a deleted or INACTIVE node are removed too. */
function asActive(documents: Desired): Desired {
  const { node } = documents;
  return node === undefined ? documents : { ...documents, node: { ...node, body: { ...node.body, state: "ACTIVE" } } };
}

/** Removes the source filter: no connector listens any more, and another program may use its port. */
async function removeSourceFilter({ sourceFilter }: NetworkParts, signal: AbortSignal): Promise<void> {
  const { digest } = await sourceFilter.observe(undefined, signal);
  if (digest === undefined) return;
  await sourceFilter.load(undefined, signal);
  const { unusable } = await sourceFilter.observe(undefined, signal);
  if (unusable !== undefined) throw new HostError("nft-failed", unusable);
}

/** Removes every link, address, route, rule and setting that Holdfast made on this machine. */
async function removeNetwork(
  { settings }: ResetOptions,
  { section }: NetworkParts,
  signal: AbortSignal,
): Promise<void> {
  if (section.unsupported() !== undefined) return;
  const context = () => ({ nodeType: typeHere(settings.profile, undefined), isMember: false });
  await converge(reconciler(networkSection({ ...section, context, isActiveMember: () => true })), signal);
}

async function converge(section: Reconciler, signal: AbortSignal): Promise<void> {
  const prepared = section.prepare(undefined);
  for (let round = 0; round < MAX_ROUNDS; round += 1) {
    const { steps } = await prepared.observe(signal);
    if (steps.length === 0) return;
    for (const step of steps) await step.apply(signal);
  }
  throw new HostError("diverged", `section ${section.name}: something is left after ${MAX_ROUNDS} rounds of removal`);
}

/** Keeps the applied network for the next starts if it came from documents, which the reset removes. */
async function leaveNetwork({ settings, files }: ResetOptions, current: Desired): Promise<void> {
  if (current.node === undefined || typeHere(settings.profile, current.node.body.type) !== "Node") return;
  const dir = join(settings.stateDir, "desired");
  const proven = valueOf(await commitFiles(files, dir).confirmed.inspect())?.sections ?? {};
  const inForce = Object.hasOwn(proven, "network")
    ? JsonObject.safeParse(proven["network"]).data
    : withLocalNetwork(effectiveOf(current), current, settings.network).config.network;
  if (inForce !== undefined) await keepNetwork(files, settings.stateDir, inForce);
}

/** Stops the overlays and removes their state. */
async function forgetOverlays({ settings, clock }: ResetOptions): Promise<{
  readonly isEnded: boolean;
  readonly wiped: readonly string[];
  readonly left: readonly string[];
}> {
  const isElsewhere = settings.unit !== undefined || settings.stateDir === DEFAULT_STATE_DIR;
  // Its files are removed first, so that an overlay that is started again does not serve them.
  const elsewhere = isElsewhere ? await wipeOverlayState(MANAGED_OVERLAY.stateDir).catch(toError) : [];
  const isEnded = await endOverlay(settings.runDir, clock, OVERLAY_MS);
  const isEndedElsewhere = isElsewhere && (await endOverlay(MANAGED_OVERLAY.runDir, clock, OVERLAY_MS));
  const isRefused = elsewhere instanceof Error;
  return {
    isEnded: isEnded || isEndedElsewhere,
    wiped: isRefused ? [] : elsewhere,
    // An agent may not remove the files of the overlay, which removes them itself when it runs.
    left: isRefused && !isEndedElsewhere ? [elsewhere.message] : [],
  };
}
