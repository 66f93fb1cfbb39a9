import type { StoreCallDeps } from "./data-store/calls.ts";
import { agentTokenRoutes, type AgentTokenRouteDeps } from "./access/agent-tokens/routes.ts";
import { oauthRoutes, type OauthRouteDeps } from "./access/oauth.ts";
import { policyRoutes, type AccessRouteDeps } from "./access/routes.ts";
import { serviceUserRoutes, type ServiceUserRouteDeps } from "./access/service-user-routes.ts";
import { certificateRoutes, type CertificateRouteDeps } from "./certificates/routes.ts";
import { clusterRoutes, type ClusterRouteDeps } from "./clusters/routes.ts";
import { tagRoutes, type TagRouteDeps } from "./clusters/tag-routes.ts";
import { nodeItemRoutes, type ItemRouteDeps } from "./config/item-routes.ts";
import { clusterConfigRoutes, type ClusterSectionRouteDeps } from "./config/cluster-section-routes.ts";
import { networkConfigRoutes, type NetworkRouteDeps } from "./config/network-routes.ts";
import { nodeConfigRoutes, type SectionRouteDeps } from "./config/routes.ts";
import { nodeExecRoutes, type ExecRouteDeps } from "./containers/routes.ts";
import { terminalRoutes, type TerminalRouteDeps } from "./containers/terminal-routes.ts";
import { nodeExecVolumeRoutes } from "./containers/volume-routes.ts";
import { nodeDataStoreRoutes } from "./data-store/routes.ts";
import { alertRoutes, type AlertRouteDeps } from "./events/alert-routes.ts";
import { orgAuditRoutes, type OrgAuditRouteDeps } from "./events/org-audit-routes.ts";
import { auditRoutes, type AuditRouteDeps } from "./events/audit-routes.ts";
import { eventRoutes, type EventRouteDeps } from "./events/routes.ts";
import { machineVolumeRoutes, type MachineVolumeRouteDeps } from "./images/volume-routes.ts";
import { nodeImageRoutes, type ImageRouteDeps } from "./images/routes.ts";
import { activationRoutes, type ActivationRouteDeps } from "./nodes/activations/routes.ts";
import { nodeRoutes, type NodeRouteDeps } from "./nodes/routes.ts";
import { orgRoutes, type OrgRouteDeps } from "./org/routes.ts";
import { repositoryRoutes, type RepositoryRouteDeps } from "./registry/routes.ts";
import { registryTokenRoutes, type RegistryTokenRouteDeps } from "./registry/token-routes.ts";
import { releaseRoutes, type ReleaseRouteDeps } from "./releases/routes.ts";
import { flowRoutes, type FlowRouteDeps } from "./stats/flow-routes.ts";
import { pluginLogRoutes, type PluginLogRouteDeps } from "./stats/plugin-log-routes.ts";
import { statsRoutes, type StatsRouteDeps } from "./stats/routes.ts";
import { nodeBundleRoutes } from "./triggers/bundle-routes.ts";
import { triggerRoutes, type TriggerRouteDeps } from "./triggers/routes.ts";
import { serviceRoutes, type ServiceRouteDeps } from "./http/health.ts";
import type { Route } from "./http/route.ts";

/** Services that the operations of the API call, and what they show. */
export type RouteDeps = OauthRouteDeps &
  OrgRouteDeps &
  NodeRouteDeps &
  ActivationRouteDeps &
  AgentTokenRouteDeps &
  SectionRouteDeps &
  NetworkRouteDeps &
  ItemRouteDeps &
  ExecRouteDeps &
  StoreCallDeps &
  ImageRouteDeps &
  MachineVolumeRouteDeps &
  CertificateRouteDeps &
  TagRouteDeps &
  ClusterSectionRouteDeps &
  TerminalRouteDeps &
  TriggerRouteDeps &
  ClusterRouteDeps &
  EventRouteDeps &
  AuditRouteDeps &
  OrgAuditRouteDeps &
  FlowRouteDeps &
  AlertRouteDeps &
  StatsRouteDeps &
  PluginLogRouteDeps &
  AccessRouteDeps &
  ServiceUserRouteDeps &
  RepositoryRouteDeps &
  RegistryTokenRouteDeps &
  ReleaseRouteDeps &
  ServiceRouteDeps;

/** Returns all operations of the API. If two paths match a request, the earlier one wins. */
export function apiRoutes(deps: RouteDeps): readonly Route[] {
  const routes: Route[] = [
    ...serviceRoutes(deps, () => routes),
    ...oauthRoutes(deps),
    ...orgRoutes(deps),
    ...nodeRoutes(deps),
    ...activationRoutes(deps),
    ...agentTokenRoutes(deps),
    ...nodeConfigRoutes(deps),
    ...networkConfigRoutes(deps),
    ...clusterConfigRoutes(deps),
    ...nodeItemRoutes(deps),
    ...nodeExecRoutes(deps),
    ...nodeExecVolumeRoutes(deps),
    ...nodeDataStoreRoutes(deps),
    ...nodeImageRoutes(deps),
    ...machineVolumeRoutes(deps),
    ...certificateRoutes(deps),
    ...tagRoutes(deps),
    ...terminalRoutes(deps),
    ...triggerRoutes(deps),
    ...nodeBundleRoutes(deps),
    ...clusterRoutes(deps),
    ...eventRoutes(deps),
    ...flowRoutes(deps),
    ...auditRoutes(deps),
    ...orgAuditRoutes(deps),
    ...alertRoutes(deps),
    ...statsRoutes(deps),
    ...pluginLogRoutes(deps),
    ...policyRoutes(deps),
    ...serviceUserRoutes(deps),
    ...repositoryRoutes(deps),
    ...registryTokenRoutes(deps),
    ...releaseRoutes(deps),
  ];
  return routes;
}
