import type { Clock } from "../../host/clock.ts";
import type { DocumentName } from "../../protocol/documents/claims.ts";
import type { Documents } from "./documents/documents.ts";
import type { NodeSession } from "./session.ts";

/** Time to batch changes before nodes are notified, and delay before a congested socket is retried, in milliseconds. */
const GATHER_MS = 20;
const RETRY_MS = 1000;

export interface AnnouncerDeps {
  readonly sessions: {
    get(uid: string): { readonly isCongested: boolean; readonly peer: Pick<NodeSession["peer"], "notify"> } | undefined;
  };
  readonly documents: Pick<Documents, "versions">;
  readonly clock: Clock;
}

/** Notifies online nodes of changed documents; batches several changes into one message. */
export class Announcer {
  readonly #deps: AnnouncerDeps;
  readonly #due = new Map<string, Set<DocumentName>>();
  #cancel: (() => void) | undefined;

  constructor(deps: AnnouncerDeps) {
    this.#deps = deps;
  }

  changed(uid: string, names: readonly DocumentName[]): void {
    if (names.length === 0 || this.#deps.sessions.get(uid) === undefined) return;
    const due = this.#due.get(uid) ?? new Set();
    for (const name of names) due.add(name);
    this.#due.set(uid, due);
    this.#cancel ??= this.#deps.clock.after(GATHER_MS, () => this.#flush());
  }

  close(): void {
    this.#cancel?.();
    this.#due.clear();
  }

  #flush(): void {
    this.#cancel = undefined;
    for (const [uid, names] of this.#due) {
      const session = this.#deps.sessions.get(uid);
      if (session?.isCongested === true) continue;
      this.#due.delete(uid);
      if (session === undefined) continue;
      const versions = this.#deps.documents.versions(uid);
      for (const name of names) session.peer.notify("document.changed", { name, version: versions[name] });
    }
    if (this.#due.size > 0) this.#cancel = this.#deps.clock.after(RETRY_MS, () => this.#flush());
  }
}
