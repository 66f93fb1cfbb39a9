import { z } from "zod";
import {
  DataStoreListing,
  DataStoreTasks,
  DeleteFields,
  HttpDownloadFields,
  HttpUploadFields,
  judgeHash,
  ListFields,
  MkdirFields,
  S3DownloadFields,
  S3UploadFields,
  StorePath,
  TaskStarted,
  type DataStoreRequest,
} from "../../protocol/triggers/data-store.ts";
import { withoutBlanks } from "../http/body.ts";
import { InputError } from "../../errors.ts";
import { type StoreCallDeps, askStore, mayUseStore, type StoreCall } from "./calls.ts";
import { NodeParams } from "../config/routes.ts";
import { Violations } from "../http/problem.ts";
import { route, type Call, type Route } from "../http/route.ts";
import { badBody, Empty, notFound, ofNode, refusals } from "../http/shapes.ts";

const tag = "Data store";
const base = "/v2/node/{nodeID}/data-store";
const TaskParams = NodeParams.extend({ taskID: z.string().max(64).toLowerCase() });
/** Response body that is not forwarded. */
const Done = z.unknown().transform((): Record<string, never> => ({}));
const answers = { ...ofNode, ...refusals, ...notFound } as const;

type Params = z.infer<typeof NodeParams>;

/** Routes of the data store of an appliance: listing, files and transfers. */
export function nodeDataStoreRoutes(deps: StoreCallDeps): readonly Route[] {
  return [
    route({
      method: "GET",
      path: `${base}/list`,
      operationId: "listDataStore",
      summary: "List the data store of a node, or one of its directories",
      tag,
      access: mayUseStore,
      params: NodeParams,
      query: z.object(ListFields),
      answers: { 200: { description: "The entries as a tree", schema: DataStoreListing }, ...answers },
      handle: async (call) =>
        Response.json(await askStore(deps, caller(call), { action: "LIST", ...call.query }, DataStoreListing)),
    }),
    route({
      method: "DELETE",
      path: base,
      operationId: "deleteFromDataStore",
      summary: "Remove a file or a directory with its contents; named in the body or the query",
      tag,
      access: mayUseStore,
      params: NodeParams,
      query: z.object(ListFields),
      body: {
        schema: z.preprocess(withoutBlanks, z.object({ filename: StorePath.optional() }).optional()),
        described: z.object(DeleteFields).optional(),
      },
      answers: { 200: { description: "Removed", schema: Empty }, ...answers, ...badBody },
      handle: async (call) => {
        const filename = oneName(call.body?.filename, call.query.filename);
        return Response.json(await askStore(deps, caller(call), { action: "DELETE", filename }, Done));
      },
    }),
    post(deps, {
      word: "mkdir",
      operationId: "makeDataStoreDirectory",
      summary: "Create a directory and its parents",
      done: "Created",
      schema: z.object(MkdirFields),
      answer: Empty,
      request: (body) => ({ action: "MKDIR", ...body }),
    }),
    post(deps, {
      word: "http-download",
      operationId: "downloadToDataStore",
      summary: "Download a file over HTTP into the data store of a node",
      done: "The transfer task",
      schema: z.object(HttpDownloadFields).superRefine(judgeHash),
      answer: TaskStarted,
      request: (body) => ({ action: "HTTP_DOWNLOAD", ...body }),
    }),
    post(deps, {
      word: "http-upload",
      operationId: "uploadFromDataStore",
      summary: "Upload a file from the data store of a node to an HTTP address, by POST",
      done: "The transfer task",
      schema: z.object(HttpUploadFields),
      answer: TaskStarted,
      request: (body) => ({ action: "HTTP_UPLOAD", ...body }),
    }),
    post(deps, {
      word: "s3-download",
      operationId: "downloadFromBucket",
      summary: "Download an object of a bucket into the data store of a node",
      done: "The transfer task",
      schema: z.object(S3DownloadFields),
      answer: TaskStarted,
      request: (body) => ({ action: "S3_DOWNLOAD", ...body }),
    }),
    post(deps, {
      word: "s3-upload",
      operationId: "uploadToBucket",
      summary: "Upload a file from the data store of a node into a bucket",
      done: "The transfer task",
      schema: z.object(S3UploadFields),
      answer: TaskStarted,
      request: (body) => ({ action: "S3_UPLOAD", ...body }),
    }),
    route({
      method: "GET",
      path: `${base}/tasks`,
      operationId: "listDataStoreTasks",
      summary: "List running and recent tasks of a node's data store",
      tag,
      access: mayUseStore,
      params: NodeParams,
      answers: { 200: { description: "The tasks", schema: DataStoreTasks }, ...answers },
      handle: async (call) => Response.json(await askStore(deps, caller(call), { action: "TASKS" }, DataStoreTasks)),
    }),
    route({
      method: "DELETE",
      path: `${base}/tasks/{taskID}`,
      operationId: "endDataStoreTask",
      summary: "Cancel a running task, or clear a finished one",
      tag,
      access: mayUseStore,
      params: TaskParams,
      answers: { 200: { description: "Cancelled or cleared", schema: Empty }, ...answers },
      handle: async (call) => {
        const { taskID: id } = call.params;
        const storeCall = caller(call);
        const { tasks } = await askStore(deps, { ...storeCall, isAudited: false }, { action: "TASKS" }, DataStoreTasks);
        const task = tasks.find((one) => one.id.toLowerCase() === id);
        if (task === undefined) throw new InputError("not-found", `there is no task ${id}`);
        const isOpen = task.status === "Pending" || task.status === "Running";
        return Response.json(await askStore(deps, storeCall, { action: isOpen ? "CANCEL" : "CLEAR", id }, Done));
      },
    }),
  ];
}

interface Post<S extends z.ZodType, T> {
  /** Last segment of the path. */
  readonly word: string;
  readonly operationId: string;
  readonly summary: string;
  readonly done: string;
  readonly schema: S;
  readonly answer: z.ZodType<T>;
  readonly request: (body: z.infer<S>) => DataStoreRequest;
}

/** Builds an operation that forwards its body to the node. */
function post<S extends z.ZodType, T>(
  deps: StoreCallDeps,
  { word, operationId, summary, done, schema, answer, request }: Post<S, T>,
): Route {
  return route({
    method: "POST",
    path: `${base}/${word}`,
    operationId,
    summary,
    tag,
    access: mayUseStore,
    params: NodeParams,
    body: { schema: z.preprocess(withoutBlanks, schema), described: schema },
    answers: { 200: { description: done, schema: answer }, ...answers, ...badBody },
    handle: async (call) => Response.json(await askStore(deps, caller(call), request(call.body), answer)),
  });
}

function caller({ params: { nodeID }, caller: { name }, request }: Call<Params, unknown, unknown>): StoreCall {
  return { nodeID, user: name, signal: request.signal };
}

/** @throws {Violations} if the name is missing, or differs between body and query */
function oneName(inBody: string | undefined, inQuery: string | undefined): string {
  const name = inBody ?? inQuery;
  if (name === undefined) throw new Violations(["filename: is missing"]);
  if (inQuery !== undefined && name !== inQuery) throw new Violations(["filename: body and query name different ones"]);
  return name;
}
