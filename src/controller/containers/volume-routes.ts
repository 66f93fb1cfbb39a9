import { isDeepStrictEqual } from "node:util";
import { z } from "zod";
import { InputError } from "../../errors.ts";
import { NodeLimits, VolumeItem } from "../../protocol/sections/exec/fields.ts";
import { isObject } from "../../protocol/sections/common/forms.ts";
import { Text128, type JsonObject } from "../../protocol/values/values.ts";
import { containersOf, hasRoom, judgeLimits, judgeVolume, mountedVolumes, volumesOf } from "./exec-section.ts";
import { withoutBlanks } from "../http/body.ts";
import { NodeParams } from "../config/routes.ts";
import { bodyLimits, execOfNode, mayModify, mayRead, openExec, type ExecRouteDeps } from "./routes.ts";
import { Violations } from "../http/problem.ts";
import { route, type Route } from "../http/route.ts";
import { badBody, Empty, notFound, refusals } from "../http/shapes.ts";

const tag = "Edge compute";
const base = "/v2/node/{nodeID}/exec/volume";
const VolumeParams = NodeParams.extend({ volumeName: Text128 });
const DescribedLimits = NodeLimits.meta({ id: "ExecLimits", examples: [{ cpuMax: 50, memMax: 512 }] });
const volume = { name: "data", encrypted: false };
const PublicVolume = VolumeItem.meta({ id: "Volume", examples: [volume] });
const VolumeChange = VolumeItem.partial({ name: true }).meta({ examples: [volume] });
const limitsPath = "/v2/node/{nodeID}/exec/limit";

/** Returns a volume. @throws {InputError} `not-found` */
function volumeOf(section: JsonObject, name: string): JsonObject {
  const volume = volumesOf(section).find((one) => one["name"] === name);
  if (volume === undefined) throw new InputError("not-found", `there is no volume ${name}`);
  return volume;
}

/** Routes of a node's volumes, and of the limits for all its containers together. */
export function nodeExecVolumeRoutes(deps: ExecRouteDeps): readonly Route[] {
  const answers = { ...refusals, ...notFound } as const;
  return [
    route({
      method: "GET",
      path: base,
      operationId: "listNodeVolumes",
      summary: "List the volumes of a node",
      tag,
      access: mayRead,
      params: NodeParams,
      answers: { 200: { description: "The volumes", schema: z.array(PublicVolume) }, ...answers },
      handle: async ({ params: { nodeID } }) => Response.json(volumesOf(await execOfNode(deps, nodeID))),
    }),
    route({
      method: "POST",
      path: base,
      operationId: "createNodeVolume",
      summary: "Add a volume to a node",
      tag,
      access: mayModify,
      params: NodeParams,
      body: { schema: z.preprocess(withoutBlanks, VolumeItem), described: PublicVolume, limits: bodyLimits },
      answers: { 200: { description: "The volume", schema: PublicVolume }, ...answers, ...badBody },
      handle: async ({ params: { nodeID }, body, caller }) => {
        await deps.config.setSection(nodeID, "exec", caller.name, (node) => {
          const stored = openExec(node);
          if (!hasRoom(stored, "volumes"))
            throw new Violations(["body: cannot add a volume: the limit per node is reached"]);
          const clash = judgeVolume(stored, body);
          if (clash !== undefined) {
            const field = clash.path.split(".").at(-1) ?? "name";
            throw new Violations([`${field}: there is a volume with this ${field} already`]);
          }
          const volumes = [...volumesOf(stored), body];
          return { body: { ...stored, volumes }, summary: `volume ${body.name} added` };
        });
        return Response.json(body);
      },
    }),
    route({
      method: "GET",
      path: `${base}/{volumeName}`,
      operationId: "getNodeVolume",
      summary: "Get a volume of a node",
      tag,
      access: mayRead,
      params: VolumeParams,
      answers: { 200: { description: "The volume", schema: PublicVolume }, ...answers },
      handle: async ({ params: { nodeID, volumeName } }) =>
        Response.json(volumeOf(await execOfNode(deps, nodeID), volumeName)),
    }),
    route({
      method: "PUT",
      path: `${base}/{volumeName}`,
      operationId: "updateNodeVolume",
      summary: "Write a volume of a node as it is: no field can be changed once the volume exists",
      tag,
      access: mayModify,
      params: VolumeParams,
      body: { schema: z.preprocess(withoutBlanks, VolumeChange), described: VolumeChange, limits: bodyLimits },
      answers: { 200: { description: "The volume", schema: PublicVolume }, ...answers, ...badBody },
      handle: async ({ params: { nodeID, volumeName }, body }) => {
        const volume = volumeOf(await execOfNode(deps, nodeID), volumeName);
        const current: JsonObject = { encrypted: false, ...volume };
        const changed = Object.entries(body).filter(([name, value]) => !isDeepStrictEqual(current[name], value));
        const hint = "cannot be changed; remove the volume, with its contents, and add it again";
        if (changed.length > 0) throw new Violations(changed.map(([name]) => `${name}: ${hint}`));
        return Response.json(volume);
      },
    }),
    route({
      method: "DELETE",
      path: `${base}/{volumeName}`,
      operationId: "deleteNodeVolume",
      summary: "Remove a volume that no container mounts; the node keeps its contents for one more day",
      tag,
      access: mayModify,
      params: VolumeParams,
      answers: { 200: { description: "Removed", schema: Empty }, ...answers },
      handle: async ({ params: { nodeID, volumeName }, caller }) => {
        const isThis = ({ name }: JsonObject): boolean => name === volumeName;
        await deps.config.setSection(nodeID, "exec", caller.name, (node) => {
          const stored = openExec(node);
          if (!volumesOf(stored).some(isThis)) throw new InputError("not-found", `there is no volume ${volumeName}`);
          const user = containersOf(stored).find((one) => mountedVolumes(stored, one).some(isThis));
          if (user !== undefined) {
            const message = `the container ${String(user["name"])} mounts the volume ${volumeName}`;
            throw new InputError("item-collision", message);
          }
          const volumes = volumesOf(stored).filter((one) => !isThis(one));
          return { body: { ...stored, volumes }, summary: `volume ${volumeName} removed` };
        });
        return Response.json({});
      },
    }),
    route({
      method: "GET",
      path: limitsPath,
      operationId: "getNodeExecLimits",
      summary: "Get the limits of all containers of a node together",
      tag,
      access: mayRead,
      params: NodeParams,
      answers: {
        200: { description: "The limits; empty if none are set", schema: DescribedLimits },
        ...answers,
      },
      handle: async ({ params: { nodeID } }) => {
        const { limits } = await execOfNode(deps, nodeID);
        return Response.json(isObject(limits) ? limits : {});
      },
    }),
    route({
      method: "PUT",
      path: limitsPath,
      operationId: "setNodeExecLimits",
      summary: "Replace the limits of all containers of a node together; an empty object removes them",
      tag,
      access: mayModify,
      params: NodeParams,
      body: { schema: z.preprocess(withoutBlanks, NodeLimits), described: DescribedLimits, limits: bodyLimits },
      answers: { 200: { description: "The limits", schema: DescribedLimits }, ...answers, ...badBody },
      handle: async ({ params: { nodeID }, body, caller }) => {
        await deps.config.setSection(nodeID, "exec", caller.name, (node) => {
          const { limits: _replaced, ...stored } = openExec(node);
          const lines = judgeLimits(body);
          if (lines.length > 0) throw new Violations(lines);
          const section = Object.keys(body).length === 0 ? stored : { ...stored, limits: body };
          return { body: section, summary: "limits of all containers" };
        });
        return Response.json(body);
      },
    }),
  ];
}
