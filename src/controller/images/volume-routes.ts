import { z } from "zod";
import { checkHasStore } from "../data-store/calls.ts";
import { NodeParams } from "../config/routes.ts";
import { Violations } from "../http/problem.ts";
import { route, type Route } from "../http/route.ts";
import { badBody, Empty, notFound, refusals } from "../http/shapes.ts";
import { mayModify, mayRead } from "./routes.ts";
import type { NodeService } from "../nodes/service.ts";
import { MachineVolume } from "./records.ts";
import type { MachineVolumes } from "./volumes.ts";

const tag = "Virtual machine images";
const base = "/v2/node/{nodeID}/kvm/volume";
const VolumeParams = NodeParams.extend({ name: z.string().max(128) });
const VolumeWrite = MachineVolume.partial({ name: true }).meta({ id: "MachineVolumeWrite" });
const answers = { ...refusals, ...notFound } as const;
const one = { 200: { description: "The record", schema: MachineVolume }, ...answers } as const;

export interface MachineVolumeRouteDeps {
  readonly nodes: NodeService;
  readonly machineVolumes: MachineVolumes;
}

/** Routes of the records of virtual machines' volumes. No machine is started; the records are kept. */
export function machineVolumeRoutes({ nodes, machineVolumes: volumes }: MachineVolumeRouteDeps): readonly Route[] {
  return [
    route({
      method: "GET",
      path: base,
      operationId: "listMachineVolumes",
      summary: "List the records of virtual machines' volumes of a node",
      tag,
      access: mayRead,
      params: NodeParams,
      answers: { 200: { description: "The records", schema: z.array(MachineVolume) }, ...answers },
      handle: async ({ params: { nodeID } }) => {
        await checkHasStore({ nodes }, nodeID);
        return Response.json(await volumes.ofNode(nodeID));
      },
    }),
    route({
      method: "POST",
      path: base,
      operationId: "createMachineVolume",
      summary: "Add the record of a virtual machine's volume",
      tag,
      access: mayModify,
      params: NodeParams,
      body: { schema: MachineVolume },
      answers: { ...one, ...badBody },
      handle: async ({ params: { nodeID }, body, caller }) => {
        await checkHasStore({ nodes }, nodeID);
        await volumes.add(nodeID, body, caller.name);
        return Response.json(body);
      },
    }),
    route({
      method: "GET",
      path: `${base}/{name}`,
      operationId: "getMachineVolume",
      summary: "Get the record of a virtual machine's volume",
      tag,
      access: mayRead,
      params: VolumeParams,
      answers: one,
      handle: async ({ params: { nodeID, name } }) => {
        await checkHasStore({ nodes }, nodeID);
        return Response.json(await volumes.get(nodeID, name));
      },
    }),
    route({
      method: "PUT",
      path: `${base}/{name}`,
      operationId: "updateMachineVolume",
      summary: "Replace the record of a virtual machine's volume",
      tag,
      access: mayModify,
      params: VolumeParams,
      body: { schema: VolumeWrite },
      answers: { ...one, ...badBody },
      handle: async ({ params: { nodeID, name }, body, caller }) => {
        await checkHasStore({ nodes }, nodeID);
        if (body.name !== undefined && body.name !== name)
          throw new Violations([`name: must be ${name}; a volume cannot be renamed`]);
        const volume = { ...body, name };
        await volumes.replace(nodeID, volume, caller.name);
        return Response.json(volume);
      },
    }),
    route({
      method: "DELETE",
      path: `${base}/{name}`,
      operationId: "deleteMachineVolume",
      summary: "Remove the record of a virtual machine's volume",
      tag,
      access: mayModify,
      params: VolumeParams,
      answers: { 200: { description: "Removed", schema: Empty }, ...answers },
      handle: async ({ params: { nodeID, name }, caller }) => {
        await checkHasStore({ nodes }, nodeID);
        await volumes.remove(nodeID, name, caller.name);
        return Response.json({});
      },
    }),
  ];
}
