import { InputError } from "../errors.ts";
import { systemClock } from "../host/clock.ts";
import { hostDialler } from "../host/dial.ts";
import { hostExec } from "../host/exec.ts";
import { hostFiles } from "../host/files.ts";
import { hostHttpClient } from "../host/http-client.ts";
import { hostReader } from "../host/reader.ts";
import { readSealed, valueOf } from "../host/state-file.ts";
import type { NodeIdentity } from "../protocol/claims.ts";
import type { NetworkTargets } from "../protocol/network-targets.ts";
import { OverlayTable } from "../protocol/overlay.ts";
import { describeDevice } from "./describe-device.ts";
import { identityFiles } from "./identity/identity.ts";
import { readLicense, register } from "./identity/registration.ts";
import { networkTargets } from "./network-targets.ts";
import { readSettings } from "./settings.ts";
import { openState } from "./state.ts";

/** Registers the node of a state directory while no agent runs; an agent that starts meanwhile is kept out. */
export async function registerOffline(stateDir: string, license: string, signal: AbortSignal): Promise<NodeIdentity> {
  process.umask(0o077);
  const files = hostFiles();
  const clock = systemClock();
  const settings = await readSettings(["--state", stateDir], files);
  const { type } = readLicense(license.trim());
  const state = await openState(files, stateDir);
  try {
    if (!state.database.isPersistent) throw new InputError("storage-unavailable", `${stateDir} cannot be written`);
    const http = hostHttpClient(hostDialler(clock, settings.proxies), () => clock.now());
    const parts = { reader: hostReader(), clock, exec: hostExec(clock) };
    const device = () => describeDevice(type, parts, signal);
    const { node } = await register(license, { files: identityFiles(files, stateDir), http, device }, signal);
    return node;
  } finally {
    await state.close();
  }
}

/** Who the state directory says this node is; undefined when it is not registered or cannot be read. */
export async function readIdentity(stateDir: string): Promise<NodeIdentity | undefined> {
  const loaded = await identityFiles(hostFiles(), stateDir).registration.load();
  return loaded.is === "good" || loaded.is === "recovered" ? loaded.value.node : undefined;
}

/** Whom the node of a state directory must reach, as far as what its agent and its overlay left there can be read. */
export async function readTargets(stateDir: string): Promise<NetworkTargets> {
  const files = hostFiles();
  const settings = await readSettings(["--state", stateDir], files);
  const registration = valueOf(await identityFiles(files, stateDir).registration.load());
  const table = await readSealed(files, `${settings.overlay.stateDir}/table.json`, OverlayTable);
  return networkTargets(registration, settings.proxies, table?.mesh);
}
