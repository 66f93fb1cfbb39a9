import { randomUUID } from "node:crypto";
import { z } from "zod";
import { InputError } from "../../errors.ts";
import { partFields, recordFields, VolumeItem, type PartName } from "../../protocol/sections/exec/fields.ts";
import { MAX_ID_LENGTH } from "../../protocol/sections/common/forms.ts";
import { ItemId } from "../../protocol/sections/common/section.ts";
import { SECTION_MAX_BYTES, SECTION_MAX_DEPTH } from "../../protocol/sections/sections.ts";
import type { JsonObject } from "../../protocol/values/values.ts";
import {
  containerOf,
  containersOf,
  hasRoom,
  judgeContainer,
  mountedVolumes,
  partOf,
  partsBody,
  recordOf,
  auditNote,
  shownMounts,
  tidyParts,
  tidyRecord,
  withContainer,
  withoutUnsetFields,
  withoutContainer,
  type ExecBody,
} from "./exec-section.ts";
import { tgrn } from "../access/policies/permissions.ts";
import { NodeParams, refuseForAgents } from "../config/routes.ts";
import { takingUnset } from "../config/unset.ts";
import { nodeOf } from "../nodes/routes.ts";
import { ownRepositoriesOf } from "./used-repositories.ts";
import type { Caller } from "../http/caller.ts";
import { Violations } from "../http/problem.ts";
import { route, type Route } from "../http/route.ts";
import { badBody, Empty, notFound, refusals } from "../http/shapes.ts";
import type { NodeRecord } from "../nodes/records.ts";
import type { NodeService } from "../nodes/service.ts";
import type { StoredNode } from "../nodes/store.ts";
import type { ClusterService } from "../clusters/service.ts";
import type { ConfigService } from "../config/service.ts";

const onNode = ({ nodeID = "" }: { readonly nodeID?: string }): string => tgrn.node(nodeID);
const tag = "Edge compute";
/** Access to the containers of a node: read and change. */
export const mayRead = { to: "resource", permissions: ["node-exec::read"], resource: onNode } as const;
export const mayModify = { to: "resource", permissions: ["node-exec::modify"], resource: onNode } as const;
export const bodyLimits = { maxBytes: SECTION_MAX_BYTES, maxDepth: SECTION_MAX_DEPTH - 2 } as const;

const base = "/v2/node/{nodeID}/exec/container";
const ContainerParams = NodeParams.extend({ containerID: z.string().max(MAX_ID_LENGTH) });
const object = { error: "must be an object" };
const NODE = "7d8f0c5e-2b4a-4f0e-9a51-3c1d2e4f5a6b";
const record = {
  id: "2f6d1c3b-8e7a-4d5c-9b0a-1e2f3a4b5c6d",
  name: "web",
  description: "Web server",
  enabled: true,
  execType: "service",
  image: { repository: "library/nginx", tag: "1.27" },
  stopTime: 30,
};
const uid = "3a7e2d4c-9f8b-4e6d-8c1b-2f3a4b5c6d7e";
const parts: Readonly<Partial<Record<PartName, unknown>>> = {
  capabilities: { addCaps: ["NET_ADMIN"], dropCaps: ["MKNOD"] },
  healthCheck: { command: "curl -f http://localhost/", interval: 30, timeout: 5, startPeriod: 10, retries: 3 },
  interfaces: [],
  limits: { memMax: 512 },
  logging: { numFiles: 3 },
  mounts: [{ uid, mountType: "volume", source: "data", dest: "/data" }],
  portMappings: [{ uid, protocol: "tcp", iface: "ens3", hostPort: 8080, containerPort: 80 }],
  variables: [{ name: "MODE", value: "production" }],
};
const ContainerBody = z.looseObject({ id: ItemId.optional(), ...recordFields, ...partFields }, object);
const writtenBody = z.preprocess(tidyRecord, takingUnset(ContainerBody, withoutUnsetFields));
const IdIn = ContainerBody.pick({ id: true });
const DescribedContainer = ContainerBody.meta({ id: "ContainerBody", examples: [record] });
const PublicContainer = z
  .looseObject({
    ...recordFields,
    id: ItemId,
    nodeUid: z.string(),
    namespace: z.literal("exec"),
    version: z.int().meta({ description: "Number of changes of the definition" }),
  })
  .meta({ id: "Container", examples: [{ version: 1, ...record, nodeUid: NODE, namespace: "exec" }] });
const ContainerConfig = z.object(partFields, object).meta({ id: "ContainerConfig", examples: [parts] });
const writtenConfig = z.preprocess(tidyParts, takingUnset(ContainerConfig, withoutUnsetFields));

export interface ExecRouteDeps {
  readonly nodes: NodeService;
  readonly clusters: ClusterService;
  readonly config: ConfigService;
  /** Host of the registry in image references. */
  readonly registryHost: string | undefined;
  readonly domain: string;
}

/** Returns the effective section: the cluster's if the node is a member of a cluster that has one. @throws {InputError} */
export async function execOfNode(deps: Pick<ExecRouteDeps, "nodes" | "clusters">, nodeID: string): Promise<ExecBody> {
  const node = await nodeOf(deps.nodes, nodeID);
  refuseForAgents("exec", node.type);
  return execOf(deps, node);
}

/** Returns the section that applies to a node: its cluster's, or its own. */
export async function execOf(
  { clusters }: Pick<ExecRouteDeps, "clusters">,
  { cluster, config }: Pick<NodeRecord, "cluster" | "config">,
): Promise<ExecBody> {
  return (cluster === undefined ? undefined : await clusters.get(cluster))?.config.exec ?? config.exec ?? {};
}

/** Returns the section of a node for a change. @throws {InputError} `cluster-member` if the cluster's section applies */
export function openExec({ type, config, cluster }: StoredNode): ExecBody {
  refuseForAgents("exec", type);
  if (cluster === undefined) return config.exec ?? {};
  const message = `the node is a member of ${cluster}: containers and volumes are configured on the cluster`;
  throw new InputError("cluster-member", message);
}

/** Routes of a node's containers: records and configuration parts. */
export function nodeExecRoutes(deps: ExecRouteDeps): readonly Route[] {
  const answers = { ...refusals, ...notFound } as const;
  return [
    route({
      method: "GET",
      path: base,
      operationId: "listNodeContainers",
      summary: "List the containers of a node",
      tag,
      access: mayRead,
      params: NodeParams,
      answers: { 200: { description: "Their records", schema: z.array(PublicContainer) }, ...answers },
      handle: async ({ params: { nodeID } }) =>
        Response.json(containersOf(await execOfNode(deps, nodeID)).map((one) => shown(nodeID, one))),
    }),
    route({
      method: "POST",
      path: base,
      operationId: "createNodeContainer",
      summary: "Add a container to a node",
      tag,
      access: mayModify,
      params: NodeParams,
      body: { schema: writtenBody, described: DescribedContainer, limits: bodyLimits },
      answers: {
        200: { description: "The record; an id is generated if none was sent", schema: PublicContainer },
        ...answers,
        ...badBody,
      },
      handle: async ({ params: { nodeID }, body, caller }) => {
        const { id = randomUUID() } = IdIn.parse(body);
        const record = await put(deps, nodeID, id, caller, "added", (stored) => {
          if (!hasRoom(stored, "commands"))
            throw new Violations(["body: cannot add a container: the limit per node is reached"]);
          if (containerOf(stored, id) === undefined) return { ...body, id };
          const message = `container ${id} already exists`;
          throw new InputError("item-collision", message, { details: { field: "id" } });
        });
        return Response.json(record);
      },
    }),
    route({
      method: "GET",
      path: `${base}/{containerID}`,
      operationId: "getNodeContainer",
      summary: "Get a container of a node",
      tag,
      access: mayRead,
      params: ContainerParams,
      answers: { 200: { description: "Its record", schema: PublicContainer }, ...answers },
      handle: async ({ params: { nodeID, containerID } }) =>
        Response.json(shown(nodeID, found(await execOfNode(deps, nodeID), containerID))),
    }),
    route({
      method: "PUT",
      path: `${base}/{containerID}`,
      operationId: "updateNodeContainer",
      summary: "Replace the record of a container; its configuration stays",
      tag,
      access: mayModify,
      params: ContainerParams,
      body: { schema: writtenBody, described: DescribedContainer, limits: bodyLimits },
      answers: { 200: { description: "Its record", schema: PublicContainer }, ...answers, ...badBody },
      handle: async ({ params: { nodeID, containerID }, body, caller }) => {
        const record = await put(deps, nodeID, containerID, caller, "changed", (stored) => {
          const before = found(stored, containerID);
          const { id = containerID } = IdIn.parse(body);
          if (id.toLowerCase() !== containerID.toLowerCase()) {
            throw new Violations([`id: must be ${containerID}, or absent`]);
          }
          return { ...partsBody(before), ...body, id: before["id"] };
        });
        return Response.json(record);
      },
    }),
    route({
      method: "DELETE",
      path: `${base}/{containerID}`,
      operationId: "deleteNodeContainer",
      summary: "Remove a container from a node; its volumes stay",
      tag,
      access: mayModify,
      params: ContainerParams,
      answers: { 200: { description: "Removed", schema: Empty }, ...answers },
      handle: async ({ params: { nodeID, containerID }, caller }) => {
        await deps.config.setSection(nodeID, "exec", caller.name, (node) => {
          const stored = openExec(node);
          const { name } = found(stored, containerID);
          return { body: withoutContainer(stored, containerID), summary: `container ${String(name)} removed` };
        });
        return Response.json({});
      },
    }),
    route({
      method: "PUT",
      path: `${base}/{containerID}/config`,
      operationId: "setNodeContainerConfig",
      summary: "Replace the configuration of a container; parts that are not sent are removed",
      tag,
      access: mayModify,
      params: ContainerParams,
      body: { schema: writtenConfig, described: ContainerConfig, limits: bodyLimits },
      answers: {
        200: { description: "Its configuration", schema: ContainerConfig },
        ...answers,
        ...badBody,
      },
      handle: async ({ params: { nodeID, containerID }, body, caller }) => {
        // A part, even an empty one, signals to the node that the record and the configuration were both written.
        const parts = { variables: [], ...body };
        await put(deps, nodeID, containerID, caller, "configured", (stored) => ({
          ...recordOf(found(stored, containerID)),
          ...parts,
        }));
        return Response.json(parts);
      },
    }),
    ...PARTS.map((part) => partRoute(deps, part)),
  ];
}

/** One part of a container's configuration, by the last segment of its path. */
interface Part {
  readonly word: string;
  readonly operation: string;
  readonly label: string;
  readonly schema: z.ZodType;
  readonly of: (section: ExecBody, container: JsonObject) => unknown;
}

/** A mount of a volume shows whether the volume is encrypted. */
const shownMountsForm = partFields.mounts.meta({
  examples: [[{ uid, mountType: "volume", source: "data", dest: "/data", encrypted: false }]],
});
const partForm = (name: PartName): z.ZodType => {
  const example = parts[name];
  return example === undefined ? partFields[name] : partFields[name].meta({ examples: [example] });
};
const listed = (word: string, operation: string, label: string, name: PartName): Part => ({
  word,
  operation,
  label,
  schema: partForm(name),
  of: (_, container) => partOf(container, name),
});
const single = (word: string, operation: string, label: string, name: PartName): Part => ({
  ...listed(word, operation, label, name),
  schema: z.union([partForm(name), Empty]),
});

const PARTS: readonly Part[] = [
  single("capability", "Capabilities", "the capabilities", "capabilities"),
  single("healthcheck", "HealthCheck", "the health check", "healthCheck"),
  listed("interface", "Interfaces", "the virtual interfaces", "interfaces"),
  single("limit", "Limits", "the limits", "limits"),
  single("logging", "Logging", "the logging", "logging"),
  { ...listed("mount", "Mounts", "the mounts", "mounts"), schema: shownMountsForm, of: shownMounts },
  listed("port-mapping", "PortMappings", "the port mappings", "portMappings"),
  listed("variable", "Variables", "the variables, including values,", "variables"),
  listed("virtual-network", "VirtualNetworks", "the virtual networks", "virtualNetworks"),
  { word: "volume", operation: "Volumes", label: "the volumes", schema: z.array(VolumeItem), of: mountedVolumes },
  single("vrf", "Vrf", "the VRF", "vrf"),
];

function partRoute(deps: ExecRouteDeps, { word, operation, label, schema, of }: Part): Route {
  return route({
    method: "GET",
    path: `${base}/{containerID}/${word}`,
    operationId: `getNodeContainer${operation}`,
    summary: `Get ${label} of a container`,
    tag,
    access: mayRead,
    params: ContainerParams,
    answers: {
      200: { description: "The configured part; empty if unset", schema },
      ...refusals,
      ...notFound,
    },
    handle: async ({ params: { nodeID, containerID } }) => {
      const section = await execOfNode(deps, nodeID);
      return Response.json(of(section, found(section, containerID)));
    },
  });
}

/** @throws {InputError} `not-found` */
function found(section: ExecBody, id: string): JsonObject {
  const container = containerOf(section, id);
  if (container === undefined) throw new InputError("not-found", `there is no container ${id}`);
  return container;
}

function shown(nodeUid: string, container: JsonObject): JsonObject {
  return { version: 0, ...recordOf(container), nodeUid, namespace: "exec" };
}

/**
 * Stores the container that `decide` makes of the stored section, and returns its record as stored.
 * @throws {Violations} for contradictions and conflicts; the latter name the other container
 */
async function put(
  deps: ExecRouteDeps,
  nodeID: string,
  id: string,
  caller: Caller,
  done: string,
  decide: (stored: ExecBody) => JsonObject,
): Promise<JsonObject> {
  const { config } = await deps.config.setSection(nodeID, "exec", caller.name, async (node) => {
    const stored = openExec(node);
    const container = decide(stored);
    const lines = judgeContainer(stored, container);
    if (lines.length > 0) throw new Violations(lines);
    const body = withContainer(stored, container);
    await requireImages(deps, caller, stored, body);
    return { body, summary: `container ${String(container["name"])} ${done}${auditNote(container)}` };
  });
  return shown(nodeID, found(config.exec ?? {}, id));
}

/**
 * Requires read access to the repositories of new images, since a container gives its configurer access to its image.
 * @throws {InputError} `forbidden`
 */
async function requireImages(
  { registryHost, domain }: ExecRouteDeps,
  caller: Caller,
  before: ExecBody,
  after: ExecBody,
): Promise<void> {
  if (registryHost === undefined) return;
  const known = new Set(ownRepositoriesOf(before, registryHost, domain));
  for (const repository of ownRepositoriesOf(after, registryHost, domain)) {
    if (!known.has(repository)) await caller.require(["repositories::read"], tgrn.repository(repository));
  }
}
