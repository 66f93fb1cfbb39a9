import type { z } from "zod";
import { InputError, SessionError } from "../../errors.ts";
import type { DataStoreRequest } from "../../protocol/triggers/data-store.ts";
import { DATA_STORE_EVENT, dataStoreDeadlineMs } from "../triggers/data-store-event.ts";
import { tgrn } from "../access/policies/permissions.ts";
import { nodeOf } from "../nodes/routes.ts";
import { runForCaller, runInParts } from "../triggers/routes.ts";
import { defined } from "../../lib/defined.ts";
import type { TriggerRequest } from "../triggers/records.ts";
import type { NodeService } from "../nodes/service.ts";
import type { TriggerService } from "../triggers/service.ts";
import type { ReplyJoins } from "../triggers/reply-joins.ts";
import type { Clock } from "../../host/clock.ts";

/** Access to the data store of a node. */
export const mayUseStore = {
  to: "resource",
  permissions: ["nodes::service:datastore-manager"],
  resource: ({ nodeID = "" }: { readonly nodeID?: string }): string => tgrn.node(nodeID),
} as const;

/** Node and user of a data store request. */
export interface StoreCall {
  readonly nodeID: string;
  readonly user: string;
  /** Aborted when the caller disconnects. */
  readonly signal: AbortSignal;
  readonly isAudited?: false;
}

export interface StoreCallDeps {
  readonly nodes: NodeService;
  readonly triggers: TriggerService;
  readonly joins: ReplyJoins;
  readonly clock: Clock;
}

/** Rejects nodes without a data store. @throws {InputError} `not-found`; `not-supported` for an agent */
export async function checkHasStore(
  { nodes }: Pick<StoreCallDeps, "nodes">,
  nodeID: string,
): Promise<{ readonly isOnline: boolean }> {
  const { type, isOnline } = await nodeOf(nodes, nodeID);
  if (type === "Agent") throw new InputError("not-supported", "agents have no data store");
  return { isOnline };
}

/**
 * Sends a request to the data store of a node and checks the response against `schema`.
 * @throws {SessionError} `offline`, `invalid-reply`, or the node's error; {InputError} `overloaded`, or as `checkHasStore`
 */
export async function askStore<T>(
  deps: StoreCallDeps,
  { nodeID, user, signal, isAudited }: StoreCall,
  body: DataStoreRequest,
  schema: z.ZodType<T>,
): Promise<T> {
  if (!(await checkHasStore(deps, nodeID)).isOnline) throw new SessionError("offline", "the node has no session");
  const order: TriggerRequest = {
    event: DATA_STORE_EVENT,
    body,
    wait: true,
    user,
    deadlineMs: dataStoreDeadlineMs(body),
    ...defined({ isAudited }),
  };
  const result = await (isLarge(body) ? runInParts : runForCaller)(deps, nodeID, order, signal);
  const parsed = schema.safeParse(result);
  if (parsed.success) return parsed.data;
  throw new SessionError(
    "invalid-reply",
    `the node's response to ${body.action} has an unknown format; update the control plane`,
  );
}

/** Reports whether the response may exceed one message. */
const isLarge = ({ action }: DataStoreRequest): boolean => action === "LIST" || action === "TASKS";
