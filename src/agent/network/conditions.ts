import type { Clock } from "../../host/clock.ts";
import { AgentError } from "../../errors.ts";
import type { Issue } from "../../protocol/documents/reconcile.ts";
import type { ShadowMap } from "../../protocol/values/shadow.ts";
import type { NodeType } from "../../protocol/values/values.ts";
import type { Standing } from "../reconcile/section-status.ts";
import { ANNOUNCED_OVER } from "../telemetry/conditions/arp-announcer.ts";
import { STALE_OVER } from "../telemetry/conditions/arp-watch.ts";
import { watchConditions, type Condition, type ConditionWatch } from "../telemetry/conditions/condition-watch.ts";
import type { EventLog } from "../telemetry/events.ts";

const SECTION = "network";
const ROUTE_ERROR = "Network Route Error";
const NETWORK_ERROR = "Network Error";
const ROUTES_OVER = "Routes are applied again";
const CLUSTER = "cluster:";
const CLUSTER_OVER = "The cluster's entry for the interface is applied or gone";
const MAX_CLUSTER_ENTRIES = 16;
const LEASE = "lease:";
const LEASE_OVER = "A DHCP lease was obtained";
/** Route lines as passed to ip(8). */
const ROUTE_LINE = /^route\s/u;

/** Lists conditions of the section `network` that raise events: a route that is not applied, a missing lease. Pure. */
export function networkConditions(standing: Standing | undefined): readonly Condition[] {
  if (standing === undefined) return [];
  return [...routeConditions(standing), ...leaseConditions(standing)];
}

function routeConditions({ outcome }: Standing): readonly Condition[] {
  const condition = { eventType: ROUTE_ERROR, object: "routes", level: "ERROR", over: ROUTES_OVER } as const;
  if (outcome.state === "failed") {
    const { error, step } = outcome;
    const line = error instanceof AgentError ? error.details?.["text"] : undefined;
    if (step?.kind !== "ip" || typeof line !== "string" || !ROUTE_LINE.test(line)) return [];
    const details = { route: line, reason: error.message.slice(0, 512) };
    return [{ ...condition, message: `A route could not be applied: ${line}`.slice(0, 512), details }];
  }
  if (outcome.state !== "diverged") return [];
  // Applied steps that are needed again at the next observation.
  const left = outcome.remaining.filter(({ kind }) => kind === "ip");
  if (left.length === 0) return [];
  const details = { steps: left.slice(0, 16).map(({ kind, subject }) => `${kind} ${subject}`) };
  return [{ ...condition, message: "Routes or addresses do not stay as applied", details }];
}

function leaseConditions({ issues }: Standing): readonly Condition[] {
  return issues
    .filter(({ code }) => code === "no-lease")
    .map(({ path, message }) => ({
      eventType: NETWORK_ERROR,
      object: `${LEASE}${path}`,
      level: "ERROR",
      message: `WAN DHCP lease failure: ${message}`.slice(0, 512),
      details: { path },
      over: LEASE_OVER,
    }));
}

/** Lists the cluster's entries for interfaces that this member does not have. Pure. */
export function clusterConditions(issues: readonly Issue[]): readonly Condition[] {
  return issues
    .filter(({ code }) => code === "unknown-interface")
    .slice(0, MAX_CLUSTER_ENTRIES)
    .map(({ path, message }) => ({
      eventType: NETWORK_ERROR,
      object: `${CLUSTER}${path}`,
      level: "WARNING",
      message: `The cluster configures an interface that is not applied here: ${message}`.slice(0, 512),
      details: { path },
      over: CLUSTER_OVER,
    }));
}

/** State of the section. */
export function networkStanding(standings: readonly Standing[]): Standing | undefined {
  return standings.find(({ section }) => section === SECTION);
}

/** Raises and clears events of the section `network`. */
export function watchNetworkSection({
  clock,
  events,
  standings,
  clusterIssues,
  others,
}: {
  readonly clock: Clock;
  readonly events: EventLog;
  readonly standings: () => readonly Standing[];
  /** Issues of the cluster's configuration on this member. */
  readonly clusterIssues: () => readonly Issue[];
  /** Conditions from other sources: another machine answers for an address. */
  readonly others: () => readonly Condition[];
}): ConditionWatch {
  return watchConditions({
    clock,
    events,
    read: () => [
      ...networkConditions(networkStanding(standings())),
      ...clusterConditions(clusterIssues()),
      ...others(),
    ],
    adopt: (open) => {
      const over = overOf(open);
      return over === undefined ? undefined : { ...open, over };
    },
  });
}

function overOf({ eventType, object }: Pick<Condition, "eventType" | "object">): string | undefined {
  if (eventType === ROUTE_ERROR) return ROUTES_OVER;
  if (eventType !== NETWORK_ERROR) return undefined;
  if (object.startsWith(LEASE)) return LEASE_OVER;
  if (object.startsWith(CLUSTER)) return CLUSTER_OVER;
  if (object.startsWith("announce:")) return ANNOUNCED_OVER;
  return object.startsWith("arp:") ? STALE_OVER : undefined;
}

/**
 * Returns for the shadow whether the configured network is applied; false without a section, so that the running network can be adopted.
 * Empty for an agent, which has no such section, and before the first pass. Pure.
 */
export function networkFacts(
  nodeType: NodeType | undefined,
  hasSection: boolean,
  standing: Standing | undefined,
): ShadowMap {
  if (nodeType !== "Node") return {};
  if (!hasSection) return { "netplan.saved": "false" };
  return standing === undefined ? {} : { "netplan.saved": String(standing.outcome.state === "converged") };
}
