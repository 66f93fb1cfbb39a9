import { DataStoreRequest } from "../../protocol/data-store.ts";
import type { OneShotTrigger } from "./trigger.ts";

/** Answers one request of a data store. */
export type AnswerDataStore = (request: DataStoreRequest, signal: AbortSignal) => Promise<unknown>;

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
    needsDataPlane: false,
    readOnly: false,
    agents: false,
    atOnce: 4,
    async handle(request, { signal, user }) {
      const answered = await answer(request, signal);
      if (request.action === "DELETE") audit(`${user} deleted ${request.filename} from the data store`);
      return answered;
    },
  };
}
