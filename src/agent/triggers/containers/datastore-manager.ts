import { DataStoreRequest } from "../../../protocol/triggers/data-store.ts";
import { LOCAL_USER, type OneShotTrigger } from "../execution/trigger.ts";

/** Executes one request of a data store. */
export type AnswerDataStore = (request: DataStoreRequest, signal: AbortSignal) => Promise<unknown>;

/** Actions that change nothing; viewers poll them. */
const READING: ReadonlySet<DataStoreRequest["action"]> = new Set(["LIST", "TASKS", "IMAGE_INFO"]);

/** Actions that free space, or cancel work that uses it. */
const FREEING: ReadonlySet<DataStoreRequest["action"]> = new Set(["DELETE", "CANCEL", "CLEAR"]);

/** Manages files and transfers of the node's data store: all operations of the HTTP API, by action name. */
export function datastoreManager(
  answer: AnswerDataStore,
  audit: (what: string) => void,
): OneShotTrigger<DataStoreRequest> {
  return {
    event: "datastore-manager",
    kind: "one-shot",
    request: DataStoreRequest,
    deadlineMs: 600_000,
    // An INACTIVE node keeps its files.
    needsDataPlane: true,
    readOnly: false,
    isReadOnly: ({ action }) => READING.has(action),
    isRemedy: ({ action }) => FREEING.has(action),
    agents: false,
    atOnce: 4,
    async handle(request, { signal, user }) {
      const answered = await answer(request, signal);
      // The control plane keeps its own record of its requests.
      if (request.action === "DELETE" && user === LOCAL_USER)
        audit(`${user} deleted ${request.filename} from the data store`);
      return answered;
    },
  };
}
