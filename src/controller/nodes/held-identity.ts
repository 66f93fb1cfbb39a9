import { InputError } from "../../errors.ts";
import { UNAUTHORIZED_IP } from "../../protocol/values/restriction.ts";
import { settleIdentity } from "./identity.ts";
import { isPermitted, isRepair } from "./ip-lock.ts";
import type { NodeStore } from "./store.ts";

type Tables = { readonly nodes: NodeStore };

/** Rejects a request of an identity that two machines alternate in using. @throws {InputError} `busy` */
export function refuseWhileHeld(store: Tables, uid: string): void {
  if (isHeld(store, uid)) throw heldIdentity(uid);
}

/**
 * Rejects a request of a node that connects from outside its lock. Does not name the lock, because the machine may be a copy.
 * @throws {InputError} `unauthorized-ip`
 */
export function refuseFrom(store: Tables, uid: string, address: string): void {
  if (isPermitted(store.nodes.credentials(uid)?.lockedTo, address)) return;
  throw new InputError(UNAUTHORIZED_IP, `this node is locked to other addresses than ${address}`);
}

/** Rejects an operator's access to a node that connects from outside its lock. @throws {InputError} `unauthorized-ip` */
export function refuseAccessTo(store: Tables, uid: string, address: string): void {
  const lockedTo = store.nodes.credentials(uid)?.lockedTo;
  if (isPermitted(lockedTo, address)) return;
  const lock = lockedTo?.join(", ") ?? "";
  throw new InputError(UNAUTHORIZED_IP, `this node is locked to ${lock} and connects from ${address}`);
}

/** Rejects triggers for a node outside its lock, except those that repair its connection. @throws {InputError} `unauthorized-ip` */
export function refuseTriggerFrom(store: Tables, uid: string, address: string, event: string): void {
  if (!isRepair(event)) refuseAccessTo(store, uid, address);
}

/** Reports whether an identity waits for an operator's decision. */
export function isHeld(store: Tables, uid: string): boolean {
  return store.nodes.credentials(uid)?.trail.isHeld === true;
}

/** Error of a request for a held identity; names the call that releases it. */
export function heldIdentity(uid: string): InputError {
  const call = `DELETE /v2/alert/${uid}/Identity%20Shared`;
  return new InputError("busy", `two machines use this identity; stop one of them, then call ${call}`, {
    details: { event: "Identity Shared" },
  });
}

/** Ends the hold on an identity. Returns false if it is not held. */
export function releaseIdentity(store: Tables, uid: string): boolean {
  const trail = store.nodes.credentials(uid)?.trail;
  if (trail?.isHeld !== true) return false;
  store.nodes.setTrail(uid, settleIdentity(trail));
  return true;
}
