import { HostError, InputError } from "../../errors.ts";
import { hostExec } from "../../host/process/exec.ts";
import { hostFiles } from "../../host/files/files.ts";
import { hostReader } from "../../host/reader.ts";
import { readSealed } from "../../host/files/state-file.ts";
import { buildInfo, buildTime } from "../../lib/build-info.ts";
import { listOf, textOf } from "../../lib/formats/json-shape.ts";
import type { ProxySettings } from "../../lib/net/proxy.ts";
import type { NodeIdentity } from "../../protocol/documents/claims.ts";
import {
  judgeClock,
  KNOWN_TIME_FILE,
  KnownTimeRecord,
  leastTime,
  type ClockBehind,
} from "../../protocol/local/known-time.ts";
import { ADMIN_SOCKET } from "../../protocol/local/api.ts";
import { Status } from "../../protocol/local/answers.ts";
import { NetworkTargets } from "../../protocol/overlay/network-targets.ts";
import { JsonObject } from "../../protocol/values/values.ts";
import { ask, isAbsent, fetchReport } from "../frame/client.ts";
import type { Call, LocalSettings } from "../frame/verb.ts";

const DEFAULT_CONFIG = "/etc/holdfast/agent.json";
const COMMAND_MS = 90_000;

/** State of this machine before setup. */
export interface Standing {
  /** Undefined if no agent runs. */
  readonly status: Status | undefined;
  readonly node: NodeIdentity | undefined;
  readonly settings: JsonObject;
  readonly network: JsonObject;
}

export function configPath({ values }: Call): string {
  return typeof values["config"] === "string" ? values["config"] : DEFAULT_CONFIG;
}

export async function localSettings({ offline }: Call): Promise<LocalSettings> {
  const local = await offline.localSettings?.();
  if (local === undefined) throw new InputError("usage", "this build cannot change local settings");
  return local;
}

export async function readStanding(call: Call): Promise<Standing> {
  const settings = await (await localSettings(call)).read(configPath(call));
  const network = JsonObject.safeParse(settings["network"]).data ?? {};
  const status = await runningStatus(call);
  if (status !== undefined) return { status, node: status.node ?? undefined, settings, network };
  const read = await call.offline.readIdentity?.();
  return { status, node: await read?.(call.settings.stateDir), settings, network };
}

/** Status of the running agent; undefined without one. */
export async function runningStatus(call: Call): Promise<Status | undefined> {
  try {
    return await fetchReport(call, "/v1/status", Status);
  } catch (error) {
    if (isAbsent(error)) return undefined;
    throw error;
  }
}

/** Targets that a registered node must reach. */
export async function readTargets(call: Call): Promise<NetworkTargets | undefined> {
  try {
    return await ask(call, { method: "GET", path: "/v1/targets", socket: ADMIN_SOCKET }, NetworkTargets);
  } catch (error) {
    if (!isAbsent(error)) throw error;
    // With settings that cannot be read, which setup is to mend, there is nobody to reach yet.
    return (await call.offline.readTargets?.())?.(call.settings.stateDir).catch(() => undefined);
  }
}

/** Returns the lower bound of the current time, and whether the clock of this machine is behind it. */
export async function readTime(
  call: Call,
): Promise<{ readonly least: number; readonly behind: ClockBehind | undefined }> {
  const kept = await readSealed(hostFiles(), `${call.settings.stateDir}/${KNOWN_TIME_FILE}`, KnownTimeRecord).catch(
    () => undefined,
  );
  const least = leastTime(buildTime(buildInfo), kept?.at);
  return { least: least?.at ?? 0, behind: judgeClock(call.clock.now(), least) };
}

/** Returns the links that may be a WAN: neither loopback nor made by Holdfast. */
export function readNics(): readonly string[] {
  const names = hostReader().list("/sys/class/net") ?? [];
  return names.filter((name) => name !== "lo" && !/^(?:hf-|holdfast|docker|veth|br-|virbr|bonding_masters)/.test(name));
}

/** Returns the proxies of the local settings. */
export function proxiesOf(settings: JsonObject): ProxySettings {
  const proxy = textOf(settings["proxy"]);
  const noProxy = listOf(settings["noProxy"]).filter((rule) => typeof rule === "string");
  return { ...(proxy !== undefined && URL.canParse(proxy) ? { https: new URL(proxy) } : {}), noProxy };
}

/** Returns a proxy's address without its password. */
export function hidePassword(address: string): string {
  if (!URL.canParse(address)) return "***";
  const url = new URL(address);
  if (url.password !== "") url.password = "***";
  return url.href.replace(/\/$/, "");
}

/** Restarts the agent's unit; returns false if the agent does not run or has no unit. */
export async function restartAgent(call: Call, settings: JsonObject): Promise<boolean> {
  const status = await runningStatus(call);
  if (status === undefined) return false;
  const unit = textOf(settings["unit"]) ?? agentUnit(hostReader().read(`/proc/${status.pid}/cgroup`) ?? "");
  if (unit === undefined) return false;
  await run(call, "systemctl", ["restart", "--", unit]);
  return true;
}

/** Returns the systemd unit of a process from its control groups (cgroups(7)); the settings need not name it. Pure. */
export function agentUnit(groups: string): string | undefined {
  return /^(?:0:|\d+:name=systemd):\/(?:[^/\n]+\/)*(holdfast-agent\.service)$/m.exec(groups)?.[1];
}

/** Sets the clock of the machine, Unix milliseconds. */
export async function setClock(call: Call, at: number): Promise<void> {
  await run(call, "date", ["-u", "-s", `@${Math.floor(at / 1000)}`]);
}

async function run({ clock, signal }: Call, file: string, args: readonly string[]): Promise<void> {
  const bounds = { signal, deadlineMs: COMMAND_MS, maxOutputBytes: 16_384 };
  const { exitCode, stderr } = await hostExec(clock).run(file, args, bounds);
  if (exitCode === 0) return;
  throw new HostError("exec-failed", `${file} ${args.join(" ")}: ${stderr.trim() || `exit status ${exitCode}`}`);
}
