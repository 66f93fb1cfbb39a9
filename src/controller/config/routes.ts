import { z } from "zod";
import { InputError } from "../../errors.ts";
import { CONFIRM_SECONDS, TRY_MINUTES, type ConfirmRequest } from "../../protocol/values/commit.ts";
import {
  SECTION_MAX_BYTES,
  SECTION_MAX_DEPTH,
  sectionSchemas,
  sectionSuits,
  type SectionName,
} from "../../protocol/sections/sections.ts";
import { isItemSection, isV2, type ItemSection } from "../../protocol/sections/common/forms.ts";
import { JsonObject, Uid, type NodeType } from "../../protocol/values/values.ts";
import { keepRole, roleOf } from "../../protocol/sections/cluster/cluster.ts";
import { missingTunnelSecrets } from "../../protocol/sections/network/tunnels.ts";
import { missingSnmpSecrets } from "../../protocol/sections/snmp/snmp.ts";
import { tgrn } from "../access/policies/permissions.ts";
import { keepSecrets, hideSecrets } from "../../protocol/documents/secrets.ts";
import { changeAnswer, changeResponse } from "../nodes/routes.ts";
import { Violations } from "../http/problem.ts";
import { numberIn } from "../http/query.ts";
import { destinationsOf, requireDestinations } from "./connector-rights.ts";
import { warnOf, WARNING_HEADER } from "./not-applied.ts";
import { sectionForm } from "./section-forms.ts";
import { checkPorts } from "./section-ports.ts";
import { checkTargets } from "./section-targets.ts";
import { route, type Route } from "../http/route.ts";
import { badBody, Empty, notFound, refusals } from "../http/shapes.ts";
import { defined } from "../../lib/defined.ts";
import { takingUnset } from "./unset.ts";
import type { ConfigService } from "./service.ts";

/** Path and operation of a whole section. */
interface SectionPath {
  readonly section: SectionName;
  readonly path: string;
  readonly operation: string;
  readonly isRemovable: boolean;
}

const SECTION_PATHS: readonly SectionPath[] = [
  { section: "connectors", path: "/config/connectors", operation: "Connectors", isRemovable: true },
  { section: "services", path: "/config/services", operation: "Services", isRemovable: true },
  { section: "network", path: "/config/network", operation: "Network", isRemovable: true },
  { section: "gateway", path: "/config/gateway", operation: "Gateway", isRemovable: true },
  { section: "alert", path: "/config/alert", operation: "Alert", isRemovable: true },
  { section: "cluster", path: "/config/cluster", operation: "ClusterSettings", isRemovable: true },
  { section: "apigw", path: "/config/ztnagw", operation: "Ztnagw", isRemovable: true },
  { section: "snmp", path: "/snmp", operation: "Snmp", isRemovable: false },
  // The spelling of some clients.
  { section: "snmp", path: "/config/snmp", operation: "SnmpSection", isRemovable: true },
];

/** Declares the header of `warnOf`. */
export const warned = {
  [WARNING_HEADER]: {
    description: "Reasons why the section or values of it are not applied as written; absent if none is known",
    schema: z.string(),
  },
};

/** Path parameters of everything below one node. */
export const NodeParams = z.object({ nodeID: Uid });

/** Confirmation of a network change. */
const ConfirmQuery = z.object({
  confirm: numberIn(CONFIRM_SECONDS.min, CONFIRM_SECONDS.max).optional().meta({
    description: "Seconds within which the node must verify that it is still reachable; otherwise it rolls back",
  }),
  try: z
    .preprocess((value) => Number(value), z.literal([...TRY_MINUTES]))
    .optional()
    .meta({ description: "Trial period in minutes; rolled back unless confirmed in time" }),
});

export interface SectionRouteDeps {
  readonly config: ConfigService;
}

/** Routes that replace and remove whole sections of a node's desired configuration. */
export function nodeConfigRoutes(deps: SectionRouteDeps): readonly Route[] {
  return SECTION_PATHS.flatMap((at) => (at.isRemovable ? [replace(deps, at), remove(deps, at)] : [replace(deps, at)]));
}

function replace({ config }: SectionRouteDeps, { section, path, operation }: SectionPath): Route {
  const schema: z.ZodType<JsonObject> = sectionSchemas[section] ?? JsonObject;
  return route({
    method: "PUT",
    path: `/node/{nodeID}${path}`,
    operationId: `setNode${operation}`,
    summary: `Replace the ${section} section of a node`,
    tag: "Node configuration",
    access: accessTo(section),
    params: NodeParams,
    ...(section === "network" ? { query: ConfirmQuery } : {}),
    body: {
      schema: takingUnset(schema),
      described: sectionForm(section),
      root: section,
      limits: { maxBytes: SECTION_MAX_BYTES, maxDepth: SECTION_MAX_DEPTH },
    },
    answers: { 200: { ...changeAnswer[200], headers: warned }, ...refusals, ...notFound, ...badBody },
    handle: async ({ params: { nodeID }, query, body, caller }) => {
      const mayConnect = await destinationsOf(caller, section);
      const changed = await config.setSection(nodeID, section, caller.name, async (node, tx) => {
        const stored = node.config[section];
        refuseForAgents(section, node.type);
        if (isItemSection(section)) checkForm(section, stored ?? {}, body);
        checkTargets(section, body, node, ({ path }) => path);
        checkPorts(section, body, node);
        await requireDestinations(tx.nodes, mayConnect, node, body);
        const whole = withStoredSecrets(section, body, stored);
        return { body: section === "cluster" ? withStoredRole(whole, stored) : whole, confirm: confirmOf(query) };
      });
      const response = await changeResponse(changed, caller, { config: hideSecrets({ [section]: body }) });
      return warnOf(response, section, changed);
    },
  });
}

function remove({ config }: SectionRouteDeps, { section, path, operation }: SectionPath): Route {
  return route({
    method: "DELETE",
    path: `/node/{nodeID}${path}`,
    operationId: `deleteNode${operation}`,
    summary: `Remove the ${section} section of a node`,
    tag: "Node configuration",
    access: accessTo(section),
    params: NodeParams,
    ...(section === "network" ? { query: ConfirmQuery } : {}),
    answers: { 200: { description: "Removed", schema: Empty }, ...refusals, ...notFound },
    handle: async ({ params: { nodeID }, query, caller }) => {
      await config.setSection(nodeID, section, caller.name, (node) => {
        refuseForAgents(section, node.type);
        // The role of a member outlives its settings.
        const role = section === "cluster" ? roleOf(node.config.cluster) : {};
        return { body: Object.keys(role).length === 0 ? undefined : role, confirm: confirmOf(query) };
      });
      return Response.json({});
    },
  });
}

function confirmOf(query: Partial<z.infer<typeof ConfirmQuery>>): Omit<ConfirmRequest, "askedAt"> | undefined {
  const { confirm, try: tryMinutes } = query;
  if (confirm === undefined && tryMinutes === undefined) return undefined;
  return {
    ...defined({ seconds: confirm, tryMinutes }),
  };
}

/** Returns the access rule for writing a section of a node. */
export function accessTo(section: SectionName) {
  return {
    to: "resource",
    permissions: [`nodes::configure:${section === "alert" ? "thresholds" : section}`],
    resource: ({ nodeID = "" }: { readonly nodeID?: string }) => tgrn.node(nodeID),
  } as const;
}

/** A replacement keeps the form; only the upgrade changes it. @throws {Violations} */
function checkForm(section: ItemSection, stored: JsonObject, body: JsonObject): void {
  if (isV2(stored) && !isV2(body)) {
    throw new Violations([`${section}.version: cannot overwrite V2 configuration with the legacy form`]);
  }
  if (isV2(body) && !isV2(stored)) {
    const hint = `is written item by item below /v2/node/{nodeID}/config/${section}, a legacy section after its upgrade`;
    throw new Violations([`${section}.version: the V2 form ${hint}`]);
  }
}

/** Fills in stored secrets for those that were not sent. @throws {Violations} for a secret that was never sent */
export function withStoredSecrets(section: SectionName, body: JsonObject, stored: unknown): JsonObject {
  const whole = keepSecrets(section, body, stored);
  const missing = MISSING_SECRETS.get(section)?.(whole) ?? [];
  if (missing.length > 0) throw new Violations(missing);
  return whole;
}

const MISSING_SECRETS: ReadonlyMap<SectionName, (section: JsonObject) => readonly string[]> = new Map([
  ["network", missingTunnelSecrets],
  ["snmp", missingSnmpSecrets],
]);

/** Fills in the stored role of a member. @throws {Violations} for a role that is not the stored one */
function withStoredRole(body: JsonObject, stored: JsonObject | undefined): JsonObject {
  const { section, refused } = keepRole(body, stored);
  if (refused.length > 0) throw new Violations(refused);
  return section;
}

/** Rejects a section that agents do not have, since their operating system manages it. @throws {InputError} `not-supported` */
export function refuseForAgents(section: SectionName, type: NodeType): void {
  if (sectionSuits(section, type)) return;
  throw new InputError("not-supported", `agents have no ${section} section`, { details: { field: section } });
}
