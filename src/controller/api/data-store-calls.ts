import type { z } from "zod";
import { InputError, SessionError } from "../../errors.ts";
import type { DataStoreRequest } from "../../protocol/triggers/data-store.ts";
import type { TriggerRequest } from "../fleet.ts";
import { DATA_STORE_EVENT, dataStoreDeadlineMs } from "../model/data-store.ts";
import { tgrn } from "../model/permissions.ts";
import { nodeOf } from "./nodes.ts";
import type { ApiDeps } from "./route.ts";
import { runForCaller, runInParts } from "./triggers.ts";
import { defined } from "../../lib/defined.ts";

/** Who may see and change what is in the data store of a node. */
export const mayUseStore = {
  to: "resource",
  permissions: ["nodes::service:datastore-manager"],
  resource: ({ nodeID = "" }: { readonly nodeID?: string }): string => tgrn.node(nodeID),
} as const;

/** Whose node, and what for. */
export interface StoreCall {
  readonly nodeID: string;
  readonly user: string;
  /** Aborted when the caller is gone. */
  readonly signal: AbortSignal;
  readonly isAudited?: false;
}

type Deps = Pick<ApiDeps, "fleet" | "clock" | "joins">;

/** Refuses what has no data store. @throws {InputError} `not-found`; `not-supported` for an agent. */
export function checkHasStore({ fleet }: Pick<ApiDeps, "fleet">, nodeID: string): { readonly isOnline: boolean } {
  const { type, isOnline } = nodeOf(fleet, nodeID);
  if (type === "Agent") throw new InputError("not-supported", "agents have no data store");
  return { isOnline };
}

/**
 * Asks the data store of a node. What the node answers is held to `schema`, so that a faulty node is told from a faulty answer.
 * @throws {SessionError} `offline`, `invalid-reply`, or what the node refuses with; {InputError} `overloaded`, or as `checkHasStore`.
 */
export async function askStore<T>(
  deps: Deps,
  { nodeID, user, signal, isAudited }: StoreCall,
  body: DataStoreRequest,
  schema: z.ZodType<T>,
): Promise<T> {
  if (!checkHasStore(deps, nodeID).isOnline) throw new SessionError("offline", "the node has no session");
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
  throw new SessionError("invalid-reply", `the node's answer to ${body.action} is not what this version understands`);
}

/** Only these may have more to say than one message holds. */
const isLarge = ({ action }: DataStoreRequest): boolean => action === "LIST" || action === "TASKS";
