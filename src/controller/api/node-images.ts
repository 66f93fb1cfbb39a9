import { randomUUID } from "node:crypto";
import { z } from "zod";
import { AgentError, InputError, SessionError } from "../../errors.ts";
import { ImageInfo, StorePath } from "../../protocol/triggers/data-store.ts";
import { Text4096 } from "../../protocol/values/values.ts";
import type { ImageRecord } from "../fleet.ts";
import { withoutBlanks } from "./body.ts";
import { askStore, checkHasStore, mayUseStore, type StoreCall } from "./data-store-calls.ts";
import { NodeParams } from "./node-config.ts";
import { Violations } from "./problem.ts";
import { Flag } from "./query.ts";
import { route, type ApiDeps, type Call, type Route } from "./route.ts";
import { badBody, Empty, notFound, ofNode, Problem, refusals, violations } from "./shapes.ts";

const tag = "Virtual machine images";
const base = "/v2/node/{nodeID}/kvm/image";
const MAX_IMAGES = 256;
/** How many images a node is asked about at a time, and how long the whole of it may take. */
const AT_A_TIME = 2;
const LOOK_MS = 15_000;

const ImageId = z.uuid().toLowerCase();
const ImageParams = NodeParams.extend({ id: z.string().max(64).toLowerCase() });
const line = (most: number) => z.string().min(1).max(most);
const fields = {
  displayName: line(256),
  description: Text4096.optional(),
  location: StorePath.meta({ description: "Path of the file in the node's data store" }),
  os: line(64).meta({ description: "The guest's system, such as `win10`" }),
};
const ImageBody = z.object({ id: ImageId.optional(), ...fields });
const PublicImage = z
  .object({
    id: ImageId,
    ...fields,
    present: z.boolean().optional().meta({ description: "Whether the file is there; absent when nobody knows" }),
    bytes: ImageInfo.shape.bytes.optional(),
    format: ImageInfo.shape.format,
    virtualBytes: ImageInfo.shape.virtualBytes,
  })
  .meta({ id: "MachineImage" });
const taken = { 409: { description: "There is such a record already, or the node is busy", schema: Problem } } as const;
const answers = { ...ofNode, ...refusals, ...notFound, ...violations } as const;

/** What a node says of the file of a record. */
type Found = { readonly present?: boolean } & Partial<ImageInfo>;

/** The records of virtual machines' images of a node: kept here, while their files are in the node's data store. */
export function nodeImageRoutes(deps: ApiDeps): readonly Route[] {
  const { fleet, images, clock } = deps;
  const body = { schema: z.preprocess(withoutBlanks, ImageBody), described: ImageBody } as const;
  const found = (nodeID: string, id: string): ImageRecord => {
    const record = images.get(nodeID, id);
    if (record === undefined) throw new InputError("not-found", `there is no image ${id}`);
    return record;
  };
  return [
    route({
      method: "GET",
      path: base,
      operationId: "listNodeImages",
      summary: "List the records of a node's images, with whether their files are there while the node is online",
      tag,
      access: mayUseStore,
      params: NodeParams,
      answers: { 200: { description: "The records", schema: z.array(PublicImage) }, ...answers },
      handle: async (call) => {
        checkHasStore(deps, call.params.nodeID);
        return Response.json(await shown(deps, storeCall(call), images.ofNode(call.params.nodeID)));
      },
    }),
    route({
      method: "POST",
      path: base,
      operationId: "createNodeImage",
      summary: "Enter an image whose file is in the data store of a node",
      tag,
      access: mayUseStore,
      params: NodeParams,
      body,
      answers: {
        ...answers,
        ...badBody,
        ...taken,
        201: { description: "Its record; an id is made where none was sent", schema: PublicImage },
      },
      handle: async (call) => {
        const { nodeID } = call.params;
        checkHasStore(deps, nodeID);
        const record = { ...call.body, id: call.body.id ?? randomUUID() };
        const refuse = (): void => {
          if (images.get(nodeID, record.id) !== undefined) {
            const message = `there is an image ${record.id} already`;
            throw new InputError("item-collision", message, { details: { id: record.id, code: "E_NAME_DUPLICATE" } });
          }
          if (images.ofNode(nodeID).length >= MAX_IMAGES) {
            throw new Violations(["body: there are as many images as a node may have"]);
          }
        };
        refuse();
        const info = await mustBeThere(deps, storeCall(call), record.location);
        // The node took its time.
        refuse();
        put(nodeID, record, call.caller.name, "added");
        return Response.json({ ...record, present: true, ...info }, { status: 201 });
      },
    }),
    route({
      method: "GET",
      path: `${base}/{id}`,
      operationId: "getNodeImage",
      summary: "Get the record of an image",
      tag,
      access: mayUseStore,
      params: ImageParams,
      answers: { 200: { description: "The record", schema: PublicImage }, ...answers },
      handle: async (call) => {
        const { nodeID, id } = call.params;
        checkHasStore(deps, nodeID);
        const [image] = await shown(deps, storeCall(call), [found(nodeID, id)]);
        return Response.json(image);
      },
    }),
    route({
      method: "PUT",
      path: `${base}/{id}`,
      operationId: "updateNodeImage",
      summary: "Replace the record of an image; its file stays",
      tag,
      access: mayUseStore,
      params: ImageParams,
      body,
      answers: { 200: { description: "The record", schema: PublicImage }, ...answers, ...badBody },
      handle: async (call) => {
        const { nodeID, id } = call.params;
        checkHasStore(deps, nodeID);
        found(nodeID, id);
        if (call.body.id !== undefined && call.body.id !== id) throw new Violations([`id: must be ${id}, or absent`]);
        const info = await mustBeThere(deps, storeCall(call), call.body.location);
        // Somebody may have removed it meanwhile.
        found(nodeID, id);
        const record = { ...call.body, id };
        put(nodeID, record, call.caller.name, "changed");
        return Response.json({ ...record, present: true, ...info });
      },
    }),
    route({
      method: "DELETE",
      path: `${base}/{id}`,
      operationId: "deleteNodeImage",
      summary: "Remove the record of an image",
      tag,
      access: mayUseStore,
      params: ImageParams,
      query: z.object({
        deleteFile: Flag.meta({ description: "Remove its file first; the record stays when that fails" }),
      }),
      answers: { 200: { description: "Removed", schema: Empty }, ...answers },
      handle: async (call) => {
        const { nodeID, id } = call.params;
        checkHasStore(deps, nodeID);
        const record = found(nodeID, id);
        if (call.query.deleteFile === true) {
          const isSame = ({ id: other, location }: ImageRecord): boolean =>
            other !== id && pathOf(location) === pathOf(record.location);
          const other = images.ofNode(nodeID).find(isSame);
          if (other !== undefined) {
            const message = `the image ${other.displayName} is in the same file`;
            throw new InputError("item-collision", message, { details: { id: other.id, code: "E_DEPENDENCY" } });
          }
          await removeFile(deps, storeCall(call), record.location);
        }
        fleet.recordNodeChange(nodeID, call.caller.name, `Image ${record.displayName} removed`, () =>
          images.remove(nodeID, id),
        );
        return Response.json({});
      },
    }),
  ];

  function put(nodeID: string, record: ImageRecord, user: string, done: string): void {
    fleet.recordNodeChange(nodeID, user, `Image ${record.displayName} ${done}`, () => images.put(nodeID, record));
  }

  /** The records, with what the node says of their files as far as it does so in time. */
  async function shown(deps: ApiDeps, call: StoreCall, records: readonly ImageRecord[]): Promise<readonly object[]> {
    if (records.length === 0 || !checkHasStore(deps, call.nodeID).isOnline) return records;
    const late = new AbortController();
    const stopClock = clock.after(LOOK_MS, () => late.abort(new SessionError("timeout", "the node takes too long")));
    const signal = AbortSignal.any([call.signal, late.signal]);
    const waiting = [...records];
    const seen = new Map<string, Found>();
    const look = async (): Promise<void> => {
      for (let record = waiting.shift(); record !== undefined && !signal.aborted; record = waiting.shift()) {
        const isKnown = await lookAt(deps, { ...call, signal }, record.location).catch(() => undefined);
        if (isKnown !== undefined) seen.set(record.id, isKnown);
      }
    };
    try {
      await Promise.all(Array.from({ length: AT_A_TIME }, look));
    } finally {
      stopClock();
    }
    return records.map((record) => ({ ...record, ...seen.get(record.id) }));
  }
}

function storeCall({ params, caller, request }: Call<z.infer<typeof NodeParams>, unknown, unknown>): StoreCall {
  return { nodeID: params.nodeID, user: caller.name, signal: request.signal, isAudited: false };
}

async function lookAt(deps: ApiDeps, call: StoreCall, filename: string): Promise<Found> {
  try {
    return { present: true, ...(await askStore(deps, call, { action: "IMAGE_INFO", filename }, ImageInfo)) };
  } catch (error) {
    if (isNoFile(error)) return { present: false };
    throw error;
  }
}

/** @throws {Violations} naming `location` for what is no file there. */
async function mustBeThere(deps: ApiDeps, call: StoreCall, filename: string): Promise<ImageInfo> {
  try {
    return await askStore(deps, call, { action: "IMAGE_INFO", filename }, ImageInfo);
  } catch (error) {
    if (error instanceof AgentError && isNoFile(error)) throw new Violations([`location: ${error.message}`]);
    throw error;
  }
}

/** A file that is gone already is what was wanted. */
async function removeFile(deps: ApiDeps, call: StoreCall, filename: string): Promise<void> {
  try {
    const { isAudited: _quiet, ...audited } = call;
    await askStore(deps, audited, { action: "DELETE", filename }, z.unknown());
  } catch (error) {
    if (!(error instanceof SessionError && error.code === "not-found")) throw error;
  }
}

const NO_FILE: ReadonlySet<string> = new Set(["not-found", "invalid-body", "conflict", "forbidden"]);

/** Whether a node says that there is no file at a path, that it is none, or that there can be none. */
function isNoFile(error: unknown): boolean {
  return error instanceof SessionError && NO_FILE.has(error.code);
}

/** A path as the node takes it: whether it begins with a slash makes no difference. */
function pathOf(location: string): string {
  return location.split("/").filter(Boolean).join("/");
}
