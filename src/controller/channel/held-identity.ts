import { InputError } from "../../errors.ts";
import { UNAUTHORIZED_IP } from "../../protocol/values/restriction.ts";
import { isPermitted, isRepair } from "../model/ip-lock.ts";
import type { Store } from "../store/store.ts";

/** While two machines alternate under one identity, it gets nothing that either could misuse. @throws {InputError} `busy`. */
export function refuseWhileHeld(store: Store, uid: string): void {
  if (isHeld(store, uid)) throw heldIdentity(uid);
}

/** Refuses a secret to a node that connects from an address outside its lock. @throws {InputError} `unauthorized-ip`. */
export function refuseFrom(store: Store, uid: string, address: string): void {
  const lockedTo = store.nodes.credentials(uid)?.lockedTo;
  if (isPermitted(lockedTo, address)) return;
  const lock = lockedTo?.join(", ") ?? "";
  throw new InputError(UNAUTHORIZED_IP, `this node is locked to ${lock} and connects from ${address}`);
}

/** Refuses all triggers but those that repair its connection to a node outside its lock. @throws {InputError} `unauthorized-ip`. */
export function refuseTriggerFrom(store: Store, uid: string, address: string, event: string): void {
  if (!isRepair(event)) refuseFrom(store, uid, address);
}

/** Whether an identity waits for an operator's decision. */
export function isHeld(store: Store, uid: string): boolean {
  return store.nodes.credentials(uid)?.trail.isHeld === true;
}

/** What is answered in the name of an identity that is held: it names the call that lifts this. */
export function heldIdentity(uid: string): InputError {
  const call = `DELETE /v2/alert/${uid}/Identity%20Shared`;
  return new InputError("busy", `two machines use this identity; once one of them is gone: ${call}`, {
    details: { event: "Identity Shared" },
  });
}
