import { InputError } from "../../errors.ts";
import { UNAUTHORIZED_IP } from "../../protocol/values/restriction.ts";
import { settleIdentity } from "./identity.ts";
import { isPermitted, isRepair } from "./ip-lock.ts";
import type { NodeStore } from "./store.ts";

type Tables = { readonly nodes: Pick<NodeStore, "credentials"> };

/** Rejects a request of an identity that two machines alternate in using. @throws {InputError} `busy` */
export async function refuseWhileHeld(store: Tables, uid: string): Promise<void> {
  if (await isHeld(store, uid)) throw heldIdentity(uid);
}

/**
 * Rejects a request of a node that connects from outside its lock. Does not name the lock, because the machine may be a copy.
 * @throws {InputError} `unauthorized-ip`
 */
export async function refuseFrom(store: Tables, uid: string, address: string): Promise<void> {
  if (isPermitted((await store.nodes.credentials(uid))?.lockedTo, address)) return;
  throw new InputError(UNAUTHORIZED_IP, `this node is locked to other addresses than ${address}`);
}

/** Rejects an operator's access to a node that connects from outside its lock. @throws {InputError} `unauthorized-ip` */
export async function refuseAccessTo(store: Tables, uid: string, address: string): Promise<void> {
  const lockedTo = (await store.nodes.credentials(uid))?.lockedTo;
  if (isPermitted(lockedTo, address)) return;
  const lock = lockedTo?.join(", ") ?? "";
  throw new InputError(UNAUTHORIZED_IP, `this node is locked to ${lock} and connects from ${address}`);
}

/** Rejects triggers for a node outside its lock, except those that repair its connection. @throws {InputError} `unauthorized-ip` */
export async function refuseTriggerFrom(store: Tables, uid: string, address: string, event: string): Promise<void> {
  if (!isRepair(event)) await refuseAccessTo(store, uid, address);
}

/** Reports whether an identity waits for an operator's decision. */
export async function isHeld(store: Tables, uid: string): Promise<boolean> {
  return (await store.nodes.credentials(uid))?.trail.isHeld === true;
}

/** Error of a request for a held identity; names the call that releases it. */
export function heldIdentity(uid: string): InputError {
  const call = `DELETE /v2/alert/${uid}/Identity%20Shared`;
  return new InputError("busy", `two machines use this identity; stop one of them, then call ${call}`, {
    details: { event: "Identity Shared" },
  });
}

/** Ends the hold on an identity. Returns false if it is not held. */
export async function releaseIdentity(
  tx: { readonly nodes: Pick<NodeStore, "credentials" | "setTrail"> },
  uid: string,
): Promise<boolean> {
  const trail = (await tx.nodes.credentials(uid))?.trail;
  if (trail?.isHeld !== true) return false;
  await tx.nodes.setTrail(uid, settleIdentity(trail));
  return true;
}
