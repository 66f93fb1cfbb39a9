import { directoriesOf, holdfastCommand } from "../../lib/text/command-line.ts";
import { formatBytes, formatCount, formatDuration, formatMoment } from "../../lib/text/durations.ts";
import { plainValue } from "../../lib/text/terminal-text.ts";
import { clockBehindText } from "../../protocol/local/known-time.ts";
import type { Health, Status } from "../../protocol/local/answers.ts";
import { restrictionText } from "../../protocol/values/restriction.ts";
import type { ExitClass } from "../frame/exit-codes.ts";
import { pendingText } from "./network-text.ts";
import { overlayText } from "./overlay-text.ts";
import { layOut, type Style, type Paint } from "../frame/terminal.ts";
import { standingText } from "./upgrade-text.ts";

const TROUBLED_SECTIONS: ReadonlySet<string> = new Set(["rejected", "failed", "diverged"]);
const FAULTS_SHOWN = 10;

/** Returns the exit class of a node: whether it is registered, connected and without failures, and at best the verdict of `health`. */
export function standing(status: Status, verdict: Health["verdict"] = "ok"): ExitClass {
  if (status.node === null) return "unregistered";
  if (verdict === "failed") return "failed";
  if (verdict === "degraded") return "degraded";
  if (status.engines.overlay?.state === "down") return "degraded";
  if (status.engines.dataPlane?.state === "down") return "degraded";
  if (status.clock !== undefined || status.restricted !== undefined) return "degraded";
  if (status.session.state !== "online" || status.faults.some(isOpen)) return "degraded";
  return Object.values(status.sections).some(({ state }) => TROUBLED_SECTIONS.has(state)) ? "degraded" : "ok";
}

/** Formats the status: one row per topic, with times relative to `now` in Unix milliseconds. */
export function statusText(untrusted: Status, now: number, columns: number, paint: Paint): string {
  const status = plainValue(untrusted);
  const rows: (readonly [string, string])[] = [
    ["node", nodeRow(status, paint)],
    ["session", sessionRow(status, now, paint)],
  ];
  if (status.node !== null) {
    rows.push(
      ["uid", status.node.uid],
      ["documents", documentsRow(status, now)],
      ["sections", sectionsRow(status, paint)],
    );
  }
  for (const [name, { state, issues }] of Object.entries(status.sections)) {
    if (TROUBLED_SECTIONS.has(state))
      rows.push([`  ${name}`, `${paint("red", state)} ${issues.slice(0, 3).join("; ")}`]);
  }
  const unsupported = Object.entries(status.sections).filter(([, { state }]) => state === "unsupported");
  if (unsupported.length > 0) rows.push(["not applied", unsupported.map(([name]) => name).join(", ")]);
  if (status.restricted !== undefined) {
    rows.push(["restricted", paint("red", `${status.restricted.code}: ${restrictionText(status.restricted)}`)]);
  }
  if (status.clock !== undefined) rows.push(["clock", paint("red", clockBehindText(status.clock).message)]);
  const { overlay } = status.engines;
  if (overlay !== undefined) rows.push(["overlay", overlayText(overlay, now, paint)]);
  const { dataPlane } = status.engines;
  if (dataPlane !== undefined) rows.push(["gateways", dataPlaneRow(dataPlane, now, paint)]);
  if (status.pendingChange !== undefined) rows.push(["network", pendingText(status.pendingChange, paint)]);
  if (status.upgrade !== undefined) rows.push(["upgrade", upgradeRow(status.upgrade, now, paint)]);
  const tags = Object.entries(status.tags).map(([name, value]) => `${name}=${value}`);
  if (tags.length > 0) rows.push(["tags", tags.join(", ")]);
  rows.push(["telemetry", telemetryRow(status)], ["agent", agentRow(status)], ["state", status.state.stateDir]);
  rows.push(["run", status.state.runDir]);
  for (const fault of status.faults.slice(0, FAULTS_SHOWN)) {
    const { code, message, since, mendedAt } = fault;
    const when = mendedAt === undefined ? formatMoment(since, now) : `mended ${formatMoment(mendedAt, now)}`;
    rows.push([isOpen(fault) ? paint("red", "fault") : paint("dim", "mended"), `${code}: ${message} (${when})`]);
  }
  const more = status.faults.length - FAULTS_SHOWN;
  if (more > 0) rows.push(["", `and ${more} more: see 'holdfast health'`]);
  return layOut(rows, columns);
}

function isOpen({ mendedAt }: Status["faults"][number]): boolean {
  return mendedAt === undefined;
}

/** Formats a running or failed upgrade; a successful one is a dim word. */
function upgradeRow({ standing, trial }: NonNullable<Status["upgrade"]>, now: number, paint: Paint): string {
  const parts: string[] = [];
  if (standing !== undefined) {
    const style = { IN_PROGRESS: "yellow", STAGED: "dim", COMPLETED: "dim", FAILED: "red" } as const;
    const at =
      (standing.state === "IN_PROGRESS" ? standing.begunAt : (standing.completedAt ?? standing.begunAt)) * 1000;
    parts.push(`${paint(style[standing.state], standingText(standing))} (${formatMoment(at, now)})`);
  }
  if (trial !== undefined) {
    const back = trial.from === undefined ? "" : `, or ${trial.from} comes back`;
    parts.push(paint("yellow", `this version is on trial and must prove itself${back}`));
  }
  return parts.join("; ");
}

type DataPlane = NonNullable<Status["engines"]["dataPlane"]>;

const PLANE_STYLES: Readonly<Record<DataPlane["state"], Style>> = {
  up: "green",
  degraded: "yellow",
  down: "red",
  none: "dim",
  unknown: "yellow",
};

/** Formats the path that carries the traffic, with time and reason. */
function dataPlaneRow({ state, paths, up, carrier, server }: DataPlane, now: number, paint: Paint): string {
  const parts = state === "none" ? [] : [`${paint(PLANE_STYLES[state], state)}, ${up} of ${paths} paths up`];
  if (carrier !== undefined) {
    const { gateway, path, since, reason } = carrier;
    const by = `${gateway}${path === "" ? "" : `/${path}`} carries since ${formatMoment(since, now)}`;
    parts.push(reason === undefined ? by : `${by} (${reason})`);
  }
  if (server !== undefined) parts.push(`own gateway ${paint(server === "listening" ? "green" : "red", server)}`);
  return parts.join("; ");
}

function nodeRow({ node, nodeState, deletedAt, lifecycleState, cluster, state }: Status, paint: Paint): string {
  if (node === null) {
    const register = holdfastCommand("register <license>", directoriesOf(state));
    return paint("yellow", `not registered: run '${register}'`);
  }
  const active = nodeState === "ACTIVE" ? nodeState : paint("yellow", nodeState);
  const shown = deletedAt === undefined ? active : paint("red", "deleted by the control plane");
  const facts = [node.type, shown, lifecycleState];
  const suffix = cluster === undefined ? "" : `, member of ${cluster}`;
  return `${paint("bold", node.fqdn)} (${facts.filter((fact) => fact !== undefined).join(", ")})${suffix}`;
}

function sessionRow({ session }: Status, now: number, paint: Paint): string {
  const { state, since, attempt, retryAt, reason, address, url, rttMs, lastOnlineAt, unanswered, lost } = session;
  const style: Style = state === "online" ? "green" : state === "stopped" ? "red" : "yellow";
  const age = now - since;
  const parts = [`${paint(style, state)} ${age < 1000 ? "just now" : `for ${formatDuration(age)}`}`];
  const where = [url, address === undefined ? undefined : `(${address})`]
    .filter((part) => part !== undefined)
    .join(" ");
  if (where !== "") parts.push(where);
  if (lost !== undefined) parts.push(paint("yellow", lost.message));
  if (state === "online") {
    if (unanswered !== undefined) parts.push(paint("yellow", unanswered.message));
    if (rttMs !== undefined) parts.push(`round trip ${rttMs < 10 ? rttMs.toFixed(1) : Math.round(rttMs)} ms`);
    return parts.join(", ");
  }
  if (attempt > 0) parts.push(`attempt ${attempt}`);
  if (retryAt !== undefined) parts.push(`next ${retryAt <= now ? "now" : formatMoment(retryAt, now)}`);
  if (lastOnlineAt !== undefined) parts.push(`last online ${formatMoment(lastOnlineAt, now)}`);
  if (reason !== undefined) parts.push(`${reason.code}: ${reason.message}`);
  return parts.join(", ");
}

function documentsRow({ documents }: Status, now: number): string {
  const parts = Object.entries(documents).map(([name, { version, receivedAt, appliedAt, refused }]) => {
    const back = refused === undefined ? "" : `, rolled back from ${refused}`;
    if (appliedAt !== undefined) return `${name} ${version} (applied ${formatMoment(appliedAt, now)}${back})`;
    return receivedAt === undefined
      ? `${name} ${version}`
      : `${name} ${version} (received ${formatMoment(receivedAt, now)}${back})`;
  });
  return parts.length === 0 ? "none yet" : parts.join(", ");
}

function sectionsRow({ sections }: Status, paint: Paint): string {
  const counts = new Map<string, number>();
  for (const { state } of Object.values(sections)) counts.set(state, (counts.get(state) ?? 0) + 1);
  const parts = [...counts].map(
    ([state, count]) => `${count} ${TROUBLED_SECTIONS.has(state) ? paint("red", state) : state}`,
  );
  return parts.length === 0 ? "none yet" : parts.join(", ");
}

function telemetryRow({ telemetry }: Status): string {
  const parts = Object.entries(telemetry)
    .filter(([, { queued, dropped }]) => queued > 0 || dropped > 0)
    .map(([stream, { queued, dropped }]) => `${stream} ${queued} queued${dropped > 0 ? `, ${dropped} dropped` : ""}`);
  return parts.length === 0 ? "nothing queued" : parts.join("; ");
}

function agentRow({ version, build, pid, uptimeSeconds, process: own, engines }: Status): string {
  const memory = `${formatBytes(own.rssBytes)} memory`;
  return `${version} (${build}), process ${pid}, up ${formatDuration(uptimeSeconds * 1000)}, ${memory}, ${formatCount(own.children, "child", "children")}, network by ${engines.network}`;
}
