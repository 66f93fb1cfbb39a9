import { randomUUID } from "node:crypto";
import { z } from "zod";
import { InputError } from "../../errors.ts";
import { partFields, recordFields, type PartName } from "../../protocol/sections/exec/fields.ts";
import { MAX_ID_LENGTH } from "../../protocol/sections/common/forms.ts";
import { ItemId } from "../../protocol/sections/common/section.ts";
import { SECTION_MAX_BYTES, SECTION_MAX_DEPTH } from "../../protocol/sections/sections.ts";
import { JsonObject } from "../../protocol/values/values.ts";
import type { Fleet } from "../fleet.ts";
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
  withoutContainer,
  type ExecBody,
} from "../model/exec-section.ts";
import { tgrn } from "../model/permissions.ts";
import { NodeParams, refuseForAgents } from "./node-config.ts";
import { nodeOf } from "./nodes.ts";
import { ownRepositoriesOf } from "../model/used-repositories.ts";
import type { Caller } from "./caller.ts";
import { Violations } from "./problem.ts";
import { route, type ApiDeps, type Route } from "./route.ts";
import { badBody, Empty, notFound, Problem, refusals, violations } from "./shapes.ts";

const onNode = ({ nodeID = "" }: { readonly nodeID?: string }): string => tgrn.node(nodeID);
const tag = "Edge compute";
/** Who may see, and who may change, what runs in containers of a node. */
export const mayRead = { to: "resource", permissions: ["node-exec::read"], resource: onNode } as const;
export const mayModify = { to: "resource", permissions: ["node-exec::modify"], resource: onNode } as const;
/** Of every operation that changes the section. */
export const clashes = {
  409: {
    description: "Another has the name, the port or the address; or the node is a member of a cluster",
    schema: Problem,
  },
} as const;
export const bodyLimits = { maxBytes: SECTION_MAX_BYTES, maxDepth: SECTION_MAX_DEPTH - 2 } as const;

const base = "/v2/node/{nodeID}/exec/container";
const ContainerParams = NodeParams.extend({ containerID: z.string().max(MAX_ID_LENGTH) });
const object = { error: "must be an object" };
const ContainerBody = z.looseObject({ id: ItemId.optional(), ...recordFields, ...partFields }, object);
const PublicContainer = z
  .looseObject({
    ...recordFields,
    id: ItemId,
    nodeUid: z.string(),
    namespace: z.literal("exec"),
    version: z.int().meta({ description: "Counts the changes of the definition" }),
  })
  .meta({ id: "Container" });
const ContainerConfig = z.object(partFields, object).meta({ id: "ContainerConfig" });

/** The section that is in force: that of the cluster, where a node is a member of one that has it. @throws {InputError} */
export function execOfNode(fleet: Fleet, nodeID: string): ExecBody {
  const { type, config, cluster } = nodeOf(fleet, nodeID);
  refuseForAgents("exec", type);
  return (cluster === undefined ? undefined : fleet.cluster(cluster)?.config.exec) ?? config.exec ?? {};
}

/** The section of a node that may be changed. @throws {InputError} `cluster-member`: then the cluster's is what counts. */
export function openExec(fleet: Fleet, nodeID: string): ExecBody {
  const { type, config, cluster } = nodeOf(fleet, nodeID);
  refuseForAgents("exec", type);
  if (cluster === undefined) return config.exec ?? {};
  const message = `the node is a member of ${cluster}: containers and volumes are configured on the cluster`;
  throw new InputError("cluster-member", message, { details: { cluster } });
}

/** Containers of a node: their records, and the parts of their configuration. */
export function nodeExecRoutes(deps: ApiDeps): readonly Route[] {
  const { fleet } = deps;
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
      answers: { 200: { description: "Their records", schema: z.array(PublicContainer) }, ...answers, ...violations },
      handle: ({ params: { nodeID } }) =>
        Response.json(containersOf(execOfNode(fleet, nodeID)).map((one) => shown(nodeID, one))),
    }),
    route({
      method: "POST",
      path: base,
      operationId: "createNodeContainer",
      summary: "Add a container to a node",
      tag,
      access: mayModify,
      params: NodeParams,
      body: { schema: z.preprocess(tidyRecord, ContainerBody), described: ContainerBody, limits: bodyLimits },
      answers: {
        201: { description: "Its record; an id is made where none was sent", schema: PublicContainer },
        ...answers,
        ...badBody,
        ...clashes,
      },
      handle: ({ params: { nodeID }, body, caller }) => {
        const stored = openExec(fleet, nodeID);
        if (!hasRoom(stored, "commands"))
          throw new Violations(["body: there are as many containers as a node may have"]);
        const container = { ...body, id: body.id ?? randomUUID() };
        if (containerOf(stored, container.id) !== undefined) {
          const message = `there is a container ${container.id} already`;
          throw new InputError("item-collision", message, { details: { id: container.id, code: "E_NAME_DUPLICATE" } });
        }
        return Response.json(put(deps, nodeID, stored, container, caller, "added"), { status: 201 });
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
      answers: { 200: { description: "Its record", schema: PublicContainer }, ...answers, ...violations },
      handle: ({ params: { nodeID, containerID } }) =>
        Response.json(shown(nodeID, found(execOfNode(fleet, nodeID), containerID))),
    }),
    route({
      method: "PUT",
      path: `${base}/{containerID}`,
      operationId: "updateNodeContainer",
      summary: "Replace the record of a container; its configuration stays",
      tag,
      access: mayModify,
      params: ContainerParams,
      body: { schema: z.preprocess(tidyRecord, ContainerBody), described: ContainerBody, limits: bodyLimits },
      answers: { 200: { description: "Its record", schema: PublicContainer }, ...answers, ...badBody, ...clashes },
      handle: ({ params: { nodeID, containerID }, body, caller }) => {
        const stored = openExec(fleet, nodeID);
        const before = found(stored, containerID);
        if (body.id !== undefined && body.id.toLowerCase() !== containerID.toLowerCase()) {
          throw new Violations([`id: must be ${containerID}, or absent`]);
        }
        const container = { ...partsBody(before), ...body, id: before["id"] };
        return Response.json(put(deps, nodeID, stored, container, caller, "changed"));
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
      answers: { 200: { description: "Removed", schema: Empty }, ...answers, ...violations, ...clashes },
      handle: ({ params: { nodeID, containerID }, caller }) => {
        const stored = openExec(fleet, nodeID);
        const { name } = found(stored, containerID);
        const about = `container ${String(name)} removed`;
        fleet.setSection(nodeID, "exec", withoutContainer(stored, containerID), caller.name, undefined, about);
        return Response.json({});
      },
    }),
    route({
      method: "PUT",
      path: `${base}/{containerID}/config`,
      operationId: "setNodeContainerConfig",
      summary: "Replace the configuration of a container: what is not sent is not configured",
      tag,
      access: mayModify,
      params: ContainerParams,
      body: { schema: z.preprocess(tidyParts, ContainerConfig), described: ContainerConfig, limits: bodyLimits },
      answers: {
        200: { description: "Its configuration", schema: ContainerConfig },
        ...answers,
        ...badBody,
        ...clashes,
      },
      handle: ({ params: { nodeID, containerID }, body, caller }) => {
        const stored = openExec(fleet, nodeID);
        // One part at least tells the node that both writes have been made.
        const parts = { variables: [], ...body };
        const container = { ...recordOf(found(stored, containerID)), ...parts };
        put(deps, nodeID, stored, container, caller, "configured");
        return Response.json(parts);
      },
    }),
    ...PARTS.map((part) => partRoute(fleet, part)),
  ];
}

/** One part of a container's configuration, by the last word of its path. */
interface Part {
  readonly word: string;
  readonly operation: string;
  readonly what: string;
  readonly schema: z.ZodType;
  readonly of: (section: ExecBody, container: JsonObject) => unknown;
}

const Listed = z.array(JsonObject);
const listed = (word: string, operation: string, what: string, name: PartName): Part => ({
  word,
  operation,
  what,
  schema: Listed,
  of: (_, container) => partOf(container, name),
});
const single = (word: string, operation: string, what: string, name: PartName): Part => ({
  ...listed(word, operation, what, name),
  schema: JsonObject,
});

const PARTS: readonly Part[] = [
  single("capability", "Capabilities", "the capabilities", "capabilities"),
  single("healthcheck", "HealthCheck", "the health check", "healthCheck"),
  listed("interface", "Interfaces", "the virtual interfaces", "interfaces"),
  single("limit", "Limits", "the limits", "limits"),
  single("logging", "Logging", "the logging", "logging"),
  { ...listed("mount", "Mounts", "the mounts", "mounts"), of: shownMounts },
  listed("port-mapping", "PortMappings", "the port mappings", "portMappings"),
  listed("variable", "Variables", "the variables, with their values,", "variables"),
  listed("virtual-network", "VirtualNetworks", "the virtual networks", "virtualNetworks"),
  { word: "volume", operation: "Volumes", what: "the volumes", schema: Listed, of: mountedVolumes },
  single("vrf", "Vrf", "the VRF", "vrf"),
];

function partRoute(fleet: Fleet, { word, operation, what, schema, of }: Part): Route {
  return route({
    method: "GET",
    path: `${base}/{containerID}/${word}`,
    operationId: `getNodeContainer${operation}`,
    summary: `Get ${what} of a container`,
    tag,
    access: mayRead,
    params: ContainerParams,
    answers: {
      200: { description: "As it is configured; empty when it is not", schema },
      ...refusals,
      ...notFound,
      ...violations,
    },
    handle: ({ params: { nodeID, containerID } }) => {
      const section = execOfNode(fleet, nodeID);
      return Response.json(of(section, found(section, containerID)));
    },
  });
}

/** @throws {InputError} `not-found`. */
function found(section: ExecBody, id: string): JsonObject {
  const container = containerOf(section, id);
  if (container === undefined) throw new InputError("not-found", `there is no container ${id}`);
  return container;
}

function shown(nodeUid: string, container: JsonObject): JsonObject {
  return { version: 0, ...recordOf(container), nodeUid, namespace: "exec" };
}

/** @throws {InputError} `item-collision`, with the id of the other container; {Violations} for what contradicts itself. */
function put(
  deps: ApiDeps,
  nodeID: string,
  stored: ExecBody,
  container: JsonObject,
  caller: Caller,
  done: string,
): JsonObject {
  const { fleet } = deps;
  const { clash, lines } = judgeContainer(stored, container);
  if (lines.length > 0) throw new Violations(lines);
  if (clash !== undefined) {
    throw new InputError("item-collision", clash.message, { details: { id: clash.other, code: clash.code } });
  }
  const section = withContainer(stored, container);
  requireImages(deps, caller, stored, section);
  const about = `container ${String(container["name"])} ${done}${auditNote(container)}`;
  fleet.setSection(nodeID, "exec", section, caller.name, undefined, about);
  return shown(nodeID, found(section, String(container["id"])));
}

/** A container hands its image to whoever configures it, so one that is new here needs the right to read it. @throws {InputError} `forbidden`. */
function requireImages({ registryHost, domain }: ApiDeps, caller: Caller, before: ExecBody, after: ExecBody): void {
  if (registryHost === undefined) return;
  const known = new Set(ownRepositoriesOf(before, registryHost, domain));
  for (const repository of ownRepositoriesOf(after, registryHost, domain)) {
    if (!known.has(repository)) caller.require(["repositories::read"], tgrn.repository(repository));
  }
}
