import { randomUUID } from "node:crypto";
import { z } from "zod";
import { AgentError, InputError, SessionError } from "../../errors.ts";
import { ImageInfo, StorePath } from "../../protocol/triggers/data-store.ts";
import { Text4096 } from "../../protocol/values/values.ts";
import { tgrn } from "../access/policies/permissions.ts";
import { withoutBlanks } from "../http/body.ts";
import { askStore, checkHasStore, type StoreCall } from "../data-store/calls.ts";
import { NodeParams } from "../config/routes.ts";
import { Violations } from "../http/problem.ts";
import { Flag } from "../http/query.ts";
import { route, type Call, type Route } from "../http/route.ts";
import { badBody, Empty, notFound, ofNode, refusals } from "../http/shapes.ts";
import type { ImageRecord } from "./records.ts";
import type { Images } from "./service.ts";
import type { NodeService } from "../nodes/service.ts";
import type { TriggerService } from "../triggers/service.ts";
import type { ReplyJoins } from "../triggers/reply-joins.ts";
import type { Clock } from "../../host/clock.ts";

const tag = "Virtual machine images";
const base = "/v2/node/{nodeID}/kvm/image";
/** Concurrent requests to a node for image details, and the time limit of all of them. */
const MAX_CONCURRENT = 2;
const DETAILS_MS = 15_000;

const onNode = ({ nodeID = "" }: { readonly nodeID?: string }): string => tgrn.node(nodeID);
/** Access to the virtual machine images and volumes of a node: read and change. */
export const mayRead = { to: "resource", permissions: ["node-kvm::read"], resource: onNode } as const;
export const mayModify = { to: "resource", permissions: ["node-kvm::modify"], resource: onNode } as const;
const ImageId = z.uuid().toLowerCase();
const ImageParams = NodeParams.extend({ id: z.string().max(64).toLowerCase() });
const line = (most: number) => z.string().min(1).max(most);
const fields = {
  displayName: line(256),
  description: Text4096.optional(),
  location: StorePath.meta({ description: "Path of the file in the node's data store" }),
  os: line(64).meta({ description: "Operating system of the guest, such as `win10`" }),
};
const example = {
  id: "2f6d1c3b-8e7a-4d5c-9b0a-1e2f3a4b5c6d",
  displayName: "Debian 13",
  description: "Base image",
  location: "images/debian-13.qcow2",
  os: "debian13",
};
const file = { bytes: 1_073_741_824, format: "qcow2", virtualBytes: 10_737_418_240 };
const ImageBody = z.object({ id: ImageId.optional(), ...fields }).meta({ examples: [example] });
const PublicImage = z
  .object({
    id: ImageId,
    ...fields,
    present: z.boolean().optional().meta({ description: "Whether the file exists; absent if unknown" }),
    bytes: ImageInfo.shape.bytes.optional(),
    format: ImageInfo.shape.format,
    virtualBytes: ImageInfo.shape.virtualBytes,
  })
  .meta({ id: "MachineImage", examples: [{ ...example, present: true, ...file }] });
const answers = { ...ofNode, ...refusals, ...notFound } as const;

/** Details of an image file, as reported by the node. */
type Found = { readonly present?: boolean } & Partial<ImageInfo>;

export interface ImageRouteDeps {
  readonly nodes: NodeService;
  readonly images: Images;
  readonly triggers: TriggerService;
  readonly joins: ReplyJoins;
  readonly clock: Clock;
}

/** Routes of a node's virtual machine images. The control plane stores the records; the files are in the node's data store. */
export function nodeImageRoutes(deps: ImageRouteDeps): readonly Route[] {
  const { images, clock } = deps;
  const body = { schema: z.preprocess(withoutBlanks, ImageBody), described: ImageBody } as const;
  return [
    route({
      method: "GET",
      path: base,
      operationId: "listNodeImages",
      summary: "List the image records of a node; while it is online, with details of their files",
      tag,
      access: mayRead,
      params: NodeParams,
      answers: { 200: { description: "The records", schema: z.array(PublicImage) }, ...answers },
      handle: async (call) => {
        await checkHasStore(deps, call.params.nodeID);
        return Response.json(await shown(deps, storeCall(call), await images.ofNode(call.params.nodeID)));
      },
    }),
    route({
      method: "POST",
      path: base,
      operationId: "createNodeImage",
      summary: "Add a record of an image whose file is in the data store of a node",
      tag,
      access: mayModify,
      params: NodeParams,
      body,
      answers: {
        ...answers,
        ...badBody,
        200: { description: "The record; an id is generated if none was sent", schema: PublicImage },
      },
      handle: async (call) => {
        const { nodeID } = call.params;
        await checkHasStore(deps, nodeID);
        const record = { ...call.body, id: call.body.id ?? randomUUID() };
        await images.checkRoom(nodeID, record.id);
        const info = await requireFile(deps, storeCall(call), record.location);
        await images.add(nodeID, record, call.caller.name);
        return Response.json({ ...record, present: true, ...info });
      },
    }),
    route({
      method: "GET",
      path: `${base}/{id}`,
      operationId: "getNodeImage",
      summary: "Get the record of an image",
      tag,
      access: mayRead,
      params: ImageParams,
      answers: { 200: { description: "The record", schema: PublicImage }, ...answers },
      handle: async (call) => {
        const { nodeID, id } = call.params;
        await checkHasStore(deps, nodeID);
        const [image] = await shown(deps, storeCall(call), [await images.get(nodeID, id)]);
        return Response.json(image);
      },
    }),
    route({
      method: "PUT",
      path: `${base}/{id}`,
      operationId: "updateNodeImage",
      summary: "Replace the record of an image; its file stays",
      tag,
      access: mayModify,
      params: ImageParams,
      body,
      answers: { 200: { description: "The record", schema: PublicImage }, ...answers, ...badBody },
      handle: async (call) => {
        const { nodeID, id } = call.params;
        await checkHasStore(deps, nodeID);
        await images.get(nodeID, id);
        if (call.body.id !== undefined && call.body.id !== id) throw new Violations([`id: must be ${id}, or absent`]);
        const info = await requireFile(deps, storeCall(call), call.body.location);
        const record = { ...call.body, id };
        await images.replace(nodeID, record, call.caller.name);
        return Response.json({ ...record, present: true, ...info });
      },
    }),
    route({
      method: "DELETE",
      path: `${base}/{id}`,
      operationId: "deleteNodeImage",
      summary: "Remove the record of an image",
      tag,
      access: mayModify,
      params: ImageParams,
      query: z.object({
        deleteFile: Flag.meta({ description: "Remove the file first; if that fails, the record stays" }),
      }),
      answers: { 200: { description: "Removed", schema: Empty }, ...answers },
      handle: async (call) => {
        const { nodeID, id } = call.params;
        await checkHasStore(deps, nodeID);
        const record = await images.get(nodeID, id);
        if (call.query.deleteFile === true) {
          const isSame = ({ id: other, location }: ImageRecord): boolean =>
            other !== id && pathOf(location) === pathOf(record.location);
          const other = (await images.ofNode(nodeID)).find(isSame);
          if (other !== undefined) {
            const message = `image ${other.displayName} uses the same file`;
            throw new InputError("item-collision", message);
          }
          await removeFile(deps, storeCall(call), record.location);
        }
        await images.remove(nodeID, id, call.caller.name);
        return Response.json({});
      },
    }),
  ];

  /** Returns the records, with file details that the node returns in time. */
  async function shown(
    deps: ImageRouteDeps,
    call: StoreCall,
    records: readonly ImageRecord[],
  ): Promise<readonly object[]> {
    if (records.length === 0 || !(await checkHasStore(deps, call.nodeID)).isOnline) return records;
    const late = new AbortController();
    const stopClock = clock.after(DETAILS_MS, () =>
      late.abort(new SessionError("timeout", "the node did not respond in time")),
    );
    const signal = AbortSignal.any([call.signal, late.signal]);
    const waiting = [...records];
    const found = new Map<string, Found>();
    const readNext = async (): Promise<void> => {
      for (let record = waiting.shift(); record !== undefined && !signal.aborted; record = waiting.shift()) {
        const details = await fileDetails(deps, { ...call, signal }, record.location).catch(() => undefined);
        if (details !== undefined) found.set(record.id, details);
      }
    };
    try {
      await Promise.all(Array.from({ length: MAX_CONCURRENT }, readNext));
    } finally {
      stopClock();
    }
    return records.map((record) => ({ ...record, ...found.get(record.id) }));
  }
}

function storeCall({ params, caller, request }: Call<z.infer<typeof NodeParams>, unknown, unknown>): StoreCall {
  return { nodeID: params.nodeID, user: caller.name, signal: request.signal, isAudited: false };
}

async function fileDetails(deps: ImageRouteDeps, call: StoreCall, filename: string): Promise<Found> {
  try {
    return { present: true, ...(await askStore(deps, call, { action: "IMAGE_INFO", filename }, ImageInfo)) };
  } catch (error) {
    if (isNoFile(error)) return { present: false };
    throw error;
  }
}

/** @throws {Violations} naming `location` if it is not a file */
async function requireFile(deps: ImageRouteDeps, call: StoreCall, filename: string): Promise<ImageInfo> {
  try {
    return await askStore(deps, call, { action: "IMAGE_INFO", filename }, ImageInfo);
  } catch (error) {
    if (error instanceof AgentError && isNoFile(error)) throw new Violations([`location: ${error.message}`]);
    throw error;
  }
}

/** Removes a file; a missing file counts as removed. */
async function removeFile(deps: ImageRouteDeps, call: StoreCall, filename: string): Promise<void> {
  try {
    const { isAudited: _quiet, ...audited } = call;
    await askStore(deps, audited, { action: "DELETE", filename }, z.unknown());
  } catch (error) {
    if (!(error instanceof SessionError && error.code === "not-found")) throw error;
  }
}

const NO_FILE: ReadonlySet<string> = new Set(["not-found", "invalid-body", "conflict", "forbidden"]);

/** Reports whether an error of the node means that the path is not a file. */
function isNoFile(error: unknown): boolean {
  return error instanceof SessionError && NO_FILE.has(error.code);
}

/** Normalizes a path as the node does: a leading slash makes no difference. */
function pathOf(location: string): string {
  return location.split("/").filter(Boolean).join("/");
}
