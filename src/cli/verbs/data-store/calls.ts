import type { z } from "zod";
import { InputError } from "../../../errors.ts";
import { DataStoreRequest } from "../../../protocol/triggers/data-store.ts";
import { firstIssueText } from "../../../protocol/values/issue-text.ts";
import { triggerAnswer } from "../../frame/trigger-answer.ts";
import type { Call } from "../../frame/verb.ts";

/**
 * Asks the data store of this node.
 * @throws {InputError} `usage` for a request that no data store takes; {SessionError} as `triggerAnswer`.
 */
export function askDataStore<T>(call: Call, body: object, schema: z.ZodType<T>): Promise<T> {
  const request = DataStoreRequest.safeParse(body);
  if (!request.success) throw new InputError("usage", firstIssueText(request.error));
  return triggerAnswer(call, "datastore-manager", request.data, schema);
}
