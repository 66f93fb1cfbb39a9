import { formatDuration, formatSpan } from "../../lib/text/durations.ts";
import type { ContainersReport, ContainerView, EngineState, VolumesReport } from "../../protocol/local/containers.ts";
import { tableText } from "./table.ts";
import type { Style, Paint } from "../frame/terminal.ts";

const STYLES: Readonly<Record<string, Style>> = {
  running: "green",
  healthy: "green",
  well: "green",
  ready: "green",
  pulling: "yellow",
  creating: "yellow",
  waiting: "yellow",
  stopping: "yellow",
  quarantined: "yellow",
  unknown: "yellow",
  backoff: "red",
  unhealthy: "red",
  unwell: "red",
  failed: "red",
  missing: "red",
  unsupported: "red",
  idle: "dim",
};

/** Formats the state of the engine if it has a problem, and a line for each container. `now` is in Unix milliseconds. */
export function containersText({ engine, containers }: ContainersReport, now: number, paint: Paint): string {
  const head = engineText(engine, now, paint);
  if (containers.length === 0) return `${head}the applied configuration has no container\n`;
  const rows = containers.map((one) => [
    one.name,
    one.type,
    stateOf(one.state, paint),
    formatDuration(now - one.since),
    one.health === undefined ? "" : stateOf(one.health, paint),
    String(one.restarts),
    `${one.image.repository}:${one.image.tag}`,
    whyOf(one, now),
  ]);
  return head + tableText(["NAME", "TYPE", "STATE", "SINCE", "HEALTH", "RESTARTS", "IMAGE", "REASON"], rows, paint);
}

/** Formats a line for each volume. */
export function volumesText({ volumes }: VolumesReport, paint: Paint): string {
  if (volumes.length === 0) return "the applied configuration has no volume\n";
  const rows = volumes.map(({ name, state, encrypted, usedBy, path = "", reason = "" }) => [
    name,
    stateOf(state, paint),
    encrypted ? "yes" : "no",
    usedBy.join(","),
    path,
    reason,
  ]);
  return tableText(["NAME", "STATE", "ENCRYPTED", "USED BY", "PATH", "REASON"], rows, paint);
}

/** Reports whether nothing needs attention: what is stopped by hand, disabled or not due is as it should be. */
export function areContainersWell({ engine, containers }: ContainersReport): boolean {
  if (engine.state === "unwell") return false;
  return containers.every(({ state, health }) => state !== "backoff" && state !== "waiting" && health !== "unhealthy");
}

function engineText({ state, since, reason }: EngineState, now: number, paint: Paint): string {
  if (state === "well" || state === "unused") return "";
  const span = formatSpan(now - since);
  return `container engine ${stateOf(state, paint)} ${span}${reason === undefined ? "" : `: ${reason}`}\n`;
}

function whyOf(one: ContainerView, now: number): string {
  const { reason, stoppedByHand, enabled, nextAttempt, nextRun, state, lastExitCode } = one;
  const parts = [
    ...(reason === undefined ? [] : [reason]),
    ...(enabled ? [] : ["disabled"]),
    ...(stoppedByHand ? ["stopped by hand"] : []),
    ...(nextAttempt === undefined ? [] : [`tried again in ${formatDuration(Math.max(0, nextAttempt - now))}`]),
    ...(nextRun === undefined ? [] : [`next run in ${formatDuration(Math.max(0, nextRun - now))}`]),
    ...(state === "idle" && lastExitCode !== undefined && reason === undefined ? [`ended with ${lastExitCode}`] : []),
  ];
  return parts.join("; ");
}

function stateOf(state: string, paint: Paint): string {
  const style = STYLES[state];
  return style === undefined ? state : paint(style, state);
}
