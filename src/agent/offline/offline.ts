import { randomUUID } from "node:crypto";
import { join } from "node:path";
import { InputError, InternalError } from "../../errors.ts";
import { systemClock } from "../../host/clock.ts";
import { hostDialler } from "../../host/net/dial.ts";
import { hostExec } from "../../host/process/exec.ts";
import { hostFiles } from "../../host/files/files.ts";
import { hostHttpClient } from "../../host/net/http-client.ts";
import { rootLogger } from "../../host/log.ts";
import { parseBootId } from "../../host/proc.ts";
import { hostReader } from "../../host/reader.ts";
import { requireSettled, requireUnused } from "../../host/files/state-directory.ts";
import { readSealed, valueOf } from "../../host/files/state-file.ts";
import { resolveSet, systemResolve } from "../../host/net/system-resolve.ts";
import { upgradeUnit } from "../../host/process/upgrade-unit.ts";
import { buildInfo, packageVersion } from "../../lib/build-info.ts";
import type { NodeIdentity } from "../../protocol/documents/claims.ts";
import type { NetworkTargets } from "../../protocol/overlay/network-targets.ts";
import {
  UPGRADE_ANSWERS,
  UPGRADE_REQUEST_NAME,
  type UpgradeAnswer,
  type UpgradeOrder,
} from "../../protocol/documents/release.ts";
import { OverlayTable } from "../../protocol/overlay/overlay.ts";
import type { ActivationRequest, ActivationStep } from "../../protocol/channel/activation.ts";
import type { NodeType } from "../../protocol/values/values.ts";
import type { ActivationDeps } from "../identity/activation.ts";
import { describeDevice } from "../shadow/describe-device.ts";
import { identityFiles } from "../identity/identity.ts";
import { readLicense, register } from "../identity/registration.ts";
import { askStanding, type AskStanding } from "../session/standing.ts";
import { networkTargets } from "../network/targets.ts";
import { completeReset, type ResetDone } from "../wiring/reset.ts";
import { orderReset, readResetOrder } from "../reset/order.ts";
import { readSettings } from "../settings.ts";
import { openState } from "../state.ts";
import { knownManifest, refuseElsewhere, upgradeRequest } from "../upgrades/upgrades.ts";

/** Registers the node of a state directory while no agent runs, and prevents one from starting meanwhile. */
export async function registerOffline(stateDir: string, license: string, signal: AbortSignal): Promise<NodeIdentity> {
  const { type } = readLicense(license.trim());
  return withRegistrar(stateDir, type, signal, async (deps) => (await register(license, deps, signal)).node);
}

async function withRegistrar<T>(
  stateDir: string,
  type: NodeType,
  signal: AbortSignal,
  work: (deps: ActivationDeps) => Promise<T>,
): Promise<T> {
  const files = hostFiles();
  const clock = systemClock();
  const settings = await readSettings(["--state", stateDir], files);
  if ((await readResetOrder(files, stateDir)) !== undefined) {
    throw new InputError("busy", `a reset of ${stateDir} was cut short: run 'holdfast reset' again first`);
  }
  const state = await openState(files, stateDir);
  try {
    if (!state.database.isPersistent) throw new InputError("storage-unavailable", `${stateDir} cannot be written`);
    const resolve = resolveSet(settings.hosts ?? {}, systemResolve());
    const http = hostHttpClient(hostDialler(clock, settings.proxies, resolve), () => clock.now());
    const parts = { reader: hostReader(), clock, exec: hostExec(clock) };
    const device = () => describeDevice(type, parts, signal);
    return await work({ files: identityFiles(files, stateDir), http, device, clock });
  } finally {
    await state.close();
  }
}

/** Requests the license of the machine of a state directory once, while no agent runs. */
export async function activateOffline(
  stateDir: string,
  request: ActivationRequest,
  signal: AbortSignal,
): Promise<ActivationStep> {
  return withRegistrar(stateDir, "Node", signal, async (deps) => {
    const { askForLicense } = await import("../identity/activation.ts");
    return askForLicense(request, deps, signal);
  });
}

/** Returns the identity of the node of a state directory; undefined if it is not registered or cannot be read. */
export async function readIdentity(stateDir: string): Promise<NodeIdentity | undefined> {
  const loaded = await identityFiles(hostFiles(), stateDir).registration.load();
  return loaded.is === "good" || loaded.is === "recovered" ? loaded.value.node : undefined;
}

/**
 * Resets the node of a state directory while no agent runs, or finishes an interrupted reset.
 * @throws {HostError} `state-locked` while an agent has the directory; {InputError} `busy`; as `completeReset`.
 */
export async function resetOffline(
  { stateDir, runDir }: { readonly stateDir: string; readonly runDir: string },
  { factory }: { readonly factory: boolean },
): Promise<ResetDone> {
  const files = hostFiles();
  const clock = systemClock();
  const settings = await readSettings(["--state", stateDir, "--run", runDir], files);
  requireUnused(stateDir);
  await requireSettled(files, stateDir);
  await orderReset(files, stateDir, { factory, at: clock.now() });
  const { log } = rootLogger({ level: "fatal", destination: { write: () => undefined } });
  const done = await completeReset({ settings, files, clock, reader: hostReader(), log });
  if (done === undefined) throw new InternalError("internal", `the order to reset ${stateDir} is missing`);
  return done;
}

/** Requests an upgrade while no agent runs, with the checks of the agent. */
export async function askUpgradeOffline(
  { stateDir, runDir }: { readonly stateDir: string; readonly runDir: string },
  { from, stageOnly, ...order }: UpgradeOrder,
): Promise<UpgradeAnswer> {
  const files = hostFiles();
  const settings = await readSettings(["--state", stateDir, "--run", runDir], files);
  const registration = valueOf(await identityFiles(files, stateDir).registration.inspect());
  refuseElsewhere({ isManaged: settings.unit !== undefined, type: registration?.node.type ?? "Node" });
  const address = knownManifest(from, settings.upgrade.manifest, registration?.controlPlane.iss);
  await files.makeDirectory(runDir, 0o755);
  const requestPath = join(runDir, UPGRADE_REQUEST_NAME);
  const unit = upgradeUnit({ exec: hostExec(systemClock()), files, isManaged: true, requestPath });
  if (await unit.isAtWork()) return { output: { status: UPGRADE_ANSWERS.already } };
  await unit.start(upgradeRequest({ from: address, by: "operator", ...order }, stageOnly));
  return { output: { status: UPGRADE_ANSWERS.begun } };
}

/** Returns where the node of a state directory finds releases, and what it needs to fetch one. @throws {InputError} `not-configured`. */
export async function readReleasePlace(
  stateDir: string,
  given: string | undefined,
): Promise<{ readonly from: string; readonly versionsPath: string; readonly packagePath: string }> {
  const files = hostFiles();
  const { upgrade } = await readSettings(["--state", stateDir], files);
  const registration = valueOf(await identityFiles(files, stateDir).registration.inspect());
  const from = knownManifest(given, upgrade.manifest, registration?.controlPlane.iss);
  return { from, versionsPath: upgrade.versionsDir, packagePath: upgrade.packageDir };
}

/** Returns the targets that the node of a state directory must reach, as far as its agent's and overlay's files can be read. */
export async function readTargets(stateDir: string): Promise<NetworkTargets> {
  const files = hostFiles();
  const settings = await readSettings(["--state", stateDir], files);
  const registration = valueOf(await identityFiles(files, stateDir).registration.load());
  const table = await readSealed(files, `${settings.overlay.stateDir}/table.json`, OverlayTable);
  return networkTargets(registration, settings, table?.mesh);
}

/** Asks control planes whether they admit the node of a state directory, whether or not its agent runs. */
export function standingAsker(stateDir: string): AskStanding {
  const bootId = parseBootId(hostReader().read("/proc/sys/kernel/random/boot_id") ?? "") ?? randomUUID();
  const node = { clock: systemClock(), files: hostFiles(), stateDir, bootId, version: packageVersion(buildInfo) };
  return (...asked) => askStanding(node, ...asked);
}
