import type { OverlayStatus } from "../../host/overlay/client.ts";
import { buildInfo } from "../../lib/build-info.ts";
import { IDENTITY_LOST, identityLostFix, startOver } from "../../protocol/local/identity-lost.ts";
import { directoriesOf, holdfastCommand } from "../../lib/text/command-line.ts";
import type { DataPlane } from "../../protocol/local/mesh.ts";
import type { FloorName } from "../../protocol/local/api.ts";
import type { Health, HealthItem, SessionStatus, Status } from "../../protocol/local/answers.ts";
import { CLOCK_LIMITS_S, clockBehindText, type ClockBehind } from "../../protocol/local/known-time.ts";
import type { UpgradeStatus } from "../../protocol/documents/release.ts";
import type { Reason } from "../../protocol/documents/reconcile.ts";
import type { PendingChange } from "../../protocol/local/commit.ts";
import type { DocumentApplied } from "../../protocol/channel/methods.ts";
import { DocumentName } from "../../protocol/documents/claims.ts";
import { restrictionText } from "../../protocol/values/restriction.ts";
import { sectionNames, sectionSuits } from "../../protocol/sections/sections.ts";
import type { NodeType } from "../../protocol/values/values.ts";
import type { Registration } from "../identity/identity.ts";
import type { Fault } from "../faults/fault.ts";
import type { AppliedReports } from "../shadow/applied.ts";
import { dataPlaneItems } from "../data-plane/items.ts";
import { overlayStateOf } from "../data-plane/overlay-reading.ts";
import type { Desired } from "../shadow/desired.ts";
import { reasonText } from "../upgrades/reports.ts";
import { defined } from "../../lib/defined.ts";

/** The inputs of a status, read at one moment. Times in Unix milliseconds. */
export interface StatusInput {
  readonly now: number;
  readonly startedAt: number;
  readonly uptimeMs: number;
  readonly stateDir: string;
  readonly runDir: string;
  readonly registration: Registration | undefined;
  readonly session: SessionStatus;
  readonly desired: Desired;
  readonly deletedAt?: number | undefined;
  readonly applied: AppliedReports;
  readonly pendingChange?: PendingChange | undefined;
  readonly clockBehind?: ClockBehind | undefined;
  readonly upgrade?: UpgradeStatus;
  readonly telemetry: Status["telemetry"];
  readonly network: "netlink" | "poll";
  readonly overlay: OverlayStatus;
  readonly dataPlane: DataPlane;
  readonly process: Status["process"];
  readonly faults: readonly Fault[];
  /** The first refused write, while the disk refuses writes. */
  readonly storageRefusal?: { readonly message: string; readonly since: number } | undefined;
  /** Applied documents that the disk refused. */
  readonly unsavedDocuments?: readonly DocumentName[];
}

/** The inputs of a status and of a judgement of health. */
export type Gathered = StatusInput & Omit<HealthInput, "status">;

/** Builds the status of the agent. Pure. */
export function buildStatus(input: StatusInput): Status {
  const node = input.desired.node?.body;
  return {
    schema: 1,
    version: buildInfo.version,
    build: buildInfo.build,
    pid: process.pid,
    startedAt: input.startedAt,
    uptimeSeconds: Math.max(0, Math.round(input.uptimeMs / 1000)),
    state: { stateDir: input.stateDir, runDir: input.runDir },
    node: input.registration?.node ?? null,
    session: input.session,
    nodeState: node?.state ?? "ACTIVE",
    ...defined({ deletedAt: input.deletedAt }),
    ...(node?.restricted === undefined ? {} : { restricted: node.restricted }),
    ...(node?.lifecycleState === undefined ? {} : { lifecycleState: node.lifecycleState }),
    ...(node?.cluster === undefined ? {} : { cluster: node.cluster }),
    tags: { ...input.desired.cluster?.body.tags, ...node?.tags },
    documents: documentsOf(input),
    sections: sectionsOf(input.applied, node?.type),
    ...defined({ clock: input.clockBehind, pendingChange: input.pendingChange }),
    ...upgradeOf(input),
    telemetry: input.telemetry,
    engines: { network: input.network, overlay: overlayStateOf(input.overlay), ...dataPlaneOf(input) },
    process: input.process,
    faults: [...input.faults, ...storageFaults(input)],
  };
}

/** Omits an empty upgrade status. */
function upgradeOf({ upgrade = {} }: StatusInput): Pick<Status, "upgrade"> {
  return Object.keys(upgrade).length === 0 ? {} : { upgrade };
}

/** Omits the data plane of a node without paths to other nodes. */
function dataPlaneOf({ dataPlane }: StatusInput): Pick<Status["engines"], "dataPlane"> {
  return dataPlane.state === "none" && dataPlane.server === undefined ? {} : { dataPlane };
}

function storageFaults({ storageRefusal, unsavedDocuments = [], faults }: StatusInput): Fault[] {
  const isKnown = faults.some(({ code }) => code === "storage-unavailable");
  if (storageRefusal === undefined || isKnown) return [];
  const { message, since } = storageRefusal;
  const unsaved =
    unsavedDocuments.length === 0
      ? ""
      : `; in memory only until it accepts them: document ${unsavedDocuments.join(", ")}`;
  return [{ code: "storage-unavailable", message: `the disk refuses writes: ${message}${unsaved}`, since }];
}

function documentsOf({ registration, desired, applied }: StatusInput): Status["documents"] {
  const documents: Status["documents"] = {};
  if (registration !== undefined) documents.keys = { version: registration.controlPlane.keys.version };
  for (const name of DocumentName.options) {
    const held = desired[name];
    if (held === undefined) continue;
    const { version, receivedAt, refused } = held;
    documents[name] = { version, receivedAt, ...(refused === undefined ? {} : { refused: refused.version }) };
  }
  for (const [name, report] of applied) {
    const known = documents[name satisfies FloorName];
    if (known !== undefined && versionOf(report) === known.version) known.appliedAt = report.at;
  }
  return documents;
}

/** Returns the version to which a report's sections refer. */
function versionOf({ version, inForce = version }: DocumentApplied): number {
  return inForce;
}

/** Excludes sections that do not suit the type of the node. */
function sectionsOf(applied: AppliedReports, type: NodeType = "Node"): Status["sections"] {
  const reports = (["cluster", "node"] as const).flatMap((name) => sectionEntries(applied.get(name)));
  const names = new Set<string>(sectionNames.filter((name) => !sectionSuits(name, type)));
  return Object.fromEntries(reports.filter(([name]) => !names.has(name)));
}

function sectionEntries(report: DocumentApplied | undefined): (readonly [string, Status["sections"][string]])[] {
  if (report === undefined) return [];
  return Object.entries(report.sections).map(([name, section]) => [name, { ...section, version: versionOf(report) }]);
}

export interface HealthInput {
  readonly status: Status;
  /** Negative if this machine's clock is behind the control plane's. Undefined before the first session. */
  readonly clockOffsetSeconds: number | undefined;
  readonly diskUsedRatio: number | undefined;
  readonly isStatePersistent: boolean;
  readonly dns: boolean | undefined;
  readonly repository: boolean | undefined;
  readonly ssh: boolean | undefined;
  readonly refusedSignatures: number;
}

const DISK_LIMITS = { warn: 0.85, fail: 0.97 };

/** Builds the verdict and its checks. Pure. */
export function buildHealth(input: HealthInput): Health {
  const items = [
    sessionItem(input.status),
    restrictionItem(input.status),
    documentsItem(input.status),
    overlayItem(input.status),
    ...dataPlaneItems(input.status),
    clockItem(input.clockOffsetSeconds, input.status.clock),
    stateItem(input.isStatePersistent, input.status.faults),
    diskItem(input.diskUsedRatio),
    checkItem("dns", input.dns, "the name servers resolve the control plane", "check /etc/resolv.conf"),
    checkItem("repository", input.repository, "the repository answers", "check the path to the repository"),
    checkItem("ssh", input.ssh, "sshd listens on loopback only", "bind sshd to 127.0.0.1"),
    signatureItem(input.refusedSignatures),
    upgradeItem(input.status),
    ...input.status.faults.filter((fault) => !isTheSessions(fault, input.status)).map(faultItem),
  ].filter((item) => item !== undefined);
  const isFailed = items.some(({ status }) => status === "fail");
  const isWarned = items.some(({ status }) => status === "warn");
  return { schema: 1, verdict: isFailed ? "failed" : isWarned ? "degraded" : "ok", items };
}

/** Reports whether the check of the session names a fault already. */
function isTheSessions({ code }: Status["faults"][number], { session, node }: Status): boolean {
  return code === IDENTITY_LOST.code && session.reason?.code === code && node !== null;
}

function faultItem({ code, message, since, mendedAt }: Status["faults"][number]): HealthItem {
  if (mendedAt === undefined) return { name: code, status: "warn", message, since };
  return { name: code, status: "pass", message: `${message}; mended since`, since: mendedAt };
}

function sessionItem({ session, node, state, deletedAt }: Status): HealthItem {
  const since = deletedAt ?? session.since;
  const given = directoriesOf(state);
  if (node === null) {
    const fix = `get a license from the control plane and run '${holdfastCommand("register <license>", given)}'`;
    return { name: "control-plane", status: "fail", message: "not registered", since, fix };
  }
  if (session.state === "online" && session.unanswered !== undefined) {
    const { since, message } = session.unanswered;
    const fix = "read the control plane's log; the node retries, and reconnects if nothing is answered";
    return { name: "control-plane", status: "warn", message: `connected, but ${message}`, since, fix };
  }
  if (session.state === "online" && session.lost !== undefined) {
    const { since, message } = session.lost;
    const fix = "check the control plane's log and the network between; this ends ten minutes after the losses";
    return { name: "control-plane", status: "warn", message: `connected, but ${message}`, since, fix };
  }
  if (session.state === "online") {
    const rtt = session.rttMs === undefined ? "" : `, ${session.rttMs} ms`;
    return { name: "control-plane", status: "pass", message: `connected to ${node.session}${rtt}`, since };
  }
  if (deletedAt !== undefined) {
    return {
      name: "control-plane",
      status: "fail",
      message: "the control plane deleted this node; its data plane and containers are stopped",
      since,
      fix: startOver(given),
    };
  }
  if (session.reason?.code === IDENTITY_LOST.code) {
    const { code, message } = IDENTITY_LOST;
    const fix = identityLostFix(given);
    return { name: "control-plane", status: "fail", message: `${code}: ${message}`, since, fix };
  }
  const why = session.reason === undefined ? "" : `: ${session.reason.message}`;
  const lost = session.lost === undefined ? "" : `; ${session.lost.message}`;
  return {
    name: "control-plane",
    status: "warn",
    message: `not connected${why}${lost}`,
    since,
    fix: "the node continues with its last configuration and reconnects automatically; holdfast status shows when",
  };
}

function restrictionItem({ restricted, deletedAt }: Status): HealthItem | undefined {
  if (restricted === undefined || deletedAt !== undefined) return undefined;
  const fix = "connect from an address that the lock covers, or have the lock changed: PUT /node/UID/lock";
  return { name: restricted.code, status: "fail", message: restrictionText(restricted), fix };
}

/** Returns the reason why a node without its keys opens no session. Pure. */
export function identityReasons({ session, state }: Pick<Status, "session" | "state">): Reason[] {
  if (session.reason?.code !== IDENTITY_LOST.code) return [];
  const { code, message } = IDENTITY_LOST;
  const text = `${message}; ${identityLostFix(directoriesOf(state))}`;
  return [{ section: "node", code, message: text, since: session.since, lastAttempt: session.since }];
}

function documentsItem({ node, documents, sections }: Status): HealthItem | undefined {
  if (node === null) return undefined;
  if (documents.node === undefined) {
    return { name: "documents", status: "warn", message: "no configuration was received yet" };
  }
  const refused = Object.entries(documents).find(([, document]) => document.refused !== undefined);
  if (refused !== undefined) {
    const [name, { version, refused: from }] = refused;
    const fix = `correct it at the control plane: the next version of the ${name} document ends this`;
    return { name: "documents", status: "warn", message: `${name} document ${from} is rolled back to ${version}`, fix };
  }
  const open = Object.entries(sections).filter(([, { state }]) => state !== "converged");
  if (open.length === 0)
    return { name: "documents", status: "pass", message: `node document ${documents.node.version}` };
  const message = open.map(([name, { state }]) => `${name} ${state}`).join(", ");
  return {
    name: "documents",
    status: open.some(([, { state }]) => state !== "unsupported") ? "warn" : "pass",
    message,
  };
}

function overlayItem({ engines }: Status): HealthItem | undefined {
  const { overlay } = engines;
  if (overlay === undefined) return undefined;
  const { state, since, pid, reason } = overlay;
  switch (state) {
    case "off":
      return { name: "overlay", status: "pass", message: "off: no service, connector or gateway asks for it", since };
    case "up":
      return { name: "overlay", status: "pass", message: `serves as process ${pid ?? "of unknown id"}`, since };
    case "down": {
      const fix = "the agent retries automatically; overlay.log in the overlay's state directory has the reason";
      return { name: "overlay", status: "fail", message: `down: ${reason ?? "it is not running"}`, since, fix };
    }
  }
}

function clockItem(offset: number | undefined, behind: ClockBehind | undefined): HealthItem {
  if (behind !== undefined) return { name: "clock", status: "fail", ...clockBehindText(behind) };
  if (offset === undefined) return { name: "clock", status: "unknown", message: "compared at the next session" };
  const size = Math.abs(offset);
  // The control plane sends its time in whole seconds.
  const message =
    size < 1
      ? "within a second of the control plane"
      : `${Math.round(size)} s ${offset < 0 ? "behind" : "ahead of"} the control plane`;
  const fix = "check the time synchronisation of this machine";
  if (size > CLOCK_LIMITS_S.fail) return { name: "clock", status: "fail", message, fix };
  if (size > CLOCK_LIMITS_S.warn) return { name: "clock", status: "warn", message, fix };
  return { name: "clock", status: "pass", message };
}

function stateItem(isPersistent: boolean, faults: Status["faults"]): HealthItem {
  if (!isPersistent) {
    const fix = "make the state directory writable and restart the agent";
    return { name: "state", status: "fail", message: "the state directory cannot be written; working in memory", fix };
  }
  if (faults.some(({ code }) => code === "storage-unavailable")) {
    const fix = "free space or make the disk writable; the agent retries automatically";
    return { name: "state", status: "fail", message: "the disk refuses writes; new state is in memory only", fix };
  }
  return { name: "state", status: "pass", message: "the state directory accepts writes" };
}

function diskItem(usedRatio: number | undefined): HealthItem {
  if (usedRatio === undefined) return { name: "disk", status: "unknown", message: "cannot be measured" };
  const message = `${Math.round(usedRatio * 100)} % of the root file system is used`;
  if (usedRatio > DISK_LIMITS.fail) return { name: "disk", status: "fail", message, fix: "free space on /" };
  return { name: "disk", status: usedRatio > DISK_LIMITS.warn ? "warn" : "pass", message };
}

function checkItem(name: string, isGood: boolean | undefined, message: string, fix: string): HealthItem {
  if (isGood === undefined) return { name, status: "unknown", message: "not checked yet, or nothing to check" };
  return isGood ? { name, status: "pass", message } : { name, status: "warn", message: `failing: ${message}`, fix };
}

/** Reports an upgrade that failed, is in progress or on trial. */
function upgradeItem({ upgrade }: Status): HealthItem | undefined {
  const { standing, trial } = upgrade ?? {};
  if (standing?.state === "FAILED") {
    const message = `failed, and ${standing.from} goes on: ${reasonText(standing)}`;
    const since = (standing.completedAt ?? standing.begunAt) * 1000;
    const fix =
      "a version that failed is not tried again by itself; a newer one is, or this one with holdfast upgrade --force";
    return { name: "upgrade", status: "warn", message, since, fix };
  }
  if (standing?.state === "IN_PROGRESS") {
    const message = `in progress${standing.step === undefined ? "" : `: ${standing.step}`}`;
    return { name: "upgrade", status: "pass", message, since: standing.begunAt * 1000 };
  }
  return trial === undefined ? undefined : { name: "upgrade", status: "pass", message: "this version is on trial" };
}

function signatureItem(refused: number): HealthItem {
  if (refused === 0) return { name: "signatures", status: "pass", message: "nothing was refused" };
  return {
    name: "signatures",
    status: "warn",
    message: `${refused} messages with a wrong signature, audience or version were refused`,
    fix: "somebody may be tampering with the connection; the log names each",
  };
}
