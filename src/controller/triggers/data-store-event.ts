import { shorten } from "../../lib/text/shorten.ts";
import { DataStoreRequest, shownUrl } from "../../protocol/triggers/data-store.ts";

/** Trigger event of data store requests. */
export const DATA_STORE_EVENT = "datastore-manager";

const SHORT_MS = 30_000;
const LIST_MS = 60_000;
/** Deleting a large directory is slow. */
const DELETE_MS = 600_000;
/** Limit of a path in an audit label, in characters. */
const SHOWN_CHARS = 201;

/** Returns the deadline of a data store request, in milliseconds. */
export function dataStoreDeadlineMs(body: unknown): number {
  const { data } = DataStoreRequest.safeParse(body ?? {});
  if (data?.action === "LIST") return LIST_MS;
  return data?.action === "DELETE" ? DELETE_MS : SHORT_MS;
}

/** Returns the audit label of a data store request; URLs without credentials. */
export function dataStoreLabel(body: unknown): string {
  const { data } = DataStoreRequest.safeParse(body ?? {});
  return data === undefined ? "Data Store" : `Data Store: ${actionText(data)}`;
}

function actionText(request: DataStoreRequest): string {
  switch (request.action) {
    case "LIST":
      return request.filename === undefined ? "list" : `list ${shortened(request.filename)}`;
    case "DELETE":
      return `delete ${shortened(request.filename)}`;
    case "MKDIR":
      return `make the directory ${shortened(request.filename)}`;
    case "HTTP_DOWNLOAD": {
      const { uri, location, filename } = request;
      const separator = location.endsWith("/") ? "" : "/";
      return `download ${shortened(shownUrl(uri))} to ${shortened(`${location}${separator}${filename}`)}`;
    }
    case "HTTP_UPLOAD":
      return `upload ${shortened(request.filePath)} to ${shortened(shownUrl(request.uri))}`;
    case "S3_DOWNLOAD":
      return `download ${shortened(request.uri)} to ${shortened(request.location)}`;
    case "S3_UPLOAD":
      return `upload ${shortened(request.filePath)} to ${shortened(request.bucketDest)}`;
    case "TASKS":
      return "list tasks";
    case "CANCEL":
      return `cancel the task ${request.id}`;
    case "CLEAR":
      return `clear the task ${request.id}`;
    case "IMAGE_INFO":
      return `inspect the image ${shortened(request.filename)}`;
  }
}

const shortened = (text: string): string => shorten(text, SHOWN_CHARS);
