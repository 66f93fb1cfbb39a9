import { clusterText, unknownNodeText } from "../../../protocol/documents/own-name.ts";
import type { Issue } from "../../../protocol/documents/reconcile.ts";
import type { Gateway, GatewayPath, LatencyMonitor } from "../../../protocol/sections/gateway/gateway.ts";
import type { DomainView } from "../../../protocol/documents/domain-view.ts";
import { isDialled, isSelf } from "./mesh.ts";
import type { GatewayActual } from "./plan.ts";

/** Lists parts of the section that cannot work: unknown nodes, absent addresses, a port in use. Pure. */
export function waitingGateway(desired: Gateway, actual: GatewayActual): readonly Issue[] {
  const { isActive, self, domain } = actual;
  if (!isActive || self === undefined || domain === undefined) return [];
  const known = (name: string): boolean => isSelf(self, name) || domain.find(name) !== undefined;
  const references = [
    ...desired.routes.flatMap(({ to, via }) => [
      { at: "gateway.routes.route", name: to },
      { at: "gateway.routes.dest", name: via },
    ]),
    ...(desired.acls ?? []).flatMap(({ source, dest }) => [
      { at: "gateway.acls.source", name: source },
      { at: "gateway.acls.dest", name: dest },
    ]),
    ...desired.hops.overrides.map(({ node }) => ({ at: "gateway.monitorHopsOverrides.node", name: node })),
    ...desired.latency.monitors.map(({ node }) => ({ at: "gateway.latencyMonitors.node", name: node })),
  ];
  const unknown = new Map(
    references
      .filter(({ name }) => !known(name))
      .map(({ at, name }) => [`${at} ${name}`, domain.clusters.has(name) ? cluster(at, name) : unknownNode(at, name)]),
  );
  return [
    ...domain.issues,
    ...desired.paths.filter(({ enabled }) => enabled).flatMap((path) => pathIssues(path, desired, actual, domain)),
    ...unknown.values(),
    ...desired.latency.monitors.flatMap((monitor) => monitorIssues(monitor, desired, domain)),
    ...serverIssues(actual),
  ].slice(0, MAX_ISSUES);
}

const MAX_ISSUES = 1000;

function cluster(path: string, name: string): Issue {
  return { path, code: "unsupported", message: `${path}: ${clusterText(name)}` };
}

/** Explains that no node of the domain has this name, and what to do. */
function unknownNode(path: string, name: string): Issue {
  const text = unknownNodeText(name);
  return { path, code: "unknown-node", message: `${path}: ${text}` };
}

function pathIssues(
  { id, node, local }: GatewayPath,
  desired: Gateway,
  actual: GatewayActual,
  domain: DomainView,
): readonly Issue[] {
  const at = `gateway.paths.${id}`;
  const peer = domain.find(node);
  if (peer === undefined) return [unknownNode(`${at}.node`, node)];
  if (!isDialled(desired, peer)) {
    const text = `${node} is no gateway that this node may dial: see its type and clients, and connectToPublic here`;
    return [{ path: `${at}.node`, code: "not-a-gateway", message: `${at}.node: ${text}` }];
  }
  if (local === undefined || actual.local.has(local)) return [];
  const text = `${local} is no address of this machine; the path stays down`;
  return [{ path: `${at}.local`, code: "address-absent", message: `${at}.local: ${text}` }];
}

/** A monitor has samples only if this node dials the gateway over an enabled path. */
function monitorIssues({ node, path }: LatencyMonitor, desired: Gateway, domain: DomainView): readonly Issue[] {
  const peer = domain.find(node);
  if (peer === undefined) return [];
  const at = "gateway.latencyMonitors";
  if (!isDialled(desired, peer)) {
    const text = `${node} is no gateway that this node dials, so nothing is measured`;
    return [{ path: `${at}.node`, code: "not-a-gateway", message: `${at}.node: ${text}` }];
  }
  const isThere = desired.paths.some(
    (one) => one.id === path && one.enabled && domain.find(one.node)?.uid === peer.uid,
  );
  if (path === undefined || isThere) return [];
  const text = `path ${path} does not lead to ${node} or is disabled, so nothing is measured`;
  return [{ path: `${at}.path`, code: "no-path", message: `${at}.path: ${text}` }];
}

function serverIssues({ mesh, standing }: GatewayActual): readonly Issue[] {
  const server = standing?.server;
  if (mesh?.server === undefined || server?.state !== "failed") return [];
  const { reason = "other", message } = server;
  const because = message === undefined ? reason : `${reason}: ${message}`;
  const text = `the gateway server does not listen on port ${mesh.server.port} (${because})`;
  return [{ path: "gateway.port", code: reason, message: `gateway.port: ${text}`.slice(0, 1024) }];
}
