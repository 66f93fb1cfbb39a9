import { MAX_SERVICE_USERS } from "../../protocol/local/api.ts";
import type { ItemReason, ServicesReport, ServiceUser, ServiceView } from "../../protocol/local/overlay.ts";
import type { Connector } from "../../protocol/sections/connectors/connectors.ts";
import type { Service } from "../../protocol/sections/services/services.ts";
import {
  isDown,
  issuesOfSection,
  overlayState,
  placeOf,
  reasonsByItem,
  rejectedItems,
  switchedOff,
  whyNotYet,
  type OverlayReading,
} from "./overlay-reading.ts";
import { isOwnName } from "../../protocol/documents/own-name.ts";
import { waitingServices } from "../sections/services/plan.ts";

/** Lists all services with their health and connectors. Pure. */
export function servicesReport(reading: OverlayReading): ServicesReport {
  const { config, node, view, counters, addresses, status } = reading;
  const isMember = node?.cluster !== undefined;
  const { items, rejected, notices } = reading.parsed.services(config.services, isMember);
  const health = new Map((counters?.services ?? [...view.health.values()]).map((entry) => [entry.name, entry]));
  const waits = reasonsByItem(waitingServices(items, { services: view.services, health, addresses }), items);
  const users = usersByService(reading);

  const standing = (item: Service): Pick<ServiceView, "state" | "reason"> => {
    const off = switchedOff(reading, item.enabled);
    if (off !== undefined) return off;
    const wait = waits.get(item.path);
    const isOffered = status.state === "up" && view.services.has(item.name);
    if (!isOffered) return { state: "waiting", reason: wait ?? whyNotYet(reading, "services") };
    // A service with a failed target is withdrawn, not waiting.
    return wait === undefined ? { state: "offered" } : { state: isDown(wait) ? "offered" : "waiting", reason: wait };
  };
  const viewOf = (item: Service): ServiceView => {
    const standsHow = standing(item);
    const judged = standsHow.state === "offered" ? health.get(item.name) : undefined;
    return {
      id: item.id,
      name: item.name,
      ...(item.description === "" ? {} : { description: item.description }),
      ...standsHow,
      protocol: item.protocol,
      target: { transport: item.transport, host: item.host, port: item.port },
      ...(judged === undefined ? {} : { health: { state: judged.state, since: judged.since } }),
      ...usersOf(users.get(item.name) ?? []),
    };
  };
  const lost = [...rejectedItems(rejected)].map(([id, reason]): ServiceView => ({
    id,
    state: "rejected",
    reason,
    connectors: [],
  }));
  return {
    schema: 1,
    overlay: overlayState(reading),
    issues: issuesOfSection([...rejected, ...notices]),
    services: [...items.map(viewOf), ...lost],
  };
}

/** Returns why flows to a service fail, by name, for services whose target does not answer. */
export function downServices(reading: OverlayReading): ReadonlyMap<string, ItemReason> {
  const health = reading.counters?.services ?? [...reading.view.health.values()];
  if (!health.some(({ state }) => state === "down")) return new Map();
  return new Map(
    servicesReport(reading).services.flatMap(({ name, reason }) =>
      name !== undefined && reason !== undefined && isDown(reason) ? [[name, reason] as const] : [],
    ),
  );
}

function usersByService({ config, node, parsed }: OverlayReading): ReadonlyMap<string, readonly Connector[]> {
  const { items } = parsed.connectors(config.connectors, node?.type ?? "Node");
  const users = new Map<string, Connector[]>();
  for (const connector of items) {
    const { target, node: destination } = connector;
    if (!("service" in target) || !isOwnName(node, destination)) continue;
    const own = users.get(target.service);
    if (own === undefined) users.set(target.service, [connector]);
    else own.push(connector);
  }
  return users;
}

function usersOf(users: readonly Connector[]): Pick<ServiceView, "connectors" | "usedBy"> {
  const connectors = users.map(({ id }) => id);
  if (users.length === 0) return { connectors };
  return { connectors, usedBy: users.slice(0, MAX_SERVICE_USERS).map(userOf) };
}

function userOf(connector: Connector): ServiceUser {
  const { id, description } = connector;
  return { id, ...(description === "" ? {} : { description }), ...placeOf(connector) };
}
