import { DataStoreRequest, shownUrl } from "../../protocol/triggers/data-store.ts";

/** The trigger event that a node's data store is asked by. */
export const DATA_STORE_EVENT = "datastore-manager";

const SHORT_MS = 30_000;
const LIST_MS = 60_000;
/** A directory may hold very much. */
const DELETE_MS = 600_000;
/** What is told of a path, which may have thousands of characters. */
const SHOWN_CHARS = 200;

/** How long a node may take over a request of its data store, in milliseconds. */
export function dataStoreDeadlineMs(body: unknown): number {
  const { data } = DataStoreRequest.safeParse(body ?? {});
  if (data?.action === "LIST") return LIST_MS;
  return data?.action === "DELETE" ? DELETE_MS : SHORT_MS;
}

/** A request of a data store as people read it in the audit trail; an address without what could be a credential. */
export function dataStoreLabel(body: unknown): string {
  const { data } = DataStoreRequest.safeParse(body ?? {});
  return data === undefined ? "Data Store" : `Data Store: ${deed(data)}`;
}

function deed(request: DataStoreRequest): string {
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
      return `look at the image ${shortened(request.filename)}`;
  }
}

function shortened(text: string): string {
  return text.length <= SHOWN_CHARS ? text : `${text.slice(0, SHOWN_CHARS)}…`;
}
