import { isDeepStrictEqual } from "node:util";
import type { Change } from "../../../host/network/change.ts";
import { diffNetwork } from "../../../host/network/diff.ts";
import { waitingForLease } from "../../../host/network/diff-routes.ts";
import type { NetworkRecord } from "../../../host/network/state/record.ts";
import { storeTarget, undoTarget, type NetworkUndo } from "../../../host/network/restore.ts";
import { OUR_PROTOCOL, type NetworkTarget } from "../../../host/network/state/state.ts";
import type { Issue } from "../../../protocol/documents/reconcile.ts";
import { networkIssue, pathOf, type NetworkActual, type NetworkDesired } from "./actual.ts";
import { compileNetwork, type CompiledNetwork } from "./compile.ts";
import { cutsOff } from "./reach.ts";
import { wanLinkOf, wanOf } from "./wan.ts";

/** One change of the machine, with the target. The first step also carries the record to store before it, the last one the final record. */
export interface ChangeStep {
  readonly kind: Change["kind"];
  readonly subject: string;
  readonly guarded: true;
  readonly change: Change;
  readonly target: NetworkTarget;
  readonly before?: NetworkRecord;
  readonly after?: NetworkRecord;
}

/** Removes records of settings that have their original value again. */
export interface ForgetStep {
  readonly kind: "forget";
  readonly subject: "record";
  readonly guarded: false;
  readonly after: NetworkRecord;
}

export type NetworkStep = ChangeStep | ForgetStep | NetworkUndo;

/** Steps, and issues that keep parts from being applied. */
export interface NetworkPlan {
  readonly steps: readonly NetworkStep[];
  readonly waits: readonly Issue[];
  /** Items that are applied differently from how they are written. */
  readonly notices: readonly Issue[];
  /** Issues that keep the change from being confirmed: on the path to the control plane something is removed only once there is a lease. */
  readonly unproven: readonly Issue[];
  /** Paths of values that cannot be evaluated yet. */
  readonly undetermined: readonly string[];
}

/** Plans the steps to the desired state; none if they would cut the machine off from its control plane. Pure. */
export function planNetwork(desired: NetworkDesired, actual: NetworkActual): NetworkPlan {
  const compiled = compileNetwork(desired, actual);
  const { target, waits, notices } = compiled;
  const { state, carrier } = actual;
  if (cutsOff(state, target, carrier))
    return { steps: [], waits: [...waits, refusal(desired, actual)], notices, unproven: [], undetermined: [] };
  const leases = new Map(
    [...waitingForLease(state, target)].map((link) => [
      link,
      networkIssue(pathOf(desired, link), "no-lease", `no DHCP server has answered on ${link} yet`),
    ]),
  );
  const uplinks = new Set([wanOf(desired.config.interfaces, actual)?.nic, wanLinkOf(actual)]);
  return {
    steps: stepsOf(diffNetwork(state, target), compiled, actual),
    waits: [...waits, ...leases.values()],
    notices,
    unproven: [...leases].flatMap(([link, issue]) => (uplinks.has(link) && isHeld(link, actual) ? [issue] : [])),
    undetermined: [],
  };
}

/** Reports whether a link that waits for its lease still has objects of ours, which are removed with the lease. */
function isHeld(waiting: string, { state: { addresses, routes } }: NetworkActual): boolean {
  return (
    addresses.some(({ link, isOurs }) => isOurs && link === waiting) ||
    routes.some(({ link, protocol }) => protocol === OUR_PROTOCOL && link === waiting)
  );
}

function stepsOf(
  changes: readonly Change[],
  { target, record }: CompiledNetwork,
  actual: NetworkActual,
): readonly NetworkStep[] {
  const { record: known } = actual;
  if (changes.length === 0) {
    const after = commonOf(known, record);
    return isDeepStrictEqual(after, known) ? [] : [{ kind: "forget", subject: "record", guarded: false, after }];
  }
  const seen = new Map<string, number>();
  return changes.map((change, index): ChangeStep => {
    const name = subjectOf(change);
    const times = (seen.get(name) ?? 0) + 1;
    seen.set(name, times);
    const subject = times === 1 ? name : `${name}-${times}`;
    return {
      kind: change.kind,
      subject,
      guarded: true,
      change,
      target,
      ...(index === 0 ? { before: unionOf(known, record) } : {}),
      ...(index === changes.length - 1 ? { after: record } : {}),
    };
  });
}

/** Returns the step that reverts the whole plan, stored with the plan's first step; undefined for other steps. Pure. */
export function undoOf(step: NetworkStep, { state, record }: NetworkActual): NetworkUndo | undefined {
  if (!("before" in step)) return undefined;
  const text = record.firewalls.find(({ digest }) => digest === state.firewall?.digest)?.text;
  const target = storeTarget(undoTarget(state, step.target, text));
  return { kind: "restore", subject: "network", guarded: true, target, record };
}

function subjectOf(change: Change): string {
  switch (change.kind) {
    case "ip":
      return "links";
    case "nft":
      return "firewall";
    case "sysctl":
      return "sysctls";
    case "ethtool":
    case "dhcp":
      return change.link;
    case "resolver":
      return "dns";
  }
}

/** Merges the known record with the required one, and keeps the firewalls of both. */
function unionOf(known: NetworkRecord, needed: NetworkRecord): NetworkRecord {
  const firewalls = new Map([...known.firewalls, ...needed.firewalls].map((one) => [one.digest, one]));
  return {
    ...needed,
    links: { ...needed.links, ...known.links },
    sysctls: { ...needed.sysctls, ...known.sysctls },
    vrfs: { ...known.vrfs, ...needed.vrfs },
    firewalls: [...firewalls.values()],
  };
}

/** Returns the known record without entries that are not required. */
function commonOf(known: NetworkRecord, needed: NetworkRecord): NetworkRecord {
  const common = <T>(one: Readonly<Record<string, T>>, other: object): Record<string, T> =>
    Object.fromEntries(Object.entries(one).filter(([name]) => Object.hasOwn(other, name)));
  const digests = new Set(needed.firewalls.map(({ digest }) => digest));
  return {
    ...known,
    links: common(known.links, needed.links),
    sysctls: common(known.sysctls, needed.sysctls),
    vrfs: common(known.vrfs, needed.vrfs),
    firewalls: known.firewalls.filter(({ digest }) => digests.has(digest)),
  };
}

function refusal(desired: NetworkDesired, actual: NetworkActual): Issue {
  const { carrier } = actual;
  const wan = wanOf(desired.config.interfaces, actual)?.nic ?? wanLinkOf(actual) ?? "";
  const path = pathOf(desired, wan);
  const text = `nothing is changed: no address or route of the change leads to the control plane at ${carrier?.remote}`;
  return networkIssue(path, "cuts-off", text);
}
