import { DataStoreRequest } from "../../../protocol/triggers/data-store.ts";
import { LOCAL_USER, type OneShotTrigger } from "../execution/trigger.ts";

/** Answers one request of a data store. */
export type AnswerDataStore = (request: DataStoreRequest, signal: AbortSignal) => Promise<unknown>;

/** What changes nothing; screens ask for it again and again. */
const READING: ReadonlySet<DataStoreRequest["action"]> = new Set(["LIST", "TASKS", "IMAGE_INFO"]);

/** The actions that free space, or end work that takes it. */
const FREEING: ReadonlySet<DataStoreRequest["action"]> = new Set(["DELETE", "CANCEL", "CLEAR"]);

/** Files and transfers of the node's data store: every operation of the HTTP API, by the name of its action. */
export function datastoreManager(
  answer: AnswerDataStore,
  audit: (what: string) => void,
): OneShotTrigger<DataStoreRequest> {
  return {
    event: "datastore-manager",
    kind: "one-shot",
    request: DataStoreRequest,
    deadlineMs: 600_000,
    // An INACTIVE node keeps what it has as it is.
    needsDataPlane: true,
    readOnly: false,
    isReadOnly: ({ action }) => READING.has(action),
    isRemedy: ({ action }) => FREEING.has(action),
    agents: false,
    atOnce: 4,
    async handle(request, { signal, user }) {
      const answered = await answer(request, signal);
      // The control plane keeps its own record of what it asks for.
      if (request.action === "DELETE" && user === LOCAL_USER)
        audit(`${user} deleted ${request.filename} from the data store`);
      return answered;
    },
  };
}
