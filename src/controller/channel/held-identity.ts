import { InputError } from "../../errors.ts";
import type { Store } from "../store/store.ts";

/** While two machines alternate under one identity, it gets nothing that either could misuse. @throws {InputError} `busy`. */
export function refuseWhileHeld(store: Store, uid: string): void {
  if (isHeld(store, uid)) throw heldIdentity(uid);
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
